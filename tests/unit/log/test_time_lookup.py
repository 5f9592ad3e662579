"""The search for a time in one batch: no object per record, no long turn."""

import importlib.util
import random
from pathlib import Path

import pytest

from ottla.errors import KafkaError
from ottla.log.segment.time_lookup import LOOP_BYTES_MAX, LOOP_COMPRESSED_BYTES_MAX, BatchSearch
from ottla.records import time_search as imported
from ottla.records.compression import Codec, compress
from tools.wire_client import batch

LIMIT = 64 << 20
BASE = 1_700_000_000_000


@pytest.fixture(params=["compiled", "interpreted"])
def kernel(request):
    if request.param == "compiled":
        if not imported.COMPILED:
            pytest.skip("the extension is not built")
        return imported
    path = Path(imported.__file__).parent / "time_search.py"
    spec = importlib.util.spec_from_file_location("interpreted_time_search", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def varint(value):
    raw, out = (value << 1) ^ (value >> 63), bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def records_of(deltas):
    """Records without key, value or headers, of (timestamp delta, offset delta)."""
    out = bytearray()
    for time, offset in deltas:
        body = b"\x00" + varint(time) + varint(offset) + b"\x01\x01\x00"
        out += varint(len(body)) + body
    return bytes(out)


def test_the_first_that_is_late_enough_and_far_enough(kernel):
    rng = random.Random(5)
    deltas = [(rng.choice([0, 5, -7, 1 << 40, -(1 << 63)]), 3 * index) for index in range(200)]
    payload = records_of(deltas)
    for least_time in (-(1 << 63), -7, 0, 1, 6, 1 << 40, (1 << 40) + 1):
        for least_offset in (-5, 0, 1, 300, 597, 598):
            wanted = next(
                ((1, offset, time) for time, offset in deltas
                 if time >= least_time and offset >= least_offset),
                (0, 0, 0),
            )  # fmt: skip
            assert kernel.find_reaching(payload, 200, least_time, least_offset) == wanted


def test_records_that_do_not_fit_are_told_and_never_read_beyond(kernel):
    payload = records_of([(1, 0), (2, 1), (3, 2)])
    for length in range(len(payload)):
        state, _, _ = kernel.find_reaching(payload[:length], 3, 99, 0)
        assert state == kernel.CORRUPT
    for noise in (b"\xff" * 30, b"\x00" * 30, b"\x01" * 30):
        assert kernel.find_reaching(noise, 3, 99, 0)[0] == kernel.CORRUPT
    assert kernel.find_reaching(b"", 0, 0, 0) == (kernel.NONE, 0, 0)


def make(deltas, codec=Codec.NONE):
    payload = records_of(deltas)
    return batch(
        [b""] * len(deltas),
        payload=bytes(compress(codec, payload)),
        attributes=int(codec),
        base_timestamp=BASE,
        max_timestamp=BASE + max(time for time, _ in deltas),
        count=len(deltas),
        last_offset_delta=len(deltas) - 1,
    )


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_any_codec(codec):
    data = make([(0, 0), (10, 1), (5, 2), (20, 3)], codec)
    for timestamp, from_offset, wanted in [
        (0, 0, (BASE, 0)),
        (BASE + 1, 0, (BASE + 10, 1)),
        (BASE + 1, 2, (BASE + 5, 2)),
        (BASE + 11, 0, (BASE + 20, 3)),
        (BASE + 21, 0, None),
        (0, 4, None),
    ]:
        search = BatchSearch(data, timestamp, from_offset, LIMIT)
        assert search.run() == wanted
        assert search.run_if_short() == (True, wanted)


COUNT = LOOP_BYTES_MAX // 7 + 10
"""Records of seven bytes that are more than the loop searches."""


@pytest.mark.parametrize(
    ("deltas", "codec", "is_large"),
    [
        ([(0, 0)] * COUNT, Codec.ZSTD, False),  # Small, and unfolds to much.
        ([(random.Random(n).randrange(1 << 40), 0) for n in range(20_000)], Codec.GZIP, True),
        ([(0, 0)] * COUNT, Codec.NONE, True),
    ],
    ids=["unfolds", "compressed", "plain"],
)
def test_a_batch_that_takes_long_is_not_searched_on_the_loop(deltas, codec, is_large):
    data = make(deltas, codec)
    limit = LOOP_BYTES_MAX if codec is Codec.NONE else LOOP_COMPRESSED_BYTES_MAX
    assert (len(data) > limit) is is_large, "one cause at a time"
    if codec is Codec.GZIP:
        assert len(make(deltas)) < LOOP_BYTES_MAX
    search = BatchSearch(data, BASE, 0, LIMIT)
    assert search.run_if_short() == (False, None)
    assert search.run() is not None


def test_a_flipped_bit_is_told():
    data = bytearray(make([(0, 0)]))
    data[-1] ^= 1
    with pytest.raises(KafkaError, match="CRC32C"):
        BatchSearch(bytes(data), 0, 0, LIMIT).run()
