# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""Avro values to columns in Arrow's layout: the loop over the values of many records.

Stands beside ``columns``, which brings the values, and is made the same way: one file that runs
compiled or interpreted, with the same results. Knows neither schemas as people write them nor
Arrow: ``avro_columns`` makes its tables and buffers.

Values are walked twice. ``measure`` sees what each holds and judges it; the caller makes one buffer
of the very size; ``fill`` fills it. Nothing that a value says is believed before it was held
against the bytes that are there, and ``fill`` asks again before it writes.

Grammar of a value, by the kind of its node (varint: zigzag, up to 5 bytes for an int and 10 for a
long, what is beyond 32 or 64 bits falls away, as in Java):

    value   = [magic 0, schema id: 4 bytes] datum            with HEADER_BYTES, Confluent's framing
    datum   = [branch: int] content                          branch: where null is another one
    content = nothing (NULL) | 1 byte (BOOLEAN) | int (INT, ENUM) | long (LONG, MILLIS)
            | 4 or 8 bytes (FLOAT, DOUBLE) | length: long, bytes (OCTETS) | bytes (FIXED)
            | length: long, number (DECIMAL) | number (FIXED_DECIMAL)      number: big-endian
            | datum ... (RECORD) | branch: int, datum (UNION)
            | {count: long [size: long, where count is negative], item ...}, 0   (ARRAY, MAP)
    item    = datum (ARRAY) | key: OCTETS, datum (MAP)

What follows the datum is not looked at, as in Spark. The columns: see ``avro_tables``.

Source: Apache Avro 1.12 specification, "Binary Encoding".
"""

# ruff: noqa: F403, F405 - C functions and the names of avro_tables come by avro.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

if not cython.compiled:  # else they stand in avro.pxd
    from ottla.records.columnar.avro_tables import *  # the names in capitals
    from ottla.records.numbers import copy, uint32_at

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension or the interpreted form."""

_COMPARED_MAX = cython.declare(cython.longlong, 16)  # keys of one map, each with each
_HEADER_BYTES = cython.declare(cython.int, 5)
_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_MILLISECONDS_MAX = cython.declare(cython.longlong, 9223372036854775)  # so many in 64 bits of us
_UINT32_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_UINT64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_INT64_MAX = cython.declare(cython.ulonglong, 0x7FFFFFFFFFFFFFFF)


