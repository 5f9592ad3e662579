"""All partitions of this node, and "committed" appends and fetches across them.

The handlers' only way to the data. Knows partitions and their purgatories; nothing of requests,
sessions or the wire. Follows the metadata image: what it leads, creates and deletes is what the
image says. Source: the API refactoring seed ("Replica Manager").
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from math import inf
from posixpath import dirname
from typing import TYPE_CHECKING, cast

from ottla.env.clock import Clock
from ottla.env.executor import Executor, Lane
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT64_MAX, LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.log.directories.directory import LogDirectory
from ottla.log.directories.manager import LogManager
from ottla.log.segment.cold_read import ColdRead
from ottla.log.segment.time_lookup import BatchSearch, FoundRecord
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.metadata.values import PartitionState
from ottla.pending import Pending, as_exception, outcome_of
from ottla.replication.appends import Appends
from ottla.replication.fetch import (
    CurrentLeader,
    FetchedPartition,
    FetchLimits,
    FetchSpec,
)
from ottla.replication.fetches import FetchedInSteps, Fetches
from ottla.replication.hosting import Hosting, Watcher
from ottla.replication.partition import Partition, PartitionSettings
from ottla.request_memory import RequestMemory
from ottla.turns import Portions, Turns

if TYPE_CHECKING:
    from ottla.replication.replicas import Replicas

logger = logging.getLogger(__name__)

LARGE_MAX = 1
"""Large batches opened or searched at the same time."""
LARGE_BATCHES = "large batches"
"""Their place in the executor: they wait for no disk, so behind none either."""


async def _tell_nobody(_is_full: bool) -> None:
    """Be no member yet."""


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
        self._large = Lane(executor, LARGE_MAX, place=LARGE_BATCHES)
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
        self.hosting.roles = self
        self.broker_epoch = -1
        """This node's registration, as the image told. -1: it has none yet."""
        self.replicas: Replicas | None = None
        """Use: for partitions of several replicas; made by ``make_replicas`` with the first."""
        self.make_replicas: Callable[[], Replicas] | None = None
        """Use: None: nothing is done for such partitions."""
        self.certain_until: Callable[[], float] = lambda: inf
        """Use: until when this node is registered for certain, in seconds of its clock."""
        self.tell_full: Callable[[bool], Awaitable[int | None]] = _tell_nobody
        """Use: tells other nodes whether a log directory here has no space; None: it could not."""
        self.changed_at: Callable[[TopicId, int], int] = lambda *_: -1
        """Use: the revision in which the image's state of a partition was written."""
        self._image: MetadataImage | None = None
        """Use: to tell who leads what is not hosted here. None: nothing was heard yet."""
        self._partitions = self.hosting.partitions
        self.find = cast("Callable[[tuple[str, int]], Partition | None]", self._partitions.get)
        """Use: ``get`` by topic and partition, without an object made of them."""
        self._is_settling = False
        self._to_tell: list[tuple[str, TopicPartition]] = []
        """Use: partitions that may wait for a directory that has changed, and its path."""
        self._telling = Portions(turns or Turns(clock), self._tell_one, "a change of a directory")
        self._fetches = Fetches(
            self._partitions.get,
            clock,
            read_executor or executor,
            missing=self._nothing_of,
            waiting_max=waiting_fetches_max,
        )
        self.appends = Appends(
            self._partitions,
            clock=clock,
            executor=executor,
            large=self._large,
            config_of=lambda topic: settings(topic).log,
            missing=self._missing,
            request_memory=self.request_memory,
        )
        """Use: the one way in for records."""

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

    def state_of(self, where: TopicPartition) -> PartitionState | None:
        """Return who leads a partition, hosted here or not; None: it does not exist."""
        partition = self._partitions.get(where)
        if partition is not None:
            return partition.state
        return None if self._image is None else self._image.partition(where)

    def _missing(self, where: TopicPartition) -> ErrorCode:
        """Return what clients are told of a partition that is not here: perhaps, not yet."""
        if self.hosting.is_making(where) or self._elsewhere(where) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _nothing_of(self, where: TopicPartition) -> FetchedPartition:
        state = self._elsewhere(where)
        leader = None
        if state is not None and self._image is not None and state.leader in self._image.brokers:
            leader = CurrentLeader(state.leader, state.leader_epoch)
        return FetchedPartition(where, self._missing(where), current_leader=leader)

    def _elsewhere(self, where: TopicPartition) -> PartitionState | None:
        """Return the state of a partition whose replicas are all on other nodes, else None."""
        state = None if self._image is None else self._image.partition(where)
        is_elsewhere = state is not None and state.replicas and self._node_id not in state.replicas
        return state if is_elsewhere else None

    def topic_id_of(self, topic_partition: TopicPartition) -> TopicId | None:
        """Return which topic of its name the partition hosted here is of; None: it is not here.

        For who waits: behind the wait the name may be another topic's.
        """
        partition = self._partitions.get(topic_partition)
        return None if partition is None else partition.topic_id

    def topic_id_anywhere(self, where: TopicPartition) -> TopicId | None:
        """Return which topic of its name a partition is of, hosted here or not; None: of none."""
        partition = self._partitions.get(where)
        if partition is not None:
            return partition.topic_id
        image = self._image
        topic = None if image is None else image.topic(where.topic)
        is_there = topic is not None and 0 <= where.partition < len(topic.partitions)
        return topic.topic_id if topic is not None and is_there else None

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

        self._large.submit(batch.run, done)
        return pending

    def warm(self, cold: list[ColdRead]) -> Pending[None]:
        """See ``Fetches.warm``."""
        return self._fetches.warm(cold)

    def is_waited_for(self, where: TopicPartition) -> bool:
        """Tell whether consumers wait for records of a partition."""
        return self._fetches.purgatory.is_watched(where)

    def _moved(self, topic_partition: TopicPartition) -> None:
        """Try the fetches that wait for this partition."""
        if self.replicas is not None:
            self.replicas.sessions.moved(topic_partition)
        if self._fetches.purgatory.watched_count:
            self._fetches.purgatory.check(topic_partition)

    def _directory_changed(self, directory: LogDirectory) -> None:
        """Let everybody know who waits for a partition in it; try again what it refused.

        In a later turn: it may be an append or a flush of one of them that found it out.
        """

        def tell() -> None:
            if self._is_settling:
                return
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
            partition.tell()
            if partition.is_failed and len(partition.state.replicas) > 1:
                self.role_taken(partition)
        return True

    # Several replicas.

    @property
    def node_id(self) -> NodeId:
        """The id of this node."""
        return self._node_id

    def role_taken(self, partition: Partition) -> None:
        """Have partitions of several replicas followed, or their followers looked after."""
        if self.replicas is None:
            if self.make_replicas is None or self._is_settling:  # Nobody would stop them.
                return
            self.replicas = self.make_replicas()
        self.replicas.role_taken(partition)

    def gone(self, partition: Partition) -> None:
        """Take note that a partition is hosted no more."""
        if self.replicas is not None:
            self.replicas.gone(partition)

    # Following the metadata image.

    def host_all(self, image: MetadataImage) -> None:
        """Open every partition that the image says this node holds; at start. Blocks."""
        self._image = image
        self.hosting.host_all(image)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Create, lead, reconfigure and drop partitions as the image now says: see ``Hosting``.

        Does not block. A partition whose log cannot be created or opened is offline (and is
        logged); the others are not disturbed.
        """
        self._image = image
        self.hosting.apply(image, delta)
        if self._node_id in delta.brokers:
            self._registered(image)
        if delta.brokers and self.replicas is not None:
            self.replicas.low_watermarks.look_at_all()

    def _registered(self, image: MetadataImage) -> None:
        broker = image.brokers.get(self._node_id)
        if broker is not None and broker.epoch != self.broker_epoch:
            self.broker_epoch = broker.epoch
            self.hosting.registered(self._fenced_epoch)

    def _fenced_epoch(
        self, where: TopicPartition, topic_id: TopicId, state: PartitionState
    ) -> LeaderEpoch:
        """Return up to which epoch this process does not lead a partition that it may lead.

        A state that is newer than the registration is of this process: when the image was behind
        it tells of both at once.
        """
        if len(state.replicas) == 1 or state.leader != self._node_id:
            return LeaderEpoch(-1)
        if self.changed_at(topic_id, where.partition) > self.broker_epoch:
            return LeaderEpoch(-1)
        from ottla.replication.elections import (  # noqa: PLC0415 - one node needs none
            fenced_epoch_of,
        )

        return fenced_epoch_of(state, self._node_id)

    def _gone(self, partition: Partition) -> None:
        self._watcher.forget(partition)
        self._moved(partition.topic_partition)

    def answer_waiting_fetches(self) -> None:
        """Answer every fetch that waits with what there is; for a stop."""
        if self.replicas is not None:
            self.replicas.answer_waiting()
        self._fetches.purgatory.expire_all()

    async def settle(self) -> None:
        """Host nothing new; wait until no flush is in flight: the logs can be closed.

        Call it when whatever else works on the partitions has ended. Large batches that still wait
        for their turn are dropped: who sent them is gone. Nobody is told of full disks any more,
        which would begin flushes.
        """
        self._is_settling = True
        self._to_tell.clear()
        await self._large.settle()
        if self.replicas is not None:
            await self.replicas.stop()
        await outcome_of(self.hosting.settle())
        for partition in (*self._partitions.values(), *self.hosting.left):
            await partition.idle()
