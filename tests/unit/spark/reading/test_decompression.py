"""The tasks' decompression: what the records room's gives, in less time, within the same bounds."""

import pytest

pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

from ottla.errors import ErrorCode, KafkaError
from ottla.records.compression import Codec, compress
from ottla.spark.reading import decompression
from ottla.spark.reading.decompression import FIRST_BYTES, Decompressor

DATA = b"".join(b"%d, " % number for number in range(200_000))


@pytest.fixture(params=["with zstandard", "without"])
def open_payload(request, monkeypatch):
    if request.param == "without":
        monkeypatch.setattr(decompression, "zstandard", None)
    return Decompressor()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 5000, FIRST_BYTES, FIRST_BYTES + 1, len(DATA)])
def test_all_of_it_comes_out(open_payload, codec, size):
    for _ in range(2):
        payload = memoryview(compress(codec, DATA[:size]))
        assert bytes(open_payload(codec, payload, len(DATA))) == DATA[:size]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_stops_at_the_limit(open_payload, codec):
    payload = memoryview(compress(codec, bytes(8 << 20)))
    with pytest.raises(KafkaError, match="more than 100000 bytes") as raised:
        open_payload(codec, payload, 100_000)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert len(open_payload._buffer) <= FIRST_BYTES


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_garbage_is_an_invalid_record(open_payload, codec):
    with pytest.raises(KafkaError) as raised:
        open_payload(codec, memoryview(b"garbage, and no payload"), 1000)
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_payload_cut_short_gives_no_more_than_it_holds(open_payload, codec):
    payload = memoryview(compress(codec, DATA))
    try:
        given = bytes(open_payload(codec, payload[:-20], len(DATA)))
    except KafkaError:
        return
    assert len(given) < len(DATA)
    assert DATA.startswith(given)
