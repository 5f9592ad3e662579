"""Timers by key, cheap to move: a heartbeat moves its member's session end and nothing else.

A key has one entry in the heap at most that counts, and those that do not count are never more than
those that do, but for a few. Moving a key further into the future leaves the
entry where it is; when that comes up, it is put where it belongs by then. So a heartbeat costs a
dictionary write, whatever the number of groups. One timer of the clock serves the whole heap; when
very many are due at once, each of the loop's turns serves some.
"""

import heapq
from collections.abc import Callable, Hashable

from ottla.env.clock import Clock, Timer
from ottla.turns import Portions, Turns

_ROOM = 64
"""Entries of cancelled keys that are let be."""


class Timers:
    """Callbacks that are due later, each under a key of its own."""

    def __init__(self, clock: Clock, turns: Turns | None = None) -> None:
        """Take ``turns``, the line of the loop, if others stand in it as well."""
        self._clock = clock
        turns = Turns(clock) if turns is None else turns
        self._ringing = Portions(turns, self._ring_one, "timers of a coordinator")
        self._due: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._queued: dict[Hashable, float] = {}
        """When the entry that counts of a key comes up. Invariant: not later than it is due."""
        self._heap: list[tuple[float, int, Hashable]] = []
        self._order = 0
        self._timer: Timer | None = None
        self._timer_at = self._rang_for = 0.0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._due

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Run ``callback`` in ``delay_ms`` (negative: 0); replaces what ``key`` was to run."""
        deadline = self._clock.monotonic() + max(delay_ms, 0) / 1000
        self._due[key] = (deadline, callback)
        queued = self._queued.get(key)
        if queued is None or queued > deadline:
            self._push(key, deadline)
            self._arm()

    def cancel(self, key: Hashable) -> None:
        """Make sure that nothing runs for ``key``. Harmless when nothing would."""
        if self._due.pop(key, None) is not None and len(self._heap) > _ROOM + 2 * len(self._due):
            self._tidy()

    def _tidy(self) -> None:
        """Drop the entries of keys that are not due any more: some would stay for half an hour."""
        self._queued = {key: deadline for key, (deadline, _) in self._due.items()}
        self._heap = [(at, order, key) for order, (key, at) in enumerate(self._queued.items())]
        heapq.heapify(self._heap)
        self._order = len(self._heap)

    def close(self) -> None:
        """Forget everything."""
        self._due.clear()
        self._queued.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _push(self, key: Hashable, at: float) -> None:
        self._queued[key] = at
        self._order += 1  # Keys need not be comparable.
        heapq.heappush(self._heap, (at, self._order, key))

    def _arm(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= earliest:
                return
            self._timer.cancel()
        self._timer_at = earliest
        delay_seconds = max(earliest - self._clock.monotonic(), 0.0)
        self._timer = self._clock.call_later(delay_seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._rang_for = self._timer_at
        self._ringing.go_on()

    def _ring_one(self) -> bool:
        """Look at the first entry; False when its time has not come: the clock wakes us then."""
        # The time it rang for has come, however the clock's fractions round.
        now = max(self._clock.monotonic(), self._rang_for)
        if not self._heap or self._heap[0][0] > now:
            self._arm()
            return False
        at, _, key = heapq.heappop(self._heap)
        if self._queued.get(key) == at:  # Else an earlier entry took its place.
            del self._queued[key]
            due = self._due.get(key)
            if due is not None and due[0] > now:
                self._push(key, due[0])
            elif due is not None:
                del self._due[key]
                due[1]()
        return True
