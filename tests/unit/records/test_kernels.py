"""Each rule of the walk, on the compiled and the interpreted kernel alike."""

import hashlib
import os
import subprocess
import sys
import threading

import pytest

from ottla.records import kernels as imported_kernels
from ottla.records.crc import crc32c

TRUNCATED, VARINT, LENGTH, OFFSET, FIELD, HEADER_COUNT, RECORD_END, RECORDS_END = range(-1, -9, -1)


def test_the_extension_is_built_where_it_must_be():
    if os.environ.get("OTTLA_REQUIRE_COMPILED") != "1":
        pytest.skip("OTTLA_REQUIRE_COMPILED=1 asks for the compiled kernel")
    assert imported_kernels.COMPILED, "the kernel runs interpreted: was there no C compiler?"


def test_without_cython_installed_the_kernel_runs_interpreted():
    code = """if True:
        import importlib.util, sys
        sys.modules["cython"] = None
        spec = importlib.util.spec_from_file_location("kernels", sys.argv[1])
        kernels = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernels)
        print(kernels.COMPILED, kernels.validate_records(bytes.fromhex("10000000026b027600"), 1))
    """
    source = imported_kernels.__file__.split("kernels.")[0] + "kernels.py"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, source], capture_output=True, text=True, env=env
    )
    assert done.stdout == "False (0, 1, -1, 0, 0)\n", done.stderr


def test_form(kernels, request):
    assert ("compiled" in request.node.name.split("[")[1]) == kernels.COMPILED
    assert set(kernels.REASONS) == set(range(-8, 0))


def test_good_records_tell_times_and_the_first_null_key(kernels, wire):
    records = [
        wire.record(0, timestamp=5, headers=[(b"h", None), (b"", b"x" * 200)]),
        wire.record(1, timestamp=-1_000_000, value=None),
        wire.record(2, timestamp=1 << 40, key=None),
        wire.record(3, key=None, value=b""),
    ]
    for count in (1, 2, 3, 4):
        reason, index, null_key, low, high = kernels.validate_records(
            b"".join(records[:count]), count
        )
        assert (reason, index) == (0, count)
        assert null_key == (-1 if count < 3 else 2)
        assert (low, high) == (
            5 if count == 1 else -1_000_000,
            5 if count < 3 else 1 << 40,
        )


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_and_any_slice_of_it_is_read_in_place(kernels, wire, kind):
    data = kind(wire.record())
    assert kernels.validate_records(data, 1) == (0, 1, -1, 0, 0)
    within = memoryview(b"\xff" + wire.record() + b"\xff")[1:-1]
    assert kernels.validate_records(within, 1) == (0, 1, -1, 0, 0)


def test_no_records(kernels):
    assert kernels.validate_records(b"", 0) == (0, 0, -1, 0, 0)
    assert kernels.validate_records(b"\0", 0)[0] == RECORDS_END


def test_every_truncation_is_found(kernels, wire):
    data = wire.record(0, headers=[(b"name", b"value")]) + wire.record(1, value=b"x" * 300)
    for size in range(len(data)):
        reason, index, *_ = kernels.validate_records(data[:size], 2)
        assert reason in (TRUNCATED, LENGTH)
        assert index == (size >= len(wire.record(0, headers=[(b"name", b"value")])))


def test_records_are_split_whatever_gaps_compaction_left(kernels, wire):
    data = wire.record(3) + wire.record(7, key=None, value=None, timestamp=-5)
    data += wire.record(2**31 - 1, key=b"", value=b"x" * 300, timestamp=2**62)
    assert kernels.split_records(data, 3, 100) == [
        (103, b"k", b"v"),
        (107, None, None),
        (99 + 2**31, b"", b"x" * 300),
    ]
    assert kernels.split_records(b"", 0, 5) == []
    for size in range(len(data)):
        assert kernels.split_records(data[:size], 3, 100) is None
    assert kernels.split_records(data + b"\0", 3, 100) is None
    assert kernels.split_records(wire.record(headers=[(b"a", b"b")]), 1, 0) is None


def test_broken_records_are_not_split(kernels, wire):
    for what, data, reason in bad(wire):
        if reason not in (OFFSET, None) and what != "key of -2":
            assert kernels.split_records(data, 1, 0) is None, what
    for data in (b"\xff" * 10 + wire.record(), b"\xfe" + b"\xff" * 8 + b"\x01" + b"\0" * 20):
        assert kernels.split_records(data, 1, 0) is None


