"""All partitions of this node, and "committed" appends and fetches across them.

The handlers' only way to the data. Knows partitions and their purgatories; nothing of requests,
sessions or the wire. Follows the metadata image: what it leads, creates and deletes is what the
image says. Source: the API refactoring seed ("Replica Manager").
"""

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from posixpath import dirname

from ottla.env.clock import Clock
from ottla.env.executor import Executor, Lane
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.log.append import (
    RECODE_SIZE_BYTES,
    Analysis,
    AppendOrigin,
    TooLongForLoop,
    needs_executor,
)
from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.directories.directory import LogDirectory
from ottla.log.directories.manager import LogManager
from ottla.log.results import AppendResult
from ottla.log.segment.time_lookup import BatchSearch, FoundRecord
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.pending import Pending, as_exception, outcome_of
from ottla.protocol.messages.produce import ACKS_ALL
from ottla.replication.append import (
    APPENDS_PER_TURN,
    AppendOutcome,
    AppendRefusal,
    Uncommitted,
    analysed,
    append_each,
    gathered,
    gone_meanwhile,
    joined,
    patience_seconds,
    refusal_of,
)
from ottla.replication.commit_queue import CommitQueue, CommitWait
from ottla.replication.fetch import (
    FetchedPartition,
    FetchLimits,
    FetchSpec,
)
from ottla.replication.fetches import FetchedInSteps, Fetches
from ottla.replication.hosting import Hosting, Watcher
from ottla.replication.partition import Partition, PartitionSettings
from ottla.request_memory import RequestMemory
from ottla.turns import Portions, Turns

logger = logging.getLogger(__name__)

LARGE_APPENDS_MAX = 1
"""Large batches opened at the same time: the other threads of the executor are for fsyncs."""

Appends = Sequence[tuple[TopicPartition, memoryview]]
Appended = Sequence[tuple[TopicPartition, memoryview | Analysis | KafkaError]]
StillAllowed = Callable[[TopicPartition], KafkaError | None]
"""Tells whether what was allowed a while ago still is, or why not."""


