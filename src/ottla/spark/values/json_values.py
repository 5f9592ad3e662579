"""JSON values to typed columns, on the executor, before anything goes to the JVM.

A batch of values is parsed at once by Arrow's reader. What that one refuses is divided until the
culprits are found; these few are read one by one by ``json_rows``, which knows Spark's rules for
them. Knows no network; ``columns`` calls it for the column ``value``.

So that no value can be taken for another's, each is parsed as ``{"v":VALUE,"i":1}``: a value that
is no JSON makes its line none, and one that holds two makes more lines than there are values.
"""

import re
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.values.json_rows import JsonRows
from ottla.spark.values.value_options import JsonOptions, MalformedValue, Mode

FEW = 8
"""At most so many values are read one by one when some of them are malformed."""
PIECE = 2048
"""How many values are parsed at once where some of them are malformed."""
LARGE_NUMBER = r"[0-9]{39}|[0-9][eE][+]?[0-9]{2}"
"""What Arrow may get wrong where a decimal is wanted: it brings a number to the column's scale by a
product that may wrap around, in 128 bits from two digits before the point on. In 256 bits, as asked
for here, all that have no more digits than a decimal can have are safe."""
WIDE_DIGITS = 76
"""As many has a decimal of 256 bits."""
BEYOND = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises for a Python value that is not of a type's range."""
FAILURES_MAX = 100
"""After so many refusals in one batch, too, the rest is read one by one: it is all bad."""


class JsonValues:
    """Makes one struct column of values."""

    def __init__(self, options: JsonOptions) -> None:
        schema = options.schema
        self.type: pa.StructType = arrow_type(schema)
        self._mode = options.mode
        self._time_zone = options.time_zone
        self._corrupt = options.corrupt_column if options.corrupt_column in schema.names else ""
        self._fields = StructType([each for each in schema if each.name != self._corrupt])
        self._rows = JsonRows(self._fields, options.time_zone)
        fast = _parsed_type(self._fields)
        self._has_decimals = fast is not None and _has_decimals(self._fields)
        self._parse_options = fast and pj.ParseOptions(
            explicit_schema=pa.schema([("v", fast), ("i", pa.int8())]),
            unexpected_field_behavior="ignore",
        )
        self._failures = 0

    def decode(
        self, values: pa.Array, offsets: memoryview, partition: str
    ) -> tuple[pa.Array, pa.Array | None]:
        """Return the structs of ``values`` (binary), and which rows stay; None: all of them.

        A null, or nothing but blanks, is a null struct. ``offsets`` and ``partition`` are for the
        error. Raises MalformedValue.
        """
        self._failures = 0
        bad: list[int] = []
        parts = [self._struct(*each, bad) for each in self._parsed(values, 0)]
        found = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if not bad:
            return found, None
        if self._mode is Mode.FAILFAST:
            text = _text(values, bad[0])
            why = f"{partition} at offset {offsets[bad[0]]}: malformed JSON value {text[:200]!r}"
            raise MalformedValue(why)
        if self._mode is Mode.PERMISSIVE:
            return self._with_texts(found, values, bad), None
        stays = bytearray(b"\1" * len(values))
        for index in bad:
            stays[index] = 0
        bits = pa.Array.from_buffers(pa.uint8(), len(values), [None, pa.py_buffer(stays)])
        return found, bits.cast(pa.bool_())

    def _parsed(self, values: pa.Array, start: int) -> list[tuple[pa.Array, list[int]]]:
        """Return the parsed parts in order, each with the indexes of its malformed values."""
        if self._parse_options is not None and self._failures <= FAILURES_MAX:
            try:
                return [(self._parse_all(values), [])]
            except (
                pa.ArrowInvalid,
                pa.ArrowNotImplementedError,
                pa.ArrowCapacityError,
                _Misparsed,
            ) as error:
                self._failures += 1
                cuts = _cuts(len(values), error)
            if len(values) > FEW and self._failures <= FAILURES_MAX:
                ranges = pairwise(cuts)
                parts = (self._parsed(values.slice(a, b - a), start + a) for a, b in ranges)
                return [part for each in parts for part in each]
        rows, bad = self._rows.read(values.to_pylist())
        found, beyond = self._built(rows)
        return [(found, [start + index for index in sorted({*bad, *beyond})])]

    def _built(self, rows: list[object]) -> tuple[pa.Array, list[int]]:
        """Return the structs of ``rows``, and the indexes of those that the schema cannot hold."""
        kind = pa.struct([field for field in self.type if field.name != self._corrupt])
        try:
            return pa.array(rows, kind), []
        except BEYOND:
            beyond = [index for index, row in enumerate(rows) if not _fits(row, kind)]
        kept = list(rows)
        for index in beyond:
            kept[index] = {}
        return pa.array(kept, kind), beyond

    def _parse_all(self, values: pa.Array) -> pa.Array:
        """Parse all by Arrow's reader. Raises ArrowInvalid, or _Misparsed, for any bad one."""
        texts = values.cast(pa.string())  # Raises ArrowInvalid for what is no UTF-8.
        if self._has_decimals and pc.any(pc.match_substring_regex(texts, LARGE_NUMBER)).as_py():
            raise _Misparsed
        if texts.null_count:
            texts = texts.fill_null("null")
        lines = pc.binary_join_element_wise('{"v":', texts, ',"i":1}\n', "")
        ends = memoryview(lines.buffers()[1]).cast("i")
        first, last = ends[lines.offset], ends[lines.offset + len(lines)]
        source = pa.BufferReader(lines.buffers()[2].slice(first, last - first))
        read = pj.ReadOptions(use_threads=False, block_size=max(last - first, 1))
        table = pj.read_json(source, read_options=read, parse_options=self._parse_options)
        marks = table.column("i")
        if len(table) != len(values) or marks.null_count or pc.min_max(marks)["max"].as_py() != 1:
            raise _Misparsed
        structs = table.column("v").combine_chunks()
        if structs.null_count != values.null_count:  # The text null is no struct.
            raise _Misparsed
        return _finished(structs, self._fields, self._time_zone)

    def _struct(self, part: pa.Array, bad_here: list[int], bad: list[int]) -> pa.Array:
        bad += bad_here
        if not self._corrupt:
            return part.cast(self.type) if part.type != self.type else part
        children = [
            pa.nulls(len(part), pa.string())
            if field.name == self._corrupt
            else part.field(field.name)
            for field in self.type
        ]
        return pa.StructArray.from_arrays(
            children, fields=list(self.type), mask=part.is_null() if part.null_count else None
        )

    def _with_texts(self, found: pa.Array, values: pa.Array, bad: list[int]) -> pa.Array:
        """Put the text of malformed values into the corrupt column, where there is one."""
        if not self._corrupt:
            return found
        texts: list[str | None] = [None] * len(values)
        for index in bad:
            texts[index] = _text(values, index)
        children = [
            pa.array(texts, pa.string()) if field.name == self._corrupt else found.field(field.name)
            for field in self.type
        ]
        return pa.StructArray.from_arrays(
            children, fields=list(self.type), mask=found.is_null() if found.null_count else None
        )


