"""DescribeLogDirs: what a live Kafka 4.3 answers."""

import pytest

from tools.wire_client import batch


@pytest.fixture
def topic(wire, topic_name):
    """Of two partitions; the first has one batch."""
    wire.create_topic(topic_name, 2)
    assert wire.produce(topic_name, batch([b"x" * 100]))["error_code"] == 0
    return topic_name


@pytest.fixture
def described(wire):
    """``described(topics, version)``: the one directory's result."""

    def described(topics, version=4):
        answer = wire.call("describe_log_dirs", version, topics=topics)
        assert answer.get("error_code", 0) == 0
        (result,) = answer["results"]
        assert result["error_code"] == 0
        for each in result["topics"]:  # Kafka's are in no order.
            each["partitions"].sort(key=lambda told: told["partition_index"])
        return result

    return described


def partition(index, size):
    return {
        "partition_index": index,
        "partition_size": size,
        "offset_lag": 0,
        "is_future_key": False,
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_sizes_of_the_partitions_asked_for(described, topic, target, version):
    result = described([{"topic": topic, "partitions": [0, 1]}], version)
    assert result["log_dir"] == str(target.data)
    size = len(batch([b"x" * 100]))
    assert result["topics"] == [
        {"name": topic, "partitions": [partition(0, size), partition(1, 0)]}
    ]
    assert ("total_bytes" in result) == (version >= 4)
    if version >= 4:
        assert 0 < result["usable_bytes"] < result["total_bytes"]
    assert result.get("is_cordoned", False) is False


def test_none_asks_for_all_and_nothing_for_nothing(described, topic):
    assert topic in [each["name"] for each in described(None)["topics"]]
    assert described([])["topics"] == []
    assert described([{"topic": topic, "partitions": []}])["topics"] == []


def test_what_is_not_there_is_left_out_and_what_is_asked_twice_told_once(described, topic):
    found = described(
        [
            {"topic": topic, "partitions": [1, 7, 1]},
            {"topic": "nobody", "partitions": [0]},
            {"topic": topic, "partitions": [1, -1]},
        ]
    )
    assert found["topics"] == [{"name": topic, "partitions": [partition(1, 0)]}]


def test_everything_a_partition_holds_counts(described, topic, wire):
    for _ in range(9):
        assert wire.produce(topic, batch([b"x" * 100]))["error_code"] == 0
    (found,) = described([{"topic": topic, "partitions": [0]}])["topics"]
    assert found["partitions"] == [partition(0, 10 * len(batch([b"x" * 100])))]
