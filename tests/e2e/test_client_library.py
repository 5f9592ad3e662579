"""``ottla.Client`` and ``ottla.AsyncClient`` as applications use them, against ``--target``."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import uuid
import weakref

import pytest

import ottla
from ottla import TopicPartition

PATIENCE_SECONDS = 30


@pytest.fixture
def client(target):
    with ottla.Client(target.bootstrap) as client:
        yield client


@pytest.fixture
def topic(client, topic_name):
    client.admin.create_topic(topic_name, partitions=3, timeout=PATIENCE_SECONDS)
    return topic_name


def all_of(topic, count=3):
    return {TopicPartition(topic, each): "earliest" for each in range(count)}


def read(consumer, count):
    """Return ``count`` records, or fail."""
    found = []
    ends = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < ends, f"{len(found)} of {count} records"
        found += consumer.poll(timeout=1)
    return found


def read_all(client, topic, count, **options):
    with client.consumer(**options) as consumer:
        consumer.assign(all_of(topic))
        return read(consumer, count)


def test_a_record_comes_back_as_it_was_written(client, topic):
    written = client.produce(
        topic,
        b"\xff\x00",
        key="k",
        headers=[("a", b"1"), ("a", None)],
        timestamp_ms=1_700_000_000_000,
    )
    [record] = read_all(client, topic, 1)
    assert record == ottla.Record(
        topic, written.partition, written.offset, 1_700_000_000_000, b"k", b"\xff\x00",
        (("a", b"1"), ("a", None)),
    )  # fmt: skip


def test_many_records_keep_their_order_within_a_key(client, topic):
    with client.producer(compression="zstd", batch_size_bytes=2000) as producer:
        for number in range(3000):
            producer.send(topic, str(number), key=str(number % 7))
    records = read_all(client, topic, 3000)
    for key in range(7):
        values = [int(each.value) for each in records if each.key == b"%d" % key]
        assert values == list(range(key, 3000, 7))


async def test_async_says_the_same(target, topic):
    async with ottla.AsyncClient(target.bootstrap) as client:
        async with client.producer(value_serializer="json") as producer:
            handed = [await producer.send(topic, {"n": number}) for number in range(100)]
            written = [await each.result() for each in handed]
        assert len(set(written)) == 100
        async with client.consumer(value_deserializer="json") as consumer:
            await consumer.assign(all_of(topic))
            found = [record.value["n"] async for record, _ in limited(consumer, 100)]
        assert sorted(found) == list(range(100))


async def limited(consumer, count):
    for left in range(count, 0, -1):
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield await anext(consumer), left


def broken(writer, what):
    """Do something within a transaction, and fail."""
    if isinstance(what, str):
        writer.send(what, "2", partition=0)
        writer.flush()
    else:
        writer.commit_offsets(what)
    raise ZeroDivisionError


def test_what_a_transaction_aborts_is_never_read(client, topic):
    with client.producer(transactional_id=f"{topic}-tx") as producer:
        with producer.transaction():
            producer.send(topic, "1", partition=0)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            broken(producer, topic)
        with producer.transaction():
            producer.send(topic, "3", partition=0)
    found = read_all(client, topic, 2, read_committed=True)
    assert [each.value for each in found] == [b"1", b"3"]


def test_offsets_are_committed_with_the_transaction_only(client, topic):
    for number in range(5):
        client.produce(topic, str(number), partition=0)
    group = f"{topic}-group"
    with (
        client.producer(transactional_id=f"{topic}-tx") as producer,
        client.consumer(
            topic, group=group, auto_offset_reset="earliest", auto_commit=False
        ) as consumer,
    ):
        read(consumer, 5)
        with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
            broken(transaction, consumer)
        assert consumer.committed() == {}
        with producer.transaction() as transaction:
            producer.send(topic, "out", partition=1)
            transaction.commit_offsets(consumer)
        assert consumer.committed()[TopicPartition(topic, 0)] == 5


def test_a_fenced_producer_is_told_so_and_writes_nothing(client, topic):
    name = f"{topic}-tx"
    with (
        client.producer(transactional_id=name) as old,
        client.producer(transactional_id=name) as new,
    ):
        with old.transaction():
            old.send(topic, "old", partition=0)
        with new.transaction():
            new.send(topic, "new", partition=0)
        with pytest.raises(ottla.Fenced) as caught, old.transaction():
            old.send(topic, "zombie", partition=0)
        assert caught.value.code is not None
        assert caught.value.fix
        with pytest.raises(ottla.Fenced), old.transaction():
            pass
    found = read_all(client, topic, 2, read_committed=True)
    assert [each.value for each in found] == [b"old", b"new"]


@pytest.mark.parametrize("protocol", ["auto", "classic"])
def test_a_group_goes_on_where_it_stood(client, topic, protocol):
    for number in range(10):
        client.produce(topic, str(number), key=str(number))
    options = {"group": f"{topic}-g", "auto_offset_reset": "earliest", "group_protocol": protocol}
    with client.consumer(topic, **options) as consumer:
        first = read(consumer, 10)
    for number in range(10, 20):
        client.produce(topic, str(number), key=str(number))
    with client.consumer(topic, **options) as consumer:
        second = read(consumer, 10)
    assert {int(each.value) for each in first} == set(range(10))
    assert {int(each.value) for each in second} == set(range(10, 20))


@pytest.mark.slow
def test_three_members_of_mixed_protocols_share_every_partition(client, topic):
    """Two of ours, of either protocol, and librdkafka's."""
    from confluent_kafka import Consumer as Theirs

    group = f"{topic}-mixed"
    heard = []
    options = {"group": group, "auto_offset_reset": "earliest"}
    stop = threading.Event()
    found = {name: [] for name in ("classic", "consumer", "theirs")}

    def ours(name):
        with client.consumer(group_protocol=name, **options) as consumer:
            consumer.subscribe(topic, on_assigned=lambda some: heard.append((name, some)))
            while not stop.is_set():
                found[name] += consumer.poll(timeout=0.2)

    def theirs():
        config = {"bootstrap.servers": client._core.settings.connections.bootstrap[0].__str__()}
        other = Theirs(config | {"group.id": group, "auto.offset.reset": "earliest"})
        other.subscribe([topic])
        while not stop.is_set():
            message = other.poll(0.2)
            if message is not None and not message.error():
                found["theirs"].append(message.value())
        other.close()

    # The newer protocol first: a classic group that is still forming cannot be taken over.
    threads = [threading.Thread(target=ours, args=(name,)) for name in ("consumer", "classic")]
    threads.append(threading.Thread(target=theirs))
    deadline = time.monotonic() + 50
    try:
        for count, thread in enumerate(threads):
            while len({name for name, _ in heard}) < count:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            thread.start()
        number = 0
        while not all(found.values()):
            assert time.monotonic() < deadline, {name: len(each) for name, each in found.items()}
            for partition in range(3):
                client.produce(topic, str(number), partition=partition)
            number += 1
            time.sleep(0.1)
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(20)
    assert {name for name, _ in heard} == {"classic", "consumer"}


