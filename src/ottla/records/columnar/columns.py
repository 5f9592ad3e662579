# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""Record batches to columns in Arrow's layout: the loop of reading many, with no object per record.

Beside ``ottla.records.kernels`` and ``cleaning``, and made the same way: one file that runs
compiled or interpreted, with the same results. First of the columnar reading path: bytes of a fetch
in, filled buffers out. Knows nothing of codecs, transactions or Arrow: a batch that is compressed,
old or perhaps aborted is left to the caller (``decoder``), which opens it and
hands in its records. Every batch's sum is checked, and no byte outside of the data or of a buffer
is touched, whatever the data says.

The buffers, for ``n`` rows (ends: int32, ``n + 1`` of them, the first is 0; bits: one per row from
the lowest of the first byte on, 1 where there is a value; data: the values, one behind the other):

    key       ends, bits, data            offset      int64
    value     ends, bits, data            timestamp   int64, microseconds since 1970, and bits
    headers   ends, bits (0: none)        type        int32, 0 CreateTime, 1 LogAppendTime, -1 none
      name      ends, data
      content   ends, bits, data

``scope``, an array of ``SCOPE_SIZE`` int64, says what to do and takes what came of it, so that a
call goes on where the one before stopped, also inside of a batch, with other buffers if need be.
Grammar of what is walked: ``ottla.records.batch`` and ``ottla.records.kernels``. Source: Apache
Arrow's columnar format, "Variable-size Binary Layout".
"""

# ruff: noqa: F821 - the C functions are declared in checksum.pxd and columns.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

from ottla.records.crc import crc32c

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension or the interpreted form."""

# Columns, to be added up in scope[WANTED].
KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = 1, 2, 4, 8, 16, 32

_KEY = cython.declare(cython.int, 1)
_VALUE = cython.declare(cython.int, 2)
_OFFSET = cython.declare(cython.int, 4)
_TIMESTAMP = cython.declare(cython.int, 8)
_TIMESTAMP_TYPE = cython.declare(cython.int, 16)
_HEADERS = cython.declare(cython.int, 32)

# Why ``fill`` stopped.
DATA_END = 0
"""No whole batch is left."""
RANGE_END = 1
"""The next batch begins at or behind END_OFFSET."""
FULL = 2
"""The next record does not fit, or TARGET_BYTES are reached; call again with room."""
SPECIAL = 3
"""The batch at POSITION is the caller's: compressed, or of a transaction while JUDGE is set. Its
header is in scope and its sum was right; then ``fill_records``, or move POSITION by SIZE_BYTES."""
OLD = 4
"""At POSITION, SIZE_BYTES long, stands an entry of a message set, unchecked: the caller's."""
RECORDS_END = 5
"""Of ``fill_records``: all of them are handled."""

_DATA_END = cython.declare(cython.int, 0)
_RANGE_END = cython.declare(cython.int, 1)
_FULL = cython.declare(cython.int, 2)
_SPECIAL = cython.declare(cython.int, 3)
_OLD = cython.declare(cython.int, 4)
_RECORDS_END = cython.declare(cython.int, 5)

_SUM = cython.declare(cython.int, -1)
_SIZE_WRONG = cython.declare(cython.int, -2)
_HEADER_WRONG = cython.declare(cython.int, -3)
_COUNT = cython.declare(cython.int, -4)
_TRUNCATED = cython.declare(cython.int, -5)
_VARINT = cython.declare(cython.int, -6)
_LENGTH = cython.declare(cython.int, -7)
_DELTA = cython.declare(cython.int, -8)
_FIELD = cython.declare(cython.int, -9)
_HEADER_COUNT = cython.declare(cython.int, -10)
_RECORD_END = cython.declare(cython.int, -11)
_REST = cython.declare(cython.int, -12)

REASONS: dict[int, str] = {
    _SUM: "wrong CRC32C",
    _SIZE_WRONG: "its length or its magic is impossible",
    _HEADER_WRONG: "its offsets are impossible",
    _COUNT: "it cannot hold as many records as it says",
    _TRUNCATED: "a record ends inside a field",
    _VARINT: "a varint is longer than its type",
    _LENGTH: "a record is longer than the batch",
    _DELTA: "a record's offset lies outside of the batch",
    _FIELD: "a key, value or header is longer than its record, or a header has no name",
    _HEADER_COUNT: "a header count is negative or more than the record can hold",
    _RECORD_END: "a record is longer than its fields",
    _REST: "bytes follow the last record",
}
"""What each negative result means; the batch is the one with BASE_OFFSET in scope."""

