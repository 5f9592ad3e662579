"""The answers to broken batches; those marked K are what Apache Kafka 4.3 gave on the wire."""

import struct

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch as b
from ottla.records.builder import build_batch
from ottla.records.compression import Codec, compress
from ottla.records.record import Record
from ottla.records.validate import (
    check_batch_records,
    check_produced_batch,
    decompressed_bytes_limit,
    frame_produced_batch,
)

LIMIT = 1_048_588
RECORDS = [Record(timestamp=10, key=b"k", value=b"v"), Record(timestamp=8, value=b"w")]
CORRUPT = ErrorCode.CORRUPT_MESSAGE
INVALID = ErrorCode.INVALID_RECORD
LARGE = ErrorCode.MESSAGE_TOO_LARGE


def good(**options):
    return build_batch(RECORDS, **options)


def with_field(position, form, value, *, data=None, summed=True):
    """Return a good batch with one header field overwritten, and its sum set right again."""
    data = bytearray(data or good())
    struct.pack_into(form, data, position, value)
    if summed:
        struct.pack_into(">I", data, b.CRC_POSITION, b.batch_crc(memoryview(data)))
    return data


def with_payload(payload, *, count=1, codec=0):
    data = good()[: b.HEADER_SIZE_BYTES] + payload
    struct.pack_into(">i", data, b.BATCH_LENGTH_POSITION, len(data) - b.LOG_OVERHEAD_BYTES)
    struct.pack_into(">h", data, b.ATTRIBUTES_POSITION, codec)
    struct.pack_into(">i", data, b.LAST_OFFSET_DELTA_POSITION, count - 1)
    return with_field(b.RECORD_COUNT_POSITION, ">i", count, data=data)


def code(data, limit=LIMIT):
    with pytest.raises(KafkaError) as raised:
        check_produced_batch(memoryview(data), limit)
    assert raised.value.why
    return raised.value.code


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_of_each_codec_tells_what_it_holds(codec):
    data = good(codec=codec)
    info = check_produced_batch(memoryview(data), LIMIT)
    assert info.header == b.read_header(data)
    assert (info.min_timestamp, info.max_timestamp, info.first_null_key_index) == (8, 10, 1)


def test_what_kafka_accepts_we_accept():
    for data in (
        good(leader_epoch=77),
        good(producer_id=5, base_sequence=0),
        good(transactional=True),
        with_field(b.ATTRIBUTES_POSITION, ">h", b.DELETE_HORIZON_BIT),
        with_field(b.ATTRIBUTES_POSITION, ">h", -32768),
        with_field(b.BASE_TIMESTAMP_POSITION, ">q", -1),
    ):
        check_produced_batch(memoryview(data), LIMIT)


def test_a_wrong_max_timestamp_is_told_and_negative_times_count_as_none():
    data = with_field(b.MAX_TIMESTAMP_POSITION, ">q", 5)
    assert check_produced_batch(memoryview(data), LIMIT).max_timestamp == 10
    data = with_field(b.BASE_TIMESTAMP_POSITION, ">q", -5)
    info = check_produced_batch(memoryview(data), LIMIT)
    assert (info.min_timestamp, info.max_timestamp) == (-7, b.NO_TIMESTAMP)


@pytest.mark.parametrize("tail", [b"12345", bytes(11), bytes(good()[:40])])
def test_a_partial_batch_behind_the_only_one_is_dropped_as_by_kafka(tail):
    data = good()
    view, header = frame_produced_batch(memoryview(data + tail), LIMIT)
    assert (view, header.size_bytes) == (data, len(data))