def test_seek_pause_and_time(client, topic):
    for number in range(10):
        client.produce(topic, str(number), partition=0, timestamp_ms=1_700_000_000_000 + number)
    where = TopicPartition(topic, 0)
    with client.consumer() as consumer:
        consumer.assign({where: 8})
        assert [each.value for each in read(consumer, 2)] == [b"8", b"9"]
        consumer.seek(where, 5)
        assert next(consumer).value == b"5"
        consumer.pause(where)
        assert consumer.paused == [where]
        assert consumer.poll(timeout=0.3) == []
        consumer.resume(where)
        assert next(consumer).value == b"6"
        consumer.seek_to_time(1_700_000_000_003)
        assert next(consumer).value == b"3"
        consumer.seek(where, "latest")
        assert consumer.position(where) == 10
        with pytest.raises(ottla.BadArgument, match="not assigned"):
            consumer.seek(TopicPartition(topic, 1), 0)


def test_a_pattern_finds_topics_that_come_later(client, topic):
    more = f"{topic}-more"
    config = {"bootstrap.servers": str(client._core.settings.connections.bootstrap[0])}
    config |= {"group.id": f"{topic}-g", "auto.offset.reset": "earliest"}
    config |= {"topic.metadata.refresh.interval.ms": 200}
    client.produce(topic, "1")
    with ottla.Client.from_config(config) as other, other.consumer() as consumer:
        consumer.subscribe(pattern=f"{topic}.*")
        assert next(consumer).value == b"1"
        client.admin.create_topic(more)
        client.produce(more, "2")
        assert read(consumer, 1)[0].topic == more


def test_an_undecodable_record_is_named_and_passed(client, topic):
    for value in ('{"a": 1}', "{", '{"a": 3}'):
        client.produce(topic, value, partition=0)
    with client.consumer(value_deserializer="json") as consumer:
        consumer.assign({TopicPartition(topic, 0): "earliest"})
        assert next(consumer).value == {"a": 1}
        with pytest.raises(ottla.Undecodable) as caught:
            next(consumer)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 1)
        assert caught.value.data == b"{"
        assert next(consumer).value == {"a": 3}


