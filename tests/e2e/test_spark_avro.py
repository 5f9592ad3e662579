"""value.format=avro gives what Spark's from_avro gives: types, values, and what is malformed.

Spark's own decoder runs beside ours in one session. Topics are also read from Apache Kafka
(``--target kafka``).
"""

import json
import math
import random
import struct

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("fastavro", reason="extra 'dev' is not installed")

from tests.avro_data import SIMPLE, Schemas, Values

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(180, func_only=True),
]

SCHEMAS = 40
VALUES = 25
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ORDER = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "none", "type": "null"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "price", "type": PRICE},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "either", "type": ["null", "int", "string"]},
    ],
}  # fmt: skip


@pytest.fixture(scope="session")
def from_avro(spark):
    """Spark's own, which takes a column, a schema and options."""
    from tests.conftest import need
    from tools.kafka_peer import KafkaUnavailable, avro_libraries

    try:
        for jar in avro_libraries().glob("*.jar"):
            spark.sql(f"ADD JAR '{jar}'")
    except KafkaUnavailable as error:
        need(str(error))
    from pyspark.sql.avro.functions import from_avro

    return lambda column, schema, **options: from_avro(column, json.dumps(schema), options)


def options_of(schema, mode):
    from ottla.spark.values.value_options import parse_value_options

    given = {"value.format": "avro", "avroschema": json.dumps(schema), "mode": mode}
    return parse_value_options(given)


def ours_of(schema, values, mode="PERMISSIVE"):
    import pyarrow as pa

    from ottla.spark.values.avro_values import AvroValues

    made = AvroValues(options_of(schema, mode))
    return made.decode(pa.array(values, pa.binary()), range(len(values)), "")[0]


def theirs_of(spark, from_avro, schemas, columns, mode="PERMISSIVE"):
    """One query for all schemas; a frame with a column for each."""
    names = ", ".join(f"c{index} binary" for index in range(len(schemas)))
    frame = spark.createDataFrame([tuple(row) for row in zip(*columns, strict=True)], names)
    return frame.coalesce(1).select(
        *[
            from_avro(f"c{index}", schema, mode=mode).alias(f"c{index}")
            for index, schema in enumerate(schemas)
        ]
    )


def plain(value):
    """Make what has no order, or is not equal to itself, comparable."""
    match value:
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() if value and all(type(each) is tuple for each in value):
            return sorted((key, plain(each)) for key, each in value)
        case list():
            return [plain(each) for each in value]
        case float():
            return struct.pack("<d", value) if not math.isnan(value) else "nan"
        case _:
            return value


