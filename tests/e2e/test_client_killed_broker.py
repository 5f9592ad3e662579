"""Both faces of the client library while the broker is killed (SIGKILL) and started again.

A history is kept of what was acknowledged; what is in the log afterwards is held against it.
"""

import asyncio
import threading
import time
from collections import defaultdict

import pytest

import ottla
from ottla import TopicPartition
from tools.ottla_peer import OttlaPeer

PATIENCE_SECONDS = 60
PARTITIONS = 3
KEYS = 7
KILLS = 3
PAUSE_SECONDS = 1.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(params=["ottla", pytest.param("kafka", marks=pytest.mark.kafka)])
def peer(request, tmp_path):
    """A broker that comes back at the same port."""
    if request.param == "kafka":
        request.getfixturevalue("kafka_libs")
        from tools.kafka_peer import KafkaPeer

        made = KafkaPeer(tmp_path / "data", {})
        made.start()
    else:
        made = OttlaPeer(tmp_path / "data", {"group.initial.rebalance.delay.ms": 0})
        made.start()
        made._asked_port = made.port
    yield made
    made.kill9()


class Killer(threading.Thread):
    """Kills the broker, and starts it again, a few times."""

    def __init__(self, peer):
        super().__init__(daemon=True)
        self.peer = peer
        self.is_over = threading.Event()
        self.error = None

    def run(self):
        try:
            for _ in range(KILLS):
                self.is_over.wait(PAUSE_SECONDS)
                self.peer.kill9()
                self.peer.start()
        except (OSError, RuntimeError) as error:  # told by the test
            self.error = error
        finally:
            self.is_over.set()


@pytest.fixture
def killer(peer):
    killer = Killer(peer)
    yield killer
    killer.join(PATIENCE_SECONDS)
    assert killer.error is None


def all_of(topic):
    return {TopicPartition(topic, each): "earliest" for each in range(PARTITIONS)}


def content(bootstrap, topic, *, committed=False):
    """Return the numbers in each partition, in order."""
    found = defaultdict(list)
    with ottla.Client(bootstrap) as client:
        ends = client.admin.offsets(topic, "latest", timeout=PATIENCE_SECONDS)
        with client.consumer(read_committed=committed) as consumer:
            consumer.assign(all_of(topic))
            until = time.monotonic() + PATIENCE_SECONDS
            while any(consumer.position(each) < end for each, end in ends.items()):
                assert time.monotonic() < until, "the end is not reached"
                for record in consumer.poll(timeout=1):
                    found[record.partition].append((int(record.key), int(record.value)))
    return found


def judge(found, acknowledged):
    """Everything acknowledged is there, nothing twice, and each key's in the order of sending."""
    numbers = [number for records in found.values() for _, number in records]
    assert len(numbers) == len(set(numbers)), "a record was doubled"
    assert acknowledged <= set(numbers), sorted(acknowledged - set(numbers))[:10]
    for records in found.values():
        for key in range(KEYS):
            of_key = [number for each, number in records if each == key]
            assert of_key == sorted(of_key)


def write_blocking(bootstrap, killer):
    acknowledged, number = set(), 0
    with ottla.Client(bootstrap) as client:
        client.admin.create_topic("t", partitions=PARTITIONS, timeout=PATIENCE_SECONDS)
        killer.start()
        with client.producer(batch_size_bytes=800) as producer:
            while not killer.is_over.is_set() or number < 500:
                sent = {
                    each: producer.send("t", str(each), key=str(each % KEYS))
                    for each in range(number, number + 100)
                }
                number += 100
                for each, delivery in sent.items():
                    delivery.result(timeout=PATIENCE_SECONDS)
                    acknowledged.add(each)
    return acknowledged