def test_a_record_that_is_too_large_fails_alone(client, topic):
    client.admin.set_configs("topic", topic, {"max.message.bytes": "2000"})
    with client.producer() as producer:
        until_refused(producer, topic)
        end = client.admin.offsets(topic, "latest")[TopicPartition(topic, 1)]
        good = producer.send(topic, "a", partition=0)
        large = producer.send(topic, b"x" * 5000, partition=1)
        assert good.result().offset == 0
        with pytest.raises(ottla.Refused) as caught:
            large.result()
        assert caught.value.code.name == "MESSAGE_TOO_LARGE"
        assert producer.produce(topic, "b", partition=1).offset == end


def until_refused(producer, topic):
    """Wait until the leader has heard of the limit: another node may have answered for it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            producer.produce(topic, b"x" * 5000, partition=1)
        except ottla.Refused:
            return


def test_the_administrators_calls_answer(client, topic):
    admin = client.admin
    assert admin.describe_topic(topic).name == topic
    assert topic in [each.name for each in admin.list_topics()]
    admin.set_configs("topic", topic, {"retention.ms": "1000"})
    assert admin.configs("topic", topic)["retention.ms"] == "1000"
    admin.add_partitions(topic, 4)
    assert len(admin.offsets(topic, "earliest")) == 4
    admin.set_committed(f"{topic}-g", {TopicPartition(topic, 0): 0})
    assert admin.committed(f"{topic}-g") == {TopicPartition(topic, 0): 0}
    assert f"{topic}-g" in [each.group for each in admin.list_groups()]
    admin.delete_group(f"{topic}-g")
    admin.delete_topics(topic)
    with pytest.raises(ottla.Refused):
        admin.describe_topic(f"{topic}-{uuid.uuid4().hex}")


def test_a_closed_client_says_so(target, topic):
    client = ottla.Client(target.bootstrap)
    producer, consumer = client.producer(), client.consumer()
    consumer.assign(all_of(topic))
    client.close()
    client.close()
    for call in (
        lambda: client.produce(topic, "x"),
        lambda: producer.send(topic, "x"),
        lambda: consumer.poll(timeout=1),
        client.admin.list_topics,
    ):
        with pytest.raises(ottla.ClientClosed):
            call()


async def test_a_client_that_nobody_holds_leaves_nothing(target, topic):
    client = ottla.AsyncClient(target.bootstrap)
    producer = client.producer()
    await (await producer.send(topic, "x")).result()
    gone = weakref.ref(client)
    before = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    assert before
    del client, producer
    async with asyncio.timeout(PATIENCE_SECONDS):
        while gone() is not None or len(asyncio.all_tasks()) > 1:
            gc.collect()
            await asyncio.sleep(0.01)


UNCLOSED = """
import asyncio, gc, sys, warnings
import ottla
warnings.simplefilter("error")
caught = []
sys.unraisablehook = lambda seen: caught.append(seen.exc_value)
async def main(topic):
    client = ottla.AsyncClient(sys.argv[1])
    await client.produce(topic, "x")
    consumer = client.consumer(topic, group="unclosed", auto_offset_reset="earliest")
    assert (await anext(consumer)).value == b"x"
    return client, consumer
kept = asyncio.run(main(sys.argv[2]))
del kept
gc.collect()
print(caught)
"""


def test_a_client_that_outlives_its_loop_leaves_no_connection_to_the_collector(target, topic):
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, target.bootstrap, topic],
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_thread_ends_with_its_client(target, topic):
    client = ottla.Client(target.bootstrap)
    client.produce(topic, "x")
    assert "ottla-client" in {thread.name for thread in threading.enumerate()}
    gone = weakref.ref(client)
    others = sum(thread.name == "ottla-client" for thread in threading.enumerate()) - 1
    del client
    deadline = time.monotonic() + PATIENCE_SECONDS
    while gone() or sum(t.name == "ottla-client" for t in threading.enumerate()) > others:
        gc.collect()
        assert time.monotonic() < deadline


async def test_a_wait_that_is_cancelled_loses_no_record(target, topic, client):
    async with ottla.AsyncClient(target.bootstrap) as other, other.consumer() as consumer:
        await consumer.assign(all_of(topic))
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.to_thread(client.produce, topic, "x")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await anext(consumer)).value == b"x"
