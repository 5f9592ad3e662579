"""Rows to batches: how full they are, where they go, how much memory they take."""

from dataclasses import replace

import pytest

pa = pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

from ottla.client.wire.settings import ClientSettings  # noqa: E402
from ottla.client.wire.view import PartitionView, TopicView  # noqa: E402
from ottla.env.rng import SeededRng  # noqa: E402
from ottla.errors import ErrorCode  # noqa: E402
from ottla.ids import NULL_TOPIC_ID  # noqa: E402
from ottla.records.batch import set_producer  # noqa: E402
from ottla.records.compression import Codec  # noqa: E402
from ottla.records.decode import decode_batches  # noqa: E402
from ottla.spark.writing.rows import RowError  # noqa: E402
from ottla.spark.writing.write import RowsWriter  # noqa: E402
from ottla.spark.writing.write_settings import WriteOptions  # noqa: E402


class Sender:
    """Keeps the batches."""

    def __init__(self, partition_count):
        self.partition_count = partition_count
        self.grows_to = None
        self.smallest_refused_bytes = None
        self.batches = []
        self.written = {}
        self.is_closed = False

    def topic(self, name, *, again=False):
        if again and self.grows_to:
            self.partition_count = self.grows_to
        partitions = {
            number: PartitionView(number, 1, 0, (1,), (1,), ErrorCode.NONE)
            for number in range(self.partition_count)
        }
        return TopicView(name, NULL_TOPIC_ID, False, ErrorCode.NONE, partitions)

    def send(self, partition, data, size_bytes):
        self.batches.append((partition, bytes(memoryview(data)[:size_bytes])))

    def flush(self):
        pass

    def close(self):
        self.is_closed = True

    def values(self, partition=None):
        found = []
        for where, data in self.batches:
            view = bytearray(data)
            set_producer(view, -1, -1, -1)
            for batch in decode_batches(memoryview(view), 1 << 30):
                if partition is None or where.partition == partition:
                    found += [record.value for record in batch.records]
        return found


@pytest.fixture
def make():
    def writer(partition_count=1, **options):
        sender = Sender(partition_count)
        settings = WriteOptions(topic="t", **options)
        made = RowsWriter(ClientSettings(), settings, sender=sender, rng=SeededRng(1))
        return made, sender

    return writer


def rows(values, **columns):
    return pa.record_batch({"value": pa.array(values, pa.binary()), **columns})


def test_batches_are_filled_over_many_sets_of_rows_and_not_beyond_their_size(make):
    writer, sender = make(batch_bytes=1000)
    values = [b"%03d" % number * 30 for number in range(200)]
    for start in range(0, 200, 3):
        writer.write(rows(values[start : start + 3]))
    writer.finish()
    assert sender.values() == values
    sizes = [len(data) for _, data in sender.batches]
    assert all(900 < size <= 1000 for size in sizes[:-1])


def test_rows_without_key_take_turns_by_the_batch(make):
    writer, sender = make(3, batch_bytes=1000)
    writer.write(rows([bytes(88)] * 90))
    writer.finish()
    counts = [len(sender.values(partition)) for partition in range(3)]
    assert counts == [30, 30, 30]


def test_a_row_larger_than_a_batch_goes_alone(make):
    writer, sender = make(batch_bytes=1000)
    values = [b"a", b"b" * 5000, b"c", b"d"]
    writer.write(rows(values))
    writer.finish()
    assert sender.values() == values
    assert len(sender.batches) == 3


def test_a_row_larger_than_a_request_is_refused(make):
    writer, sender = make(batch_bytes=1000, record_bytes_max=5000)
    with pytest.raises(
        RowError, match=r"t-0: .*value of 5000 bytes.* 5\d\d\d bytes.*max.request.size.*5000"
    ):
        writer.write(rows([b"a", b"b" * 5000]))
    assert sender.batches == []


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_buffers_are_used_again_only_when_they_are_free(make, codec):
    writer, sender = make(batch_bytes=300_000, codec=codec)
    values = [bytes([number]) * 1000 for number in range(250)] * 8
    for start in range(0, 2000, 100):
        writer.write(rows(values[start : start + 100]))
    writer.finish()
    assert sender.values() == values


