"""Spark's schema strings, read as Spark reads them."""

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from pyspark.sql.types import StructType

from ottla.spark.values.ddl import parse_schema

MAP_OF_DATES = '{"type":"map","keyType":"date","valueType":"long","valueContainsNull":true}'


def field_of(kind):
    """The JSON of a StructType with one field of this type."""
    field = '{"name":"a","nullable":true,"metadata":{},"type":' + kind
    return '{"type":"struct","fields":[' + field + "}]}"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a int", "struct<a:int>"),
        ("a INT, b: String NOT NULL COMMENT 'a, b'", "struct<a:int,b:string>"),
        ("struct<a: bigint>", "struct<a:bigint>"),
        ("struct int, `a b` date", "struct<struct:int,a b:date>"),
        (
            "l array<struct<x:double,y:map<string,array<float>>>>, e decimal",
            "struct<l:array<struct<x:double,y:map<string,array<float>>>>,e:decimal(10,0)>",
        ),
        (
            "`a``b` timestamp_ntz, c timestamp, d binary",
            "struct<a`b:timestamp_ntz,c:timestamp,d:binary>",
        ),
        ("t tinyint, s smallint, b boolean", "struct<t:tinyint,s:smallint,b:boolean>"),
    ],
)
def test_what_the_text_says(text, meant):
    schema = parse_schema(text)
    assert schema.simpleString() == meant
    assert parse_schema(schema.json()) == schema


def test_not_null_is_read_over_also_in_json():
    schema = StructType().add("a", "string", nullable=False)
    assert parse_schema(schema.json())["a"].nullable


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a column's name, found the end|'the end'"),
        ("a", "expected a type"),
        ("a integr", "expected a type, found 'integr'"),
        ("a int b int", "expected ',' or the end, found 'b'"),
        ("a array<int", "expected '>'"),
        ("a int, A int", "different names"),
        ("a decimal(40,2)", "impossible"),
        ("a " + "array<" * 70 + "int" + ">" * 70, "more than 64 deep"),
        ("{", "JSON of a StructType"),
        ('{"type": "struct"}', "JSON of a StructType"),
        ("m map<int,string>", "a map's keys are strings, not int"),
        ("a struct<x:int,x:int>", "fields with different names, found x, x"),
        (field_of('"decimal(50,2)"'), "decimal.50, 2. is impossible"),
        (field_of('"decimal(5,-2)"'), "decimal.5, -2. is impossible"),
        (field_of('{"type":"array","containsNull":true,"elementType":' * 3000), "JSON of a Struct"),
        (field_of(MAP_OF_DATES), "a map's keys are strings, not date"),
    ],
)
def test_what_is_wrong_is_told(text, why):
    with pytest.raises(ValueError, match=why):
        parse_schema(text)
