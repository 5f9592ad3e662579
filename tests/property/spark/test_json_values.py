"""Any value, any schema: a value that a schema cannot hold is malformed, and ends no query."""

import json

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.spark.values.json_values import JsonValues, MalformedValue
from ottla.spark.values.value_options import parse_value_options

PLAIN = st.sampled_from(
    [
        "string",
        "bigint",
        "int",
        "smallint",
        "tinyint",
        "double",
        "float",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "decimal(1,0)",
        "decimal(9,2)",
        "decimal(38,0)",
        "decimal(38,38)",
        "decimal(30,4)",
    ]
)
KINDS = st.recursive(
    PLAIN,
    lambda kind: st.one_of(
        st.builds("array<{}>".format, kind),
        st.builds("map<string,{}>".format, kind),
        st.builds("struct<a:{}>".format, kind),
    ),
    max_leaves=3,
)
NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.sampled_from([1767225600000000000, 253402300800, -62135596801, 9223372036854, 12345678.9]),
)
TEXTS = st.one_of(
    st.text(max_size=5),
    st.text(st.characters(categories=["Cs"]), max_size=2),  # halves of surrogate pairs
    st.sampled_from(
        [
            "0001-01-01T00:00:00+14:00",
            "9999-12-31T23:59:59-14:00",
            "2024-13-01",
            "NaN",
            "1e99999",
            "12345678.9",
            "99999999999999999999999999999999999999",
            "1_0",
            "0.00000000000000000000000000000000000001",
            "2024-01-02T03:04:05",
            "2024-01-02",
            "AAAA",
            "=",
        ]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda each: st.one_of(
        st.lists(each, max_size=3), st.dictionaries(st.one_of(st.just("a"), TEXTS), each)
    ),
    max_leaves=6,
)
DEEP = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"


def decoded(kind, values, mode):
    given = {"value.format": "json", "value.schema": f"a {kind}, _corrupt_record string"}
    reader = JsonValues(parse_value_options({**given, "mode": mode}))
    offsets = memoryview(bytes(8 * len(values))).cast("q")
    return reader.decode(pa.array(values, pa.binary()), offsets, "t-3")


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@example("string", [{"a": "\ud800"}], [])
@example("map<string,string>", [{"a": {"\udfff": "\ud800"}}], [])
@example("timestamp", [{"a": 1767225600000000000}], [])
@example("decimal(9,2)", [{"a": 12345678.9}], [])
@example("string", [], [DEEP])
@given(
    KINDS,
    st.lists(st.fixed_dictionaries({"a": VALUES}), max_size=12),
    st.lists(st.binary(max_size=8), max_size=2),
)
def test_no_value_ends_a_query_that_may_meet_malformed_ones(kind, values, others):
    texts = [json.dumps(each).encode() for each in values] + others
    found, stays = decoded(kind, texts, "PERMISSIVE")
    assert len(found) == len(texts)
    assert stays is None
    found.validate(full=True)  # what Arrow finds wrong, the JVM would end at
    texts_of = found.field("_corrupt_record").to_pylist()
    bad = [text is not None for text in texts_of]
    _, stays = decoded(kind, texts, "DROPMALFORMED")
    assert [not each for each in bad] == ([True] * len(bad) if stays is None else stays.to_pylist())
    if any(bad):
        with pytest.raises(MalformedValue):
            decoded(kind, texts, "FAILFAST")