FRAMES = {
    "K nothing": (b"", INVALID),
    "K four bytes": (b"1234", INVALID),
    "K cut": (good()[:-1], INVALID),
    "K length beyond the request": (with_field(8, ">i", 1000), INVALID),
    "K negative length": (with_field(8, ">i", -1), CORRUPT),
    "K length 5": (with_field(8, ">i", 5), CORRUPT),
    "K length 20": (with_field(8, ">i", 20), CORRUPT),
    "K length 48": (with_field(8, ">i", 48), CORRUPT),
    "K two batches": (good() + good(), INVALID),
    "K zeros behind": (good() + bytes(40), CORRUPT),
    "K magic 0": (with_field(16, ">b", 0), INVALID),
    "K magic 1": (with_field(16, ">b", 1), INVALID),
    "K magic 3": (with_field(16, ">b", 3), CORRUPT),
    "K magic -1": (with_field(16, ">b", -1), CORRUPT),
    "magic 3 behind": (good() + with_field(16, ">b", 3), CORRUPT),
    "K sum": (with_field(17, ">I", 1, summed=False), CORRUPT),
    "K sum before count": (with_field(57, ">i", 0, summed=False), CORRUPT),
    "K base offset": (good(base_offset=5), INVALID),
    "K count 0": (with_field(57, ">i", 0), INVALID),
    "K count -1": (with_field(57, ">i", -1), INVALID),
    "K count 1": (with_field(57, ">i", 1), INVALID),
    "K last offset delta": (with_field(23, ">i", 3), INVALID),
    "K no records": (with_payload(b""), INVALID),
    "no records, as the count says": (with_payload(b"", count=0), INVALID),
    "K control": (good(control=True), INVALID),
    "K producer without sequence": (good(producer_id=5, producer_epoch=0), INVALID),
    "codec 5": (with_field(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (with_field(21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "timestamps past 64 bits": (with_field(27, ">q", -(1 << 63)), INVALID),
}


@pytest.mark.parametrize("name", FRAMES)
def test_broken_frames_and_headers(name):
    data, expected = FRAMES[name]
    assert code(data) is expected


def test_too_large_is_told_before_a_wrong_sum_and_after_a_wrong_base_offset():
    data = good()
    assert code(data, len(data) - 1) is LARGE
    assert code(with_field(17, ">I", 1, summed=False), len(data) - 1) is LARGE
    assert code(good(base_offset=1), len(data) - 1) is INVALID
    check_produced_batch(memoryview(data), len(data))


def payloads(wire):
    one = wire.record()
    head = b"\0\0\0" + wire.field(b"k") + wire.field(b"v")
    yield one + b"\0", 1
    yield one + wire.record(1), 1
    yield one, 2
    yield b"\x7f" + one[1:], 1
    yield wire.raw_record(head + wire.varint(1_000_000)), 1
    yield wire.raw_record(head + wire.varint(-1)), 1
    yield wire.raw_record(head + wire.varint(1) + wire.varint(-1) + wire.varint(-1)), 1
    yield one + one, 2  # Kafka stores this one when it is not compressed


@pytest.mark.parametrize("codec", list(Codec))
def test_broken_records_of_each_codec(codec, wire):
    for payload, count in payloads(wire):
        data = with_payload(compress(codec, payload), count=count, codec=codec)
        assert code(data) is INVALID


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_payload_the_codec_cannot_read_is_an_invalid_record(codec, wire):
    whole = bytes(compress(codec, wire.record()))
    for payload in (b"garbage garbage garbage", whole[:-3], b""):
        assert code(with_payload(payload, codec=codec)) is INVALID


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_bomb_of_valid_records_is_too_large(codec, wire):
    data = with_payload(compress(codec, wire.record(value=bytes(2_000_000))), codec=codec)
    view, header = frame_produced_batch(memoryview(data), LIMIT)
    assert check_batch_records(view, header, 2_100_000).header is header
    with pytest.raises(KafkaError) as raised:
        check_batch_records(view, header, 2_000_000)
    assert raised.value.code is LARGE


def test_timestamps_past_64_bits_are_refused(wire):
    data = with_payload(wire.record(timestamp=1))
    assert code(with_field(b.BASE_TIMESTAMP_POSITION, ">q", (1 << 63) - 1, data=data)) is INVALID
    data = with_field(b.BASE_TIMESTAMP_POSITION, ">q", (1 << 63) - 2, data=data)
    assert check_produced_batch(memoryview(data), LIMIT).max_timestamp == (1 << 63) - 1


def test_the_bound_against_bombs():
    assert decompressed_bytes_limit(LIMIT) == 64 * LIMIT
    assert decompressed_bytes_limit(1000) == 64 << 20
