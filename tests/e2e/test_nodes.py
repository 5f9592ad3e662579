"""Three nodes of one cluster, in one process, as clients see them."""

import asyncio
import time

import pytest

from tests.nodes import Nodes

PARTITIONS = 6
COUNT = 600
# Other people's code, other people's warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def nodes():
    with Nodes() as nodes:
        nodes.start(1, 2, 3)
        yield nodes


def create(nodes, topic, partitions=PARTITIONS, *, at=1):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": nodes.address(at), "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def values():
    return [b"%d" % number for number in range(COUNT)]


def by_confluent(nodes, topic):
    from confluent_kafka import Consumer, Producer

    failures = []
    producer = Producer({"bootstrap.servers": nodes.address(2), "log_level": 0})
    for number, value in enumerate(values()):
        producer.produce(
            topic,
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failures
    consumer = Consumer(
        {
            "bootstrap.servers": nodes.address(3),
            "group.id": "confluent",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    found, deadline = [], time.monotonic() + 30
    while len(found) < COUNT and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(COUNT, 0.2)]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def by_kafka_python(nodes, topic):
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=nodes.address(2), acks="all")
    sent = [
        producer.send(topic, value, partition=number % PARTITIONS)
        for number, value in enumerate(values())
    ]
    for one in sent:
        one.get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=nodes.address(3),
        group_id="kafka-python",
        auto_offset_reset="earliest",
    )
    found, deadline = [], time.monotonic() + 30
    while len(found) < COUNT and time.monotonic() < deadline:
        for records in consumer.poll(200).values():
            found += [record.value for record in records]
    consumer.commit()
    consumer.close()
    return found


def by_aiokafka(nodes, topic):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def work():
        async with AIOKafkaProducer(bootstrap_servers=nodes.address(2), acks="all") as producer:
            for number, value in enumerate(values()):
                await producer.send(topic, value, partition=number % PARTITIONS)
            await producer.flush()
        found = []
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=nodes.address(3),
            group_id="aiokafka",
            auto_offset_reset="earliest",
        ) as consumer:
            async with asyncio.timeout(30):
                while len(found) < COUNT:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += [record.value for record in records]
            await consumer.commit()
        return found

    return asyncio.run(work())


@pytest.mark.parametrize("by", [by_confluent, by_kafka_python, by_aiokafka])
def test_a_topic_is_spread_and_served_by_all_nodes(nodes, by):
    create(nodes, "spread")
    assert nodes.leaders("spread") == [1, 2, 3, 1, 2, 3]
    found = by(nodes, "spread")
    assert sorted(found) == sorted(values())
    assert sorted(nodes.leaders("__consumer_offsets")) == [1, 1, 2, 2, 3, 3]
