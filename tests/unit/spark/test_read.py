"""What becomes of fetched bytes: exactly the rows of the range, once, or an error that says why."""

import pytest

pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.columns import TYPES, ArrowDecoder
from ottla.spark.offsets import OffsetRange
from ottla.spark.read import EMPTY_FETCHES_MAX, fetch_range

CONTROL = 0x20 | 0x10


def offsets(batches):
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def read(client, start, end):
    wanted = OffsetRange("t", 1, start, end)
    return list(fetch_range(client, wanted, columns=("offset", "value")))


def decode(data, wanted):
    """The only Arrow batch that ``data`` gives, with every column, and where to read on."""
    decoder = ArrowDecoder(tuple(TYPES))
    assert list(decoder.decode(memoryview(data), wanted)) == []
    return decoder.rest(), decoder.next_offset


def test_every_column_says_what_the_record_says(batch):
    data = batch(7, [b"v", None], timestamp=1_234, headers=[(b"h", b"1"), (b"h", None)])
    wanted = OffsetRange("t", 3, 0, 100)
    rows, after = decode(data, wanted)
    assert after == 9
    assert rows.drop_columns(["timestamp"]).to_pylist() == [
        {
            "key": b"k",
            "value": value,
            "topic": "t",
            "partition": 3,
            "offset": offset,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        }
        for offset, value in ((7, b"v"), (8, None))
    ]
    assert rows.column("timestamp").cast("int64").to_pylist() == [1_234_000, 1_235_000]


def test_no_headers_are_null_as_in_the_kafka_connector(batch):
    wanted = OffsetRange("t", 3, 0, 100)
    rows, _ = decode(batch(0, [b"v"]), wanted)
    assert rows.column("headers").to_pylist() == [None]


def test_log_append_time_is_the_batchs_for_every_record(batch):
    data = batch(0, [b"a", b"b", b"c"], attributes=0x08, timestamp=5)
    rows, _ = decode(data, OffsetRange("t", 0, 0, 9))
    assert rows.column("timestampType").to_pylist() == [1, 1, 1]
    assert rows.column("timestamp").cast("int64").to_pylist() == [7000, 7000, 7000]


def test_rows_before_and_after_the_range_are_left_out(batch, scripted_client):
    client = scripted_client(batch(0, [b"%d" % n for n in range(10)]))
    assert offsets(read(client, 3, 6)) == [3, 4, 5]
    assert client.asked == [3]


def test_a_range_over_several_fetches_is_read_once(batch, scripted_client):
    first = batch(0, [b"a"] * 4) + batch(4, [b"b"] * 4)[:30]  # the second one is cut short
    client = scripted_client(first, batch(4, [b"b"] * 4) + batch(8, [b"c"] * 4))
    assert offsets(read(client, 1, 11)) == list(range(1, 11))
    assert client.asked == [1, 4]


def test_markers_of_transactions_are_no_rows_but_move_on(batch, scripted_client):
    marker = batch(2, [b"\0\0\0\0\0\0"], attributes=CONTROL)
    client = scripted_client(batch(0, [b"a", b"b"]) + marker, batch(3, [b"c"]))
    assert offsets(read(client, 0, 4)) == [0, 1, 3]


def test_a_range_of_markers_only_ends(batch, scripted_client):
    client = scripted_client(batch(5, [b"\0\0\0\0\0\0"], attributes=CONTROL))
    assert read(client, 5, 6) == []


def test_holes_of_compaction_are_skipped(batch, scripted_client):
    client = scripted_client(batch(2, [b"a"]) + batch(9, [b"b"]))
    assert offsets(read(client, 0, 10)) == [2, 9]


def test_one_fetch_of_many_bytes_is_several_arrow_batches(batch, scripted_client):
    big = [b"x" * (1 << 20)] * 5
    client = scripted_client(batch(0, big) + batch(5, big))
    assert [len(rows) for rows in read(client, 0, 10)] == [4, 4, 2]


def test_names_of_headers_that_are_no_utf8_are_read_as_java_reads_them(batch):
    data = batch(0, [b"v"], headers=[(b"\xff\xc3\xa9", b"1")]) + batch(1, [b"w"])
    rows, _ = decode(data, OffsetRange("t", 3, 0, 100))
    assert rows.column("headers").to_pylist() == [[{"key": "\ufffd\xe9", "value": b"1"}], None]


def test_what_comes_is_sound_by_arrows_own_check(batch):
    data = batch(0, [b"a", None, b""], headers=[(b"h", None)]) + batch(3, [b"w"], key=None)
    rows, _ = decode(data, OffsetRange("t", 3, 0, 100))
    rows.validate(full=True)
    assert rows.column("key").null_count == 1
    assert rows.column("value").null_count == 1


def test_a_flipped_bit_is_an_error_that_names_the_partition(batch, scripted_client):
    data = bytearray(batch(0, [b"value"]))
    data[-2] ^= 1
    with pytest.raises(KafkaError, match=r"CORRUPT_MESSAGE.*t-1 offsets \[0, 1\)") as raised:
        read(scripted_client(bytes(data)), 0, 1)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_data_that_went_away_is_no_silent_loss(scripted_client):
    client = scripted_client((ErrorCode.OFFSET_OUT_OF_RANGE, b""))
    with pytest.raises(KafkaError, match=r"t-1 offsets \[5, 9\): offset 5 is gone.*starts at 42"):
        read(client, 5, 9)


def test_any_other_answer_is_told(scripted_client):
    client = scripted_client((ErrorCode.TOPIC_AUTHORIZATION_FAILED, b""))
    with pytest.raises(KafkaError, match=r"TOPIC_AUTHORIZATION_FAILED.*t-1 offsets \[0, 9\)"):
        read(client, 0, 9)


def test_a_log_that_gives_nothing_more_ends_the_task(batch, scripted_client):
    client = scripted_client(batch(0, [b"a"]), b"")
    with pytest.raises(KafkaError, match=r"nothing came at offset 1; the log holds \[0, 100\)"):
        read(client, 0, 9)
    assert len(client.asked) == EMPTY_FETCHES_MAX + 2