# The fields of scope. Set by the caller; those marked "too" are brought up to date.
WANTED = 0
"""The columns, added up."""
START_OFFSET, END_OFFSET = 1, 2
"""Records with START_OFFSET <= offset < END_OFFSET are rows."""
JUDGE = 3
"""1: batches of transactions are the caller's; 0: markers are passed over, the rest are rows."""
ROWS_MAX, TARGET_BYTES = 4, 5
"""FULL from either on; bytes are those of keys, values and headers."""
POSITION = 6
"""Of the next batch in the data; too."""
NEXT_OFFSET = 7
"""Where to read on: behind the last batch that was handled; too."""
# The batch under way.
AT, LEFT = 8, 9
"""Where its next record stands, and how many there are still (0: none is under way); too."""
RECORDS_STOP = 10
"""Where its records end."""
SIZE_BYTES = 11
"""The size of the whole batch or entry; 0: none is under way. Who passes one over sets it to 0."""
BASE_OFFSET, LAST_DELTA, ATTRIBUTES, PRODUCER_ID, COUNT = 12, 13, 14, 15, 16
BASE_TIMESTAMP, MAX_TIMESTAMP = 17, 18
# What the buffers hold; too.
ROWS = 19
KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS = 20, 21, 22, 23
HEADER_COUNT, HEADER_NULLS = 24, 25
"""All headers of all rows, and the rows without any."""
NAME_BYTES, CONTENT_BYTES, CONTENT_NULLS = 26, 27, 28
TIMESTAMP_NULLS = 29
"""Timestamps that 64 bits of microseconds cannot say: somebody took another unit for ms."""
NAMES_PLAIN = 30
"""1 while every header's name is ASCII; else somebody has to see whether it is UTF-8."""
RECORD_BYTES = 31
"""At FULL: no field of the record that did not fit has more bytes, nor has it more headers."""
SCOPE_SIZE = 32

_WANTED = cython.declare(cython.int, 0)
_START_OFFSET = cython.declare(cython.int, 1)
_END_OFFSET = cython.declare(cython.int, 2)
_JUDGE = cython.declare(cython.int, 3)
_ROWS_MAX = cython.declare(cython.int, 4)
_TARGET_BYTES = cython.declare(cython.int, 5)
_POSITION = cython.declare(cython.int, 6)
_NEXT_OFFSET = cython.declare(cython.int, 7)
_AT = cython.declare(cython.int, 8)
_LEFT = cython.declare(cython.int, 9)
_RECORDS_STOP = cython.declare(cython.int, 10)
_SIZE_BYTES = cython.declare(cython.int, 11)
_BASE_OFFSET = cython.declare(cython.int, 12)
_LAST_DELTA = cython.declare(cython.int, 13)
_ATTRIBUTES = cython.declare(cython.int, 14)
_PRODUCER_ID = cython.declare(cython.int, 15)
_BATCH_COUNT = cython.declare(cython.int, 16)
_BASE_TIMESTAMP = cython.declare(cython.int, 17)
_MAX_TIMESTAMP = cython.declare(cython.int, 18)
_ROWS = cython.declare(cython.int, 19)
_KEY_BYTES = cython.declare(cython.int, 20)
_KEY_NULLS = cython.declare(cython.int, 21)
_VALUE_BYTES = cython.declare(cython.int, 22)
_VALUE_NULLS = cython.declare(cython.int, 23)
_HEADER_TOTAL = cython.declare(cython.int, 24)
_HEADER_NULLS = cython.declare(cython.int, 25)
_NAME_BYTES = cython.declare(cython.int, 26)
_CONTENT_BYTES = cython.declare(cython.int, 27)
_CONTENT_NULLS = cython.declare(cython.int, 28)
_TIMESTAMP_NULLS = cython.declare(cython.int, 29)
_NAMES_PLAIN = cython.declare(cython.int, 30)
_RECORD_BYTES = cython.declare(cython.int, 31)

