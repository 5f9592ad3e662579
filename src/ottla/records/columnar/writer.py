# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""Columns to records: the loops that encode rows where they lie, with no object for any of them.

This kernel is made like ``ottla.records.kernels``: one file that runs compiled or interpreted. It
stands on the produce path of clients: ``ottla.spark.writing.write`` hands in buffers in Arrow's
layout, and they become the records of a batch; ``filling`` writes the header. Each set of rows
takes three steps: ``choose_partitions``, ``group_rows``, and ``encode`` for each partition, which
goes on where the last call ended, so that a batch holds rows of many sets. Knows no codecs and no
pyarrow.

Grammar of records: see ``ottla.records.kernels``. Layout of columns: see ``layout``.
Source of the partitions: Kafka's documentation of partitioner.class, murmur2 by Austin Appleby.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

if not cython.compiled:  # else they stand in writer.pxd
    from ottla.records.columnar.layout import ascend, check_validity, is_valid
    from ottla.records.numbers import copy, put_varint, varint_size

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

    from ottla.records.columnar.layout import Headers, Numbers, Octets

COMPILED: bool = cython.compiled
"""Whether this is the extension (nanoseconds a row) or the interpreted form (microseconds)."""

POSITION = 0
"""Of ``state``: where in the output the next record goes; first behind the batch's header."""
RECORD_COUNT = 1
BASE_TIMESTAMP = 2
"""The timestamp of the first record."""
MAX_TIMESTAMP = 3
NEEDED_BYTES = 4
"""Result only: the size of the record that did not fit."""
STATE_SIZE = 5

_POSITION = cython.declare(cython.int, 0)
_COUNT = cython.declare(cython.int, 1)
_BASE = cython.declare(cython.int, 2)
_MAX = cython.declare(cython.int, 3)
_NEEDED = cython.declare(cython.int, 4)

_ROW_BYTES = cython.declare(cython.int, 12)
"""Roughly what a record takes beside its key and value."""
_SEED = cython.declare(cython.uint, 0x9747B28C)
_MULTIPLIER = cython.declare(cython.uint, 0x5BD1E995)
_MASK = cython.declare(cython.uint, 0xFFFFFFFF)


@cython.cclass
class _Column:
    """Octets as the loops see them."""

    offsets: cython.const[cython.int][::1]
    data: cython.const[cython.uchar][::1]
    validity: cython.const[cython.uchar][::1]
    bit: cython.Py_ssize_t
    is_there: cython.bint
    has_nulls: cython.bint

    def __init__(self, column: Octets | None, count: cython.Py_ssize_t) -> None:
        self.is_there = column is not None
        self.has_nulls = False
        if column is None:
            self.data = b""
            return
        self.offsets = column.offsets
        self.data = column.data
        self.bit = column.bit
        if column.validity is not None:
            self.has_nulls = True
            self.validity = column.validity
            check_validity(len(self.validity), self.bit, count)
        if len(self.offsets) != count + 1 or not ascend(self.offsets, count, len(self.data)):
            raise ValueError("a column's offsets do not fit its rows or its data")


