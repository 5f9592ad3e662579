"""ListOffsets: the table of a live Kafka, version by version."""

import pytest

from ottla.errors import ErrorCode
from ottla.pending import Pending, outcome_of
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.records.builder import build_batch
from ottla.records.record import Record

UNSUPPORTED = (35, -1, -1, -1)
NOTHING = (0, -1, -1, -1)


def batch(*timestamps):
    return build_batch([Record(timestamp=timestamp, value=b"v") for timestamp in timestamps])


@pytest.fixture
def broker(serve, words):
    """The records of the live table: 1500 comes last; partition 1 is empty."""
    broker = serve(flush_messages=words.ASYNC_FLUSH)
    for stamps in ((1000, 1100), (2000, 2100), (3000, 3100), (4000, 4100), (1500,)):
        broker.node.append((0, batch(*stamps)))
    return broker


def ask(broker, version, *parts, topic="t", isolation_level=0):
    return outcomes(begin(broker, version, *parts, topic=topic, isolation_level=isolation_level))


def begin(broker, version, *parts, topic="t", isolation_level=0):
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
                    )
                    for index, timestamp, epoch in parts
                ],
            )
        ],
    )
    return broker.list_offsets(request, version)


def outcomes(response):
    (answer,) = response.topics
    return [
        (part.error_code, part.timestamp, part.offset, part.leader_epoch)
        for part in answer.partitions
    ]


@pytest.mark.parametrize("version", [1, 2, 4, 7, 8, 9, 10, 11])
@pytest.mark.parametrize(
    ("timestamp", "since", "full", "empty"),
    [
        (-1, 1, (0, -1, 9, 0), (0, -1, 0, 0)),
        (-2, 1, (0, -1, 0, 0), (0, -1, 0, 0)),
        (-3, 7, (0, 4100, 7, 0), NOTHING),
        (-4, 8, (0, -1, 0, 0), (0, -1, 0, 0)),
        (-5, 9, NOTHING, NOTHING),
        (-6, 11, NOTHING, NOTHING),
        (-7, 99, None, None),
    ],
)
def test_special_timestamps(broker, version, timestamp, since, full, empty):
    found = ask(broker, version, (0, timestamp, -1), (1, timestamp, -1))
    assert found == ([full, empty] if version >= since else [UNSUPPORTED, UNSUPPORTED])


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (0, (0, 1000, 0, 0)),
        (1, (0, 1000, 0, 0)),
        (1000, (0, 1000, 0, 0)),
        (1001, (0, 1100, 1, 0)),
        (1100, (0, 1100, 1, 0)),
        (1500, (0, 2000, 2, 0)),
        (2050, (0, 2100, 3, 0)),
        (4100, (0, 4100, 7, 0)),
        (4101, NOTHING),
    ],
)
def test_the_first_record_not_before_a_time(broker, timestamp, found):
    assert ask(broker, 7, (0, timestamp, -1)) == [found]


def test_a_time_in_an_empty_partition(broker):
    assert ask(broker, 7, (1, 5, -1)) == [NOTHING]


@pytest.mark.parametrize(("topic", "index"), [("nope", 0), ("../x", 0), ("t", 9)])
def test_unknown_topics_and_partitions(broker, topic, index):
    assert ask(broker, 7, (index, -1, -1), topic=topic) == [(3, -1, -1, -1)]


@pytest.mark.parametrize("version", [1, 7])
def test_a_partition_named_twice_is_refused_once(broker, version):
    found = ask(broker, version, (0, -1, -1), (1, -1, -1), (0, -2, -1))
    assert found == [(42, -1, -1, -1), (0, -1, 0, 0)]


def test_the_leader_epoch(broker):
    assert ask(broker, 7, (0, -1, 0)) == [(0, -1, 9, 0)]
    assert ask(broker, 7, (0, -1, 5)) == [(ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1)]


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_records_that_are_not_committed_are_not_found(serve, isolation_level):
    broker = serve()
    broker.node.append((0, batch(1000)))
    broker.node.executor.run_all()
    broker.node.append((0, batch(2000)))
    options = {"isolation_level": isolation_level}
    assert ask(broker, 7, (0, -1, -1), **options) == [(0, -1, 1, 0)]
    assert ask(broker, 7, (0, 1500, -1), **options) == [NOTHING]
    assert ask(broker, 7, (0, -3, -1), **options)[0][2] != 1
    broker.node.executor.run_all()
    assert ask(broker, 7, (0, -1, -1), **options) == [(0, -1, 2, 0)]
    assert ask(broker, 7, (0, 1500, -1), **options) == [(0, 2000, 1, 0)]


def test_who_may_have_been_replaced_tells_no_end(broker):
    """The next leader may have told a higher one, and an end that was told never falls."""
    partition = broker.node.partition()
    partition.may_take = lambda one: one is not partition
    assert ask(broker, 7, (0, -1, -1)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)]
    partition.may_take = lambda _: True
    assert ask(broker, 7, (0, -1, -1)) == [(0, -1, 9, 0)]


NOT_LEADER = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1, -1, -1)


@pytest.fixture
def doubted(broker):
    """Both partitions may be led by another node: ``(partition index, whether it is not)``."""
    asked = []
    for index in (0, 1):
        partition = broker.node.partition(index)
        partition.confirm = lambda one: asked.append((one, Pending())) or asked[-1][1]
    return asked


@pytest.mark.parametrize("timestamp", [-1, -2, -3, 0, 9000])
async def test_an_offset_is_told_once_it_is_sure_that_nobody_else_leads(broker, doubted, timestamp):
    """Once for three seconds, by what was heard: a reader saw the end go back."""
    told, refused = (begin(broker, 8, (0, timestamp, -1)) for _ in range(2))
    assert not told.is_done
    doubted[0][1].resolve(True)
    doubted[1][1].resolve(False)
    told, refused = outcomes(await outcome_of(told)), outcomes(await outcome_of(refused))
    broker.node.partition(0).confirm = None
    assert told == ask(broker, 8, (0, timestamp, -1))
    assert refused == [NOT_LEADER]


async def test_all_partitions_are_asked_about_before_one_is_waited_for(broker, doubted):
    pending = begin(broker, 8, (0, -1, -1), (1, -1, -1))
    assert len(doubted) == 2
    doubted[1][1].resolve(True)
    assert not pending.is_done
    doubted[0][1].resolve(True)
    assert outcomes(await outcome_of(pending)) == [(0, -1, 9, 0), (0, -1, 0, 0)]


def test_nobody_is_asked_for_a_client_that_has_gone(broker, doubted):
    ended = []
    pending = begin(broker, 8, (0, -1, -1), (1, -1, -1))
    for index, (_, asked) in enumerate(doubted):
        asked.on_cancel(lambda index=index: ended.append(index))
    pending.cancel()
    assert sorted(ended) == [0, 1]
