"""What happened, in one number: each event goes into a digest, the last ones are kept as text."""

import hashlib
from collections import deque

KEPT = 400
DIGESTED = 256
"""So many lines at a time."""


class Trace:
    """The events of one run. Two runs are the same if their digests are."""

    def __init__(self, loop, *, sink=None, kept=KEPT):
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=16)
        self._sink = sink
        self._undigested = []
        self.count = 0
        self.last = deque(maxlen=kept)
        """The last events, as text."""

    def note(self, kind, *what):
        """Take an event in. ``what``: numbers and text only, nothing with an address in it."""
        line = f"{self._loop.now:.6f} {self._loop.life.name} {kind} {' '.join(map(str, what))}"
        self._undigested.append(line)
        if len(self._undigested) == DIGESTED:
            self._digest_all()
        self.count += 1
        self.last.append(line)
        if self._sink is not None:
            self._sink.write(line + "\n")

    def _digest_all(self):
        self._digest.update("".join(self._undigested).encode())
        self._undigested.clear()

    def digest(self):
        self._digest_all()
        return self._digest.hexdigest()