@cython.cclass
class ColumnWriter:
    """Rows that become records. Reads its buffers where they are: keep them as long as this."""

    count: cython.Py_ssize_t
    key: _Column
    value: _Column
    names: _Column
    header_values: _Column
    header_offsets: cython.const[cython.int][::1]
    header_validity: cython.const[cython.uchar][::1]
    header_bit: cython.Py_ssize_t
    has_headers: cython.bint
    has_header_nulls: cython.bint
    times: cython.const[cython.longlong][::1]
    time_validity: cython.const[cython.uchar][::1]
    time_bit: cython.Py_ssize_t
    has_times: cython.bint
    has_time_nulls: cython.bint
    now_ms: cython.longlong

    def __init__(
        self,
        count: cython.Py_ssize_t,
        *,
        now_ms: cython.longlong,
        value: Octets,
        key: Octets | None = None,
        headers: Headers | None = None,
        timestamp: Numbers | None = None,
    ) -> None:
        """Take the columns of ``count`` rows. Raises ValueError when sizes do not fit.

        ``now_ms`` is the time of rows without one; ``timestamp`` is in microseconds.
        """
        self.count = count
        self.now_ms = now_ms
        self.key = _Column(key, count)
        self.value = _Column(value, count)
        self.has_headers = headers is not None
        self.has_header_nulls = False
        if headers is not None:
            self.header_offsets = headers.offsets
            self.names = _Column(headers.names, len(headers.names.offsets) - 1)
            self.header_values = _Column(headers.values, len(headers.values.offsets) - 1)
            self.header_bit = headers.bit
            if headers.validity is not None:
                self.has_header_nulls = True
                self.header_validity = headers.validity
                check_validity(len(self.header_validity), self.header_bit, count)
            there = min(len(self.names.offsets), len(self.header_values.offsets)) - 1
            if len(self.header_offsets) != count + 1 or not ascend(
                self.header_offsets, count, there
            ):
                raise ValueError("the offsets of headers do not fit the rows or the headers")
        else:
            self.names = self.header_values = _Column(None, 0)
        self.has_times = timestamp is not None
        self.has_time_nulls = False
        if timestamp is not None:
            self.times = timestamp.values
            self.time_bit = timestamp.bit
            if timestamp.validity is not None:
                self.has_time_nulls = True
                self.time_validity = timestamp.validity
                check_validity(len(self.time_validity), self.time_bit, count)
            if len(self.times) != count:
                raise ValueError("there are not as many timestamps as rows")

    def choose_partitions(  # noqa: C901, PLR0912, PLR0915 - flat, because a call a row costs more
        self,
        chosen: array[int],
        start: cython.Py_ssize_t,
        *,
        partition_count: cython.int,
        sticky: cython.int,
        room_bytes: cython.longlong,
        partition: Numbers | None = None,
    ) -> tuple[int, int]:
        """Write the partition of each row from ``start`` on to ``chosen``: int32, one a row.

        The partition a row asks for, else that of its key by murmur2, else ``sticky``, as long as
        ``room_bytes`` lasts. Returns the first row without a partition, the number of rows when
        all have one, and the room left. A row that cannot be written is the first one, too, and
        the room is negative then: it asks for a partition that is not there, or its timestamp is
        before 1970.
        """
        out: cython.int[::1] = chosen
        asked: cython.const[cython.int][::1]
        validity: cython.const[cython.uchar][::1] = b""
        has_asked: cython.bint = partition is not None
        has_nulls: cython.bint = False
        bit: cython.Py_ssize_t = 0
        if partition is not None:
            asked = partition.values
            bit = partition.bit
            if partition.validity is not None:
                has_nulls = True
                validity = partition.validity
                check_validity(len(validity), bit, self.count)
            if len(asked) != self.count:
                raise ValueError("there are not as many partitions as rows")
        else:
            asked = memoryview(b"").cast("i")
        if len(out) < self.count or partition_count < 1 or start < 0:
            raise ValueError("the output is too small")
        row: cython.Py_ssize_t = start
        room: cython.longlong = room_bytes
        key: _Column = self.key
        number: cython.int
        while row < self.count:
            if self.has_times and self._time(row) < 0:
                room = -1
                break
            if has_asked and not (has_nulls and not is_valid(validity, bit + row)):
                number = asked[row]
                if number < 0 or number >= partition_count:
                    room = -1
                    break
                out[row] = number
            elif partition_count == 1:
                out[row] = 0
            elif key.is_there and not (key.has_nulls and not is_valid(key.validity, key.bit + row)):
                out[row] = (
                    _murmur2(key.data, key.offsets[row], key.offsets[row + 1]) & 0x7FFFFFFF
                ) % partition_count
            else:
                out[row] = sticky
                room -= _ROW_BYTES + self.value.offsets[row + 1] - self.value.offsets[row]
                if room <= 0:
                    room = 0
                    row += 1
                    break
            row += 1
        return row, room

    def encode(
        self,
        order: array[int],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        out: bytearray,
        state: array[int],
    ) -> int:
        """Write the rows ``order[start:end]`` behind each other to ``out``, as far as they fit.

        Returns where in ``order`` it ended. The record at that place would end behind ``out``;
        NEEDED_BYTES says how large it is. ``state`` moves on.
        """
        rows: cython.const[cython.int][::1] = order
        target: cython.uchar[::1] = out
        fields: cython.longlong[::1] = state
        at: cython.Py_ssize_t
        if start < 0 or end > len(rows) or len(fields) < 5 or fields[_POSITION] < 0:
            raise ValueError("rows or state are smaller than told")
        at = self._encode(rows, start, end, target, fields)
        if at < 0:
            raise ValueError("a row's number is not one of the rows")
        return at

    @cython.cfunc
    @cython.exceptval(check=False)
    def _encode(  # noqa: C901, PLR0915 - flat, because a call a field costs more
        self,
        rows: cython.const[cython.int][::1],
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        out: cython.uchar[::1],
        state: cython.longlong[::1],
    ) -> cython.Py_ssize_t:
        key: _Column = self.key
        value: _Column = self.value
        has_key: cython.bint = key.is_there
        limit: cython.Py_ssize_t = len(out)
        position: cython.Py_ssize_t = state[_POSITION]
        record_count: cython.longlong = state[_COUNT]
        base: cython.longlong = state[_BASE]
        highest: cython.longlong = state[_MAX]
        time: cython.longlong = self.now_ms
        row: cython.Py_ssize_t
        key_at: cython.Py_ssize_t = 0
        key_size: cython.longlong
        value_at: cython.Py_ssize_t
        value_size: cython.longlong
        headers_size: cython.longlong = 1
        size: cython.longlong
        needed: cython.longlong
        while at < end:
            row = rows[at]
            if row < 0 or row >= self.count:
                return -1
            key_size = -1
            if has_key and not (key.has_nulls and not is_valid(key.validity, key.bit + row)):
                key_at = key.offsets[row]
                key_size = key.offsets[row + 1] - key_at
            value_at = value.offsets[row]
            value_size = value.offsets[row + 1] - value_at
            if value.has_nulls and not is_valid(value.validity, value.bit + row):
                value_size = -1
            if self.has_times:
                time = self._time(row)
            if record_count == 0:
                base = time
                highest = time
            size = (
                1
                + varint_size(time - base)
                + varint_size(record_count)
                + varint_size(key_size)
                + varint_size(value_size)
            )
            if key_size > 0:
                size += key_size
            if value_size > 0:
                size += value_size
            if self.has_headers:
                headers_size = self._headers_size(row)
            size += headers_size
            needed = size + varint_size(size)
            if needed > limit - position:
                state[_NEEDED] = needed
                break
            position = put_varint(out, position, size)
            out[position] = 0
            position = put_varint(out, position + 1, time - base)
            position = put_varint(out, position, record_count)
            position = _put_octets(out, position, key.data, key_at, key_size)
            position = _put_octets(out, position, value.data, value_at, value_size)
            if self.has_headers:
                position = self._put_headers(out, position, row)
            else:
                out[position] = 0
                position += 1
            highest = max(highest, time)
            record_count += 1
            at += 1
        state[_POSITION] = position
        state[_COUNT] = record_count
        state[_BASE] = base
        state[_MAX] = highest
        return at

    @cython.cfunc
    @cython.exceptval(check=False)
    def _time(self, row: cython.Py_ssize_t) -> cython.longlong:
        """Return milliseconds, rounded down."""
        micros: cython.longlong
        millis: cython.longlong
        if self.has_time_nulls and not is_valid(self.time_validity, self.time_bit + row):
            return self.now_ms
        micros = self.times[row]
        millis = micros // 1000
        if millis * 1000 > micros:
            millis -= 1
        return millis

    @cython.cfunc
    @cython.exceptval(check=False)
    def _headers_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        first: cython.Py_ssize_t = self.header_offsets[row]
        last: cython.Py_ssize_t = self.header_offsets[row + 1]
        each: cython.Py_ssize_t
        size: cython.longlong
        length: cython.longlong
        if self.has_header_nulls and not is_valid(self.header_validity, self.header_bit + row):
            return 1
        size = varint_size(last - first)
        for each in range(first, last):
            length = self.names.offsets[each + 1] - self.names.offsets[each]
            size += varint_size(length) + length
            length = self._header_value_size(each)
            size += varint_size(length)
            if length > 0:
                size += length
        return size

    @cython.cfunc
    @cython.exceptval(check=False)
    def _header_value_size(self, each: cython.Py_ssize_t) -> cython.longlong:
        values: _Column = self.header_values
        if values.has_nulls and not is_valid(values.validity, values.bit + each):
            return -1
        return values.offsets[each + 1] - values.offsets[each]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put_headers(
        self, out: cython.uchar[::1], position: cython.Py_ssize_t, row: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        names: _Column = self.names
        values: _Column = self.header_values
        first: cython.Py_ssize_t = self.header_offsets[row]
        last: cython.Py_ssize_t = self.header_offsets[row + 1]
        each: cython.Py_ssize_t
        if self.has_header_nulls and not is_valid(self.header_validity, self.header_bit + row):
            last = first
        position = put_varint(out, position, last - first)
        for each in range(first, last):
            position = _put_octets(
                out,
                position,
                names.data,
                names.offsets[each],
                names.offsets[each + 1] - names.offsets[each],
            )
            position = _put_octets(
                out, position, values.data, values.offsets[each], self._header_value_size(each)
            )
        return position


def group_rows(chosen: array[int], count: int, order: array[int], ends: array[int]) -> None:
    """Sort the first ``count`` rows by their partition, those of one partition in their order.

    ``chosen``: the partition of each row, below ``len(ends)``. ``order`` gets the rows' numbers,
    ``ends`` where in it each partition's rows end; they begin where the last one's end. All int32.
    """
    partitions: cython.const[cython.int][::1] = chosen
    rows: cython.int[::1] = order
    bounds: cython.int[::1] = ends
    total: cython.Py_ssize_t = count
    row: cython.Py_ssize_t
    each: cython.Py_ssize_t
    place: cython.int = 0
    partition: cython.int
    if total > len(partitions) or total > len(rows):
        raise ValueError("an array is too small")
    with cython.nogil:
        for each in range(len(bounds)):
            bounds[each] = 0
        for row in range(total):
            partition = partitions[row]
            if partition < 0 or partition >= len(bounds):
                place = -1
                break
            bounds[partition] += 1
    if place < 0:
        raise ValueError("a partition is out of range")
    with cython.nogil:
        for each in range(len(bounds)):  # where each begins
            partition = bounds[each]
            bounds[each] = place
            place += partition
        for row in range(total):  # which makes of each begin its end
            partition = partitions[row]
            rows[bounds[partition]] = row
            bounds[partition] += 1


def murmur2(data: Buffer) -> int:
    """Return the hash of ``data`` by which keys find their partition, unsigned. For tests."""
    view: cython.const[cython.uchar][::1] = data
    return _murmur2(view, 0, len(view))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_octets(
    out: cython.uchar[::1],
    position: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.longlong,
) -> cython.Py_ssize_t:
    """Write length and bytes; a negative size is null."""
    position = put_varint(out, position, size)
    if size > 0:
        copy(data, start, out, position, size)
        position += size
    return position


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.uint:
    position: cython.Py_ssize_t = start
    whole: cython.Py_ssize_t = start + ((end - start) & ~3)
    value: cython.uint = _SEED ^ (end - start)
    word: cython.uint
    top: cython.uint
    while position < whole:
        top = data[position + 3]
        word = data[position] | (data[position + 1] << 8) | (data[position + 2] << 16) | (top << 24)
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
        position += 4
    if whole < end:
        word = data[whole]
        if whole + 1 < end:
            word |= data[whole + 1] << 8
        if whole + 2 < end:
            word |= data[whole + 2] << 16
        value = (value ^ word) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15
