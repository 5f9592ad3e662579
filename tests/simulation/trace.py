"""What happened, in one number: each event goes into a digest, the last ones are kept as text."""

import hashlib

KEPT = 400
"""Of the last events, as text."""
DIGESTED = 512
"""So many lines at a time."""


class Trace:
    """The events of one run. Two runs are the same if their digests are."""

    def __init__(self, loop, *, sink=None):
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=16)
        self._sink = sink
        self._digested, self._undigested = [], []
        """The last lines that were digested, and those after them."""
        self.count = 0

    def note(self, kind, *what):
        """Take an event in. ``what``: numbers and text only, nothing with an address in it."""
        line = f"{self._loop.now:.6f} {self._loop.life.name} {kind} {' '.join(map(str, what))}"
        self._undigested.append(line)
        if len(self._undigested) == DIGESTED:
            self._digest_all()
        self.count += 1
        if self._sink is not None:
            self._sink.write(line + "\n")

    def _digest_all(self):
        self._digest.update("".join(self._undigested).encode())
        self._digested, self._undigested = self._digested[-KEPT:] + self._undigested, []

    @property
    def last(self):
        """The last events, as text."""
        return [*self._digested, *self._undigested][-KEPT:]

    def digest(self):
        self._digest_all()
        return self._digest.hexdigest()
