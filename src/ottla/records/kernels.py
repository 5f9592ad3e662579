# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""The loops over the records of a batch: the broker's only hot code that looks at each of them.

One file, two forms: Cython's pure-Python mode compiles it to the extension beside it, which wins
at import; without a C compiler this file runs as it stands, about a hundred times slower, with
the same results. Knows nothing of files, codecs or errors: bytes in, numbers out.
``ottla.records.validate`` calls ``validate_records`` with the records of one uncompressed (or
decompressed) batch, or, to save calls, ``read_usual_batch`` with the whole batch as a producer sent
it; ``ottla.records.decode`` calls ``split_records``. The other loops are made the same way:
``batch_walk``, ``time_search`` and ``cleaning``. Numbers in C stand in numbers.pxd, the checksum in
checksum.pxd.

Source: Kafka's documentation, "Record". Grammar (varints are zigzag, little end first):

    records       = record*                        as many as the batch header says, and no more
    record        = length           varint        bytes after this field
                    attributes       int8          no bit is used
                    timestamp_delta  varlong       to the batch's base timestamp
                    offset_delta     varint        0, 1, 2 ... in a batch that a producer sends
                    key              bytes         length varint, -1: null
                    value            bytes         length varint, -1: null
                    header_count     varint
                    header*
    header        = key              bytes         never null
                    value            bytes         length varint, -1: null

A varint has at most 5 bytes and 32 bits, a varlong 10 bytes and 64 bits; more is refused.
"""

# ruff: noqa: F821 - the C functions are declared in kernels.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

from ottla.records.crc import crc32c

if not cython.compiled:  # else they stand in kernels.pxd
    from ottla.records.numbers import (
        int32_at,
        int64_at,
        uint16_at,
        uint32_at,
        varint_at,
        varlong_at,
    )

if TYPE_CHECKING:
    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension (nanoseconds a record) or the interpreted form (microseconds)."""

GIL_RELEASE_SIZE_BYTES = 262_144
"""From this size on the walk lets other threads run: below, handing the lock over costs more."""

_HEADER_BYTES = cython.declare(cython.int, 61)
_TIME_MAX = cython.declare(cython.longlong, 1 << 62)

_TRUNCATED = cython.declare(cython.int, -1)
_VARINT = cython.declare(cython.int, -2)
_LENGTH = cython.declare(cython.int, -3)
_OFFSET = cython.declare(cython.int, -4)
_FIELD = cython.declare(cython.int, -5)
_HEADER_COUNT = cython.declare(cython.int, -6)
_RECORD_END = cython.declare(cython.int, -7)
_RECORDS_END = cython.declare(cython.int, -8)

REASONS: dict[int, str] = {
    _TRUNCATED: "the record ends inside a field",
    _VARINT: "a varint is longer than its type",
    _LENGTH: "the record is longer than the batch",
    _OFFSET: "the offset deltas do not count up from 0",
    _FIELD: "a key, value or header is longer than its record or has a negative length",
    _HEADER_COUNT: "the header count is negative or more than the record can hold",
    _RECORD_END: "the record is longer than its fields",
    _RECORDS_END: "bytes follow the last record",
}
"""What each negative result means, for the log and the client's error message."""


def validate_records(payload: Buffer, count: int) -> tuple[int, int, int, int, int]:
    """Walk ``count`` records that must fill ``payload`` exactly.

    Returns ``(reason, index, first_null_key, timestamp_delta_min, timestamp_delta_max)``: reason 0
    if all is well, else a key of ``REASONS`` and the index of the offending record; the index of
    the first record without a key, or -1; the extremes of the deltas (0, 0 without records). The
    last three mean nothing when the reason is not 0. Reads every byte it needs once, allocates
    nothing, never reads outside of ``payload``; thread-safe. ``count`` fits 32 bits, >= 0.
    """
    view: cython.const[cython.uchar][::1] = payload
    total: cython.int = count
    result: tuple[cython.int, cython.int, cython.int, cython.longlong, cython.longlong]
    if len(view) < GIL_RELEASE_SIZE_BYTES:
        return _walk(view, total)
    with cython.nogil:
        result = _walk(view, total)
    return result