async def write_async(bootstrap, killer):
    acknowledged, number = set(), 0
    async with ottla.AsyncClient(bootstrap) as client:
        await client.admin.create_topic("t", partitions=PARTITIONS, timeout=PATIENCE_SECONDS)
        killer.start()
        async with client.producer(batch_size_bytes=800) as producer:
            while not killer.is_over.is_set() or number < 500:
                sent = {
                    each: await producer.send("t", str(each), key=str(each % KEYS))
                    for each in range(number, number + 100)
                }
                number += 100
                for each, delivery in sent.items():
                    await delivery.result(timeout=PATIENCE_SECONDS)
                    acknowledged.add(each)
    return acknowledged


def test_what_was_acknowledged_survives_sigkill_once_and_in_order(peer, killer):
    acknowledged = write_blocking(peer.bootstrap, killer)
    judge(content(peer.bootstrap, "t"), acknowledged)


def test_what_was_acknowledged_survives_sigkill_with_asyncio(peer, killer):
    acknowledged = asyncio.run(write_async(peer.bootstrap, killer))
    judge(content(peer.bootstrap, "t"), acknowledged)


def fill(bootstrap, total):
    with ottla.Client(bootstrap) as client:
        for name in ("in", "out"):
            client.admin.create_topic(name, partitions=PARTITIONS, timeout=PATIENCE_SECONDS)
        with client.producer() as producer:
            for number in range(total):
                producer.send("in", str(number), key=str(number % KEYS))


OPTIONS = {"auto_offset_reset": "earliest", "auto_commit": False, "read_committed": True}


def copy_blocking(bootstrap, killer, total):
    """Copy in transactions, with the offsets within; what was aborted is read again."""
    done, until = set(), time.monotonic() + 3 * PATIENCE_SECONDS
    with (
        ottla.Client(bootstrap) as client,
        client.producer(transactional_id="copy") as producer,
        client.consumer("in", group="copy", **OPTIONS) as consumer,
    ):
        killer.start()
        while len(done) < total:
            assert time.monotonic() < until, (len(done), killer.is_over.is_set())
            try:
                records = consumer.poll(limit=10, timeout=0.5)
            except ottla.Unreachable:  # a broker that takes half a minute to start
                records = []
            if not records:
                continue
            try:
                with producer.transaction() as transaction:
                    for record in records:
                        producer.send("out", record.value, key=record.key)
                    transaction.commit_offsets(consumer)
                    if not killer.is_over.is_set():
                        time.sleep(0.05)  # so that the kills meet open transactions
            except ottla.Fenced:
                raise
            except ottla.ClientError:
                committed = consumer.committed(timeout=PATIENCE_SECONDS)
                for each in consumer.assignment:
                    consumer.seek(each, committed.get(each, 0))
            else:
                done.update(record.value for record in records)


async def copy_async(bootstrap, killer, total):
    done, until = set(), time.monotonic() + 3 * PATIENCE_SECONDS
    async with (
        ottla.AsyncClient(bootstrap) as client,
        client.producer(transactional_id="copy") as producer,
        client.consumer("in", group="copy", **OPTIONS) as consumer,
    ):
        killer.start()
        while len(done) < total:
            assert time.monotonic() < until, (len(done), killer.is_over.is_set())
            try:
                records = await consumer.poll(limit=10, timeout=0.5)
            except ottla.Unreachable:
                records = []
            if not records:
                continue
            try:
                async with producer.transaction() as transaction:
                    for record in records:
                        await producer.send("out", record.value, key=record.key)
                    await transaction.commit_offsets(consumer)
                    if not killer.is_over.is_set():
                        await asyncio.sleep(0.05)
            except ottla.Fenced:
                raise
            except ottla.ClientError:
                committed = await consumer.committed(timeout=PATIENCE_SECONDS)
                for each in consumer.assignment:
                    await consumer.seek(each, committed.get(each, 0))
            else:
                done.update(record.value for record in records)


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_sigkill_leaves_each_input_exactly_once_in_the_output(peer, killer, face):
    total = 700
    fill(peer.bootstrap, total)
    if face == "blocking":
        copy_blocking(peer.bootstrap, killer, total)
    else:
        asyncio.run(copy_async(peer.bootstrap, killer, total))
    found = content(peer.bootstrap, "out", committed=True)
    judge(found, set(range(total)))
