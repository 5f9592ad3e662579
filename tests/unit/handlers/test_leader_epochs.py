"""Fencing, diverging histories and the ends of leader epochs, as a live Kafka answers."""

import pytest

from ottla.errors import ErrorCode
from ottla.pending import Pending
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


@pytest.fixture
def broker(serve, words):
    """Partition 0: offsets 0-3 of epoch 0, none of epoch 1, 4 and 5 of epoch 2, which is now."""
    broker = serve(flush_messages=words.ASYNC_FLUSH)
    for _ in range(4):
        broker.node.append((0, words.batch(b"x")))
    broker.node.change(broker.node.led(0, epoch=2))
    for _ in range(2):
        broker.node.append((0, words.batch(b"x")))
    return broker


def fetch(broker, offset, version=12, *, topic_id=None, wait_ms=0, **fields):
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6, **fields)
    ident = {"topic": "t"} if version < 13 else {"topic_id": topic_id}
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(**ident, partitions=[part])]
    )
    answer = broker.fetch(request, version)
    return answer, answer.responses[0].partitions[0]


def diverging(part):
    end = part.diverging_epoch
    return end and (end.epoch, end.end_offset)


@pytest.mark.parametrize(
    ("offset", "epoch", "end"), [(5, 0, (0, 4)), (6, 0, (0, 4)), (99, 0, (0, 4)), (6, 1, (0, 4))]
)
def test_where_a_clients_history_parts(broker, offset, epoch, end):
    _, part = fetch(broker, offset, last_fetched_epoch=epoch)
    assert (part.error_code, part.records, diverging(part)) == (0, b"", end)
    assert (part.high_watermark, part.log_start_offset) == (6, 0)


@pytest.mark.parametrize(("offset", "epoch"), [(4, 0), (2, 0), (0, 0), (5, 2), (4, -2)])
def test_the_same_history_is_served(broker, offset, epoch):
    _, part = fetch(broker, offset, last_fetched_epoch=epoch)
    assert (part.error_code, diverging(part), bool(part.records)) == (0, None, True)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 5), (-1, 0), (4, 3)])
def test_a_future_epoch_or_a_deleted_offset_is_out_of_range(broker, offset, epoch):
    _, part = fetch(broker, offset, last_fetched_epoch=epoch)
    assert (part.error_code, diverging(part)) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    assert part.high_watermark == -1


def test_a_diverging_client_does_not_wait(broker):
    _, part = fetch(broker, 6, last_fetched_epoch=0, wait_ms=500)
    assert diverging(part) == (0, 4)


def test_a_session_tells_of_the_divergence_every_time(broker):
    part = FetchPartition(
        partition=0, fetch_offset=6, partition_max_bytes=10**6, last_fetched_epoch=0
    )
    asked = {"max_wait_ms": 0, "min_bytes": 1}
    topics = [FetchTopic(topic="t", partitions=[part])]
    session_id = broker.fetch(FetchRequest(**asked, topics=topics, session_epoch=0), 12).session_id
    for epoch in (1, 2):
        request = FetchRequest(**asked, topics=[], session_id=session_id, session_epoch=epoch)
        (answer,) = broker.fetch(request, 12).responses
        assert diverging(answer.partitions[0]) == (0, 4)


def test_a_fenced_client_is_told_who_leads(broker, topic_id):
    answer, part = fetch(broker, 0, 16, topic_id=topic_id, current_leader_epoch=1)
    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 2)
    (node,) = answer.node_endpoints
    assert (node.node_id, node.host, node.port) == (1, "here", 9092)


def test_a_client_at_the_wrong_node_is_told_who_leads(broker, topic_id):
    broker.node.change(broker.node.led(0, epoch=3, leader=2))
    answer, part = fetch(broker, 0, 16, topic_id=topic_id)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 3)
    assert [(node.node_id, node.host) for node in answer.node_endpoints] == [(2, "second")]


def test_without_a_leader_nobody_is_named(broker, topic_id):
    broker.node.change(broker.node.led(0, epoch=3, leader=-1))
    answer, part = fetch(broker, 0, 16, topic_id=topic_id)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader, answer.node_endpoints) == (None, [])


def test_a_client_ahead_of_us_is_told_nothing_but_the_code(broker, topic_id):
    answer, part = fetch(broker, 0, 16, topic_id=topic_id, current_leader_epoch=3)
    assert part.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (part.current_leader, answer.node_endpoints) == (None, [])


# OffsetForLeaderEpoch.


def ends(broker, *asked, topic="t", version=4):
    """Answer ``asked``, each (partition, current leader epoch, leader epoch), as triples."""
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=index, current_leader_epoch=current, leader_epoch=epoch
                    )
                    for index, current, epoch in asked
                ],
            )
        ]
    )
    (answer,) = broker.offset_for_leader_epoch(request, version).topics
    assert [part.partition for part in answer.partitions] == [index for index, _, _ in asked]
    return [(part.error_code, part.leader_epoch, part.end_offset) for part in answer.partitions]


def test_the_ends_of_epochs(broker):
    found = ends(broker, (0, -1, 0), (0, 2, 1), (0, -1, 2), (0, -1, 3), (0, -1, -1))
    assert found == [(0, 0, 4), (0, 0, 4), (0, 2, 6), (0, -1, -1), (0, -1, -1)]


def test_epochs_are_fenced(broker):
    assert ends(broker, (0, 1, 0), (0, 3, 0)) == [(74, -1, -1), (75, -1, -1)]


@pytest.mark.parametrize(("topic", "index"), [("t", 9), ("t", -1), ("nope", 0), ("../x", 0)])
def test_unknown_partitions(broker, topic, index):
    assert ends(broker, (index, -1, 0), topic=topic) == [(3, -1, -1)]


def test_a_leader_that_wrote_nothing_yet_knows_its_epoch(broker):
    assert ends(broker, (1, -1, 0)) == [(0, 0, 0)]
    broker.node.change(broker.node.led(1, epoch=3))
    assert ends(broker, (1, -1, 3), (1, -1, 2)) == [(0, 3, 0), (0, 2, 0)]
    broker.node.change(broker.node.led(0, epoch=4))
    assert ends(broker, (0, -1, 4), (0, -1, 3)) == [(0, 4, 6), (0, 2, 6)]
    _, part = fetch(broker, 6, last_fetched_epoch=2)
    assert (part.error_code, diverging(part)) == (0, None)


def test_a_node_that_does_not_lead_does_not_answer(broker):
    broker.node.change(broker.node.led(0, epoch=3, leader=2))
    assert ends(broker, (0, -1, 0)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)]


def test_an_epoch_is_unknown_only_while_it_is_sure_that_nobody_else_leads(broker):
    """The next leader may have written it: a consumer would begin at another offset."""
    partition = broker.node.partition(0)
    partition.may_take, partition.confirm = lambda _: True, lambda _: Pending()
    assert ends(broker, (0, -1, 0), (0, -1, 3)) == [(0, 0, 4), (6, -1, -1)]
    _, part = fetch(broker, 0, last_fetched_epoch=5)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.may_take = lambda _: False
    assert ends(broker, (0, -1, 0)) == [(6, -1, -1)]
