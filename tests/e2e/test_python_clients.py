"""librdkafka, kafka-python and aiokafka create a topic, fill it, and read back what they wrote."""

import asyncio
import contextlib
import time
import uuid

import pytest

PARTITIONS = 3
COUNT = 100_000
# Other people's code, other people's warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def sent(count):
    """Yield (partition, key, value) of every record; no two are the same."""
    for number in range(count):
        key = None if number % 10 == 0 else b"key-%d" % (number % 1000)
        value = None if number % 1000 == 1 else b'{"number": %d, "padding": "abcdefghij"}' % number
        yield number % PARTITIONS, key, value


def expected(count):
    rows = [[] for _ in range(PARTITIONS)]
    for partition, key, value in sent(count):
        rows[partition].append((len(rows[partition]), key, value))
    return rows


class Confluent:
    """librdkafka through confluent-kafka."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def create(self, topic):
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)

    def write(self, topic, codec, count):
        from confluent_kafka import Producer

        failures = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "linger.ms": 20,
                "enable.idempotence": True,  # keeps the order when a new topic asks for a retry
                "queue.buffering.max.messages": COUNT,
            }
        )

        def report(error, message):
            if error is not None:
                failures.append(error)

        for partition, key, value in sent(count):
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        key,
                        partition,
                        on_delivery=report,
                        timestamp=1_700_000_000_000,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(50) == 0
        assert not failures, failures[:3]

    def read(self, topic, count):
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        rows = [[] for _ in range(PARTITIONS)]
        try:
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
            deadline = time.monotonic() + 50
            while sum(map(len, rows)) < count and time.monotonic() < deadline:
                for message in consumer.consume(5000, 0.5):
                    assert message.error() is None, message.error()
                    row = (message.offset(), message.key(), message.value())
                    rows[message.partition()].append(row)
        finally:
            consumer.close()
        return rows


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def create(self, topic):
        from kafka.admin import KafkaAdminClient, NewTopic

        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])

    def write(self, topic, codec, count):
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            batch_size=1 << 16,
            acks="all",
        )
        with contextlib.closing(producer):
            futures = [
                producer.send(topic, value, key, partition=partition)
                for partition, key, value in sent(count)
            ]
            producer.flush(50)
            for future in futures:
                assert future.succeeded(), future.exception

    def read(self, topic, count):
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            max_poll_records=10_000,
        )
        rows = [[] for _ in range(PARTITIONS)]
        with contextlib.closing(consumer):
            partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            deadline = time.monotonic() + 50
            while sum(map(len, rows)) < count and time.monotonic() < deadline:
                for found in consumer.poll(timeout_ms=500).values():
                    for record in found:
                        rows[record.partition].append((record.offset, record.key, record.value))
        return rows


class AioKafka:
    """aiokafka."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def create(self, topic):
        asyncio.run(self._create(topic))

    def write(self, topic, codec, count):
        asyncio.run(self._write(topic, codec, count))

    def read(self, topic, count):
        return asyncio.run(self._read(topic, count))

    async def _create(self, topic):
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        finally:
            await admin.close()

    async def _write(self, topic, codec, count):
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            max_batch_size=1 << 16,
            acks="all",
        )
        await producer.start()
        try:
            futures = []
            for partition, key, value in sent(count):
                futures.append(await producer.send(topic, value, key, partition=partition))
            await producer.flush()
            for future in futures:
                assert future.exception() is None
        finally:
            await producer.stop()

    async def _read(self, topic, count):
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, fetch_max_wait_ms=100
        )
        rows = [[] for _ in range(PARTITIONS)]
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            deadline = time.monotonic() + 50
            while sum(map(len, rows)) < count and time.monotonic() < deadline:
                for found in (await consumer.getmany(timeout_ms=500)).values():
                    for record in found:
                        rows[record.partition].append((record.offset, record.key, record.value))
        finally:
            await consumer.stop()
        return rows


CLIENTS = [Confluent, KafkaPython, AioKafka]


def roomy(name):
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client_class", CLIENTS, ids=lambda client: client.__name__)
def test_100_000_records_come_back_equal(target, client_class, codec):
    client = client_class(target.bootstrap)
    topic = roomy(codec)
    client.create(topic)
    client.write(topic, codec, COUNT)
    assert client.read(topic, COUNT) == expected(COUNT)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer_class", CLIENTS, ids=lambda client: client.__name__)
def test_each_client_reads_what_each_other_wrote(target, writer_class, codec):
    writer = writer_class(target.bootstrap)
    topic = roomy(codec)
    writer.create(topic)
    writer.write(topic, codec, 2000)
    for reader_class in CLIENTS:
        assert reader_class(target.bootstrap).read(topic, 2000) == expected(2000), reader_class


def test_idempotent_producer_of_librdkafka(target):
    from confluent_kafka import Producer

    topic = roomy("idempotent")
    Confluent(target.bootstrap).create(topic)
    producer = Producer({"bootstrap.servers": target.bootstrap, "enable.idempotence": True})
    for number in range(500):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    rows = Confluent(target.bootstrap).read(topic, 500)
    assert [value for _, _, value in rows[0]] == [b"%d" % number for number in range(500)]


def test_auto_created_topic_takes_the_first_record(target):
    from confluent_kafka import Producer

    topic = roomy("auto")
    failures = []
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce(topic, b"first", on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(30) == 0
    assert not failures


def test_offsets_by_time_of_librdkafka(target):
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = roomy("time")
    Confluent(target.bootstrap).create(topic)
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0})
    for number in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1_700_000_000_000 + number * 1000)
        assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "unused"})
    with contextlib.closing(consumer):
        found = consumer.offsets_for_times([TopicPartition(topic, 0, 1_700_000_004_500)], 10)
        assert found[0].offset == 5
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 10)


def test_records_survive_stop_and_start(ottla_server_factory):
    server = ottla_server_factory()
    client = Confluent(server.bootstrap)
    client.create("kept")
    client.write("kept", "lz4", 3000)
    server.restart()
    assert Confluent(server.bootstrap).read("kept", 3000) == expected(3000)
    server.kill9()
    server.start()
    again = Confluent(server.bootstrap)
    assert again.read("kept", 3000) == expected(3000)