def read_usual_batch(batch: Buffer) -> tuple[int, ...] | None:
    """Read header and records of what most producers send, in one go; None if it is anything else.

    That is: exactly one uncompressed batch of format 2 with base offset 0, no attribute set and
    times that any arithmetic takes, whose records are as they should be. Returns the 13 numbers of
    the header in their order, the smallest and largest timestamp of the records (-1 at least) and
    the index of the first record without a key, or -1. Neither sum nor sizes are held against
    anything: that, and why another batch is refused, is ``ottla.records.validate``'s to say.
    """
    view: cython.const[cython.uchar][::1] = batch
    size: cython.Py_ssize_t = len(view)
    if size < _HEADER_BYTES or view[16] != 2 or view[21] != 0 or view[22] != 0:
        return None
    base_offset: cython.longlong = int64_at(view, 0)
    batch_length: cython.longlong = int32_at(view, 8)
    last_offset_delta: cython.longlong = int32_at(view, 23)
    base_timestamp: cython.longlong = int64_at(view, 27)
    producer_id: cython.longlong = int64_at(view, 43)
    producer_epoch: cython.longlong = uint16_at(view, 51)
    if producer_epoch > 0x7FFF:
        producer_epoch -= 0x10000
    base_sequence: cython.longlong = int32_at(view, 53)
    count: cython.longlong = int32_at(view, 57)
    if base_offset != 0 or batch_length != size - 12:
        return None
    if count <= 0 or last_offset_delta != count - 1:
        return None
    if producer_id > -1 and base_sequence < 0:
        return None
    if base_timestamp < -1 or base_timestamp > _TIME_MAX:
        return None
    total: cython.int = count
    found: tuple[cython.int, cython.int, cython.int, cython.longlong, cython.longlong]
    if size < GIL_RELEASE_SIZE_BYTES:
        found = _walk(view[_HEADER_BYTES:], total)
    else:
        with cython.nogil:
            found = _walk(view[_HEADER_BYTES:], total)
    delta_min: cython.longlong = found[3]
    delta_max: cython.longlong = found[4]
    if found[0] != 0 or delta_min < -_TIME_MAX or delta_max > _TIME_MAX:
        return None
    max_timestamp: cython.longlong = base_timestamp + delta_max
    max_timestamp = max(max_timestamp, -1)
    return (
        base_offset,
        batch_length,
        int32_at(view, 12),
        2,
        uint32_at(view, 17),
        0,
        last_offset_delta,
        base_timestamp,
        int64_at(view, 35),
        producer_id,
        producer_epoch,
        base_sequence,
        count,
        base_timestamp + delta_min,
        max_timestamp,
        found[2],
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(  # noqa: C901, PLR0911, PLR0912 - one step per field, and each has its own fault
    payload: cython.const[cython.uchar][::1], count: cython.int
) -> tuple[cython.int, cython.int, cython.int, cython.longlong, cython.longlong]:
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(payload)
    stop: cython.Py_ssize_t
    index: cython.int
    number: cython.longlong
    first_null_key: cython.int = -1
    delta_min: cython.longlong = 0
    delta_max: cython.longlong = 0
    for index in range(count):
        number, at = varint_at(payload, at, end)
        if at < 0:
            return at, index, -1, 0, 0
        if number < 0 or number > end - at:
            return _LENGTH, index, -1, 0, 0
        stop = at + number
        number, at = varlong_at(payload, at + 1, stop)  # behind the attributes
        if at < 0:
            return at, index, -1, 0, 0
        if number > delta_max or index == 0:
            delta_max = number
        if number < delta_min or index == 0:
            delta_min = number
        number, at = varint_at(payload, at, stop)
        if at < 0:
            return at, index, -1, 0, 0
        if number != index:
            return _OFFSET, index, -1, 0, 0
        number, at = varint_at(payload, at, stop)
        if at < 0:
            return at, index, -1, 0, 0
        if number == -1 and first_null_key < 0:
            first_null_key = index
        at = _past(at, stop, number)
        if at < 0:
            return at, index, -1, 0, 0
        number, at = varint_at(payload, at, stop)
        if at < 0:
            return at, index, -1, 0, 0
        at = _past(at, stop, number)
        if at < 0:
            return at, index, -1, 0, 0
        number, at = varint_at(payload, at, stop)
        if at < 0:
            return at, index, -1, 0, 0
        if number != 0:
            at = _past_headers(payload, at, stop, number)
            if at < 0:
                return at, index, -1, 0, 0
        if at != stop:
            return _RECORD_END, index, -1, 0, 0
    if at != end:
        return _RECORDS_END, count, -1, 0, 0
    return 0, count, first_null_key, delta_min, delta_max


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _past(
    at: cython.Py_ssize_t, stop: cython.Py_ssize_t, size: cython.longlong
) -> cython.Py_ssize_t:
    """Return the position behind ``size`` bytes, -1 for null; a reason when they are not there."""
    if size < 0:
        return at if size == -1 else _FIELD
    return at + size if size <= stop - at else _FIELD


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _past_headers(
    payload: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    count: cython.longlong,
) -> cython.Py_ssize_t:
    """Return the position behind ``count`` headers, or a reason."""
    size: cython.longlong
    if count < 0 or count > (stop - at) // 2:  # a header has two bytes at least
        return _HEADER_COUNT
    while count > 0:
        count -= 1
        size, at = varint_at(payload, at, stop)
        if at < 0:
            return at
        if size < 0 or size > stop - at:
            return _FIELD
        size, at = varint_at(payload, at + size, stop)
        if at < 0:
            return at
        if size >= 0:
            if size > stop - at:
                return _FIELD
            at += size
        elif size != -1:
            return _FIELD
    return at


def split_records(  # noqa: C901 - flat, because a call per field costs more
    payload: bytes, count: int, base_offset: int
) -> list[tuple[int, bytes | None, bytes | None]] | None:
    """Return offset, key and value of each of ``count`` records, which must fill ``payload``.

    Offsets may have gaps, as compaction leaves them. None if a record has headers or is not as it
    should be: to read it all the same, or to say what is wrong, is ``ottla.records.decode``'s.
    """
    view: cython.const[cython.uchar][::1] = payload
    size: cython.Py_ssize_t = len(view)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    number: cython.longlong
    offset: cython.longlong
    found = []
    if count < 0:
        return None
    for _ in range(count):
        number, at = varlong_at(view, at, size)
        if at < 0 or number < 1 or number > size - at:
            return None
        end = at + number
        number, at = varlong_at(view, at + 1, end)
        if at < 0:
            return None
        offset, at = varlong_at(view, at, end)
        if at < 0:
            return None
        number, at = varlong_at(view, at, end)
        if at < 0 or number > end - at:
            return None
        key = None
        if number >= 0:
            key = payload[at : at + number]
            at += number
        number, at = varlong_at(view, at, end)
        if at < 0 or number > end - at:
            return None
        value = None
        if number >= 0:
            value = payload[at : at + number]
            at += number
        number, at = varlong_at(view, at, end)
        if at != end or number != 0:
            return None
        found.append((base_offset + offset, key, value))
    return found if at == size else None


def checksum(data: Buffer, *, portable: bool = False) -> int:
    """Return the CRC32C of ``data`` as the walk does; ``portable``: without a CPU's instruction."""
    view: cython.const[cython.uchar][::1] = data
    if cython.compiled:
        if len(view) == 0:
            return 0
        if portable:
            return ottla_crc32c_portable(cython.address(view[0]), len(view))
        return ottla_crc32c(cython.address(view[0]), len(view))
    return crc32c(view)


if cython.compiled:
    ottla_crc32c_choose()
