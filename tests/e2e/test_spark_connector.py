"""format("ottla") gives what Spark's Kafka connector gives: rows, columns, tasks, checkpoints.

Both read the same topics in one session. Asked of Apache Kafka, too (``--target kafka``).
"""

import json
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from tests.old_formats import COUNT, start_with_segments, write_segments
from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(300, func_only=True),
]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
START_MS = int(time.time() * 1000) - 3_600_000


@pytest.fixture(scope="session")
def connector(spark):
    """The session, with format("kafka") besides."""
    from tests.conftest import need
    from tools.kafka_peer import KafkaUnavailable, connector_libraries

    try:
        for jar in connector_libraries().glob("*.jar"):
            spark.sql(f"ADD JAR '{jar}'")
    except KafkaUnavailable as error:
        need(str(error))
    return spark


@pytest.fixture
def load(connector, target):
    """Return the frame of a format: ``load("ottla", subscribe=...)``."""

    def read(name, *, bootstrap=target.bootstrap, **options):
        reader = connector.read.format(name).option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    return read


@pytest.fixture
def both(load):
    """Return the rows that both formats read, after asserting that they are equal."""

    def read(**options):
        ours, theirs = load("ottla", **options), load("kafka", **options)
        assert ours.schema == theirs.schema
        assert ours.schema.simpleString() == theirs.schema.simpleString()
        rows = as_tuples(ours)
        assert rows == as_tuples(theirs)
        return rows

    return read


def as_tuples(frame):
    rows = (tuple(_plain(value) for value in row) for row in frame.collect())
    return sorted(rows, key=lambda row: row[2:5])


def _plain(value):
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return [(each.key, _plain(each.value)) for each in value] if isinstance(value, list) else value


@pytest.fixture
def make_topic(target):
    def make(partitions=3, bootstrap=target.bootstrap, **configs):
        name = f"both-{uuid.uuid4().hex[:8]}"
        with WireClient(bootstrap) as wire:
            wire.create_topic(name, partitions, **configs)
        return name

    return make


def mixed_records(count):
    for number in range(count):
        key = None if number % 5 == 0 else b"k%d" % (number % 7)
        value = (
            None if number % 11 == 0 else (f"value {number} é\u4e16" * (1 + number % 9)).encode()
        )
        headers = [("a", b"1"), ("é", None), ("a", b"")] if number % 3 == 0 else []
        yield number % 3, key, value, headers, START_MS + number * 1000


def write_with_librdkafka(bootstrap, topic, records, codec="none"):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
    for partition, key, value, headers, timestamp in records:
        producer.produce(topic, value, key, partition, headers=headers, timestamp=timestamp)
    assert producer.flush(30) == 0


def write_with_kafka_python(bootstrap, topic, records, codec="none"):
    from kafka import KafkaProducer

    codec = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5)
    for partition, key, value, headers, timestamp in records:
        if key or value:  # it sends nothing else
            kept = [(name, text or b"") for name, text in headers]
            producer.send(topic, value, key, kept, partition, timestamp)
    producer.flush(30)
    producer.close()


def write_with_ottla(connector, bootstrap, topic, records, codec="none"):
    from pyspark.sql import functions as f

    columns = "partition int, key binary, value binary, "
    columns += "headers array<struct<key: string, value: binary>>, millis long"
    frame = connector.createDataFrame(list(records), columns)
    frame = frame.withColumn("timestamp", f.timestamp_millis("millis")).drop("millis")
    writer = frame.write.format("ottla").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).option("kafka.compression.type", codec).save()


def test_rows_of_every_codec_and_of_three_writers_are_equal(connector, target, make_topic, both):
    topic = make_topic()
    with ThreadPoolExecutor() as pool:  # all three at once
        for codec in CODECS:
            others = [
                pool.submit(write, target.bootstrap, topic, mixed_records(120), codec)
                for write in (write_with_librdkafka, write_with_kafka_python)
            ]
            write_with_ottla(connector, target.bootstrap, topic, mixed_records(120), codec)
            for each in others:
                each.result(60)
    by_kafka_python = sum(bool(key or value) for _, key, value, _, _ in mixed_records(120))
    assert len(both(subscribe=topic, includeHeaders="true")) == (240 + by_kafka_python) * len(
        CODECS
    )
    assert len(both(subscribe=topic)) == (240 + by_kafka_python) * len(CODECS)


