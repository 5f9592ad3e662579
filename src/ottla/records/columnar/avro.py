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

What follows the datum is not looked at, as in Spark. Columns (a slot per row, or per item of the
list that the column is in; bits: 1 where there is a value; values in units of their size):

    NULL  nothing, not even bits      INT, ENUM, FLOAT                         4 bytes
    BOOLEAN  bits                     LONG, MILLIS (as microseconds), DOUBLE   8 bytes
    RECORD, UNION  nothing            DECIMAL, FIXED_DECIMAL, low word first  16 bytes
    OCTETS, FIXED  ends int32, and the data apart         ARRAY, MAP  ends int32

Source: Apache Avro 1.12 specification, "Binary Encoding"; Apache Arrow's columnar format.
"""

# ruff: noqa: F821 - the C functions are declared in avro.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension or the interpreted form."""

# Kinds of nodes.
NULL, BOOLEAN, INT, ENUM, LONG, MILLIS, FLOAT, DOUBLE, OCTETS, FIXED = range(10)
DECIMAL, FIXED_DECIMAL, RECORD, UNION, ARRAY, MAP = range(10, 16)

_NULL = cython.declare(cython.int, 0)
_BOOLEAN = cython.declare(cython.int, 1)
_INT = cython.declare(cython.int, 2)
_ENUM = cython.declare(cython.int, 3)
_LONG = cython.declare(cython.int, 4)
_MILLIS = cython.declare(cython.int, 5)
_FLOAT = cython.declare(cython.int, 6)
_DOUBLE = cython.declare(cython.int, 7)
_OCTETS = cython.declare(cython.int, 8)
_FIXED = cython.declare(cython.int, 9)
_DECIMAL = cython.declare(cython.int, 10)
_FIXED_DECIMAL = cython.declare(cython.int, 11)
_RECORD = cython.declare(cython.int, 12)
_UNION = cython.declare(cython.int, 13)
_ARRAY = cython.declare(cython.int, 14)
_MAP = cython.declare(cython.int, 15)

# Fields of a node, in an array of int32; nodes and columns have the same numbers.
KIND, FIRST, NEXT = 0, 1, 2
"""FIRST child and NEXT sibling; -1 without. A map has its keys, then its values, as children."""
NULL_BRANCH, VALUE_BRANCH = 3, 4
"""Where VALUE_BRANCH is not -1 a branch comes first; NULL_BRANCH may be -1."""
SIZE = 5
"""FIXED, FIXED_DECIMAL: bytes. ENUM: symbols. UNION: branches. ARRAY, MAP: the least bytes of an
item."""
MORE = 6
"""UNION: where its branches start in the table of branches, each a node, or -1 for null. Decimals:
where the bound starts in the table of bounds: high, low; magnitudes are below it."""
SKIPPED = 7
"""1: a field of the outermost record that is no column; it is read for what comes behind it."""
NODE_SIZE = 8

_KIND = cython.declare(cython.int, 0)
_FIRST = cython.declare(cython.int, 1)
_NEXT = cython.declare(cython.int, 2)
_NULL_BRANCH = cython.declare(cython.int, 3)
_VALUE_BRANCH = cython.declare(cython.int, 4)
_SIZE = cython.declare(cython.int, 5)
_MORE = cython.declare(cython.int, 6)
_SKIPPED = cython.declare(cython.int, 7)
_NODE_SIZE = cython.declare(cython.int, 8)

# Fields of a column, in an array of int64.
SLOTS, NULLS = 0, 1
USED = 2
"""Bytes of OCTETS and FIXED, items of ARRAY and MAP; ``measure`` counts them, then ``fill``."""
SLOTS_MAX, USED_MAX = 3, 4
"""What there is room for, and ``fill`` must not pass."""
BITS_AT, VALUES_AT, DATA_AT = 5, 6, 7
"""Where the column begins in the buffer: in bytes, in units of its values, in bytes."""
DOUBLES = 8
"""MAP: 1 when a key is there twice in one map, or there are too many in one to tell."""
COLUMN_SIZE = 9