_BATCH_BYTES = cython.declare(cython.int, 61)
_MAGIC_END = cython.declare(cython.int, 17)
RECORD_BYTES_MIN = 7
_RECORD_BYTES_MIN = cython.declare(cython.int, 7)
_OFFSET_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
_MICROSECONDS_MAX = cython.declare(cython.longlong, 9223372036854775)  # so many ms, 64 bits of us
_LONG_MIN = cython.declare(cython.longlong, -0x7FFFFFFFFFFFFFFF - 1)
_CODEC_BITS = cython.declare(cython.int, 0x07)
_LOG_APPEND_TIME_BIT = cython.declare(cython.int, 0x08)
NO_TIME_BIT = 0x10000
"""Beyond a batch's attributes: what was of format 0, which has no timestamps."""
_TRANSACTION_BITS = cython.declare(cython.int, 0x30)
_CONTROL_BIT = cython.declare(cython.int, 0x20)
_DATA_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_SHORT_COPY_BYTES = cython.declare(cython.int, 32)


@cython.cclass
class Filler:
    """A scope and a set of buffers, and what fills them. Buffers of unwanted columns are empty.

    They are arrays of type i (ends, type), q (offset, timestamp) and bytearrays (bits, data). Bits
    are all 1 to begin with. All but data hold ROWS_MAX rows; the headers' may hold fewer.
    """

    _scope: cython.longlong[::1]
    _key_ends: cython.int[::1]
    _key_bits: cython.uchar[::1]
    _key_data: cython.uchar[::1]
    _value_ends: cython.int[::1]
    _value_bits: cython.uchar[::1]
    _value_data: cython.uchar[::1]
    _offsets: cython.longlong[::1]
    _timestamps: cython.longlong[::1]
    _timestamp_bits: cython.uchar[::1]
    _types: cython.int[::1]
    _header_ends: cython.int[::1]
    _header_bits: cython.uchar[::1]
    _name_ends: cython.int[::1]
    _name_data: cython.uchar[::1]
    _content_ends: cython.int[::1]
    _content_bits: cython.uchar[::1]
    _content_data: cython.uchar[::1]

    def __init__(  # noqa: PLR0913, PLR0917 - the buffers, in the order of the layout above
        self,
        scope: array[int],
        key_ends: array[int],
        key_bits: bytearray,
        key_data: bytearray,
        value_ends: array[int],
        value_bits: bytearray,
        value_data: bytearray,
        offsets: array[int],
        timestamps: array[int],
        timestamp_bits: bytearray,
        types: array[int],
        header_ends: array[int],
        header_bits: bytearray,
        name_ends: array[int],
        name_data: bytearray,
        content_ends: array[int],
        content_bits: bytearray,
        content_data: bytearray,
    ) -> None:
        self._scope = scope
        self._key_ends = key_ends
        self._key_bits = key_bits
        self._key_data = key_data
        self._value_ends = value_ends
        self._value_bits = value_bits
        self._value_data = value_data
        self._offsets = offsets
        self._timestamps = timestamps
        self._timestamp_bits = timestamp_bits
        self._types = types
        self._header_ends = header_ends
        self._header_bits = header_bits
        self._name_ends = name_ends
        self._name_data = name_data
        self._content_ends = content_ends
        self._content_bits = content_bits
        self._content_data = content_data

    def fill(self, data: Buffer) -> int:
        """Go through the batches of ``data`` from POSITION on; return why not further.

        A batch under way (LEFT is not 0) is one of ``data`` itself. Raises ValueError when scope
        and buffers do not fit each other.
        """
        view: cython.const[cython.uchar][::1] = data
        if self._scope[_POSITION] < 0 or self._scope[_POSITION] > len(view):
            raise ValueError("POSITION lies outside of the data")
        return self._take_in(view, False)

    def fill_records(self, payload: Buffer) -> int:
        """Take the records of one opened batch, from AT on; its header is in scope.

        Before the first call AT is 0, LEFT the COUNT and RECORDS_STOP the size of ``payload``. At
        RECORDS_END, POSITION and NEXT_OFFSET have moved behind the batch.
        """
        view: cython.const[cython.uchar][::1] = payload
        return self._take_in(view, True)

    @cython.cfunc
    def _take_in(
        self, view: cython.const[cython.uchar][::1], only_records: cython.bint
    ) -> cython.int:
        """Check, then fill from ``view``: batches, or the records of one only."""
        reason: cython.int
        self._check(len(view))
        with cython.nogil:
            reason = _fill(
                view,
                only_records,
                self._scope,
                self._key_ends,
                self._key_bits,
                self._key_data,
                self._value_ends,
                self._value_bits,
                self._value_data,
                self._offsets,
                self._timestamps,
                self._timestamp_bits,
                self._types,
                self._header_ends,
                self._header_bits,
                self._name_ends,
                self._name_data,
                self._content_ends,
                self._content_bits,
                self._content_data,
            )
        return reason

    @cython.cfunc
    def _check(self, size: cython.Py_ssize_t) -> cython.int:
        """Hold the numbers that the loop trusts against the sizes of what they count in."""
        rows: cython.longlong = self._scope[_ROWS_MAX]
        wanted: cython.longlong = self._scope[_WANTED]
        enough: cython.bint = self._scope[_ROWS] <= rows
        enough = enough and len(self._key_data) <= _DATA_MAX and len(self._value_data) <= _DATA_MAX
        enough = enough and len(self._name_data) <= _DATA_MAX
        enough = enough and len(self._content_data) <= _DATA_MAX
        if wanted & _KEY:
            enough = enough and rows < len(self._key_ends) and rows <= len(self._key_bits) * 8
        if wanted & _VALUE:
            enough = enough and rows < len(self._value_ends) and rows <= len(self._value_bits) * 8
        if wanted & _OFFSET:
            enough = enough and rows <= len(self._offsets)
        if wanted & _TIMESTAMP:
            enough = enough and rows <= len(self._timestamps)
            enough = enough and rows <= len(self._timestamp_bits) * 8
        if wanted & _TIMESTAMP_TYPE:
            enough = enough and rows <= len(self._types)
        if wanted & _HEADERS:
            enough = enough and rows < len(self._header_ends) and rows <= len(self._header_bits) * 8
            enough = enough and len(self._content_ends) >= len(self._name_ends)
            enough = enough and len(self._content_bits) * 8 >= len(self._name_ends)
        if self._scope[_LEFT] > 0:
            enough = enough and 0 <= self._scope[_AT] <= self._scope[_RECORDS_STOP] <= size
        if not enough:
            raise ValueError("the buffers are smaller than scope says")
        return 0