def test_rows_of_transactions_are_equal(target, make_topic, both):
    topic = make_topic(2)
    write_in_transactions(target.bootstrap, topic, [True, False, True, False, False, True])
    everything = both(subscribe=topic, includeHeaders="true")
    committed = both(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert len(everything) == 6 * (40 + 4)
    assert len(committed) == 3 * 40 + 6 * 4


def write_in_transactions(bootstrap, topic, outcomes):
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}", "linger.ms": 1}
    )
    producer.init_transactions(30)
    for number, is_committed in enumerate(outcomes):
        producer.begin_transaction()
        for record in range(40):
            producer.produce(topic, b"%d %d" % (number, record), None, record % 2)
        producer.flush(30)
        plain = [(each % 2, None, b"plain %d" % each, [], START_MS) for each in range(4)]
        write_with_librdkafka(bootstrap, topic, plain)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def test_rows_before_an_open_transaction_are_equal(target, make_topic, both):
    from confluent_kafka import Producer

    topic = make_topic(2)
    write_in_transactions(target.bootstrap, topic, [True, False])
    producer = Producer(
        {"bootstrap.servers": target.bootstrap, "transactional.id": f"open-{topic}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", None, 0)
    producer.flush(30)
    write_with_librdkafka(target.bootstrap, topic, mixed_records(2))
    committed = both(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    everything = both(subscribe=topic)
    producer.abort_transaction(30)
    assert len(committed) == 40 + 2 * 4 + 1  # and what came later into the other partition
    assert len(everything) == 2 * (40 + 4) + 3


def test_rows_of_the_formats_0_and_1_are_equal(ottla_server_factory, kafka_libs, both, tmp_path):
    segments = tmp_path / "segments"
    segments.mkdir()
    records = write_segments(segments, kafka_libs)
    server = ottla_server_factory(begin=False)
    start_with_segments(server, segments)
    rows = both(subscribe="legacy", bootstrap=server.bootstrap, includeHeaders="true")
    assert [(row[4], row[0], row[1]) for row in rows] == [
        (offset, key, value) for offset, _, key, value in records
    ]
    for start in (43, 97, 175):  # inside of compressed batches
        starting = json.dumps({"legacy": {"0": start}})
        rows = both(subscribe="legacy", bootstrap=server.bootstrap, startingOffsets=starting)
        assert [row[4] for row in rows] == list(range(start, COUNT))


def test_rows_of_a_compacted_topic_are_equal(ottla_server_factory, make_topic, both, load):
    server = ottla_server_factory({"log.cleaner.backoff.ms": "100"})
    topic = make_topic(
        1,
        server.bootstrap,
        **{
            "cleanup.policy": "compact",
            "segment.bytes": str(1 << 20),
            "min.cleanable.dirty.ratio": "0.01",
        },
    )
    records = [(0, b"%d" % (n % 50), b"%d" % n * 400, [], START_MS + n) for n in range(3000)]
    write_with_librdkafka(server.bootstrap, topic, records)
    deadline = time.monotonic() + 60
    while kept_count(server.bootstrap, topic) > 2000:
        assert time.monotonic() < deadline
    rows = both(subscribe=topic, bootstrap=server.bootstrap)
    assert 50 <= len(rows) < 2000


def kept_count(bootstrap, topic):
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=500,
    )
    try:
        return sum(1 for _ in consumer)
    finally:
        consumer.close()


def test_the_same_offsets_give_the_same_rows_in_as_many_tasks(target, make_topic, both, load):
    topic = make_topic()
    write_with_librdkafka(target.bootstrap, topic, mixed_records(900), "lz4")
    dice = random.Random(6)
    for _ in range(2):
        cuts = {str(each): sorted(dice.sample(range(301), 2)) for each in range(3)}
        options = {
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: {p: low for p, (low, _) in cuts.items()}}),
            "endingOffsets": json.dumps({topic: {p: high for p, (_, high) in cuts.items()}}),
        }
        assert len(both(**options)) == sum(high - low for low, high in cuts.values())
        for limits in (
            {"minPartitions": dice.randrange(1, 20)},
            {"maxRecordsPerPartition": dice.randrange(1, 200)},
            {"minPartitions": dice.randrange(4, 20), "maxRecordsPerPartition": 100},
        ):
            counts = [
                load(name, **options, **limits).rdd.getNumPartitions()
                for name in ("ottla", "kafka")
            ]
            assert counts[0] == counts[1], (cuts, limits)
        rows = both(**options, minPartitions=dice.randrange(9, 20))  # cut inside of batches
        assert len(rows) == sum(high - low for low, high in cuts.values())


def test_the_same_timestamps_give_the_same_rows(target, make_topic, both):
    topic = make_topic()
    write_with_librdkafka(target.bootstrap, topic, mixed_records(300))
    late = {"endingTimestamp": START_MS + 250_000}
    assert len(both(subscribe=topic, startingTimestamp=START_MS + 100_500, **late)) == 149
    each = json.dumps({topic: {"0": START_MS, "1": START_MS + 200_000, "2": START_MS + 298_500}})
    assert both(subscribe=topic, startingOffsetsByTimestamp=each)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert both(subscribe=topic, startingTimestamp=START_MS + 300_000, **latest) == []


def test_a_checkpoint_of_the_connector_is_gone_on_from(connector, target, make_topic, tmp_path):
    topic = make_topic()

    def run(name):
        reader = connector.readStream.format(name).option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", target.bootstrap)
        frame = reader.option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "table"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    write_with_librdkafka(target.bootstrap, topic, mixed_records(30))
    run("kafka")
    write_with_librdkafka(target.bootstrap, topic, mixed_records(21))
    run("ottla")
    rows = connector.read.parquet(str(tmp_path / "table"))
    assert rows.count() == 51
    assert rows.select("partition", "offset").distinct().count() == 51
