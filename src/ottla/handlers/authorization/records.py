"""Guards of what reads, writes and deletes records. Fetch asks in its handler."""

from __future__ import annotations  # else each call would build those of inner functions

from typing import Any, cast

from ottla.cluster.topics import topic_name_error
from ottla.errors import CloseConnection, ErrorCode
from ottla.handlers.apis.produce.many import produce_many
from ottla.handlers.apis.produce.producer import is_transactional
from ottla.handlers.authorization.guarded import (
    Guard,
    Guarded,
    GuardedDirect,
    Node,
    Serve,
    then,
)
from ottla.handlers.call import Call, Handler, Response
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
    TopicResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.messages.produce import (
    ACKS_NONE,
    TOPIC_IDS_SINCE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.schema import Message
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import STRIDE, Steps, each, each_in_steps, sifted

_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NOT_IN_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


_Produced = ProduceResponse | Pending[ProduceResponse | None] | None


class GuardedProduce(GuardedDirect):
    """Produce: WRITE on each topic, and on the transactional id of transactional batches.

    A short request must be served at once, because its records are valid only during the call. A
    long one is asked about as a whole, then part by part.
    """

    def __init__(self, handler: Handler[Any], image: MetadataImage) -> None:
        Guarded.__init__(self, handler, self._answer)
        self._image = image

    def handle_long(self, request: Message, call: Call) -> Steps[ProduceResponse | None]:
        """Do as ``handle`` for very many partitions, in parts."""
        assert isinstance(request, ProduceRequest), "the router knows its APIs"
        access = call.client.access
        assert access is not None, "every client is known when there is an authorizer"
        is_refused = not (yield from _may_produce_in_steps(request, access))
        handle = self._handler.handle

        def serve(part: ProduceRequest) -> _Produced:
            if is_refused:
                return _all_refused(part, _NOT_IN_TRANSACTION)
            return self._sort_out(part, call, access, lambda asked: handle(asked, call))

        return (yield from produce_many(request, serve))

    def _answer(
        self, request: ProduceRequest, call: Call, access: Access, serve: Serve
    ) -> _Produced:
        if any(_is_transactional(topic) for topic in request.topic_data) and not _may_write_to(
            request.transactional_id, access
        ):
            return _all_refused(request, _NOT_IN_TRANSACTION)
        return self._sort_out(request, call, access, serve)

    def _sort_out(
        self, request: ProduceRequest, call: Call, access: Access, serve: Serve
    ) -> _Produced:
        topics = request.topic_data
        by_id = call.api_version >= TOPIC_IDS_SINCE
        may = [self._may_write(access, topic, by_id=by_id) for topic in topics]
        if all(may):
            return cast("_Produced", serve(request))
        if not any(may):
            return _all_refused(request, _TOPIC_REFUSED)
        rest = ProduceRequest(
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=[topic for topic, allowed in zip(topics, may, strict=True) if allowed],
        )
        refused = [
            None if allowed else _refused_topic(topic, _TOPIC_REFUSED)
            for topic, allowed in zip(topics, may, strict=True)
        ]
        without_answer = request.acks == ACKS_NONE

        def joined(response: ProduceResponse | None) -> ProduceResponse | None:
            if without_answer:
                raise CloseConnection("a produce with acks=0 failed: TOPIC_AUTHORIZATION_FAILED")
            assert response is not None, "only acks=0 goes without an answer"
            served = iter(response.responses)
            response.responses = [next(served) if one is None else one for one in refused]
            return response

        found = cast("_Produced", serve(rest))
        return found.then(joined) if isinstance(found, Pending) else joined(found)

    def _may_write(self, access: Access, topic: TopicProduceData, *, by_id: bool) -> bool:
        name = topic.name
        if by_id:
            known = self._image.topic_by_id(topic.topic_id)
            if known is None:
                return True  # The handler does not know it either.
            name = known.name
        return access.may_topic(Operation.WRITE, name)


def _may_write_to(transactional_id: str | None, access: Access) -> bool:
    return transactional_id is not None and access.may_transaction(
        Operation.WRITE, transactional_id
    )


def _may_produce_in_steps(request: ProduceRequest, access: Access) -> Steps[bool]:
    for topic in request.topic_data:
        for begin in range(0, len(topic.partition_data), STRIDE):
            yield None
            parts = topic.partition_data[begin : begin + STRIDE]
            if any(is_transactional(memoryview(part.records or b"")) for part in parts):
                return _may_write_to(request.transactional_id, access)
    return True


def _is_transactional(topic: TopicProduceData) -> bool:
    return any(is_transactional(memoryview(part.records or b"")) for part in topic.partition_data)


def _all_refused(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    if request.acks == ACKS_NONE:
        raise CloseConnection(f"a produce with acks=0 failed: {code.name}")
    return ProduceResponse(responses=[_refused_topic(topic, code) for topic in request.topic_data])


def _refused_topic(topic: TopicProduceData, code: ErrorCode) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(index=part.index, error_code=code, base_offset=-1)
            for part in topic.partition_data
        ],
    )


