"""Columns of fetched batches: what is left out, what is refused, and buffers used again."""

import struct
from array import array
from pickle import PickleBuffer

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch as b
from ottla.records.batch import TimestampType, batch_crc, patch_offsets
from ottla.records.builder import build_batch
from ottla.records.columnar import columns as kernel
from ottla.records.columnar import scope as fields
from ottla.records.columnar.decoder import ColumnDecoder
from ottla.records.columnar.scope import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from ottla.records.compression import Codec
from ottla.records.record import Record


def make(values, offset=0, *, key=b"k", headers=(), timestamp=5, **options):
    records = [Record(0, timestamp, key=key, value=value, headers=headers) for value in values]
    batch = build_batch(records, **options)
    patch_offsets(batch, offset, 3)
    return batch


def values_of(filled):
    ends, data = filled.value.ends, bytes(filled.value.data)
    return [data[ends[n] : ends[n + 1]] for n in range(filled.rows)]


def decode(data, wanted=KEY | VALUE | OFFSET, look=values_of, **options):
    """What ``look`` sees in each handful of columns."""
    decoder = ColumnDecoder(wanted, **options)
    seen = [look(each) for each in decoder.decode(memoryview(data), 0, 1 << 62)]
    rest = decoder.rest()
    return seen if rest is None else [*seen, look(rest)]


def refusal(data, wanted=KEY | VALUE | OFFSET, **options):
    with pytest.raises(KafkaError) as raised:
        decode(data, wanted, **options)
    return raised.value


def resummed(batch):
    struct.pack_into(">I", batch, b.CRC_POSITION, batch_crc(memoryview(batch)))
    return batch


def test_columns_that_nobody_wants_are_empty():
    (filled,) = decode(make([b"a", b"bc"]), VALUE, look=lambda each: each)
    assert values_of(filled) == [b"a", b"bc"]
    assert len(filled.key.data) == len(filled.offset) == len(filled.timestamp) == 0
    assert filled.headers is None


def test_a_batch_is_handed_over_when_it_is_full_of_bytes_or_of_rows():
    data = make([b"x" * 10] * 9)
    assert [len(each) for each in decode(data, VALUE, target_bytes=30)] == [3, 3, 3]
    assert [len(each) for each in decode(data, rows_max=4)] == [4, 4, 1]


@pytest.mark.parametrize("codec", Codec)
def test_a_record_larger_than_the_buffers_gets_larger_ones(codec):
    big = bytes(range(256)) * 40
    headers = tuple((f"h{n}", None) for n in range(100))
    data = make([b"a", big, b"b"], codec=codec, headers=headers)
    seen = decode(
        data,
        VALUE | HEADERS,
        look=lambda each: (*values_of(each), each.headers.total),
        target_bytes=100,
        rows_max=2,
    )
    assert seen == [(b"a", 100), (big, 100), (b"b", 100)]


def test_rows_gather_over_fetches_until_asked_for():
    decoder = ColumnDecoder(VALUE)
    assert list(decoder.decode(memoryview(make([b"a"])), 0, 9)) == []
    assert list(decoder.decode(memoryview(make([b"b"], 1)), 1, 9)) == []
    assert values_of(decoder.rest()) == [b"a", b"b"]
    assert decoder.rest() is None


def test_what_is_kept_stays_as_it_is_while_more_is_decoded():
    decoder = ColumnDecoder(KEY | VALUE, target_bytes=8)
    data = b"".join(make([b"%07d " % n], n, key=None if n % 2 else b"k") for n in range(9))
    kept = [
        (PickleBuffer(each.value.data), each.key.bits and PickleBuffer(each.key.bits))
        for each in decoder.decode(memoryview(data), 0, 9)
    ]
    assert [bytes(values) for values, _ in kept] == [b"%07d " % n for n in range(9)]
    assert [bits and bytes(bits) for _, bits in kept] == [None, b"\xfe"] * 4 + [None]


def test_what_nobody_keeps_is_used_again_without_its_nulls():
    decoder = ColumnDecoder(KEY | VALUE)
    seen = set()
    for n in range(9):
        assert (
            list(decoder.decode(memoryview(make([b"v"] * 9, key=None if n % 2 else b"k")), 0, 9))
            == []
        )
        filled = decoder.rest()
        assert filled.key.nulls == (9 if n % 2 else 0)
        if filled.key.bits is not None:
            assert filled.key.bits[0] == 0
        seen.add(id(filled.value.data.obj))
        del filled
    assert len(seen) == 1


