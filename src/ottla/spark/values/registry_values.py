"""Avro values of several schemas to one column, on the executor: each by the schema of its id.

Owns what a task knows of a registry: a decoder for each id that it met. Values are grouped by id,
so that each group goes through the kernel at once; what comes out is made the reader's type by
Avro's rules: fields that the writer did not have get their defaults, numbers are widened. Source:
Apache Avro 1.12 specification, "Schema Resolution".
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.schema import AVRO, RegistryError
from ottla.spark.values.avro_schema import keep_fields, parse_avro_schema
from ottla.spark.values.avro_values import AvroValues
from ottla.spark.values.value_options import AvroOptions, MalformedValue, Mode

HEADER_BYTES = 5
DECODERS_MAX = 1_000
_WIDENED = {
    pa.int32(): (pa.int64(), pa.float32(), pa.float64()),
    pa.int64(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
    pa.string(): (pa.binary(),),
    pa.binary(): (pa.string(),),
}


class _DoesNotFit(Exception):
    """A writer's schema cannot become the reader's; the text says why."""


class RegistryValues:
    """Makes one column of values."""

    def __init__(self, options: AvroOptions) -> None:
        self._options = options
        self._registry = _registry(options.registry)
        self._refusing = AvroValues(_wanting(options, 0x7FFFFFFF))
        self.type: pa.DataType = self._refusing.type
        self._defaults = _defaults(options.schema_json)
        self._decoders: dict[bytes, AvroValues | str] = {}

    def decode(
        self, values: pa.Array, offsets: Sequence[int], partition: str
    ) -> tuple[pa.Array, pa.Array | None]:
        """Return what ``values`` (binary) hold, and which rows stay; None: all of them.

        As ``AvroValues.decode``. May ask the registry: raises RegistryError when it is away.
        """
        heads = pc.binary_slice(values, 0, HEADER_BYTES).dictionary_encode()
        if len(heads.dictionary) < 2:
            head = heads.dictionary[0].as_py() if len(heads.dictionary) else b""
            return self._decode_one(head, values, offsets, partition)
        places = heads.indices.fill_null(0)
        arrays, all_rows, all_stays = [], [], []
        for number, head in enumerate(heads.dictionary):
            rows = pc.indices_nonzero(pc.equal(places, pa.array([number], pa.int32())[0]))
            chosen = _Chosen(offsets, rows)
            array, stays = self._decode_one(head.as_py(), values.take(rows), chosen, partition)
            arrays.append(array)
            all_rows.append(rows)
            all_stays.append(stays if stays is not None else pc.is_valid(rows))
        order = pc.sort_indices(pa.concat_arrays(all_rows))
        kept = pa.concat_arrays(all_stays).take(order)
        found = pa.concat_arrays(arrays).take(order)
        return found, None if kept.false_count == 0 else kept

    def _decode_one(
        self, head: bytes, values: pa.Array, offsets: Sequence[int], partition: str
    ) -> tuple[pa.Array, pa.Array | None]:
        """Decode values that all begin with ``head``, or are null."""
        decoder = self._decoder(head)
        if isinstance(decoder, AvroValues):
            array, stays = decoder.decode(values, offsets, partition)
            return self._fitted(array), stays
        if decoder and self._options.mode is Mode.FAILFAST and values.null_count < len(values):
            first = pc.indices_nonzero(values.is_valid())[0].as_py()
            where = f"{partition} at offset {offsets[first]}"
            raise MalformedValue(f"{where}: malformed Avro value: {decoder}")
        return self._refusing.decode(values, offsets, partition)

    def _decoder(self, head: bytes) -> AvroValues | str:
        """Return the decoder of a schema id, or why there is none ("": it is none)."""
        if len(head) < HEADER_BYTES or head[0] != 0:
            return ""
        found = self._decoders.get(head)
        if found is None:
            number = int.from_bytes(head[1:], "big")
            try:
                found = self._made(number)
            except RegistryError as error:
                if error.status not in (404, 422):
                    raise
                found = str(error)
            except (ValueError, _DoesNotFit) as error:
                found = f"schema {number}: {error}"
            if len(self._decoders) >= DECODERS_MAX:
                self._decoders.clear()
            self._decoders[head] = found
        return found

    def _made(self, number: int) -> AvroValues:
        schema = self._registry.by_id(number)
        if schema.kind != AVRO:
            raise _DoesNotFit(f"it is of {schema.kind}, not of Avro")
        if schema.references:
            raise _DoesNotFit("it refers to other schemas, which are not read here")
        wanted = [each.name for each in self.type] if pa.types.is_struct(self.type) else []
        root = keep_fields(parse_avro_schema(schema.text), wanted)
        decoder = AvroValues(_wanting(self._options, number), root)
        self._fitted(pa.nulls(0, decoder.type))  # Raises now, if it ever does.
        return decoder

    def _fitted(self, array: pa.Array) -> pa.Array:
        return array if array.type == self.type else _fit(array, self.type, self._defaults)


class _Chosen(Sequence[int]):
    """The offsets of some rows, which are looked up only for an error."""

    def __init__(self, offsets: Sequence[int], rows: pa.Array) -> None:
        self._offsets = offsets
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a Sequence's
        return self._offsets[self._rows[index].as_py()]


def _fit(array: pa.Array, kind: pa.DataType, defaults: dict[str, object]) -> pa.Array:
    """Return ``array`` as ``kind``. Raises _DoesNotFit."""
    have = array.type
    if have == kind:
        return array
    types = pa.types
    if types.is_struct(have) and types.is_struct(kind):
        there = {each.name: index for index, each in enumerate(have)}
        children = []
        parts = array.flatten()
        for each in kind:
            if each.name in there:
                children.append(_fit(parts[there[each.name]], each.type, {}))
            else:
                children.append(_default(each, defaults, len(array)))
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if types.is_list(have) and types.is_list(kind):
        items = _fit(array.values, kind.value_type, {})
        return _rebuilt(array, kind, items)
    if types.is_map(have) and types.is_map(kind):
        entries = [_fit(array.keys, kind.key_type, {}), _fit(array.items, kind.item_type, {})]
        fields = [kind.key_field, kind.item_field]
        return _rebuilt(array, kind, pa.StructArray.from_arrays(entries, fields=fields))
    if kind in _WIDENED.get(have, ()):
        return array.cast(kind, safe=False)
    raise _DoesNotFit(f"{have} does not become {kind}")


def _rebuilt(array: pa.Array, kind: pa.DataType, items: pa.Array) -> pa.Array:
    validity, ends = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, ends], array.null_count, array.offset, children=[items]
    )


def _default(field: pa.Field, defaults: dict[str, object], rows: int) -> pa.Array:
    """Return a column of a field that the writer did not have."""
    if field.name not in defaults:
        raise _DoesNotFit(f"it has no field {field.name}, and the reader's has no default")
    value = defaults[field.name]
    if value is None:
        return pa.nulls(rows, field.type)
    simple = pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string
    if not any(each(field.type) for each in simple):
        raise _DoesNotFit(f"it has no field {field.name}, whose default is of {field.type}")
    try:
        one = pa.array([value], field.type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _DoesNotFit(f"the default of {field.name}: {error}") from error
    return one.take(pa.nulls(rows, pa.int32()).fill_null(0))


def _defaults(text: str) -> dict[str, object]:
    """Return the defaults of a record's fields."""
    schema = json.loads(text)
    fields = schema.get("fields", []) if isinstance(schema, dict) else []
    return {each["name"]: each["default"] for each in fields if "default" in each}


def _wanting(options: AvroOptions, number: int) -> AvroOptions:
    from dataclasses import replace

    return replace(options, schema_id=number)


@lru_cache(maxsize=4)
def _registry(settings: tuple[tuple[str, str], ...]) -> SchemaRegistry:
    """Return the registry's client: one for all tasks of a worker."""
    return SchemaRegistry.from_config(dict(settings))
