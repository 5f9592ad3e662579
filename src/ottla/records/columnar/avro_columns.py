"""The tables and the buffers of the kernel ``avro``: values in, filled columns out.

Stands between that kernel and those who know schemas (``ottla.spark.values.avro_schema``) and Arrow
(``ottla.spark.values.avro_values``); knows neither. A schema comes as ``Node``s, of which a reader
makes the kernel's tables; of what the kernel measures it makes one buffer, and views of its parts.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.records.columnar import avro as kernel
from ottla.records.columnar import avro_tables as tables

ALIGNMENT = 64
"""The alignment that Arrow recommends."""
ENDS_MAX = 0x7FFFFFFF
_LISTS = (tables.ARRAY, tables.MAP)
_BYTES = (tables.OCTETS, tables.FIXED)
_ENDS = (*_LISTS, *_BYTES)
_WIDTHS = {
    tables.INT: 4,
    tables.ENUM: 4,
    tables.FLOAT: 4,
    tables.LONG: 8,
    tables.MILLIS: 8,
    tables.DOUBLE: 8,
    tables.DECIMAL: 16,
    tables.FIXED_DECIMAL: 16,
    **dict.fromkeys(_ENDS, 4),
}
"""Bytes of a value in a column, or of an end."""
_LEAST = {
    tables.NULL: 0,
    tables.FLOAT: 4,
    tables.DOUBLE: 8,
}


@dataclass(slots=True)
class Node:
    """A type, and the column of its values. Children are in the order in which they are written."""

    kind: int
    size: int = 0
    """Bytes of a FIXED and a FIXED_DECIMAL, symbols of an ENUM."""
    precision: int = 0
    """Digits of a DECIMAL and a FIXED_DECIMAL."""
    null_branch: int = -1
    value_branch: int = -1
    """When not -1 the type is in a union of one, or of two with null, at these places."""
    children: "list[Node]" = field(default_factory=list)
    """Fields of a RECORD, branches of a UNION but null, the items of an ARRAY, the keys and the
    values of a MAP."""
    branches: list[int] = field(default_factory=list)
    """Of a UNION: for each branch which of ``children`` it is, or -1 for null."""
    is_skipped: bool = False
    """A field of the outermost record that shall be no column."""
    number: int = -1
    """Given by the reader."""

    def least_bytes(self) -> int:
        """Return how short a datum can be: 0, or a number that is not too large."""
        if self.value_branch >= 0 or self.kind == tables.UNION:
            return 1
        match self.kind:
            case tables.RECORD:
                return sum(child.least_bytes() for child in self.children)
            case tables.FIXED | tables.FIXED_DECIMAL:
                return self.size
            case _:
                return _LEAST.get(self.kind, 1)


class Column(NamedTuple):
    """One node's column. Views; empty ones where the kind has none."""

    slots: int
    nulls: int
    bits: memoryview
    values: memoryview
    """Ends where ``data`` is, or items are, of one's own."""
    data: memoryview
    has_doubles: bool = False
    """Of a MAP: whether a key may be there twice in one map."""


class Unfillable(OttlaError):
    """Values were changed while they were read, or have more items than Arrow can count."""


