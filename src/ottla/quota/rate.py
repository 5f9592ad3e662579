"""A rate over the last seconds, and how long whoever exceeds it has to wait: Kafka's arithmetic.

Owns the samples. What is recorded is summed in samples of ``window_ms`` each, of which ``samples``
count together with the current one. The rate is the sum divided by the time since the oldest of
them began, but at least by ``samples - 1`` windows. So a client that was idle may begin with a
burst of ``bound * (samples - 1)`` windows. Source: KIP-13, KIP-599; figures of a live Kafka 4.3.
"""

from math import floor
from typing import NamedTuple


class Windows(NamedTuple):
    """``quota.window.num`` and ``quota.window.size.seconds``, or the controller's."""

    samples: int = 11
    window_ms: int = 1000

    @property
    def all_ms(self) -> int:
        """After this time a sample no longer counts."""
        return self.samples * self.window_ms

    @property
    def burst_seconds(self) -> float:
        """For so many seconds' worth of its bound a client is never throttled."""
        return (self.samples - 1) * self.window_ms / 1000


class _Sample:
    """The sum of what was recorded from ``start_ms`` on, last at ``last_ms``."""

    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.start_ms = self.last_ms = now_ms


class Rate:
    """One sum over samples. ``now_ms`` never falls from call to call."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, amount: float, now_ms: int) -> None:
        """Add to the current sample; a negative amount takes back."""
        sample = self.current(now_ms)
        if now_ms - sample.start_ms >= self._windows.window_ms:
            sample = self._advance(now_ms)
        sample.value += amount
        sample.last_ms = now_ms

    def current(self, now_ms: int) -> _Sample:
        """Return the sample that was recorded to last."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        return self._samples[self._current]

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def measure(self, now_ms: int) -> tuple[float, int]:
        """Return the sum, and the time in ms (at least 1) that it is divided by."""
        samples, window_ms = self._windows
        total, oldest_ms = 0.0, now_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= samples * window_ms:
                sample.reset(now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        elapsed_ms = now_ms - oldest_ms
        full_windows = elapsed_ms // window_ms
        if full_windows < samples - 1:
            elapsed_ms += (samples - 1 - full_windows) * window_ms
        return total, max(elapsed_ms, 1)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing counts any more: a new rate would say the same."""
        return all(now_ms - one.last_ms >= self._windows.all_ms for one in self._samples)


ROOM_MAX = 2**30 - 1
"""The most that is charged before the sums are made again: larger numbers compare more slowly."""


class Meter:
    """A rate with a bound per second, which says how long to wait.

    ``cap_ms``: the longest wait; None: no limit but that of the answer's field. ``charge`` keeps
    how much may surely still be recorded in the current sample without a wait, so that the usual
    call neither sums nor divides. The result is always the exact one.
    """

    __slots__ = (
        "_amount",
        "_bound",
        "_cap_ms",
        "_full",
        "_rate",
        "_wins",
        "last_ms",
        "room",
        "until_ms",
    )

    def __init__(self, bound: float, windows: Windows, cap_ms: int | None = None) -> None:
        self._rate = Rate(windows)
        self._wins = windows
        self._bound = bound
        self._cap_ms = cap_ms
        self._amount: float = 0
        """Use: of what was charged by ``takes``, not yet in the sample."""
        self.last_ms = 0.0
        """Use: of the last charge that is not yet in the sample; 0: there is none."""
        self.room: float = 0
        """Use: how much may surely still be charged. Whole, so that bytes are counted in integers:
        mixed with fractions these cost three times as much."""
        self._full: float = 0
        """Use: what ``room`` would be if nothing but ``takes`` had charged. What is missing in it
        was charged without a call, in whole bytes, and is not yet in the sample."""
        self.until_ms = 0.0
        """Use: until when ``room`` holds. With a fraction, as the times that it is compared to."""

    @property
    def bound(self) -> float:
        """How much per second."""
        return self._bound

    @bound.setter
    def bound(self, bound: float) -> None:
        if bound != self._bound:
            self._settle()
            self._bound = bound

    def takes(self, amount: float, now_ms: float) -> bool:
        """Record ``amount`` (not negative) if it surely needs no wait; else do nothing.

        What most requests ask, and nothing else. ``now_ms`` may have fractions. Where bytes are
        counted the same is done without a call (``handlers.quotas``).
        """
        if now_ms < self.until_ms and amount <= self.room:
            self.room -= amount
            self._full -= amount  # As ``room``, so that fractions are rounded alike.
            self._amount += amount
            self.last_ms = now_ms
            return True
        return False

    def charge(self, amount: float, now_ms: int) -> int:
        """Record ``amount`` (not negative); return for how many ms to wait, 0: not at all."""
        if self.takes(amount, now_ms):
            return 0
        self._settle()
        self._rate.record(amount, now_ms)
        return self._wait(now_ms)

    def note(self, amount: float, now_ms: int) -> None:
        """Record ``amount``, and ask for no wait; a negative amount takes back."""
        if amount >= 0 and self.takes(amount, now_ms):
            return
        self._settle()
        self._rate.record(amount, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return for how many ms to wait now."""
        self._settle()
        return self._wait(now_ms)

    def _wait(self, now_ms: int) -> int:
        total, elapsed_ms = self._rate.measure(now_ms)
        rate = total / (elapsed_ms / 1000)
        if rate > self._bound:
            return bounded_ms((rate - self._bound) / self._bound * elapsed_ms, self._cap_ms)
        self.room = self._full = floor(
            min(ROOM_MAX, self._bound * self._wins.burst_seconds - total)
        )
        self.until_ms = float(self._rate.current(now_ms).start_ms + self._wins.window_ms)
        return 0

    def _settle(self) -> None:
        """Put into the sample what was charged without it."""
        if self.until_ms:
            self.until_ms = 0.0
            if self.last_ms:  # Also if nothing was charged then: the sample lives on.
                amount = self._amount + (self._full - self.room)
                self._rate.record(amount, int(self.last_ms))
                self._amount, self.last_ms = 0, 0.0

    def is_idle(self, now_ms: int) -> bool:
        """Whether a new meter would say the same from now on."""
        self._settle()
        return self._rate.is_idle(now_ms)


INT32_MAX = 2**31 - 1


def bounded_ms(milliseconds: float, cap_ms: int | None = None) -> int:
    """Return whole ms as Kafka rounds them, at most ``cap_ms`` and what an answer's field holds."""
    limit = INT32_MAX if cap_ms is None else cap_ms
    return limit if milliseconds >= limit else floor(milliseconds + 0.5)
