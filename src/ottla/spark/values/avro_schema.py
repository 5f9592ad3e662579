"""Avro schemas, ``{"type": "record", ...}``, as types of Spark and as nodes of the kernel.

On the planner's side and on the executors: no pyarrow. Which type becomes which is what Spark 4.3's
``from_avro`` says (``SchemaConverters``): a union with null is its other branch, nullable; int with
long is a bigint, float with double a double; any other union is a struct ``member0``, ``member1``
..., without null. A logical type that does not fit its type, and one that is not named below, is
passed over, as Avro wants it. What Spark refuses is refused here, and what is not decoded, too: a
type within itself, and logical types finer than microseconds.

Source: Apache Avro 1.12 specification, "Schema Declaration", "Logical Types".
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.records.columnar import avro_tables as tables
from ottla.records.columnar.avro_columns import Node

DEPTH_MAX = 64
NODES_MAX = 10_000
"""The most types in a schema; each occurrence of a named type counts."""
DECIMAL_DIGITS_MAX = 38
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

PRIMITIVES: dict[str, tuple[int, type[DataType]]] = {
    "null": (tables.NULL, NullType),
    "boolean": (tables.BOOLEAN, BooleanType),
    "int": (tables.INT, IntegerType),
    "long": (tables.LONG, LongType),
    "float": (tables.FLOAT, FloatType),
    "double": (tables.DOUBLE, DoubleType),
    "bytes": (tables.OCTETS, BinaryType),
    "string": (tables.OCTETS, StringType),
}
LOGICAL: dict[tuple[str, str], tuple[int, type[DataType]]] = {
    ("int", "date"): (tables.INT, DateType),
    ("long", "timestamp-millis"): (tables.MILLIS, TimestampType),
    ("long", "timestamp-micros"): (tables.LONG, TimestampType),
    ("long", "local-timestamp-millis"): (tables.MILLIS, TimestampNTZType),
    ("long", "local-timestamp-micros"): (tables.LONG, TimestampNTZType),
}
REFUSED = {
    ("long", "time-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-nanos"),
    ("long", "custom-decimal"),
}
"""Logical types of which Spark makes one type or another, by its version."""
NAMED = ("record", "error", "enum", "fixed")
WIDENED = ({"int", "long"}, {"float", "double"})


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type at its place in the schema."""

    node: Node
    kind: DataType
    is_nullable: bool = False
    children: "tuple[AvroType, ...]" = ()
    """The types of the node's children, but for fields that are left out."""
    symbols: tuple[str, ...] = ()

    @property
    def is_widened(self) -> bool:
        """Whether this is a union whose branches are one column."""
        return self.node.kind == tables.UNION and not isinstance(self.kind, StructType)


