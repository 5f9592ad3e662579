"""Avro values of several schemas become one column; fastavro's resolution is the judge."""

import io
import json

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

import fastavro
import pyarrow as pa

from ottla.schemas import Avro, RegistryError, Schema, SchemaRegistry
from ottla.spark.connection import OptionError
from ottla.spark.values.registry_values import RegistryValues
from ottla.spark.values.value_options import MalformedValue, parse_value_options
from ottla.testing import SchemaRegistry as RegistryForTests


def record(name, **fields):
    listed = []
    for each, kind in fields.items():
        one = {"name": each, "type": kind}
        if isinstance(kind, tuple):
            one = {"name": each, "type": kind[0], "default": kind[1]}
        listed.append(one)
    return {"type": "record", "name": name, "fields": listed}


@pytest.fixture
def server():
    with RegistryForTests() as server:
        yield server


@pytest.fixture
def registry(server):
    return SchemaRegistry(server.url)


def values_of(server, mode="FAILFAST", **more):
    given = {
        "subscribe": "t",
        "value.format": "avro",
        "schema.registry.url": server.url,
        "mode": mode,
        **more,
    }
    return RegistryValues(parse_value_options(given))


def decoded(values, data):
    array = pa.array(data, pa.binary())
    found, stays = values.decode(array, range(100, 100 + len(data)), "t-0")
    found.validate(full=True)
    return found.to_pylist(), None if stays is None else stays.to_pylist()


def resolved(data, writer, reader):
    """What fastavro makes of it."""
    file = io.BytesIO(data[5:])
    parse = fastavro.parse_schema
    return fastavro.schemaless_reader(file, parse(writer), parse(reader))


OLD = record("R", gone="string", a="int", b=["null", "int"], in_=record("I", x="int"))
NEW = record(
    "R",
    b=["null", "int"],
    a="long",
    n=(["null", "string"], None),
    d=("double", 2.5),
    t=("string", "new"),
    in_=record("I", x="double"),
)
ODD = record("R", a="long", b=["null", "int"], in_=record("I", x="double"),
             list_={"type": "array", "items": "int"})  # fmt: skip
NEW_VALUE = {"b": None, "a": 2**40, "n": "é", "d": 0.5, "t": "", "in_": {"x": 1.5}}
OLD_VALUE = {"gone": "?", "a": -7, "b": 5, "in_": {"x": 3}}
ODD_VALUE = {"a": 1, "b": None, "in_": {"x": 0.0}, "list_": [1, 2]}


def written(registry):
    """Values of three schemas and a tombstone, and what fastavro makes of them."""
    data, wanted = [], []
    for schema, value in ((OLD, OLD_VALUE), (ODD, ODD_VALUE), (NEW, NEW_VALUE)):
        one = Avro(registry, schema).encode("t", value)
        data.append(one)
        wanted.append(resolved(one, schema, NEW))
    return [*data, None], [*wanted, None]


def test_each_value_is_read_by_its_own_schema_and_becomes_the_newest(server, registry):
    data, wanted = written(registry)
    mixed = [data[at] for at in (0, 2, 3, 1, 1, 0, 3, 2)]
    found, stays = decoded(values_of(server), mixed)
    assert found == [wanted[at] for at in (0, 2, 3, 1, 1, 0, 3, 2)]
    assert stays is None


@pytest.mark.parametrize("at", range(4))
def test_values_of_one_schema_only(server, registry, at):
    data, wanted = written(registry)
    assert decoded(values_of(server), [data[at]] * 3) == ([wanted[at]] * 3, None)


def test_no_values_at_all(server, registry):
    written(registry)
    assert decoded(values_of(server), []) == ([], None)


def test_lists_and_maps_of_what_has_changed(server, registry):
    def around(inner):
        return record(
            "A", items={"type": "array", "items": inner}, by={"type": "map", "values": "I"}
        )

    old, new = around(record("I", x="int")), around(record("I", x="long"))
    value = {"items": [{"x": 1}, {"x": 2}], "by": {"k": {"x": 3}}}
    empty = {"items": [], "by": {}}
    data = [Avro(registry, old).encode("t", each) for each in (value, empty)]
    data.append(Avro(registry, new).encode("t", value))
    as_columns = [
        {"items": each["items"], "by": list(each["by"].items())} for each in (value, empty, value)
    ]
    assert decoded(values_of(server), data)[0] == as_columns


