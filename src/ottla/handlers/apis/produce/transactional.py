"""Appends transactional batches, only to partitions that are part of the producer's transaction.

Owns the check before the append. A producer whose transaction is open in the partition may append.
For any other the coordinator verifies that the partition is part of the transaction; from Produce
v12 on it adds the partition instead, because such producers add partitions by writing to them.
Nothing may happen between that check and the append: otherwise a batch could follow its
transaction's end marker and stay undecided for ever. So small batches are appended in the same turn
of the loop, and large ones are checked again when they come back from the executor. When the
coordinator is another node, the partition itself tells whether a marker came in between. If the
topic was deleted and created again meanwhile, the batch is refused.

Source: KIP-890; the answers of a live Kafka 4.3:

    not part of the transaction     TRANSACTION_ABORTABLE from v11 on, INVALID_TXN_STATE before
    an old epoch                    INVALID_PRODUCER_EPOCH
    an id of another producer       INVALID_PRODUCER_ID_MAPPING
    v12: begins above sequence 0    OUT_OF_ORDER_SEQUENCE_NUMBER, if the partition does not know it
    the coordinator is not ready    NOT_ENOUGH_REPLICAS: clients try again
    it ended while it was verified  INVALID_TXN_STATE; v12: CONCURRENT_TRANSACTIONS, for it may be
                                    the producer's last one whose end came so late
    another node leads the partition, or did while it was verified
                                    NOT_LEADER_OR_FOLLOWER, whatever the coordinator says
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.peers import UNREACHABLE, Producer
from ottla.coordinator.transaction.verifying import Verified
from ottla.coordinator.transaction.version import SERVER_VERSION
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis.produce.producer import is_transactional, producer_of
from ottla.ids import NodeId, TopicPartition
from ottla.pending import Pending
from ottla.records.batch import read_header
from ottla.replication.append import AppendOutcome, AppendRefusal
from ottla.replication.replica_manager import ReplicaManager

ABORTABLE_SINCE = 11
ADDS_SINCE = 12
Appends = Sequence[tuple[TopicPartition, memoryview]]
Outcomes = list[AppendOutcome] | Pending[list[AppendOutcome]]


class TransactionalAppends:
    """Verifies or adds partitions before the appends of a request with a transactional id."""

    def __init__(
        self, replica_manager: ReplicaManager, transactions: TransactionCoordinator
    ) -> None:
        self._replica_manager = replica_manager
        self._transactions = transactions

    def append(
        self, transactional_id: str, appends: Appends, *, version: int, acks: int, timeout_ms: int
    ) -> Outcomes:
        """Append what is allowed and refuse the rest; one outcome per entry, in order."""
        producers = {producer_of(records) for _, records in appends if is_transactional(records)}
        if len(producers) > 1:
            refusal = AppendRefusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return [refusal for _ in appends]
        if not producers:
            return self._replica_manager.appends.many(appends, acks=acks, timeout_ms=timeout_ms)
        request = _Request(
            self._replica_manager,
            self._transactions,
            Producer(transactional_id, *producers.pop()),
            frozenset(where for where, records in appends if is_transactional(records)),
            version,
            acks,
            timeout_ms,
        )
        refused = request.not_led()
        unknown = [
            where
            for where in request.partitions
            if where not in refused and not request.is_open(where)
        ]
        node = self._transactions.elsewhere(transactional_id)
        if node is not None:
            producer_id = request.producer.producer_id
            verified = Verified(self._replica_manager, producer_id, request.partitions)
            request = request._replace(verified=verified)
        if not unknown:
            return request.append(appends, refused)
        if node is None and version < ADDS_SINCE:
            return request.append(
                appends, refused | self._transactions.verify(request.producer, unknown)
            )
        return self._append_when_answered(request, appends, refused, unknown, node)

    def _append_when_answered(
        self,
        request: "_Request",
        appends: Appends,
        refused: Mapping[TopicPartition, ErrorCode],
        unknown: Sequence[TopicPartition],
        node: NodeId | None,
    ) -> Pending[list[AppendOutcome]]:
        """Ask the coordinator on ``node`` (None: this node's) about partitions, then append."""
        version = request.version
        # The request's bytes are no longer valid when the coordinator has answered.
        copies = [(where, memoryview(bytearray(records))) for where, records in appends]
        size_bytes = sum(len(records) for _, records in appends)
        let_go = self._replica_manager.request_memory.hold(size_bytes)
        gaps = [
            where
            for where, records in appends
            if version >= ADDS_SINCE
            and where in unknown
            and is_transactional(records)  # The partition may stand there again, with less.
            and request.is_new(where)
            and read_header(records).base_sequence > 0  # Without one it is refused for that.
        ]
        meant = {where: self._replica_manager.topic_id_of(where) for where, _ in appends}
        outcomes: Pending[list[AppendOutcome]] = Pending()

        def answered(done: Pending[Mapping[TopicPartition, ErrorCode]]) -> None:
            let_go()
            said = done.value
            if said is None:  # The question failed: it confirms nothing.
                said = dict.fromkeys(unknown, UNREACHABLE)
            codes = {**refused, **said}
            for where in gaps:
                if codes[where] is ErrorCode.NONE:
                    codes[where] = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            for where in request.partitions:
                if codes.get(where, ErrorCode.NONE) is ErrorCode.NONE:
                    codes[where] = request.code_of_void(where)
            for where, topic_id in meant.items():
                if self._replica_manager.topic_id_of(where) != topic_id:  # Deleted meanwhile.
                    codes[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcome = request.append(copies, codes)
            if isinstance(outcome, Pending):
                outcome.on_done(outcomes.take_over)
            else:
                outcomes.resolve(outcome)

        self._ask(request, unknown, node).on_done(answered)
        return outcomes

    def _ask(
        self, request: "_Request", unknown: Sequence[TopicPartition], node: NodeId | None
    ) -> Pending[Mapping[TopicPartition, ErrorCode]]:
        """Add the partitions to the transaction, or, for older producers, verify them."""
        if node is not None:
            return self._transactions.ask_elsewhere(
                node, request.producer, unknown, verify_only=request.version < ADDS_SINCE
            )
        adding = self._transactions.add_partitions(
            request.producer, unknown, client_version=SERVER_VERSION
        )
        return adding.then(lambda answer: dict.fromkeys(unknown, answer.code))


class _Request(NamedTuple):
    """One request with transactional batches, all by one producer."""

    replica_manager: ReplicaManager
    transactions: TransactionCoordinator
    producer: Producer
    partitions: frozenset[TopicPartition]
    """The partitions of its transactional batches."""
    version: int
    acks: int
    timeout_ms: int
    verified: Verified | None = None
    """Whether what another node confirms still holds; None: this node is the coordinator."""

    def append(self, appends: Appends, codes: Mapping[TopicPartition, ErrorCode]) -> Outcomes:
        """Append all but the partitions that have an error in ``codes``."""
        outcome, verified = self._append(appends, codes), self.verified
        if verified is None:
            return outcome

        def over(outcomes: list[AppendOutcome]) -> list[AppendOutcome]:
            verified.end()
            return outcomes

        return outcome.then(over) if isinstance(outcome, Pending) else over(outcome)

    def _append(self, appends: Appends, codes: Mapping[TopicPartition, ErrorCode]) -> Outcomes:
        refused = {
            where: AppendRefusal(refusal_code(code, self.version))
            for where, code in codes.items()
            if code is not ErrorCode.NONE
        }
        allowed = [one for one in appends if one[0] not in refused]
        if not allowed:
            return [refused[where] for where, _ in appends]
        outcome = self.replica_manager.appends.many(
            allowed, acks=self.acks, timeout_ms=self.timeout_ms, still_allowed=self.refusal
        )
        if not refused:
            return outcome

        def merged(outcomes: list[AppendOutcome]) -> list[AppendOutcome]:
            left = iter(outcomes)
            return [refused[where] if where in refused else next(left) for where, _ in appends]

        return outcome.then(merged) if isinstance(outcome, Pending) else merged(outcome)

    def refusal(self, where: TopicPartition) -> KafkaError | None:
        """Return why the partition may not be written to now; None when it may."""
        if where not in self.partitions:
            return None
        if self.verified is not None:
            code = self.code_of_void(where)
            why = "the transaction ended, or leadership moved, while it was verified"
            return None if code is ErrorCode.NONE else KafkaError(code, why)
        code = self.transactions.verify(self.producer, [where])[where]
        return None if code is ErrorCode.NONE else KafkaError(refusal_code(code, self.version))

    def not_led(self) -> dict[TopicPartition, ErrorCode]:
        """Return why some partitions take nothing from anybody: this node does not lead them.

        They are not asked for. If it led them when the others' answers are there, it would append
        what nobody has verified.
        """
        found: dict[TopicPartition, ErrorCode] = {}
        for where in self.partitions:
            try:
                self.replica_manager.leader_of(where)
            except KafkaError as error:
                found[where] = error.code
        return found

    def is_open(self, where: TopicPartition) -> bool:
        """Whether no check is needed, because the transaction is open in the partition."""
        partition = self.replica_manager.get(where)
        assert partition is not None, "it is led"
        _, producer_id, epoch = self.producer
        return partition.producers.has_open_transaction(producer_id, epoch)

    def code_of_void(self, where: TopicPartition) -> ErrorCode:
        """Return why another node's word on a partition that is here does not hold any more.

        NONE: it does. A follower takes markers over, too, and its producers are read anew when its
        log is cut: where leadership moved the producer asks the next leader, and all is well.
        """
        verified, partition = self.verified, self.replica_manager.get(where)
        if verified is None or partition is None or verified.holds(where):
            return ErrorCode.NONE
        if not partition.is_leader or not verified.is_of_now(where):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code_of_end(self.version)

    def is_new(self, where: TopicPartition) -> bool:
        """Whether the partition remembers nothing of the producer."""
        partition = self.replica_manager.get(where)
        return partition is None or partition.producers.get(self.producer.producer_id) is None


def code_of_end(version: int) -> ErrorCode:
    """Return what a producer hears when the end of a transaction came while it was verified.

    A producer of v12 begins the next one before the last one's end is in all partitions. It tries
    again, and is asked for again: the end raised its epoch, so that a late batch is refused then.
    """
    if version >= ADDS_SINCE:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def refusal_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code that a producer of this Produce version gets for a coordinator's code."""
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        return code if version >= ABORTABLE_SINCE else ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDS_SINCE:
        return code
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in _NOT_READY else code


_NOT_READY = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