class Reader:
    """Reads values of one schema. Its tables are those of the constants above."""

    _nodes: cython.int[::1]
    _branches: cython.int[::1]
    _bounds: cython.ulonglong[::1]
    _columns: cython.longlong[::1]
    _has_header: cython.bint
    _schema_id: cython.longlong
    # What is read, and where it stands.
    _data: cython.const[cython.uchar][::1]
    _at: cython.longlong
    _stop: cython.longlong
    _value: cython.longlong
    _bare_left: cython.longlong
    # What is filled: one buffer in four views.
    _filling: cython.bint
    _sign: cython.int
    _octets: cython.uchar[::1]
    _ints: cython.int[::1]
    _longs: cython.longlong[::1]
    _wholes: cython.ulonglong[::1]

    def __init__(
        self,
        nodes: array[int],
        branches: array[int],
        bounds: array[int],
        columns: array[int],
        *,
        has_header: bool,
        schema_id: int,
    ) -> None:
        """Take the tables; ``schema_id`` -1: any will do."""
        self._nodes = nodes
        self._branches = branches
        self._bounds = bounds
        self._columns = columns
        self._has_header = has_header
        self._schema_id = schema_id
        self._sign = 1
        self._filling = False

    def measure(self, data: Buffer, ends: Buffer, statuses: bytearray) -> int:
        """Judge the values: ``statuses`` gets one of each, USED of each column grows by its needs.

        ``ends`` (int32, one more than values) lie in ``data``; a value whose status is ABSENT on
        entry is none. Returns how many are malformed.
        """
        limits: cython.int[::1] = ends
        found: cython.uchar[::1] = statuses
        bad: cython.longlong = 0
        row: cython.Py_ssize_t
        self._check(data, limits, len(found))
        self._filling = False
        with cython.nogil:
            for row in range(len(found)):
                if found[row] == ABSENT:
                    continue
                found[row] = self._judge(limits[row], limits[row + 1])
                if found[row] != GOOD:
                    bad += 1
        return bad

    def fill(
        self, data: Buffer, ends: Buffer, statuses: bytearray, buffers: tuple[Buffer, ...]
    ) -> int:
        """Fill ``buffers``, one and the same as uint8, int32, int64 and uint64, as measured.

        A value that is ABSENT is null; one that is malformed is a record of nulls, or null.
        Returns 0, or a reason: then values have changed meanwhile.
        """
        limits: cython.int[::1] = ends
        found: cython.uchar[::1] = statuses
        row: cython.Py_ssize_t
        reason: cython.int = 0
        self._check(data, limits, len(found))
        self._octets, self._ints, self._longs, self._wholes = buffers
        self._filling = True
        with cython.nogil:
            for row in range(len(found)):
                if found[row] == ABSENT:
                    reason = self._put_null(0)
                elif found[row] != GOOD:
                    reason = self._put_malformed()
                else:
                    self._at = limits[row]
                    self._stop = limits[row + 1]
                    self._bare_left = BARE_ITEMS_MAX
                    if self._has_header:
                        self._at += _HEADER_BYTES
                    reason = self._read(0)
                if reason:
                    break
        return reason

    def _check(self, data: Buffer, ends: cython.int[::1], rows: cython.Py_ssize_t) -> cython.int:
        """Hold where values are said to be against the data."""
        row: cython.Py_ssize_t
        last: cython.longlong = 0
        self._data = data
        if len(ends) <= rows:
            raise ValueError("there are fewer ends than values")
        for row in range(rows + 1):
            if ends[row] < last:
                raise ValueError("a value ends before it begins")
            last = ends[row]
        if last > len(self._data):
            raise ValueError("values lie outside of the data")
        return 0

    def _judge(self, start: cython.longlong, stop: cython.longlong) -> cython.int:
        reason: cython.int
        self._stop = stop
        if self._has_header:
            if stop - start < _HEADER_BYTES or self._data[start] != 0:
                return BAD_MAGIC
            if self._schema_id >= 0 and uint32_at(self._data, start + 1) != self._schema_id:
                return OTHER_SCHEMA_ID
            start += _HEADER_BYTES
        self._at = start
        self._bare_left = BARE_ITEMS_MAX
        reason = self._read(0)
        if reason:  # Once more as far as that, to take back what was counted.
            self._sign = -1
            self._at = start
            self._bare_left = BARE_ITEMS_MAX
            self._read(0)
            self._sign = 1
        return reason

    def _number(self, bytes_max: cython.int) -> cython.int:
        """Read a varint into _value."""
        at: cython.longlong = self._at
        byte: cython.ulonglong
        raw: cython.ulonglong
        shift: cython.int = 7
        if at >= self._stop:
            return TRUNCATED
        raw = self._data[at]
        at += 1
        if raw > 0x7F:
            raw &= 0x7F
            while True:
                if at >= self._stop:
                    return TRUNCATED
                byte = self._data[at]
                at += 1
                raw |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift >= bytes_max * 7:
                    return BAD_VARINT
            raw &= _UINT32_MAX if bytes_max == 5 else _UINT64_MAX
        self._at = at
        self._value = raw >> 1
        if raw & 1:
            self._value = ~self._value
        return 0

    def _count(self, column: cython.int, more: cython.longlong) -> cython.int:
        """Note that a column needs so much more; while filling, see that it is there."""
        if self._filling:
            if more > self._columns[column + USED_MAX] - self._columns[column + USED]:
                return NO_ROOM
            self._columns[column + USED] += more
            return 0
        self._columns[column + USED] += self._sign * more
        return 0

    def _put_null(self, node: cython.int) -> cython.int:
        """Leave a slot of the node, and of what is below it, null."""
        base: cython.int = node * NODE_SIZE
        column: cython.int = node * COLUMN_SIZE
        kind: cython.int = self._nodes[base]
        slot: cython.longlong
        at: cython.longlong
        if not self._filling or self._nodes[base + SKIPPED]:
            return 0
        slot = self._columns[column]
        if slot >= self._columns[column + SLOTS_MAX]:
            return NO_ROOM
        self._columns[column] = slot + 1
        self._columns[column + NULLS] += 1
        if kind == NULL:
            return 0
        at = self._columns[column + BITS_AT] + (slot >> 3)
        self._octets[at] = self._octets[at] & (~(1 << (slot & 7)) & 0xFF)
        if kind in (OCTETS, FIXED, ARRAY, MAP):
            at = self._columns[column + VALUES_AT] + slot + 1
            self._ints[at] = self._columns[column + USED]
        elif kind in (RECORD, UNION):
            return self._put_nulls(base)
        return 0

    def _put_nulls(self, base: cython.int) -> cython.int:
        """Leave a slot of every child null."""
        child: cython.int = self._nodes[base + FIRST]
        while child >= 0:
            if self._put_null(child):
                return NO_ROOM
            child = self._nodes[child * NODE_SIZE + NEXT]
        return 0

    def _put_malformed(self) -> cython.int:
        """Put a record of nulls, as Spark does; null where values are no records."""
        if self._nodes[0] != RECORD:
            return self._put_null(0)
        if self._columns[0] >= self._columns[SLOTS_MAX]:
            return NO_ROOM
        self._columns[0] += 1
        return self._put_nulls(0)

    def _read(self, node: cython.int) -> cython.int:  # noqa: C901, PLR0911, PLR0912 - by kind
        """Read a datum, as the node says; return 0, or why it cannot be."""
        base: cython.int = node * NODE_SIZE
        column: cython.int = node * COLUMN_SIZE
        kind: cython.int = self._nodes[base]
        slot: cython.longlong = 0
        at: cython.longlong = 0
        reason: cython.int
        if self._nodes[base + VALUE_BRANCH] >= 0:
            reason = self._number(5)
            if reason:
                return reason
            if self._value != self._nodes[base + VALUE_BRANCH]:
                if self._value != self._nodes[base + NULL_BRANCH] or self._value < 0:
                    return BAD_BRANCH
                return self._put_null(node)
        if kind == UNION:
            return self._read_union(node)
        if self._filling:
            slot = self._columns[column]
            if slot >= self._columns[column + SLOTS_MAX]:
                return NO_ROOM
            self._columns[column] = slot + 1
            at = self._columns[column + VALUES_AT] + slot
        if kind in (LONG, MILLIS):
            return self._read_long(kind, at)
        if kind in (OCTETS, FIXED):
            return self._read_octets(base, column, at)
        if kind in (INT, ENUM):
            return self._read_int(base, at)
        if kind in (DOUBLE, FLOAT):
            return self._read_float(8 if kind == DOUBLE else 4, at)
        if kind == BOOLEAN:
            return self._read_boolean(column, slot)
        if kind == RECORD:
            return self._read_fields(base)
        if kind in (ARRAY, MAP):
            reason = self._read_items(node)
            if reason == 0 and self._filling:
                self._ints[at + 1] = self._columns[column + USED]
            return reason
        if kind in (DECIMAL, FIXED_DECIMAL):
            return self._read_decimal(base, at * 2)
        if self._filling:  # NULL
            self._columns[column + NULLS] += 1
        return 0

    def _read_long(self, kind: cython.int, at: cython.longlong) -> cython.int:
        reason: cython.int = self._number(10)
        if reason:
            return reason
        if kind == MILLIS:
            if self._value > _MILLISECONDS_MAX or self._value < -_MILLISECONDS_MAX:
                return BAD_TIME
            self._value = self._value * 1000
        if self._filling:
            self._longs[at] = self._value
        return 0

    def _read_int(self, base: cython.int, at: cython.longlong) -> cython.int:
        reason: cython.int = self._number(5)
        if reason:
            return reason
        if self._nodes[base] == ENUM and (
            self._value < 0 or self._value >= self._nodes[base + SIZE]
        ):
            return BAD_SYMBOL
        if self._filling:
            self._ints[at] = self._value
        return 0

    def _read_float(self, size: cython.longlong, at: cython.longlong) -> cython.int:
        if size > self._stop - self._at:
            return TRUNCATED
        if self._filling:
            copy(self._data, self._at, self._octets, at * size, size)
        self._at += size
        return 0

    def _read_boolean(self, column: cython.int, slot: cython.longlong) -> cython.int:
        at: cython.longlong
        if self._at >= self._stop:
            return TRUNCATED
        if self._filling and self._data[self._at] == 1:
            at = self._columns[column + VALUES_AT] + (slot >> 3)
            self._octets[at] = self._octets[at] | (1 << (slot & 7))
        self._at += 1
        return 0

    def _read_size(self, base: cython.int, varying: cython.int) -> cython.int:
        """Read how many bytes follow into _value, unless the node says it; see that they do."""
        reason: cython.int
        if self._nodes[base] == varying:
            reason = self._number(10)
            if reason:
                return reason
        else:
            self._value = self._nodes[base + SIZE]
        return BAD_LENGTH if self._value < 0 or self._value > self._stop - self._at else 0

    def _read_octets(self, base: cython.int, column: cython.int, at: cython.longlong) -> cython.int:
        reason: cython.int = self._read_size(base, OCTETS)
        used: cython.longlong = self._columns[column + USED]
        if reason:
            return reason
        reason = self._count(column, self._value)
        if reason:
            return reason
        if self._filling:
            used += self._columns[column + DATA_AT]
            copy(self._data, self._at, self._octets, used, self._value)
            self._ints[at + 1] = self._columns[column + USED]
        self._at += self._value
        return 0

    def _read_fields(self, base: cython.int) -> cython.int:
        """Read the fields of a record; those that are skipped are measured only."""
        child: cython.int = self._nodes[base + FIRST]
        filling: cython.bint = self._filling
        reason: cython.int
        while child >= 0:
            if self._nodes[child * NODE_SIZE + SKIPPED]:
                self._filling = False
            reason = self._read(child)
            self._filling = filling
            if reason:
                return reason
            child = self._nodes[child * NODE_SIZE + NEXT]
        return 0

    def _read_union(self, node: cython.int) -> cython.int:
        """Read one of several: a slot in the node of its branch, nulls in those of the others."""
        base: cython.int = node * NODE_SIZE
        column: cython.int = node * COLUMN_SIZE
        reason: cython.int = self._number(5)
        chosen: cython.int
        child: cython.int
        if reason:
            return reason
        if self._value < 0 or self._value >= self._nodes[base + SIZE]:
            return BAD_BRANCH
        chosen = self._branches[self._nodes[base + MORE] + self._value]
        if chosen < 0:
            return self._put_null(node)
        if not self._filling:
            return self._read(chosen)
        if self._columns[column] >= self._columns[column + SLOTS_MAX]:
            return NO_ROOM
        self._columns[column] += 1
        child = self._nodes[base + FIRST]
        while child >= 0:
            reason = self._read(child) if child == chosen else self._put_null(child)
            if reason:
                return reason
            child = self._nodes[child * NODE_SIZE + NEXT]
        return 0

    def _read_count(self, least: cython.longlong) -> cython.int:
        """Read a block's head: how many items of ``least`` bytes or more, into _value."""
        left: cython.longlong
        reason: cython.int = self._number(10)
        if reason:
            return reason
        left = self._value
        if left < 0:
            reason = self._number(10)  # the size of the block: for those who pass it over
            if reason:
                return reason
            if left < -_INT32_MAX:
                return TOO_MANY_ITEMS
            left = -left
        if least == 0:
            if left > self._bare_left:
                return TOO_MANY_ITEMS
            self._bare_left -= left
        elif left > (self._stop - self._at) // least:
            return TOO_MANY_ITEMS
        self._value = left
        return 0

    def _read_items(self, node: cython.int) -> cython.int:
        """Read the blocks of an array or a map."""
        base: cython.int = node * NODE_SIZE
        first: cython.int = self._nodes[base + FIRST]
        second: cython.int = self._nodes[first * NODE_SIZE + NEXT]
        left: cython.longlong
        reason: cython.int
        start: cython.longlong = self._columns[node * COLUMN_SIZE + USED]
        while True:
            reason = self._read_count(self._nodes[base + SIZE])
            if reason:
                return reason
            if self._value == 0:
                if self._filling and second >= 0 and self._has_doubles(first, start):
                    self._columns[node * COLUMN_SIZE + DOUBLES] = 1
                return 0
            left = self._value
            reason = self._count(node * COLUMN_SIZE, left)
            if reason:
                return reason
            while left > 0:
                reason = self._read(first)
                if reason == 0 and second >= 0:
                    reason = self._read(second)
                if reason:
                    return reason
                left -= 1

    def _has_doubles(self, keys: cython.int, start: cython.longlong) -> cython.bint:
        """Tell whether two keys from slot ``start`` on are equal, or there are many."""
        column: cython.int = keys * COLUMN_SIZE
        ends: cython.longlong = self._columns[column + VALUES_AT]
        data: cython.longlong = self._columns[column + DATA_AT]
        stop: cython.longlong = self._columns[column]
        one: cython.longlong
        other: cython.longlong
        at: cython.longlong
        beside: cython.longlong
        size: cython.longlong
        if stop - start > _COMPARED_MAX:
            return True
        for one in range(start + 1, stop):
            size = self._ints[ends + one + 1] - self._ints[ends + one]
            for other in range(start, one):
                if self._ints[ends + other + 1] - self._ints[ends + other] != size:
                    continue
                at = data + self._ints[ends + one]
                beside = data + self._ints[ends + other] - at
                while (
                    size > 0 and self._octets[at + size - 1] == self._octets[at + beside + size - 1]
                ):
                    size -= 1
                if size == 0:
                    return True
                size = self._ints[ends + one + 1] - self._ints[ends + one]
        return False

    def _read_decimal(self, base: cython.int, to: cython.longlong) -> cython.int:
        """Read a number into two words at ``to``, the low one first."""
        reason: cython.int = self._read_size(base, DECIMAL)
        bound: cython.int = self._nodes[base + MORE]
        high: cython.ulonglong
        low: cython.ulonglong
        magnitude_high: cython.ulonglong
        magnitude_low: cython.ulonglong
        if reason:
            return reason
        if self._value == 0:
            return BAD_NUMBER
        high, low, reason = _words(self._data, self._at, self._value)
        if reason:
            return reason
        self._at += self._value
        magnitude_high = high
        magnitude_low = low
        if high > _INT64_MAX:
            magnitude_low = (~low & _UINT64_MAX) + 1 if low else 0
            magnitude_high = ~high & _UINT64_MAX
            if low == 0:
                magnitude_high = (magnitude_high + 1) & _UINT64_MAX
        if magnitude_high > self._bounds[bound] or (
            magnitude_high == self._bounds[bound] and magnitude_low >= self._bounds[bound + 1]
        ):
            return BAD_NUMBER
        if self._filling:
            self._wholes[to] = low
            self._wholes[to + 1] = high
        return 0


def _words(
    data: cython.const[cython.uchar][::1], at: cython.longlong, size: cython.longlong
) -> tuple[cython.ulonglong, cython.ulonglong, cython.int]:
    """Return the two words of a big-endian number, the high one first, and what is wrong with it.

    What is above 16 bytes must say nothing but the sign.
    """
    sign: cython.int = 0
    high: cython.ulonglong = 0
    low: cython.ulonglong = 0
    index: cython.longlong
    byte: cython.ulonglong
    if data[at] > 0x7F:
        sign = 0xFF
        high = _UINT64_MAX
        low = _UINT64_MAX
    for index in range(size):
        byte = data[at + index]
        if index < size - 16 and byte != sign:
            return 0, 0, BAD_NUMBER
        high = ((high << 8) & _UINT64_MAX) | (low >> 56)
        low = ((low << 8) & _UINT64_MAX) | byte
    return high, low, BAD_NUMBER if (high > _INT64_MAX) != (sign != 0) else 0
