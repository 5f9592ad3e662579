"""AlterConfigs, IncrementalAlterConfigs, ListConfigResources: what a live Kafka 4.3 answers.

Kafka says yes before its brokers have heard of a change, so what is described is asked until it is
so; Ottla's answer comes when the change is in force.
"""

import time

import pytest

from tools.wire_client import batch

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
UNKNOWN_TOPIC, TOO_LARGE, INVALID_TOPIC, UNSUPPORTED, INVALID_CONFIG, INVALID_REQUEST = (
    *(3, 10, 17, 35),
    *(40, 42),
)
MISSING = None


def eventually(look, wanted, target_kind):
    patience = time.monotonic() + (10 if target_kind == "kafka" else 0)
    while (found := look()) != wanted and time.monotonic() < patience:
        time.sleep(0.05)
    assert found == wanted


@pytest.fixture
def topic(wire, topic_name):
    wire.create_topic(topic_name)
    return topic_name


@pytest.fixture
def incremental(wire):
    """``incremental((type, name, [(key, operation, value)]), ...)``: (code, message) of each."""

    def incremental(*resources, version=1, validate_only=False):
        answer = wire.call(
            "incremental_alter_configs",
            version,
            resources=[
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [
                        {"name": key, "config_operation": operation, "value": value}
                        for key, operation, value in configs
                    ],
                }
                for kind, name, configs in resources
            ],
            validate_only=validate_only,
        )
        told = [(each["resource_type"], each["resource_name"]) for each in answer["responses"]]
        assert told == [(kind, name) for kind, name, _ in resources]
        return [(each["error_code"], each["error_message"]) for each in answer["responses"]]

    return incremental


@pytest.fixture
def change(incremental):
    """Change one key of one resource."""

    def change(kind, name, key, operation, value):
        return incremental((kind, name, [(key, operation, value)]))[0]

    return change


@pytest.fixture
def replace(wire):
    """``replace(type, name, {key: value})``: (code, message)."""

    def replace(kind, name, configs, *, version=2, validate_only=False):
        answer = wire.call(
            "alter_configs",
            version,
            resources=[
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [{"name": key, "value": value} for key, value in configs.items()],
                }
            ],
            validate_only=validate_only,
        )
        (each,) = answer["responses"]
        assert (each["resource_type"], each["resource_name"]) == (kind, name)
        return each["error_code"], each["error_message"]

    return replace


