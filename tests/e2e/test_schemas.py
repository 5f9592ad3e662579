"""``ottla.schemas`` against registries (ours for tests, Apicurio) and Confluent's serializers."""

import asyncio
import io
import json
import uuid
from decimal import Decimal

import fastavro
import pytest

import ottla
from ottla import TopicPartition
from ottla.schemas import (
    AsyncSchemaRegistry,
    Avro,
    JsonSchema,
    Protobuf,
    Reference,
    RegistryError,
    Schema,
    SchemaRegistry,
)
from ottla.testing import SchemaRegistry as RegistryForTests
from tests.protobuf_messages import Address, Line, Order, Other

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of confluent-kafka's own

PATIENCE_SECONDS = 30
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"], "default": None},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ],
}
ORDERED = {"id": 7, "who": "ann", "price": Decimal("1.50")}
NUMBER = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"}
ORDER_JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "who": {"type": "string"}},
    "required": ["id"],
}


@pytest.fixture(scope="module")
def ours():
    with RegistryForTests() as registry:
        yield registry


@pytest.fixture(scope="module")
def apicurio():
    from tools.registry_peer import RegistryPeer, RegistryUnavailable, jar

    try:
        jar()
    except RegistryUnavailable as error:
        pytest.skip(f"Apicurio Registry: {error}")
    with RegistryPeer() as peer:
        yield peer


@pytest.fixture(params=["ours", pytest.param("apicurio", marks=pytest.mark.slow)])
def url(request):
    return request.getfixturevalue(request.param).url


@pytest.fixture
def registry(url):
    return SchemaRegistry(url)


@pytest.fixture
def theirs(url):
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with SchemaRegistryClient({"url": url}) as client:
        yield client


@pytest.fixture
def name():
    return f"t{uuid.uuid4().hex[:10]}"


def context(topic):
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE)


# -- byte for byte with Confluent's serializers, both ways -----------------------------------------


def test_avro_is_theirs_byte_for_byte(registry, theirs, name):
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    data = Avro(registry, ORDER).encode(name, ORDERED)
    assert data == AvroSerializer(theirs, json.dumps(ORDER))(ORDERED, context(name))
    assert AvroDeserializer(theirs)(data, context(name)) == ORDERED
    assert Avro(registry).decode(name, data) == ORDERED


@pytest.mark.parametrize(
    ("schema", "value"),
    [('{"type":"bytes"}', b"\x00raw"), ('{"type":"string"}', "é"), ('["null","long"]', 5)],
)
def test_avro_without_a_record_is_theirs(registry, theirs, name, schema, value):
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    data = Avro(registry, schema).encode(name, value)
    assert data == AvroSerializer(theirs, schema)(value, context(name))
    assert Avro(registry).decode(name, data) == value
    assert AvroDeserializer(theirs)(data, context(name)) == value


def test_json_is_theirs_byte_for_byte(registry, theirs, name):
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    value = {"id": 7, "who": "ann"}
    data = JsonSchema(registry, ORDER_JSON).encode(name, value)
    theirs_data = JSONSerializer(json.dumps(ORDER_JSON), theirs)(value, context(name))
    assert data == theirs_data
    read = JSONDeserializer(None, schema_registry_client=theirs)
    assert read(data, context(name)) == value
    assert JsonSchema(registry).decode(name, data) == value


@pytest.mark.parametrize(
    "message", [Other(x="1"), Line(count=3), Order(id=7, to=Address(city="Ulm"))]
)
def test_protobuf_is_theirs_byte_for_byte(registry, theirs, name, message):
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    kind = type(message)
    data = Protobuf(registry, kind).encode(name, message)
    assert data == ProtobufSerializer(kind, theirs)(message, context(name))
    assert ProtobufDeserializer(kind, {}, theirs)(data, context(name)) == message
    assert Protobuf(registry, kind).decode(name, data) == message
    found = Protobuf(registry).decode(name, data)
    assert found.DESCRIPTOR.full_name == kind.DESCRIPTOR.full_name
    assert found.SerializeToString() == message.SerializeToString()


