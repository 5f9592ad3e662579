"""The transaction coordinator of this node, which the handlers of transactional requests call.

Finds the shard of a transactional id and lets the event happen in its turn. An event's answer has a
code of its own, also when the event is refused. What only reads raises KafkaError.
Source: Kafka's TransactionCoordinator.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil

from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import ShardState
from ottla.coordinator.transaction import machine
from ottla.coordinator.transaction.machine import Answer
from ottla.coordinator.transaction.markers import MarkerWriter
from ottla.coordinator.transaction.peers import Elsewhere, Marker, Producer
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.shard import Transactions, TransactionsShard
from ottla.coordinator.transaction.transaction import Transaction
from ottla.coordinator.transaction.version import BUMPS_EPOCH_SINCE
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId, TopicPartition
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.pending import Pending


class TransactionCoordinator:
    """The coordinator of this node's transactional ids. All methods run on the loop."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[Transactions],
        markers: MarkerWriter,
        settings: TransactionSettings,
        elsewhere: Elsewhere,
    ) -> None:
        self._runtime = runtime
        self._elsewhere = elsewhere
        self._settings = settings
        self._markers = markers

    @property
    def runtime(self) -> CoordinatorRuntime[Transactions]:
        """The shards, for FindCoordinator."""
        return self._runtime

    def start(self) -> None:
        """Load the shards that this node leads already."""
        self._runtime.load_all()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow changes of leadership."""
        del image
        self._runtime.apply(delta)
        self._markers.apply(delta)

    def hosted(self, where: TopicPartition) -> None:
        """Load a partition whose log was made after the image named its leader."""
        self._runtime.hosted(where)

    def stop(self) -> None:
        """Close all shards; the next start carries on decided transactions."""
        self._runtime.close()
        self._markers.close()

    def elsewhere(self, transactional_id: str) -> NodeId | None:
        """Return the other node that coordinates an id; None: this one does, or none now."""
        partition = self._runtime.partition_for(transactional_id)
        node = self._elsewhere.leader_of(TopicPartition(self._runtime.topic, partition))
        return node if node is not None and self._elsewhere.is_live(node) else None

    def ask_elsewhere(
        self,
        node: NodeId,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Pending[Mapping[TopicPartition, ErrorCode]]:
        """Have another node verify or add partitions, for a producer of version 2."""
        return self._elsewhere.peers.add_partitions(
            node, producer, partitions, verify_only=verify_only
        )

    # Requests.

    def init_producer_id(self, event: machine.InitProducerId) -> Pending[Answer]:
        """Give a producer the id's next epoch; abort what its predecessor left open."""
        if not 0 < event.timeout_ms <= self._settings.timeout_max_ms:
            return _answered(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return self._happen(event.transactional_id, event)

    def add_partitions(
        self, producer: Producer, partitions: Collection[TopicPartition], *, client_version: int
    ) -> Pending[Answer]:
        """Add partitions to the producer's transaction, and begin it if it is not open.

        A producer of version 2 adds as it writes, so there this waits for the end of the
        transaction before, for as long as Kafka does; then CONCURRENT_TRANSACTIONS tells it to ask
        again.
        """
        transactional_id, producer_id, epoch = producer
        event = machine.AddPartitions(producer_id, epoch, frozenset(partitions), client_version)
        if client_version < BUMPS_EPOCH_SINCE:
            return self._happen(transactional_id, event)

        adding = _Adding(transactional_id, event, self._settings.add_partitions_wait_ms)
        return self._in_turn(transactional_id, adding.run)

    def end(self, transactional_id: str, event: machine.EndTransaction) -> Pending[Answer]:
        """Decide how a transaction ends; resolves when that is durable. The markers follow."""
        return self._happen(transactional_id, event)

    def write_markers(
        self, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> Pending[list[ErrorCode]]:
        """Write a marker for another coordinator, or for a tool: once to each partition.

        Refuses the epoch of a coordinator that cannot exist, and an epoch that the producer cannot
        have: the partitions would believe them, and keep the real ones out for good.
        """
        code = self._why_impossible(marker)
        if code is None:
            return self._markers.write(marker, partitions)
        refused: Pending[list[ErrorCode]] = Pending()
        refused.resolve([code for _ in partitions])
        return refused

    def _why_impossible(self, marker: Marker) -> ErrorCode | None:
        epoch_max, producer_epoch_max = self._markers.epoch_max, marker.producer_epoch
        for shard in self._runtime.shards:
            known = shard.machine.of_producer(marker.producer_id)
            if known is not None:
                epoch_max = shard.leader_epoch
                producer_epoch_max = known.producer_epoch + 1  # That one fences it.
        # First: this node may have been replaced and not know it, so that it knows old epochs. The
        # coordinator tries again; a producer's epoch that cannot be ends the matter for it.
        if marker.coordinator_epoch > epoch_max:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if marker.producer_epoch > producer_epoch_max:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return None

    def verify(
        self, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Tell for each partition whether the producer may write to it now; see ``machine``."""
        transactional_id, producer_id, epoch = producer
        try:
            known = self._known(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return {where: machine.verify(known, producer_id, epoch, where) for where in partitions}

    def describe(self, transactional_id: str) -> Transaction:
        """Return a transactional id's state. Raises KafkaError."""
        known = self._known(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return known

    def list_all(self) -> Sequence[Transaction]:
        """Return every id that this node coordinates.

        Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) while a shard is loading.
        """
        found: list[Transaction] = []
        for shard in self._runtime.shards:
            if shard.state is ShardState.LOADING:
                why = f"{shard.where} is loading"
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)
            found += shard.machine.transactions.values()
        return found

    # Common.

    def _known(self, transactional_id: str) -> Transaction | None:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        shard = self._runtime.shard_for(transactional_id)
        shard.check_active()
        return shard.machine.transactions.get(transactional_id)

    def _happen(
        self,
        transactional_id: str,
        event: machine.InitProducerId | machine.AddPartitions | machine.EndTransaction,
    ) -> Pending[Answer]:
        return self._in_turn(
            transactional_id,
            lambda shard, tell: shard.machine.happen(transactional_id, event, tell),
        )

    def _in_turn(
        self,
        transactional_id: str,
        run: Callable[[TransactionsShard, Callable[[Answer], None]], None],
    ) -> Pending[Answer]:
        if not transactional_id:
            return _answered(ErrorCode.INVALID_REQUEST)
        try:
            shard = self._runtime.shard_for(transactional_id)
        except KafkaError as error:
            return _answered(error.code)
        answer: Pending[Answer] = Pending()
        found: Pending[Answer] = Pending()

        def run_in_turn() -> None:
            shard.check_standing()  # It may have waited.
            run(shard, found.resolve)
            if found.value is None or found.value.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                found.on_done(answer.take_over)  # What is durable on all is told, and what passes.
            else:  # From memory: the next coordinator may have begun another transaction.
                sure = shard.surely(lambda: found)
                answer.follow(sure.then(lambda told: told, lambda error: Answer(error.code)))

        shard.execute(run_in_turn, lambda error: answer.resolve(Answer(error.code)))
        return answer


def _answered(code: ErrorCode) -> Pending[Answer]:
    answer: Pending[Answer] = Pending()
    answer.resolve(Answer(code))
    return answer


class _Adding:
    """Adds partitions when the transaction before has ended, if that is soon."""

    __slots__ = ("_deadline", "_event", "_transactional_id", "_wait_ms")

    def __init__(self, transactional_id: str, event: machine.AddPartitions, wait_ms: int) -> None:
        self._transactional_id = transactional_id
        self._event = event
        self._wait_ms = wait_ms
        self._deadline: float | None = None

    def run(self, shard: TransactionsShard, tell: Callable[[Answer], None]) -> None:
        """Add the partitions, or come back when the id is settled."""

        def in_turn() -> None:
            shard.check_standing()  # It has waited.
            self.run(shard, tell)

        def again() -> None:
            shard.execute(in_turn, lambda error: tell(Answer(error.code)))

        if shard.machine.is_settled(self._transactional_id):
            shard.machine.happen(self._transactional_id, self._event, tell)
            return
        now = shard.clock.monotonic()
        if self._deadline is None:
            self._deadline = now + self._wait_ms / 1000
        shard.machine.when_settled(
            self._transactional_id,
            again,
            lambda: tell(machine.CONCURRENT),
            within_ms=ceil((self._deadline - now) * 1000),
        )
