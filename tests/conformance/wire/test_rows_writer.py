"""What the sink's writer sends is what other clients read; on Ottla and (``--target kafka``) Kafka.

kafka-python reads the topics back: every codec, nulls, headers, times, partitions, transactions.
"""

import random
import time

import pytest

pa = pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

from ottla.client.blocking.cluster import BlockingClient  # noqa: E402
from ottla.client.blocking.coordinators import BlockingCoordinators  # noqa: E402
from ottla.client.wire.partitioner import partition_of_key  # noqa: E402
from ottla.client.wire.settings import ClientSettings, parse_bootstrap  # noqa: E402
from ottla.errors import ErrorCode, KafkaError  # noqa: E402
from ottla.spark.writing.kept import kept_standing  # noqa: E402
from ottla.spark.writing.rows import HEADERS, RowError  # noqa: E402
from ottla.spark.writing.write import RowsWriter  # noqa: E402
from ottla.spark.writing.write_settings import read_write_settings  # noqa: E402

PARTITIONS = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def topic(wire, topic_name):
    wire.create_topic(topic_name, PARTITIONS)
    return topic_name


@pytest.fixture
def writer(target):
    made = []

    def make(topic=None, producer=None, **settings):
        texts = {name.replace("_", "."): text for name, text in settings.items()}
        servers = {"bootstrap.servers": target.bootstrap}
        made.append(RowsWriter(*read_write_settings(servers | texts, topic), producer))
        return made[-1]

    yield make
    for each in made:
        each.abort()


@pytest.fixture
def read(target):
    """All records of a topic in (partition, offset) order, by kafka-python."""
    from kafka import KafkaConsumer, TopicPartition

    def rows(topic, isolation_level="read_uncommitted"):
        consumer = KafkaConsumer(
            bootstrap_servers=target.bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
        )
        try:
            partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(partitions)
            found = []
            deadline = time.monotonic() + 40
            while any(consumer.position(p) < ends[p] for p in partitions):
                assert time.monotonic() < deadline
                for messages in consumer.poll(timeout_ms=500).values():
                    found += messages
            return sorted(found, key=lambda each: (each.partition, each.offset))
        finally:
            consumer.close()

    return rows


def mixed(count, seed=0):
    rng = random.Random(seed)
    now = int(time.time() * 1000)
    for number in range(count):
        key = None if number % 5 == 0 else b"k%d" % (number % 17)
        value = None if number % 11 == 0 else rng.randbytes(rng.randrange(200))
        headers = [("a", b"1"), ("\u00e9", None), ("a", b"")] if number % 3 == 0 else None
        moment = None if number % 13 == 0 else now - 1000 * number
        yield key, value, headers, moment


def arrow(rows, **columns):
    keys, values, headers, times = zip(*rows, strict=True)
    micros = [each and each * 1000 + 7 for each in times]
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(
                [
                    each and [{"key": name, "value": value} for name, value in each]
                    for each in headers
                ],
                HEADERS,
            ),
            "timestamp": pa.array(micros, pa.timestamp("us", tz="UTC")),
            **columns,
        }
    )


@pytest.mark.parametrize("codec", CODECS)
def test_other_clients_read_what_is_written(writer, read, topic, codec):
    rows = list(mixed(700))
    one = writer(topic, compression_type=codec, batch_size="8000")
    began = int(time.time() * 1000)
    for start in range(0, 700, 100):
        part = arrow(rows[start : start + 100])
        one.write(part.slice(0, 33))
        one.write(part.slice(33))
    written = one.finish()
    found = read(topic)
    assert sum(each.record_count for each in written.values()) == len(found) == 700
    for (name, partition), each in written.items():
        assert name == topic
        offsets = [message.offset for message in found if message.partition == partition]
        assert (each.first_offset, each.next_offset) == (offsets[0], offsets[-1] + 1)
    assert sorted(
        (m.key or b"", m.value or b"", m.value is None, [tuple(h) for h in m.headers])
        for m in found
    ) == sorted(
        (key or b"", value or b"", value is None, headers or []) for key, value, headers, _ in rows
    )
    given = sorted(m.timestamp for m in found if m.timestamp < began)
    assert given == sorted(moment for *_, moment in rows if moment)
    for message in found:
        if message.key is not None:
            assert message.partition == partition_of_key(message.key, PARTITIONS)
    keyed = [m.value for m in found if m.key == b"k3"]
    assert keyed == [value for key, value, _, _ in rows if key == b"k3"]


def test_tasks_that_share_a_producers_id_write_each_row_once(target, read, topic):
    """A stream's tasks in one worker: rows of a second one passed for the first's, sent again."""
    settings, options = read_write_settings({"bootstrap.servers": target.bootstrap}, topic)
    rows = [(b"k%d" % number, b"v%d" % number, None, None) for number in range(60)]
    ids = set()
    for start in range(0, 60, 10):
        with kept_standing(settings) as standing:
            one = RowsWriter(settings, options, standing=standing)
            one.write(arrow(rows[start : start + 10]))
            one.finish()
            ids.add(standing.identity.producer_id)
    found = read(topic)
    assert sorted(m.value for m in found) == sorted(value for _, value, _, _ in rows)
    assert len(ids) == 1
    for key in {m.key for m in found}:
        assert len([m for m in found if m.key == key]) == 1


