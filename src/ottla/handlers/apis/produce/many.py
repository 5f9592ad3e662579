"""Serves a Produce request for very many partitions in parts, so that others get their turns.

Owns how the request is cut into parts and how their answers are joined. ``Produce`` serves each
part as a request of its own. The next part begins before the appends of the last one are durable,
but not in a transaction, whose partitions are added part by part. As in Kafka, a request with
batches of several transactional producers is refused as a whole.
"""

from collections.abc import Callable, Iterator

from ottla.errors import CloseConnection, ErrorCode
from ottla.handlers.apis.produce.producer import is_transactional, producer_of
from ottla.pending import Pending
from ottla.protocol.messages.produce import (
    ACKS_NONE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.sliced import STRIDE, Steps, each

PARTITIONS_AT_A_TIME = 128
"""Partitions of one part: their appends take some 2 ms, and their flushes begin together."""

Serve = Callable[[ProduceRequest], ProduceResponse | Pending[ProduceResponse | None] | None]


def produce_many(request: ProduceRequest, serve: Serve) -> Steps[ProduceResponse | None]:
    """Serve the request in parts and return the joined answer; None for acks=0.

    The request's bytes must stay valid until the end. Raises CloseConnection when all parts are
    served and ``serve`` has raised it for one of them.
    """
    in_transaction = request.transactional_id is not None
    if in_transaction and (yield from _has_several_producers(request)):
        return (yield from _refused(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    answers: list[tuple[bool, ProduceResponse | Pending[ProduceResponse | None] | None]] = []
    failure: CloseConnection | None = None
    for goes_on, topics in _parts(request.topic_data):
        part = ProduceRequest(
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=topics,
        )
        try:
            answer = serve(part)
        except CloseConnection as error:  # acks=0: the parts after it are appended all the same.
            failure = error
            continue
        if in_transaction and isinstance(answer, Pending):
            answer = yield answer
        answers.append((goes_on, answer))
        yield None
    if failure is not None:
        raise failure
    if request.acks == ACKS_NONE:
        return None
    together = ProduceResponse(responses=[])
    for goes_on, answer in answers:
        found = (yield answer) if isinstance(answer, Pending) else answer
        assert found is not None, "only acks=0 goes without an answer"
        _put_behind(together, found, goes_on=goes_on)
        yield None
    return together


def _parts(topics: list[TopicProduceData]) -> Iterator[tuple[bool, list[TopicProduceData]]]:
    """Yield the parts in order, each with ``PARTITIONS_AT_A_TIME`` partitions, the last with fewer.

    The flag with each part is True when its first topic continues the last one of the part before.
    """
    part: list[TopicProduceData] = []
    room, goes_on = PARTITIONS_AT_A_TIME, False
    for topic in topics:
        partitions, begin = topic.partition_data, 0
        while not begin or begin < len(partitions):
            stretch = partitions[begin : begin + room]
            part.append(
                TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=stretch)
            )
            begin += max(len(stretch), 1)
            room -= max(len(stretch), 1)
            if not room:
                yield goes_on, part
                part, room, goes_on = [], PARTITIONS_AT_A_TIME, begin < len(partitions)
    if part:
        yield goes_on, part


def _put_behind(together: ProduceResponse, part: ProduceResponse, *, goes_on: bool) -> None:
    topics = part.responses
    if goes_on:
        together.responses[-1].partition_responses += topics[0].partition_responses
        topics = topics[1:]
    together.responses += topics
    known = {node.node_id for node in together.node_endpoints}
    together.node_endpoints += [node for node in part.node_endpoints if node.node_id not in known]


def _has_several_producers(request: ProduceRequest) -> Steps[bool]:
    producers: set[tuple[int, int]] = set()
    for topic in request.topic_data:
        for count, part in enumerate(topic.partition_data, 1):
            records = memoryview(part.records or b"")
            if is_transactional(records):
                producers.add(producer_of(records))
            if not count % STRIDE:
                yield None
        yield None
    return len(producers) > 1


def _refused(request: ProduceRequest, code: ErrorCode) -> Steps[ProduceResponse | None]:
    if request.acks == ACKS_NONE:
        raise CloseConnection(f"a produce with acks=0 failed: {code.name}")
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        parts = yield from each(
            topic.partition_data,
            lambda part: PartitionProduceResponse(
                index=part.index, error_code=code, base_offset=-1
            ),
        )
        topics.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=parts
            )
        )
    return ProduceResponse(responses=topics)