@pytest.mark.parametrize("strategy", ["topic", "record", "topic-record"])
def test_subjects_are_named_as_theirs(registry, theirs, name, strategy):
    from confluent_kafka import schema_registry
    from confluent_kafka.schema_registry.avro import AvroSerializer

    schema = {**ORDER, "name": f"Order{name}"}
    Avro(registry, schema, subject_name=strategy).encode(name, ORDERED)
    their_name = getattr(schema_registry, strategy.replace("-", "_") + "_subject_name_strategy")
    conf = {"auto.register.schemas": False, "subject.name.strategy": their_name}
    AvroSerializer(theirs, json.dumps(schema), conf=conf)(ORDERED, context(name))
    full = f"shop.Order{name}"
    subject = {"topic": f"{name}-value", "record": full, "topic-record": f"{name}-{full}"}
    assert subject[strategy] in registry.subjects()


# -- schemas that change, and schemas of several parts ---------------------------------------------


def test_an_older_value_gets_the_default_of_a_new_field(registry, name):
    data = Avro(registry, ORDER).encode(name, ORDERED)
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 3}]}
    assert Avro(registry, newer).decode(name, data) == {**ORDERED, "n": 3}
    assert Avro(registry).decode(name, data) == ORDERED


def test_a_schema_that_refers_to_another_in_a_diamond(registry, theirs, name):
    from confluent_kafka.schema_registry import Schema as TheirSchema
    from confluent_kafka.schema_registry import SchemaReference
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    def record(kind, **fields):
        listed = [{"name": each, "type": of} for each, of in fields.items()]
        return {"type": "record", "name": kind, "namespace": name, "fields": listed}

    def put(kind, schema, *used):
        references = tuple(Reference(f"{name}.{each}", f"{name}-{each}", 1) for each in used)
        given = Schema(json.dumps(schema), references=references)
        assert registry.register(f"{name}-{kind}", given).id > 0
        return references

    put("Money", record("Money", cents="long"))
    put("Price", record("Price", net="Money"), "Money")
    put("Tax", record("Tax", due="Money"), "Money")
    references = [Reference(f"{name}.{each}", f"{name}-{each}", 1) for each in ("Price", "Tax")]
    bill = record("Bill", price="Price", tax=f"{name}.Tax", other="Tax")
    value = {
        "price": {"net": {"cents": 1}},
        "tax": {"due": {"cents": 2}},
        "other": {"due": {"cents": 3}},
    }
    data = Avro(registry, bill, references=references).encode(name, value)
    assert Avro(registry).decode(name, data) == value
    assert AvroDeserializer(theirs)(data, context(name)) == value
    schema = TheirSchema(
        json.dumps(bill),
        "AVRO",
        [SchemaReference(each.name, each.subject, 1) for each in references],
    )
    assert AvroSerializer(theirs, schema)(value, context(name)) == data


def test_json_that_refers_to_another_schema_is_checked_by_it(registry, name):
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    who = json.dumps({**draft, "type": "string"})
    registry.register(f"{name}-who", Schema(who, "JSON"))
    schema = {**draft, "type": "object", "properties": {"who": {"$ref": "who.json"}}}
    references = [Reference("who.json", f"{name}-who", 1)]
    values = JsonSchema(registry, schema, references=references)
    data = values.encode(name, {"who": "ann"})
    assert JsonSchema(registry).decode(name, data) == {"who": "ann"}
    with pytest.raises(ValueError, match=r"\$.who: 5 is not of type 'string'"):
        values.encode(name, {"who": 5})


def test_only_a_registered_schema_is_written_without_auto_register(registry, name):
    strict = Avro(registry, ORDER, auto_register=False)
    with pytest.raises(RegistryError) as caught:
        strict.encode(name, ORDERED)
    assert caught.value.status == 404
    assert not caught.value.is_retriable
    assert f"{name}-value" not in registry.subjects()
    registry.register(f"{name}-value", Schema(json.dumps(ORDER)))
    assert Avro(registry).decode(name, strict.encode(name, ORDERED)) == ORDERED


def test_the_newest_version_is_written_with_use_latest(registry, name):
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 3}]}
    for schema in (ORDER, newer):
        newest = registry.register(f"{name}-value", Schema(json.dumps(schema)))
    data = Avro(registry, use_latest=True).encode(name, {**ORDERED, "n": 9})
    assert data[1:5] == newest.id.to_bytes(4, "big")
    assert Avro(registry).decode(name, data)["n"] == 9


# -- what the registry is asked for ----------------------------------------------------------------


