"""Reads one partition for a fetch, never past what the client may see; and lets a fetch wait.

DelayedFetch keeps, per partition, how many bytes there were when it last looked. When a high
watermark rises it looks at that partition alone, and reads again only when the sum suffices. So a
waiting fetch costs the same per append, however many partitions it watches.
Source: the API refactoring seed, KIP-74 (response size), KIP-98 (isolation), KIP-320 (fencing),
KIP-595 (diverging epochs), KIP-951 (current leaders).
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.log.aborted import aborted_transactions
from ottla.log.contents.leader_epochs import EpochEnd
from ottla.log.results import ReadResult
from ottla.log.segment.cold_read import COLD_READ_BYTES_MAX, ColdRead, cold_read
from ottla.log.segment.transaction_index import AbortedTransaction
from ottla.pending import Pending
from ottla.records.batch import NO_LEADER_EPOCH
from ottla.records.region import Region
from ottla.replication.divergence import divergence
from ottla.replication.partition import Partition, may_be_replaced

logger = logging.getLogger(__name__)

INVALID_OFFSET = -1
_WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOTHING_NEW = ReadResult(None, INVALID_OFFSET, INVALID_OFFSET, first_batch_incomplete=False)


class Isolation(IntEnum):
    """How far a consumer reads. The values are the protocol's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


_NO_ERROR, _COMMITTED = ErrorCode.NONE, Isolation.READ_COMMITTED
"""Named here because a member of an Enum is found ten times slower by its class."""


class FetchSpec(NamedTuple):
    """One partition of a fetch request."""

    topic_partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_LEADER_EPOCH
    topic_id: TopicId | None = None
    """Which topic of that name is meant; None: whichever there is."""
    last_fetched_epoch: int = NO_LEADER_EPOCH
    """Of the record before ``fetch_offset``, to find where histories part; negative: unknown."""
    is_by_id: bool = False
    """Whether the client said which topic it means; else it is the one there was when it asked."""


class Prefers(Protocol):
    """Chooses who a consumer is to read from."""

    def __call__(self, partition: Partition, fetch_offset: int, /) -> NodeId | None:
        """Return a follower of this leader that has what is asked for; None: the leader serves."""


