"""Settings that are computed from options, not only copied."""

import resource
from math import inf

import pytest

from ottla.config.files import broker_config
from ottla.config.topic import stored_topic_config
from ottla.env.open_files import open_files_limit, raise_open_files_limit
from ottla.log.config import LogConfig
from ottla.settings import connections_room_of, limits_of, partition_settings_of


@pytest.mark.parametrize(
    ("given", "open_files_max", "connections_max"),
    [
        ({}, None, 10_000),
        ({}, 1 << 20, 10_000),
        ({}, 1024, 960),
        ({"max.connections": "100"}, 1024, 100),
        ({"max.connections": "100"}, 70, 6),
        ({"max.connections": "0"}, 1024, 0),
        ({}, 20, 1),
    ],
)
def test_connections_never_take_the_last_files(given, open_files_max, connections_max):
    limits = limits_of(broker_config(given), open_files_max)
    assert limits.connections_max == connections_max


@pytest.mark.parametrize(("text", "seconds"), [("-1", inf), ("-7", inf), ("0", 0), ("600000", 600)])
def test_silent_connections_are_never_closed_if_so_told(text, seconds):
    limits = limits_of(broker_config({"connections.max.idle.ms": text}), None)
    assert limits.idle_seconds == seconds


def test_the_limit_is_that_of_the_process(monkeypatch):
    for soft, limit in ((1024, 1024), (resource.RLIM_INFINITY, None)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert open_files_limit() == limit


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        (1024, 4096, 4096),
        (4096, 4096, None),
        (1024, resource.RLIM_INFINITY, 1 << 20),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_node_takes_all_the_files_it_may_have(monkeypatch, soft, hard, wanted, is_refused):
    asked = []

    def set_limit(_, limits):
        asked.append(limits)
        if is_refused:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    raise_open_files_limit()
    assert asked == ([] if wanted is None else [(wanted, hard)])


@pytest.mark.parametrize(
    ("open_files_max", "partitions", "expected"),
    [(None, 10, None), (1024, 0, 960), (1024, 500, 460), (1024, 5000, 256), (4, 0, 1)],
)
def test_connections_leave_each_partition_its_file(open_files_max, partitions, expected):
    assert connections_room_of(open_files_max, partitions) == expected


def test_a_log_that_is_told_nothing_is_one_of_a_topic_that_is_told_nothing():
    # The option table and the log's own defaults: rooms that do not know each other.
    broker = broker_config({})
    assert partition_settings_of(stored_topic_config({}, broker), broker).log == LogConfig()