def test_memory_is_bounded_with_many_partitions(make):
    sending = WriteOptions().sending.__class__(buffer_bytes=1 << 20)
    writer, sender = make(2000, batch_bytes=900_000, sending=sending)
    for number in range(40):
        where = pa.array([(number * 500 + index) % 2000 for index in range(500)], pa.int32())
        writer.write(rows([bytes(100)] * 500, partition=where))
        held = sum(
            filling.size_bytes
            for topic in writer._topics.values()
            for filling in topic.filling.values()
        )
        assert held <= 1 << 19
    writer.finish()
    assert len(sender.values()) == 20_000


def test_batches_shrink_when_a_broker_refused_one(make):
    writer, sender = make(batch_bytes=8000)
    sender.smallest_refused_bytes = 4000
    writer.write(rows([bytes(100)] * 200))
    writer.finish()
    assert max(len(data) for _, data in sender.batches) <= 2000


def test_a_partition_that_was_added_meanwhile_is_found(make):
    writer, sender = make(2)
    sender.grows_to = 4
    where = pa.array([0, 3, 1], pa.int32())
    writer.write(rows([b"a", b"b", b"c"], partition=where))
    writer.finish()
    assert sender.values(3) == [b"b"]


def test_a_time_before_1970_is_refused(make):
    writer, _ = make(2)
    times = pa.array([0, -1], pa.timestamp("us", tz="UTC"))
    with pytest.raises(RowError, match=r"1970.*value of 7 bytes"):
        writer.write(rows([b"a", b"problem"], timestamp=times))


@pytest.mark.parametrize(
    "pairs", [[None], [{"key": None, "value": b"v"}], [{"key": "k", "value": b"v"}, None]]
)
def test_a_header_without_a_name_is_refused(make, pairs):
    writer, _ = make()
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with pytest.raises(RowError, match="header"):
        writer.write(rows([b"a"], headers=pa.array([pairs], kind)))


def test_the_end_closes_connections_also_after_an_error(make):
    writer, sender = make()
    writer.finish()
    assert sender.is_closed


def test_rows_of_several_topics_each_find_theirs():
    sender = Sender(1)
    writer = RowsWriter(ClientSettings(), WriteOptions(), sender=sender)
    names = pa.array(["a", "b", "a", "c", "b"])
    writer.write(rows([b"1", b"2", b"3", b"4", b"5"], topic=names).slice(1))
    writer.finish()
    found = {where.topic: data for where, data in sender.batches}
    assert set(found) == {"a", "b", "c"}
    assert sorted(sender.values()) == [b"2", b"3", b"4", b"5"]


DAY_MS = 24 * 3_600_000


class At:
    """A clock that stands."""

    def wall_ms(self):
        return 100 * DAY_MS


def times(make, ages_days, **options):
    """The timestamps that rows of these ages are written with, in days."""
    writer, sender = make(**options)
    writer._clock = At()
    stamps = pa.array(
        [None if age is None else (100 - age) * DAY_MS * 1000 for age in ages_days],
        pa.timestamp("us", tz="UTC"),
    )
    writer.write(rows([b"v"] * len(ages_days), timestamp=stamps))
    writer.finish()
    (batch,) = decode_batches(memoryview(bytearray(sender.batches[0][1])), 1 << 30, check_crc=False)
    return [record.timestamp // DAY_MS for record in batch.records]


def test_rows_with_old_timestamps_are_told_of_once(make, monkeypatch, caplog):
    """A query that wrote by the Kafka connector had the time of writing; retention takes these."""
    monkeypatch.setattr("ottla.spark.writing.write._NOTED", [])
    assert times(make, [1, 50]) == [99, 50]
    assert times(make, [None, 50]) == [100, 50]
    assert not caplog.records
    assert times(make, [30, 1]) == [70, 99]
    assert "rows are 30 days old" in caplog.text
    times(make, [30, 1])
    assert len(caplog.records) == 1


def test_the_column_timestamp_is_left_alone_where_that_is_asked_for(make, monkeypatch, caplog):
    monkeypatch.setattr("ottla.spark.writing.write._NOTED", [])
    assert times(make, [30, 1], ignores_timestamp=True) == [100, 100]
    assert not caplog.records


def test_a_topic_whose_name_is_no_text_is_told_with_its_bytes(make):
    writer, _ = make()
    writer._options = replace(writer._options, topic=None)
    topics = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(RowError, match=r"a topic whose name is no UTF-8: b'\\xff'"):
        writer.write(rows([b"v", b"w"], topic=topics))