class ReplicaManager:
    """Hosts partitions, appends to and fetches from those it leads."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        log_manager: LogManager,
        clock: Clock,
        executor: Executor,
        settings: Callable[[str], PartitionSettings],
        waiting_fetches_max: int,
        watcher: Watcher,
        read_executor: Executor | None = None,
        request_memory: RequestMemory | None = None,
        turns: Turns | None = None,
    ) -> None:
        """``watcher``: is told of every partition that comes, changes its settings or goes.

        ``read_executor``: for reads that wait for the device; None: ``executor`` does both.
        ``request_memory``: where copies of batches count; None: they do not.
        ``turns``: the line of the loop, if others stand in it as well.
        """
        self.request_memory = request_memory or RequestMemory(INT64_MAX)
        self._node_id = node_id
        self._log_manager = log_manager
        log_manager.listeners.append(self._directory_changed)
        self._executor = executor
        self._large_appends = Lane(executor, LARGE_APPENDS_MAX)
        self._settings = settings
        self._clock = clock
        self._watcher = watcher
        self.hosting = Hosting(
            node_id=node_id,
            log_manager=log_manager,
            clock=clock,
            executor=executor,
            settings=settings,
            moved=self._moved,
            configured=watcher.watch,
            gone=self._gone,
        )
        self._partitions = self.hosting.partitions
        self._to_tell: list[tuple[str, TopicPartition]] = []
        """Use: partitions that may wait for a directory that has changed, and its path."""
        self._telling = Portions(turns or Turns(clock), self._tell_one, "a change of a directory")
        self._fetches = Fetches(
            self._partitions.get,
            clock,
            read_executor or executor,
            missing=self._missing,
            waiting_max=waiting_fetches_max,
        )
        self._commit_queues: dict[TopicPartition, CommitQueue] = {}

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the partition if this node hosts it."""
        return self._partitions.get(topic_partition)

    def leader_of(
        self, topic_partition: TopicPartition, current_leader_epoch: int = -1
    ) -> Partition:
        """Return the partition, led by this node. Raises KafkaError, see Partition.check_leader."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise KafkaError(self._missing(topic_partition), f"{topic_partition}")
        partition.check_leader(current_leader_epoch)
        return partition

    def _missing(self, where: TopicPartition) -> ErrorCode:
        """Return what clients are told of a partition that is not here: perhaps, not yet."""
        if self.hosting.is_making(where):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def topic_id_of(self, topic_partition: TopicPartition) -> TopicId | None:
        """Return which topic of its name the partition hosted here is of; None: it is not here.

        For who waits: behind the wait the name may be another topic's.
        """
        partition = self._partitions.get(topic_partition)
        return None if partition is None else partition.topic_id

    def offline(self, topic_partition: TopicPartition) -> str | None:
        """Return why a partition of this node is not served; None when it is, or is not here."""
        partition = self._partitions.get(topic_partition)
        if partition is None or not partition.is_failed:
            return None
        failure = partition.log.failure
        why = "the disk failed under its log" if failure is None else str(failure)
        return self.hosting.unopened.get(topic_partition, why)

    @property
    def partitions(self) -> Iterable[Partition]:
        """Every partition hosted here."""
        return self._partitions.values()

    # Appends.

    def append(
        self,
        appends: Appends,
        *,
        acks: int,
        timeout_ms: int,
        still_allowed: StillAllowed | None = None,
    ) -> list[AppendOutcome] | Pending[list[AppendOutcome]]:
        """Append one produced batch per partition; wait for their commit if ``acks`` is -1.

        The views are patched in place and not kept. One outcome per entry, in order. Large
        compressed batches are opened, and large ones recompressed, off the loop; the Pending then
        does not yet ``overlap``. Of those ``still_allowed`` is asked when they are back.
        """
        for where, records in appends:
            if len(records) > RECODE_SIZE_BYTES and needs_executor(
                records, self._config_of(where).compression
            ):
                return self._append_large(appends, acks, timeout_ms, still_allowed)
        return self._append_here(appends, acks, timeout_ms, still_allowed)

    def append_as_coordinator(
        self, appends: Appends, *, timeout_ms: int, transaction_version: int = 0
    ) -> list[AppendOutcome] | Pending[list[AppendOutcome]]:
        """Append batches that this node made itself, markers among them; wait for their commit.

        One or more batches per partition. ``transaction_version`` is that of the markers: see
        ``ProducerStates.check_marker``. Outcomes as ``append``'s.
        """
        now_ms = self._clock.wall_ms()
        analyses: list[tuple[TopicPartition, Analysis | KafkaError]] = []
        for where, records in appends:
            config = self._config_of(where)
            found = analysed(records, config, now_ms, AppendOrigin.COORDINATOR)
            if isinstance(found, Analysis):
                found = found._replace(transaction_version=transaction_version)
            analyses.append((where, found))
        return self._append_here(analyses, ACKS_ALL, timeout_ms)

    def append_one(
        self, where: TopicPartition, records: memoryview, *, acks: int, timeout_ms: int
    ) -> AppendOutcome | Pending[list[AppendOutcome]]:
        """Do as ``append`` for one batch, with less around it; the Pending has one outcome."""
        partition = self._partitions.get(where)
        if partition is None:
            return AppendRefusal(self._missing(where))
        if len(records) > RECODE_SIZE_BYTES and needs_executor(
            records, partition.log.config.compression
        ):
            return self._append_large([(where, records)], acks, timeout_ms)
        try:
            result = partition.append(records, acks=acks)
        except KafkaError as error:
            return refusal_of(error, partition.log_start_offset)
        except TooLongForLoop:
            return self._append_large([(where, records)], acks, timeout_ms)
        if acks != ACKS_ALL or partition.high_watermark > result.last_offset:
            return result
        return self._committed_one(where, result, timeout_ms)

    def append_own(
        self, where: TopicPartition, analysis: Analysis, *, timeout_ms: int
    ) -> AppendOutcome | Pending[list[AppendOutcome]]:
        """Append what this node built itself, see ``ottla.log.append.built``; wait for its commit.

        The appends of one partition that are made this way are committed in their order.
        """
        partition = self._partitions.get(where)
        if partition is None:
            return AppendRefusal(self._missing(where))
        try:
            result = partition.append(analysis, acks=ACKS_ALL)
        except KafkaError as error:
            return refusal_of(error, partition.log_start_offset)
        if partition.high_watermark > result.last_offset:
            return result
        return self._committed_one(where, result, timeout_ms)

    def _committed_one(
        self, where: TopicPartition, result: AppendResult, timeout_ms: int
    ) -> Pending[list[AppendOutcome]]:
        queue = self._commit_queues.get(where)
        if queue is None:
            queue = self._make_queue(where)
        return queue.wait(result, timeout_seconds=patience_seconds(timeout_ms))

    def _make_queue(self, where: TopicPartition) -> CommitQueue:
        queue = self._commit_queues[where] = CommitQueue(self._clock)
        return queue

    def _append_here(
        self,
        appends: Appended,
        acks: int,
        timeout_ms: int,
        still_allowed: StillAllowed | None = None,
    ) -> list[AppendOutcome] | Pending[list[AppendOutcome]]:
        """Append one by one. What is too long for the loop goes on, with the rest, off it.

        And when those before took long: batches are analysed off the loop then, and appended in
        turns.
        """
        count, committed = self._append_some(appends, acks, timeout_ms)
        if count == len(appends):
            return committed
        ahead = appends[count:]
        views = [(where, view) for where, view in ahead if isinstance(view, memoryview)]
        if views:
            rest = self._append_large(views, acks, timeout_ms, still_allowed)
        else:
            rest = self._append_in_turns(ahead, acks, timeout_ms, still_allowed)
        return joined(committed, rest)

    def _append_some(
        self, appends: Appended, acks: int, timeout_ms: int
    ) -> tuple[int, list[AppendOutcome] | Pending[list[AppendOutcome]]]:
        """Append for as long as one request may; return how many, and what becomes of them."""
        self._executor.hold_syncs()  # The flushes of all of them begin together.
        try:
            outcomes, waiting = append_each(
                self._partitions, appends, acks, self._missing, self._clock
            )
        finally:
            self._executor.release_syncs()
        count = len(outcomes)
        return count, self._committed(outcomes, waiting, timeout_ms)

    def _append_in_turns(
        self, ahead: Appended, acks: int, timeout_ms: int, still_allowed: StillAllowed | None
    ) -> Pending[list[AppendOutcome]]:
        """Append what is analysed, in later turns of the loop."""
        pending: Pending[list[AppendOutcome]] = Pending()
        meant = [self.topic_id_of(where) for where, _ in ahead]
        parts: list[list[AppendOutcome] | Pending[list[AppendOutcome]]] = []
        done = 0

        def go_on() -> None:
            nonlocal done
            now = [
                (
                    where,
                    (still_allowed and still_allowed(where)) or found
                    if self.topic_id_of(where) == meant[at]
                    else gone_meanwhile(where),
                )
                for at, (where, found) in enumerate(ahead[done : done + APPENDS_PER_TURN], done)
            ]
            try:
                count, committed = self._append_some(now, acks, timeout_ms)
            except Exception as error:  # noqa: BLE001 - travels to whoever listens
                pending.fail(error)
                return
            parts.append(committed)
            done += count
            if done < len(ahead):
                self._clock.call_later(0, go_on)
            else:
                gathered(parts, pending)

        self._clock.call_later(0, go_on)
        return pending

    def _committed(
        self, outcomes: list[AppendOutcome], waiting: list[Uncommitted], timeout_ms: int
    ) -> list[AppendOutcome] | Pending[list[AppendOutcome]]:
        """Return ``outcomes`` when all that is ``waiting`` is committed."""
        if not waiting:
            return outcomes
        deadline = self._clock.monotonic() + patience_seconds(timeout_ms)
        wait = CommitWait(outcomes, len(waiting), deadline)
        queues = self._commit_queues
        for ordinal, where in waiting:
            result = outcomes[ordinal]
            assert isinstance(result, AppendResult), "what was refused is not waited for"
            queue = queues.get(where)
            if queue is None:
                queue = self._make_queue(where)
            queue.add(result.last_offset, wait, ordinal)
        return wait.pending

    def _append_large(
        self,
        appends: Appends,
        acks: int,
        timeout_ms: int,
        still_allowed: StillAllowed | None = None,
    ) -> Pending[list[AppendOutcome]]:
        """Analyse a copy of the batches in the executor, then append on the loop.

        What is larger than its topic allows is refused before it is copied; so is, behind the
        analysis, what was for a topic that is gone then, although the name may be there again.
        """
        pending: Pending[list[AppendOutcome]] = Pending()
        now_ms = self._clock.wall_ms()
        copies = []
        meant = [self.topic_id_of(where) for where, _ in appends]
        for where, records in appends:
            config = self._config_of(where)
            copied = None
            if len(records) <= config.max_message_bytes:
                copied = memoryview(bytearray(records))
            copies.append((where, copied, config))
        let_go = self.request_memory.hold(sum(len(copied) for _, copied, _ in copies if copied))

        def work() -> list[tuple[TopicPartition, Analysis | KafkaError]]:
            return [(where, analysed(records, config, now_ms)) for where, records, config in copies]

        def done(
            analyses: list[tuple[TopicPartition, Analysis | KafkaError]] | None,
            error: BaseException | None,
        ) -> None:
            let_go()
            if analyses is None:
                assert error is not None, "work either returns or raises"
                pending.fail(as_exception(error))
                return
            analyses = [
                (where, found if self.topic_id_of(where) == topic_id else gone_meanwhile(where))
                for topic_id, (where, found) in zip(meant, analyses, strict=True)
            ]
            if still_allowed is not None:
                analyses = [(where, still_allowed(where) or found) for where, found in analyses]
            outcome = self._append_here(analyses, acks, timeout_ms, still_allowed)
            if isinstance(outcome, Pending):
                outcome.on_done(pending.take_over)
            else:
                pending.resolve(outcome)

        self._large_appends.submit(work, done)
        return pending

    def _config_of(self, topic_partition: TopicPartition) -> LogConfig:
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return partition.log.config
        return self._settings(topic_partition.topic).log

    # Fetches.

    def fetch(
        self, specs: list[FetchSpec], limits: FetchLimits
    ) -> list[FetchedPartition] | Pending[list[FetchedPartition]]:
        """See ``Fetches.fetch``."""
        return self._fetches.fetch(specs, limits)

    def fetch_many(
        self, specs: list[FetchSpec], limits: FetchLimits
    ) -> Generator[Pending[None] | None, None, list[FetchedPartition] | Pending[FetchedInSteps]]:
        """Read very many partitions in steps: see ``Fetches.fetch_many``."""
        return self._fetches.fetch_many(specs, limits)

    def search_elsewhere(self, batch: BatchSearch) -> Pending[FoundRecord | None]:
        """Have an executor search a batch that takes long; one at a time, as large appends do."""
        pending: Pending[FoundRecord | None] = Pending()

        def done(found: FoundRecord | None, error: BaseException | None) -> None:
            if error is not None:
                pending.fail(as_exception(error))
            else:
                pending.resolve(found)

        self._large_appends.submit(batch.run, done)
        return pending

    def _moved(self, topic_partition: TopicPartition) -> None:
        """Try what waits for this partition: its high watermark, role or health changed."""
        queue = self._commit_queues.get(topic_partition)
        if queue is not None:
            queue.settle(self._partitions.get(topic_partition))
        if self._fetches.purgatory.watched_count:
            self._fetches.purgatory.check(topic_partition)

    def _directory_changed(self, directory: LogDirectory) -> None:
        """Let everybody know who waits for a partition in it; try again what it refused.

        In a later turn: it may be an append or a flush of one of them that found it out.
        """

        def tell() -> None:
            if not directory.is_full:
                self.hosting.retry_unopened()
            self._to_tell += [(directory.path, where) for where in self._partitions]
            self._telling.go_on()

        self._clock.call_later(0, tell)

    def _tell_one(self) -> bool:
        if not self._to_tell:
            return False
        path, where = self._to_tell.pop()
        partition = self._partitions.get(where)
        if partition is not None and dirname(partition.log.directory) == path:
            partition.flush()
            self._moved(where)
        return True

    # Following the metadata image.

    def host_all(self, image: MetadataImage) -> None:
        """Open every partition that the image says this node holds; at start. Blocks."""
        self.hosting.host_all(image)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Create, lead, reconfigure and drop partitions as the image now says: see ``Hosting``.

        Does not block. A partition whose log cannot be created or opened is offline (and is
        logged); the others are not disturbed.
        """
        del image
        self.hosting.apply(delta)

    def _gone(self, partition: Partition) -> None:
        where = partition.topic_partition
        self._watcher.forget(partition)
        self._moved(where)
        queue = self._commit_queues.pop(where, None)
        if queue is not None:
            queue.close()

    def answer_waiting_fetches(self) -> None:
        """Answer every fetch that waits with what there is; for a stop."""
        self._fetches.purgatory.expire_all()

    async def settle(self) -> None:
        """Host nothing new; wait until no flush is in flight: the logs can be closed.

        Call it when whatever else works on the partitions has ended.
        """
        await outcome_of(self.hosting.settle())
        for partition in list(self._partitions.values()):
            await partition.idle()
