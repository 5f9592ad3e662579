"""Formats: what is asked of a registry and when, and what happens when it cannot answer."""

import json
import subprocess
import sys

import pytest

from ottla.client.library.failures import BadArgument
from ottla.client.library.formats import NeedsSchema
from ottla.schemas import Avro, JsonSchema, Protobuf, Reference, RegistryError, Schema
from ottla.schemas.formats import LATEST_SECONDS, REFUSED_SECONDS, UnusableSchema
from ottla.schemas.framing import header
from ottla.schemas.kept import Kept
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.rest import Rest, access_of
from ottla.testing import SchemaRegistry as RegistryForTests
from tests.protobuf_messages import Order
from tests.schema_registries import Clock

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}


@pytest.fixture
def server():
    with RegistryForTests() as server:
        yield server


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(server, clock):
    registry = SchemaRegistry(server.url)
    registry._rest = Rest(access_of(server.url), clock)
    return registry


def test_an_encoder_never_waits(registry):
    encode = Avro(registry, RECORD).encoder("t", "value")
    with pytest.raises(NeedsSchema) as needed:
        encode({"a": 1})
    assert registry.subjects() == []
    needed.value.fetch()
    assert encode({"a": 1}) == header(1) + b"\x02"
    assert registry.subjects() == ["t-value"]


def test_a_schema_that_is_not_there_is_asked_for_again_after_a_while(registry, clock):
    decode = Avro(registry).decoder("t", "value")
    data = header(1) + b"\x02"
    with pytest.raises(NeedsSchema) as needed:
        decode(data)
    needed.value.fetch()
    for _ in range(2):
        with pytest.raises(UnusableSchema, match="Schema 1 not found"):
            decode(data)
    registry.register("t-value", Schema(json.dumps(RECORD)))
    clock.now += REFUSED_SECONDS
    with pytest.raises(NeedsSchema) as needed:
        decode(data)
    needed.value.fetch()
    assert decode(data) == {"a": 1}


def test_a_registry_that_is_away_is_no_fault_of_the_record(registry, server):
    server.stop()
    with pytest.raises(RegistryError) as caught:
        Avro(registry).decode("t", header(1) + b"\x02")
    assert caught.value.is_retriable


def test_the_last_known_version_is_written_while_the_registry_is_away(registry, server, clock):
    registry.register("t-value", Schema(json.dumps(RECORD)))
    values = Avro(registry, use_latest=True)
    data = values.encode("t", {"a": 1})
    clock.now += LATEST_SECONDS
    server.stop()
    assert values.encode("t", {"a": 1}) == data


def test_the_newest_version_is_looked_for_again(registry, clock):
    registry.register("t-value", Schema(json.dumps(RECORD)))
    values = Avro(registry, use_latest=True)
    assert values.encode("t", {"a": 1})[4] == 1
    newer = {**RECORD, "fields": [{"name": "a", "type": "string"}]}
    registry.register("t-value", Schema(json.dumps(newer)))
    assert values.encode("t", {"a": 1})[4] == 1
    clock.now += LATEST_SECONDS
    assert values.encode("t", {"a": "x"})[4] == 2


def test_a_schema_of_another_kind_is_said_so(registry):
    data = JsonSchema(registry, {"type": "integer"}).encode("t", 5)
    for values in (Avro(registry), Protobuf(registry)):
        with pytest.raises(UnusableSchema, match="it is of JSON, not of"):
            values.decode("t", data)
    assert JsonSchema(registry).decode("t", data) == 5


@pytest.mark.parametrize(
    "text", ['{"type":"record"}', '{"type":"nonsense"}', '"no.such.Type"', "5", "[]x", "[" * 3000]
)
def test_a_schema_that_cannot_be_used_is_told(registry, monkeypatch, text):
    monkeypatch.setattr(registry, "by_id", lambda *_, **__: Schema(text))
    with pytest.raises(UnusableSchema, match="schema 1"):
        Avro(registry).decode("t", header(1) + b"\x02")


