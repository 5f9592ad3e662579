"""Apache Kafka's own command-line tools: topics, console clients, offsets, performance."""

import re

import pytest

# A JVM takes a second or two to start.
pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def topics(target, kafka_tool):
    """Run TopicCommand."""

    def run(*arguments, **options):
        return kafka_tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", target.bootstrap, *arguments),
            **options,
        )

    return run


def test_topic_command_create_list_describe_alter_delete(topics, topic_name):
    made = topics(
        *("--create", "--topic", topic_name, "--partitions", 3, "--replication-factor", 1),
        *("--config", "retention.ms=3600000"),
    )
    assert f"Created topic {topic_name}." in made
    assert topic_name in topics("--list").split()
    told = topics("--describe", "--topic", topic_name)
    assert "PartitionCount: 3" in told
    assert "retention.ms=3600000" in told
    assert len(re.findall(rf"Topic: {topic_name}\s+Partition: \d\s+Leader: \d\s", told)) == 3
    topics("--alter", "--topic", topic_name, "--partitions", 5)
    assert "PartitionCount: 5" in topics("--describe", "--topic", topic_name)
    topics("--delete", "--topic", topic_name)
    assert topic_name not in topics("--list").split()


def test_topic_command_refusals(topics, topic_name):
    topics("--create", "--topic", topic_name, "--partitions", 2)
    again = topics("--create", "--topic", topic_name, check=False)
    assert f"Topic '{topic_name}' already exists" in again
    fewer = topics("--alter", "--topic", topic_name, "--partitions", 1, check=False)
    assert "would not be an increase" in fewer
    unknown = topics("--describe", "--topic", "nobody-made-this", check=False)
    assert "does not exist as expected" in unknown
    bad = topics(
        *("--create", "--topic", topic_name + "x", "--config", "retention.ms=abc"), check=False
    )
    assert "retention.ms" in bad


def test_console_producer_and_consumer(target, kafka_tool, topics, topic_name):
    topics("--create", "--topic", topic_name, "--partitions", 1)
    lines = [f"key{number}:value {number}" for number in range(1000)]
    kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", target.bootstrap, "--topic", topic_name),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        *("--compression-codec", "zstd"),
        text="\n".join(lines) + "\n",
    )
    read = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", target.bootstrap, "--topic", topic_name),
        *("--partition", 0, "--offset", "earliest", "--max-messages", 1000),
        *("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"),
    )
    assert [line for line in read.splitlines() if line.startswith("key")] == lines
    tail = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", target.bootstrap, "--topic", topic_name),
        *("--partition", 0, "--offset", 990, "--max-messages", 10),
        *("--formatter-property", "print.offset=true"),
    )
    assert "Offset:990\tvalue 990" in tail
    assert "Offset:999\tvalue 999" in tail


def test_get_offset_shell_and_producer_performance(target, kafka_tool, topics, topic_name):
    topics("--create", "--topic", topic_name, "--partitions", 2)
    told = kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", target.bootstrap, "--topic", topic_name),
        *("--num-records", 50_000, "--record-size", 200, "--throughput", -1),
        *("--command-property", "acks=all", "--command-property", "linger.ms=5"),
        check=False,
    )
    assert "50000 records sent" in told, told

    def offsets(time):
        shell = kafka_tool(
            "org.apache.kafka.tools.GetOffsetShell",
            *("--bootstrap-server", target.bootstrap, "--topic", topic_name, "--time", time),
        )
        return {
            int(partition): int(offset)
            for partition, offset in re.findall(rf"{topic_name}:(\d+):(\d+)", shell)
        }

    assert sum(offsets("latest").values()) == 50_000
    assert offsets("earliest") == {0: 0, 1: 0}
    assert sum(offsets("max-timestamp").values()) >= 50_000 - 2 - 50_000 // 2