def bad(wire):
    head = b"\0\0\0"
    kv = wire.field(b"k") + wire.field(b"v")
    yield "length beyond the batch", wire.varint(9) + wire.record()[1:], LENGTH
    yield "negative length", wire.varint(-1), LENGTH
    yield "no room for attributes", wire.varint(0), TRUNCATED
    yield "second record's delta in the first", wire.record(1), OFFSET
    yield "negative offset delta", wire.record(-1), OFFSET
    yield "key past its record", wire.raw_record(head + wire.varint(99)), FIELD
    yield "key of -2", wire.raw_record(head + wire.varint(-2) + wire.field(b"v") + b"\0"), FIELD
    yield "value past its record", wire.raw_record(head + wire.field(b"k") + wire.varint(1)), FIELD
    yield "no header count", wire.raw_record(head + kv), TRUNCATED
    yield "-1 headers", wire.raw_record(head + kv + wire.varint(-1)), HEADER_COUNT
    yield "a billion headers", wire.raw_record(head + kv + wire.varint(10**9)), HEADER_COUNT
    yield (
        "one header in one byte",
        wire.raw_record(head + kv + wire.varint(1) + b"\0"),
        HEADER_COUNT,
    )
    yield "header without name", wire.raw_record(head + kv + b"\2\1\1"), FIELD
    yield "header name past its record", wire.raw_record(head + kv + b"\2\x04x"), FIELD
    yield "header value of -2", wire.raw_record(head + kv + b"\2\0\3"), FIELD
    yield "bytes after the fields", wire.raw_record(head + kv + b"\0\0"), RECORD_END
    yield "a record too many", wire.record() + wire.record(1), RECORDS_END
    yield "a zero too many", wire.record() + b"\0", RECORDS_END
    yield "length of 6 bytes", b"\x90\x80\x80\x80\x80\x00" + wire.record()[1:], None
    yield "length past 32 bits", b"\x90\x80\x80\x80\x10" + wire.record()[1:], VARINT
    yield "timestamp of 11 bytes", wire.raw_record(b"\0" + b"\x80" * 10 + b"\0" + kv), VARINT
    yield "timestamp past 64 bits", wire.raw_record(b"\0" + b"\x80" * 9 + b"\2" + kv), VARINT
    yield "endless varint", b"\x80" * 100, VARINT


def test_each_fault_has_its_reason(kernels, wire):
    for name, data, reason in bad(wire):
        if reason is not None:
            assert (name, kernels.validate_records(data, 1)[0]) == (name, reason)
    assert kernels.validate_records(wire.record() + wire.record(), 2)[:2] == (OFFSET, 1)
    into_the_next = wire.raw_record(b"\0\0\0" + wire.varint(5)) + wire.record(1)
    assert kernels.validate_records(into_the_next, 2)[:2] == (FIELD, 0)


def test_the_widest_numbers_are_read_exactly(kernels, wire):
    for timestamp in (-(1 << 63), (1 << 63) - 1, 1 << 62, -1, 63, 64, -64, -65):
        data = wire.record(timestamp=timestamp)
        assert kernels.validate_records(data, 1) == (0, 1, -1, timestamp, timestamp)
    padded = wire.raw_record(b"\0" + b"\x82" + b"\x80" * 8 + b"\x00\0\0\0\0")
    assert kernels.validate_records(padded, 1) == (0, 1, -1, 1, 1), "padding is no fault"


def test_a_big_payload_is_walked_with_the_lock_released_to_the_same_result(kernels, wire):
    data = b"".join(wire.record(i, value=b"v" * 1000) for i in range(300))
    assert len(data) > kernels.GIL_RELEASE_SIZE_BYTES
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(kernels.validate_records(data, 300)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(0, 300, -1, 0, 0)] * 3
    assert kernels.validate_records(data[:-1], 300)[:2] == (LENGTH, 299)


def test_the_walks_checksum_is_crc32c(kernels):
    data = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(300))
    for size in [*range(20), 61, 383, 384, 385, 1000, 3071, 3072, 3073, 3456, 7001, len(data)]:
        for portable in (False, True):
            assert kernels.checksum(data[:size], portable=portable) == crc32c(data[:size])
    assert kernels.checksum(b"123456789") == 0xE3069283
