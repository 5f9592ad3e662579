"""``ottla config`` against Ottla, and the same words against Apache Kafka."""

import json

import pytest

from tests.commands import run_command

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def topic(ottla, topic_name):
    assert ottla("topic", "create", topic_name, "-p", "1", "-c", "retention.ms=7d")[0] == 0
    return topic_name


def test_a_config_is_set_and_unset_and_its_source_told(ottla, shown, topic):
    of = f"topic/{topic}"
    assert [row["key"] for row in shown("config", "get", of)] == ["retention.ms"]
    code, out, _ = ottla("config", "set", of, "retention.ms=3d", "segment.bytes=64MiB")
    assert (code, out.splitlines()) == (
        0,
        [
            f"topic {topic} retention.ms  604800000 (7d) -> 259200000 (3d)",
            f"topic {topic} segment.bytes  1073741824 (1 GiB) -> 67108864 (64 MiB)",
        ],
    )
    rows = {row["key"]: row for row in shown("config", "get", of)}
    assert (rows["segment.bytes"]["value"], rows["segment.bytes"]["source"]) == (
        "67108864",
        "topic",
    )
    assert ottla("config", "unset", of, "segment.bytes", "--dry-run")[0] == 0
    assert len(shown("config", "get", of)) == 2, "a dry run changes nothing"
    assert ottla("config", "unset", of, "segment.bytes")[0] == 0
    (row,) = shown("config", "get", of, "segment.bytes")
    assert (row["value"], row["source"], row["default"]) == ("1073741824", "default", "1073741824")
    assert len(shown("config", "get", of, "--all")) > 20


def test_a_key_that_is_none_changes_nothing_and_near_ones_are_named(ottla, shown, topic):
    for verb, key in (("get", "retention.mss"), ("set", "retention.mss=1"), ("unset", "segmnt.ms")):
        code, _, err = ottla("config", verb, f"topic/{topic}", key)
        assert (code, "did you mean" in err) == (5, True), err
    code, _, err = ottla("config", "set", f"topic/{topic}", "segment.ms=1h", "retention.ms=soon")
    assert (code, "soon" in err) == (2, True), err
    assert [row["key"] for row in shown("config", "get", f"topic/{topic}")] == ["retention.ms"]
    code, _, err = ottla("config", "set", "broker/1", "log.retention.msx=1")
    assert (code, "log.retention.ms" in err) == (5, True), err


def test_what_is_not_there_has_no_configs(ottla, topic):
    assert ottla("config", "get", f"topic/{topic}x")[0] == 5
    assert ottla("config", "get", "broker/77")[0] == 5
    for nonsense in ("broker/x", "tpoic/x", "topic", "topic/", ""):
        assert ottla("config", "get", nonsense)[0] == 2
    assert ottla("config", "set", f"topic/{topic}", "retention.ms")[0] == 2


def test_layers_stand_in_their_order(ottla, shown, topic):
    of = f"topic/{topic}"
    assert ottla("config", "set", "cluster", "log.retention.ms=5d")[0] == 0
    try:
        told = shown("config", "explain", of, "retention.ms")
        assert [row["source"] for row in told["layers"]][:2] == ["topic", "cluster"]
        assert (told["type"], told["source"]) == ("long", "topic")
        assert told["documentation"]
        assert "<" not in told["documentation"]
        (row,) = shown("config", "get", "cluster", "log.retention.ms")
        assert (row["value"], row["source"]) == ("432000000", "cluster")
        assert ottla("config", "unset", of, "retention.ms")[0] == 0
        (row,) = shown("config", "get", of, "retention.ms")
        assert (row["value"], row["source"]) == ("432000000", "cluster")
    finally:
        assert ottla("config", "unset", "cluster", "log.retention.ms")[0] == 0
    code, out, err = ottla("config", "get", "cluster", "log.retention.ms", "--no-header")
    assert (code, out) == (0, "")
    assert "not set" in err
    (row,) = shown("config", "get", of, "retention.ms")
    assert row["value"] == "604800000"


def test_a_group_has_configs(ottla, shown, topic_name):
    of = f"group/{topic_name}"
    assert ottla("config", "set", of, "consumer.session.timeout.ms=50s")[0] == 0
    (row,) = shown("config", "get", of)
    assert (row["value"], row["source"], row["default"]) == ("50000", "group", "45000")
    assert ottla("config", "unset", of, "consumer.session.timeout.ms")[0] == 0
    assert shown("config", "get", of) == []


def test_what_only_a_file_may_say_is_refused_in_the_brokers_words(ottla):
    code, _, err = ottla("config", "set", "broker/1", "node.id=4")
    assert (code, "node.id" in err) == (1, True)


def test_differences_are_listed_also_between_clusters(ottla, shown, either, topic, ottla_server):
    other = f"{topic}-other"
    assert ottla("topic", "create", other, "-p", "1")[0] == 0
    code, out, err = ottla("config", "diff", f"topic/{topic}", f"topic/{topic}", "-o", "json")
    assert (code, json.loads(out)) == (0, [])
    assert ottla("config", "set", f"topic/{other}", "retention.ms=1h")[0] == 0
    code, out, err = ottla("config", "diff", f"topic/{topic}", f"topic/{other}", "--no-header")
    assert (code, out) == (1, "retention.ms\t604800000 (7d)\t3600000 (1h)\n"), err
    assert ottla("config", "diff", f"topic/{topic}")[0] == 2, "with itself, here"
    if either is not ottla_server:
        run_command(ottla_server.bootstrap, "topic", "create", topic, "-c", "retention.ms=1h")
        there = ("--other-bootstrap", ottla_server.bootstrap)
        code, out, _ = ottla("config", "diff", f"topic/{topic}", *there, "-o", "json")
        keys = {row["key"] for row in json.loads(out)}
        assert (code, keys) == (1, {"retention.ms", "flush.messages"})


def test_a_secret_is_never_shown():
    from ottla.cli.config import HIDDEN, _row, differences
    from ottla.client.asyncio.configs import ConfigEntry, ConfigLayer

    layers = (ConfigLayer("ssl.key.password", "x", 4),)
    secret = ConfigEntry("ssl.key.password", None, 4, False, True, 9, None, layers)
    row = _row(secret)
    assert (row["value"], row["sensitive"]) == (HIDDEN, True)
    (told,) = differences([secret], [])
    assert told["first"] == HIDDEN
