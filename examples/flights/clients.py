"""The Kafka clients of the story: librdkafka writes, kafka-python and Java read.

None of them knows that the broker is not Apache Kafka.
"""

import subprocess
import time
from collections.abc import Iterable

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition

from examples.flights.digest import Contents, PartitionDigest
from tools import kafka_peer

QUIET_S_MAX = 60
"""A reader that gets nothing for so long gives up."""


def create_topic(bootstrap: str, topic: str, partition_count: int) -> None:
    """Create the topic with librdkafka's admin client. Raises KafkaException when refused."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, partition_count, 1)], operation_timeout=30)
    created[topic].result()


def produce(bootstrap: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> Contents:
    """Write all records, acks=all and idempotent, and return what the broker acknowledged."""
    acknowledged: dict[int, PartitionDigest] = {}

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"error: a record was not delivered: {error}")
        digest = acknowledged.setdefault(message.partition() or 0, PartitionDigest())
        digest.add(message.key() or b"", message.value() or b"")

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # what Java's producer does with keys
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:  # the queue is full: let answers come in
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(QUIET_S_MAX)
    if left:
        raise SystemExit(f"error: {left} records were not acknowledged in {QUIET_S_MAX} s")
    return {partition: digest.content() for partition, digest in sorted(acknowledged.items())}


def read_with_kafka_python(bootstrap: str, topic: str) -> Contents:
    """Read every partition from its start to its end with kafka-python."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=10_000,
    )
    try:
        partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        digests = {partition.partition: PartitionDigest() for partition in partitions}
        quiet_since = time.monotonic()
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            if time.monotonic() - quiet_since > QUIET_S_MAX:
                raise SystemExit(f"error: kafka-python got nothing for {QUIET_S_MAX} s")
            for partition, messages in consumer.poll(timeout_ms=1000).items():
                quiet_since = time.monotonic()
                for message in messages:
                    digests[partition.partition].add(message.key, message.value)
    finally:
        consumer.close()
    return {partition: digest.content() for partition, digest in sorted(digests.items())}


def read_with_java(bootstrap: str, topic: str, counts: dict[int, int]) -> Contents:
    """Read ``counts[partition]`` records of each partition with Kafka's own ConsoleConsumer.

    Raises KafkaUnavailable when this machine has no Java, or no jars and no Maven to bring them.
    """
    contents: Contents = {}
    for partition, count in sorted(counts.items()):
        command = kafka_peer.tool_command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic),
            *("--partition", str(partition), "--offset", "earliest"),
            *("--max-messages", str(count), "--timeout-ms", str(QUIET_S_MAX * 1000)),
            *("--formatter-property", "print.key=true"),
        )
        digest = PartitionDigest()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=1 << 20
        ) as consumer:
            assert consumer.stdout is not None
            assert consumer.stderr is not None
            for line in consumer.stdout:
                key, _, value = line.rstrip(b"\n").partition(b"\t")
                digest.add(key, value)
            complaint = consumer.stderr.read().decode(errors="replace")
        if consumer.returncode != 0:
            raise SystemExit(f"error: ConsoleConsumer failed\n{complaint}")
        contents[partition] = digest.content()
    return contents
