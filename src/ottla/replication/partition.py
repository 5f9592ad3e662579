"""One partition as this node sees it: its log, its replicas, and how far it is committed.

The leader's own copy counts in the high watermark exactly like a follower's (design D4): with
``flush.messages=1`` its durable end is what has been fsynced, so acknowledgement and visibility
both wait for the disk. Flushes are group commits: one in flight per log, whatever was appended
meanwhile rides the next. Owns who waits for its commits. Knows its log and nothing above; tells by
callback that it moved on, for those who read. Source: the API refactoring seed, KIP-101/279 (leader
epochs), KIP-392.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT32_MAX, INT64_MAX, LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.log.append import Analysis
from ottla.log.config import LogConfig
from ottla.log.contents.leader_epochs import EpochEnd
from ottla.log.health import OPEN
from ottla.log.log import Log
from ottla.log.producers.states import ProducerStates
from ottla.log.results import AppendResult, ReadResult
from ottla.log.upkeep.front import raise_start_offset
from ottla.metadata.values import PartitionState
from ottla.pending import Pending
from ottla.records.batch import NO_LEADER_EPOCH
from ottla.replication.append import FLUSH_FAILED, GONE, LEADERSHIP_MOVED
from ottla.replication.commit_queue import CommitQueue
from ottla.replication.divergence import end_of_leaders_epoch
from ottla.replication.flushing import PartitionHeld
from ottla.replication.yielding import PartitionYields

if TYPE_CHECKING:
    from ottla.replication.replica_state import LeaderView

HIGH_WATERMARK = -1
"""In DeleteRecords: all that is committed."""
NOT_REGISTERED = LeaderEpoch(INT32_MAX)
"""As a fenced epoch: no leadership over several replicas counts."""

_OF_PRODUCERS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
)
"""What a log that lacks a producer's last batches may say of its next one."""


class PartitionSettings(NamedTuple):
    """The settings that partitions take from their topic's configuration."""

    log: LogConfig
    min_insync_replicas: int
    """``min.insync.replicas``: an acks=-1 append needs as many, this one included."""


