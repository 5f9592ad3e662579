"""What happened, in one number: each event goes into a digest, the last ones are kept as text."""

import hashlib
from collections import deque

KEPT = 400


class Trace:
    """The events of one run. Two runs are the same if their digests are."""

    def __init__(self, loop, *, sink=None, kept=KEPT):
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=16)
        self._sink = sink
        self.count = 0
        self.last = deque(maxlen=kept)
        """The last events, as text."""

    def note(self, kind, *what):
        """Take an event in. ``what``: numbers and text only, nothing with an address in it."""
        line = f"{self._loop.now:.6f} {self._loop.life.name} {kind} {' '.join(map(str, what))}"
        self._digest.update(line.encode())
        self.count += 1
        self.last.append(line)
        if self._sink is not None:
            self._sink.write(line + "\n")

    def digest(self):
        return self._digest.hexdigest()