_SLOTS = cython.declare(cython.int, 0)
_NULLS = cython.declare(cython.int, 1)
_USED = cython.declare(cython.int, 2)
_SLOTS_MAX = cython.declare(cython.int, 3)
_USED_MAX = cython.declare(cython.int, 4)
_BITS_AT = cython.declare(cython.int, 5)
_VALUES_AT = cython.declare(cython.int, 6)
_DATA_AT = cython.declare(cython.int, 7)
_DOUBLES = cython.declare(cython.int, 8)
_COLUMN_SIZE = cython.declare(cython.int, 9)

# What a value is found to be.
GOOD, ABSENT = 0, 1
_GOOD = cython.declare(cython.int, 0)
_ABSENT = cython.declare(cython.int, 1)
_TRUNCATED = cython.declare(cython.int, 2)
_VARINT = cython.declare(cython.int, 3)
_LENGTH = cython.declare(cython.int, 4)
_BRANCH = cython.declare(cython.int, 5)
_SYMBOL = cython.declare(cython.int, 6)
_NUMBER = cython.declare(cython.int, 7)
_TIME = cython.declare(cython.int, 8)
_ITEMS = cython.declare(cython.int, 9)
_MAGIC = cython.declare(cython.int, 10)
_SCHEMA_ID = cython.declare(cython.int, 11)
_NO_ROOM = cython.declare(cython.int, 12)

_COMPARED_MAX = cython.declare(cython.longlong, 16)  # keys of one map, each with each
BARE_ITEMS_MAX = 1024
_BARE_ITEMS_MAX = cython.declare(cython.longlong, 1024)
"""Of one value: items that take no bytes, such as nulls, so that few bytes are not many items."""

REASONS: dict[int, str] = {
    _TRUNCATED: "it ends inside a field",
    _VARINT: "a varint is longer than its type",
    _LENGTH: "a length is negative or more than there are bytes",
    _BRANCH: "a union has no such branch",
    _SYMBOL: "an enum has no such symbol",
    _NUMBER: "a decimal does not fit its precision, or has no bytes",
    _TIME: "a timestamp is beyond what microseconds in 64 bits can say",
    _ITEMS: "an array or a map has more items than the bytes can hold",
    _MAGIC: "it does not begin with the byte 0 and a schema id",
    _SCHEMA_ID: "it has another schema id",
    _NO_ROOM: "it changed while it was read",
}
"""What each status above ABSENT means."""

_HEADER_BYTES = cython.declare(cython.int, 5)
_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_MILLISECONDS_MAX = cython.declare(cython.longlong, 9223372036854775)  # so many in 64 bits of us
_UINT32_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_UINT64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_INT64_MAX = cython.declare(cython.ulonglong, 0x7FFFFFFFFFFFFFFF)