def as_bytes(kind):
    """The type with bytes for texts, of which damaged ones are none, and numbers for times."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(as_bytes(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(pa.binary(), kind.item_field.with_type(as_bytes(kind.item_type)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(as_bytes(kind.value_type)))
    if types.is_timestamp(kind):
        return pa.int64()
    simple = {pa.string(): pa.binary(), pa.date32(): pa.int32()}
    return simple.get(kind, kind)


def made(seed):
    """Return a schema, and values. Without plain nulls, which Spark itself cannot hand to Arrow."""
    dice = random.Random(seed)
    schema = Schemas(dice.choice, [each for each in SIMPLE if each != "null"]).root()
    values = Values(schema, dice.choice, dice.randint)
    return schema, [values.one()[0] for _ in range(VALUES)]


def damaged(seed, schema, values):
    """Cut each value short, or change some of its bytes; some stay as they are."""
    dice = random.Random(seed)
    for value in values:
        changed = bytearray(value)
        for _ in range(dice.choice([0, 1, 1, 3]) if changed else 0):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        if is_enormous(schema, bytes(changed)):  # of which Spark's driver dies, out of memory
            changed = bytearray(value)
        yield bytes(changed[: dice.randint(0, len(changed))] if dice.random() < 0.4 else changed)


def is_enormous(schema, value):
    from ottla.spark.values.value_options import MalformedValue

    try:
        ours_of(schema, [value], "FAILFAST")
    except MalformedValue as error:
        return "a length" in str(error) or "more items" in str(error)
    return False


def test_types_of_many_schemas_are_those_of_from_avro(spark, from_avro):
    schemas = [made(seed)[0] for seed in range(SCHEMAS)]
    nothing = [[None] for _ in schemas]
    for mode in ("PERMISSIVE", "FAILFAST"):
        theirs = theirs_of(spark, from_avro, schemas, nothing, mode)
        for schema, field in zip(schemas, theirs.schema, strict=True):
            assert options_of(schema, mode).schema == field.dataType, schema


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "damaged"])
def test_values_of_many_schemas_are_what_from_avro_says(spark, from_avro, is_whole):
    cases = [made(seed if is_whole else 1000 + seed) for seed in range(SCHEMAS)]
    schemas = [schema for schema, _ in cases]
    columns = [
        [*(values if is_whole else damaged(seed, schema, values)), None]
        for seed, (schema, values) in enumerate(cases)
    ]
    table = theirs_of(spark, from_avro, schemas, columns).toArrow()
    for schema, values, theirs in zip(schemas, columns, table.columns, strict=True):
        ours = ours_of(schema, values)
        assert ours.type == theirs.type, schema
        kind = as_bytes(ours.type)
        found = plain(ours.cast(kind).to_pylist())
        meant = plain(theirs.combine_chunks().cast(kind).to_pylist())
        for value, one, other in zip(values, found, meant, strict=True):
            assert one == other, (schema, value and value.hex())
        if is_whole:
            assert ours_of(schema, values, "FAILFAST").null_count == 1


@pytest.fixture
def topic(target, topic_name):
    from tools.wire_client import WireClient

    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 2)
    return topic_name


def produce(target, topic, values):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": target.bootstrap, "compression.type": "lz4"})
    for index, value in enumerate(values):
        producer.produce(topic, value, b"k", index % 2)
    assert producer.flush(30) == 0


@pytest.fixture
def load(spark, target):
    def read(topic, **options):
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", target.bootstrap)
        return reader.options(subscribe=topic, **options).load()

    return read


def rows_of(frame):
    return {(row.partition, row.offset): row.value for row in frame.collect()}


def orders(count, header=b""):
    dice = random.Random(3)
    values = Values(ORDER, dice.choice, dice.randint)
    return [header + values.one()[0] for _ in range(count)]


def test_a_topic_is_read_as_raw_values_with_from_avro_are(load, target, topic, from_avro):
    values = orders(300)
    values[7:9] = [None, values[8][:5]]
    produce(target, topic, values)
    options = {"value.format": "avro", "avroSchema": json.dumps(ORDER)}
    raw = load(topic, columns="partition,offset,value")
    for mode in ("PERMISSIVE", "FAILFAST"):
        theirs = raw.withColumn("value", from_avro("value", ORDER, mode=mode))
        ours = load(topic, mode=mode, columns="partition,offset,value", **options)
        assert ours.schema == theirs.schema
        if mode == "PERMISSIVE":
            assert rows_of(ours) == rows_of(theirs)
    with pytest.raises(Exception, match=r"0 at offset 4: malformed Avro value"):
        load(topic, **options).collect()
    rows = rows_of(load(topic, mode="DROPMALFORMED", **options))
    assert len(rows) == 299
    assert (0, 4) not in rows
    assert rows[1, 3] is None


def test_a_stream_takes_the_header_of_a_registry_off(spark, target, topic, tmp_path):
    produce(target, topic, orders(40, b"\0\0\0\0\x2a"))
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", target.bootstrap)
    options = {"value.format": "avro", "avroHeader": "confluent", "avroSchemaId": "42"}
    frame = reader.options(
        subscribe=topic, startingOffsets="earliest", avroSchema=json.dumps(ORDER), **options
    ).load()
    writer = frame.select("value.*").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
    assert query.awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "table")).select("id").count() == 40


def test_values_of_two_schemas_in_a_registry(spark, target, topic_name):
    import ottla
    from ottla.schemas import Avro, SchemaRegistry
    from ottla.testing import SchemaRegistry as RegistryForTests

    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    more = {"name": "b", "type": ["null", "string"], "default": None}
    new = {**old, "fields": [{"name": "a", "type": "long"}, more]}
    with RegistryForTests() as running, ottla.Client(target.bootstrap) as client:
        client.admin.create_topic(topic_name, partitions=1, timeout=30)
        registry = SchemaRegistry(running.url)
        for schema, values in ((old, [{"a": 1}]), (new, [{"a": 2**40, "b": "x"}])):
            with client.producer(value_serializer=Avro(registry, schema)) as producer:
                for value in (*values, None):
                    producer.send(topic_name, value)
        rows = spark.read.format("ottla").options(**{
            "kafka.bootstrap.servers": target.bootstrap,
            "subscribe": topic_name,
            "value.format": "avro",
            "schema.registry.url": running.url,
        }).load().orderBy("offset")  # fmt: skip
        assert rows.schema["value"].dataType.simpleString() == "struct<a:bigint,b:string>"
        found = [row.value and (row.value.a, row.value.b) for row in rows.collect()]
    assert found == [(1, None), None, (2**40, "x"), None]


def test_what_was_made_before_a_new_schema_goes_on_with_its_columns(
    spark, target, topic_name, tmp_path
):
    """A frame, a table and a running stream: none of them has the columns of the new schema."""
    import ottla
    from ottla.schemas import Avro, SchemaRegistry
    from ottla.testing import SchemaRegistry as RegistryForTests

    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    more = {"name": "b", "type": ["null", "string"], "default": None}
    new = {**old, "fields": [*old["fields"], more]}
    table = topic_name.replace("-", "_")
    with RegistryForTests() as running, ottla.Client(target.bootstrap) as client:
        client.admin.create_topic(topic_name, partitions=1, timeout=30)
        options = {
            "kafka.bootstrap.servers": target.bootstrap,
            "subscribe": topic_name,
            "value.format": "avro",
            "schema.registry.url": running.url,
        }

        def produce(schema, value):
            serializer = Avro(SchemaRegistry(running.url), schema)
            with client.producer(value_serializer=serializer) as producer:
                producer.send(topic_name, value)

        produce(old, {"a": 1})
        frame = spark.read.format("ottla").options(**options).load().select("value.*")
        listed = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
        spark.sql(f"CREATE TABLE {table} USING ottla OPTIONS ({listed})")
        reader = spark.readStream.format("ottla").options(**options)
        rows = reader.option("startingOffsets", "earliest").load().select("value.*")
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "table"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.processAllAvailable()
            produce(new, {"a": 2, "b": "x"})
            query.processAllAvailable()
        finally:
            query.stop()
        assert [tuple(row) for row in frame.orderBy("a").collect()] == [(1,), (2,)]
        found = spark.table(table).select("value.*").orderBy("a").collect()
        assert [tuple(row) for row in found] == [(1,), (2,)]
        spark.sql(f"DROP TABLE {table}")
        found = spark.read.parquet(str(tmp_path / "table")).orderBy("a").collect()
        assert [tuple(row) for row in found] == [(1,), (2,)]
        later = spark.read.format("ottla").options(**options).load().select("value.*")
        assert [tuple(row) for row in later.orderBy("a").collect()] == [(1, None), (2, "x")]
