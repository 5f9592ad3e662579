"""``ottla.Client``: calls end in their time, and nothing fails in silence."""

import asyncio
import os
import select
import signal
import threading
import time

import pytest

import ottla
from ottla import TopicPartition
from ottla.schemas import Avro, SchemaRegistry
from ottla.testing import Broker
from ottla.testing import SchemaRegistry as RegistryForTests

pytestmark = pytest.mark.timeout(60)

PATIENCE_SECONDS = 45
LONG = "40s"
"""Longer than any call here waits, and than none may take."""


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with ottla.Client(broker.bootstrap) as client:
        yield client


def begun(work, *arguments):
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def outcome_of(work):
    """Return the list to which ``work``'s value or error comes, and its thread."""
    outcome = []

    def run():
        try:
            outcome.append(work())
        except ottla.ClientError as error:
            outcome.append(error)

    return outcome, begun(run)


def poll_until_assigned(consumer):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not consumer.assignment and time.monotonic() < deadline:
        consumer.poll(timeout=0.1)


def met(fault):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not fault.struck:
        assert time.monotonic() < deadline, "no request came"
        time.sleep(0.01)


def test_every_batch_fails_in_its_time_and_none_in_that_of_those_before_it(broker, client):
    topic = broker.create_topic()
    producer = client.producer(delivery_timeout_ms=1000, batch_size_bytes=100)
    producer.produce(topic, "there")
    broker.stop()
    handed = [producer.send(topic, "x" * 90) for _ in range(60)]  # a batch each
    with pytest.raises(ottla.ClientError):
        producer.flush(timeout=PATIENCE_SECONDS)
    assert all(each.is_done for each in handed)


def test_a_batch_whose_time_is_up_behind_others_says_what_kept_them(broker, client):
    topic = broker.create_topic()
    producer = client.producer(delivery_timeout_ms=1000, batch_size_bytes=100)
    producer.produce(topic, "there")
    with broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", times=None):
        handed = [producer.send(topic, "x" * 90) for _ in range(3)]  # a batch each
        for each in handed[1:]:  # One of them may have been tried itself, at the very end.
            with pytest.raises(ottla.ClientError, match="NOT_ENOUGH_REPLICAS"):
                each.result()
    producer.produce(topic, "on")


def test_a_silent_broker_does_not_hold_a_batch_beyond_its_time(broker, client):
    topic = broker.create_topic()
    producer = client.producer(delivery_timeout_ms=1000)
    producer.produce(topic, "there")
    with broker.faults.delay("Produce", LONG) as delay:
        handed = producer.send(topic, "x")
        with pytest.raises(ottla.TimedOut):
            handed.result()
        assert delay.struck == 1


def test_a_failure_is_told_by_flush_though_another_was_told_by_its_result(broker, client):
    topic = broker.create_topic()
    producer = client.producer()
    with broker.faults.error("Produce", "MESSAGE_TOO_LARGE", times=2):
        first = producer.send(topic, "1")
        with pytest.raises(ottla.Refused):
            first.result()
        producer.send(topic, "2")
        with pytest.raises(ottla.Refused):
            producer.flush()
    producer.flush()


def test_a_send_that_waited_beyond_the_close_does_not_wait_for_ever(broker, client):
    topic = broker.create_topic()
    producer = client.producer()
    with broker.faults.delay("Metadata", "1s", times=None) as delay:
        outcome, thread = outcome_of(lambda: producer.send(topic, "1").result())
        met(delay)
        producer.close()
        thread.join(PATIENCE_SECONDS)
    assert [type(each) for each in outcome] == [ottla.ClientClosed]


def test_a_send_that_waited_beyond_its_transaction_is_not_part_of_the_next(broker, client):
    known, asked = broker.create_topic(), broker.create_topic()
    with client.producer(transactional_id="t") as producer:
        with producer.transaction():
            producer.send(known, "1")
        with broker.faults.delay("Metadata", "1s", times=None) as delay:
            with producer.transaction():
                outcome, thread = outcome_of(lambda: producer.send(asked, "2"))
                met(delay)
            with producer.transaction():
                thread.join(PATIENCE_SECONDS)
    assert [type(each) for each in outcome] == [ottla.ClientClosed]
    assert broker.records(asked) == []


def test_the_steps_of_a_write_share_its_timeout(broker, client):
    topic = broker.create_topic()
    started = time.monotonic()
    with (
        broker.faults.delay("Metadata", "2s"),
        broker.faults.delay("Produce", "6s"),
        pytest.raises(ottla.TimedOut, match="3 s"),
    ):
        client.produce(topic, "x", timeout=3)
    # With a timeout for each step it were 5.
    assert time.monotonic() - started < 4.9


