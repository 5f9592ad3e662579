"""Guards of transactions and producer ids."""

from __future__ import annotations  # else each call would build those of inner functions

from ottla.errors import ErrorCode
from ottla.handlers.apis.add_partitions_to_txn import MANY_SINCE
from ottla.handlers.apis.metadata import is_internal
from ottla.handlers.authorization.guarded import Guard, Node, Serve, then_in_steps
from ottla.handlers.call import Call, Response
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import describe_transactions as described
from ottla.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.security.access import Access
from ottla.security.acl import Operation, ResourceType
from ottla.sliced import Steps, each, each_in_steps, sifted

_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def init_producer_id(
    request: InitProducerIdRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for WRITE on the transactional id.

    Without one: for IDEMPOTENT_WRITE on the cluster, else for WRITE on any topic that may exist.
    """
    del call
    code = ErrorCode.NONE
    if request.transactional_id is not None:
        if not access.may_transaction(Operation.WRITE, request.transactional_id):
            code = _REFUSED
    elif not access.may_cluster(Operation.IDEMPOTENT_WRITE, quiet=True) and not access.may_some(
        Operation.WRITE, ResourceType.TOPIC
    ):
        code = _CLUSTER
    if code is ErrorCode.NONE:
        return serve(request)
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for WRITE on the transactional id, then for READ on the group."""
    del call
    if not access.may_transaction(Operation.WRITE, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=_REFUSED)
    if not access.may_group(Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return serve(request)


def end_txn(request: EndTxnRequest, call: Call, access: Access, serve: Serve) -> Response:
    """Ask for WRITE on the transactional id."""
    del call
    if access.may_transaction(Operation.WRITE, request.transactional_id):
        return serve(request)
    return EndTxnResponse(error_code=_REFUSED)


def add_partitions_to_txn(image: MetadataImage) -> Guard:
    """Return the guard of AddPartitionsToTxn: WRITE on the transactional id and on each topic.

    Brokers, which send the later versions, need CLUSTER_ACTION and nothing else.
    """

    def guard(
        request: AddPartitionsToTxnRequest, call: Call, access: Access, serve: Serve
    ) -> Steps[Response]:
        if call.api_version >= MANY_SINCE:
            if not access.may_cluster(Operation.CLUSTER_ACTION):
                return AddPartitionsToTxnResponse(error_code=_CLUSTER)
            return serve(request)
        topics = request.v3_and_below_topics
        codes: dict[TopicPartition, ErrorCode] | None = None
        if not access.may_transaction(Operation.WRITE, request.v3_and_below_transactional_id):
            answers = yield from each_in_steps(topics, lambda one: _added(one, _REFUSED))
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=answers)
        _, refused = yield from sifted(
            topics,
            lambda one: not is_internal(one.name) and access.may_topic(Operation.WRITE, one.name),
        )
        if not refused:
            return serve(request)
        hidden = {one.name for one in refused}
        codes = {}
        for topic in topics:
            yield from each(
                topic.partitions,
                lambda index, name=topic.name: codes.setdefault(  # type: ignore[misc]
                    TopicPartition(name, index), _code(name, index, hidden, image)
                ),
            )
        found = yield from each_in_steps(topics, lambda one: _added_each(one, codes))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=found)

    return guard


def _code(name: str, index: int, hidden: set[str], image: MetadataImage) -> ErrorCode:
    if name in hidden:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if image.partition(TopicPartition(name, index)) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.OPERATION_NOT_ATTEMPTED


def _added(topic: AddPartitionsToTxnTopic, code: ErrorCode) -> Steps[AddPartitionsToTxnTopicResult]:
    parts = yield from each(
        topic.partitions,
        lambda index: AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=code
        ),
    )
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=parts)


def _added_each(
    topic: AddPartitionsToTxnTopic, codes: dict[TopicPartition, ErrorCode]
) -> Steps[AddPartitionsToTxnTopicResult]:
    parts = yield from each(
        topic.partitions,
        lambda index: AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
        ),
    )
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=parts)


def write_txn_markers(
    request: WriteTxnMarkersRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for ALTER on the cluster, else for CLUSTER_ACTION."""
    del call
    if access.may_write_markers():
        return serve(request)
    markers = yield from each_in_steps(request.markers, _unwritten)
    return WriteTxnMarkersResponse(markers=markers)


def _unwritten(marker: WritableTxnMarker) -> Steps[WritableTxnMarkerResult]:
    topics = yield from each_in_steps(marker.topics, _unwritten_topic)
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


def _unwritten_topic(topic: WritableTxnMarkerTopic) -> Steps[WritableTxnMarkerTopicResult]:
    parts = yield from each(
        topic.partition_indexes,
        lambda index: WritableTxnMarkerPartitionResult(partition_index=index, error_code=_CLUSTER),
    )
    return WritableTxnMarkerTopicResult(name=topic.name, partitions=parts)


def describe_transactions(
    request: described.DescribeTransactionsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DESCRIBE on each transactional id; leave out topics that may not be described."""
    del call
    request.transactional_ids, refused = yield from sifted(
        request.transactional_ids, lambda name: access.may_transaction(Operation.DESCRIBE, name)
    )
    answers = yield from each(dict.fromkeys(refused), _undescribed)

    def finish(response: described.DescribeTransactionsResponse) -> Steps[None]:
        for state in response.transaction_states:
            state.topics, _ = yield from sifted(
                state.topics,
                lambda one: access.may_topic(Operation.DESCRIBE, one.topic, quiet=True),
            )
        response.transaction_states += answers

    return (yield from then_in_steps(serve(request), finish))


def _undescribed(name: str) -> described.TransactionState:
    return described.TransactionState(
        error_code=_REFUSED,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    return {
        ApiKey.INIT_PRODUCER_ID: init_producer_id,
        ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn(node.image),
        ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
        ApiKey.END_TXN: end_txn,
        ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
        ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    }
