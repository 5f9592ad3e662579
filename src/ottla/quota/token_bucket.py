"""A bucket of tokens, for work that comes in bursts: creating and deleting partitions.

Owns Kafka's two ways of charging. The bucket fills at ``rate`` tokens per second up to ``rate`` by
all windows; it begins full. What is charged at once may take it below 0; the next request then has
to wait until it is at 0 again. Source: KIP-599; figures of a live Kafka 4.3.
"""

from ottla.quota.rate import Windows, bounded_ms


class TokenBucket:
    """``now_ms`` never falls from call to call."""

    __slots__ = ("_last_ms", "_rate", "_tokens", "_windows")

    def __init__(self, rate: float, windows: Windows, now_ms: int) -> None:
        self._rate = rate
        self._windows = windows
        self._tokens = self._burst
        self._last_ms = now_ms

    @property
    def _burst(self) -> float:
        return self._rate * self._windows.all_ms / 1000

    @property
    def bound(self) -> float:
        """Tokens per second."""
        return self._rate

    @bound.setter
    def bound(self, rate: float) -> None:
        self._rate = rate

    def wait_ms(self, now_ms: int) -> int:
        """Return for how many ms to wait until no token is owed, 0: none is."""
        self._fill(now_ms)
        if self._tokens >= 0:
            return 0
        return bounded_ms(-self._tokens / self._rate * 1000)

    def take(self, tokens: float, now_ms: int) -> None:
        """Take tokens, also those that are not there; a negative number gives back."""
        self._fill(now_ms)
        self._tokens = min(self._tokens - tokens, self._burst)

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is full, as a new one."""
        self._fill(now_ms)
        return self._tokens >= self._burst

    def _fill(self, now_ms: int) -> None:
        more = self._rate * (now_ms - self._last_ms) / 1000
        self._tokens = min(self._tokens + more, self._burst)
        self._last_ms = now_ms
