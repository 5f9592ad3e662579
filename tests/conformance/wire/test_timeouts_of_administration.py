"""``timeout_ms`` of the requests that make and remove topics: no time means nothing is begun."""

import pytest

REQUEST_TIMED_OUT = 7


def exists(wire, name):
    asked = wire.call(
        "metadata",
        12,
        topics=[{"topic_id": bytes(16), "name": name}],
        allow_auto_topic_creation=False,
    )
    return asked["topics"][0]["error_code"] == 0


def code_of_making(wire, name, timeout, **fields):
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
    answer = wire.call("create_topics", 7, topics=topics, timeout=timeout, **fields)
    return answer["topics"][0]["error_code"]


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_topic_is_not_made_without_time(wire, topic_name, timeout):
    assert code_of_making(wire, topic_name, timeout) == REQUEST_TIMED_OUT
    assert code_of_making(wire, topic_name, timeout, validate_only=True) == REQUEST_TIMED_OUT
    assert not exists(wire, topic_name)
    assert code_of_making(wire, topic_name, 20_000) == 0


@pytest.mark.parametrize("timeout", [0, -1])
def test_nothing_is_changed_or_removed_without_time(wire, topic_name, timeout):
    wire.create_topic(topic_name)
    more = [{"name": topic_name, "count": 2, "assignments": None}]
    answer = wire.call("create_partitions", 3, topics=more, timeout=timeout, validate_only=False)
    assert answer["results"][0]["error_code"] == REQUEST_TIMED_OUT
    answer = wire.call("delete_topics", 5, topic_names=[topic_name], timeout=timeout)
    assert answer["responses"][0]["error_code"] == REQUEST_TIMED_OUT
    assert exists(wire, topic_name)
    assert wire.list_offsets(topic_name, [0]) == [(0, 0)]
