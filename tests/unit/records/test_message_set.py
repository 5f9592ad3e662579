"""MessageSet v0 and v1, written by hand from Kafka's documentation."""

import struct
import zlib

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import NO_TIMESTAMP, TimestampType
from ottla.records.compression import Codec, compress
from ottla.records.decode import decode_batches
from ottla.records.message_set import up_convert, xxhash32_short

LIMIT = 1 << 20


def field(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def entry(offset, key, value, *, magic, attributes=0, timestamp=5, crc=None):
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    body += field(key) + field(value)
    crc = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4, crc) + body


def wrapper(offset, inner, *, magic, codec, attributes=0, timestamp=50):
    value = bytes(compress(codec, inner))
    options = {"magic": magic, "attributes": codec | attributes, "timestamp": timestamp}
    return entry(offset, None, value, **options)


def decoded(data):
    return [r for batch in decode_batches(data, LIMIT) for r in batch.records]


def fault(data):
    with pytest.raises(KafkaError) as raised:
        decoded(data)
    return raised.value


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_entries(magic):
    data = entry(4, b"k", None, magic=magic) + entry(9, None, b"", magic=magic, timestamp=7)
    first, second = decoded(data + data[:20])
    assert (first.offset, first.key, first.value) == (4, b"k", None)
    assert (second.offset, second.key, second.value) == (9, None, b"")
    assert (first.timestamp, second.timestamp) == ((5, 7) if magic else (NO_TIMESTAMP,) * 2)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_wrappers_offsets_are_absolute_in_v0_and_relative_in_v1(codec):
    inner = b"".join(entry(n, None, b"%d" % n, magic=0) for n in (10, 11, 13))
    assert [r.offset for r in decoded(wrapper(13, inner, magic=0, codec=codec))] == [10, 11, 13]
    inner = b"".join(entry(n, None, b"%d" % n, magic=1, timestamp=n) for n in (0, 1, 3))
    records = decoded(wrapper(13, inner, magic=1, codec=codec))
    assert [(r.offset, r.timestamp) for r in records] == [(10, 0), (11, 1), (13, 3)]


def test_a_wrappers_log_append_time_is_that_of_all_inside():
    inner = entry(0, None, b"a", magic=1) + entry(1, None, b"b", magic=1)
    records = decoded(wrapper(8, inner, magic=1, codec=Codec.GZIP, attributes=8))
    assert [(r.timestamp, r.timestamp_type) for r in records] == [
        (50, TimestampType.LOG_APPEND_TIME)
    ] * 2


def test_lz4_of_old_producers_has_a_checksum_of_its_own():
    inner = entry(3, None, b"x" * 100, magic=0)
    frame = bytearray(compress(Codec.LZ4, inner))
    frame[6] = xxhash32_short(bytes(frame[:6])) >> 8 & 0xFF  # the magic number summed, too
    (record,) = decoded(entry(3, None, bytes(frame), magic=0, attributes=Codec.LZ4))
    assert record.value == b"x" * 100
    assert fault(entry(3, None, bytes(frame), magic=1, attributes=3)).code == 87


def test_xxhash32_of_its_specification():
    assert xxhash32_short(b"") == 0x02CC5D05
    assert xxhash32_short(b"a") == 0x550D7456
    assert xxhash32_short(b"abc") == 0x32D153FF


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_up_conversion_keeps_offsets_times_and_codec(magic, codec):
    inner = b"".join(entry(n, b"k", b"v", magic=magic, timestamp=9 - n) for n in (0, 1, 3))
    old = wrapper(3, inner, magic=magic, codec=codec, attributes=magic * 8) if codec else inner
    new = up_convert(old + old[:20], LIMIT)
    batches = list(decode_batches(new, LIMIT))
    wanted = decoded(old)
    if magic == 0:
        assert {record.timestamp_type for record in wanted} == {TimestampType.NO_TIMESTAMP_TYPE}
        wanted = [one._replace(timestamp_type=TimestampType.CREATE_TIME) for one in wanted]
    assert [r for d in batches for r in d.records] == wanted
    assert {(d.header.magic, d.header.codec) for d in batches} == {(2, codec)}
    assert len(batches) == (1 if codec else 3)


@pytest.mark.parametrize("magic", [0, 1])
def test_broken_entries(magic):
    good = entry(1, b"k", b"v", magic=magic)
    crc_less = {"magic": magic, "attributes": 0}
    for data in (
        entry(1, b"k", b"v", magic=magic, crc=1),
        good[:8] + struct.pack(">i", 12) + good[12:],
        good[:8] + struct.pack(">i", len(good) - 11) + good[12:] + b"\0",
        _summed(good[:-5] + struct.pack(">i", 9) + b"v"),
        _summed(good[:-5] + b"\0"),
        wrapper(1, b"", codec=1, magic=magic),
        wrapper(1, wrapper(1, good, codec=1, magic=magic), codec=1, magic=magic),
        wrapper(1, entry(1, b"k", b"v", magic=1 - magic), codec=1, magic=magic),
        entry(1, None, None, magic=magic, attributes=1),
    ):
        assert fault(data).code is ErrorCode.CORRUPT_MESSAGE, crc_less


def _summed(data):
    """Set size and sum right, so that only what is inside is wrong."""
    body = bytes(data[16:])
    return data[:8] + struct.pack(">iI", len(body) + 4, zlib.crc32(body)) + body