def test_the_batch_and_the_reason_are_named():
    data = make([b"value"], 41)
    data[-2] ^= 1
    error = refusal(make([b"a"], 40) + data)
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert error.why == "batch at offset 41: wrong CRC32C"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_corrupt_before_it_goes_off(codec):
    error = refusal(make([bytes(1 << 20)], 7, codec=codec), decompressed_bytes_max=1 << 16)
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert "batch at offset 7" in error.why
    assert "more than 65536 bytes" in error.why


def test_what_is_no_codec_is_named():
    data = make([b"v"], 3)
    data[b.ATTRIBUTES_POSITION + 1] |= 7
    error = refusal(resummed(data))
    assert error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert error.why.startswith("batch at offset 3: compression type 7")


FAR = 1_700_000_000_000_000_000
"""Nanoseconds where milliseconds belong."""


@pytest.mark.parametrize(
    "times",
    [
        [5, FAR, 6],
        [FAR, 5],  # then the difference to the first is beyond, too
        [(1 << 63) - 1, 7],
        [7, -9_223_372_036_854_776, -9_223_372_036_854_775],
        [9_223_372_036_854_776, 9_223_372_036_854_775],
        [-(1 << 62), -1, 8],
    ],
)
def test_a_time_beyond_microseconds_is_null_and_stands_in_no_others_way(times):
    records = [Record(number, time, value=b"v") for number, time in enumerate(times)]
    data = memoryview(build_batch(records))
    decoder = ColumnDecoder(TIMESTAMP | OFFSET)
    assert not list(decoder.decode(data, 0, 99))
    filled = decoder.rest()
    bits = filled.timestamp_bits[0]
    found = [filled.timestamp[row] if bits >> row & 1 else None for row in range(filled.rows)]
    most = 9_223_372_036_854_775
    assert found == [time * 1000 if abs(time) <= most else None for time in times]
    assert filled.timestamp_nulls == found.count(None)
    del filled
    assert not list(decoder.decode(memoryview(make([b"v"], offset=9)), 9, 10))
    assert decoder.rest().timestamp_bits is None, "buffers that are used again hold no nulls"


def test_a_time_of_the_log_beyond_microseconds_is_null_too():
    data = make([b"a", b"b"], timestamp=FAR, timestamp_type=TimestampType.LOG_APPEND_TIME)
    decoder = ColumnDecoder(TIMESTAMP)
    assert not list(decoder.decode(memoryview(data), 0, 9))
    assert decoder.rest().timestamp_nulls == 2
    assert decode(data, VALUE) == [[b"a", b"b"]]


@pytest.mark.parametrize(
    ("position", "form", "value", "why"),
    [
        (b.RECORD_COUNT_POSITION, ">i", -1, "as many records as it says"),
        (b.RECORD_COUNT_POSITION, ">i", 2, "as many records as it says"),
        (b.RECORD_COUNT_POSITION, ">i", 0, "bytes follow the last record"),
        (b.LAST_OFFSET_DELTA_POSITION, ">i", -1, "its offsets are impossible"),
        (b.BATCH_LENGTH_POSITION, ">i", -1, "its length or its magic"),
        (b.MAGIC_POSITION, ">b", 3, "its length or its magic"),
        (0, ">q", -1, "its offsets are impossible"),
        (0, ">q", 2**63 - 1, "its offsets are impossible"),
    ],
)
def test_a_header_that_cannot_be_is_refused(position, form, value, why):
    data = make([b"v"])
    struct.pack_into(form, data, position, value)
    if position != b.BATCH_LENGTH_POSITION:
        resummed(data)
    assert why in refusal(data).why


def test_buffers_smaller_than_scope_says_are_never_written_to():
    scope = [0] * fields.SCOPE_SIZE
    scope[fields.WANTED], scope[fields.ROWS_MAX] = KEY, 100
    nothing, bits = array("i", [0]), bytearray(1)
    buffers = [nothing, bits, bits] * 2 + [array("q")] * 2 + [bits] + [nothing] * 2
    buffers += [bits, nothing, bits, nothing, bits, bits]
    filler = kernel.Filler(array("q", scope), tuple(buffers))
    with pytest.raises(ValueError, match="smaller than scope says"):
        filler.fill(bytes(make([b"v"])))
