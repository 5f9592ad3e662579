import struct
from zlib import compress as zlib_compress
from zlib import crc32

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.log.segment.scan import Walk
from ottla.records.batch_walk import next_offset
from ottla.records.builder import build_batch
from ottla.records.record import Record

NOW = 1_500_000_000_000


def entry(offset, value, *, magic=1, attributes=0, timestamp=NOW):
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp)
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def wrapper(last_offset, count, *, magic):
    first = last_offset - count + 1
    inner = [
        entry(at if magic else first + at, b"v%d" % at, magic=magic, timestamp=NOW + at)
        for at in range(count)
    ]
    payload = gzipped(b"".join(inner))
    return entry(last_offset, payload, magic=magic, attributes=1, timestamp=NOW + count - 1)


def gzipped(data):
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return head + zlib_compress(data)[2:-4] + struct.pack("<II", crc32(data), len(data))


def walk_over(data, *, verify_crc=False):
    disk = MemoryDisk()
    file = disk.open("/log", create=True)
    file.write_at(0, data)
    walk = Walk(file, 0, len(data), verify_crc=verify_crc)
    return list(walk), walk


NEW = bytes(build_batch([Record(value=b"new", timestamp=NOW)], base_offset=12))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("verify_crc", [False, True])
def test_a_walk_goes_over_every_format(magic, verify_crc):
    data = entry(4, b"a", magic=magic) + wrapper(9, 5, magic=magic) + NEW
    data += entry(13, b"", magic=magic)
    found, walk = walk_over(data, verify_crc=verify_crc)
    assert walk.stopped_by is None
    assert [(b.base_offset, b.last_offset, b.leader_epoch) for b in found] == [
        (4, 4, -1),
        (5, 9, -1),
        (12, 12, -1),
        (13, 13, -1),
    ]
    late = [NOW, NOW + 4] if magic else [-1, -1]
    assert [b.max_timestamp for b in found[:2]] == late
    assert walk.position == len(data)
    assert next_offset(memoryview(data), 0) == 14


@pytest.mark.parametrize("magic", [0, 1])
def test_any_wrong_byte_ends_the_walk(magic):
    good = entry(4, b"abc", magic=magic)
    for position in range(8, len(good)):  # No sum covers the offset.
        bad = bytearray(good)
        bad[position] ^= 0xFF
        found, walk = walk_over(bytes(bad) + NEW)
        assert found == [], position
        assert walk.stopped_by


def test_zeros_are_no_batch():
    for count in (5, 12, 17, 61, 200):
        found, walk = walk_over(bytes(count))
        assert found == []
        assert walk.stopped_by


def test_a_cut_entry_is_no_batch():
    whole = entry(4, b"a") + wrapper(9, 5, magic=1)
    for length in range(len(entry(4, b"a")) + 1, len(whole)):
        found, walk = walk_over(whole[:length])
        assert [b.last_offset for b in found] == [4], length
        assert walk.stopped_by
        assert next_offset(memoryview(whole[:length]), 0) == 5
