"""Any bytes under any schema: a value is what from_json makes of it, whatever stands beside it.

Ours alone, ours in one batch with all others and a malformed one, and Spark's ``from_json``. Left
out is what docs/spark.md says is different: single quotes, infinities without quotes, and times
that are not ISO 8601. ``OTTLA_JSON_EXAMPLES=5000`` tries more.
"""

import json
import os
import re

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.spark.values.json_values import JsonValues
from ottla.spark.values.value_options import parse_value_options

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(300, func_only=True),
]

EXAMPLES = int(os.environ.get("OTTLA_JSON_EXAMPLES", "40"))
CORRUPT = "_corrupt_record"
TIMES = ("date", "timestamp", "timestamp_ntz")
PLAIN = (
    "string", "bigint", "int", "smallint", "tinyint", "double", "float", "boolean", "binary",
    "decimal(1,0)", "decimal(9,2)", "decimal(38,0)", "decimal(38,38)", "decimal(30,4)", *TIMES,
)  # fmt: skip
ISO = (
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2024-01-02T03:04:05", "2024-01-02",
    "2024-02-29T23:59:59.123456Z", "2023-02-29", "2024-13-01",
)  # fmt: skip
WORDS = (
    "NaN", "INF", "-INF", "+INF", "Infinity", "true", "1e99999", "12345678.9", "1_0", "AAAA", "=",
    "9" * 38, "0." + "0" * 37 + "1", "\u00e9\U0001f600", "{}", "[1]",
)  # fmt: skip
MAY_BE_TIME = re.compile(r"\s*[-+]?[T\d]")
"""How a text begins that Spark might read as a time, ISO 8601 or not."""
APART = re.compile(rb"'|[-+]?\bINF\b|[-+]Infinity|[-+]NaN")
"""What docs/spark.md says is different, outside of texts."""

KINDS = st.recursive(
    st.sampled_from(PLAIN),
    lambda kind: st.one_of(
        st.builds("array<{}>".format, kind),
        st.builds("map<string,{}>".format, kind),
        st.builds("struct<a:{}>".format, kind),
    ),
    max_leaves=3,
)
NUMBERS = st.one_of(
    st.integers(-130, 130),
    st.integers(-(2**64), 2**64),
    st.integers(-(10**40), 10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1767225600000000000, 253402300800, -62135596801, 9223372036854, 12345678.9]),
)
TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(WORDS), st.sampled_from(ISO))
SAFE_TEXTS = TEXTS.filter(lambda text: text in ISO or not MAY_BE_TIME.match(text))


def values_of(texts):
    return st.recursive(
        st.one_of(st.none(), st.booleans(), NUMBERS, texts),
        lambda each: st.one_of(
            st.lists(each, max_size=3), st.dictionaries(st.one_of(st.just("a"), texts), each)
        ),
        max_leaves=6,
    )


@st.composite
def spoilt(draw, texts):
    """A value's JSON, in which a few bytes may be gone, doubled, or others."""
    text = json.dumps({"a": draw(values_of(texts))}, ensure_ascii=draw(st.booleans()))
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        at = draw(st.integers(0, len(data) - 1)) if data else 0
        new = draw(st.sampled_from((b"", b"", b" ", b",", b"}", b"]", b'"', b"\\", b"0", b"\xff")))
        data[at : at + 1] = new
    return bytes(data)


@st.composite
def cases(draw):
    kind = draw(KINDS)
    texts = SAFE_TEXTS if any(each in kind for each in TIMES) else TEXTS
    one = st.one_of(spoilt(texts), spoilt(texts), spoilt(texts), st.binary(max_size=8))
    return kind, draw(st.lists(one.filter(lambda each: not APART.search(each)), max_size=16))


def ours(kind, values):
    given_options = {"value.format": "json", "value.schema": f"a {kind}, {CORRUPT} string"}
    reader = JsonValues(parse_value_options(given_options))
    offsets = memoryview(bytes(8 * len(values))).cast("q")
    found, _ = reader.decode(pa.array(values, pa.binary()), offsets, "t-3")
    return plain(found)


def sparks(spark, kind, values):
    options = f"map('columnNameOfCorruptRecord', '{CORRUPT}', 'timeZone', 'UTC')"
    schema = f"a {kind}, {CORRUPT} string"
    rows = ", ".join(f"(X'{value.hex()}')" for value in values)
    table = spark.sql(
        f"SELECT from_json(CAST(v AS STRING), '{schema}', {options}) AS found"
        f" FROM VALUES {rows} AS t(v)"
    ).toArrow()
    return plain(table.column("found").combine_chunks())


def plain(array):
    """Return values that compare, also those that Python's own types cannot hold."""
    kind = array.type
    if isinstance(array, pa.ChunkedArray):
        return [each for chunk in array.chunks for each in plain(chunk)]
    if pa.types.is_struct(kind):
        there = array.is_valid().to_pylist()
        parts = zip(*map(plain, array.flatten()), strict=True)
        return [row if is_there else None for row, is_there in zip(parts, there, strict=True)]
    if pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_large_list(kind):
        return [None if each.values is None else plain(each.values) for each in array]
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_date(kind):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array.cast(pa.binary()).to_pylist()
    if pa.types.is_floating(kind):
        return [repr(each) for each in array.to_pylist()]
    return array.to_pylist()


def judged(value, found):
    """Return what is to be compared: the text of what is no UTF-8 cannot be the same."""
    if found is None or found[-1] is None:
        return found
    try:
        value.decode()
    except UnicodeDecodeError:
        return (*found[:-1], "malformed")
    return found


@settings(
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(case=("decimal(38,38)", [b'{"a": null}', b'{"a": 106}']))
@example(case=("array<double>", [b'{"a":["INF"]}', b'{"a":[1],"a":["x"]}']))
@example(case=("string", [b'{"a": {"\\u001f\\u000b": "\\u001f\\u0008"}}']))
@example(case=("string", ['{"a": {"\u00e9\u20ac\U0001f600": ["\U0001f600\u2028"]}}'.encode()]))
@given(case=cases())
def test_a_value_is_what_from_json_makes_of_it_whatever_is_beside_it(spark, case):
    kind, values = case
    if not values:
        return
    wanted = [judged(*pair) for pair in zip(values, sparks(spark, kind, values), strict=True)]
    beside = ours(kind, [*values, b'{"a"', b"\xff"])[: len(values)]
    for value, mine, theirs in zip(values, beside, wanted, strict=True):
        (alone,) = ours(kind, [value])
        found = (judged(value, mine), judged(value, alone))
        assert found == (theirs, theirs), (kind, value)
