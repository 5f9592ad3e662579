"""Avro values of any schema, as fastavro writes them: read by both forms of the kernel alike."""

import importlib.util
import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")
pytest.importorskip("fastavro", reason="extra 'dev' is not installed")

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from ottla.records.columnar import avro, avro_columns
from ottla.spark.planning.source import schema_of
from ottla.spark.reading.columns import ArrowDecoder
from ottla.spark.values.avro_values import AvroValues
from ottla.spark.values.value_options import parse_value_options
from tests.avro_data import schemas_and_values

ENOUGH = settings(
    max_examples=int(os.environ.get("OTTLA_EXAMPLES", "40")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)


def load_interpreted():
    spec = importlib.util.spec_from_file_location(
        "interpreted_avro", Path(avro_columns.__file__).parent / "avro.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORMS = {"compiled": avro, "interpreted": load_interpreted()} if avro.COMPILED else {"plain": avro}


@contextmanager
def form_of_kernel(name):
    avro_columns.kernel = FORMS[name]
    try:
        yield
    finally:
        avro_columns.kernel = avro


def options_of(schema, mode, **more):
    given = {"value.format": "avro", "avroschema": json.dumps(schema), "mode": mode, **more}
    return parse_value_options(given)


def decoded(values, schema, mode="FAILFAST", **more):
    offsets = memoryview(bytes(8 * len(values))).cast("q")
    found, stays = AvroValues(options_of(schema, mode, **more)).decode(
        pa.array(values, pa.binary()), offsets, "t-3"
    )
    assert stays is None
    return found


@ENOUGH
@given(schemas_and_values())
def test_values_are_what_was_written(case):
    schema, values = case
    for name in FORMS:
        with form_of_kernel(name):
            found = decoded([None, *(data for data, _ in values)], schema)
            found.validate(full=True)
            assert found.to_pylist() == [None, *(meant for _, meant in values)]


@ENOUGH
@given(schemas_and_values(3), st.data())
def test_both_forms_say_the_same_of_any_bytes(case, data):
    """Compared as Arrow: a text that is none would not become Python's."""
    schema, values = case
    broken = []
    for written, _ in values:
        value = bytearray(written)
        for _ in range(data.draw(st.integers(0, 3)) if value else 0):
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        size = data.draw(st.just(len(value)) | st.integers(0, len(value)))
        broken.append(bytes(value[:size]))
    found = []
    for name in FORMS:
        with form_of_kernel(name):
            array = decoded([*broken, None, values[0][0]], schema, "PERMISSIVE")
            array.validate()
            assert array.slice(len(broken)).to_pylist() == [None, values[0][1]]
            found.append(array)
    assert is_same(found[0], found[-1])


def is_same(one, other):
    """Tell whether two arrays are equal, where a NaN equals one of the same bits."""
    if one.type != other.type or not one.is_valid().equals(other.is_valid()):
        return False
    if pa.types.is_floating(one.type):
        bits = pa.int32() if one.type.bit_width == 32 else pa.int64()
        return one.view(bits).equals(other.view(bits))
    if pa.types.is_struct(one.type):
        pairs = zip(one.flatten(), other.flatten(), strict=True)
        return all(is_same(*pair) for pair in pairs)
    if pa.types.is_map(one.type):
        return is_same(as_list(one), as_list(other))
    if pa.types.is_list(one.type):
        lengths = [pc.list_value_length(array) for array in (one, other)]
        return lengths[0].equals(lengths[1]) and is_same(one.flatten(), other.flatten())
    return one.equals(other)


def as_list(array):
    """Return an array of maps as one of lists of pairs."""
    pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    return pa.ListArray.from_arrays(array.offsets, pairs, mask=array.is_null())


@pytest.mark.parametrize(
    "type", [pa.float64(), pa.list_(pa.float32()), pa.struct([("x", pa.float64())])], ids=str
)
def test_a_nan_hides_no_difference(type):
    def of(*numbers):
        wrap = {pa.float64(): lambda x: x, pa.list_(pa.float32()): lambda x: [x]}
        return pa.array([wrap.get(type, lambda x: {"x": x})(one) for one in numbers], type)

    nan = float("nan")
    assert is_same(of(nan, 1.0), of(nan, 1.0))
    assert not is_same(of(nan, 1.0), of(nan, 2.0))
    maps = [
        pa.array([[("k", nan), ("l", one)], None], pa.map_(pa.string(), pa.float64()))
        for one in (1.0, 1.0, 2.0)
    ]
    assert is_same(maps[0], maps[1])
    assert not is_same(maps[0], maps[2])


@ENOUGH
@given(schemas_and_values(4), st.randoms(use_true_random=False))
def test_chosen_fields_are_those_of_the_whole(case, rng):
    schema, values = case
    fields = [each for each in options_of(schema, "PERMISSIVE").schema if is_speakable(each)]
    chosen = rng.sample(fields, rng.randint(0, len(fields)))
    assume(chosen)
    data = [None, *(value for value, _ in values), values[0][0][:-1], values[0][0]]
    columns = {"value.schema": StructType(chosen).json()}
    for name in FORMS:
        with form_of_kernel(name):
            whole = decoded(data, schema, "PERMISSIVE").to_pylist()
            found = decoded(data, schema, "PERMISSIVE", **columns)
            found.validate(full=True)
            assert found.to_pylist() == [
                row and {each.name: row[each.name] for each in chosen} for row in whole
            ]


def is_speakable(field):
    """Whether the option can name it: not nothing but nulls, not a struct without fields."""
    text = field.json()
    return '"void"' not in text and '"fields":[]' not in text


@ENOUGH
@given(schemas_and_values(1), st.sampled_from(["PERMISSIVE", "FAILFAST"]))
def test_the_type_is_the_one_that_spark_demands(case, mode):
    from pyspark.sql.pandas.types import to_arrow_schema

    options = options_of(case[0], mode)
    theirs = to_arrow_schema(schema_of(("offset", "value"), options), timezone="UTC")
    assert theirs.equals(ArrowDecoder(("offset", "value"), options).schema)
