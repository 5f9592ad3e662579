"""What DescribeProducers tells of a partition's producers.

Asked of Apache Kafka 4.3.0, too (``--target kafka``).
"""

import uuid

import pytest

from tools.wire_client import batch

NOW = 1_700_000_000_000


@pytest.fixture
def topic(wire):
    name = f"producers-{uuid.uuid4().hex[:8]}"
    wire.create_topic(name, 2)
    return name


def describe(wire, *topics):
    answer = wire.call(
        "describe_producers",
        0,
        topics=[{"name": name, "partition_indexes": indexes} for name, indexes in topics],
    )
    return [
        (
            topic["name"],
            [
                (
                    part["partition_index"],
                    part["error_code"],
                    part["error_message"],
                    sorted(tuple(state.values()) for state in part["active_producers"]),
                )
                for part in topic["partitions"]
            ],
        )
        for topic in answer["topics"]
    ]


def produce(wire, topic, producer_id, epoch, sequence, count=1):
    records = batch(
        [b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    assert wire.produce(topic, records)["error_code"] == 0


def test_a_partition_tells_its_producers_last_sequence_and_time(wire, topic):
    assert describe(wire, (topic, [0])) == [(topic, [(0, 0, None, [])])]
    wire.produce(topic, batch([b"of nobody"]))
    produce(wire, topic, 7, 0, 0, 3)
    produce(wire, topic, 7, 0, 3)
    produce(wire, topic, 9, 4, 0)
    produce(wire, topic, 3, 0, 5)
    produce(wire, topic, 3, 1, 0, 2)
    found = [
        (3, 1, 1, NOW, -1, -1),
        (7, 0, 3, NOW, -1, -1),
        (9, 4, 0, NOW, -1, -1),
    ]
    assert describe(wire, (topic, [1, 0])) == [(topic, [(1, 0, None, []), (0, 0, None, found)])]


def test_a_partition_named_again_is_answered_once(wire, topic, target_kind):
    """Kafka answers it again: 4 KB of request can ask for 70 MB."""
    produce(wire, topic, 7, 0, 0)
    part = (0, 0, None, [(7, 0, 0, NOW, -1, -1)])
    answer = describe(wire, (topic, [0, 0]), (topic, [0]), (topic, []))
    if target_kind == "kafka":
        assert answer == [(topic, [part, part]), (topic, [part]), (topic, [])]
    else:
        assert answer == [(topic, [part]), (topic, []), (topic, [])]
    assert describe(wire) == []


def test_what_is_not_there(wire, topic):
    ((_, unknown), (_, parts), (_, path), (_, empty)) = describe(
        wire, ("no-such-topic", [0]), (topic, [9, -1]), ("../x", [0]), ("", [0])
    )
    assert unknown[0][1] == 3
    assert unknown[0][2]
    assert parts == [(9, 3, None, []), (-1, 3, None, [])]
    assert path[0][1] == empty[0][1] == 17
    assert empty[0][2] == "Topic name is invalid: the empty string is not allowed"
    assert path[0][2].startswith("Topic name is invalid: ")
