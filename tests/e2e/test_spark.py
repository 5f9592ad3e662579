"""PySpark reads topics with format("ottla"): the same rows as another client, and clear errors."""

import json
import time

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(180),
]

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def load(spark, target):
    """Return a DataFrame of the broker under test: ``load(subscribe=..., ...)``."""

    def read(**options):
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", target.bootstrap)
        return reader.options(**options).load()

    return read


@pytest.fixture
def topic(target, topic_name):
    """A topic of three partitions."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(topic_name, 3, 1)])[topic_name].result(30)
    return topic_name


@pytest.fixture
def produce(target, topic):
    """Write records (partition, key, value, headers, timestamp) in order, each acknowledged."""
    from confluent_kafka import Producer

    def write(records, **options):
        failed = []
        producer = Producer(
            {"bootstrap.servers": target.bootstrap, "linger.ms": 5, "acks": "all", **options}
        )
        for partition, key, value, headers, timestamp in records:
            producer.produce(
                topic,
                value,
                key,
                partition,
                headers=headers,
                timestamp=timestamp,
                on_delivery=lambda error, _message: error and failed.append(error),
            )
        assert producer.flush(30) == 0
        assert not failed

    return write


@pytest.fixture
def kafka_python_rows(target):
    """All that kafka-python reads from a topic, as sorted tuples in the order of our columns."""
    from kafka import KafkaConsumer, TopicPartition

    def read(topic):
        consumer = KafkaConsumer(
            bootstrap_servers=target.bootstrap, group_id=None, auto_offset_reset="earliest"
        )
        try:
            partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(partitions)
            rows = []
            deadline = time.monotonic() + 60
            while any(consumer.position(p) < ends[p] for p in partitions):
                assert time.monotonic() < deadline
                for messages in consumer.poll(timeout_ms=500).values():
                    rows += [
                        (m.partition, m.offset, m.key, m.value, m.timestamp, m.timestamp_type,
                         [tuple(header) for header in m.headers])
                        for m in messages
                    ]  # fmt: skip
            return sorted(rows, key=lambda row: row[:2])
        finally:
            consumer.close()

    return read


def as_client_rows(frame):
    """The frame's rows in the form of kafka_python_rows."""
    from pyspark.sql import functions as f

    rows = frame.withColumn("millis", f.unix_millis("timestamp")).collect()

    def octets(value):
        return None if value is None else bytes(value)

    return sorted(
        (
            (r.partition, r.offset, octets(r.key), octets(r.value), r.millis, r.timestampType,
             [(h.key, octets(h.value)) for h in r.headers or []])
            for r in rows
        ),
        key=lambda row: row[:2],
    )  # fmt: skip


def mixed_records(count):
    """Records with and without keys, values and headers, over three partitions and some time.

    Not long ago, or retention would take them away while the test runs.
    """
    start_ms = int(time.time() * 1000) - 3_600_000
    for number in range(count):
        key = None if number % 5 == 0 else f"k{number % 7}"
        value = None if number % 11 == 0 else f"value {number} é\u4e16" * (1 + number % 9)
        headers = [("a", b"1"), ("é", None), ("a", b"")] if number % 3 == 0 else []
        yield number % 3, key, value, headers, start_ms + number * 1000


def test_rows_equal_what_kafka_python_reads(load, topic, produce, kafka_python_rows):
    for codec in CODECS:
        produce(mixed_records(400), **({"compression.type": codec} if codec else {}))
    expected = kafka_python_rows(topic)
    assert len(expected) == 400 * len(CODECS)
    assert as_client_rows(load(subscribe=topic, includeHeaders="true")) == expected


def test_the_schema_is_the_kafka_connectors(load, topic):
    from pyspark.sql.types import _parse_datatype_string

    assert load(subscribe=topic).schema == _parse_datatype_string(COLUMNS)
    with_headers = COLUMNS + ", headers array<struct<key: string, value: binary>>"
    frame = load(subscribe=topic, includeHeaders="true")
    assert frame.schema == _parse_datatype_string(with_headers)


def test_an_empty_topic_is_an_empty_frame(load, topic):
    assert load(subscribe=topic).count() == 0


def test_offsets_are_read_to_the_record_also_inside_of_batches(load, topic, produce):
    produce([(0, None, f"{n}", [], 0) for n in range(1000)], **{"linger.ms": 200})
    frame = load(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 123, "1": -2, "2": -2}}),
        endingOffsets=json.dumps({topic: {"0": 457, "1": -1, "2": -1}}),
    )
    assert sorted(row.offset for row in frame.collect()) == list(range(123, 457))
    assert sorted(int(row.value.decode()) for row in frame.collect()) == list(range(123, 457))


def test_assign_reads_the_partitions_it_names(load, topic, produce):
    produce(mixed_records(30))
    frame = load(assign=json.dumps({topic: [0, 2]}))
    assert {row.partition for row in frame.collect()} == {0, 2}


