"""Whether to try again, and after what pause. Pure: the caller sleeps, by its own clock."""

from ottla.client.errors import ConnectionFailed
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError, OttlaError

_WORTH_A_RETRY = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
"""Not retriable by the table, but cured by fresh metadata when a topic was made anew."""


class Backoff:
    """The retries of one call: pauses double, and end when the call's time is up."""

    def __init__(self, settings: ClientSettings, now: float, timeout_ms: int | None = None) -> None:
        """``now`` in seconds of a monotonic clock, as below. ``timeout_ms`` None: the settings'."""
        self._settings = settings
        self._deadline = (
            now + (settings.retry_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        )
        self._count = 0
        self._connected = settings.awaits_cluster

    def pause_seconds(self, error: OttlaError, now: float) -> float | None:
        """Return how long to wait before the next try; None when there is to be none.

        A first connection that fails is not tried again, unless the settings say so: it is what the
        user got wrong.
        """
        if isinstance(error, KafkaError):
            self._connected = True
            if not error.code.retriable and error.code not in _WORTH_A_RETRY:
                return None
        elif not isinstance(error, ConnectionFailed) or not self._connected:
            return None
        pause_ms = min(
            self._settings.retry_backoff_ms << min(self._count, 16),
            self._settings.retry_backoff_max_ms,
        )
        self._count += 1
        return pause_ms / 1000 if now + pause_ms / 1000 < self._deadline else None

    def connected(self) -> None:
        """Say that the cluster has answered before, so that lost connections are worth a retry."""
        self._connected = True