def list_offsets(
    request: ListOffsetsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DESCRIBE on each topic."""
    del call
    request.topics, refused = yield from sifted(
        request.topics, lambda topic: access.may_topic(Operation.DESCRIBE, topic.name)
    )
    answers = yield from each_in_steps(refused, _unlisted)

    def add(response: ListOffsetsResponse) -> None:
        response.topics += answers

    return (yield from then(serve(request), add))


def _unlisted(topic: ListOffsetsTopic) -> Steps[ListOffsetsTopicResponse]:
    parts = yield from each(
        topic.partitions,
        lambda part: ListOffsetsPartitionResponse(
            partition_index=part.partition_index, error_code=_TOPIC_REFUSED
        ),
    )
    return ListOffsetsTopicResponse(name=topic.name, partitions=parts)


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for CLUSTER_ACTION on the cluster, else for DESCRIBE on each topic."""
    del call
    answers: list[OffsetForLeaderTopicResult] = []
    if not access.may_cluster(Operation.CLUSTER_ACTION, quiet=True):
        request.topics, refused = yield from sifted(
            request.topics, lambda topic: access.may_topic(Operation.DESCRIBE, topic.topic)
        )
        answers = yield from each_in_steps(refused, _no_epochs)

    def add(response: OffsetForLeaderEpochResponse) -> None:
        response.topics += answers

    return (yield from then(serve(request), add))


def _no_epochs(topic: OffsetForLeaderTopic) -> Steps[OffsetForLeaderTopicResult]:
    parts = yield from each(
        topic.partitions,
        lambda part: EpochEndOffset(partition=part.partition, error_code=_TOPIC_REFUSED),
    )
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts)


def delete_records(
    request: DeleteRecordsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DELETE on each topic."""
    del call
    request.topics, refused = yield from sifted(
        request.topics, lambda topic: access.may_topic(Operation.DELETE, topic.name)
    )
    answers = yield from each_in_steps(refused, _undeleted)

    def add(response: DeleteRecordsResponse) -> None:
        response.topics += answers

    return (yield from then(serve(request), add))


def _undeleted(topic: DeleteRecordsTopic) -> Steps[DeleteRecordsTopicResult]:
    parts = yield from each(
        topic.partitions,
        lambda part: DeleteRecordsPartitionResult(
            partition_index=part.partition_index, low_watermark=-1, error_code=_TOPIC_REFUSED
        ),
    )
    return DeleteRecordsTopicResult(name=topic.name, partitions=parts)


def describe_producers(
    request: DescribeProducersRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for READ on each topic whose name is legal: the handler refuses the others first."""
    del call
    request.topics, refused = yield from sifted(
        request.topics,
        lambda topic: (
            topic_name_error(topic.name) is not None or access.may_topic(Operation.READ, topic.name)
        ),
    )
    answers = yield from each_in_steps(refused, _no_producers)

    def add(response: DescribeProducersResponse) -> None:
        response.topics += answers

    return (yield from then(serve(request), add))


def _no_producers(topic: TopicRequest) -> Steps[TopicResponse]:
    parts = yield from each(
        topic.partition_indexes,
        lambda index: PartitionResponse(
            partition_index=index,
            error_code=_TOPIC_REFUSED,
            error_message=_TOPIC_REFUSED.text,
            active_producers=[],
        ),
    )
    return TopicResponse(name=topic.name, partitions=parts)


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    del node
    return {
        ApiKey.LIST_OFFSETS: list_offsets,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
        ApiKey.DELETE_RECORDS: delete_records,
        ApiKey.DESCRIBE_PRODUCERS: describe_producers,
    }
