import gzip
import os
import random
import struct
import subprocess
import sys

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.compression import (
    XERIAL_MAGIC,
    Codec,
    codec_of,
    compress,
    decompress,
)

CODECS = [codec for codec in Codec if codec]
PAYLOADS = [b"", b"x", b"ottla " * 50_000, random.Random(1).randbytes(100_000)]


def refused(codec, payload, limit=1 << 20):
    with pytest.raises(KafkaError) as raised:
        decompress(codec, payload, limit)
    return raised.value.code


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_there_and_back_from_any_buffer(codec, payload):
    compressed = compress(codec, memoryview(bytearray(payload)))
    for kind in (bytes, bytearray, memoryview):
        data = decompress(codec, kind(bytes(compressed)), len(payload))
        assert memoryview(data) == payload


@pytest.mark.parametrize(
    ("codec", "level"), [(1, 1), (1, 9), (3, 1), (3, 9), (3, 12), (4, -5), (4, 19)]
)
def test_levels(codec, level):
    assert bytes(decompress(codec, compress(codec, PAYLOADS[2], level), 1 << 20)) == PAYLOADS[2]


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact_and_past_it_the_message_is_too_large(codec):
    compressed = compress(codec, bytes(100_000))
    assert len(decompress(codec, compressed, 100_000)) == 100_000
    assert refused(codec, compressed, 99_999) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_stays_within_the_limits_memory(codec):
    import tracemalloc

    bomb = bytes(compress(codec, bytes(64 << 20)))
    tracemalloc.start()
    try:
        assert refused(codec, bomb, 1 << 20) is ErrorCode.MESSAGE_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_claims_four_gigabytes_is_not_believed():
    assert refused(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\0\0\0") is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_and_every_kind_of_cut_is_an_invalid_record(codec):
    compressed = bytes(compress(codec, PAYLOADS[3]))
    for payload in (
        b"",
        b"garbage garbage garbage",
        compressed[:-1],
        compressed[: len(compressed) // 2],
    ):
        assert refused(codec, payload) is ErrorCode.INVALID_RECORD
    assert refused(codec, compressed + b"xyz") is ErrorCode.INVALID_RECORD


def test_numbers_that_are_no_codec():
    for number in (5, 6, 7):
        assert refused(number, b"") is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        with pytest.raises(KafkaError):
            compress(number, b"")
    assert [codec_of(n).name for n in range(5)] == ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"]


def test_gzip_members_and_zstd_frames_follow_each_other():
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"
    frames = compress(Codec.ZSTD, b"one ") + compress(Codec.ZSTD, b"two")
    assert decompress(Codec.ZSTD, frames, 7) == b"one two"
    assert refused(Codec.ZSTD, frames, 6) is ErrorCode.MESSAGE_TOO_LARGE


def test_snappy_is_read_raw_and_in_xerial_blocks_and_written_in_blocks():
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(PAYLOADS[2]))
    assert memoryview(decompress(Codec.SNAPPY, raw, 1 << 20)) == PAYLOADS[2]
    stream = compress(Codec.SNAPPY, PAYLOADS[2])
    assert stream[:8] == XERIAL_MAGIC
    assert struct.unpack_from(">ii", stream, 8) == (1, 1)
    for at, length in ((16, -1), (16, 1 << 30)):
        broken = bytearray(stream)
        struct.pack_into(">i", broken, at, length)
        assert refused(Codec.SNAPPY, broken) is ErrorCode.INVALID_RECORD
    assert refused(Codec.SNAPPY, stream, len(PAYLOADS[2]) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_lz4_blocks_are_independent_or_kafka_refuses_them():
    frame = compress(Codec.LZ4, PAYLOADS[2])
    assert frame[4] & 0x20, "the independence flag"
    assert not frame[4] & 0x08, "no content size"


def test_a_codecs_library_is_loaded_on_first_use():
    code = (
        "import sys, ottla.records.compression as c; "
        "libraries = {'isal', 'cramjam', 'lz4', 'backports.zstd', 'compression.zstd', 'zlib'}; "
        "print(sorted(libraries & set(sys.modules) - {'zlib'})); c.compress(3, b''); "
        "print('lz4' in sys.modules)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout == "[]\nTrue\n", done.stderr


@pytest.mark.parametrize("codec", CODECS)
def test_a_generous_limit_costs_nothing(codec):
    compressed = bytes(compress(codec, PAYLOADS[2]))
    assert memoryview(decompress(codec, compressed, 1 << 45)) == PAYLOADS[2]


@pytest.mark.parametrize("codec", CODECS)
def test_payloads_that_shrink_a_lot_come_back_whole(codec):
    payload = bytes(20_000_000) + b"end"
    assert memoryview(decompress(codec, compress(codec, payload), len(payload))) == payload
