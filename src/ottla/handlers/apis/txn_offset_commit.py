"""TxnOffsetCommit, key 28: stores a group's offsets as part of a transaction.

They take effect when the transaction is committed; until then OffsetFetch with ``require_stable``
is told to wait. From v5 on this request also adds the group to the transaction (KIP-890).
"""

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordinator.records import ProducerIdAndEpoch
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.peers import UNREACHABLE, Producer
from ottla.coordinator.transaction.verifying import Verified
from ottla.coordinator.transaction.version import SERVER_VERSION
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.handlers.commit_topics import sort_topics
from ottla.ids import NodeId, TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending, failed
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import Steps, each

ABORTABLE_SINCE = 4
ADDS_SINCE = 5
NO_EXPIRY = -1


class TxnOffsetCommit:
    """Passes the offsets to the group coordinator, if the group is part of the transaction."""

    def __init__(
        self,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        image: MetadataImage,
        replica_manager: ReplicaManager,
    ) -> None:
        self._groups = groups
        self._replica_manager = replica_manager
        self._transactions = transactions
        self._image = image

    def handle(
        self, request: TxnOffsetCommitRequest, call: Call
    ) -> Steps[TxnOffsetCommitResponse | Pending[Steps[TxnOffsetCommitResponse]]]:
        """Return one code per partition, in the request's order."""
        found = yield from sort_topics(request.topics, lambda asked: self._image.topic(asked.name))
        if not found.existing:
            return (yield from _response(request, found.codes([])))
        committed = self._commit(request, found.existing, call.api_version)
        return committed.then(
            lambda codes: _response(request, found.codes(codes)),
            lambda error: _response(request, found.codes_refused(error)),
        )

    def _commit(
        self, request: TxnOffsetCommitRequest, topics: list[TopicCommit], version: int
    ) -> Pending[list[ErrorCode]]:
        producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
        partition = self._groups.runtime.partition_for(request.group_id)
        where = TopicPartition(GROUP_METADATA_TOPIC, partition)

        node = self._transactions.elsewhere(request.transactional_id)
        is_ours = request.group_id and self._groups.runtime.shard_of(partition) is not None
        verified: Verified | None = None
        if node is not None and is_ours:
            verified = Verified(self._replica_manager, producer.producer_id, [where])

        def check() -> None:
            if verified is None:
                code = self._transactions.verify(producer, [where])[where]
            else:
                is_so = verified.holds(where)
                code = ErrorCode.NONE if is_so else ErrorCode.CONCURRENT_TRANSACTIONS
            if code is not ErrorCode.NONE:
                raise KafkaError(_told(code, version), f"{where} is not in the transaction")

        asked = CommitRequest(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            NO_EXPIRY,
            topics,
            tells_unknown_group=False,
            producer=ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch),
            check=check,
        )
        if not is_ours or (node is None and version < ADDS_SINCE):
            return self._groups.commit_offsets(asked)
        committed: Pending[list[ErrorCode]] = Pending()

        def over(done: Pending[list[ErrorCode]]) -> None:
            if verified is not None:
                verified.end()
            committed.take_over(done)

        def answered(done: Pending[ErrorCode]) -> None:
            # A question that failed confirms nothing: the offsets would be pending for good.
            code = UNREACHABLE if done.value is None else done.value
            if code is ErrorCode.NONE:
                self._groups.commit_offsets(asked).on_done(over)
                return
            why = f"{where} is not in the transaction, and cannot be added to it"
            over(failed(KafkaError(_told(code, version), why)))

        self._ask(producer, where, node, version).on_done(answered)
        return committed

    def _ask(
        self, producer: Producer, where: TopicPartition, node: NodeId | None, version: int
    ) -> Pending[ErrorCode]:
        """Add the group's partition to the transaction, or have another node verify that it is."""
        if node is None:
            adding = self._transactions.add_partitions(
                producer, [where], client_version=SERVER_VERSION
            )
            return adding.then(lambda answer: answer.code)
        asking = self._transactions.ask_elsewhere(
            node, producer, [where], verify_only=version < ADDS_SINCE
        )
        return asking.then(lambda codes: codes[where])


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code that a client of this version gets for a transaction coordinator's code."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _response(
    request: TxnOffsetCommitRequest, codes: list[ErrorCode]
) -> Steps[TxnOffsetCommitResponse]:
    answers = iter(codes)
    topics = []
    for topic in request.topics:
        found = yield from each(
            topic.partitions,
            lambda part: TxnOffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=next(answers)
            ),
        )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=found))
    return TxnOffsetCommitResponse(topics=topics)
