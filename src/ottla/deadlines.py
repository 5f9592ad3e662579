"""Callbacks with deadlines, by key: run later, moved at little cost, cancelled.

A key has at most one entry in the heap that counts. Entries that do not count are at most as many,
plus a few. Moving a key further into the future leaves its entry where it is; when that entry comes
up, it is moved to the new time. So moving a deadline (a heartbeat moves the end of its member's
session) costs a dictionary write, however many keys there are. One alarm serves the whole heap;
when very many keys are due at once, each turn of the loop serves some of them.

A callback whose work has to wait for its turn asks ``rung`` whether it still counts by then.
"""

import heapq
from collections.abc import Callable, Hashable

from ottla.env.alarm import Alarm
from ottla.env.clock import Clock
from ottla.turns import Portions, Turns

_ROOM = 64
"""How many entries of cancelled keys may always stay in the heap."""


class Deadlines:
    """Callbacks that are due later, each under a key of its own."""

    def __init__(self, clock: Clock, turns: Turns | None = None, *, name: str) -> None:
        """``name``: what a stall of the loop is put down to.

        ``turns``: the line of the loop, if others stand in it as well.
        """
        self._clock = clock
        turns = Turns(clock) if turns is None else turns
        self._ringing = Portions(turns, self._ring_one, name)
        self._due: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._queued: dict[Hashable, float] = {}
        """When the entry of a key that counts comes up. Invariant: not after the key is due."""
        self._rung: dict[Hashable, object] = {}
        """Keys that have rung, whose work waits for its turn."""
        self._heap: list[tuple[float, int, Hashable]] = []
        self._order = 0
        self._alarm = Alarm(clock, self._ring)
        self._rang_at = 0.0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._due

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Run ``callback`` in ``delay_ms`` (negative: 0); replaces what ``key`` was to run."""
        self._rung.pop(key, None)
        deadline = self._clock.monotonic() + max(delay_ms, 0) / 1000
        self._due[key] = (deadline, callback)
        queued = self._queued.get(key)
        if queued is None or queued > deadline:
            self._push(key, deadline)
            self._arm()

    def cancel(self, key: Hashable) -> None:
        """Cancel the timer of ``key``. Harmless when there is none."""
        self._rung.pop(key, None)
        if self._due.pop(key, None) is not None and len(self._heap) > _ROOM + 2 * len(self._due):
            self._tidy()

    def rung(self, key: Hashable) -> Callable[[], bool]:
        """Return what tells, once, whether the timer of ``key`` that rings now still counts.

        It does until that timer is set anew or cancelled: a session that was extended while its end
        waited for its turn has not ended.
        """
        token = self._rung[key] = object()
        return lambda: self._rung.pop(key, None) is token

    def _tidy(self) -> None:
        """Drop the entries of cancelled keys: some would stay for half an hour."""
        self._queued = {key: deadline for key, (deadline, _) in self._due.items()}
        self._heap = [(at, order, key) for order, (key, at) in enumerate(self._queued.items())]
        heapq.heapify(self._heap)
        self._order = len(self._heap)

    def close(self) -> None:
        """Cancel all timers."""
        self._due.clear()
        self._rung.clear()
        self._queued.clear()
        self._heap.clear()
        self._alarm.clear()

    def _push(self, key: Hashable, at: float) -> None:
        self._queued[key] = at
        self._order += 1  # Keys need not be comparable.
        heapq.heappush(self._heap, (at, self._order, key))

    def _arm(self) -> None:
        if self._heap:
            self._alarm.set(self._heap[0][0])

    def _ring(self, now: float) -> None:
        self._rang_at = now
        self._ringing.go_on()

    def _ring_one(self) -> bool:
        """Serve the first entry. Return False if it is not due yet: the alarm is set for that."""
        now = max(self._clock.monotonic(), self._rang_at)
        if not self._heap or self._heap[0][0] > now:
            self._arm()
            return False
        at, _, key = heapq.heappop(self._heap)
        if self._queued.get(key) == at:  # Else an earlier entry counts.
            del self._queued[key]
            due = self._due.get(key)
            if due is not None and due[0] > now:
                self._push(key, due[0])
            elif due is not None:
                del self._due[key]
                due[1]()
        return True