def test_subjects_versions_and_their_end(registry, name):
    subject = f"{name}/ä value"
    first = registry.register(subject, Schema('"string"'))
    second = registry.register(subject, Schema('["string","int"]'))
    assert registry.register(subject, Schema('"string"')).id == first.id
    assert registry.versions(subject) == [1, 2]
    assert registry.latest(subject).id == second.id
    assert registry.version(subject, 1).id == first.id
    assert registry.lookup(subject, Schema('"string"')).id == first.id
    assert json.loads(registry.by_id(first.id).text) in ("string", {"type": "string"})
    assert registry.delete_subject(subject) == [1, 2]
    with pytest.raises(RegistryError) as caught:
        registry.latest(subject)
    assert (caught.value.status, caught.value.error_code) == (404, 40401)
    with pytest.raises(RegistryError, match="schema"):
        registry.by_id(1_000_000)


@pytest.mark.slow
def test_what_is_incompatible_is_refused_with_the_reason(apicurio, name):
    registry = SchemaRegistry(apicurio.url)
    registry.register(f"{name}-value", Schema(json.dumps(ORDER)))
    registry.set_compatibility("BACKWARD", f"{name}-value")
    assert registry.compatibility(f"{name}-value") == "BACKWARD"
    other = Schema(json.dumps({**ORDER, "fields": [{"name": "new", "type": "long"}]}))
    assert registry.incompatibilities(f"{name}-value", other)
    assert registry.incompatibilities(f"{name}-value", Schema(json.dumps(ORDER))) == []
    with pytest.raises(RegistryError) as caught:
        registry.register(f"{name}-value", other)
    assert caught.value.status == 409
    assert not caught.value.is_retriable


async def test_the_async_face_says_the_same(url, name):
    registry = AsyncSchemaRegistry(url)
    known = await registry.register(f"{name}-value", Schema(json.dumps(ORDER)))
    assert (await registry.latest(f"{name}-value")).id == known.id
    assert await registry.versions(f"{name}-value") == [1]
    assert Avro(registry, ORDER).encode(name, ORDERED)[1:5] == known.id.to_bytes(4, "big")


# -- with the client library -----------------------------------------------------------------------


def test_records_by_schema_through_a_broker(target, registry, topic_name):
    with ottla.Client(target.bootstrap) as client:
        client.admin.create_topic(topic_name, partitions=1, timeout=PATIENCE_SECONDS)
        orders = Avro(registry, ORDER)
        with client.producer(key_serializer="str", value_serializer=orders) as producer:
            for number in range(500):
                producer.send(topic_name, {**ORDERED, "id": number}, key=str(number))
            producer.send(topic_name, None, key="gone")
        client.produce(topic_name, b'{"id": 1}', key="no schema")
        client.produce(topic_name, b"\x00\x00\x0f\xff\xff\x00", key="no such schema")
        client.produce(topic_name, orders.encode(topic_name, ORDERED), key="last")
        with client.consumer(value_deserializer=Avro(registry)) as consumer:
            consumer.assign({TopicPartition(topic_name, 0): "earliest"})
            values, refused = [], []
            while len(values) + len(refused) < 504:
                try:
                    values.append(next(consumer).value)
                except ottla.Undecodable as error:
                    refused.append((error.offset, error.field, str(error.why)))
    assert [each["id"] for each in values[:500]] == list(range(500))
    assert values[500:] == [None, ORDERED]
    assert [each[:2] for each in refused] == [(501, "value"), (502, "value")]
    assert "0x7b" in refused[0][2]
    assert "1048575" in refused[1][2]


async def test_records_by_schema_through_a_broker_with_asyncio(target, registry, topic_name):
    async with ottla.AsyncClient(target.bootstrap) as client:
        await client.admin.create_topic(topic_name, partitions=1, timeout=PATIENCE_SECONDS)
        async with client.producer(
            key_serializer=JsonSchema(registry, NUMBER),
            value_serializer=Protobuf(registry, Order),
        ) as producer:
            for number in range(100):
                await producer.send(topic_name, Order(id=number), key=number)
        async with client.consumer(
            key_deserializer=JsonSchema(registry), value_deserializer=Protobuf(registry)
        ) as consumer:
            await consumer.assign({TopicPartition(topic_name, 0): "earliest"})
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = [await anext(consumer) for _ in range(100)]
    assert [(each.key, each.value.id) for each in found] == [(at, at) for at in range(100)]


