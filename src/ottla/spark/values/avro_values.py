"""Avro values to typed columns, on the executor, before anything goes to the JVM.

Between ``columns``, which has values as bytes, and the kernel ``records.columnar.avro``: what that
filled is wrapped as Arrow's, as Spark's types want it. Knows no network.

Where Spark's ``from_avro`` keeps the last of several equal keys of a map, so does this.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from struct import pack

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from ottla.records.columnar import avro_tables as tables
from ottla.records.columnar.avro_columns import AvroReader, Column
from ottla.spark.values.avro_schema import AvroType, all_nullable
from ottla.spark.values.value_options import AvroOptions, Header, MalformedValue, Mode


class AvroValues:
    """Makes one column of values."""

    def __init__(self, options: AvroOptions, root: AvroType | None = None) -> None:
        """``root``: what values are, instead of what the options say."""
        kind = options.schema if root is None else all_nullable(root.kind)
        self.type: pa.DataType = to_arrow_type(kind, timezone="UTC")
        self._mode = options.mode
        self._root = options.parse() if root is None else root
        self._reader = AvroReader(
            self._root.node,
            has_header=options.header is Header.CONFLUENT,
            schema_id=options.schema_id,
        )
        self._symbols: dict[int, pa.Array] = {}

    def decode(
        self, values: pa.Array, offsets: Sequence[int], partition: str
    ) -> tuple[pa.Array, pa.Array | None]:
        """Return what ``values`` (binary) hold, and which rows stay; None: all of them.

        A null is a null. ``offsets`` and ``partition`` are for the error. Raises MalformedValue.
        """
        rows = len(values)
        _, limits, held = values.buffers()
        ends = memoryview(limits or bytes(4)).cast("i")[values.offset : values.offset + rows + 1]
        data = memoryview(held or b"").cast("B")
        statuses = bytearray(rows)
        if values.null_count:
            absent = values.is_null().cast(pa.uint8())
            statuses[:] = memoryview(absent.buffers()[1])[absent.offset : absent.offset + rows]
        stays = None
        if self._reader.measure(data, ends, statuses):
            stays = self._after_malformed(values, offsets, partition, statuses)
        columns = self._reader.fill(data, ends, statuses)
        return self._array(self._root, self.type, columns), stays

    def _after_malformed(
        self, values: pa.Array, offsets: Sequence[int], partition: str, statuses: bytearray
    ) -> pa.Array | None:
        """Do what the mode says: raise, or return which rows stay and let the others be null."""
        if self._mode is Mode.PERMISSIVE:
            return None
        if self._mode is Mode.FAILFAST:
            index = next(at for at, status in enumerate(statuses) if status > tables.ABSENT)
            start = bytes(values[index].as_py())[:32].hex(" ")
            reason = tables.REASONS[statuses[index]]
            where = f"{partition} at offset {offsets[index]}"
            message = f"{where}: malformed Avro value: {reason} ({start}...)"
            raise MalformedValue(message)
        stays = bytes(status <= tables.ABSENT for status in statuses)
        for index, is_kept in enumerate(stays):
            if not is_kept:
                statuses[index] = tables.ABSENT
        bits = pa.Array.from_buffers(pa.uint8(), len(stays), [None, pa.py_buffer(stays)])
        return bits.cast(pa.bool_())

    def _array(self, found: AvroType, kind: pa.DataType, columns: Mapping[int, Column]) -> pa.Array:
        node = found.node
        column = columns[node.number]
        bits = pa.py_buffer(column.bits) if column.nulls else None
        values = pa.py_buffer(column.values)
        match node.kind:
            case tables.NULL:
                return pa.nulls(column.slots)
            case tables.OCTETS | tables.FIXED:
                buffers = [bits, values, pa.py_buffer(column.data)]
                return pa.Array.from_buffers(kind, column.slots, buffers, column.nulls)
            case tables.ENUM:
                places = _flat(pa.int32(), column.slots, [bits, values], column.nulls)
                return self._symbols_of(found).take(places)
            case tables.ARRAY:
                items = self._array(found.children[0], kind.value_type, columns)
                return _nested(kind, column, [bits, values], [items])
            case tables.MAP:
                return self._map(found, kind, columns)
            case tables.UNION if found.is_widened:
                branches = [
                    self._array(child, to_arrow_type(child.kind), columns).cast(kind)
                    for child in found.children
                ]
                return pc.coalesce(*branches)
            case tables.RECORD | tables.UNION:
                children = [
                    self._array(child, kind.field(index).type, columns)
                    for index, child in enumerate(found.children)
                ]
                return _nested(kind, column, [bits], children)
            case _:
                return _flat(kind, column.slots, [bits, values], column.nulls)

    def _symbols_of(self, found: AvroType) -> pa.Array:
        number = found.node.number
        if number not in self._symbols:
            self._symbols[number] = _texts(found.symbols)
        return self._symbols[number]

    def _map(self, found: AvroType, kind: pa.MapType, columns: Mapping[int, Column]) -> pa.Array:
        column = columns[found.node.number]
        keys = self._array(found.children[0], kind.key_type, columns)
        items = self._array(found.children[1], kind.item_type, columns)
        ends: memoryview | bytes = column.values
        if column.has_doubles and _has_doubles(column.values, keys):
            ends, kept = _without_doubles(column.values, keys)
            keys, items = keys.take(kept), items.take(kept)
        entry = pa.struct([kind.key_field, kind.item_field])
        entries = pa.Array.from_buffers(entry, len(keys), [None], 0, children=[keys, items])
        bits = pa.py_buffer(column.bits) if column.nulls else None
        return _nested(kind, column, [bits, pa.py_buffer(ends)], [entries])


def _flat(
    kind: pa.DataType, count: int, buffers: Sequence[pa.Buffer | None], nulls: int
) -> pa.Array:
    return pa.Array.from_buffers(kind, count, buffers, nulls)


def _nested(
    kind: pa.DataType,
    column: Column,
    buffers: Sequence[pa.Buffer | None],
    children: Sequence[pa.Array],
) -> pa.Array:
    return pa.Array.from_buffers(kind, column.slots, buffers, column.nulls, children=list(children))


# ``pa.array`` and ``pa.scalar`` would do in these, and import pandas: a third of a CPU second.
def _texts(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    ends = pack(f"={len(texts) + 1}i", 0, *accumulate(map(len, encoded)))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers, 0)


def _has_doubles(ends: memoryview, keys: pa.Array) -> bool:
    """Tell whether a map has a key twice; ``ends``, int32, say which keys are whose."""
    if len(keys) < 2:
        return False
    codes = keys.dictionary_encode()
    lists = pa.Array.from_buffers(
        pa.list_(pa.int32()), len(ends) // 4 - 1, [None, pa.py_buffer(ends)], 0,
        children=[codes.indices],
    )  # fmt: skip
    distinct = pa.Array.from_buffers(
        pa.int64(), 1, [None, pa.py_buffer(pack("=q", len(codes.dictionary)))]
    )
    owners = pc.multiply(pc.list_parent_indices(lists).cast(pa.int64()), distinct[0])
    together = pc.add(owners, codes.indices.cast(pa.int64()))
    return bool(pc.count_distinct(together).as_py() < len(keys))


def _without_doubles(ends: memoryview, keys: pa.Array) -> tuple[bytes, pa.Array]:
    """Return the ends without double keys, and which entries are kept: of equal ones the last."""
    names = keys.cast(pa.binary()).to_pylist()
    limits = ends.cast("i")
    kept: list[int] = []
    fewer = [0]
    for first, last in pairwise(limits):
        kept += {names[index]: index for index in range(first, last)}.values()
        fewer.append(len(kept))
    places = pa.py_buffer(pack(f"={len(kept)}i", *kept))
    return pack(f"={len(fewer)}i", *fewer), _flat(pa.int32(), len(kept), [None, places], 0)