class FetchLimits(NamedTuple):
    """The limits of a whole fetch. Bytes count whole batches; times are milliseconds."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    is_hard_limit: bool = False
    """True: not even the first batch may exceed ``max_bytes`` (request versions below 3)."""
    may_follow: bool = False
    """True: a replica that follows may answer, up to the high watermark that it knows (KIP-392)."""
    prefers: "Prefers | None" = None
    """Chooses the replica that this client should read from. None: the leader."""


class CurrentLeader(NamedTuple):
    """The leader of a partition, for a client that came to the wrong node or epoch."""

    node_id: int
    leader_epoch: int


class FetchedPartition(NamedTuple):
    """The part of one partition that was read, or the reason why nothing was."""

    topic_partition: TopicPartition
    code: ErrorCode
    high_watermark: int = INVALID_OFFSET
    last_stable_offset: int = INVALID_OFFSET
    log_start_offset: int = INVALID_OFFSET
    region: Region | None = None
    """None when there is nothing to give."""
    diverging: EpochEnd | None = None
    """Where the client's history parts from the log's: it has to go back there."""
    current_leader: CurrentLeader | None = None
    """Given with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, if there is a leader."""
    preferred: NodeId | None = None
    """Another replica, which the client is to read from; then nothing is read here."""
    aborted: Sequence[AbortedTransaction] = ()
    """The transactions that a reader of committed records leaves out, by first offset."""

    @property
    def ends_wait(self) -> bool:
        """Tell whether the client must hear of it at once."""
        return (
            self.code is not _NO_ERROR or self.diverging is not None or self.preferred is not None
        )


def exposed_end(partition: Partition, isolation: Isolation) -> int:
    """Return the exclusive end of what ``isolation`` may see."""
    if isolation is _COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def read_partition(
    partition: Partition | None,
    spec: FetchSpec,
    *,
    max_bytes: int,
    isolation: Isolation,
    min_one_message: bool,
    cold: list[ColdRead] | None = None,
    may_follow: bool = False,
    prefers: Prefers | None = None,
) -> FetchedPartition:
    """Read one partition; every refusal becomes its error code.

    ``may_follow``, ``prefers``: see ``FetchLimits``. With ``cold`` a read that would wait for the
    device is not done but noted there.
    """
    if partition is None:
        return FetchedPartition(spec.topic_partition, _UNKNOWN)
    if spec.topic_id is not None and spec.topic_id != partition.topic_id:
        # By name it was deleted meanwhile, and that is all there is to say of it.
        code = ErrorCode.INCONSISTENT_TOPIC_ID if spec.is_by_id else _UNKNOWN
        return FetchedPartition(spec.topic_partition, code)
    try:
        preferred = _nearer(partition, spec, may_follow=may_follow, prefers=prefers)
        if preferred is not None:
            return _nothing_of(partition, spec)._replace(preferred=preferred)
        diverging = _divergence(partition, spec)
        if diverging is not None:
            return _nothing_of(partition, spec)._replace(diverging=diverging)
        end = exposed_end(partition, isolation)
        # The usual case of a client with many partitions: it has read all there is.
        result = NOTHING_NEW
        aborted: Sequence[AbortedTransaction] = ()
        if spec.fetch_offset != end:
            if cold is not None and _is_cold(partition, spec, max_bytes, cold):
                return FetchedPartition(spec.topic_partition, _NO_ERROR)
            result = partition.read(
                spec.fetch_offset,
                max_bytes=min(spec.max_bytes, max_bytes),
                upper_offset=end,
                min_one_message=min_one_message,
            )
            if isolation is _COMMITTED:
                aborted = aborted_transactions(partition.log, spec.fetch_offset, result, end)
    except KafkaError as error:
        return _refused(partition, spec, error.code)
    except OSError as error:
        # The caller may be answering several fetches: an unreadable file must not stop that.
        logger.error("%s cannot be read: %s", spec.topic_partition, error)  # noqa: TRY400 - no traceback
        return FetchedPartition(spec.topic_partition, ErrorCode.KAFKA_STORAGE_ERROR)
    return FetchedPartition(
        spec.topic_partition,
        _NO_ERROR,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_start_offset,
        # A piece of a batch helps nobody: Kafka too sends nothing, unless it is the first of all.
        None if result.first_batch_incomplete else result.region,
        aborted=aborted,
    )


def _nearer(
    partition: Partition, spec: FetchSpec, *, may_follow: bool, prefers: Prefers | None
) -> NodeId | None:
    """Return the replica that the client should read from; None: this one. Raises KafkaError."""
    if may_follow and not partition.is_leader:
        _check_replica(partition, spec.current_leader_epoch)
        return None
    partition.check_leader(spec.current_leader_epoch)
    if prefers is None or partition.view is None:
        return None
    return prefers(partition, spec.fetch_offset)


def _check_replica(partition: Partition, current_leader_epoch: int) -> None:
    """Raise KafkaError unless a consumer that knows this leader epoch may read from a follower.

    One that tells no epoch may not: it may have come to a former leader, and would take an offset
    that is not here yet for one that is out of range. So would a node that was granted the lead
    before it restarted: it follows nobody, and whoever leads by now may have more.
    """
    where = f"{partition.topic_partition}"
    if current_leader_epoch < 0 or partition.state.leader == partition.node_id:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, where)
    if current_leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if current_leader_epoch > partition.leader_epoch:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if partition.is_failed:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, where)


def _is_cold(partition: Partition, spec: FetchSpec, max_bytes: int, cold: list[ColdRead]) -> bool:
    """Tell whether the read would wait for the device; note in ``cold`` what to read ahead then."""
    if partition.is_held:
        return False  # Nothing is read of it now.
    wanted = min(spec.max_bytes, max_bytes, COLD_READ_BYTES_MAX)
    ahead = cold_read(partition.log.segments.holding(spec.fetch_offset), spec.fetch_offset, wanted)
    if ahead is None:
        return False
    cold.append(ahead)
    return True


def _divergence(partition: Partition, spec: FetchSpec) -> EpochEnd | None:
    """Return where the log left the epoch of the client's last record, if that was before it.

    Raises KafkaError(OFFSET_OUT_OF_RANGE) when the epoch or the offset is not in the log.
    """
    if spec.last_fetched_epoch < 0:
        return None
    end = partition.end_offset_for_epoch(spec.last_fetched_epoch)
    if end.epoch < 0 or spec.fetch_offset < partition.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return divergence(end, spec.fetch_offset, spec.last_fetched_epoch)


def _nothing_of(partition: Partition, spec: FetchSpec) -> FetchedPartition:
    return FetchedPartition(
        spec.topic_partition,
        _NO_ERROR,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_start_offset,
    )


def _refused(partition: Partition, spec: FetchSpec, code: ErrorCode) -> FetchedPartition:
    leader = None
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        is_above = spec.fetch_offset >= partition.log_start_offset
        if may_be_replaced(partition, is_final=is_above):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # The next leader may have it: read on there.
    if code in _WRONG_LEADER and partition.state.leader >= 0:
        leader = CurrentLeader(partition.state.leader, partition.state.leader_epoch)
    return FetchedPartition(spec.topic_partition, code, current_leader=leader)


def size_of(fetched: FetchedPartition) -> int:
    """Return how many bytes of records were read."""
    return 0 if fetched.region is None else fetched.region.length_bytes


Read = Callable[[], list[FetchedPartition]]


class DelayedFetch:
    """A fetch that found fewer than its minimum of bytes and waits for more."""

    __slots__ = ("_available", "_limits", "_lookup", "_pending", "_read", "_specs", "_total")

    def __init__(
        self,
        specs: list[FetchSpec],
        found: list[FetchedPartition],
        limits: FetchLimits,
        *,
        lookup: Callable[[TopicPartition], Partition | None],
        read: Read,
        pending: Pending[list[FetchedPartition]],
    ) -> None:
        self._specs = {spec.topic_partition: spec for spec in specs}
        self._limits = limits
        self._lookup = lookup
        self._read = read
        self._pending = pending
        self._available = {fetched.topic_partition: size_of(fetched) for fetched in found}
        self._total = sum(self._available.values())  # Invariant: the sum of _available.

    def try_complete(self, key: Hashable) -> bool:
        """Look at the partition ``key`` again; resolve if there is enough now, or an error."""
        assert isinstance(key, TopicPartition), "a fetch is watched by its partitions"
        spec = self._specs[key]
        fetched = read_partition(
            self._lookup(key),
            spec,
            max_bytes=spec.max_bytes,
            isolation=self._limits.isolation,
            min_one_message=True,
            may_follow=self._limits.may_follow,
        )
        available = min(size_of(fetched), spec.max_bytes)
        self._total += available - self._available[key]
        self._available[key] = available
        if not fetched.ends_wait and self._total < self._limits.min_bytes:
            return False
        self._pending.resolve(self._read())
        return True

    def expire(self) -> None:
        """Resolve with what there is."""
        self._pending.resolve(self._read())
