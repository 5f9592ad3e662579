"""Which partitions this node hosts, and how they come and go: as the metadata image says.

Owns the table of partitions and the order of what happens to their directories. What takes the disk
is done in an executor, some partitions at a time, topic by topic in turns; so neither a topic of
thousands of partitions nor a thousand topics hold up the loop, or each other. Between the replica
manager and log.log_maker.

    the image says   at once, on the loop                 later, a slice at a time
    made             noted: it is being made              log made durably; then it is hosted
    gone             hosted no more: nothing is appended  log closed, directory renamed durably

What is said of one topic is done in the order in which it was said: a topic that is made again
under the same name gets its directories when those of the former one have given their names up.
While it is being made a partition is not led here yet: clients ask again. Source: Kafka's
ReplicaManager.applyDelta.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.log.directories.making import MakingJob, RemovalJob, Wanted
from ottla.log.directories.manager import LogManager
from ottla.log.log import Log
from ottla.metadata.image import MetadataDelta, MetadataImage, TopicImage
from ottla.metadata.keys import ConfigType
from ottla.metadata.values import PartitionState
from ottla.pending import Pending
from ottla.replication.hosting_steps import Step, slice_of
from ottla.replication.missing import Missing, missing
from ottla.replication.partition import NOT_REGISTERED, Partition, PartitionSettings

logger = logging.getLogger(__name__)

FencedEpoch = Callable[[TopicPartition, TopicId, PartitionState], LeaderEpoch]
"""Returns up to which leader epoch a partition is not led here; -1: it is from any on."""
RECONFIGURED_PER_TURN = 500
"""Partitions that take over settings before the loop gets its turn: each costs microseconds."""


class Watcher(Protocol):
    """Is told of the partitions that are hosted here, as their settings say."""

    def watch(self, partition: Partition) -> None:
        """Take note of a partition whose settings are new or have changed."""

    def forget(self, partition: Partition) -> None:
        """Take note that a partition is hosted no more. Harmless when it is not watched."""


class Roles(Protocol):
    """Is told of the roles that partitions of several replicas take."""

    def role_taken(self, partition: Partition) -> None:
        """Take note that it leads or follows, perhaps as before; it may be the only one by now."""

    def gone(self, partition: Partition) -> None:
        """Take note that a partition is hosted no more; it may have one replica."""


class Hosting:
    """The partitions of this node."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        log_manager: LogManager,
        clock: Clock,
        executor: Executor,
        settings: Callable[[str], PartitionSettings],
        moved: Callable[[TopicPartition], None],
        configured: Callable[[Partition], None],
        gone: Callable[[Partition], None],
    ) -> None:
        """Host nothing yet.

        ``moved``: what waits for a partition is to be looked at. ``configured``: its settings are
        new or have changed. ``gone``: it is hosted no more.
        """
        self._node_id = node_id
        self._log_manager = log_manager
        self._clock = clock
        self._executor = executor
        self._settings = settings
        self._moved = moved
        self._configured = configured
        self._gone = gone
        self.partitions: dict[TopicPartition, Partition] = {}
        """Use: look-ups on every request."""
        self.unopened: dict[TopicPartition, str] = {}
        """Why a partition has no log. Invariant: each is in ``partitions``, with a failed one."""
        self._never_made: set[TopicPartition] = set()
        """Those of ``unopened`` that were nowhere when they were to be made first: whichever log
        directory goes offline later, they are not in it."""
        self.listeners: list[Callable[[TopicPartition], None]] = []
        """Told on the loop of each partition that was not there when the image told of it, and is
        hosted now."""
        self.roles: Roles | None = None
        """Use: told of partitions of several replicas. None: there is none yet."""
        self.missing_at_start: list[Missing] = []
        """Partitions of several replicas that had no log here when this process began."""
        self._making: dict[TopicPartition, tuple[Step, PartitionState]] = {}
        """Those that will be hosted: the step that makes the log, and the newest state. Invariant:
        not in ``partitions``, but for those that could not be opened before."""
        self._queues: dict[str, deque[Step | Pending[None]]] = {}
        """What is to be done, by topic, in order; a Pending is resolved when all before it is.
        Invariant: a topic is there until its last step has been taken."""
        self._is_working = False
        """Use: one step is under way. The next one is taken when it ends."""
        self._is_stopped = False
        self.left: list[Partition] = []
        """Those whose logs ``settle`` left open: to be removed; a flush may be in flight."""
        self._fenced: dict[tuple[TopicId, int], LeaderEpoch] | None = {}
        """Up to which leader epoch a partition of several replicas is not led here, for those that
        are being made: see ``Partition.fence``. None: this process is not registered yet."""
        self._idle: list[Pending[None]] = []

    def high_watermark_of(self, where: TopicPartition) -> int | None:
        """Return what is committed of a partition; None when it is not hosted here."""
        partition = self.partitions.get(where)
        return None if partition is None else partition.high_watermark

    def is_making(self, where: TopicPartition) -> bool:
        """Tell whether a partition is to be hosted, and is not yet."""
        return where in self._making

    def done(self, topic: str) -> Pending[None]:
        """Return when all that was said of ``topic`` until now is done, and durable.

        Fails with KafkaError when the node stops before.
        """
        pending: Pending[None] = Pending()
        queue = self._queues.get(topic)
        if queue is None:
            pending.resolve(None)
        elif self._is_stopped:
            pending.fail(_stopped())
        else:
            queue.append(pending)
        return pending

    def settle(self) -> Pending[None]:
        """Begin nothing more; return when nothing is under way. The next start does the rest."""
        self._is_stopped = True
        for queue in self._queues.values():
            for step in queue:
                if isinstance(step, Pending):
                    step.fail(_stopped())
                elif step.partition is not None:
                    self.left.append(step.partition)
        self._queues.clear()
        pending: Pending[None] = Pending()
        if self._is_working:
            self._idle.append(pending)
        else:
            pending.resolve(None)
        return pending

    # What the image says.

    def host_all(self, image: MetadataImage) -> None:
        """Host every partition that the image says this node holds; at start. Blocks.

        Those of several replicas are led when ``registered`` was called.
        """
        self._fenced = None
        wanted: dict[TopicPartition, PartitionState] = {}
        is_new = not self._log_manager.away()  # All that is anywhere is found.
        topic_ids: list[Wanted] = []
        for name, topic in image.topics.items():
            for index, state in enumerate(topic.partitions):
                if self._node_id in state.replicas:
                    where = TopicPartition(name, index)
                    wanted[where] = state
                    topic_ids.append(Wanted(where, topic.topic_id, is_new))
                    has_others = len(state.replicas) > 1
                    gone = missing(self._log_manager, where, topic.topic_id) if has_others else None
                    if gone is not None:
                        self.missing_at_start.append(gone)
                elif self._node_id in state.left:
                    self._remove_left(TopicPartition(name, index), topic.topic_id)
        job = self._log_manager.maker.making_job(topic_ids)
        job.run()
        made = self._log_manager.maker.made(job)
        for where, topic_id, _ in topic_ids:
            self._host(where, topic_id, wanted[where], made[where], is_new=is_new)
        self._work()

    def _remove_left(self, where: TopicPartition, topic_id: TopicId) -> None:
        """Remove the log of a replica that was taken away while this node was down."""
        log = self._log_manager.get(where)
        if log is not None and log.topic_id == topic_id:
            logger.info("%s: this node is no replica any more; its copy is removed", where)
            self._add(Step(where, topic_id, None, is_new=False))

    def registered(self, fenced_epoch: FencedEpoch) -> None:
        """Fence what was granted before this process registered, as the image just told."""
        for where, partition in list(self.partitions.items()):
            epoch = fenced_epoch(where, partition.topic_id, partition.state)
            if len(partition.state.replicas) > 1:
                partition.fence(epoch)
                self._tell_role(partition)
            else:  # It goes on as it was, also when it gets more replicas.
                partition.fenced_epoch = epoch
        self._fenced = {
            (step.topic_id, where.partition): fenced_epoch(where, step.topic_id, state)
            for where, (step, state) in self._making.items()
        }

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Note what comes, host no more what goes, and see to the rest later."""
        for topic, topic_id, number, _, new in delta.partitions:
            if new is None or self._node_id not in new.replicas:
                self._drop(TopicPartition(topic, number), topic_id)
        for topic, topic_id, number, old, new in delta.partitions:
            if new is not None and self._node_id in new.replicas:
                is_new = old is None or self._node_id not in old.may_have_it  # A disk may be away.
                self._take(TopicPartition(topic, number), topic_id, new, is_new=is_new)
        self._work()
        topics = {name for kind, name in delta.configs if kind is ConfigType.TOPIC}
        is_broker = any(kind is ConfigType.BROKER for kind, _ in delta.configs)
        if topics or is_broker:
            self._reconfigure(None if is_broker else [image.topic(name) for name in topics])

    def make_anew(self, partition: Partition) -> None:
        """Remove the log of a replica that follows, if hosted, and make one anew; both later."""
        where, topic_id = partition.topic_partition, partition.topic_id
        if self.partitions.get(where) is partition:
            self._drop(where, topic_id)
            if self._fenced is not None:
                self._fenced[topic_id, where.partition] = partition.fenced_epoch
            self._take(where, topic_id, partition.state, is_new=True)
            self._work()

    def retry_unopened(self) -> None:
        """Make the logs that could not be made before: the disk may have had no space."""
        for where in list(self.unopened):
            if where not in self._making:
                partition = self.partitions[where]
                is_new = where in self._never_made
                self._make(where, partition.topic_id, partition.state, is_new=is_new)
        self._work()

    def _take(
        self, where: TopicPartition, topic_id: TopicId, state: PartitionState, *, is_new: bool
    ) -> None:
        making = self._making.get(where)
        if making is not None and making[0].topic_id == topic_id:
            self._making[where] = (making[0], state)
            return
        partition = self.partitions.get(where)
        if partition is not None and partition.topic_id == topic_id:
            had_others = len(partition.state.replicas) > 1
            partition.apply_state(state)
            self._tell_role(partition, had_others=had_others)
            if where not in self.unopened:
                return
        self._make(where, topic_id, state, is_new=is_new or where in self._never_made)

    def _make(
        self, where: TopicPartition, topic_id: TopicId, state: PartitionState, *, is_new: bool
    ) -> None:
        step = Step(where, topic_id, state, is_new)
        self._making[where] = (step, state)
        self._add(step)

    def _drop(self, where: TopicPartition, topic_id: TopicId) -> None:
        making = self._making.get(where)
        was_making = making is not None and making[0].topic_id == topic_id
        if was_making:
            del self._making[where]
        partition = self.partitions.get(where)
        if partition is not None and partition.topic_id == topic_id:
            # From now on nothing is appended that would be gone with it.
            del self.partitions[where]
            partition.stop()
            if self.roles is not None:
                self.roles.gone(partition)
        else:
            partition = None
        self._never_made.discard(where)
        if self.unopened.pop(where, None) is None and not was_making and partition is None:
            return
        self._add(Step(where, topic_id, None, is_new=False, partition=partition))

    def _add(self, step: Step) -> None:
        self._queues.setdefault(step.where.topic, deque()).append(step)

    # Doing it.

    def _work(self) -> None:
        """Take the next slice unless one is under way. Goes on until there is nothing left."""
        while self._queues and not self._is_working and not self._is_stopped:
            topic = next(iter(self._queues))
            queue = self._queues.pop(topic)
            while queue and isinstance(queue[0], Pending):
                waiter = queue.popleft()
                assert isinstance(waiter, Pending)
                waiter.resolve(None)
            if not queue:
                continue
            steps = slice_of(queue)
            self._queues[topic] = queue  # At the end: the others have their turns.
            self._is_working = True
            if steps[0].state is None:
                self._remove(steps)
            else:
                self._make_logs(steps)

    def _make_logs(self, steps: list[Step]) -> None:
        wanted = [step for step in steps if self._is_wanted(step)]
        job = self._log_manager.maker.making_job(
            Wanted(step.where, step.topic_id, step.is_new) for step in wanted
        )

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:  # A fault of ours: it must not end the work on the others.
                logger.error("partitions could not be made", exc_info=error)
                for step in wanted:
                    job.outcomes.setdefault(step.where, _fault(error))
            self._take_made(wanted, job)
            self._ended()

        self._executor.submit(job.run, done)

    def _take_made(self, steps: list[Step], job: MakingJob) -> None:
        offline = self._log_manager.offline
        were_offline = {step.where for step in steps if step.where in offline}
        made = self._log_manager.maker.made(job)
        for step in steps:
            if self._is_wanted(step):
                _, state = self._making.pop(step.where)
                outcome = made[step.where]
                self._host(step.where, step.topic_id, state, outcome, is_new=step.is_new)
                if not isinstance(outcome, Log) and step.where in were_offline - offline.keys():
                    # A deleted topic's directory was in the way, and is no more: begin anew.
                    self._make(step.where, step.topic_id, state, is_new=step.is_new)
                for listener in self.listeners:
                    listener(step.where)
            # Otherwise the partition went meanwhile: a later step removes its log.

    def _is_wanted(self, step: Step) -> bool:
        making = self._making.get(step.where)
        # A replica that goes and comes back meanwhile has a later step: what this one makes goes.
        return making is not None and making[0] is step

    def _host(
        self,
        where: TopicPartition,
        topic_id: TopicId,
        state: PartitionState,
        outcome: Log | KafkaError,
        *,
        is_new: bool,
    ) -> None:
        self._never_made.discard(where)
        if isinstance(outcome, KafkaError):
            if is_new and where not in self._log_manager.offline:
                self._never_made.add(where)
            if self.unopened.get(where) != str(outcome):
                logger.error("%s is offline: %s", where, outcome)
            self.unopened[where] = str(outcome)
            log = self._log_manager.stand_in(where, topic_id)
        else:
            self.unopened.pop(where, None)
            log = outcome
        settings = self._settings(where.topic)
        partition = Partition(
            log,
            topic_id=topic_id,
            node_id=self._node_id,
            state=state,
            min_insync_replicas=settings.min_insync_replicas,
            clock=self._clock,
            executor=self._executor,
            moved=self._moved,
            checkpointed_high_watermark=self._log_manager.high_watermarks.get(where, 0),
            fenced_epoch=self._fenced_epoch(topic_id, where),
        )
        partition.configure(settings)
        if (before := self.partitions.get(where)) is not None:  # It could not be opened then.
            before.stop()
        self.partitions[where] = partition
        self._configured(partition)
        self._tell_role(partition)

    def _tell_role(self, partition: Partition, *, had_others: bool = False) -> None:
        has_others = len(partition.state.replicas) > 1
        if self.roles is not None and (has_others or had_others):
            self.roles.role_taken(partition)

    def _fenced_epoch(self, topic_id: TopicId, where: TopicPartition) -> LeaderEpoch:
        before = self.partitions.get(where)
        if before is not None and before.topic_id == topic_id:  # It could not be opened then.
            return before.fenced_epoch
        if self._fenced is None:
            return NOT_REGISTERED
        return self._fenced.pop((topic_id, where.partition), LeaderEpoch(-1))

    def _remove(self, steps: list[Step]) -> None:
        for step in steps:
            if step.partition is not None and step.partition.is_held:
                # Its directory bears another name in a moment.
                step.partition.released().on_done(lambda _: self._remove(steps))
                return
        names = []
        for where, topic_id, _, _, partition in steps:
            if partition is not None:
                self._gone(partition)
            log = self._log_manager.get(where)
            self._log_manager.maker.deleted_unopened(where, topic_id)
            # Otherwise the log is another topic's: it stays, as an unreadable log does.
            if log is None or log.topic_id in (None, topic_id):
                names.append(where)
        job = self._log_manager.maker.removal_job(names)

        def done(_: None, error: BaseException | None) -> None:
            self._take_removed(job, error)
            self._ended()

        self._executor.submit(job.run, done)

    def _take_removed(self, job: RemovalJob, error: BaseException | None) -> None:
        if error is not None:  # A fault of ours, as above.
            logger.error("partitions could not be removed", exc_info=error)
            for where, _, _ in job.removals:
                job.faults.setdefault(where, _fault(error))
        for where, fault in self._log_manager.maker.removed(job).items():
            logger.error("%s is deleted but its directory stays: %s", where, fault)

    def _ended(self) -> None:
        self._is_working = False
        idle, self._idle = self._idle, []
        for waiter in idle:
            waiter.resolve(None)
        self._work()

    # Settings.

    def _reconfigure(self, topics: Collection[TopicImage | None] | None) -> None:
        """Let the partitions of ``topics`` (None: all) have their settings, a few per turn."""
        self._go_on(self._reconfiguring(topics))

    def _go_on(self, work: Iterator[None]) -> None:
        if next(work, self) is not self and not self._is_stopped:
            self._clock.call_later(0, lambda: self._go_on(work))

    def _reconfiguring(self, topics: Collection[TopicImage | None] | None) -> Iterator[None]:
        by_topic: dict[str, PartitionSettings] = {}
        for count, where in enumerate(_named(self.partitions, topics), 1):
            partition = self.partitions.get(where)
            if partition is not None:  # Those that are being made take the settings then.
                if where.topic not in by_topic:
                    by_topic[where.topic] = self._settings(where.topic)
                partition.configure(by_topic[where.topic])
                self._configured(partition)
            if count % RECONFIGURED_PER_TURN == 0:
                by_topic.clear()  # They may change before the next turn.
                yield


def _named(
    partitions: Collection[TopicPartition], topics: Collection[TopicImage | None] | None
) -> Iterator[TopicPartition]:
    """Go through the partitions of ``topics``; None: through all of ``partitions``."""
    if topics is None:
        yield from list(partitions)
        return
    for topic in topics:
        if topic is not None:  # None: it is deleted, and its configs after it.
            for number in range(len(topic.partitions)):
                yield TopicPartition(topic.name, number)


def _stopped() -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the broker stops; its next start does the rest")


def _fault(error: BaseException) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"an internal error: {error!r}")
