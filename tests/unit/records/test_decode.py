import struct

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch as b
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.decode import decode_batches
from ottla.records.record import Record

RECORDS = [Record(0, 5, key=b"k", value=b"v"), Record(1, 7, headers=(("ü", b"x"), ("e", None)))]


def with_payload(payload, count):
    data = build_batch(RECORDS)[: b.HEADER_SIZE_BYTES] + payload
    struct.pack_into(">i", data, b.BATCH_LENGTH_POSITION, len(data) - b.LOG_OVERHEAD_BYTES)
    struct.pack_into(">i", data, b.RECORD_COUNT_POSITION, count)
    struct.pack_into(">I", data, b.CRC_POSITION, b.batch_crc(memoryview(data)))
    return data


def fault(data, **options):
    with pytest.raises(KafkaError) as raised:
        list(decode_batches(data, 1 << 20, **options))
    return raised.value


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_and_outlive_the_buffer(codec):
    data = build_batch(RECORDS, codec=codec)
    ((header, records),) = list(decode_batches(data, 1 << 20))
    data[:] = bytes(len(data))
    assert records == RECORDS
    assert header.codec == codec


def test_a_partial_trailing_batch_is_left_out():
    one, two = build_batch(RECORDS), build_batch(RECORDS, base_offset=2)
    for cut in range(len(two)):
        assert len(list(decode_batches(one + two[:cut], 0))) == 1
    assert [d.header.base_offset for d in decode_batches(one + two, 0)] == [0, 2]


def test_with_log_append_time_every_record_has_the_batchs_time():
    data = build_batch(RECORDS)
    b.set_log_append_time(data, 99)
    ((_, records),) = list(decode_batches(data, 0))
    assert {(r.timestamp, r.timestamp_type) for r in records} == {
        (99, b.TimestampType.LOG_APPEND_TIME)
    }


def test_an_emptied_batch_that_compaction_kept_has_no_records():
    ((header, records),) = list(decode_batches(with_payload(b"", 0), 0))
    assert (header.last_offset, records) == (1, [])


def test_the_sum_is_checked_unless_told_not_to():
    data = build_batch(RECORDS)
    data[-1] ^= 1
    data[-2] ^= 0x20
    assert fault(data).code is ErrorCode.CORRUPT_MESSAGE
    data = build_batch(RECORDS)
    data[b.CRC_POSITION] ^= 1
    assert len(list(decode_batches(data, 0, check_crc=False))) == 1


@pytest.mark.parametrize(
    ("position", "value"), [(8, b"\xff" * 4), (8, bytes(4)), (8, b"\0\0\0\x20"), (16, b"\3")]
)
def test_lengths_and_magics_that_nothing_has(position, value):
    data = build_batch(RECORDS)
    data[position : position + len(value)] = value
    assert fault(data).code is ErrorCode.CORRUPT_MESSAGE


def test_broken_records(wire):
    one = wire.record()
    head = b"\0\0\0" + wire.field(b"k") + wire.field(b"v")
    for payload, count in [
        (one, 2),
        (one, -1),
        (one, 1 << 30),
        (one + b"\0", 1),
        (b"\x7f" + one[1:], 1),
        (wire.raw_record(head[:-1] + wire.varint(50)), 1),
        (wire.raw_record(head + wire.varint(1 << 30)), 1),
        (wire.raw_record(head + wire.varint(-1)), 1),
        (wire.raw_record(head + b"\2\1\1"), 1),
        (wire.raw_record(head + b"\0\0"), 1),
        (b"\xff" * 20, 1),
    ]:
        error = fault(with_payload(payload, count))
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert error.why


def test_a_negative_length_is_null_as_in_javas_clients(wire):
    body = b"\0\0\0" + wire.varint(-2) + wire.field(b"v") + b"\0"
    ((_, (record,)),) = list(decode_batches(with_payload(wire.raw_record(body), 1), 0))
    assert (record.key, record.value) == (None, b"v")


def test_a_header_name_that_is_not_utf8_is_shown_as_java_shows_it(wire):
    payload = wire.record(headers=[(b"\xff", b"")])
    ((_, (record,)),) = list(decode_batches(with_payload(payload, 1), 0))
    assert record.headers == (("\ufffd", b""),)
