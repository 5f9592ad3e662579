"""The configs of consumer groups: Kafka's bounds and error texts, and defaults from the node."""

import pytest

from ottla.config.broker import BROKER_TABLE
from ottla.config.config import Config, Layer
from ottla.config.group import (
    ASSIGNMENT_INTERVAL_MS,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    checked_group_config,
    stored_group_config,
)
from ottla.config.option import InvalidConfig, Source

SESSION, HEARTBEAT = SESSION_TIMEOUT_MS.key, HEARTBEAT_INTERVAL_MS.key
BROKER = Config(
    BROKER_TABLE,
    Layer(Source.STATIC_BROKER, {"group.consumer.heartbeat.interval.ms": "7000"}),
)


def test_a_group_follows_the_node_where_it_sets_nothing():
    config = checked_group_config({SESSION: "50000"}, BROKER)
    assert config[SESSION_TIMEOUT_MS] == 50_000
    assert config.source(SESSION_TIMEOUT_MS) == 8
    assert config[HEARTBEAT_INTERVAL_MS] == 7_000
    assert config.source(HEARTBEAT_INTERVAL_MS) is Source.STATIC_BROKER
    assert config[ASSIGNMENT_INTERVAL_MS] == 1_000


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (SESSION, "44999", f"{SESSION} must be greater than or equal to group.consumer.min."),
        (SESSION, "60001", f"{SESSION} must be less than or equal to group.consumer.max."),
        (HEARTBEAT, "4999", "must be greater than or equal to group.consumer.min.heartbeat."),
        (HEARTBEAT, "15001", "must be less than or equal to group.consumer.max.heartbeat."),
        ("consumer.assignment.interval.ms", "15001", "group.consumer.max.assignment.interval.ms"),
        (SESSION, "x", "Not a number of type INT"),
        (HEARTBEAT, "0", "Value must be at least 1"),
        ("nope", "1", "Unknown group config name: nope"),
        ("share.session.timeout.ms", "50000", "Unknown group config name"),
    ],
)
def test_configs_that_no_group_may_have(key, value, why):
    with pytest.raises(InvalidConfig, match=why):
        checked_group_config({key: value}, BROKER)


def test_a_session_is_longer_than_the_time_between_two_heartbeats():
    texts = {
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.max.heartbeat.interval.ms": "9000",
    }
    broker = Config(BROKER_TABLE, Layer(Source.STATIC_BROKER, texts))
    with pytest.raises(InvalidConfig, match="must be greater than"):
        checked_group_config({SESSION: "8000", HEARTBEAT: "8000"}, broker)


def test_a_stored_value_counts_although_the_bounds_have_changed():
    config = stored_group_config({SESSION: "1000", "of.another.version": "1"}, BROKER)
    assert config[SESSION_TIMEOUT_MS] == 1_000
