"""``ottla.Client`` while topics change under it, and when its caller never waits."""

import asyncio
import os
import select
import signal
import time

import pytest

import ottla
from ottla import TopicPartition
from ottla.testing import Broker

pytestmark = pytest.mark.timeout(60)

PATIENCE_SECONDS = 30


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with ottla.Client(broker.bootstrap) as client:
        yield client


def until(found):
    """Return the first value of ``found()`` that is something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := found()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)
    return value


def test_who_never_waits_gets_records_all_the_same(broker, client):
    topic = broker.create_topic()
    client.produce(topic, "v")
    with client.consumer() as consumer:
        consumer.assign({TopicPartition(topic, 0): "earliest"})
        assert until(lambda: consumer.poll(timeout=0))[0].value == b"v"


def test_who_never_waits_has_automatic_commits_all_the_same(broker):
    topic = broker.create_topic()
    config = {"bootstrap.servers": broker.bootstrap, "auto.commit.interval.ms": 50}
    with ottla.Client.from_config(config) as client:
        client.produce(topic, "v")
        with client.consumer(topic, group="g", auto_offset_reset="earliest") as consumer:
            until(lambda: consumer.poll(timeout=0))
            with broker.faults.delay("OffsetCommit", "300ms"):
                until(lambda: consumer.poll(timeout=0) or client.admin.committed("g"))
            assert client.admin.committed("g") == {TopicPartition(topic, 0): 1}


async def test_who_never_waits_with_asyncio(broker):
    topic = broker.create_topic()
    broker.produce(topic, "v")
    async with ottla.AsyncClient(broker.bootstrap) as client, client.consumer() as consumer:
        await consumer.assign({TopicPartition(topic, 0): "earliest"})
        found = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not found:
                found = await consumer.poll(timeout=0)
                await asyncio.sleep(0)
    assert found[0].value == b"v"


class SpoilingHooks:
    """Raises at a record."""

    def on_send(self, topic, headers):
        return headers

    def on_receive(self, record):
        if record.value == b"2":
            raise RuntimeError("the hook")


def test_a_hook_that_raises_takes_no_record_with_it(broker):
    topic = broker.create_topic()
    broker.produce_values(topic, ["0", "1", "2", "3"])
    with (
        ottla.Client(broker.bootstrap, hooks=SpoilingHooks()) as client,
        client.consumer() as consumer,
    ):
        consumer.assign({TopicPartition(topic, 0): "earliest"})
        assert [each.value for each in consumer.poll(timeout=20)] == [b"0", b"1"]
        with pytest.raises(RuntimeError, match="the hook"):
            consumer.poll(timeout=20)
        assert [each.value for each in consumer.poll(timeout=20)] == [b"3"]


def test_a_batch_that_is_too_large_for_its_topic_is_written_in_parts(broker, client):
    topic = broker.create_topic(config={"max.message.bytes": "5000"})
    with client.producer(linger_ms=500) as producer:
        sent = [producer.send(topic, f"{number:1000}") for number in range(64)]
        producer.flush(timeout=30)
        assert [each.result().offset for each in sent] == list(range(64))
        with pytest.raises(ottla.Refused, match="MESSAGE_TOO_LARGE"):
            producer.produce(topic, "x" * 6000, timeout=30)
        sent = [producer.send(topic, "behind") for _ in range(3)]
        assert [each.result(timeout=30).offset for each in sent] == [64, 65, 66]
    assert [int(each.value) for each in broker.records(topic)[:64]] == list(range(64))


def test_one_record_that_is_too_large_takes_no_other_of_its_batch_with_it(broker, client):
    topic = broker.create_topic(config={"max.message.bytes": "5000"})
    producer = client.producer(linger_ms=500)
    sent = [producer.send(topic, "x" * (9000 if number == 5 else 10)) for number in range(8)]
    failed = []
    for number, each in enumerate(sent):
        try:
            each.result(timeout=30)
        except ottla.Refused:
            failed.append(number)
    assert failed == [5]
    producer.close()
    assert len(broker.records(topic)) == 7


async def test_a_divided_batch_with_asyncio(broker):
    topic = broker.create_topic(config={"max.message.bytes": "5000"})
    async with ottla.AsyncClient(broker.bootstrap) as client, client.producer() as producer:
        sent = [await producer.send(topic, f"{number:1000}") for number in range(32)]
        written = await asyncio.gather(*(each.result(timeout=30) for each in sent))
    assert [each.offset for each in written] == list(range(32))


def test_a_transaction_has_all_parts_of_its_batches(broker, client):
    topic = broker.create_topic(config={"max.message.bytes": "5000"})
    producer = client.producer(transactional_id="t", linger_ms=500)
    with producer, producer.transaction():
        for number in range(32):
            producer.send(topic, f"{number:1000}")
    assert [int(each.value) for each in broker.records(topic)] == list(range(32))


def test_partitions_that_were_added_are_written_to(broker, client):
    topic = broker.create_topic(partitions=1)
    with client.producer() as producer:
        producer.produce(topic, "v")
        client.admin.add_partitions(topic, 3)
        assert producer.produce(topic, "v", partition=2, timeout=10).partition == 2
        with pytest.raises(ottla.BadArgument, match="no 3"):
            producer.produce(topic, "v", partition=3, timeout=10)


def test_a_topic_that_is_gone_keeps_no_other_from_being_written(broker, client):
    gone, there = broker.create_topic(), broker.create_topic()
    small = broker.create_topic(config={"max.message.bytes": "100"})
    producer = client.producer(linger_ms=200, delivery_timeout_ms=3000)
    for each in (gone, there, small):
        producer.produce(each, "v", timeout=20)
    client.admin.delete_topics(gone)
    with pytest.raises(ottla.Refused):
        producer.produce(small, "x" * 1000, timeout=20)  # Who fails so looks for leaders anew.
    lost, kept = producer.send(gone, "v"), producer.send(there, "v")
    assert kept.result(timeout=20).offset == 1
    with pytest.raises(ottla.ClientError):
        lost.result(timeout=20)
    producer.close()


def test_a_record_handed_in_by_the_child_of_a_fork_is_not_lost_in_silence(broker, client):
    topic = broker.create_topic()
    producer = client.producer(linger_ms=20_000)
    producer.send(topic, "parent")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        try:
            for _ in range(2):
                try:
                    producer.send(topic, "child")
                    said.append("taken")
                except ottla.ClientClosed:
                    said.append("refused")
        finally:
            os.write(writing, " ".join(said).encode())
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            assert select.select([pipe], [], [], PATIENCE_SECONDS)[0], "the child hangs"
            assert pipe.read() == "refused refused"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    producer.close()
    assert [each.value for each in broker.records(topic)] == [b"parent"]
