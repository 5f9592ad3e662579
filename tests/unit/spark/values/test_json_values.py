"""JSON values to typed columns: Spark's rules, and no value in another one's place.

What Spark's from_json says of each of these was asked of Spark 4.3.
"""

import datetime as dt
from decimal import Decimal

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.connection import OptionError
from ottla.spark.offsets import OffsetRange
from ottla.spark.planning.source import schema_of
from ottla.spark.reading.columns import ArrowDecoder
from ottla.spark.values.json_rows import java_text
from ottla.spark.values.json_values import JsonValues, MalformedValue
from ottla.spark.values.value_options import parse_value_options

SCHEMA = (
    "a bigint, s string, d double, t timestamp, l array<bigint>, n struct<b:boolean>, dt date,"
    " dec decimal(8,2), i int, ntz timestamp_ntz, f float, _corrupt_record string"
)
ODD = SCHEMA + ", m map<string,bigint>, bin binary"
"""With types that Arrow's reader does not know: every value goes the long way."""


def decoded(values, schema=SCHEMA, **options):
    given = {"value.format": "json", "value.schema": schema, **options}
    reader = JsonValues(parse_value_options({key.lower(): each for key, each in given.items()}))
    offsets = memoryview(bytes(8 * len(values))).cast("q")
    found, stays = reader.decode(pa.array(values, pa.binary()), offsets, "t-3")
    found.validate(full=True)
    assert found.type == reader.type
    return found.to_pylist(), None if stays is None else stays.to_pylist()


def one(value, schema=SCHEMA, **options):
    """The columns of one value that are not null."""
    ((row,), _) = decoded([value], schema, **options)
    return row if row is None else {key: each for key, each in row.items() if each is not None}


UTC = dt.UTC
NTZ = dt.datetime.fromisoformat("2024-01-02T03:04:05")


@pytest.mark.parametrize("schema", [SCHEMA, ODD])
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (None, None),
        ("", None),
        (" \t", None),
        ("{}", {}),
        ('{"a":1,"x":{"deep":[1]}}', {"a": 1}),
        ('{"a":1} trailing', {"a": 1}),
        ('{"a":1}{"a":2}', {"a": 1}),
        ('{"a":1},"x":0', {"a": 1}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{\n "a": 7\r\n}', {"a": 7}),
        ('{"A":5}', {}),
        ('{"s":1.50}', {"s": "1.5"}),
        ('{"s":{"x": [1, 2.50, true, null]}}', {"s": '{"x":[1,2.5,true,null]}'}),
        ('{"s":"é\\u4e16"}', {"s": "é\u4e16"}),
        ('{"d":1}', {"d": 1.0}),
        ('{"d":"-INF"}', {"d": float("-inf")}),
        ('{"t":"2024-01-02T03:04:05Z"}', {"t": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)}),
        ('{"t":"2024-01-02"}', {"t": dt.datetime(2024, 1, 2, tzinfo=UTC)}),
        ('{"t":"2024-01-02T03:04:05+02:00"}', {"t": dt.datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)}),
        ('{"t":1700000000}', {"t": dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)}),
        ('{"dt":"2024-02-28"}', {"dt": dt.date(2024, 2, 28)}),
        ('{"dt":"2024-02-28T99"}', {"dt": dt.date(2024, 2, 28)}),
        ('{"dt":"2024-02-28 "}', {"dt": dt.date(2024, 2, 28)}),
        ('{"ntz":"2024-01-02 03:04:05"}', {"ntz": NTZ}),
        ('{"dec":12.345}', {"dec": Decimal("12.35")}),
        ('{"dec":"12.3"}', {"dec": Decimal("12.30")}),
        ('{"l":[1,null]}', {"l": [1, None]}),
        ('{"n":{"b":true}}', {"n": {"b": True}}),
    ],
)  # fmt: skip
def test_a_value_is_read_as_spark_reads_it(text, meant, schema):
    assert one(text if text is None else text.encode(), schema) == meant