def parse_avro_schema(text: str) -> AvroType:
    """Return the type that ``text``, a schema's JSON, is about. Raises ValueError."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        message = f"the schema is no JSON: {error}"
        raise ValueError(message) from error
    except RecursionError as error:
        message = "the schema's JSON is nested too deep"
        raise ValueError(message) from error
    return _Parser().type(schema, "", ())


def select_fields(found: AvroType, wanted: StructType) -> AvroType:
    """Return the record with the columns ``wanted`` only, in their order. Raises ValueError.

    Their types must be those that the fields have; whether they are nullable does not matter.
    """
    if not isinstance(found.kind, StructType) or found.node.kind != tables.RECORD:
        message = "only fields of a record can be chosen"
        raise ValueError(message)
    fields = dict(zip(found.kind.names, found.children, strict=True))
    for each in wanted:
        if each.name not in fields:
            message = f"there is no field {each.name!r} among {', '.join(fields)}"
            raise ValueError(message)
        kind = all_nullable(fields[each.name].kind)
        if kind != each.dataType:
            message = f"{each.name} is {kind.simpleString()}, not {each.dataType.simpleString()}"
            raise ValueError(message)
    for name, field in fields.items():
        field.node.is_skipped = name not in wanted.names
    kind = StructType([found.kind[name] for name in wanted.names])
    return replace(found, kind=kind, children=tuple(fields[name] for name in wanted.names))


def keep_fields(found: AvroType, names: Sequence[str]) -> AvroType:
    """Return the record with those of its fields that ``names`` has; other types as they are."""
    if not isinstance(found.kind, StructType) or found.node.kind != tables.RECORD:
        return found
    fields = list(zip(found.kind.fields, found.children, strict=True))
    for field, child in fields:
        child.node.is_skipped = field.name not in names
    kept = [(field, child) for field, child in fields if field.name in names]
    return replace(
        found,
        kind=StructType([field for field, _ in kept]),
        children=tuple(child for _, child in kept),
    )


def all_nullable(kind: DataType) -> DataType:
    """Return the type with every field, element and map's value nullable."""
    match kind:
        case StructType():
            return StructType([StructField(f.name, all_nullable(f.dataType)) for f in kind.fields])
        case ArrayType():
            return ArrayType(all_nullable(kind.elementType))
        case MapType():
            return MapType(kind.keyType, all_nullable(kind.valueType))
        case _:
            return kind


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, tuple[dict[str, object], str]] = {}
        self._open: set[str] = set()
        self._count = 0

    def type(self, schema: object, space: str, path: Sequence[str]) -> AvroType:
        """Return the type of ``schema``, whose names are of the namespace ``space``."""
        self._count += 1
        if len(path) > DEPTH_MAX or self._count > NODES_MAX:
            message = f"the schema has more than {NODES_MAX} types, or is deeper than {DEPTH_MAX}"
            raise _wrong(path[:3], message)
        match schema:
            case str():
                return self._of_name(schema, space, path)
            case list():
                return self._union(schema, space, path)
            case dict():
                return self._of_object(schema, space, path)
            case _:
                raise _wrong(path, f"expected a type, found {json.dumps(schema)[:80]}")

    def _of_name(self, name: str, space: str, path: Sequence[str]) -> AvroType:
        if name in PRIMITIVES:
            number, kind = PRIMITIVES[name]
            return AvroType(Node(number), kind(), is_nullable=name == "null")
        for full in (_full_name(name, space), name):
            if full in self._named:
                definition, inner = self._named[full]
                return self._body(definition, full, inner, path)
        raise _wrong(path, f"no type is named {name!r}")

    def _of_object(self, schema: dict[str, object], space: str, path: Sequence[str]) -> AvroType:
        name = schema.get("type")
        kind: DataType
        match name:
            case "array":
                items = self.type(schema.get("items"), space, [*path, "element"])
                kind = ArrayType(items.kind, items.is_nullable)
                node = Node(tables.ARRAY, children=[items.node])
                return AvroType(node, kind, children=(items,))
            case "map":
                keys = AvroType(Node(tables.OCTETS), StringType())
                values = self.type(schema.get("values"), space, [*path, "value"])
                kind = MapType(StringType(), values.kind, values.is_nullable)
                node = Node(tables.MAP, children=[keys.node, values.node])
                return AvroType(node, kind, children=(keys, values))
            case str() if name in NAMED:
                full, inner = _declared_name(schema, space, path)
                if self._named.setdefault(full, (schema, inner))[0] is not schema:
                    raise _wrong(path, f"the type {full!r} is declared twice")
                return self._body(schema, full, inner, path)
            case str() if name in PRIMITIVES:
                return _logical(schema, name, path) or self._of_name(name, space, path)
            case str():
                return self._of_name(name, space, path)
            case _:
                raise _wrong(path, f"expected a type's name, found {json.dumps(name)[:80]}")

    def _body(
        self, schema: dict[str, object], full: str, space: str, path: Sequence[str]
    ) -> AvroType:
        match schema["type"]:
            case "enum":
                symbols = _texts(schema.get("symbols"), "symbols", path)
                return AvroType(Node(tables.ENUM, len(symbols)), StringType(), symbols=symbols)
            case "fixed":
                size = schema.get("size")
                if type(size) is not int or not 0 <= size < 1 << 31:
                    raise _wrong(path, f"{full} needs a size in bytes, found {size!r}")
                decimal = _logical(schema, "fixed", path)
                return decimal or AvroType(Node(tables.FIXED, size), BinaryType())
            case _:
                return self._record(schema, full, space, path)

    def _record(
        self, schema: dict[str, object], full: str, space: str, path: Sequence[str]
    ) -> AvroType:
        if full in self._open:
            raise _wrong(path, f"{full} is within itself, of which Spark makes no columns")
        self._open.add(full)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            raise _wrong(path, f"{full} needs fields")
        names = _texts([each.get("name") for each in fields], "fields with names", path)
        if len({name.lower() for name in names}) != len(names):
            raise _wrong(path, f"{full} has two fields whose names differ in case at most")
        children = tuple(
            self.type(each.get("type"), space, [*path, name])
            for each, name in zip(fields, names, strict=True)
        )
        self._open.remove(full)
        kind = StructType(
            [
                StructField(name, child.kind, child.is_nullable)
                for name, child in zip(names, children, strict=True)
            ]
        )
        node = Node(tables.RECORD, children=[child.node for child in children])
        return AvroType(node, kind, children=children)

    def _union(self, branches: list[object], space: str, path: Sequence[str]) -> AvroType:
        names = [each.get("type") if isinstance(each, dict) else each for each in branches]
        null = names.index("null") if "null" in names else -1
        rest = [each for index, each in enumerate(branches) if index != null]
        if not rest or any(isinstance(each, list) for each in rest):
            raise _wrong(path, "a union has types other than null, none of them a union")
        unnamed = [str(name) for name in names if name not in NAMED]
        if len(set(unnamed)) != len(unnamed):
            raise _wrong(path, "a union has a type twice")
        unnamed = [name for name in unnamed if name != "null"]
        if len(rest) == 1:
            return self._nullable(self.type(rest[0], space, path), null)
        is_widened = set(unnamed) in WIDENED and len(rest) == 2
        if is_widened:  # The numbers alone: what else is said of them, Spark passes over.
            rest = [*unnamed]
        children = tuple(
            self.type(each, space, [*path, f"member{index}"]) for index, each in enumerate(rest)
        )
        kind: DataType
        if is_widened:
            kind = LongType() if "long" in unnamed else DoubleType()
        else:
            kind = StructType([StructField(f"member{i}", c.kind) for i, c in enumerate(children)])
        node = Node(
            tables.UNION,
            children=[child.node for child in children],
            branches=[
                -1 if index == null else index - (0 <= null < index)
                for index in range(len(branches))
            ],
        )
        return AvroType(node, kind, is_nullable=null >= 0, children=children)

    @staticmethod
    def _nullable(only: AvroType, null: int) -> AvroType:
        only.node.null_branch = null
        only.node.value_branch = 1 if null == 0 else 0
        return AvroType(only.node, only.kind, null >= 0, only.children, only.symbols)