def test_columns_are_those_asked_for(load, topic, produce):
    produce(mixed_records(6))
    frame = load(subscribe=topic, columns="offset,value")
    assert frame.columns == ["offset", "value"]
    assert frame.count() == 6


def test_timestamps_bound_what_is_read(load, topic, produce):
    start_ms = int(time.time() * 1000) - 3_600_000
    produce([(n % 3, None, b"%d" % n, [], start_ms + n * 1000) for n in range(30)])
    frame = load(
        subscribe=topic, startingTimestamp=start_ms + 6_500, endingTimestamp=start_ms + 12_000
    )
    assert sorted(int(row.value.decode()) for row in frame.collect()) == list(range(7, 12))
    with pytest.raises(Exception, match=r"no record of .* is as new as"):
        load(subscribe=topic, startingTimestamp=start_ms + 40_000).collect()
    late = {"startingTimestamp": start_ms + 40_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert load(subscribe=topic, **late).count() == 0


def test_large_ranges_are_several_tasks(load, topic, produce):
    produce([(0, None, b"%d" % n, [], 0) for n in range(100)])
    assert load(subscribe=topic).rdd.getNumPartitions() == 1
    assert load(subscribe=topic, minPartitions=4).rdd.getNumPartitions() == 4
    frame = load(subscribe=topic, maxRecordsPerPartition=30)
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in frame.collect()) == list(range(100))


def test_small_ranges_share_a_task(load, topic, produce):
    produce([(n % 3, None, b"%d" % n, [], 0) for n in range(100)])
    frame = load(subscribe=topic, minRecordsPerPartition=60)
    assert frame.rdd.getNumPartitions() == 2
    rows = frame.collect()
    assert sorted(int(row.value) for row in rows) == list(range(100))
    for partition in range(3):
        offsets = [row.offset for row in rows if row.partition == partition]
        assert offsets == sorted(offsets)
    assert load(subscribe=topic, minRecordsPerPartition=1000).rdd.getNumPartitions() == 1


def test_a_pattern_names_topics(load, topic, produce):
    produce(mixed_records(9))
    assert load(subscribePattern=f"{topic[:-1]}.").count() == 9
    assert load(subscribePattern=topic[1:-1]).count() == 9
    assert load(subscribePattern=f"^{topic[:-1]}$").count() == 0


def test_offsets_that_the_log_does_not_hold_are_an_error_or_a_warning(load, topic, produce):
    produce([(0, None, b"v", [], 0) for _ in range(10)])
    beyond = {"endingOffsets": json.dumps({topic: {"0": 99, "1": 0, "2": 0}})}
    with pytest.raises(Exception, match=f"LogRewound.*{topic}-0: offset 99 is beyond the log"):
        load(subscribe=topic, **beyond).collect()
    assert load(subscribe=topic, failOnDataLoss="false", **beyond).count() == 10


def test_several_topics(load, topic, produce, target):
    from confluent_kafka.admin import AdminClient, NewTopic

    other = topic + "-other"
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(other, 1, 1)])[other].result(30)
    produce(mixed_records(10))
    assert {row.topic for row in load(subscribe=f"{topic},{other}").collect()} == {topic}


def test_many_rows_of_a_kilobyte_cross_fetches(load, topic, produce):
    from pyspark.sql import functions as f

    produce([(n % 3, f"{n}", b"x" * 1000 + b"%d" % n, [], 0) for n in range(20_000)])
    row = (
        load(subscribe=topic)
        .agg(
            f.count("*").alias("rows"),
            f.count_distinct("value").alias("values"),
            f.sum(f.length("value")).alias("size"),
        )
        .first()
    )
    size = 20_000 * 1000 + sum(len(str(n)) for n in range(20_000))
    assert (row.rows, row["values"], row["size"]) == (20_000, 20_000, size)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"subscribe": "no-such-topic-here"}, "no-such-topic-here"),
        ({"assign": '{"no-such-topic-here": [0]}'}, "no-such-topic-here"),
        ({"subscribe": "x", "zebra": "1"}, "unknown option 'zebra'"),
        ({}, "exactly one of the options subscribe"),
    ],
)
def test_a_wrong_question_is_one_clear_error(load, options, why):
    with pytest.raises(Exception, match=why) as caught:
        load(**options).collect()
    assert "Traceback" not in str(caught.value)


def test_asking_does_not_create_the_topic(load, target):
    from confluent_kafka.admin import AdminClient

    with pytest.raises(Exception, match="never-created"):
        load(subscribe="never-created").collect()
    assert "never-created" not in AdminClient({"bootstrap.servers": target.bootstrap}).list_topics(
        timeout=30
    ).topics  # fmt: skip


def test_a_partition_that_is_not_there_is_named(load, topic):
    with pytest.raises(Exception, match=f"{topic}-7"):
        load(assign=json.dumps({topic: [7]})).collect()


def test_an_unreachable_broker_is_told_soon(spark):
    reader = spark.read.format("ottla").option("subscribe", "t")
    begin = time.monotonic()
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        reader.option("kafka.bootstrap.servers", "127.0.0.1:1").load().collect()
    assert time.monotonic() - begin < 30