@pytest.mark.parametrize("schema", [SCHEMA, ODD])
@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("null", {}),
        ("[]", {}),
        ('[{"a":1}]', {}),
        ("1", {}),
        ("{", {}),
        ('{"a":1', {}),
        ('{"a":"1"}', {}),
        ('{"a":1.0}', {}),
        ('{"a":99999999999999999999}', {}),
        ('{"i":2147483648}', {}),
        ('{"d":"1"}', {}),
        ('{"t":"x"}', {}),
        ('{"dt":"2024-02-30"}', {}),
        ('{"dt":"2024-02-28x"}', {}),
        ('{"dt":"20240228"}', {}),
        ('{"dt":"2024-W01-1"}', {}),
        ('{"t":"2024-01-02x03:04:05"}', {}),
        ('{"t":"2024-01-02T03:04:05,5"}', {}),
        ('{"ntz":"20240102T030405"}', {}),
        ('{"dec":" 1"}', {}),
        ('{"dec":"1\\u00a0"}', {}),
        ('{"dec":123456789}', {}),
        ('{"l":[1,"x",3]}', {}),
        ('{"l":{}}', {}),
        ('{"n":{"b":"x"}}', {"n": {"b": None}}),
        ('{"i":5,"a":"bad","s":"ok"}', {"i": 5, "s": "ok"}),
        ('{"a":01}', {}),
        ('{"s":"a\nb"}', {}),
        ('1,"i":1', {}),
        ('{"a":1}\n,"i":1}\n{"v":{"a":2', {"a": 1}),
    ],
)
def test_what_is_malformed_is_null_as_far_as_it_must_and_kept_as_text(text, rest, schema):
    found = one(text.encode(), schema)
    corrupt = found.pop("_corrupt_record", None)
    assert found == rest
    assert corrupt == (None if rest == {"a": 1} else text)


def test_maps_and_bytes():
    found = one(b'{"m":{"k":1,"j":null},"bin":"AQI="}', ODD)
    assert found == {"m": [("k", 1), ("j", None)], "bin": b"\1\2"}


@pytest.mark.parametrize(
    ("schema", "text", "meant", "is_bad"),
    [
        ("a int", '{"a":1,"a":"x"}', {"a": 1}, True),
        ("a int", '{"a":"x","a":2}', {"a": 2}, True),
        ("a int", '{"a":1,"a":null}', {}, False),
        ("a array<int>", '{"a":[1],"a":["x"]}', {"a": [1]}, True),
        ("a struct<b:int>", '{"a":{"b":1,"b":"x"}}', {"a": {"b": 1}}, True),
        (
            "a struct<b:int,c:int>",
            '{"a":{"b":1},"a":{"c":2}}',
            {"a": {"b": None, "c": 2}},
            False,
        ),
        (
            "a array<struct<b:int>>",
            '{"a":[{"b":1}],"a":[{"b":"x"}]}',
            {"a": [{"b": None}]},
            True,
        ),
        ("a map<string,int>", '{"a":{"b":1,"b":2}}', {"a": [("b", 1), ("b", 2)]}, False),
        ("a map<string,int>", '{"a":{"b":1,"b":"x"}}', {}, True),
        ("a string", '{"a":{"b":1,"b":2}}', {"a": '{"b":1,"b":2}'}, False),
        ("a double", '{"a":"INF"}', {}, True),
        ("a float", '{"a":"INF"}', {}, True),
        ("a array<double>", '{"a":["INF"]}', {}, True),
        ("a array<double>", '{"a":["+INF",1]}', {"a": [float("inf"), 1.0]}, False),
        ("a struct<b:double>", '{"a":{"b":"INF"}}', {"a": {"b": None}}, True),
        ("a map<string,double>", '{"a":{"b":"INF"}}', {}, True),
    ],
)
def test_a_name_that_comes_twice_and_inf_are_what_from_json_makes_of_them(
    schema, text, meant, is_bad
):
    found = one(text.encode(), f"{schema}, _corrupt_record string")
    assert found.pop("_corrupt_record", None) == (text if is_bad else None)
    assert found == meant


def test_few_bad_values_among_many_take_no_other_with_them():
    values = [b'{"a":%d}' % n for n in range(1000)]
    values[7], values[500], values[999] = b"{", None, b'{"a":"x"}'
    rows, stays = decoded(values)
    assert stays is None
    assert [n for n, row in enumerate(rows) if row and row["_corrupt_record"]] == [7, 999]
    assert [row and row["a"] for row in rows] == [
        None if n in {7, 500, 999} else n for n in range(1000)
    ]


def test_nothing_but_bad_values_ends_soon():
    rows, _ = decoded([b"no json"] * 5000)
    assert all(row["_corrupt_record"] == "no json" for row in rows)


def test_malformed_values_are_dropped_or_end_the_query_as_told():
    values = [b'{"a":1}', b"{", None, b'{"a":2}']
    _, stays = decoded(values, mode="dropMalformed")
    assert stays == [True, False, True, True]
    with pytest.raises(MalformedValue, match=r"t-3 at offset 0: malformed JSON value '\{'"):
        decoded(values, mode="FAILFAST")


def test_times_without_a_zone_are_of_the_zone_that_was_said():
    for schema in (SCHEMA, ODD):
        found = one(b'{"t":"2024-07-01T12:00:00"}', schema, timeZone="Europe/Berlin")
        assert found["t"].astimezone(UTC) == dt.datetime(2024, 7, 1, 10, tzinfo=UTC)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [b'{"a":1}', b"{}", b"", b"null", b'1}\n{"v":2', b'{"a":2}}\n{"v":{', b"}", b"{",
             b'"', b",", b'{"a":', b"3}", b'1,"i":2', b"\n", None, b"\\", b"\xff"]
        ),
        max_size=40,
    )
)  # fmt: skip
def test_a_value_is_the_same_in_any_company(values):
    together, _ = decoded(values, "a bigint, _corrupt_record string")
    alone = [decoded([value], "a bigint, _corrupt_record string")[0][0] for value in values]
    assert together == alone


