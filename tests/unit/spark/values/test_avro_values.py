"""Avro values to typed columns: every type, every kind of bad value, in both forms of the kernel.

Values of any schema are in tests/property/records/test_avro.py; that they are what Spark's
from_avro says is asked of Spark itself in tests/e2e/test_spark_avro.py.
"""

import datetime as dt
import importlib.util
import json
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa

from ottla.records.columnar import avro, avro_columns
from ottla.spark.connection import OptionError
from ottla.spark.offsets import OffsetRange
from ottla.spark.reading.columns import ArrowDecoder
from ottla.spark.values.avro_schema import parse_avro_schema
from ottla.spark.values.avro_values import AvroValues
from ottla.spark.values.value_options import MalformedValue, parse_value_options


def load_interpreted():
    spec = importlib.util.spec_from_file_location(
        "interpreted_avro", Path(avro_columns.__file__).parent / "avro.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORMS = {"compiled": avro, "interpreted": load_interpreted()}


@contextmanager
def form_of_kernel(name):
    if name == "compiled" and not avro.COMPILED:
        pytest.skip("the extension is not built: python setup.py build_ext --inplace")
    avro_columns.kernel = FORMS[name]
    try:
        yield
    finally:
        avro_columns.kernel = avro


@pytest.fixture(params=FORMS, autouse=True)
def form(request):
    with form_of_kernel(request.param):
        yield


def reader(schema, **options):
    given = {"value.format": "avro", "avroSchema": json.dumps(schema), **options}
    return AvroValues(parse_value_options({key.lower(): each for key, each in given.items()}))


def decoded(values, schema, **options):
    offsets = memoryview(bytes(8 * len(values))).cast("q")
    made = reader(schema, **options)
    found, stays = made.decode(pa.array(values, pa.binary()), offsets, "t-3")
    found.validate(full=True)
    assert found.type == made.type
    return found.to_pylist(), None if stays is None else stays.to_pylist()


def one(value, schema, **options):
    return decoded([value], schema, **options)[0][0]


def record(*types):
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def varint(value):
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def octets(data):
    return varint(len(data)) + data


NULLABLE = ["null", "long"]
EMPTY = {"type": "record", "name": "E", "fields": []}
LONG_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38}
PERMISSIVE = {"mode": "PERMISSIVE"}


@pytest.mark.parametrize(
    ("schema", "data", "meant"),
    [
        ("long", varint(-5), -5),
        (["null", "long"], b"\0", None),
        (["int", "string"], b"\2" + octets(b"x"), {"member0": None, "member1": "x"}),
        (record(["long"]), b"\0" + varint(7), {"f0": 7}),
        (record("boolean", "boolean"), b"\1\2", {"f0": True, "f1": False}),
        (record({"type": "array", "items": "long"}), b"\4\2\4\3\4\6\10\0", {"f0": [1, 2, 3, 4]}),
        (
            record({"type": "map", "values": "int"}),
            b"\6\2a\2\2b\4\2a\6\0",
            {"f0": [("a", 3), ("b", 2)]},
        ),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}),
         octets(b"\xff" * 30 + b"\x85"), {"f0": Decimal("-12.3")}),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}),
         octets(b"\1"), {"f0": b"\1"}),
        (record({"type": "int", "logicalType": "timestamp-millis"}), varint(1), {"f0": 1}),
        (record({"type": "string", "logicalType": "date"}), octets(b"x"), {"f0": "x"}),
        (record({"type": "long", "logicalType": "timestamp-millis"}), varint(-1),
         {"f0": dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)}),
        (record(["int", {"type": "long", "logicalType": "timestamp-millis"}]), b"\2\6", {"f0": 3}),
        (record("null", EMPTY), b"", {"f0": None, "f1": {}}),
        ("int", b"\xff\xff\xff\xff\x7f", -(2**31)),
        ("long", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", -(2**63)),
        (record("int"), varint(1) + b"what follows", {"f0": 1}),
    ],
)  # fmt: skip
def test_a_value_is_read_as_spark_reads_it(schema, data, meant):
    assert one(data, schema) == meant


