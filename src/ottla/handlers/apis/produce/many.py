"""Produce over very many partitions: some of them at a time, others have their turns in between.

Owns how such a request is cut up and how the answers are put together again; each part is a
request of its own to ``Produce``, which is served as if no other was. The appends of one part are
not waited for before the next one begins, unless they are a transaction's, to which partitions are
added part by part. As in Kafka, a request with batches of several transactional producers is
refused as a whole.
"""

from collections.abc import Callable, Iterator

from ottla.errors import CloseConnection, ErrorCode
from ottla.handlers.apis.produce.transactional import is_transactional, producer_of
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
"""Their flushes begin together; the appends take some 2 ms."""

Serve = Callable[[ProduceRequest], ProduceResponse | Pending[ProduceResponse | None] | None]


def produce_many(request: ProduceRequest, serve: Serve) -> Steps[ProduceResponse | None]:
    """Serve the parts of a request, whose bytes must stay there; return the one answer.

    Raises CloseConnection when all parts are served and ``serve`` raised it for one of them.
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
        except CloseConnection as error:  # Of acks=0: what is behind it is appended all the same.
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
    """Yield topics, and stretches of topics, with so many partitions together, in order.

    With each, whether it begins where the one before stopped within a topic.
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
