"""What happened, in one number: each event goes into a digest, the last ones are kept.

Most worlds are lived for what judges say, and nobody asks for their digest: their events are not
made text.
"""

import hashlib
from collections import deque

KEPT = 400
"""Of the last events."""
DIGESTED = 256
"""So many lines at a time."""


class Trace:
    """The events of one run. Two runs are the same if their digests are."""

    def __init__(self, loop, *, sink=None, is_digested=True):
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=16) if is_digested else None
        self._sink = sink
        self._is_text = is_digested or sink is not None
        self._undigested = []
        self._last = deque(maxlen=KEPT)
        self.count = 0

    def note(self, kind, *what):
        """Take an event in. ``what``: numbers and text only, nothing with an address in it."""
        self.count += 1
        event = (self._loop.now, self._loop.life.name, kind, what)
        self._last.append(event)
        if not self._is_text:
            return
        line = _text_of(*event)
        if self._digest is not None:
            self._undigested.append(line)
            if len(self._undigested) == DIGESTED:
                self._digest_all()
        if self._sink is not None:
            self._sink.write(line + "\n")

    def _digest_all(self):
        self._digest.update("".join(self._undigested).encode())
        self._undigested.clear()

    @property
    def last(self):
        """The last events, as text."""
        return [_text_of(*event) for event in self._last]

    def digest(self):
        """Return the digest; None: nobody asked for one."""
        if self._digest is None:
            return None
        self._digest_all()
        return self._digest.hexdigest()


def _text_of(now, life, kind, what):
    return f"{now:.6f} {life} {kind} {' '.join(map(str, what))}"