@pytest.mark.parametrize("count", [2, 16, 17, 40])
@pytest.mark.parametrize("is_double", [True, False])
def test_of_equal_keys_of_a_map_the_last_one_stays(count, is_double):
    schema = record({"type": "map", "values": "int"}, "string")
    names = [b"key %d" % number for number in range(count)]
    names[-1] = names[0] if is_double else names[-1]
    entries = b"".join(octets(name) + varint(at) for at, name in enumerate(names))
    value = varint(count) + entries + b"\0" + octets(b"after")
    other = varint(1) + octets(names[0]) + varint(7) + b"\0" + octets(b"")
    meant = {name.decode(): at for at, name in enumerate(names)}
    rows, _ = decoded([other, value, None, other], schema)
    assert [row and dict(row["f0"]) for row in rows] == [{"key 0": 7}, meant, None, {"key 0": 7}]
    assert [row and len(row["f0"]) for row in rows] == [1, count - is_double, None, 1]
    assert [row and row["f1"] for row in rows] == ["", "after", None, ""]


NESTED = {
    "type": "record", "name": "a.b.R", "fields": [
        {"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "y", "type": "a.b.E"},
        {"name": "z", "type": ["null", "E"]},
    ],
}  # fmt: skip


def test_names_are_of_their_namespace():
    assert one(b"\0\2\2\2", NESTED) == {"x": "A", "y": "B", "z": "B"}


BAD = [
    ("long", b"", "ends inside a field"),
    ("long", b"\x80", "ends inside a field"),
    ("double", b"1234567", "ends inside a field"),
    ("boolean", b"", "ends inside a field"),
    ("int", b"\x80\x80\x80\x80\x80\0", "a varint is longer"),
    ("long", b"\x80" * 10 + b"\0", "a varint is longer"),
    ("string", varint(3) + b"ab", "a length is negative or more"),
    ("bytes", varint(-1), "a length is negative or more"),
    ("string", varint(2**62), "a length is negative or more"),
    ({"type": "fixed", "name": "F", "size": 3}, b"12", "a length is negative or more"),
    (NULLABLE, varint(2), "no such branch"),
    (NULLABLE, varint(-1), "no such branch"),
    (["long"], varint(-1), "no such branch"),
    (["null", "int", "string"], varint(3), "no such branch"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(1), "no such symbol"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(-1), "no such symbol"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2}, octets(b"\x64"), "precision"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2}, octets(b""), "precision"),
    (LONG_DECIMAL, octets(b"\x7f" * 17), "precis"),
    (LONG_DECIMAL, octets(b"\x7f" + b"\xff" * 15), "precis"),
    (LONG_DECIMAL, octets(b"\x80" + b"\0" * 15), "precis"),
    ({"type": "long", "logicalType": "timestamp-millis"}, varint(2**62), "a timestamp is beyond"),
    ({"type": "array", "items": "long"}, varint(2**40) + b"\2", "more items than"),
    ({"type": "array", "items": "long"}, varint(-(2**63)) + b"\2", "more items than"),
    ({"type": "array", "items": "long"}, varint(2) + b"\2\2", "ends inside a field"),
    ({"type": "array", "items": "null"}, varint(2**62) + b"\0", "more items than"),
    ({"type": "array", "items": "null"}, varint(1024) + varint(1) + b"\0", "more items than"),
    ({"type": "map", "values": "null"}, varint(3) + b"\2a", "more items than"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "data", "why"), BAD)
def test_what_is_malformed_is_told_with_its_reason(schema, data, why):
    with pytest.raises(MalformedValue, match=f"t-3 at offset 0: malformed Avro value: .*{why}"):
        one(data, schema)
    assert one(data, schema, **PERMISSIVE) is None
    assert one(varint(1) + data, record("int", schema), **PERMISSIVE) == {"f0": None, "f1": None}


