# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return"
"""The loops over records: the only hot code that looks inside a batch, and the only place for it.

One file, two forms: Cython's pure-Python mode compiles it to the extension beside it, which wins
at import; without a C compiler this file runs as it stands, about a hundred times slower, with
the same results. Knows nothing of headers, offsets, sums, codecs or errors: bytes in, numbers out.
Called by ``ottla.records.validate`` with the records of one uncompressed (or decompressed) batch.

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

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension (nanoseconds a record) or the interpreted form (microseconds)."""

GIL_RELEASE_SIZE_BYTES = 262_144
"""From this size on the walk lets other threads run: below, handing the lock over costs more."""

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


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(  # noqa: C901, PLR0911, PLR0912, PLR0915 - flat, because a call per field costs more
    payload: cython.const[cython.uchar][::1], count: cython.int
) -> tuple[cython.int, cython.int, cython.int, cython.longlong, cython.longlong]:
    position: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(payload)
    stop: cython.Py_ssize_t
    index: cython.int
    field: cython.int
    shift: cython.int
    byte: cython.ulonglong
    raw: cython.ulonglong
    value: cython.longlong
    headers_left: cython.longlong
    first_null_key: cython.int = -1
    delta_min: cython.longlong = 0
    delta_max: cython.longlong = 0

    for index in range(count):
        stop = end
        headers_left = 0
        field = 0
        while True:
            if position >= stop:
                return _TRUNCATED, index, -1, 0, 0
            raw = payload[position]
            position += 1
            if raw > 0x7F:
                raw &= 0x7F
                shift = 7
                while True:
                    if position >= stop:
                        return _TRUNCATED, index, -1, 0, 0
                    byte = payload[position]
                    position += 1
                    if shift == 63 and byte > 1:
                        return _VARINT, index, -1, 0, 0
                    raw |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                if field != 1 and raw >> 32:
                    return _VARINT, index, -1, 0, 0
            value = raw >> 1
            if raw & 1:
                value = ~value

            if field == 0:  # record length, and the unused attributes behind it
                if value < 0 or value > end - position:
                    return _LENGTH, index, -1, 0, 0
                stop = position + value
                position += 1
            elif field == 1:  # timestamp delta
                if index == 0:
                    delta_min = value
                    delta_max = value
                elif value > delta_max:
                    delta_max = value
                elif value < delta_min:
                    delta_min = value
            elif field == 2:  # offset delta
                if value != index:
                    return _OFFSET, index, -1, 0, 0
            elif field == 5:  # header count; a header has two bytes at least
                if value < 0 or value > (stop - position) // 2:
                    return _HEADER_COUNT, index, -1, 0, 0
                headers_left = value
                if headers_left == 0:
                    break
            else:  # key, value, header key, header value: a length, and as many bytes
                if value >= 0:
                    if value > stop - position:
                        return _FIELD, index, -1, 0, 0
                    position += value
                elif value != -1 or field == 6:
                    return _FIELD, index, -1, 0, 0
                elif field == 3 and first_null_key < 0:
                    first_null_key = index
                if field == 7:
                    headers_left -= 1
                    if headers_left == 0:
                        break
                    field = 5
            field += 1
        if position != stop:
            return _RECORD_END, index, -1, 0, 0
    if position != end:
        return _RECORDS_END, count, -1, 0, 0
    return 0, count, first_null_key, delta_min, delta_max
