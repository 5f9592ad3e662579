"""Whether to try again, and after what pause. Pure: the caller sleeps, by its own clock."""

from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError, OttlaError

MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""A broker that is behind says so for a moment; else the topic, or the partition, is gone."""


def pause_ms(settings: ClientSettings, failed_count: int) -> int:
    """Return the pause behind a try: doubled with each of the ``failed_count`` before it."""
    return min(settings.retry_backoff_ms << min(failed_count, 16), settings.retry_backoff_max_ms)


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
        self._missing_since: float | None = None

    def pause_seconds(self, error: OttlaError, now: float) -> float | None:
        """Return how long to wait before the next try; None when there is to be none.

        A first connection that fails is not tried again, unless the settings say so: it is what the
        user got wrong.
        """
        if isinstance(error, KafkaError):
            self._connected = True
            if not error.code.retriable:
                return None
        elif not isinstance(error, ConnectionFailed) or not self._connected:
            return None
        if not isinstance(error, KafkaError) or error.code not in MISSING:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        return self.pause_for_any(now)

    def pause_for_any(self, now: float) -> float | None:
        """Return the same for an error that the caller has judged to be worth another try."""
        seconds = pause_ms(self._settings, self._count) / 1000
        self._count += 1
        deadline, patience_ms = self._deadline, self._settings.missing_topic_ms
        if self._missing_since is not None and patience_ms is not None:
            deadline = min(deadline, self._missing_since + patience_ms / 1000)
        return seconds if now + seconds < deadline else None

    def connected(self) -> None:
        """Say that the cluster has answered before, so that lost connections are worth a retry."""
        self._connected = True