def test_fields_may_be_chosen(server, registry):
    data, _ = written(registry)
    values = values_of(server, **{"value.schema": "t string, a bigint"})
    assert decoded(values, data)[0] == [
        {"t": "new", "a": -7}, {"t": "new", "a": 1}, {"t": "", "a": 2**40}, None,
    ]  # fmt: skip


def test_values_that_are_no_records(server, registry):
    data = [Avro(registry, f'"{kind}"').encode("t", 5) for kind in ("int", "long")]
    assert decoded(values_of(server), [*data, None])[0] == [5, 5, None]


BAD = {
    "no schema id": (b"{}", "begin"),
    "no such schema": (b"\0\0\0\x0f\xff\0", "4095"),
    "another kind": (b"\0\0\0\0\2{}", "it is of JSON"),
    "another type": (b"\0\0\0\0\3\2", "does not become"),
    "no default": (b"\0\0\0\0\4\2", "no field a"),
    "breaks off": (b"\0\0\0\0\1", ""),
}


@pytest.fixture
def bad_server(server, registry):
    registry.register("t-value", Schema(json.dumps(record("R", a="int"))))
    registry.register("json", Schema("{}", "JSON"))
    registry.register("other", Schema(json.dumps(record("R", a="string"))))
    registry.register("less", Schema(json.dumps(record("R", b="int"))))
    return server


@pytest.mark.parametrize(("data", "why"), BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_malformed(bad_server, data, why):
    good = b"\0\0\0\0\1\2"
    with pytest.raises(MalformedValue, match=f"t-0 at offset 102.*{why}"):
        decoded(values_of(bad_server), [good, None, data, good])
    found, stays = decoded(values_of(bad_server, "DROPMALFORMED"), [good, None, data, good])
    assert stays == [True, True, False, True]
    assert [found[at] for at in (0, 1, 3)] == [{"a": 1}, None, {"a": 1}]
    found, stays = decoded(values_of(bad_server, "PERMISSIVE"), [good, None, data, good])
    assert (found, stays) == ([{"a": 1}, None, {"a": None}, {"a": 1}], None)


def test_a_registry_that_is_away_ends_the_task_and_loses_no_row(bad_server):
    values = values_of(bad_server, "DROPMALFORMED", **{"schema.registry.url": bad_server.url})
    bad_server.stop()
    values._registry._rest._access = values._registry._rest._access.__class__(
        (bad_server.url,), timeout_seconds=0.3
    )
    with pytest.raises(RegistryError):
        decoded(values, [b"\0\0\0\0\1\2"])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"schema.registry.url": "h:1"}, "schema.registry.url: the registry's URL"),
        ({"schema.registry.subject": "x"}, "Subject 'x' not found"),
        ({"schema.registry.subject": "json"}, "json is of JSON, not of AVRO"),
        ({"subscribe": "a,b"}, "there are several topics"),
        ({"subscribePattern": "a", "subscribe": ""}, "there are several topics"),
        ({"avroschemaid": "5"}, "not both"),
        ({"avroheader": "none"}, "begin with a schema id"),
    ],
)
def test_wrong_options_are_named(bad_server, more, why):
    with pytest.raises(OptionError, match=why):
        values_of(bad_server, **more)


def test_a_registry_without_its_url_is_refused():
    with pytest.raises(OptionError, match=r"schema\.registry\.url only"):
        parse_value_options(
            {"value.format": "avro", "avroschema": '"int"', "schema.registry.subject": "x"}
        )


def test_no_password_is_shown(bad_server):
    options = parse_value_options({
        "subscribe": "t", "value.format": "avro", "schema.registry.url": bad_server.url,
        "schema.registry.basic.auth.user.info": "ann:geheim",
    })  # fmt: skip
    assert "geheim" not in repr(options)
