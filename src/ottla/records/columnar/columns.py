# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""Record batches to columns in Arrow's layout: the loop of reading many, with no object per record.

This kernel is made like ``ottla.records.kernels``: one file that runs compiled or interpreted, with
the same results. It is the first step of the columnar reading path: the bytes of a fetch come in,
filled buffers go out. It knows nothing of codecs, transactions or Arrow: its caller (``decoder``)
opens a batch that is compressed, old or perhaps aborted, and hands in its records. It checks every
batch's sum, and touches no byte outside of the data or of a buffer, whatever the data says.

The buffers, for ``n`` rows (ends: int32, ``n + 1`` of them, the first is 0; bits: one per row from
the lowest of the first byte on, 1 where there is a value; data: the values, one behind the other):

    key       ends, bits, data            offset      int64
    value     ends, bits, data            timestamp   int64, microseconds since 1970, and bits
    headers   ends, bits (0: none)        type        int32, 0 CreateTime, 1 LogAppendTime, -1 none
      name      ends, data
      content   ends, bits, data

The scope, an array whose fields stand in ``scope``, says what to do and takes what came of it, so
that a call goes on where the one before stopped, also inside of a batch, with other buffers if need
be. After a negative result only BASE_OFFSET in it means something.
Grammar of what is walked: ``ottla.records.batch`` and ``ottla.records.kernels``. Source: Apache
Arrow's columnar format, "Variable-size Binary Layout".
"""

# ruff: noqa: F403, F405 - C functions and the names of scope come by columns.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

from ottla.records.crc import crc32c

if not cython.compiled:  # else they stand in columns.pxd
    from ottla.records.columnar.layout import clear, put_end
    from ottla.records.columnar.scope import *  # the fields and results, in capitals
    from ottla.records.numbers import (
        copy_short,
        int32_at,
        int64_at,
        uint16_at,
        uint32_at,
        varint_at,
        varlong_at,
    )

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension or the interpreted form."""

_BEGUN = cython.declare(cython.int, 99)  # beside why ``fill`` stopped: it does not
_NO_ROOM = cython.declare(cython.int, -99)
_BATCH_BYTES = cython.declare(cython.int, 61)
_MAGIC_END = cython.declare(cython.int, 17)
RECORD_BYTES_MIN = 7
_RECORD_BYTES_MIN = cython.declare(cython.int, 7)
_OFFSET_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
_MICROSECONDS_MAX = cython.declare(cython.longlong, 9223372036854775)  # so many ms, 64 bits of us
_LONG_MIN = cython.declare(cython.longlong, -0x7FFFFFFFFFFFFFFF - 1)
_CODEC_BITS = cython.declare(cython.int, 0x07)
_LOG_APPEND_TIME_BIT = cython.declare(cython.int, 0x08)
_TRANSACTION_BITS = cython.declare(cython.int, 0x30)
_CONTROL_BIT = cython.declare(cython.int, 0x20)
_DATA_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)


