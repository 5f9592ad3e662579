"""Which of a log's oldest segments go: by age, by size, or because nobody may read them any more.

Pure: sees what is told of the segments and decides, opens and removes nothing. Whole files only,
the oldest first, and never one that holds an offset which is not committed. Used by log.log.
Source: Kafka's UnifiedLog.deleteOldSegments; the seed on Kafka's log.

    no one may read it   all of it is below the log start offset (whatever the cleanup policy)
    too large            without it the log would still have ``retention.bytes``
    too old              its newest record is more than ``retention.ms`` old
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.log.config import LogConfig


class Candidate(NamedTuple):
    """What the decision needs to know of one segment."""

    end_offset: int
    """Exclusive: where the next segment begins, or the log ends."""
    size_bytes: int
    is_active: bool
    newest_ms: Callable[[], int]
    """Its largest timestamp, or the time of its file. Asked for when it matters: may be slow."""


class Decision:
    """The decision on one log, segment by segment, the oldest first."""

    __slots__ = ("_config", "_excess_bytes", "_log_start_offset", "_now_ms", "_upper_offset")

    def __init__(
        self,
        config: LogConfig,
        *,
        now_ms: int,
        log_size_bytes: int,
        log_start_offset: int,
        upper_offset: int,
    ) -> None:
        """``upper_offset`` (exclusive): what is not below it stays."""
        self._config = config
        self._now_ms = now_ms
        self._excess_bytes = log_size_bytes - config.retention_bytes
        self._log_start_offset = log_start_offset
        self._upper_offset = upper_offset

    def goes(self, segment: Candidate) -> bool:
        """Tell whether the next segment goes; none behind one that stays is to be asked for.

        The active segment goes only when all of it is too old or too large, never when it is empty;
        the caller rolls first then.
        """
        config = self._config
        if segment.end_offset > self._upper_offset or (
            segment.is_active and not segment.size_bytes
        ):
            return False
        is_below_start = not segment.is_active and segment.end_offset <= self._log_start_offset
        is_due = is_below_start or (
            config.is_deleted
            and (
                (config.retention_bytes >= 0 and self._excess_bytes >= segment.size_bytes)
                or (
                    config.retention_ms >= 0
                    and self._now_ms - segment.newest_ms() > config.retention_ms
                )
            )
        )
        self._excess_bytes -= segment.size_bytes
        return is_due
