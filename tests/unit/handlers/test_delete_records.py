"""DeleteRecords as it looks on the wire: grouping, codes, and what -1 stands for."""

import asyncio

import pytest

from ottla.errors import ErrorCode
from ottla.handlers.apis.delete_records import DeleteRecords
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.ids import NodeId
from ottla.metadata.image import MetadataDelta
from ottla.pending import Pending
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.sliced import Slices
from ottla.turns import Turns


@pytest.fixture
def ask(make_node, words):
    """``await ask(("t", 0, 3), ...)``: the answer of a node with five records in t-0."""
    node = make_node()
    for _ in range(5):
        node.append((0, words.batch()))
        node.executor.run_all()
    handler = DeleteRecords(node.replica_manager, node.housekeeper.deletion)

    async def call(*wanted, version=2):
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name, partitions=[DeleteRecordsPartition(partition_index=at, offset=to)]
                )
                for name, at, to in wanted
            ],
            timeout_ms=1000,
        )
        request = DeleteRecordsRequest.decode(request.encode(version), version)
        client = Client("10.0.0.9", 5000, "10.0.0.1", 9092)
        steps = handler.handle(request, Call(version, None, client))
        answer = Slices(Turns(node.clock)).run(steps, str)
        for _ in range(20):
            await asyncio.sleep(0)
            node.executor.run_all()
        if isinstance(answer, Pending):
            answer = answer.value
        answer.encode(version)
        return [
            (topic.name, part.partition_index, part.low_watermark, part.error_code)
            for topic in answer.topics
            for part in topic.partitions
        ]

    return call


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_answers_the_low_watermark(ask, version):
    assert await ask(("t", 0, 3), version=version) == [("t", 0, 3, 0)]


async def test_minus_one_is_the_high_watermark(ask):
    assert await ask(("t", 0, -1)) == [("t", 0, 5, 0)]


async def test_an_error_has_no_low_watermark(ask):
    assert await ask(("t", 0, 6), ("t", 1, 0), ("nope", 0, 0)) == [
        ("t", 0, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 1, 0, 0),
        ("nope", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_if_a_partition_is_named_twice_the_last_offset_counts(ask):
    assert await ask(("t", 0, 4), ("t", 0, 2)) == [("t", 0, 2, 0)]


async def test_an_empty_request_has_an_empty_answer(ask):
    assert await ask() == []


async def test_a_leader_that_is_replaced_while_it_deletes_does_not_say_that_it_is_done(
    make_node, words
):
    """The next leader may not have heard of it: the records would be there again."""
    node = make_node()
    for _ in range(5):
        node.append((0, words.batch()))
        node.executor.run_all()
    handler = DeleteRecords(node.replica_manager, node.housekeeper.deletion)
    wanted = DeleteRecordsPartition(partition_index=0, offset=3)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1000
    )
    client = Client("10.0.0.9", 5000, "10.0.0.1", 9092)
    answer = Slices(Turns(node.clock)).run(handler.handle(request, Call(2, None, client)), str)
    await asyncio.sleep(0)
    state = node.partition().state
    moved = node.led(0, leader=NodeId(2), epoch=1, isr=(1, 2), old=state)
    node.replica_manager.apply(None, MetadataDelta(revision=2, partitions=(moved,)))
    for _ in range(20):
        await asyncio.sleep(0)
        node.executor.run_all()
    ((told,),) = (topic.partitions for topic in answer.value.topics)
    assert (told.low_watermark, told.error_code) == (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