@cython.cclass
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
                if found[row] == _ABSENT:
                    continue
                found[row] = self._judge(limits[row], limits[row + 1])
                if found[row] != _GOOD:
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
                if found[row] == _ABSENT:
                    reason = self._put_null(0)
                elif found[row] != _GOOD:
                    reason = self._put_malformed()
                else:
                    self._at = limits[row]
                    self._stop = limits[row + 1]
                    self._bare_left = _BARE_ITEMS_MAX
                    if self._has_header:
                        self._at += _HEADER_BYTES
                    reason = self._read(0)
                if reason:
                    break
        return reason

    @cython.cfunc
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

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _judge(self, start: cython.longlong, stop: cython.longlong) -> cython.int:
        reason: cython.int
        found: cython.longlong
        self._stop = stop
        if self._has_header:
            if stop - start < _HEADER_BYTES or self._data[start] != 0:
                return _MAGIC
            found = self._data[start + 1]
            found = found << 8 | self._data[start + 2]
            found = found << 8 | self._data[start + 3]
            found = found << 8 | self._data[start + 4]
            if self._schema_id >= 0 and found != self._schema_id:
                return _SCHEMA_ID
            start += _HEADER_BYTES
        self._at = start
        self._bare_left = _BARE_ITEMS_MAX
        reason = self._read(0)
        if reason:  # Once more as far as that, to take back what was counted.
            self._sign = -1
            self._at = start
            self._bare_left = _BARE_ITEMS_MAX
            self._read(0)
            self._sign = 1
        return reason

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _number(self, bytes_max: cython.int) -> cython.int:
        """Read a varint into _value."""
        byte: cython.ulonglong
        raw: cython.ulonglong
        shift: cython.int = 7
        if self._at >= self._stop:
            return _TRUNCATED
        raw = self._data[self._at]
        self._at += 1
        if raw > 0x7F:
            raw &= 0x7F
            while True:
                if self._at >= self._stop:
                    return _TRUNCATED
                byte = self._data[self._at]
                self._at += 1
                raw |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift >= bytes_max * 7:
                    return _VARINT
            if bytes_max == 5:
                raw &= _UINT32_MAX
            else:
                raw &= _UINT64_MAX
        self._value = raw >> 1
        if raw & 1:
            self._value = ~self._value
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _copy(self, to: cython.longlong, size: cython.longlong) -> cython.int:
        if cython.compiled:
            copy_bytes(cython.address(self._octets[to]), cython.address(self._data[self._at]), size)
        else:
            self._octets[to : to + size] = self._data[self._at : self._at + size]
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _count(self, column: cython.int, more: cython.longlong) -> cython.int:
        """Note that a column needs so much more; while filling, see that it is there."""
        if self._filling:
            if more > self._columns[column + _USED_MAX] - self._columns[column + _USED]:
                return _NO_ROOM
            self._columns[column + _USED] += more
            return 0
        self._columns[column + _USED] += self._sign * more
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_null(self, node: cython.int) -> cython.int:
        """Leave a slot of the node, and of what is below it, null."""
        base: cython.int = node * _NODE_SIZE
        column: cython.int = node * _COLUMN_SIZE
        kind: cython.int = self._nodes[base]
        slot: cython.longlong
        at: cython.longlong
        child: cython.int
        if not self._filling or self._nodes[base + _SKIPPED]:
            return 0
        slot = self._columns[column]
        if slot >= self._columns[column + _SLOTS_MAX]:
            return _NO_ROOM
        self._columns[column] = slot + 1
        self._columns[column + _NULLS] += 1
        if kind == _NULL:
            return 0
        at = self._columns[column + _BITS_AT] + (slot >> 3)
        self._octets[at] = self._octets[at] & (~(1 << (slot & 7)) & 0xFF)
        if kind in (_OCTETS, _FIXED, _ARRAY, _MAP):
            at = self._columns[column + _VALUES_AT] + slot + 1
            self._ints[at] = self._columns[column + _USED]
        elif kind in (_RECORD, _UNION):
            child = self._nodes[base + _FIRST]
            while child >= 0:
                if self._put_null(child):
                    return _NO_ROOM
                child = self._nodes[child * _NODE_SIZE + _NEXT]
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_malformed(self) -> cython.int:
        """Put a record of nulls, as Spark does; null where values are no records."""
        child: cython.int
        if self._nodes[0] != _RECORD:
            return self._put_null(0)
        if self._columns[0] >= self._columns[_SLOTS_MAX]:
            return _NO_ROOM
        self._columns[0] += 1
        child = self._nodes[_FIRST]
        while child >= 0:
            if self._put_null(child):
                return _NO_ROOM
            child = self._nodes[child * _NODE_SIZE + _NEXT]
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read(self, node: cython.int) -> cython.int:  # noqa: C901, PLR0911, PLR0912, PLR0915 - flat
        """Read a datum, as the node says; return 0, or why it cannot be."""
        base: cython.int = node * _NODE_SIZE
        column: cython.int = node * _COLUMN_SIZE
        kind: cython.int = self._nodes[base]
        slot: cython.longlong = 0
        at: cython.longlong = 0
        size: cython.longlong
        reason: cython.int
        child: cython.int
        byte: cython.int
        if self._nodes[base + _VALUE_BRANCH] >= 0:
            reason = self._number(5)
            if reason:
                return reason
            if self._value != self._nodes[base + _VALUE_BRANCH]:
                if self._value != self._nodes[base + _NULL_BRANCH] or self._value < 0:
                    return _BRANCH
                return self._put_null(node)
        if kind == _UNION:
            return self._read_union(node)
        if self._filling:
            slot = self._columns[column]
            if slot >= self._columns[column + _SLOTS_MAX]:
                return _NO_ROOM
            self._columns[column] = slot + 1
            at = self._columns[column + _VALUES_AT] + slot

        if kind in (_LONG, _MILLIS):
            reason = self._number(10)
            if reason:
                return reason
            if kind == _MILLIS:
                if self._value > _MILLISECONDS_MAX or self._value < -_MILLISECONDS_MAX:
                    return _TIME
                self._value = self._value * 1000
            if self._filling:
                self._longs[at] = self._value
        elif kind in (_OCTETS, _FIXED):
            size = self._nodes[base + _SIZE]
            if kind == _OCTETS:
                reason = self._number(10)
                if reason:
                    return reason
                size = self._value
            if size < 0 or size > self._stop - self._at:
                return _LENGTH
            if self._filling and size > 0:
                if size > self._columns[column + _USED_MAX] - self._columns[column + _USED]:
                    return _NO_ROOM
                self._copy(self._columns[column + _DATA_AT] + self._columns[column + _USED], size)
            reason = self._count(column, size)
            if reason:
                return reason
            self._at += size
            if self._filling:
                self._ints[at + 1] = self._columns[column + _USED]
        elif kind in (_INT, _ENUM):
            reason = self._number(5)
            if reason:
                return reason
            if kind == _ENUM and (self._value < 0 or self._value >= self._nodes[base + _SIZE]):
                return _SYMBOL
            if self._filling:
                self._ints[at] = self._value
        elif kind in (_DOUBLE, _FLOAT):
            size = 8 if kind == _DOUBLE else 4
            if size > self._stop - self._at:
                return _TRUNCATED
            if self._filling:
                self._copy(at * size, size)
            self._at += size
        elif kind == _BOOLEAN:
            if self._at >= self._stop:
                return _TRUNCATED
            byte = self._data[self._at]
            self._at += 1
            if self._filling and byte == 1:
                at = self._columns[column + _VALUES_AT] + (slot >> 3)
                self._octets[at] = self._octets[at] | (1 << (slot & 7))
        elif kind == _RECORD:
            child = self._nodes[base + _FIRST]
            while child >= 0:
                if self._filling and self._nodes[child * _NODE_SIZE + _SKIPPED]:
                    self._filling = False
                    reason = self._read(child)
                    self._filling = True
                else:
                    reason = self._read(child)
                if reason:
                    return reason
                child = self._nodes[child * _NODE_SIZE + _NEXT]
        elif kind in (_ARRAY, _MAP):
            reason = self._read_items(node)
            if reason:
                return reason
            if self._filling:
                self._ints[at + 1] = self._columns[column + _USED]
        elif kind in (_DECIMAL, _FIXED_DECIMAL):
            size = self._nodes[base + _SIZE]
            if kind == _DECIMAL:
                reason = self._number(10)
                if reason:
                    return reason
                size = self._value
            if size < 0 or size > self._stop - self._at:
                return _LENGTH
            return self._read_decimal(self._nodes[base + _MORE], at * 2, size)
        elif self._filling:  # NULL
            self._columns[column + _NULLS] += 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_union(self, node: cython.int) -> cython.int:
        """Read one of several: a slot in the node of its branch, nulls in those of the others."""
        base: cython.int = node * _NODE_SIZE
        column: cython.int = node * _COLUMN_SIZE
        reason: cython.int = self._number(5)
        chosen: cython.int
        child: cython.int
        if reason:
            return reason
        if self._value < 0 or self._value >= self._nodes[base + _SIZE]:
            return _BRANCH
        chosen = self._branches[self._nodes[base + _MORE] + self._value]
        if chosen < 0:
            return self._put_null(node)
        if not self._filling:
            return self._read(chosen)
        if self._columns[column] >= self._columns[column + _SLOTS_MAX]:
            return _NO_ROOM
        self._columns[column] += 1
        child = self._nodes[base + _FIRST]
        while child >= 0:
            reason = self._read(child) if child == chosen else self._put_null(child)
            if reason:
                return reason
            child = self._nodes[child * _NODE_SIZE + _NEXT]
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
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
                return _ITEMS
            left = -left
        if least == 0:
            if left > self._bare_left:
                return _ITEMS
            self._bare_left -= left
        elif left > (self._stop - self._at) // least:
            return _ITEMS
        self._value = left
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_items(self, node: cython.int) -> cython.int:
        """Read the blocks of an array or a map."""
        base: cython.int = node * _NODE_SIZE
        first: cython.int = self._nodes[base + _FIRST]
        second: cython.int = self._nodes[first * _NODE_SIZE + _NEXT]
        left: cython.longlong
        reason: cython.int
        start: cython.longlong = self._columns[node * _COLUMN_SIZE + _USED]
        while True:
            reason = self._read_count(self._nodes[base + _SIZE])
            if reason:
                return reason
            if self._value == 0:
                if self._filling and second >= 0 and self._has_doubles(first, start):
                    self._columns[node * _COLUMN_SIZE + _DOUBLES] = 1
                return 0
            left = self._value
            reason = self._count(node * _COLUMN_SIZE, left)
            if reason:
                return reason
            while left > 0:
                reason = self._read(first)
                if reason == 0 and second >= 0:
                    reason = self._read(second)
                if reason:
                    return reason
                left -= 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_doubles(self, keys: cython.int, start: cython.longlong) -> cython.bint:
        """Tell whether two keys from slot ``start`` on are equal, or there are many."""
        column: cython.int = keys * _COLUMN_SIZE
        ends: cython.longlong = self._columns[column + _VALUES_AT]
        data: cython.longlong = self._columns[column + _DATA_AT]
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

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_decimal(
        self, bound: cython.int, to: cython.longlong, size: cython.longlong
    ) -> cython.int:
        """Read a big-endian number of ``size`` bytes, into two words at ``to``, the low one first.

        What is above 16 bytes must say nothing but the sign.
        """
        high: cython.ulonglong = 0
        low: cython.ulonglong = 0
        magnitude_high: cython.ulonglong
        magnitude_low: cython.ulonglong
        sign: cython.int = 0
        index: cython.longlong
        byte: cython.ulonglong
        if size == 0:
            return _NUMBER
        if self._data[self._at] > 0x7F:
            sign = 0xFF
            high = _UINT64_MAX
            low = _UINT64_MAX
        for index in range(size):
            byte = self._data[self._at + index]
            if index < size - 16 and byte != sign:
                return _NUMBER
            high = ((high << 8) & _UINT64_MAX) | (low >> 56)
            low = ((low << 8) & _UINT64_MAX) | byte
        if (high > _INT64_MAX) != (sign != 0):
            return _NUMBER
        self._at += size
        magnitude_high = high
        magnitude_low = low
        if sign:
            magnitude_low = (~low & _UINT64_MAX) + 1 if low else 0
            magnitude_high = ~high & _UINT64_MAX
            if low == 0:
                magnitude_high = (magnitude_high + 1) & _UINT64_MAX
        if magnitude_high > self._bounds[bound] or (
            magnitude_high == self._bounds[bound] and magnitude_low >= self._bounds[bound + 1]
        ):
            return _NUMBER
        if self._filling:
            self._wholes[to] = low
            self._wholes[to + 1] = high
        return 0