def test_a_query_is_planned_while_the_broker_starts(ottla_server_factory, topic_name):
    """As the page says of fetchOffset.numRetries: a refused connection is not the end."""
    import socket
    import threading

    from ottla.spark.option_table import Use
    from ottla.spark.options import parse_options
    from ottla.spark.planning.plan import plan_ranges
    from tools.kafka_peer import free_port
    from tools.wire_client import WireClient

    server = ottla_server_factory(begin=False)
    server._asked_port = free_port()
    server.start()
    with WireClient(server.bootstrap) as wire:
        wire.create_topic(topic_name, 2)
    server.kill9()
    given = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic_name}
    options = parse_options({**given, "fetchOffset.numRetries": "120"}, Use.BATCH)
    with socket.socket() as probe:
        assert probe.connect_ex((server.host, server.port)) != 0
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        assert len(plan_ranges(options)) == 2
    finally:
        starting.join()


def test_a_broker_restarted_in_the_middle_of_a_task_loses_and_doubles_nothing(
    ottla_server_factory, topic_name
):
    """The task's own loop, without a session: a fetch, kill -9, a start on the same port, go on."""
    from confluent_kafka import Producer

    from ottla.client.blocking.cluster import BlockingClient
    from ottla.spark.connection import client_settings
    from ottla.spark.offsets import OffsetRange
    from ottla.spark.reading.read import fetch_ranges
    from tools.kafka_peer import free_port

    count = 8_000  # of a kilobyte: two fetches at least
    server = ottla_server_factory(begin=False)
    server._asked_port = free_port()
    server.start()
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic_name, b"%d " % number + b"x" * 1000)
    assert producer.flush(30) == 0

    settings = client_settings({"bootstrap.servers": server.bootstrap})
    offsets = []
    with BlockingClient(settings) as client:
        wanted = [OffsetRange(topic_name, 0, 0, count)]
        for batch in fetch_ranges(client, wanted, columns=("offset", "value")):
            if not offsets:
                server.kill9()
                server.start()
            offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(count))


JSON_VALUES = (
    '{"a":1,"s":"x","d":1.5,"t":"2024-01-02T03:04:05Z","l":[1,2],"n":{"b":true}}', None, "", "  ",
    "null", "{}", "[]", "{", '{"a":"1"}', '{"a":1.0}', '{"s":1.50}', '{"s":{"x": [1, 2.5]}}',
    '{"d":"NaN"}', '{"t":"2024-01-02"}', '{"t":1700000000}', '{"t":"x"}', '{"l":[1,"x"]}',
    '{"n":{"b":"x"}}', '{"a":1}{"a":2}', '{"a":1,"a":2}', '{"A":5}', '{"s":"a\nb"}',
    '{"dt":"2024-02-30"}', '{"dec":12.345}', '{"dec":123456789}', '{"i":5,"a":"bad","s":"ok"}',
    '{"ntz":"2024-01-02T03:04:05"}', '{"a":01}', '{"m":{"k":1,"j":null}}', '{"bin":"AQI="}',
)  # fmt: skip
JSON_SCHEMA = (
    "a bigint, s string, d double, t timestamp, l array<bigint>, n struct<b:boolean>, dt date,"
    " dec decimal(8,2), i int, ntz timestamp_ntz, _corrupt_record string"
)


@pytest.mark.parametrize(
    "schema", [JSON_SCHEMA, JSON_SCHEMA + ", m map<string,bigint>, bin binary"]
)
def test_json_values_are_what_from_json_makes_of_them(load, topic, produce, schema):
    from pyspark.sql import functions as f

    produce([(0, None, value, [], 0) for value in JSON_VALUES])
    typed = load(
        subscribe=topic, columns="offset,value", **{"value.format": "json", "value.schema": schema}
    )
    options = {"columnNameOfCorruptRecord": "_corrupt_record", "timeZone": "UTC"}
    theirs = load(subscribe=topic, columns="offset,value").select(
        "offset", f.from_json(f.col("value").cast("string"), schema, options).alias("value")
    )
    assert typed.schema == theirs.schema
    pairs = zip(typed.sort("offset").collect(), theirs.sort("offset").collect(), strict=True)
    differences = [(mine, other) for mine, other in pairs if repr(mine) != repr(other)]
    assert not differences


def test_malformed_json_is_dropped_or_ends_the_query_as_the_mode_says(load, topic, produce):
    produce([(0, None, value, [], 0) for value in ('{"a":1}', "{", '{"a":3}')])
    options = {"subscribe": topic, "value.format": "json", "value.schema": "a int"}
    rows = load(**options, mode="DROPMALFORMED").select("offset", "value.a").collect()
    assert [tuple(row) for row in rows] == [(0, 1), (2, 3)]
    with pytest.raises(Exception, match=f"{topic}-0 at offset 1: malformed JSON value"):
        load(**options, mode="FAILFAST").collect()