def test_a_silent_connection_is_given_up_though_its_callers_have_less_patience(broker):
    config = {"bootstrap.servers": broker.bootstrap, "request.timeout.ms": 1000}
    topic = broker.create_topic()
    with ottla.Client.from_config(config) as client, broker.faults.delay("Metadata", LONG) as delay:
        deadline = time.monotonic() + PATIENCE_SECONDS / 2  # less than the delay
        while True:
            assert time.monotonic() < deadline, "it is asked again and again"
            try:
                topics = client.admin.list_topics(timeout=0.3)
                break
            except ottla.TimedOut:
                assert delay.struck
        assert topic in [each.name for each in topics]


def test_poll_ends_in_its_time_while_partitions_are_given_up(broker, client):
    topic = broker.create_topic(partitions=2)
    for index in range(2):
        broker.produce(topic, "x", partition=index)
    told = []
    with ottla.Client(broker.bootstrap) as other:
        consumer = client.consumer(group="g", auto_offset_reset="earliest")
        consumer.subscribe(topic, on_revoked=told.append)
        read = 0
        while read < 2:
            read += len(consumer.poll(timeout=5))
        with broker.faults.delay("OffsetCommit", "4s") as delay:
            second = other.consumer(topic, group="g")
            thread = begun(poll_until_assigned, second)
            deadline = time.monotonic() + PATIENCE_SECONDS
            polls = 0
            while thread.is_alive():
                assert time.monotonic() < deadline, "no partition is given up"
                consumer.poll(timeout=0.1)
                polls += delay.struck
        assert polls > 3, "none ended before the commit did"
        assert len(told) == 1, "it is told once"


def test_a_topic_that_is_deleted_keeps_no_other_from_being_read(broker, client):
    kept, deleted = broker.create_topic(), broker.create_topic()
    with client.consumer() as consumer:
        consumer.assign({TopicPartition(each, 0): "earliest" for each in (deleted, kept)})
        client.admin.delete_topics(deleted)
        for number in range(3):
            broker.produce(kept, str(number))
        deadline = time.monotonic() + PATIENCE_SECONDS / 2  # before retries of the other end
        read = []
        while len(read) < 3:
            assert time.monotonic() < deadline, read
            read += consumer.poll(timeout=1)


def test_a_client_lives_as_long_as_what_it_made(broker):
    topic = broker.create_topic()
    producer = ottla.Client(broker.bootstrap).producer()
    producer.produce(topic, "1")
    assert topic in [each.name for each in ottla.Client(broker.bootstrap).admin.list_topics()]
    consumer = ottla.Client(broker.bootstrap).consumer()
    consumer.assign({TopicPartition(topic, 0): "earliest"})
    assert len(consumer.poll(timeout=PATIENCE_SECONDS)) == 1
    del producer, consumer


def test_a_client_of_another_loop_says_so(broker):
    async def begun():
        client = ottla.AsyncClient(broker.bootstrap)
        producer = client.producer()
        await producer.produce("t", "x")
        return client, producer

    async def used(work, why):
        with pytest.raises(ottla.ClientClosed, match=why):
            await work()

    client, producer = asyncio.run(begun())
    asyncio.run(used(lambda: client.produce("t", "y"), "another event loop"))
    # It was closed with the client, when their loop ended.
    asyncio.run(used(lambda: producer.produce("t", "y"), "closed"))
    assert [each.value for each in broker.records("t")] == [b"x"]


def test_the_child_of_a_fork_is_told_that_the_client_is_its_parents(broker, client):
    topic = broker.create_topic()
    producer = client.producer()
    producer.produce(topic, "parent")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            producer.produce(topic, "child", timeout=5)
        except ottla.ClientClosed as error:
            said = str(error)
        finally:
            client.close()
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            assert select.select([pipe], [], [], PATIENCE_SECONDS)[0], "the child hangs"
            assert "fork" in pipe.read()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert producer.produce(topic, "parent").offset == 1


def test_poll_ends_in_its_time_while_a_registry_is_slow(broker, client, monkeypatch):
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    topic = broker.create_topic()
    with RegistryForTests() as running:
        with client.producer(value_serializer=Avro(SchemaRegistry(running.url), schema)) as writer:
            writer.produce(topic, {"id": 1})
        registry = SchemaRegistry(running.url)
        gate, asked = threading.Event(), []
        fetch = registry.by_id

        def slow(*arguments, **options):
            asked.append(arguments)
            assert gate.wait(PATIENCE_SECONDS)
            return fetch(*arguments, **options)

        monkeypatch.setattr(registry, "by_id", slow)
        with client.consumer(value_deserializer=Avro(registry)) as consumer:
            consumer.assign({TopicPartition(topic, 0): "earliest"})
            for _ in range(3):
                assert consumer.poll(timeout=0.5) == []
            gate.set()
            [record] = consumer.poll(timeout=PATIENCE_SECONDS)
    assert record.value == {"id": 1}
    assert len(asked) == 1, "the same fetch is waited for again"
