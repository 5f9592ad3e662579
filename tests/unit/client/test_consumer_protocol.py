import pytest

from ottla.client.wire.consumer_protocol import (
    assign_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.ids import TopicPartition


def places(*numbers, topic="t"):
    return [TopicPartition(topic, number) for number in numbers]


def test_bytes_are_those_of_other_clients():
    assert encode_subscription(["u", "t"]) == bytes.fromhex(
        "0000 00000002 0001 74 0001 75 ffffffff"
    )
    assert encode_assignment(places(1, 0) + places(2, topic="s")) == bytes.fromhex(
        "0000 00000002 0001 73 00000001 00000002 0001 74 00000002 00000000 00000001 ffffffff"
    )


def test_round_trips():
    assert decode_subscription(encode_subscription(["b", "a"])) == ["a", "b"]
    given = places(0, 5) + places(3, topic="other")
    assert sorted(decode_assignment(encode_assignment(given))) == sorted(given)
    assert decode_assignment(encode_assignment([])) == decode_assignment(b"") == []


def test_what_newer_clients_append_is_passed_over():
    newer = b"\x00\x03" + encode_subscription(["t"])[2:] + b"\x00\x00\x00\x00\x00\x00\x00\x01"
    assert decode_subscription(newer) == ["t"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x09t",
        b"\x00\x00\xff\xff\xff\xff",
    ],
)
def test_nonsense_is_refused(data):
    for decode in (decode_subscription, decode_assignment):
        with pytest.raises(ValueError, match=r"."):
            decode(data)


def test_the_range_assignor_gives_stretches():
    subscriptions = {"b": ["t"], "a": ["t", "u"], "c": ["t"]}
    given = assign_range(subscriptions, {"t": 7, "u": 2})
    assert given == {
        "a": places(0, 1, 2) + places(0, 1, topic="u"),
        "b": places(3, 4),
        "c": places(5, 6),
    }
    assert assign_range({"a": ["t"]}, {}) == {"a": []}