def next_offset(data: Buffer, offset: int) -> int:
    """Return the offset behind the whole batches in ``data``; ``offset`` if there is none.

    Only headers are looked at, and nothing is checked but where they stand.
    """
    view: cython.const[cython.uchar][::1] = data
    least: cython.longlong = offset
    found: cython.longlong
    with cython.nogil:
        found = _next_offset(view, least)
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _next_offset(view: cython.const[cython.uchar][::1], found: cython.longlong) -> cython.longlong:
    position: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(view)
    size: cython.longlong
    last: cython.longlong
    while end - position >= _MAGIC_END:
        size = _signed(view, position + 8) + 12
        if size < _MAGIC_END or size > end - position:
            break
        last = _signed_long(view, position)
        if view[position + 16] >= 2:
            if size < _BATCH_BYTES:
                break
            last = _plus(last, _signed(view, position + 23))
        if last >= found and last < _OFFSET_MAX:
            found = last + 1
        position += size
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _plus(number: cython.longlong, delta: cython.longlong) -> cython.longlong:
    """Return the sum, or -1 where it would leave 64 bits."""
    if number < 0 or delta < 0 or number > _OFFSET_MAX - delta:
        return -1
    return number + delta


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _short(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return (data[at] << 8) | data[at + 1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _unsigned(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return _short(data, at) * 0x10000 + _short(data, at + 2)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _signed(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    high: cython.longlong = _short(data, at)
    if high > 0x7FFF:
        high -= 0x10000
    return high * 0x10000 + _short(data, at + 2)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _signed_long(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return _signed(data, at) * 0x10000 * 0x10000 + _unsigned(data, at + 4)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _copy(
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    target: cython.uchar[::1],
    to: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.int:
    if cython.compiled:
        if (
            size <= _SHORT_COPY_BYTES
            and len(source) - start >= _SHORT_COPY_BYTES
            and len(target) - to >= _SHORT_COPY_BYTES
        ):
            # Two moves of a register; what is copied too much lies within both, and is overwritten.
            copy_bytes(cython.address(target[to]), cython.address(source[start]), 32)
        elif size > 0:
            copy_bytes(cython.address(target[to]), cython.address(source[start]), size)
    else:
        target[to : to + size] = source[start : start + size]
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fill(  # noqa: C901, PLR0911, PLR0912, PLR0913, PLR0915, PLR0917 - flat, and C arguments
    view: cython.const[cython.uchar][::1],
    only_records: cython.bint,
    scope: cython.longlong[::1],
    key_ends: cython.int[::1],
    key_bits: cython.uchar[::1],
    key_data: cython.uchar[::1],
    value_ends: cython.int[::1],
    value_bits: cython.uchar[::1],
    value_data: cython.uchar[::1],
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    timestamp_bits: cython.uchar[::1],
    types: cython.int[::1],
    header_ends: cython.int[::1],
    header_bits: cython.uchar[::1],
    name_ends: cython.int[::1],
    name_data: cython.uchar[::1],
    content_ends: cython.int[::1],
    content_bits: cython.uchar[::1],
    content_data: cython.uchar[::1],
) -> cython.int:
    wanted: cython.int = scope[_WANTED]
    want_key: cython.bint = (wanted & _KEY) != 0
    want_value: cython.bint = (wanted & _VALUE) != 0
    want_headers: cython.bint = (wanted & _HEADERS) != 0
    start_offset: cython.longlong = scope[_START_OFFSET]
    end_offset: cython.longlong = scope[_END_OFFSET]
    rows_max: cython.longlong = scope[_ROWS_MAX]
    bytes_max: cython.longlong = scope[_TARGET_BYTES]
    judged_bits: cython.int = 0
    end: cython.longlong = len(view)
    position: cython.longlong = scope[_POSITION]
    # The batch under way.
    at: cython.Py_ssize_t = scope[_AT]
    left: cython.longlong = scope[_LEFT]
    records_stop: cython.Py_ssize_t = scope[_RECORDS_STOP]
    size: cython.longlong = scope[_SIZE_BYTES]
    base_offset: cython.longlong = scope[_BASE_OFFSET]
    last_delta: cython.longlong = scope[_LAST_DELTA]
    attributes: cython.int = scope[_ATTRIBUTES]
    base_timestamp: cython.longlong = scope[_BASE_TIMESTAMP]
    max_timestamp: cython.longlong = scope[_MAX_TIMESTAMP]
    count: cython.longlong
    crc: cython.longlong
    # What the buffers hold.
    row: cython.Py_ssize_t = scope[_ROWS]
    key_bytes: cython.longlong = scope[_KEY_BYTES]
    value_bytes: cython.longlong = scope[_VALUE_BYTES]
    headers: cython.longlong = scope[_HEADER_TOTAL]
    name_bytes: cython.longlong = scope[_NAME_BYTES]
    content_bytes: cython.longlong = scope[_CONTENT_BYTES]
    key_max: cython.longlong = len(key_data)
    value_max: cython.longlong = len(value_data)
    name_max: cython.longlong = len(name_data)
    content_max: cython.longlong = len(content_data)
    headers_max: cython.longlong = len(name_ends) - 1
    # The record under way.
    is_row: cython.bint
    fits: cython.bint = True
    stop: cython.Py_ssize_t = 0
    record_at: cython.Py_ssize_t = 0
    field: cython.int
    shift: cython.int
    byte: cython.ulonglong
    raw: cython.ulonglong
    value: cython.longlong
    timestamp: cython.longlong
    offset: cython.longlong
    headers_left: cython.longlong
    row_headers: cython.longlong
    row_name_bytes: cython.longlong
    row_content_bytes: cython.longlong
    row_content_nulls: cython.longlong
    key_is_null: cython.bint
    value_is_null: cython.bint
    plain: cython.int
    reason: cython.int
    index: cython.Py_ssize_t

    if scope[_JUDGE]:
        judged_bits = _TRANSACTION_BITS
    reason = _RECORDS_END if only_records else _DATA_END

    while True:
        # -- the records of the batch under way
        while left > 0:
            record_at = at
            stop = records_stop
            field = 0
            is_row = True
            timestamp = 0
            offset = 0
            headers_left = 0
            row_headers = headers
            row_name_bytes = name_bytes
            row_content_bytes = content_bytes
            row_content_nulls = 0
            key_is_null = False
            value_is_null = False
            plain = 1
            while True:
                if at >= stop:
                    return _TRUNCATED
                raw = view[at]
                at += 1
                if raw > 0x7F:
                    raw &= 0x7F
                    shift = 7
                    while True:
                        if at >= stop:
                            return _TRUNCATED
                        byte = view[at]
                        at += 1
                        if shift == 63 and byte > 1:
                            return _VARINT
                        raw |= (byte & 0x7F) << shift
                        if byte < 0x80:
                            break
                        shift += 7
                    if field != 1 and raw >> 32:
                        return _VARINT
                value = raw >> 1
                if raw & 1:
                    value = ~value

                if field == 0:  # record length, and the unused attributes behind it
                    if value < 1 or value > records_stop - at:
                        return _LENGTH
                    stop = at + value
                    at += 1
                elif field == 1:
                    timestamp = value
                elif field == 2:  # offset delta
                    if value < 0 or value > last_delta:
                        return _DELTA
                    offset = base_offset + value
                    if offset < start_offset or offset >= end_offset:
                        is_row = False
                        at = stop
                        break
                    if row >= rows_max:
                        fits = False
                        break
                elif field == 3:  # key
                    if value < 0:
                        key_is_null = True
                    else:
                        if value > stop - at:
                            return _FIELD
                        if want_key:
                            if value > key_max - key_bytes:
                                fits = False
                                break
                            _copy(view, at, key_data, key_bytes, value)
                            key_bytes += value
                        at += value
                elif field == 4:
                    if value < 0:
                        value_is_null = True
                    else:
                        if value > stop - at:
                            return _FIELD
                        if want_value:
                            if value > value_max - value_bytes:
                                fits = False
                                break
                            _copy(view, at, value_data, value_bytes, value)
                            value_bytes += value
                        at += value
                    if not want_headers:
                        at = stop
                        break
                elif field == 5:  # header count; a header has two bytes at least
                    if value < 0 or value > (stop - at) // 2:
                        return _HEADER_COUNT
                    if value > headers_max - headers:
                        fits = False
                        break
                    headers_left = value
                    if headers_left == 0:
                        break
                elif field == 6:  # a header's name
                    if value < 0 or value > stop - at:
                        return _FIELD
                    if value > name_max - row_name_bytes:
                        fits = False
                        break
                    for index in range(value):
                        if view[at + index] > 0x7F:
                            plain = 0
                    _copy(view, at, name_data, row_name_bytes, value)
                    row_name_bytes += value
                    at += value
                    name_ends[row_headers + 1] = row_name_bytes
                else:  # a header's content
                    if value < 0:
                        row_content_nulls += 1
                        content_bits[row_headers >> 3] &= ~(1 << (row_headers & 7)) & 0xFF
                    else:
                        if value > stop - at:
                            return _FIELD
                        if value > content_max - row_content_bytes:
                            fits = False
                            break
                        _copy(view, at, content_data, row_content_bytes, value)
                        row_content_bytes += value
                        at += value
                        content_bits[row_headers >> 3] |= 1 << (row_headers & 7)
                    row_headers += 1
                    content_ends[row_headers] = row_content_bytes
                    headers_left -= 1
                    if headers_left == 0:
                        break
                    field = 5
                field += 1

            if not fits:
                reason = _FULL
                break
            if at != stop:
                return _RECORD_END
            left -= 1
            if not is_row:
                continue
            if wanted & _TIMESTAMP:
                if attributes & _LOG_APPEND_TIME_BIT:
                    timestamp = max_timestamp
                elif base_timestamp > 0 and timestamp > _OFFSET_MAX - base_timestamp:
                    timestamp = _OFFSET_MAX
                elif base_timestamp < 0 and timestamp < _LONG_MIN - base_timestamp:
                    timestamp = _LONG_MIN
                else:
                    timestamp += base_timestamp
                if timestamp > _MICROSECONDS_MAX or timestamp < -_MICROSECONDS_MAX:
                    scope[_TIMESTAMP_NULLS] += 1
                    timestamp_bits[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                    timestamp = 0
                timestamps[row] = timestamp * 1000
            if want_key:
                if key_is_null:
                    scope[_KEY_NULLS] += 1
                    key_bits[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                key_ends[row + 1] = key_bytes
            if want_value:
                if value_is_null:
                    scope[_VALUE_NULLS] += 1
                    value_bits[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                value_ends[row + 1] = value_bytes
            if wanted & _OFFSET:
                offsets[row] = offset
            if wanted & _TIMESTAMP_TYPE:
                types[row] = ((attributes >> 3) & 1) - ((attributes >> 16) & 1)
            if want_headers:
                if row_headers == headers:
                    scope[_HEADER_NULLS] += 1
                    header_bits[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                headers = row_headers
                header_ends[row + 1] = headers
                name_bytes = row_name_bytes
                content_bytes = row_content_bytes
                scope[_CONTENT_NULLS] += row_content_nulls
                if plain == 0:
                    scope[_NAMES_PLAIN] = 0
            row += 1
            if key_bytes + value_bytes + name_bytes + content_bytes >= bytes_max:
                reason = _FULL
                break

        if not fits:  # As if the record had not been looked at.
            scope[_RECORD_BYTES] = stop - record_at
            at = record_at
            key_bytes = key_ends[row] if want_key else 0
            value_bytes = value_ends[row] if want_value else 0
        if left > 0:
            break
        if size > 0:  # a batch ends here
            if at != records_stop:
                return _REST
            position += size
            size = 0
            if base_offset + last_delta >= scope[_NEXT_OFFSET]:
                scope[_NEXT_OFFSET] = base_offset + last_delta + 1
            if only_records:
                break
        if reason == _FULL:
            break

        # -- the next batch
        if end - position < _MAGIC_END:
            break
        size = _signed(view, position + 8) + 12
        scope[_BASE_OFFSET] = base_offset = _signed_long(view, position)
        if size < _MAGIC_END or view[position + 16] > 2:
            return _SIZE_WRONG
        if size > end - position:
            size = 0
            break
        if view[position + 16] < 2:
            reason = _OLD
            break
        if size < _BATCH_BYTES:
            return _SIZE_WRONG
        last_delta = _signed(view, position + 23)
        if _plus(base_offset, last_delta) < 0 or base_offset + last_delta == _OFFSET_MAX:
            return _HEADER_WRONG
        if base_offset >= end_offset:
            size = 0
            reason = _RANGE_END
            break
        attributes = _short(view, position + 21)
        if base_offset + last_delta < start_offset and not (attributes & judged_bits):
            position += size
            size = 0
            continue
        if cython.compiled:
            crc = ottla_crc32c(cython.address(view[position + 21]), size - 21)
        else:
            crc = crc32c(view[position + 21 : position + size])
        if crc != _unsigned(view, position + 17):
            return _SUM
        base_timestamp = _signed_long(view, position + 27)
        max_timestamp = _signed_long(view, position + 35)
        count = _signed(view, position + 57)
        scope[_LAST_DELTA] = last_delta
        scope[_ATTRIBUTES] = attributes
        scope[_PRODUCER_ID] = _signed_long(view, position + 43)
        scope[_BATCH_COUNT] = count
        scope[_BASE_TIMESTAMP] = base_timestamp
        scope[_MAX_TIMESTAMP] = max_timestamp
        if count < 0:
            return _COUNT
        if attributes & (_CODEC_BITS | judged_bits):
            reason = _SPECIAL
            break
        if attributes & _CONTROL_BIT:
            at = records_stop = position + size
            continue
        if count > (size - _BATCH_BYTES) // _RECORD_BYTES_MIN:
            return _COUNT
        at = position + _BATCH_BYTES
        records_stop = position + size
        left = count

    scope[_POSITION] = position
    scope[_AT] = at
    scope[_LEFT] = left
    scope[_RECORDS_STOP] = records_stop
    scope[_SIZE_BYTES] = size
    scope[_ROWS] = row
    scope[_KEY_BYTES] = key_bytes
    scope[_VALUE_BYTES] = value_bytes
    scope[_HEADER_TOTAL] = headers
    scope[_NAME_BYTES] = name_bytes
    scope[_CONTENT_BYTES] = content_bytes
    return reason


if cython.compiled:
    ottla_crc32c_choose()
