"""The settings of one log, as plain values.

Built by whoever owns the options (the broker, from its own and the topic's configuration) and
handed down: the log room never sees the option table. Changing a setting means handing a new value
to ``Log.config``. Defaults are Kafka's.
"""

from typing import NamedTuple

from ottla.ids import INT64_MAX
from ottla.records.batch import TimestampType
from ottla.records.compression import Codec


class LogConfig(NamedTuple):
    """The settings of a topic that its log needs. Field = Kafka's key in other letters."""

    segment_bytes: int = 1024 * 1024 * 1024
    """``segment.bytes``: a segment never grows larger; at most 2^31 - 1."""

    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    """``segment.ms``: a segment whose first batch is older is rolled at the next append."""

    segment_jitter_ms: int = 0
    """``segment.jitter.ms``: up to so much is taken off ``segment_ms``, per segment."""

    segment_index_bytes: int = 10 * 1024 * 1024
    """``segment.index.bytes``: the size at which an index is full, and its segment rolled."""

    index_interval_bytes: int = 4096
    """``index.interval.bytes``: bytes of log between two index entries, at least."""

    is_preallocated: bool = False
    """``preallocate``: a new segment's file has ``segment_bytes`` from the start, and is mapped."""

    max_message_bytes: int = 1024 * 1024 + 12
    """``max.message.bytes``: the largest batch a client may append, header included."""

    compression: Codec | None = None
    """``compression.type``: the codec that batches are stored in; None: as the producer chose."""

    compression_level: int | None = None
    """The level of that codec: ``compression.gzip.level`` and the like; None: its default."""

    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    """``message.timestamp.type``."""

    message_timestamp_before_max_ms: int = INT64_MAX
    """``message.timestamp.before.max.ms``: how far a CreateTime may lie in the past."""

    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    """``message.timestamp.after.max.ms``: how far a CreateTime may lie in the future."""

    is_compacted: bool = False
    """``cleanup.policy`` holds "compact": every record needs a key."""

    is_deleted: bool = True
    """``cleanup.policy`` holds "delete": old segments go."""

    min_cleanable_dirty_ratio: float = 0.5
    """``min.cleanable.dirty.ratio``: a log is compacted when more than this part of it is dirty."""

    min_compaction_lag_ms: int = 0
    """``min.compaction.lag.ms``: what is younger is not compacted."""

    max_compaction_lag_ms: int = INT64_MAX
    """``max.compaction.lag.ms``: what is older is compacted, however little it is."""

    delete_retention_ms: int = 24 * 60 * 60 * 1000
    """``delete.retention.ms``: how long a tombstone stays after its first compaction."""

    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    """``retention.ms``: a segment whose newest record is older goes; -1: none does."""

    retention_bytes: int = -1
    """``retention.bytes``: the size that a log keeps at least; -1: all of it."""

    file_delete_delay_ms: int = 60 * 1000
    """``file.delete.delay.ms``: how long the files of a dropped segment stay, renamed."""

    producer_id_expiration_ms: int = 24 * 60 * 60 * 1000
    """``producer.id.expiration.ms``: how long an idle producer's sequences are remembered."""

    flush_messages: int = 1
    """``flush.messages``: unflushed offsets at which the caller begins a flush (design D4: 1)."""

    flush_ms: int = INT64_MAX
    """``flush.ms``: age of unflushed data at which the caller begins a flush."""

    @property
    def preallocated_bytes(self) -> int:
        """The bytes that a new segment's file takes from the start."""
        return self.segment_bytes if self.is_preallocated else 0