@pytest.fixture
def two_schemas(target, ours, topic_name):
    """A value of each of two schemas, and a registry that is away for the second one."""
    with ottla.Client(target.bootstrap) as client:
        client.admin.create_topic(topic_name, partitions=1, timeout=PATIENCE_SECONDS)
        writing = SchemaRegistry(ours.url)
        for schema, value in (("long", 1), ("string", "2")):
            data = Avro(writing, f'"{schema}"').encode(topic_name, value)
            client.produce(topic_name, data, partition=0)
    registry = SchemaRegistry(ours.url)
    by_id = registry.by_id
    registry.is_away = True

    def sometimes(number, **options):
        schema = by_id(number, **options)
        if "string" in schema.text and registry.is_away:
            raise RegistryError("get a schema", "it is away", status=503)
        return schema

    registry.by_id = sometimes
    return registry


def test_no_record_is_lost_when_the_registry_is_away_for_the_next(target, two_schemas, topic_name):
    with (
        ottla.Client(target.bootstrap) as client,
        client.consumer(value_deserializer=Avro(two_schemas)) as consumer,
    ):
        consumer.assign({TopicPartition(topic_name, 0): "earliest"})
        assert [each.value for each in consumer.poll(timeout=PATIENCE_SECONDS)] == [1]
        for _ in range(2):
            with pytest.raises(RegistryError):
                consumer.poll(timeout=PATIENCE_SECONDS)
        two_schemas.is_away = False
        assert [each.value for each in consumer.poll(timeout=PATIENCE_SECONDS)] == ["2"]


async def test_no_record_is_lost_with_asyncio_either(target, two_schemas, topic_name):
    async with (
        ottla.AsyncClient(target.bootstrap) as client,
        client.consumer(value_deserializer=Avro(two_schemas)) as consumer,
    ):
        await consumer.assign({TopicPartition(topic_name, 0): "earliest"})
        assert [each.value for each in await consumer.poll(timeout=PATIENCE_SECONDS)] == [1]
        with pytest.raises(RegistryError):
            await consumer.poll(timeout=PATIENCE_SECONDS)
        two_schemas.is_away = False
        assert [each.value for each in await consumer.poll(timeout=PATIENCE_SECONDS)] == ["2"]


def test_a_value_that_the_schema_refuses_is_not_sent(target, registry, topic_name):
    with ottla.Client(target.bootstrap) as client:
        client.admin.create_topic(topic_name, partitions=1, timeout=PATIENCE_SECONDS)
        with client.producer(value_serializer=Avro(registry, ORDER)) as producer:
            with pytest.raises(ottla.BadArgument, match="encode the value"):
                producer.send(topic_name, {"id": "seven"})
            producer.send(topic_name, ORDERED)
        assert sum(client.admin.offsets(topic_name, "latest").values()) == 1


def test_confluents_consumer_and_ours_read_each_other(target, registry, theirs, topic_name):
    from confluent_kafka import DeserializingConsumer, SerializingProducer
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    with ottla.Client(target.bootstrap) as client:
        client.admin.create_topic(topic_name, partitions=1, timeout=PATIENCE_SECONDS)
        producer = SerializingProducer({
            "bootstrap.servers": target.bootstrap,
            "value.serializer": AvroSerializer(theirs, json.dumps(ORDER)),
        })  # fmt: skip
        producer.produce(topic=topic_name, value={**ORDERED, "id": 1})
        producer.flush(PATIENCE_SECONDS)
        with client.producer(value_serializer=Avro(registry, ORDER)) as ours:
            ours.send(topic_name, {**ORDERED, "id": 2})
        with client.consumer(value_deserializer=Avro(registry)) as consumer:
            consumer.assign({TopicPartition(topic_name, 0): "earliest"})
            assert [next(consumer).value["id"] for _ in range(2)] == [1, 2]
    consumer = DeserializingConsumer({
        "bootstrap.servers": target.bootstrap,
        "group.id": topic_name,
        "auto.offset.reset": "earliest",
        "value.deserializer": AvroDeserializer(theirs),
    })  # fmt: skip
    consumer.subscribe([topic_name])
    try:
        found = [consumer.poll(PATIENCE_SECONDS).value()["id"] for _ in range(2)]
    finally:
        consumer.close()
    assert found == [1, 2]


def test_the_payload_is_plain_avro(registry, name):
    data = Avro(registry, ORDER).encode(name, ORDERED)
    assert fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(ORDER)) == ORDERED