class Partition(PartitionYields):
    """The leader (or an offline copy) of one topic-partition on this node."""

    __slots__ = (
        "_clock",
        "_commits",
        "_moved",
        "confirm",
        "fenced_epoch",
        "grown",
        "high_watermark",
        "is_leader",
        "may_take",
        "min_insync_replicas",
        "node_id",
        "state",
        "topic_id",
        "topic_partition",
        "view",
    )

    def __init__(
        self,
        log: Log,
        *,
        topic_id: TopicId,
        node_id: NodeId,
        state: PartitionState,
        min_insync_replicas: int,
        clock: Clock,
        executor: Executor,
        moved: Callable[[TopicPartition], None],
        checkpointed_high_watermark: int = 0,
        fenced_epoch: LeaderEpoch = LeaderEpoch(-1),  # noqa: B008 - immutable
    ) -> None:
        """Lead from the start, if ``state`` says so; ``moved`` is told that readers may see more.

        ``checkpointed_high_watermark``: what was known to be committed when it was written. Other
        replicas may have lost what this one has: nothing above it is shown until they have said how
        far they are. ``fenced_epoch``: see ``fence``.
        """
        super().__init__(log, executor)
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.state = state
        """Replicas, ISR, leader and epochs, as the metadata image last told."""
        self.min_insync_replicas = min_insync_replicas
        self.high_watermark: int = log.flushed_offset
        if len(state.replicas) > 1:
            known = min(checkpointed_high_watermark, log.log_end_offset)
            self.high_watermark = log.committed_offset = max(known, log.log_start_offset)
        """Use: exclusive end of what consumers see. Invariant: log start <= it <= log end."""
        self.node_id = node_id
        self.fenced_epoch = fenced_epoch
        """Use: see ``fence``."""
        self.is_leader = self._is_granted(state)
        """Whether this node leads the partition now."""
        self._clock = clock
        self._moved = moved
        self._commits: CommitQueue | None = None
        """Use: ``commits``. None: nobody has waited yet, as for most partitions of a large node."""
        self.grown: Callable[[Partition], None] | None = None
        """Use: told of each append, for followers that wait. None: there are none."""
        self.may_take: Callable[[Partition], bool] | None = None
        """Use: whether ``acks`` 0 and 1 are taken now, see ``standing``. None: they always are."""
        self.confirm: Callable[[Partition], Pending[bool]] | None = None
        """Use: the same, for sure and later; see ``standing``."""
        self.view: LeaderView | None = None
        """Use: what followers have said, in the present leader epoch. None without them."""
        log.producers.transactions.commit_to(self.high_watermark)
        if self.is_leader:
            self.lead(state)

    # Roles.

    def apply_state(self, state: PartitionState) -> None:
        """Take the role that a newer state gives this node; an older one is ignored."""
        present = self.state
        if state.leader_epoch < present.leader_epoch or (
            state.leader_epoch == present.leader_epoch
            and state.partition_epoch < present.partition_epoch
        ):
            return
        self.is_given_away &= state == present  # Else that has happened, or never will.
        self._take_role(state)

    def fence(self, epoch: LeaderEpoch) -> None:
        """Lead several replicas in no leader epoch up to ``epoch``: another process was granted it.

        That one may have lost what it had not synced, and others may know it. -1: none is fenced.
        """
        self.fenced_epoch = epoch
        if self.is_leader != self._is_granted(self.state):
            self._take_role(self.state)

    def _is_granted(self, state: PartitionState) -> bool:
        if state.leader != self.node_id or len(state.replicas) == 1:
            return state.leader == self.node_id
        from ottla.replication.elections import is_granted  # noqa: PLC0415 - one node needs none

        return is_granted(state, self.node_id, self.fenced_epoch)

    def _take_role(self, state: PartitionState) -> None:
        if self._is_granted(state):
            self.lead(state)
        else:
            self.follow(state)
        self.tell()

    def lead(self, state: PartitionState) -> None:
        """Lead: with a newer ISR, or in a new leader epoch, which voids all that followers said."""
        if len(state.replicas) > 1:
            from ottla.replication.replica_state import hear  # noqa: PLC0415 - as above

            self.view = hear(self.view, state, self.log.log_end_offset)
        else:
            self.view = None
            self.log.committed_offset = INT64_MAX  # Nobody else leads.
        self.state = state
        self.is_leader = True
        self._advance()

    def follow(self, state: PartitionState) -> None:
        """Lead no more, or still not: another node does, or none. The caller tells who waits."""
        self.state = state
        self.is_leader = False
        self.view = None
        self.log.committed_offset = self.high_watermark

    def stop(self) -> None:
        """Lead and follow no more, for good: the topic is gone, or this replica of it."""
        self.is_leader = False
        self.view = None
        if self._commits is not None:
            self._commits.refuse(GONE)

    def follower_fetched(
        self, node: NodeId, end_offset: int, broker_epoch: int, *, now_ms: int = 0
    ) -> None:
        """Note that a follower, which fetches in this leader epoch, has synced to ``end_offset``.

        Its history does not diverge from the log's. ``broker_epoch``: its registration. ``now_ms``:
        as in isr_changes. Raises KafkaError: as ``check_leader``; UNKNOWN_LEADER_EPOCH for a node
        that has no replica: it may have heard earlier than this one that it gets one.
        """
        self.check_leader()
        view = self.view
        if view is None or node not in self.state.replicas:
            why = f"node {node} has no replica of {self.topic_partition}"
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, why)
        from ottla.replication.replica_state import follower_fetched  # noqa: PLC0415 - as above

        self.view = follower_fetched(
            view,
            node,
            end_offset,
            broker_epoch=broker_epoch,
            log_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
        )
        self._advance()

    def take_view(self, view: LeaderView) -> None:
        """Go by ``view`` from now on: a proposal was made, or is gone. This node leads."""
        assert self.is_leader
        self.view = view
        self._advance()

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch of the leadership this node knows of."""
        return self.state.leader_epoch

    @property
    def is_failed(self) -> bool:
        """Tell whether the log is lost to a disk error; it is not served any more."""
        return not self.log.is_in_service

    def configure(self, settings: PartitionSettings) -> None:
        """Take over changed settings; they hold from the next append on."""
        self.log.config = settings.log
        self._flush_if_due()  # With ``flush.messages=1`` a restart takes all for synced.
        self.min_insync_replicas = settings.min_insync_replicas
        if self.view is not None:
            self._advance()

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raise KafkaError unless this node leads, in the epoch the client knows (negative: any).

        The fencing of KIP-320: FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a
        newer one, NOT_LEADER_OR_FOLLOWER otherwise, KAFKA_STORAGE_ERROR when the log has failed.
        """
        if current_leader_epoch >= 0:
            if current_leader_epoch < self.state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            if current_leader_epoch > self.state.leader_epoch:
                raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition}")
        if self.is_failed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}")

    # Appends.

    def append(self, records: memoryview | Analysis, *, acks: int) -> AppendResult:
        """Append as the leader and start a flush if one is due. Does not wait for it.

        ``records`` is one produced batch, or the analysis of batches that was made elsewhere. The
        batch is patched in place. Raises KafkaError; PartitionHeld when it has to wait.
        """
        log, state = self.log, self.state
        if (
            not self.is_leader
            or log.state is not OPEN
            or (acks == -1 and len(state.isr) < self.min_insync_replicas)
            or self._yielding is not None
            or (acks != -1 and self.may_take is not None)
        ):
            self.check_append(acks)
            if self.has_to_wait:
                raise PartitionHeld
        result = _append(self, records)
        flush_messages = 1 if self.is_given_away else log.config.flush_messages
        if not self._is_flushing and (
            log.log_end_offset - log.flushed_offset >= flush_messages or log.segments.unsynced
        ):
            self.flush()
        if flush_messages != 1:
            self._advance()
        if self.grown is not None:
            self.grown(self)
        return result

    def check_append(self, acks: int) -> None:
        """Raise KafkaError if nothing can be appended here with ``acks``, whatever the records."""
        self.check_leader()
        if acks != -1:
            check_standing(self)
        if acks == -1 and len(self.state.isr) < self.min_insync_replicas:
            # As elections.effective_min_isr, which one node alone does not load.
            in_sync, count = len(self.state.isr), len(self.state.replicas)
            if in_sync < min(self.min_insync_replicas, count):
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{self.topic_partition} has {in_sync} in-sync replicas of {count}, "
                    f"min.insync.replicas is {self.min_insync_replicas}",
                )

    def followed(self, high_watermark: int) -> None:
        """Take over how far the leader is committed: not above this log's end, and never lower."""
        if high_watermark > self.high_watermark:
            self.high_watermark = self.log.committed_offset = high_watermark
            self.log.producers.transactions.commit_to(high_watermark)
            self._moved(self.topic_partition)

    def release(self, log: Log) -> None:
        """Go on with ``log``: see ``PartitionFlushes``. It may have been cut, or begin anew."""
        committed = max(min(self.high_watermark, log.log_end_offset), log.log_start_offset)
        self.high_watermark = committed
        log.committed_offset = committed if len(self.state.replicas) > 1 else INT64_MAX
        log.producers.transactions.commit_to(committed)
        view = self.view
        if view is not None and view.epoch_start_offset > log.log_end_offset:
            # It was elected while its log was cut.
            from ottla.replication.replica_state import log_was_cut  # noqa: PLC0415 - as above

            self.view = log_was_cut(view, log.log_end_offset)
        super().release(log)
        if self.grown is not None:  # What gathered while it was held, for followers that wait.
            self.grown(self)

    @property
    def commits(self) -> CommitQueue:
        """The appends that wait until the high watermark has passed them."""
        if self._commits is None:
            self._commits = CommitQueue(self._clock)
        return self._commits

    def tell(self) -> None:
        """Answer whoever waits and can be answered: role, health or high watermark changed."""
        commits = self._commits
        if commits is not None:
            if not self.is_leader:
                commits.refuse(LEADERSHIP_MOVED)
            elif self.is_failed:
                commits.refuse(FLUSH_FAILED)
            else:
                commits.settle(self.high_watermark)
        self._moved(self.topic_partition)

    def _advance(self) -> None:
        """Raise the high watermark to what every in-sync replica holds; it never goes back.

        Not while the partition is held: its log may be cut, and ``release`` does it then.
        """
        if not self.is_leader or self._held is not None:
            return
        log = self.log  # It counts as far as it is durable, if flushing is to mean that.
        committed = log.flushed_offset if self.flush_messages == 1 else log.log_end_offset
        if self.view is not None:
            committed = self._committed(self.view, committed)
            log.committed_offset = max(committed, self.high_watermark)
        if committed > self.high_watermark:
            self.high_watermark = committed
            transactions = log.producers.transactions
            if transactions.unreplicated:
                transactions.commit_to(committed)
            commits = self._commits
            if log.state is not OPEN:
                self.tell()
                return
            if commits is not None:
                commits.settle(committed)
            self._moved(self.topic_partition)

    def _committed(self, view: LeaderView, own_end_offset: int) -> int:
        from ottla.replication.replica_state import committed  # noqa: PLC0415 - as above

        return committed(view, own_end_offset, self.high_watermark, self.min_insync_replicas)

    # Reads.

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what read_committed consumers see: nothing undecided lies below it."""
        log = self.log
        unstable = log.producers.transactions.first_unstable_offset
        if unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, log.log_start_offset)

    @property
    def log_start_offset(self) -> int:
        """The first offset a consumer may ask for."""
        return self.log.log_start_offset

    @property
    def producers(self) -> ProducerStates:
        """The state of the partition's producers. Read it at once: appends change it."""
        return self.log.producers.states

    @property
    def low_watermark(self) -> int:
        """The lowest offset that this replica still has; for all of them see LowWatermarks."""
        return self.log.log_start_offset

    def delete_records(self, offset: int) -> int:
        """Let nobody read what lies below ``offset`` (-1: the high watermark) any more.

        Returns the offset meant. Not durable yet. Raises KafkaError: as ``check_leader``;
        POLICY_VIOLATION for a topic that is only compacted, OFFSET_OUT_OF_RANGE above the high
        watermark or below -1.
        """
        self.check_leader()
        config = self.log.config
        if config.is_compacted and not config.is_deleted:
            why = f"cleanup.policy of {self.topic_partition} has no delete"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
        if offset == HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            check_standing(self, is_final=True)  # The next leader may have committed it.
            why = f"{self.topic_partition}: {offset} is not in [0, {self.high_watermark}]"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        raise_start_offset(self.log, offset)
        return offset

    def read(
        self, fetch_offset: int, *, max_bytes: int, upper_offset: int, min_one_message: bool
    ) -> ReadResult:
        """Read whole batches from ``fetch_offset`` up to ``upper_offset`` (exclusive).

        Empty from ``upper_offset`` to the log's end: that is not committed yet. Raises
        KafkaError(OFFSET_OUT_OF_RANGE) outside of ``[log start, log end]``.
        """
        return self.log.read(
            fetch_offset,
            max_bytes=max_bytes,
            upper_offset=upper_offset,
            min_one_message=min_one_message,
        )

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest leader epoch <= ``epoch`` and the exclusive end of what it wrote.

        Both -1 when that is not known: for epochs to come, and negative ones.
        """
        log = self.log
        end = end_of_leaders_epoch(
            epoch,
            leader_epoch=self.state.leader_epoch,
            latest_epoch=log.latest_epoch,
            log_end_offset=log.log_end_offset,
        )
        return end or log.end_offset_for_epoch(epoch)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        start = self.log.log_start_offset
        assert start <= self.last_stable_offset <= self.high_watermark <= self.log.log_end_offset


def _append(partition: Partition, records: memoryview | Analysis) -> AppendResult:
    """Append to the log of a leader; raise KafkaError."""
    log, epoch = partition.log, partition.state.leader_epoch
    try:
        if isinstance(records, memoryview):
            return log.append(records, leader_epoch=epoch)
        return log.append_analysed(records, leader_epoch=epoch)
    except KafkaError as error:
        if error.code in _OF_PRODUCERS:
            check_standing(partition, is_final=True)  # The next leader may have more.
        raise


def check_standing(
    one: Partition, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER, *, is_final: bool = False
) -> None:
    """Raise KafkaError with ``code`` if another node may lead by now, as ``may_be_replaced``."""
    if may_be_replaced(one, is_final=is_final):
        why = f"{one.topic_partition}: another node may lead by now, unheard of here"
        raise KafkaError(code, why)


def may_be_replaced(partition: Partition, *, is_final: bool = False) -> bool:
    """Tell whether another node may lead by now, unheard of here: it may have what is not here.

    ``is_final``: who is refused would not ask again, so what was heard lately does not count.
    """
    may_take, confirm = partition.may_take, partition.confirm
    if partition.is_given_away or (may_take is not None and not may_take(partition)):
        return True
    if confirm is None or not is_final:
        return False
    asked = confirm(partition)
    asked.cancel()  # Harmless when it is answered.
    return not asked.value
