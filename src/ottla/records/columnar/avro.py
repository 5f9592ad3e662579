# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""Avro values to columns in Arrow's layout: the loop over the values of many records.

Stands beside ``columns``, which brings the values, and is made the same way: one file that runs
compiled or interpreted, with the same results. Knows neither schemas as people write them nor
Arrow: ``avro_columns`` makes its tables and buffers.

Values are walked twice. ``measure`` sees what each holds and judges it; the caller makes one buffer
of the very size; ``fill`` fills it. ``measure`` holds every number of a value against the
bytes that are there before it believes it, and ``fill`` asks again before it writes.

The bytes behind the datum are ignored, as in Spark. Grammar of values, and columns: see
``avro_tables``. Source: Apache Avro 1.12 specification, "Binary Encoding".
"""

# ruff: noqa: F403, F405 - C functions and the names of avro_tables come by avro.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

if not cython.compiled:  # else they stand in avro.pxd
    from ottla.records.columnar.avro_numbers import is_below, number_at, words_at
    from ottla.records.columnar.avro_tables import *  # the names in capitals
    from ottla.records.columnar.layout import ascend, clear
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


class Reader:
    """Reads values of one schema. Its tables are those of ``avro_tables``."""

    _walk: Walk
    _has_header: cython.bint
    _schema_id: cython.longlong

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
        self._walk = Walk(nodes, branches, bounds, columns)
        self._has_header = has_header
        self._schema_id = schema_id

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
        self._walk.filling = False
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
        start: cython.longlong
        walk: Walk = self._walk
        self._check(data, limits, len(found))
        walk.octets, walk.ints, walk.longs, walk.wholes = buffers
        walk.filling = True
        with cython.nogil:
            for row in range(len(found)):
                if found[row] == ABSENT:
                    reason = walk.put_null(0)
                elif found[row] != GOOD:
                    reason = walk.put_malformed()
                else:
                    start = limits[row] + (_HEADER_BYTES if self._has_header else 0)
                    reason = walk.read_value(start, limits[row + 1])
                if reason:
                    break
        return reason

    def _check(self, data: Buffer, ends: cython.int[::1], rows: cython.Py_ssize_t) -> cython.int:
        """Hold where values are said to be against the data."""
        self._walk.data = data
        if len(ends) <= rows:
            raise ValueError("there are fewer ends than values")
        if not ascend(ends, rows, len(self._walk.data)):
            raise ValueError("a value ends before it begins, or outside of the data")
        return 0

    def _judge(self, start: cython.longlong, stop: cython.longlong) -> cython.int:
        reason: cython.int
        if self._has_header:
            if stop - start < _HEADER_BYTES or self._walk.data[start] != 0:
                return BAD_MAGIC
            if self._schema_id >= 0 and uint32_at(self._walk.data, start + 1) != self._schema_id:
                return OTHER_SCHEMA_ID
            start += _HEADER_BYTES
        reason = self._walk.read_value(start, stop)
        if reason:  # Once more as far as that, to take back what was counted.
            self._walk.sign = -1
            self._walk.read_value(start, stop)
            self._walk.sign = 1
        return reason


class Walk:
    """The way through one value after the other: what is read, and the columns that are filled."""

    nodes: cython.int[::1]
    branches: cython.int[::1]
    bounds: cython.ulonglong[::1]
    columns: cython.longlong[::1]
    # What is read, and where it stands.
    data: cython.const[cython.uchar][::1]
    at: cython.longlong
    stop: cython.longlong
    value: cython.longlong
    bare_left: cython.longlong
    # What is filled: one buffer in four views.
    filling: cython.bint
    sign: cython.int
    octets: cython.uchar[::1]
    ints: cython.int[::1]
    longs: cython.longlong[::1]
    wholes: cython.ulonglong[::1]

    def __init__(
        self, nodes: array[int], branches: array[int], bounds: array[int], columns: array[int]
    ) -> None:
        self.nodes = nodes
        self.branches = branches
        self.bounds = bounds
        self.columns = columns
        self.sign = 1
        self.filling = False

    def read_value(self, start: cython.longlong, stop: cython.longlong) -> cython.int:
        """Read the datum at ``start``, which must end by ``stop``; return 0, or what is wrong."""
        self.at = start
        self.stop = stop
        self.bare_left = BARE_ITEMS_MAX
        return self._read(0)

    def _number(self, bytes_max: cython.int) -> cython.int:
        """Read a varint into ``value``."""
        number: cython.longlong
        at: cython.longlong
        number, at = number_at(self.data, self.at, self.stop, bytes_max)
        if at < 0:
            return -at
        self.at = at
        self.value = number
        return 0

    def _count(self, column: cython.int, more: cython.longlong) -> cython.int:
        """Note that a column needs so much more; while filling, see that it is there."""
        if self.filling and more > self.columns[column + USED_MAX] - self.columns[column + USED]:
            return NO_ROOM
        self.columns[column + USED] += self.sign * more
        return 0

    def put_null(self, node: cython.int) -> cython.int:
        """Leave a slot of the node, and of what is below it, null."""
        base: cython.int = node * NODE_SIZE
        column: cython.int = node * COLUMN_SIZE
        kind: cython.int = self.nodes[base]
        slot: cython.longlong
        at: cython.longlong
        if not self.filling or self.nodes[base + SKIPPED]:
            return 0
        slot = self.columns[column]
        if slot >= self.columns[column + SLOTS_MAX]:
            return NO_ROOM
        self.columns[column] = slot + 1
        self.columns[column + NULLS] += 1
        if kind == NULL:
            return 0
        clear(self.octets, self.columns[column + BITS_AT] * 8 + slot)
        if kind in (OCTETS, FIXED, ARRAY, MAP):
            at = self.columns[column + VALUES_AT] + slot + 1
            self.ints[at] = self.columns[column + USED]
        elif kind in (RECORD, UNION):
            return self._put_nulls(base)
        return 0

    def _put_nulls(self, base: cython.int) -> cython.int:
        """Leave a slot of every child null."""
        child: cython.int = self.nodes[base + FIRST]
        while child >= 0:
            if self.put_null(child):
                return NO_ROOM
            child = self.nodes[child * NODE_SIZE + NEXT]
        return 0

    def put_malformed(self) -> cython.int:
        """Put a record of nulls, as Spark does; null where values are no records."""
        if self.nodes[0] != RECORD:
            return self.put_null(0)
        if self.columns[0] >= self.columns[SLOTS_MAX]:
            return NO_ROOM
        self.columns[0] += 1
        return self._put_nulls(0)

    def _read(self, node: cython.int) -> cython.int:  # noqa: C901, PLR0911, PLR0912 - by kind
        """Read a datum, as the node says; return 0, or why it cannot be."""
        base: cython.int = node * NODE_SIZE
        column: cython.int = node * COLUMN_SIZE
        kind: cython.int = self.nodes[base]
        slot: cython.longlong = 0
        at: cython.longlong = 0
        reason: cython.int
        if self.nodes[base + VALUE_BRANCH] >= 0:
            reason = self._number(5)
            if reason:
                return reason
            if self.value != self.nodes[base + VALUE_BRANCH]:
                if self.value != self.nodes[base + NULL_BRANCH] or self.value < 0:
                    return BAD_BRANCH
                return self.put_null(node)
        if kind == UNION:
            return self._read_union(node)
        if self.filling:
            slot = self.columns[column]
            if slot >= self.columns[column + SLOTS_MAX]:
                return NO_ROOM
            self.columns[column] = slot + 1
            at = self.columns[column + VALUES_AT] + slot
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
            if reason == 0 and self.filling:
                self.ints[at + 1] = self.columns[column + USED]
            return reason
        if kind in (DECIMAL, FIXED_DECIMAL):
            return self._read_decimal(base, at * 2)
        if self.filling:  # NULL
            self.columns[column + NULLS] += 1
        return 0

    def _read_long(self, kind: cython.int, at: cython.longlong) -> cython.int:
        reason: cython.int = self._number(10)
        if reason:
            return reason
        if kind == MILLIS:
            if self.value > _MILLISECONDS_MAX or self.value < -_MILLISECONDS_MAX:
                return BAD_TIME
            self.value = self.value * 1000
        if self.filling:
            self.longs[at] = self.value
        return 0

    def _read_int(self, base: cython.int, at: cython.longlong) -> cython.int:
        reason: cython.int = self._number(5)
        if reason:
            return reason
        if self.nodes[base] == ENUM and (self.value < 0 or self.value >= self.nodes[base + SIZE]):
            return BAD_SYMBOL
        if self.filling:
            self.ints[at] = self.value
        return 0

    def _read_float(self, size: cython.longlong, at: cython.longlong) -> cython.int:
        if size > self.stop - self.at:
            return TRUNCATED
        if self.filling:
            copy(self.data, self.at, self.octets, at * size, size)
        self.at += size
        return 0

    def _read_boolean(self, column: cython.int, slot: cython.longlong) -> cython.int:
        at: cython.longlong
        if self.at >= self.stop:
            return TRUNCATED
        if self.filling and self.data[self.at] == 1:
            at = self.columns[column + VALUES_AT] + (slot >> 3)
            self.octets[at] = self.octets[at] | (1 << (slot & 7))
        self.at += 1
        return 0

    def _read_size(self, base: cython.int, varying: cython.int) -> cython.int:
        """Read how many bytes follow into ``value``, unless the node says it; see that they do."""
        reason: cython.int
        if self.nodes[base] == varying:
            reason = self._number(10)
            if reason:
                return reason
        else:
            self.value = self.nodes[base + SIZE]
        return BAD_LENGTH if self.value < 0 or self.value > self.stop - self.at else 0

    def _read_octets(self, base: cython.int, column: cython.int, at: cython.longlong) -> cython.int:
        reason: cython.int = self._read_size(base, OCTETS)
        used: cython.longlong = self.columns[column + USED]
        if reason:
            return reason
        reason = self._count(column, self.value)
        if reason:
            return reason
        if self.filling:
            used += self.columns[column + DATA_AT]
            copy(self.data, self.at, self.octets, used, self.value)
            self.ints[at + 1] = self.columns[column + USED]
        self.at += self.value
        return 0

    def _read_fields(self, base: cython.int) -> cython.int:
        """Read the fields of a record; those that are skipped are measured only."""
        child: cython.int = self.nodes[base + FIRST]
        filling: cython.bint = self.filling
        reason: cython.int
        while child >= 0:
            if self.nodes[child * NODE_SIZE + SKIPPED]:
                self.filling = False
            reason = self._read(child)
            self.filling = filling
            if reason:
                return reason
            child = self.nodes[child * NODE_SIZE + NEXT]
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
        if self.value < 0 or self.value >= self.nodes[base + SIZE]:
            return BAD_BRANCH
        chosen = self.branches[self.nodes[base + MORE] + self.value]
        if chosen < 0:
            return self.put_null(node)
        if not self.filling:
            return self._read(chosen)
        if self.columns[column] >= self.columns[column + SLOTS_MAX]:
            return NO_ROOM
        self.columns[column] += 1
        child = self.nodes[base + FIRST]
        while child >= 0:
            reason = self._read(child) if child == chosen else self.put_null(child)
            if reason:
                return reason
            child = self.nodes[child * NODE_SIZE + NEXT]
        return 0

    def _read_count(self, least: cython.longlong) -> cython.int:
        """Read a block's head: how many items of ``least`` bytes or more, into ``value``."""
        left: cython.longlong
        reason: cython.int = self._number(10)
        if reason:
            return reason
        left = self.value
        if left < 0:
            reason = self._number(10)  # the size of the block, for readers that skip it
            if reason:
                return reason
            if left < -_INT32_MAX:
                return TOO_MANY_ITEMS
            left = -left
        if least == 0:
            if left > self.bare_left:
                return TOO_MANY_ITEMS
            self.bare_left -= left
        elif left > (self.stop - self.at) // least:
            return TOO_MANY_ITEMS
        self.value = left
        return 0

    def _read_items(self, node: cython.int) -> cython.int:
        """Read the blocks of an array or a map."""
        base: cython.int = node * NODE_SIZE
        first: cython.int = self.nodes[base + FIRST]
        second: cython.int = self.nodes[first * NODE_SIZE + NEXT]
        left: cython.longlong
        reason: cython.int
        start: cython.longlong = self.columns[node * COLUMN_SIZE + USED]
        while True:
            reason = self._read_count(self.nodes[base + SIZE])
            if reason:
                return reason
            if self.value == 0:
                if self.filling and second >= 0 and self._has_doubles(first, start):
                    self.columns[node * COLUMN_SIZE + DOUBLES] = 1
                return 0
            left = self.value
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
        ends: cython.longlong = self.columns[column + VALUES_AT]
        data: cython.longlong = self.columns[column + DATA_AT]
        stop: cython.longlong = self.columns[column]
        one: cython.longlong
        other: cython.longlong
        at: cython.longlong
        beside: cython.longlong
        size: cython.longlong
        if stop - start > _COMPARED_MAX:
            return True
        for one in range(start + 1, stop):
            size = self.ints[ends + one + 1] - self.ints[ends + one]
            for other in range(start, one):
                if self.ints[ends + other + 1] - self.ints[ends + other] != size:
                    continue
                at = data + self.ints[ends + one]
                beside = data + self.ints[ends + other] - at
                while (
                    size > 0 and self.octets[at + size - 1] == self.octets[at + beside + size - 1]
                ):
                    size -= 1
                if size == 0:
                    return True
                size = self.ints[ends + one + 1] - self.ints[ends + one]
        return False

    def _read_decimal(self, base: cython.int, to: cython.longlong) -> cython.int:
        """Read a number into two words at ``to``, the low one first."""
        reason: cython.int = self._read_size(base, DECIMAL)
        bound: cython.int = self.nodes[base + MORE]
        high: cython.ulonglong
        low: cython.ulonglong
        if reason:
            return reason
        if self.value == 0:
            return BAD_NUMBER
        high, low, reason = words_at(self.data, self.at, self.value)
        if reason:
            return reason
        self.at += self.value
        if not is_below(high, low, self.bounds[bound], self.bounds[bound + 1]):
            return BAD_NUMBER
        if self.filling:
            self.wholes[to] = low
            self.wholes[to + 1] = high
        return 0
