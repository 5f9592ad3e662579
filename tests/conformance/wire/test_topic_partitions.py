"""DescribeTopicPartitions: pages, cursors and errors, as by a live Kafka 4.3."""

import pytest


@pytest.fixture
def topic(wire, topic_name):
    """A topic of two partitions."""
    wire.create_topic(topic_name, 2)
    return topic_name


def described(wire, names, limit=2000, cursor=None):
    got = wire.call(
        "describe_topic_partitions",
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    rows = [
        (t["error_code"], t["name"], [p["partition_index"] for p in t["partitions"]])
        for t in got["topics"]
    ]
    return rows, got["next_cursor"]


def test_describe_topic_partitions_pages_through_a_cursor(wire, topic_name):
    first, second = topic_name + "-a", topic_name + "-b"
    wire.create_topic(second, 1)
    wire.create_topic(first, 2)
    both = [second, first]
    assert described(wire, both) == ([(0, first, [0, 1]), (0, second, [0])], None)
    rows, cursor = described(wire, both, 1)
    assert (rows, cursor) == ([(0, first, [0])], {"topic_name": first, "partition_index": 1})
    rows, cursor = described(wire, both, 1, cursor)
    assert rows == [(0, first, [1])]
    assert cursor == {"topic_name": second, "partition_index": 0}
    assert described(wire, both, 1, cursor) == ([(0, second, [0])], None)
    assert described(wire, both, 0)[0] == [(0, first, [0])]


def test_describe_topic_partitions_errors(wire, topic):
    rows, _ = described(wire, ["nobody-made-this", topic])
    assert sorted(rows) == [(0, topic, [0, 1]), (3, "nobody-made-this", [])]
    assert described(wire, ["../x"])[0] == [(17, "../x", [])]


@pytest.mark.parametrize("index", [-1, -2, -(2**31)])
def test_describe_topic_partitions_cursors_that_are_refused(wire, topic, index):
    name = topic
    for begin in (name, "", "zz", "../x"):
        cursor = {"topic_name": begin, "partition_index": index}
        assert described(wire, [], cursor=cursor) == ([], None), "nobody named what to refuse"
        named = ["zz", name, "../x", name, ""]
        assert described(wire, named, cursor=cursor) == ([(42, each, []) for each in named], None)
    cursor = {"topic_name": name[:-1], "partition_index": 0}
    assert described(wire, ["zz", name], cursor=cursor)[0] == [(42, "zz", []), (42, name, [])]
    rows, _ = described(wire, [], cursor=cursor)
    assert (0, name, [0, 1]) in rows, "of all topics a cursor may name one that is gone"
