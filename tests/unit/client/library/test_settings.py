"""What a client may be told, and what it answers to what it cannot use."""

import pytest

import ottla
from ottla.client.library.failures import as_failure
from ottla.client.library.formats import Formats
from ottla.client.library.records import headers_of
from ottla.client.library.settings import KNOWN, read_config
from ottla.client.wire.errors import ConnectionFailed, NoAnswer
from ottla.errors import ErrorCode, KafkaError
from ottla.records.compression import Codec


def test_librdkafkas_keys_mean_what_they_mean_there():
    found = read_config(
        {
            "bootstrap.servers": "h:1,[::1]:2",
            "acks": "all",
            "linger.ms": "20",
            "compression.type": "zstd",
            "enable.idempotence": True,
            "group.id": "g",
            "auto.offset.reset": "smallest",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
        }
    )
    assert [str(each) for each in found.connections.bootstrap] == ["h:1", "[::1]:2"]
    assert (found.producer.acks, found.producer.linger_ms) == (-1, 20)
    assert found.producer.codec is Codec.ZSTD
    assert (found.consumer.group, found.consumer.auto_offset_reset) == ("g", "earliest")
    assert (found.consumer.auto_commit, found.consumer.read_committed) == (False, True)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"linger.mss": 5}, "linger.ms"),
        ({"acks": "most"}, "acks"),
        ({"batch.size": "-1"}, "0 or more"),
        ({"compression.type": "rar"}, "zstd"),
        ({"enable.idempotence": "maybe"}, "true or false"),
        ({"group.protocol": "new"}, "classic"),
        ({"bootstrap.servers": "h:port"}, "host:port"),
        ({"transactional.id": "x", "acks": 1}, "acks=-1"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_key(config, words):
    with pytest.raises(ottla.BadArgument, match=words):
        read_config(config)


def test_every_key_that_is_known_can_be_meant_by_a_near_one():
    for key in KNOWN:
        with pytest.raises(ottla.BadArgument) as caught:
            read_config({f"{key}x": "1"})
        assert key in caught.value.fix


def test_a_password_is_in_no_error_and_no_repr():
    with pytest.raises(ottla.BadArgument) as caught:
        ottla.AsyncClient("h:9", username="ann", password="hunter2", mechanism="NONE")
    assert "hunter2" not in str(caught.value) + repr(caught.value)
    client = ottla.AsyncClient("h:9", username="ann", password="hunter2")
    assert "hunter2" not in repr(client._core.settings)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(ErrorCode.PRODUCER_FENCED), ottla.Fenced),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), ottla.NotAllowed),
        (KafkaError(ErrorCode.ILLEGAL_GENERATION), ottla.GroupMoved),
        (KafkaError(ErrorCode.INVALID_CONFIG), ottla.Refused),
        (ConnectionFailed("h", 1, "connection refused", refused=True), ottla.Unreachable),
        (NoAnswer("h", 1, "late"), ottla.TimedOut),
    ],
)
def test_errors_say_what_why_and_the_code(error, kind):
    found = as_failure("do it", error)
    assert type(found) is kind
    assert isinstance(found, ottla.ClientError)
    assert "do it" in str(found)
    assert found.code == getattr(error, "code", None)


@pytest.mark.parametrize("given", [[("a",)], [("a", 1)], [(1, b"x")], [5]])
def test_headers_that_are_none_are_refused(given):
    with pytest.raises(ottla.BadArgument, match="headers"):
        headers_of(given)


def test_formats_by_name():
    formats = Formats("str", "json", encodes=True)
    assert formats.apply("t", "key", "k") == b"k"
    assert formats.apply("t", "value", {"a": 1}) == b'{"a":1}'
    assert formats.apply("t", "value", None) is None
    with pytest.raises(ottla.BadArgument, match="none of bytes, str, json"):
        Formats("yaml", None, encodes=True)
    with pytest.raises(ottla.BadArgument, match="cannot be called"):
        Formats(None, 5, encodes=True)
