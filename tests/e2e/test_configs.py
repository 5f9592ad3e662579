"""Other people's admin clients alter configs and read them back."""

import time

import pytest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def topic(target, topic_name):
    from tools.wire_client import WireClient

    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name)
    return topic_name


def eventually(look, wanted):
    patience = time.monotonic() + 10  # Kafka answers before its broker has heard.
    while (found := look()) != wanted and time.monotonic() < patience:
        time.sleep(0.05)
    assert found == wanted


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(120)
def test_java_config_command(target, kafka_tool, topic):
    def configs(*arguments, **options):
        return kafka_tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", target.bootstrap, *arguments),
            **options,
        )

    on_topic = ("--entity-type", "topics", "--entity-name", topic)
    given = "retention.ms=3600000,cleanup.policy=[compact,delete]"
    told = configs("--alter", *on_topic, "--add-config", given)
    assert f"Completed updating config for topic {topic}." in told
    told = configs("--describe", *on_topic)
    assert "retention.ms=3600000" in told
    assert "cleanup.policy=compact,delete" in told
    configs("--alter", *on_topic, "--delete-config", "cleanup.policy")
    assert "cleanup.policy" not in configs("--describe", *on_topic)
    told = configs("--alter", *on_topic, "--add-config", "no.such=1", check=False)
    assert "Unknown topic config name: no.such" in told
    on_brokers = ("--entity-type", "brokers", "--entity-default")
    configs("--alter", *on_brokers, "--add-config", "log.segment.bytes=2000000")
    try:
        told = configs("--describe", *on_brokers)
        assert "log.segment.bytes=2000000" in told
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=2000000" in told
    finally:
        configs("--alter", *on_brokers, "--delete-config", "log.segment.bytes")


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(120)
def test_java_log_dirs_command(target, kafka_tool, topic):
    told = kafka_tool(
        "org.apache.kafka.tools.LogDirsCommand",
        *("--bootstrap-server", target.bootstrap, "--describe", "--topic-list", topic),
    )
    assert f'"logDir":"{target.data}"' in told
    assert f'{{"partition":"{topic}-0","size":0,"offsetLag":0,"isFuture":false}}' in told


def test_confluent_kafka(target, topic):
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
    )

    admin = AdminClient({"bootstrap.servers": target.bootstrap})

    def alter(key, value, operation):
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10)

    def described(key):
        resource = ConfigResource("topic", topic)
        entry = admin.describe_configs([resource])[resource].result(10)[key]
        return entry.value, ConfigSource(entry.source)

    set_by_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG
    alter("retention.ms", "3600000", AlterConfigOpType.SET)
    eventually(lambda: described("retention.ms"), ("3600000", set_by_topic))
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    eventually(lambda: described("cleanup.policy"), ("delete,compact", set_by_topic))
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    default = ("604800000", ConfigSource.DEFAULT_CONFIG)
    eventually(lambda: described("retention.ms"), default)


def test_kafka_python(target, topic):
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    try:
        given = {"retention.ms": "3600000", "segment.ms": "7200000"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=given)])

        def described():
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (found,) = admin.describe_configs([resource])["topic"].values()
            return {key: found[key]["value"] for key in given}

        eventually(described, given)
    finally:
        admin.close()