def test_a_batch_has_the_struct_in_the_place_of_value_and_loses_dropped_rows(batch):
    given = {"value.format": "json", "value.schema": "a int", "mode": "DROPMALFORMED"}
    data = batch(5, [b'{"a":1}', b"{", b'{"a":3}'])
    decoder = ArrowDecoder(("offset", "value"), parse_value_options(given))
    assert list(decoder.decode(memoryview(data), OffsetRange("t", 0, 0, 99))) == []
    assert decoder.rest().to_pylist() == [
        {"offset": 5, "value": {"a": 1}},
        {"offset": 7, "value": {"a": 3}},
    ]


@pytest.mark.parametrize("schema", [SCHEMA, ODD])
def test_the_struct_is_the_one_that_spark_demands(schema):
    from pyspark.sql.pandas.types import to_arrow_schema

    options = parse_value_options({"value.format": "json", "value.schema": schema})
    theirs = to_arrow_schema(schema_of(("offset", "value"), options), timezone="UTC")
    assert theirs.equals(ArrowDecoder(("offset", "value"), options).schema)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"value.format": "avro", "value.schema": "{}"}, "avroSchema is missing"),
        ({"value.format": "xml"}, "raw, json or avro, not 'xml'"),
        ({"value.format": "json"}, "value.schema: expected a column's name"),
        ({"value.format": "json", "value.schema": "a int", "mode": "strict"}, "PERMISSIVE, DROP"),
        (
            {"value.schema": "a int"},
            "value.schema has a meaning with .*=json or avro only",
        ),
        ({"value.format": "json", "value.schema": "a int", "timezone": "Mars"}, "no time zone"),
        (
            {"value.format": "json", "value.schema": "_corrupt_record int"},
            "_corrupt_record for malformed values must be a string",
        ),
    ],
)
def test_wrong_options_are_named(options, why):
    with pytest.raises(OptionError, match=why):
        parse_value_options(options)


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.5, "1.5"), (1e7, "1.0E7"), (1.25e22, "1.25E22"), (1e-4, "1.0E-4"), (-1e-5, "-1.0E-5"),
     (12345678.9, "1.23456789E7"), (0.0, "0.0"), (float("nan"), "NaN"), (1e400, "Infinity")],
)  # fmt: skip
def test_doubles_are_spelled_as_java_does(number, text):
    assert java_text(number) == text


@pytest.mark.parametrize("schema", ["{}", "{}, m map<string,int>"])  # at once, and one by one
@pytest.mark.parametrize(
    ("kind", "text", "meant", "is_malformed"),
    [
        ("string", '"\\ud800x"', "?x", False),  # as Java encodes it
        ("timestamp", "1767225600000000000", None, True),
        ("timestamp", "-1767225600000000000", None, True),
        ("timestamp", '"0001-01-01T00:00:00+14:00"', None, None),
        ("decimal(9,2)", "12345678.9", None, True),
        ("decimal(9,2)", "1234567.9", Decimal("1234567.90"), False),
        # Arrow's reader would have these wrap around, within 128 bits and within 256.
        ("decimal(38,38)", "106", None, True),
        ("decimal(38,37)", "106", None, True),
        ("decimal(10,2)", str((2**256 + -(2**256) % 100) // 100), None, True),
        ("decimal(38,37)", "9.5", Decimal("9.5" + "0" * 36), False),
        ("decimal(38,4)", "1234567890123456789012345678901234.5", None, None),
        ("string", "[" * 900 + "]" * 900, None, True),
    ],
)
def test_a_value_that_the_schema_cannot_hold_ends_no_query(schema, kind, text, meant, is_malformed):
    schema = schema.format(f"v {kind}, w int, _corrupt_record string")
    given = {"value.format": "json", "value.schema": schema}
    reader = JsonValues(parse_value_options(given))
    values = pa.array([f'{{"v":{text},"w":1}}'.encode(), b"{}"], pa.binary())
    found, _ = reader.decode(values, memoryview(bytes(16)).cast("q"), "t-3")
    found.validate(full=True)
    assert found.field("w").to_pylist() == [1, None]
    bad = found.field("_corrupt_record").is_valid().to_pylist()
    if is_malformed is not None:
        assert found.field("v")[0].as_py() == meant
        assert bad == [is_malformed, False]
    else:
        assert found.field("v").is_valid().to_pylist() == [True, False]
        assert bad == [False, False]
