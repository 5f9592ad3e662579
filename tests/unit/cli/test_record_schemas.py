"""Values that were written with a schema registry, shown by ``consume --decode``."""

from decimal import Decimal

import pytest

from ottla.cli.failure import Failure
from ottla.cli.record_decoders import Decoders
from ottla.records.record import Record
from ottla.schemas import Avro, JsonSchema, Protobuf, RegistryError, SchemaRegistry
from ottla.testing import SchemaRegistry as RegistryForTests
from tests.protobuf_messages import Other

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": PRICE}]}


@pytest.fixture(scope="module")
def url():
    with RegistryForTests() as registry:
        yield registry.url


def decoded(how, url, data):
    shown = Decoders([how], url).show(Record(value=data))
    assert not shown.faults
    return shown.value


def test_avro_and_json_schema(url):
    data = Avro(SchemaRegistry(url), ORDER).encode("t", {"price": Decimal("1.50")})
    assert decoded("avro", url, data) == {"price": "1.50"}
    data = JsonSchema(SchemaRegistry(url), {"type": "object"}).encode("u", {"id": 5})
    assert decoded("json-schema", url, data) == {"id": 5}


def test_protobuf(url):
    pytest.importorskip("google.protobuf")
    data = Protobuf(SchemaRegistry(url), Other).encode("p", Other())
    assert decoded("protobuf", url, data) == {}


@pytest.mark.parametrize("data", [b"", b"plain", b"\0\0\0\0\x63x"])
def test_what_no_schema_was_used_for_is_kept_and_marked(url, data):
    shown = Decoders(["avro"], url).show(Record(value=data))
    assert shown.value == data
    assert shown.faults["value"].startswith("not avro: ")


def test_a_registry_is_needed_and_one_that_is_away_is_said(monkeypatch):
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY", raising=False)
    with pytest.raises(Failure, match="needs a schema registry"):
        Decoders(["avro"])
    decoders = Decoders(["avro"], "http://127.0.0.1:1")
    with pytest.raises(RegistryError):
        decoders.show(Record(value=b"\0\0\0\0\x01x"))