@pytest.mark.parametrize("text", ["!", "AAAA", "", "YWJj"])
def test_a_descriptor_that_cannot_be_used_is_told(registry, monkeypatch, text):
    monkeypatch.setattr(registry, "by_id", lambda *_, **__: Schema(text, "PROTOBUF"))
    with pytest.raises(ValueError, match=r"schema|no message at"):
        Protobuf(registry).decode("t", header(1) + b"\0")


def test_references_in_a_circle_end(registry, monkeypatch):
    around = Schema("{}", "AVRO", (Reference("A", "a", 1),))

    class Found:
        schema = around

    monkeypatch.setattr(registry, "version", lambda *_, **__: Found)
    monkeypatch.setattr(registry, "by_id", lambda *_, **__: around)
    with pytest.raises(UnusableSchema, match="A -> A"):
        Avro(registry).decode("t", header(1) + b"\x02")


def test_a_reference_to_elsewhere_is_not_fetched(registry):
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/x.json"}}}
    with pytest.raises(Exception, match=r"Unresolvable|127.0.0.1:1/x.json"):
        JsonSchema(registry, schema).encode("t", {"a": 1})


def test_a_value_that_breaks_off_is_an_error(registry):
    data = Avro(registry, RECORD).encode("t", {"a": 300})
    with pytest.raises((EOFError, IndexError)):  # both are fastavro's
        Avro(registry).decode("t", data[:-1])


def test_json_that_is_no_number_is_refused(registry):
    with pytest.raises(ValueError, match="JSON"):
        JsonSchema(registry, {"type": "number"}).encode("t", float("nan"))


def test_without_validation_nothing_is_checked(registry):
    values = JsonSchema(registry, {"type": "integer"}, validate=False)
    assert values.decode("t", values.encode("t", "text")) == "text"


def test_a_message_of_another_class_is_refused(registry):
    with pytest.raises(TypeError, match=r"expected a shop\.Order, found dict"):
        Protobuf(registry, Order).encode("t", {"id": 1})


def test_what_a_format_needs_is_said(registry):
    with pytest.raises(BadArgument, match="use_latest"):
        Avro(registry).encode("t", 1)
    with pytest.raises(BadArgument, match="class of messages"):
        Protobuf(registry).encode("t", 1)
    with pytest.raises(BadArgument, match="no record"):
        Avro(registry, '"string"', subject_name="record").encoder("t", "value")
    with pytest.raises(BadArgument, match="none of topic, record, topic-record"):
        Avro(registry, RECORD, subject_name="subject")
    with pytest.raises(BadArgument, match="expected a SchemaRegistry"):
        Avro("http://h", RECORD)
    with pytest.raises(BadArgument, match="no JSON"):
        Avro(registry, "{")
    with pytest.raises(BadArgument, match="not of AVRO"):
        Avro(registry, Schema("{}", "JSON"))


def test_a_function_may_name_the_subject(registry):
    def named(topic, field, record):
        return f"{field}/{record}/{topic}"

    Avro(registry, RECORD, subject_name=named).encode("t", {"a": 1}, field="key")
    assert registry.subjects() == ["key/R/t"]


def test_what_is_kept_is_bounded():
    kept = Kept(3)
    for number in range(10):
        kept.put(number, number)
        kept.put(9, 9)
    assert len(kept) == 3
    assert kept.get(9) == 9
    assert kept.get(0) is None


@pytest.mark.parametrize(
    ("library", "extra", "call"),
    [
        ("fastavro", "avro", "Avro(r, '\"string\"')"),
        ("jsonschema", "json-schema", "JsonSchema(r, {})"),
        ("google.protobuf.message", "protobuf", "Protobuf(r)"),
    ],
)
def test_a_library_that_is_missing_is_named(library, extra, call):
    code = f"""
import sys
sys.modules[{library!r}] = None
from ottla.schemas import *
r = SchemaRegistry("http://h")
try:
    {call}
except Exception as error:
    assert "ottla[{extra}]" in str(error), error
else:
    raise SystemExit("nothing was said")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_one_format_does_not_load_the_libraries_of_the_others():
    code = """
import sys
from ottla.schemas import Avro, SchemaRegistry
Avro(SchemaRegistry("http://h"), '"string"')
assert not {"jsonschema", "google.protobuf"} & set(sys.modules)
"""
    assert not subprocess.run([sys.executable, "-c", code]).returncode
