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


INT32_MAX = 2**31 - 1


def bounded_ms(milliseconds: float, cap_ms: int | None = None) -> int:
    """Return whole ms as Kafka rounds them, at most ``cap_ms`` and what an answer's field holds."""
    limit = INT32_MAX if cap_ms is None else cap_ms
    return limit if milliseconds >= limit else floor(milliseconds + 0.5)