@pytest.mark.parametrize(("schema", "data", "why"), BAD)
def test_bad_values_among_good_ones_take_nothing_with_them(schema, data, why):
    good = varint(9) + octets(b"text") + b"\2" + varint(1)
    inner = record("int", {"type": "array", "items": "string"}, "string", schema)
    around = {"type": "array", "items": inner | {"name": "S"}}
    bad = varint(1) + varint(5) + b"\2" + octets(b"lost") + b"\0" + octets(b"lost, too") + data
    plain = record("int", "string", ["null", "int"], ["null", around])
    values = [good, bad, None, good] + [good + b"\0"] * 2
    values = [None if v is None else v + b"\0" if v is good else v for v in values]
    values[1] = good[:-2] + b"\0" + b"\2" + bad
    meant = {"f0": 9, "f1": "text", "f2": 1, "f3": None}
    rows, _ = decoded(values, plain, **PERMISSIVE)
    assert rows == [meant, dict.fromkeys(meant), None, meant, meant, meant]
    rows, stays = decoded(values, plain, mode="dropMalformed")
    assert stays == [True, False, True, True, True, True]
    assert rows == [meant, None, None, meant, meant, meant]


def test_few_bytes_are_not_many_items():
    items = {"type": "array", "items": {"type": "array", "items": "null"}}
    blocks = varint(1024) + b"\0"
    assert one(varint(1) + blocks + b"\0", items) == [[None] * 1024]
    with pytest.raises(MalformedValue, match="more items"):
        one(varint(2) + blocks * 2 + b"\0", items)


def test_the_header_of_a_schema_registry_is_taken_off_and_checked():
    header = {"avroHeader": "confluent"}
    value = b"\0\0\0\1\2" + varint(5)
    assert one(value, "long", **header) == 5
    assert one(value, "long", avroSchemaId="258", **header) == 5
    with pytest.raises(MalformedValue, match="another schema id"):
        one(value, "long", avroSchemaId="259", **header)
    for bad in (b"", b"\0\0\0\1", b"\1\0\0\1\2" + varint(5)):
        with pytest.raises(MalformedValue, match="does not begin with the byte 0"):
            one(bad, "long", **header)
    with pytest.raises(MalformedValue, match="ends inside"):
        one(value[:5], "long", **header)


def test_the_fields_that_are_asked_for_are_the_columns():
    inner = record("string", ["null", "int"]) | {"name": "S"}
    schema = record("long", "string", {"type": "array", "items": inner}, "boolean")
    one_item = varint(1) + octets(b"a") + b"\2" + varint(7) + b"\0"
    good = varint(5) + octets(b"text") + one_item + b"\1"
    values = [good, None, good[:-1], varint(6) + octets(b"") + b"\0\0"]
    wanted = {"value.schema": "f3 boolean, f1 string", **PERMISSIVE}
    assert decoded(values, schema, **wanted)[0] == [
        {"f3": True, "f1": "text"}, None, {"f3": None, "f1": None}, {"f3": False, "f1": ""},
    ]  # fmt: skip
    whole = {"value.schema": "f2 array<struct<f0: string, f1: int>>", "mode": "DROPMALFORMED"}
    rows, stays = decoded(values, schema, **whole)
    assert rows == [{"f2": [{"f0": "a", "f1": 7}]}, None, None, {"f2": []}]
    assert stays == [True, True, False, True]
    assert made_type(schema, "f0 bigint").field("f0").nullable is False


def made_type(schema, columns):
    return reader(schema, **{"value.schema": columns}).type


def test_slices_and_nothing_at_all():
    made = reader("long")
    values = pa.array([varint(n) if n % 3 else None for n in range(100)], pa.binary())
    found, _ = made.decode(values.slice(13, 50), None, "")
    assert found.to_pylist() == [n if n % 3 else None for n in range(13, 63)]
    assert made.decode(values.slice(5, 0), None, "")[0].to_pylist() == []
    assert decoded([], record("string"))[0] == []
    assert decoded([None, None], record("string"))[0] == [None, None]