@pytest.fixture
def described(wire):
    def described(kind, name, *keys):
        answer = wire.call(
            "describe_configs",
            4,
            resources=[
                {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
            ],
            include_synonyms=True,
            include_documentation=False,
        )
        (result,) = answer["results"]
        assert result["error_code"] == 0, result
        return {each["name"]: each for each in result["configs"]}

    return described


@pytest.fixture
def expect(described, target_kind):
    """``expect(type, name, key, value, source)``: described so, at last."""

    def expect(kind, name, key, value, source):
        def look():
            found = described(kind, name, key).get(key)
            return None if found is None else (found["value"], found["config_source"])

        eventually(look, None if value is MISSING else (value, source), target_kind)

    return expect


@pytest.fixture
def expect_set(described, target_kind):
    """``expect_set(topic, {key: value})``: this and nothing else is set for the topic, at last."""

    def expect_set(topic, wanted):
        def look():
            found = described(TOPIC, topic).values()
            return {each["name"]: each["value"] for each in found if each["config_source"] == 1}

        eventually(look, wanted, target_kind)

    return expect_set


@pytest.fixture
def broker(incremental, replace):
    """The broker's name; what a test altered in it and in the cluster's defaults is undone."""
    yield "1"
    assert replace(BROKER, "1", {}) == (0, None)
    keys = ["message.max.bytes", "log.cleanup.policy", "no.such"]
    assert incremental((BROKER, "", [(key, DELETE, None) for key in keys])) == [(0, None)]


# Topics.


@pytest.mark.parametrize("version", [0, 1])
def test_set_and_delete(incremental, topic, expect_set, version):
    changes = [("retention.ms", SET, "1000"), ("segment.ms", SET, "2000")]
    assert incremental((TOPIC, topic, changes), version=version) == [(0, None)]
    expect_set(topic, {"retention.ms": "1000", "segment.ms": "2000"})
    changes = [("retention.ms", DELETE, None), ("flush.ms", DELETE, "7"), ("no.such", DELETE, "")]
    assert incremental((TOPIC, topic, changes), version=version) == [(0, None)]
    expect_set(topic, {"segment.ms": "2000"})


def test_validating_changes_nothing(incremental, replace, topic, expect_set):
    resource = (TOPIC, topic, [("retention.ms", SET, "1000")])
    assert incremental(resource, validate_only=True) == [(0, None)]
    assert replace(TOPIC, topic, {"retention.ms": "5"}, validate_only=True) == (0, None)
    assert incremental((TOPIC, topic, [("segment.ms", SET, "1")])) == [(0, None)]
    expect_set(topic, {"segment.ms": "1"})


def test_lists_grow_and_shrink(change, topic, expect):
    def policy(operation, value, wanted, source=1):
        assert change(TOPIC, topic, "cleanup.policy", operation, value) == (0, None)
        expect(TOPIC, topic, "cleanup.policy", wanted, source)

    policy(APPEND, "compact", "delete,compact")  # to the default
    policy(APPEND, "compact,delete", "delete,compact")
    policy(SUBTRACT, "foo", "delete,compact")
    policy(SUBTRACT, "delete", "compact")
    policy(SUBTRACT, "compact", "")
    policy(APPEND, " compact ", "compact")
    policy(DELETE, None, "delete", 5)
    policy(SUBTRACT, "compact", "delete")
    policy(SET, " compact , delete ", "compact,delete")


@pytest.mark.parametrize(
    ("key", "operation", "value", "refused"),
    [
        ("no.such", SET, "x", (INVALID_CONFIG, "Unknown topic config name: no.such")),
        ("", SET, "x", (INVALID_CONFIG, "Unknown topic config name: ")),
        (
            *("log.retention.ms", SET, "1000"),
            (INVALID_CONFIG, "Unknown topic config name: log.retention.ms"),
        ),
        (
            *("retention.ms", SET, "abc"),
            (
                INVALID_CONFIG,
                "Invalid value abc for configuration retention.ms: Not a number of type LONG",
            ),
        ),
        (
            *("retention.ms", SET, "-2"),
            (
                INVALID_CONFIG,
                "Invalid value -2 for configuration retention.ms: Value must be at least -1",
            ),
        ),
        (
            *("retention.ms", SET, None),
            (INVALID_REQUEST, "Null value not supported for : retention.ms"),
        ),
        (
            *("cleanup.policy", APPEND, None),
            (INVALID_REQUEST, "Null value not supported for : cleanup.policy"),
        ),
        (
            *("cleanup.policy", SUBTRACT, None),
            (INVALID_REQUEST, "Null value not supported for : cleanup.policy"),
        ),
        (
            *("retention.ms", APPEND, "5"),
            (INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST."),
        ),
        (
            *("no.such", SUBTRACT, "5"),
            (INVALID_CONFIG, "Can't SUBTRACT to key no.such because its type is not LIST."),
        ),
        (
            *("cleanup.policy", APPEND, "foo"),
            (
                INVALID_CONFIG,
                (
                    "Invalid value foo for configuration cleanup.policy: "
                    "String must be one of: compact, delete"
                ),
            ),
        ),
    ],
)
def test_a_topic_refuses(change, topic, expect_set, key, operation, value, refused):
    assert change(TOPIC, topic, key, operation, value) == refused
    expect_set(topic, {})


def test_an_empty_part_is_no_part_of_a_list(change, topic):
    assert change(TOPIC, topic, "cleanup.policy", APPEND, "")[0] == INVALID_CONFIG


def test_no_resource_is_half_altered(incremental, topic, expect_set):
    changes = [("retention.ms", SET, "1"), ("no.such", SET, "1")]
    refused = (INVALID_CONFIG, "Unknown topic config name: no.such")
    assert incremental((TOPIC, topic, changes)) == [refused]
    changes = [("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "5")]
    why = "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (5)"
    assert incremental((TOPIC, topic, changes)) == [(INVALID_CONFIG, why)]
    expect_set(topic, {})


def test_duplicates_are_refused(incremental, topic, expect_set):
    changes = [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)]
    refused = (INVALID_REQUEST, "Error due to duplicate config keys")
    assert incremental((TOPIC, topic, changes)) == [refused]
    twice = (INVALID_REQUEST, "Each resource must appear at most once.")
    first, second = (TOPIC, topic, [("retention.ms", SET, "1")]), (TOPIC, topic, [])
    unknown = (UNKNOWN_TOPIC, "The topic 'nobody' does not exist.")
    assert incremental(first, (TOPIC, "nobody", []), second) == [twice, unknown, twice]
    expect_set(topic, {})


def test_an_unknown_operation_is_refused(change, topic, target_kind):
    code, _ = change(TOPIC, topic, "retention.ms", 4, "1")
    assert code == (-1 if target_kind == "kafka" else INVALID_REQUEST)  # -1: it stumbles
    why = "Unknown operations type 9"
    assert change(BROKER, "1", "message.max.bytes", 9, "1") == (INVALID_REQUEST, why)


def test_resources_that_are_not_there(incremental, change, replace, topic, expect_set):
    changes = [("retention.ms", SET, "1")]
    found = incremental((TOPIC, topic, changes), (TOPIC, "nobody", changes))
    assert found == [(0, None), (UNKNOWN_TOPIC, "The topic 'nobody' does not exist.")]
    expect_set(topic, {"retention.ms": "1"})
    unknown_key = (INVALID_CONFIG, "Unknown topic config name: x")
    assert change(TOPIC, "nobody", "x", SET, "1") == unknown_key
    assert change(TOPIC, "../x", "retention.ms", SET, "1")[0] == INVALID_TOPIC
    no_default = (INVALID_REQUEST, "Default topic resources are not allowed.")
    assert change(TOPIC, "", "retention.ms", SET, "1") == no_default
    assert replace(TOPIC, "", {"retention.ms": "1"}) == no_default
    for kind in (0, 1, 3, 64, 99, -1):
        unknown_kind = (INVALID_REQUEST, f"Unknown resource type {kind}")
        assert change(kind, "x", "retention.ms", SET, "1") == unknown_kind
        assert replace(kind, "x", {"retention.ms": "1"}) == unknown_kind
    assert incremental() == []
    assert incremental((TOPIC, topic, [])) == [(0, None)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all(replace, topic, expect_set, version):
    given = {"retention.ms": "7", "cleanup.policy": "compact,delete"}
    assert replace(TOPIC, topic, given, version=version) == (0, None)
    expect_set(topic, given)
    assert replace(TOPIC, topic, {"segment.ms": "8"}, version=version) == (0, None)
    expect_set(topic, {"segment.ms": "8"})
    refused = (INVALID_REQUEST, "Null value not supported for : segment.ms")
    assert replace(TOPIC, topic, {"segment.ms": None}, version=version) == refused
    refused = (INVALID_CONFIG, "Unknown topic config name: no.such")
    assert replace(TOPIC, topic, {"no.such": "1"}, version=version) == refused
    expect_set(topic, {"segment.ms": "8"})
    assert replace(TOPIC, topic, {}, version=version) == (0, None)
    expect_set(topic, {})


def test_a_change_holds_for_open_logs_at_once(change, wire, topic, target_kind):
    large = batch([b"x" * 1000])

    def produced():
        return wire.produce(topic, large)["error_code"]

    assert produced() == 0
    assert change(TOPIC, topic, "max.message.bytes", SET, "500") == (0, None)
    eventually(produced, TOO_LARGE, target_kind)
    assert change(TOPIC, topic, "max.message.bytes", DELETE, None) == (0, None)
    eventually(produced, 0, target_kind)


# Brokers.


def test_more_in_sync_replicas_than_there_are_are_not_asked_for(change, wire, topic):
    # They could never be in sync: each write would be refused for ever.
    assert change(TOPIC, topic, "min.insync.replicas", SET, "2") == (0, None)
    assert wire.produce(topic, batch([b"x"]))["error_code"] == 0


def test_brokers_follow_their_own_then_the_clusters_word(
    change, described, expect, topic, broker, wire, target_kind
):
    def expect_both(value, source):
        expect(BROKER, broker, "message.max.bytes", value, source)
        expect(TOPIC, topic, "max.message.bytes", value, source)

    assert change(BROKER, broker, "message.max.bytes", SET, "600") == (0, None)
    expect_both("600", 2)
    expect(BROKER, "", "message.max.bytes", MISSING, None)
    assert change(BROKER, "", "message.max.bytes", SET, "700") == (0, None)
    expect(BROKER, "", "message.max.bytes", "700", 3)
    expect_both("600", 2)
    key = "message.max.bytes"
    entry = described(TOPIC, topic, "max.message.bytes")["max.message.bytes"]
    assert [(each["name"], each["value"], each["source"]) for each in entry["synonyms"]] == [
        (key, "600", 2),
        (key, "700", 3),
        (key, "1048588", 5),
    ]
    entry = described(BROKER, "", key)[key]
    assert entry["synonyms"] == [{"name": key, "value": "700", "source": 3}]

    def produced():
        return wire.produce(topic, batch([b"x" * 1000]))["error_code"]

    eventually(produced, TOO_LARGE, target_kind)
    assert change(BROKER, broker, key, DELETE, None) == (0, None)
    expect_both("700", 3)
    assert change(BROKER, "", key, DELETE, None) == (0, None)
    expect_both("1048588", 5)
    eventually(produced, 0, target_kind)


def test_lists_of_brokers_grow_and_shrink(change, topic, broker, expect):
    key = "log.cleanup.policy"
    for operation, value, wanted in (
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
    ):
        assert change(BROKER, broker, key, operation, value) == (0, None)
        expect(BROKER, broker, key, wanted, 2)
        expect(TOPIC, topic, "cleanup.policy", wanted, 2)


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    ("key", "operation", "value", "refused"),
    [
        (
            *("num.partitions", SET, "5"),
            (INVALID_REQUEST, "Cannot update these configs dynamically: [num.partitions]"),
        ),
        (
            *("node.id", SET, "1"),
            (INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
        ),
        (
            *("message.max.bytes", SET, "abc"),
            (
                INVALID_REQUEST,
                "Invalid value abc for configuration message.max.bytes: Not a number of type INT",
            ),
        ),
        (
            *("message.max.bytes", SET, None),
            (INVALID_REQUEST, "Null value not supported for : message.max.bytes"),
        ),
        (
            *("message.max.bytes", APPEND, "1"),
            (
                INVALID_CONFIG,
                "Config value append is not allowed for config key: message.max.bytes",
            ),
        ),
        ("no.such", SUBTRACT, "1", (INVALID_CONFIG, "Unknown config name: no.such")),
    ],
)
def test_a_broker_refuses(change, name, key, operation, value, refused):
    assert change(BROKER, name, key, operation, value) == refused


def test_what_cannot_change_may_be_deleted(change, broker):
    assert change(BROKER, broker, "num.partitions", DELETE, None) == (0, None)


def test_only_this_broker_can_be_altered(change, replace):
    for name in ("9", "-1"):
        refused = (INVALID_REQUEST, f"Unexpected broker id, expected 1, but received {name}")
        assert change(BROKER, name, "message.max.bytes", SET, "5000") == refused
        assert replace(BROKER, name, {}) == refused
    for name in (" 1", "1_0", "2147483648"):  # As Java reads numbers.
        refused = (INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        assert change(BROKER, name, "message.max.bytes", SET, "5000") == refused
    refused = (INVALID_REQUEST, "Node id must be an integer, but it is: x")
    assert change(BROKER, "x", "message.max.bytes", SET, "5000") == refused


def test_unknown_broker_configs_are_kept_and_their_values_not_shown(
    change, broker, described, target_kind
):
    assert change(BROKER, broker, "no.such", SET, "5") == (0, None)
    assert change(BROKER, "", "no.such", SET, "6") == (0, None)

    def look(name):
        return described(BROKER, name, "no.such").get("no.such")

    def told(*sources):
        return {
            "name": "no.such",
            "value": None,
            "read_only": True,
            "config_source": sources[0],
            "is_sensitive": True,
            "synonyms": [{"name": "no.such", "value": None, "source": each} for each in sources],
            "config_type": 0,
            "documentation": None,
        }

    eventually(lambda: look(broker), told(2, 3), target_kind)
    eventually(lambda: look(""), told(3), target_kind)


def test_alter_configs_of_a_broker_replaces_all(replace, broker, expect):
    assert replace(BROKER, broker, {"message.max.bytes": "2000000"}) == (0, None)
    expect(BROKER, broker, "message.max.bytes", "2000000", 2)
    assert replace(BROKER, broker, {"log.cleanup.policy": "compact"}) == (0, None)
    expect(BROKER, broker, "message.max.bytes", "1048588", 5)
    refused = (INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]")
    assert replace(BROKER, broker, {"node.id": "2"}) == refused
    assert replace(BROKER, broker, {}) == (0, None)
    expect(BROKER, broker, "log.cleanup.policy", "delete", 5)


# ListConfigResources.


def test_list_config_resources(wire, topic):
    def listed(*kinds):
        answer = wire.call("list_config_resources", 1, resource_types=list(kinds))
        assert answer["error_code"] == 0
        return [
            (each["resource_type"], each["resource_name"]) for each in answer["config_resources"]
        ]

    assert listed(BROKER) == [(BROKER, "1")]
    topics = listed(TOPIC)
    assert (TOPIC, topic) in topics
    assert listed(TOPIC, TOPIC) == topics
    assert listed(TOPIC, BROKER) == [(BROKER, "1"), *topics]
    assert [each for each in listed() if each[0] in (TOPIC, BROKER)] == listed(TOPIC, BROKER)
    assert listed(16) == []
    for kinds in ([99], [TOPIC, 99], [0], [64]):
        answer = wire.call("list_config_resources", 1, resource_types=kinds)
        assert (answer["error_code"], answer["config_resources"]) == (UNSUPPORTED, [])
    answer = wire.call("list_config_resources", 0)
    assert (answer["error_code"], answer["config_resources"]) == (0, [])