def _logical(schema: dict[str, object], name: str, path: Sequence[str]) -> AvroType | None:
    """Return the logical type of ``schema``; None: it has none that has a meaning here."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        logical = ""
    if (name, logical) in REFUSED or "spark.sql.catalyst.type" in schema:
        found = logical or schema["spark.sql.catalyst.type"]
        raise _wrong(path, f"{found} is not decoded: read values raw, and use from_avro")
    if (name, logical) in LOGICAL:
        number, kind = LOGICAL[name, logical]
        return AvroType(Node(number), kind())
    if logical == "decimal" and name in {"bytes", "fixed"}:
        return _decimal(schema, name, path)
    return None


def _decimal(schema: dict[str, object], name: str, path: Sequence[str]) -> AvroType | None:
    precision, scale, size = schema.get("precision"), schema.get("scale", 0), schema.get("size", 0)
    if type(precision) is not int or type(scale) is not int or type(size) is not int:
        return None
    if precision <= 0 or not 0 <= scale <= precision:
        return None
    if name == "fixed" and precision > math.floor(math.log10(2) * (8 * size - 1)):
        return None
    if precision > DECIMAL_DIGITS_MAX:
        raise _wrong(path, f"a decimal of {precision} digits: Spark has {DECIMAL_DIGITS_MAX}")
    number = tables.FIXED_DECIMAL if name == "fixed" else tables.DECIMAL
    return AvroType(Node(number, size, precision), DecimalType(precision, scale))


def _declared_name(schema: dict[str, object], space: str, path: Sequence[str]) -> tuple[str, str]:
    """Return the full name of what is declared, and the namespace of names in it."""
    name, given = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(path, f"a {schema['type']} needs a name, found {name!r}")
    full = _full_name(name, given if isinstance(given, str) else space)
    return full, full.rpartition(".")[0]


def _full_name(name: str, space: str) -> str:
    return f"{space}.{name}" if space and "." not in name else name


def _texts(found: object, what: str, path: Sequence[str]) -> tuple[str, ...]:
    """Return names that must be texts, none of them twice."""
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _wrong(path, f"expected {what}, found {json.dumps(found)[:80]}")
    if len(set(found)) != len(found) or not all(map(_is_name, found)):
        raise _wrong(path, f"{what} are names, none of them twice: {', '.join(found)[:80]}")
    return tuple(found)


_is_name: Callable[[str], object] = re.compile(r"[^\W\d]\w*").fullmatch


def _wrong(path: Sequence[str], what: str) -> ValueError:
    return ValueError(f"{'.'.join(path)}: {what}" if path else what)