class Filler:
    """A scope and a set of buffers, and what fills them. Buffers of unwanted columns are empty.

    They are arrays of type i (ends, type), q (offset, timestamp) and bytearrays (bits, data). Bits
    are all 1 to begin with. All but data hold ROWS_MAX rows; the headers' may hold fewer.
    """

    _view: cython.const[cython.uchar][::1]
    """What is read, during a call."""
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

    def __init__(self, scope: array[int], buffers: tuple[Buffer, ...]) -> None:
        """Take the scope, and the buffers in the order of the layout above."""
        self._scope = scope
        (
            self._key_ends, self._key_bits, self._key_data, self._value_ends, self._value_bits,
            self._value_data, self._offsets, self._timestamps, self._timestamp_bits, self._types,
            self._header_ends, self._header_bits, self._name_ends, self._name_data,
            self._content_ends, self._content_bits, self._content_data,
        ) = buffers  # fmt: skip

    def fill(self, data: Buffer) -> int:
        """Go through the batches of ``data`` from POSITION on; return why not further.

        A batch under way (LEFT is not 0) is one of ``data`` itself. Raises ValueError when scope
        and buffers do not fit each other.
        """
        view: cython.const[cython.uchar][::1] = data
        if self._scope[POSITION] < 0 or self._scope[POSITION] > len(view):
            raise ValueError("POSITION lies outside of the data")
        return self._take_in(view, False)

    def fill_records(self, payload: Buffer) -> int:
        """Take the records of one opened batch, from AT on; its header is in scope.

        Before the first call AT is 0, LEFT the COUNT and RECORDS_STOP the size of ``payload``. At
        RECORDS_END, POSITION and NEXT_OFFSET have moved behind the batch.
        """
        view: cython.const[cython.uchar][::1] = payload
        return self._take_in(view, True)

    def _take_in(
        self, view: cython.const[cython.uchar][::1], only_records: cython.bint
    ) -> cython.int:
        """Check, then fill from ``view``: batches, or the records of one only."""
        reason: cython.int
        self._check(len(view))
        self._view = view
        with cython.nogil:
            reason = self._fill(only_records)
        self._view = None
        return reason

    def _check(self, size: cython.Py_ssize_t) -> cython.int:
        """Hold the numbers that the loop trusts against the sizes of what they count in."""
        rows: cython.longlong = self._scope[ROWS_MAX]
        wanted: cython.longlong = self._scope[WANTED]
        enough: cython.bint = self._scope[ROWS] <= rows
        enough = enough and len(self._key_data) <= _DATA_MAX and len(self._value_data) <= _DATA_MAX
        enough = enough and len(self._name_data) <= _DATA_MAX
        enough = enough and len(self._content_data) <= _DATA_MAX
        if wanted & KEY:
            enough = enough and rows < len(self._key_ends) and rows <= len(self._key_bits) * 8
        if wanted & VALUE:
            enough = enough and rows < len(self._value_ends) and rows <= len(self._value_bits) * 8
        if wanted & OFFSET:
            enough = enough and rows <= len(self._offsets)
        if wanted & TIMESTAMP:
            enough = enough and rows <= len(self._timestamps)
            enough = enough and rows <= len(self._timestamp_bits) * 8
        if wanted & TIMESTAMP_TYPE:
            enough = enough and rows <= len(self._types)
        if wanted & HEADERS:
            enough = enough and rows < len(self._header_ends) and rows <= len(self._header_bits) * 8
            enough = enough and len(self._content_ends) >= len(self._name_ends)
            enough = enough and len(self._content_bits) * 8 >= len(self._name_ends)
        if self._scope[LEFT] > 0:
            enough = enough and 0 <= self._scope[AT] <= self._scope[RECORDS_STOP] <= size
        if not enough:
            raise ValueError("the buffers are smaller than scope says")
        return 0

    def _fill(self, only_records: cython.bint) -> cython.int:
        """Take records and batches in turn; return why not further, or what is wrong."""
        reason: cython.int
        while True:
            reason = self._take_records()
            if reason < 0 or self._scope[LEFT] > 0:
                return reason
            if self._scope[SIZE_BYTES] > 0:
                if self._scope[AT] != self._scope[RECORDS_STOP]:
                    return BAD_END
                self._end_batch()
                if only_records and reason != FULL:
                    return RECORDS_END
            if reason == FULL:
                return reason
            reason = self._begin_batch()
            if reason != _BEGUN:
                return reason

    def _begin_batch(self) -> cython.int:  # noqa: C901, PLR0911, PLR0912 - one case after the other
        """Make the batch at POSITION the one under way, pass it over, or say why not."""
        position: cython.Py_ssize_t = self._scope[POSITION]
        left: cython.longlong = len(self._view) - position
        size: cython.longlong
        base_offset: cython.longlong
        last_delta: cython.longlong
        attributes: cython.int
        judged_bits: cython.int = _TRANSACTION_BITS if self._scope[JUDGE] else 0
        if left < _MAGIC_END:
            return DATA_END
        size = int32_at(self._view, position + 8) + 12
        base_offset = int64_at(self._view, position)
        self._scope[BASE_OFFSET] = base_offset
        if size < _MAGIC_END or self._view[position + 16] > 2:
            return BAD_SIZE
        if size > left:
            return DATA_END
        if self._view[position + 16] < 2:
            self._scope[SIZE_BYTES] = size
            return OLD
        if size < _BATCH_BYTES:
            return BAD_SIZE
        last_delta = int32_at(self._view, position + 23)
        if base_offset < 0 or last_delta < 0 or base_offset >= _OFFSET_MAX - last_delta:
            return BAD_OFFSETS
        if base_offset >= self._scope[END_OFFSET]:
            return RANGE_END
        attributes = uint16_at(self._view, position + 21)
        if base_offset + last_delta < self._scope[START_OFFSET] and not attributes & judged_bits:
            self._scope[POSITION] = position + size
            return _BEGUN
        if self._sum(position + 21, size - 21) != uint32_at(self._view, position + 17):
            return BAD_SUM
        self._read_header(position)
        if self._scope[COUNT] < 0:
            return BAD_COUNT
        self._scope[SIZE_BYTES] = size
        if attributes & (_CODEC_BITS | judged_bits):
            return SPECIAL
        self._scope[RECORDS_STOP] = position + size
        if attributes & _CONTROL_BIT:
            self._scope[AT] = position + size
            return _BEGUN
        if self._scope[COUNT] > (size - _BATCH_BYTES) // _RECORD_BYTES_MIN:
            return BAD_COUNT
        self._scope[AT] = position + _BATCH_BYTES
        self._scope[LEFT] = self._scope[COUNT]
        return _BEGUN

    def _sum(self, at: cython.Py_ssize_t, size: cython.longlong) -> cython.longlong:
        if cython.compiled:
            return ottla_crc32c(cython.address(self._view[at]), size)
        return crc32c(self._view[at : at + size])

    def _read_header(self, position: cython.Py_ssize_t) -> cython.int:
        self._scope[LAST_DELTA] = int32_at(self._view, position + 23)
        self._scope[ATTRIBUTES] = uint16_at(self._view, position + 21)
        self._scope[PRODUCER_ID] = int64_at(self._view, position + 43)
        self._scope[COUNT] = int32_at(self._view, position + 57)
        self._scope[BASE_TIMESTAMP] = int64_at(self._view, position + 27)
        self._scope[MAX_TIMESTAMP] = int64_at(self._view, position + 35)
        return 0

    def _end_batch(self) -> cython.int:
        next_offset: cython.longlong = self._scope[BASE_OFFSET] + self._scope[LAST_DELTA] + 1
        self._scope[POSITION] += self._scope[SIZE_BYTES]
        self._scope[SIZE_BYTES] = 0
        self._scope[NEXT_OFFSET] = max(self._scope[NEXT_OFFSET], next_offset)
        return 0

    def _take_records(self) -> cython.int:  # noqa: C901, PLR0912, PLR0915 - variables, see below
        """Take the rest of the batch under way; return 0, FULL, or what is wrong.

        What moves with every record is kept in variables: the compiler has to believe that a byte
        written to a buffer might be one of the scope.
        """
        wanted: cython.int = self._scope[WANTED]
        left: cython.longlong = self._scope[LEFT]
        row: cython.Py_ssize_t = self._scope[ROWS]
        key_bytes: cython.longlong = self._scope[KEY_BYTES]
        value_bytes: cython.longlong = self._scope[VALUE_BYTES]
        start: cython.Py_ssize_t = self._scope[AT]
        at: cython.Py_ssize_t = start
        stop: cython.Py_ssize_t
        offset: cython.longlong
        timestamp: cython.longlong
        key_size: cython.longlong
        value_size: cython.longlong
        is_full: cython.bint = False
        while left > 0 and not is_full:
            at, stop, timestamp, offset = _record_head(self._view, start, self._scope[RECORDS_STOP])
            if at < 0:
                break
            if offset < 0 or offset > self._scope[LAST_DELTA]:
                return BAD_DELTA
            offset += self._scope[BASE_OFFSET]
            if self._scope[START_OFFSET] <= offset < self._scope[END_OFFSET]:
                if row >= self._scope[ROWS_MAX]:
                    at = _NO_ROOM
                    break
                at, key_size = _take_octets(
                    self._view, at, stop, self._key_data, key_bytes, wanted & KEY
                )
                if at < 0:
                    break
                at, value_size = _take_octets(
                    self._view, at, stop, self._value_data, value_bytes, wanted & VALUE
                )
                if at < 0:
                    break
                if wanted & HEADERS:
                    at = self._take_headers(row, at, stop)
                    if at < 0:
                        break
                if wanted & KEY:
                    if key_size < 0:
                        self._scope[KEY_NULLS] += 1
                    key_bytes = put_end(self._key_ends, self._key_bits, row, key_bytes, key_size)
                if wanted & VALUE:
                    if value_size < 0:
                        self._scope[VALUE_NULLS] += 1
                    value_bytes = put_end(
                        self._value_ends, self._value_bits, row, value_bytes, value_size
                    )
                self._put_numbers(row, wanted, offset, timestamp)
                row += 1
                is_full = key_bytes + value_bytes >= self._room_bytes()
            left -= 1
            start = stop
        if at < 0 and at != _NO_ROOM:
            return at
        self._scope[AT] = start
        self._scope[LEFT] = left
        self._scope[ROWS] = row
        self._scope[KEY_BYTES] = key_bytes
        self._scope[VALUE_BYTES] = value_bytes
        if at == _NO_ROOM:  # As if the record had not been looked at.
            self._scope[RECORD_BYTES] = stop - start
        return FULL if at == _NO_ROOM or is_full else 0

    def _room_bytes(self) -> cython.longlong:
        """Return how many bytes keys and values may have before it is enough."""
        headers: cython.longlong = self._scope[NAME_BYTES] + self._scope[CONTENT_BYTES]
        return self._scope[TARGET_BYTES] - headers

    def _put_numbers(
        self,
        row: cython.Py_ssize_t,
        wanted: cython.int,
        offset: cython.longlong,
        timestamp: cython.longlong,
    ) -> cython.int:
        attributes: cython.int = self._scope[ATTRIBUTES]
        if wanted & TIMESTAMP:
            self._put_timestamp(row, timestamp)
        if wanted & OFFSET:
            self._offsets[row] = offset
        if wanted & TIMESTAMP_TYPE:
            self._types[row] = ((attributes >> 3) & 1) - ((attributes >> 16) & 1)
        return 0

    def _put_timestamp(self, row: cython.Py_ssize_t, delta: cython.longlong) -> cython.int:
        base: cython.longlong = self._scope[BASE_TIMESTAMP]
        if self._scope[ATTRIBUTES] & _LOG_APPEND_TIME_BIT:
            delta = self._scope[MAX_TIMESTAMP]
        elif base > 0 and delta > _OFFSET_MAX - base:
            delta = _OFFSET_MAX
        elif base < 0 and delta < _LONG_MIN - base:
            delta = _LONG_MIN
        else:
            delta += base
        if delta > _MICROSECONDS_MAX or delta < -_MICROSECONDS_MAX:
            self._scope[TIMESTAMP_NULLS] += 1
            clear(self._timestamp_bits, row)
            delta = 0
        self._timestamps[row] = delta * 1000
        return 0

    def _take_headers(  # noqa: C901, PLR0911, PLR0912, PLR0915 - each field has its own faults
        self, row: cython.Py_ssize_t, at: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Take the next row's headers; return their end, _NO_ROOM, or what is wrong."""
        header: cython.longlong = self._scope[HEADER_COUNT]
        names: cython.longlong = self._scope[NAME_BYTES]
        contents: cython.longlong = self._scope[CONTENT_BYTES]
        nulls: cython.longlong = 0
        is_plain: cython.bint = True
        left: cython.longlong
        size: cython.longlong
        left, at = varint_at(self._view, at, stop)
        if at < 0:
            return at
        if left < 0 or left > (stop - at) // 2:  # a header has two bytes at least
            return BAD_HEADER_COUNT
        if left > len(self._name_ends) - 1 - header:
            return _NO_ROOM
        if left == 0:
            self._scope[HEADER_NULLS] += 1
            clear(self._header_bits, row)
        while left > 0:
            left -= 1
            size, at = varint_at(self._view, at, stop)
            if at < 0:
                return at
            if size < 0 or size > stop - at:
                return BAD_FIELD
            if size > len(self._name_data) - names:
                return _NO_ROOM
            is_plain = _is_plain(self._view, at, size) and is_plain
            copy_short(self._view, at, self._name_data, names, size)
            names += size
            self._name_ends[header + 1] = names
            size, at = varint_at(self._view, at + size, stop)
            if at < 0:
                return at
            if size < 0:
                nulls += 1
                clear(self._content_bits, header)
            else:
                if size > stop - at:
                    return BAD_FIELD
                if size > len(self._content_data) - contents:
                    return _NO_ROOM
                copy_short(self._view, at, self._content_data, contents, size)
                contents += size
                at += size
                self._content_bits[header >> 3] |= 1 << (header & 7)
            header += 1
            self._content_ends[header] = contents
        if at != stop:
            return BAD_RECORD_END
        self._header_ends[row + 1] = header
        self._scope[HEADER_COUNT] = header
        self._scope[NAME_BYTES] = names
        self._scope[CONTENT_BYTES] = contents
        self._scope[CONTENT_NULLS] += nulls
        if not is_plain:
            self._scope[NAMES_PLAIN] = 0
        return at


def _record_head(
    view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t, cython.longlong, cython.longlong]:
    """Return where the key of the record at ``at`` stands, where the record ends, and its deltas.

    The deltas of timestamp and offset. Instead of the first number what is wrong.
    """
    length: cython.longlong
    timestamp: cython.longlong
    offset: cython.longlong
    length, at = varint_at(view, at, end)
    if at < 0:
        return at, 0, 0, 0
    if length < 1 or length > end - at:
        return BAD_LENGTH, 0, 0, 0
    end = at + length
    timestamp, at = varlong_at(view, at + 1, end)  # behind the attributes
    if at < 0:
        return at, 0, 0, 0
    offset, at = varint_at(view, at, end)
    return at, end, timestamp, offset


def _take_octets(  # noqa: PLR0917 - C arguments
    view: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    target: cython.uchar[::1],
    to: cython.longlong,
    is_wanted: cython.bint,
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """Copy a key or a value, if it is wanted; return its end, or what is wrong, and its size."""
    size: cython.longlong
    size, at = varint_at(view, at, stop)
    if at < 0 or size <= 0:
        return at, size
    if size > stop - at:
        return BAD_FIELD, 0
    if is_wanted:
        if size > len(target) - to:
            return _NO_ROOM, 0
        copy_short(view, at, target, to, size)
    return at + size, size


def _is_plain(
    view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.longlong
) -> cython.bint:
    """Tell whether all bytes are ASCII."""
    index: cython.Py_ssize_t
    for index in range(size):  # noqa: SIM110 - which would make a generator
        if view[at + index] > 0x7F:
            return False
    return True


if cython.compiled:
    ottla_crc32c_choose()
