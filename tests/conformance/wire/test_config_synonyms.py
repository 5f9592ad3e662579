"""DescribeConfigs' synonyms of options that fall back on others, as a live Kafka 4.3 lists them.

A broker's retention may be set in milliseconds, minutes or hours: each spelling lists what applies
below it, the file's value and the default too. A value that only another spelling gives is shown
as a default, without synonyms.
"""

import time

import pytest

TOPIC, BROKER = 2, 4
OF_TOPIC, OF_BROKER, OF_BROKERS, OF_FILE, DEFAULT = 1, 2, 3, 4, 5
FILE = {
    "log.retention.ms": 3_600_000,
    "log.retention.hours": 5,
    "log.roll.hours": 3,
    "log.roll.jitter.ms": 5,
    "log.flush.interval.ms": 500,
}
HOURS = [("log.retention.hours", "5", OF_FILE), ("log.retention.hours", "168", DEFAULT)]
ROLL_HOURS = [("log.roll.hours", "3", OF_FILE), ("log.roll.hours", "168", DEFAULT)]
RETENTION = [("log.retention.ms", "3600000", OF_FILE), *HOURS]
SCHEDULER = ("log.flush.scheduler.interval.ms", "9223372036854775807", DEFAULT)
JITTER = [("log.roll.jitter.ms", "5", OF_FILE), ("log.roll.jitter.hours", "0", DEFAULT)]


@pytest.fixture(scope="module")
def broker(made, tmp_path_factory):
    with made(tmp_path_factory.mktemp("synonyms") / "data", FILE) as peer:
        peer.start()
        yield peer


@pytest.fixture
def ask(broker, connect_to, target_kind):
    """``ask(type, name, key, wanted)``: (value, source) and the synonyms are these, at last."""
    wire = connect_to(broker.bootstrap)

    def ask(kind, name, key, wanted):
        patience = time.monotonic() + (10 if target_kind == "kafka" else 0)
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
        while True:
            answer = wire.call("describe_configs", 4, resources=[asked], include_synonyms=True)
            (found,) = answer["results"][0]["configs"]
            synonyms = [(one["name"], one["value"], one["source"]) for one in found["synonyms"]]
            told = found["value"], found["config_source"], synonyms
            if told == wanted or time.monotonic() > patience:
                break
            time.sleep(0.05)
        assert told == wanted

    return ask


@pytest.fixture(scope="module")
def topics(broker):
    from tools.wire_client import WireClient

    with WireClient(broker.bootstrap) as wire:
        wire.create_topic("plain")
        wire.create_topic("own", retention_ms="77", segment_ms="88")


def test_a_broker_lists_what_each_spelling_falls_back_on(ask):
    ask(BROKER, "1", "log.retention.ms", ("3600000", OF_FILE, RETENTION))
    ask(BROKER, "1", "log.retention.hours", ("5", OF_FILE, HOURS))
    ask(BROKER, "1", "log.retention.minutes", (None, DEFAULT, []))
    ask(BROKER, "1", "log.roll.ms", (None, DEFAULT, []))
    ask(BROKER, "1", "log.roll.hours", ("3", OF_FILE, ROLL_HOURS))
    ask(BROKER, "1", "log.roll.jitter.ms", ("5", OF_FILE, JITTER))
    flush = [("log.flush.interval.ms", "500", OF_FILE), SCHEDULER]
    ask(BROKER, "1", "log.flush.interval.ms", ("500", OF_FILE, flush))
    ask(BROKER, "1", SCHEDULER[0], (SCHEDULER[1], DEFAULT, [SCHEDULER]))


@pytest.mark.usefixtures("topics")
def test_a_topic_lists_what_applies_below_its_own_value(ask):
    ask(TOPIC, "plain", "retention.ms", ("3600000", OF_FILE, RETENTION))
    ask(
        TOPIC,
        "own",
        "retention.ms",
        ("77", OF_TOPIC, [("retention.ms", "77", OF_TOPIC), *RETENTION]),
    )
    ask(TOPIC, "plain", "segment.ms", (str(3 * 3_600_000), DEFAULT, []))
    ask(TOPIC, "own", "segment.ms", ("88", OF_TOPIC, [("segment.ms", "88", OF_TOPIC)]))
    ask(TOPIC, "plain", "segment.jitter.ms", ("5", OF_FILE, JITTER))


@pytest.mark.usefixtures("topics")
def test_dynamic_values_stand_above_the_files_of_every_spelling(ask, broker, connect_to):
    wire = connect_to(broker.bootstrap)

    def alter(name, key, value):
        change = {"name": key, "config_operation": 0 if value else 1, "value": value}
        resource = {"resource_type": BROKER, "resource_name": name, "configs": [change]}
        answer = wire.call("incremental_alter_configs", 1, resources=[resource])
        assert answer["responses"][0]["error_code"] == 0, answer

    keys = "log.retention.ms", "log.roll.ms"
    for key in keys:
        alter("", key, "600000")
        alter("1", key, "500000")
    try:
        for key, of_topic, below in (
            (keys[0], "retention.ms", RETENTION),
            (keys[1], "segment.ms", ROLL_HOURS),
        ):
            above = [(key, "500000", OF_BROKER), (key, "600000", OF_BROKERS)]
            ask(BROKER, "1", key, ("500000", OF_BROKER, above + below))
            ask(BROKER, "", key, ("600000", OF_BROKERS, above[1:]))
            ask(TOPIC, "plain", of_topic, ("500000", OF_BROKER, above + below))
    finally:
        for key in keys:
            alter("", key, None)
            alter("1", key, None)
