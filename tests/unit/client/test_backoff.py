"""When a call is tried again, and when not. Without a clock: it is given."""

from ottla.client.wire.backoff import Backoff
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError

REFUSED = ConnectionFailed("h", 1, "connection refused", refused=True)


def test_a_first_connection_that_fails_is_what_the_user_got_wrong():
    assert Backoff(ClientSettings(), 0).pause_seconds(REFUSED, 0) is None


def test_later_connections_are_tried_again_until_the_time_is_over():
    backoff = Backoff(ClientSettings(retry_timeout_ms=1000, retry_backoff_ms=100), 0)
    backoff.connected()
    assert backoff.pause_seconds(REFUSED, 0) == 0.1
    assert backoff.pause_seconds(REFUSED, 0.1) == 0.2
    assert backoff.pause_seconds(REFUSED, 0.9) is None


def test_who_knows_that_the_cluster_is_there_waits_for_its_first_connection_too():
    """A task must not fail because the broker restarts between planning and reading."""
    settings = ClientSettings(awaits_cluster=True)
    assert Backoff(settings, 0).pause_seconds(REFUSED, 0) is not None


def test_only_what_may_pass_is_tried_again():
    def pause(code):
        return Backoff(ClientSettings(), 0).pause_seconds(KafkaError(code, ""), 0)

    assert pause(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is not None
    assert pause(ErrorCode.CONCURRENT_TRANSACTIONS) is not None
    assert pause(ErrorCode.UNKNOWN_TOPIC_ID) is not None
    assert pause(ErrorCode.PRODUCER_FENCED) is None


def test_a_topic_that_is_missing_is_asked_for_shorter_than_a_broker_that_is_away():
    settings = ClientSettings(retry_timeout_ms=60_000, missing_topic_ms=3_000)
    missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    moving = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    backoff = Backoff(settings, 0)
    assert backoff.pause_seconds(missing, 10) is not None
    assert backoff.pause_seconds(missing, 12.5) is not None
    assert backoff.pause_seconds(missing, 13) is None
    assert backoff.pause_seconds(moving, 14) is not None
    assert backoff.pause_seconds(missing, 20) is not None, "it was there meanwhile"
    assert Backoff(ClientSettings(), 0).pause_seconds(missing, 28) is not None