def test_tasks_that_share_a_producers_id_find_a_topic_that_was_made_anew(target, read, wire, topic):
    settings, options = read_write_settings({"bootstrap.servers": target.bootstrap}, topic)
    for number in range(2):
        with kept_standing(settings) as standing:
            one = RowsWriter(settings, options, standing=standing)
            one.write(arrow([(b"k", b"v%d" % number, None, None)]))
            one.finish()
        if number == 0:
            asked = {"topic_names": [topic], "timeout": 10_000}
            assert wire.call("delete_topics", 5, **asked)["responses"][0]["error_code"] == 0
            wire.create_topic(topic, PARTITIONS)
    assert [m.value for m in read(topic)] == [b"v1"]


def test_columns_say_topic_and_partition(writer, read, wire, topic):
    other = topic + "-other"
    wire.create_topic(other, 1)
    rows = list(mixed(60))
    asked = pa.array([0 if n % 2 else (None if n % 3 else 2) for n in range(60)], pa.int32())
    names = pa.array([other if n % 2 else topic for n in range(60)])
    one = writer()
    one.write(arrow(rows, topic=names, partition=asked))
    written = one.finish()
    assert {name for name, _ in written} == {topic, other}
    assert [m.value for m in read(other)] == [row[1] for row in rows[1::2]]
    by_value = {m.value: m.partition for m in read(topic) if m.value}
    for index in range(0, 60, 6):
        if rows[index][1]:
            assert by_value[rows[index][1]] == 2


def test_rows_without_key_go_to_one_partition_at_a_time(writer, topic):
    one = writer(topic, batch_size="5000")
    values = pa.array([bytes(100)] * 300)
    one.write(pa.record_batch({"value": values}))
    counts = [each.record_count for each in one.finish().values()]
    assert len(counts) == PARTITIONS
    assert max(counts) - min(counts) < 60
    one = writer(topic)
    one.write(pa.record_batch({"value": values}))
    assert [each.record_count for each in one.finish().values()] == [300]


def test_an_unknown_topic_is_an_error_soon(writer, wire, target_kind):
    if target_kind == "kafka":
        pytest.skip("creates topics that are asked for")
    one = writer("no-such-topic!", max_block_ms="500")
    with pytest.raises(KafkaError, match="no-such-topic!"):
        one.write(pa.record_batch({"value": [b"v"]}))


def test_a_partition_that_is_not_there_names_the_row(writer, topic):
    asked = pa.array([0, 7], pa.int32())
    rows = pa.record_batch({"value": [b"v", b"w"], "key": [b"k", b"the-key"], "partition": asked})
    with pytest.raises(RowError, match=r"3 partitions.*not 7.*b'the-key'"):
        writer(topic).write(rows)


def test_a_row_that_is_too_large_is_named(writer, wire, topic):
    with pytest.raises(RowError, match=rf"{topic}-\d.*1\d{{6}} bytes as a batch.*max.request.size"):
        writer(topic).write(pa.record_batch({"value": [bytes(1_100_000)]}))
    one = writer(topic, max_request_size="3000000")
    one.write(pa.record_batch({"value": [bytes(1_100_000)], "key": [b"the-key"]}))
    with pytest.raises(KafkaError, match="b'the-key'") as raised:
        one.finish()
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_batches_too_large_for_the_topic_are_split(writer, read, wire, topic_name):
    wire.create_topic(topic_name, 1, **{"max.message.bytes": "20000"})
    values = [b"%05d" % number + bytes(95) for number in range(3000)]
    one = writer(topic_name)
    one.write(pa.record_batch({"value": values[:1500]}))
    one.write(pa.record_batch({"value": values[1500:]}))
    assert [each.record_count for each in one.finish().values()] == [3000]
    assert [message.value for message in read(topic_name)] == values


@pytest.mark.parametrize("version", [1, 2])
def test_rows_of_a_transaction_appear_with_its_commit(target, writer, read, topic, version):
    with BlockingClient(ClientSettings(parse_bootstrap(target.bootstrap))) as client:
        coordinators = BlockingCoordinators(client)
        for commit in (False, True):
            identity = coordinators.take_over(f"{topic}-id", 60_000)
            identity = identity._replace(transaction_version=version)
            tasks = [writer(topic, identity) for _ in range(2)]
            for partition, one in enumerate(tasks):
                where = pa.array([partition] * 50, pa.int32())
                values = [b"%d.%d" % (partition, number) for number in range(50)]
                one.write(pa.record_batch({"value": values, "partition": where}))
            assert [one.finish()[topic, n].record_count for n, one in enumerate(tasks)] == [50, 50]
            coordinators.end(identity, commit=commit)
    deadline = time.monotonic() + 20  # the markers follow the answer
    while len(found := read(topic, "read_committed")) < 100:
        assert time.monotonic() < deadline
    assert len(found) == 100