def _fits(row: object, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except BEYOND:
        return False
    return True


class _Misparsed(Exception):
    """Arrow found another number of values than there were lines, or may have one wrong."""


def _cuts(count: int, error: Exception) -> list[int]:
    """Return where to divide ``count`` values of which some are malformed.

    Arrow's reader mostly says which; else halving finds them. Large ranges are divided as well, so
    that not all is done anew for each of them.
    """
    named = re.search(r" in row (\d+)", str(error))
    if count > PIECE:
        return [*range(0, count, PIECE), count]
    row = int(named[1]) if named else count
    if row >= count:
        return [0, count // 2, count]
    return sorted({0, row, row + 1, count})


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type that Spark demands."""
    return to_arrow_type(kind, timezone="UTC")


def _text(values: pa.Array, index: int) -> str:
    return bytes(values[index].as_py()).decode("utf-8", "replace")


def _parsed_type(kind: DataType) -> pa.DataType | None:
    """Return what Arrow's reader is asked for: times as strings, decimals of 256 bits.

    None: it cannot read these.
    """
    match kind:
        case StructType():
            children = [(each.name, _parsed_type(each.dataType)) for each in kind]
            return None if any(t is None for _, t in children) else pa.struct(children)
        case ArrayType():
            element = _parsed_type(kind.elementType)
            return None if element is None else pa.list_(element)
        case MapType() | BinaryType():
            return None
        case TimestampType() | TimestampNTZType() | DateType():
            return pa.string()
        case DecimalType():
            return pa.decimal256(WIDE_DIGITS, kind.scale)
        case _:
            return arrow_type(kind)


def _has_decimals(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(_has_decimals(each.dataType) for each in kind)
        case ArrayType():
            return _has_decimals(kind.elementType)
        case _:
            return isinstance(kind, DecimalType)


def _finished(array: pa.Array, kind: DataType, time_zone: str) -> pa.Array:
    """Turn the strings that are times into times, and wide decimals into those that are wanted.

    Raises ArrowInvalid for what cannot be.
    """
    match kind:
        case StructType():
            children = [
                _finished(array.field(each.name), each.dataType, time_zone) for each in kind
            ]
            fields = list(arrow_type(kind))
            mask = array.is_null() if array.null_count else None
            if not children:
                return array
            return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
        case ArrayType():
            values = _finished(array.values, kind.elementType, time_zone)
            ends = array.offsets
            mask = array.is_null() if array.null_count else None
            return pa.ListArray.from_arrays(ends, values, type=arrow_type(kind), mask=mask)
        case TimestampType():
            try:
                return array.cast(arrow_type(kind))
            except pa.ArrowInvalid:
                local = array.cast(pa.timestamp("us"))
                return pc.assume_timezone(local, time_zone).cast(arrow_type(kind))
        case TimestampNTZType() | DateType():
            return array.cast(arrow_type(kind))
        case DecimalType():
            return array.cast(arrow_type(kind))
        case _:
            return array