def test_a_batch_has_the_struct_in_the_place_of_value_and_loses_dropped_rows(batch):
    given = {
        "value.format": "avro",
        "avroschema": json.dumps(record("int")),
        "mode": "dropmalformed",
    }
    data = batch(5, [varint(1), b"\x80", varint(3), None])
    decoder = ArrowDecoder(("offset", "value"), parse_value_options(given))
    assert list(decoder.decode(memoryview(data), OffsetRange("t", 0, 0, 99))) == []
    assert decoder.rest().to_pylist() == [
        {"offset": 5, "value": {"f0": 1}},
        {"offset": 7, "value": {"f0": 3}},
        {"offset": 8, "value": None},
    ]


TWICE = [{"name": "x", "type": "int"}, {"name": "X", "type": "int"}]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "the schema is no JSON"),
        ("[" * 100_000, "the schema"),
        ("5", "expected a type, found 5"),
        ('"text"', "no type is named 'text'"),
        (record("int", {"type": "array"}), "f1.element: expected a type, found null"),
        (record({"type": {"type": "string"}}), "f0: expected a type's name"),
        (record(["null"]), "f0: a union has types other than null"),
        (record([["int"]]), "f0: a union has types other than null, none of them a union"),
        (record(["int", "int"]), "a union has a type twice"),
        (record(["null", "null", "int"]), "a union has a type twice"),
        (record(["null", "R"]), "f0: R is within itself"),
        (record({"type": "array", "items": {"type": "map", "values": "R"}}), "R is within itself"),
        (record("int") | {"name": "1"}, "a record needs a name, found '1'"),
        (record("int") | {"fields": None}, "R needs fields"),
        (record("int") | {"fields": TWICE}, "names differ in case at most"),
        (record("int") | {"fields": [{"name": "a-b", "type": "int"}]}, "fields with names"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "symbols are names, none of them"),
        ({"type": "fixed", "name": "F", "size": -1}, "F needs a size in bytes"),
        (record(record("int"), record("int")), "the type 'R' is declared twice"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "39 digits: Spark has 38"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp-nanos is not decoded"),
        ({"type": "long", "logicalType": "time-micros"}, "use from_avro"),
        ({"type": "int", "spark.sql.catalyst.type": "interval year"}, "interval year is not decod"),
    ],
)
def test_wrong_schemas_are_named(schema, why):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(ValueError, match=why):
        parse_avro_schema(text)


def test_types_that_multiply_are_refused():
    inner = record("int") | {"name": "R0"}
    for number in range(1, 30):
        outer = record(inner, f"R{number - 1}") | {"name": f"R{number}"}
        inner = outer
    with pytest.raises(ValueError, match="more than 10000 types"):
        parse_avro_schema(json.dumps(inner))


ONE = json.dumps(record("int"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "avroSchema is missing"),
        ({"avroSchema": "{"}, "option avroSchema: the schema is no JSON"),
        ({"avroSchema": '"int"', "value.schema": "a int"}, "only fields of a record can be chosen"),
        ({"avroSchema": ONE, "value.schema": "a int"}, "schema: there is no field 'a' among f0"),
        ({"avroSchema": ONE, "value.schema": "f0 bigint"}, "value.schema: f0 is int, not bigint"),
        ({"avroSchema": ONE, "value.schema": "f0"}, "value.schema: expected a type"),
        ({"avroSchema": '"int"', "timeZone": "UTC"}, "timeZone has a meaning with .*=json only"),
        ({"avroSchema": '"int"', "avroHeader": "registry"}, "avroHeader is one of NONE, CONFLUENT"),
        ({"avroSchema": '"int"', "avroSchemaId": "3"}, "avroSchemaId has a meaning with avroH"),
        ({"avroSchema": '"int"', "avroHeader": "confluent", "avroSchemaId": "x"}, "a whole number"),
        ({"avroSchema": '"int"', "avroHeader": "confluent", "avroSchemaId": "9" * 12}, "is above"),
        ({"avroSchema": '"int"', "mode": "strict"}, "PERMISSIVE, DROP"),
        ({"value.format": "json", "avroSchema": "1"}, "avroSchema has a meaning with .*=avro only"),
        ({"value.format": "raw", "mode": "failfast"}, "mode has a meaning with .*=json or avro"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(options, why):
    given = {"value.format": "avro", **options}
    with pytest.raises(OptionError, match=why):
        parse_value_options({key.lower(): each for key, each in given.items()})
