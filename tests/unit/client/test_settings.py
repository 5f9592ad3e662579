import pytest

from ottla.client.wire.backoff import Backoff
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import Address, ClientSettings, parse_bootstrap, read_settings
from ottla.config import InvalidConfig
from ottla.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("h", [("h", 9092)]),
        ("h:1, PLAINTEXT://i:2", [("h", 1), ("i", 2)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
    ],
)
def test_addresses(text, addresses):
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize("text", ["", ",", "h:", "h:x", "h:70000", ":9092", "h:0"])
def test_bad_addresses(text):
    with pytest.raises(InvalidConfig, match="expected host:port"):
        parse_bootstrap(text)


def test_settings_have_the_names_of_other_clients():
    settings = read_settings(
        {
            "bootstrap.servers": "h:1",
            "client.id": "me",
            "request.timeout.ms": "5s",
            "retry.backoff.ms": "7",
            "security.protocol": "plaintext",
        }
    )
    assert settings == ClientSettings((Address("h", 1),), "me", 1000, 5000, 30_000, 7)


@pytest.mark.parametrize("key", ["sasl.kerberos.service.name", "ssl.cipher.suites", "group.id"])
def test_what_cannot_be_had_is_refused(key):
    with pytest.raises(InvalidConfig, match=key):
        read_settings({key: "x"})


def test_pauses_double_up_to_a_bound_and_end_with_the_time():
    settings = ClientSettings(retry_backoff_ms=100, retry_backoff_max_ms=300, retry_timeout_ms=1000)
    backoff = Backoff(settings, now=0.0)
    error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
    assert [backoff.pause_seconds(error, 0.0) for _ in range(4)] == [0.1, 0.2, 0.3, 0.3]
    assert backoff.pause_seconds(error, 0.8) is None


def test_what_will_not_change_is_not_retried():
    backoff = Backoff(ClientSettings(), now=0.0)
    assert backoff.pause_seconds(KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION), 0.0) is None
    refused = ConnectionFailed("h", 1, "connection refused", refused=True)
    assert Backoff(ClientSettings(), now=0.0).pause_seconds(refused, 0.0) is None
    backoff.connected()
    assert backoff.pause_seconds(refused, 0.0) is not None