class AvroReader:
    """Reads values of one schema, batch by batch."""

    def __init__(self, root: Node, *, has_header: bool = False, schema_id: int = -1) -> None:
        nodes = list(_numbered(root))
        skipped = {inner.number for node in nodes if node.is_skipped for inner in _below(node)}
        self._nodes = [node for node in nodes if node.number not in skipped]
        branches: list[int] = []
        bounds: list[int] = []
        table: list[int] = []
        for node, sibling in _with_siblings(root):
            assert node.number * tables.NODE_SIZE == len(table), "in the order of their numbers"
            table += _row(node, sibling, branches, bounds)
        self._columns = array("q", bytes(8 * tables.COLUMN_SIZE * len(nodes)))
        self._kernel = kernel.Reader(
            array("i", table),
            array("i", branches or [0]),
            array("Q", bounds or [0]),
            self._columns,
            has_header=has_header,
            schema_id=schema_id,
        )

    def measure(self, data: memoryview, ends: memoryview, statuses: bytearray) -> int:
        """Judge values; return how many are malformed.

        ``ends``: int32, one more than values, in ``data``. ``statuses``: ABSENT where a value is
        null, else GOOD; gets one of ``tables.REASONS`` where one is malformed.
        """
        self._columns[:] = array("q", bytes(8 * len(self._columns)))
        return self._kernel.measure(data, ends, statuses)

    def fill(self, data: memoryview, ends: memoryview, statuses: bytearray) -> dict[int, Column]:
        """Return the columns of what was just measured, by the numbers of their nodes.

        Skipped nodes have no column. Malformed values are as ``kernel.Reader.fill`` says.
        Raises Unfillable.
        """
        room = self._lay_out(len(statuses))
        buffer = bytearray(room)
        for node in self._nodes:
            bits = self._field(node, tables.BITS_AT)
            size = _bits_bytes(node, self._field(node, tables.SLOTS_MAX))
            buffer[bits : bits + size] = b"\xff" * size
        views = memoryview(buffer)
        as_numbers = views.cast("i"), views.cast("q"), views.cast("Q")
        reason = self._kernel.fill(data, ends, statuses, (views, *as_numbers))
        if reason:
            raise Unfillable(tables.REASONS[reason])
        return {node.number: self._column(node, views) for node in self._nodes}

    def _field(self, node: Node, name: int) -> int:
        return self._columns[node.number * tables.COLUMN_SIZE + name]

    def _lay_out(self, rows: int) -> int:
        """Give each column its place; return how many bytes there are in all."""
        at = 0
        slots = {0: rows}
        for node in self._nodes:
            count = slots[node.number]
            used = self._field(node, tables.USED)
            if used > ENDS_MAX:
                raise Unfillable(f"{used} items of one array in {rows} values")
            for child in node.children:
                slots[child.number] = used if node.kind in _LISTS else count
            width = _WIDTHS.get(node.kind, 0)
            row = [0] * tables.COLUMN_SIZE
            row[tables.SLOTS_MAX], row[tables.USED_MAX] = count, used
            row[tables.BITS_AT] = at
            at = _aligned(at + _bits_bytes(node, count))
            row[tables.VALUES_AT] = at // width if width else at
            at = _aligned(at + _values_bytes(node, count))
            row[tables.DATA_AT] = at
            at = _aligned(at + (used if node.kind in _BYTES else 0))
            first = node.number * tables.COLUMN_SIZE
            self._columns[first : first + tables.COLUMN_SIZE] = array("q", row)
        return at

    def _column(self, node: Node, views: memoryview) -> Column:
        slots = self._field(node, tables.SLOTS)
        assert slots == self._field(node, tables.SLOTS_MAX), "as many values as were measured"
        bits = self._field(node, tables.BITS_AT)
        values = self._field(node, tables.VALUES_AT) * (_WIDTHS.get(node.kind, 0) or 1)
        data = self._field(node, tables.DATA_AT)
        used = self._field(node, tables.USED) if node.kind in _BYTES else 0
        return Column(
            slots,
            self._field(node, tables.NULLS),
            views[bits : bits + _bits_bytes(node, slots)],
            views[values : values + _values_bytes(node, slots)],
            views[data : data + used],
            bool(self._field(node, tables.DOUBLES)),
        )


def _numbered(root: Node) -> Iterator[Node]:
    for number, (node, _) in enumerate(_with_siblings(root)):
        node.number = number
        yield node


def _below(node: Node) -> Iterator[Node]:
    return (inner for inner, _ in _with_siblings(node))


def _with_siblings(node: Node, sibling: Node | None = None) -> Iterator[tuple[Node, Node | None]]:
    """Yield each node before its children, with the one that follows it beside it."""
    yield node, sibling
    for child, beside in zip_longest(node.children, node.children[1:]):
        yield from _with_siblings(child, beside)


def _row(node: Node, sibling: Node | None, branches: list[int], bounds: list[int]) -> list[int]:
    row = [0] * tables.NODE_SIZE
    row[tables.KIND] = node.kind
    row[tables.FIRST] = node.children[0].number if node.children else -1
    row[tables.NEXT] = -1 if sibling is None else sibling.number
    row[tables.NULL_BRANCH], row[tables.VALUE_BRANCH] = node.null_branch, node.value_branch
    row[tables.SIZE], row[tables.SKIPPED] = node.size, int(node.is_skipped)
    if node.kind in _LISTS:
        row[tables.SIZE] = sum(child.least_bytes() for child in node.children)
    elif node.kind == tables.UNION:
        row[tables.SIZE], row[tables.MORE] = len(node.branches), len(branches)
        branches += [each if each < 0 else node.children[each].number for each in node.branches]
    elif node.kind in {tables.DECIMAL, tables.FIXED_DECIMAL}:
        row[tables.MORE] = len(bounds)
        bounds += [*divmod(10**node.precision, 1 << 64)]
    return row


def _bits_bytes(node: Node, slots: int) -> int:
    return 0 if node.kind == tables.NULL else (slots + 7) // 8


def _values_bytes(node: Node, slots: int) -> int:
    if node.kind == tables.BOOLEAN:
        return _bits_bytes(node, slots)
    return _WIDTHS.get(node.kind, 0) * (slots + 1 if node.kind in _ENDS else slots)


def _aligned(position: int) -> int:
    return (position + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
