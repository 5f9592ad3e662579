"""``ottla.Client`` while its broker is killed (kill -9) and started again on the same data."""

import asyncio
import random
import threading
import time
from collections import Counter
from contextlib import suppress

import pytest

import ottla
from ottla import TopicPartition
from ottla.client.library.transacting import TransactionCalls
from ottla.testing import Broker

pytestmark = pytest.mark.timeout(60)

PATIENCE_SECONDS = 45
PARTITIONS = 4
KEYS = 8
CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}


@pytest.fixture
def broker():
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def client(broker):
    with ottla.Client(broker.bootstrap) as client:
        yield client


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def read(consumer, count):
    found = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        found += consumer.poll(timeout=0.5)
    return found


def read_committed(client, topic):
    """Return all that is committed."""
    ends = client.admin.offsets(topic, "latest")
    with client.consumer(read_committed=True) as consumer:
        consumer.assign({TopicPartition(topic, each): "earliest" for each in range(PARTITIONS)})
        found = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(consumer.position(each) < end for each, end in ends.items()):
            assert time.monotonic() < deadline, "the end is not reached"
            found += consumer.poll(timeout=0.5)
    return found


class Writer(threading.Thread):
    """Sends numbered records with keys until it is told to stop."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = client
        self.acknowledged = []
        self.error = None
        self.stopping = threading.Event()

    def run(self):
        try:
            with self.client.producer(batch_size_bytes=500) as producer:
                start = 0
                while not self.stopping.is_set():
                    handed = {
                        number: producer.send("t", str(number), key=str(number % KEYS))
                        for number in range(start, start + 50)
                    }
                    start += 50
                    for each, delivery in handed.items():
                        delivery.result(timeout=PATIENCE_SECONDS)
                        self.acknowledged.append(each)
        except (ottla.ClientError, AssertionError) as error:
            self.error = error

    def has_written(self, count):
        assert self.error is None, self.error
        return len(self.acknowledged) >= count


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_kill9_loses_no_record_and_doubles_none(broker, client, protocol):
    client.admin.create_topic("t", partitions=PARTITIONS)
    writer = Writer(client)
    found = []
    writer.start()
    options = {"group": "g", "auto_offset_reset": "earliest", "group_protocol": protocol}
    try:
        with client.consumer("t", **options) as consumer:
            found += read(consumer, 100)
            for _ in range(2):
                broker.restart(kill=True)
                count = len(writer.acknowledged) + 100
                wait_for(lambda count=count: writer.has_written(count), "the writer goes on")
                found += read(consumer, 100)
            writer.stopping.set()
            writer.join(PATIENCE_SECONDS)
            assert writer.error is None, writer.error
            found += read(consumer, len(writer.acknowledged) - len(found))
    finally:
        writer.stopping.set()
    values = [int(each.value) for each in found]
    assert sorted(values) == writer.acknowledged, Counter(values).most_common(3)
    for key in range(KEYS):
        of_key = [value for value in values if value % KEYS == key]
        assert of_key == sorted(of_key)


def rewind(consumer):
    """Go back to where the group stands, after a transaction that was aborted."""
    committed = consumer.committed(timeout=PATIENCE_SECONDS)
    for each in consumer.assignment:
        consumer.seek(each, committed.get(each, 0))


def transform(client, total, done, stopping):
    """Consume, transform, produce, with the offsets within; after an abort read again."""
    options = {"auto_offset_reset": "earliest", "auto_commit": False, "read_committed": True}
    with (
        client.producer(transactional_id="tx") as producer,
        client.consumer("in", group="g", **options) as consumer,
    ):
        while len(done) < total and not stopping.is_set():
            records = consumer.poll(limit=10, timeout=0.5)
            if not records:
                continue
            try:
                with producer.transaction() as transaction:
                    for record in records:
                        producer.send("out", record.value, key=record.key)
                    transaction.commit_offsets(consumer)
            except ottla.Fenced:
                raise
            except ottla.ClientError:
                rewind(consumer)
            else:
                done += [int(each.value) for each in records]


def test_kill9_leaves_each_input_exactly_once_in_the_output(broker, client):
    total = 600
    for name in ("in", "out"):
        client.admin.create_topic(name, partitions=PARTITIONS)
    with client.producer() as producer:
        for number in range(total):
            producer.send("in", str(number), key=str(number % KEYS))
    done, errors, stopping = [], [], threading.Event()

    def work():
        try:
            transform(client, total, done, stopping)
        except ottla.ClientError as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        for count in (50, 250):
            wait_for(lambda count=count: len(done) >= count or errors, "transactions go on")
            broker.restart(kill=True)
        thread.join(PATIENCE_SECONDS)
    finally:
        stopping.set()
    assert not errors
    assert not thread.is_alive(), len(done)
    found = read_committed(client, "out")
    assert sorted(int(each.value) for each in found) == list(range(total))


async def no(self):
    return False


@pytest.mark.parametrize(
    ("version", "api"),
    [
        *((1, each) for each in ("AddPartitionsToTxn", "AddOffsetsToTxn")),
        *(
            (version, each)
            for version in (1, 2)
            for each in ("EndTxn", "Produce", "TxnOffsetCommit", "InitProducerId")
        ),
    ],
)
def test_an_answer_that_is_lost_doubles_nothing(broker, client, version, api, monkeypatch):
    if version == 1:
        monkeypatch.setattr(TransactionCalls, "speaks_second", no)
    client.admin.create_topic("out", partitions=PARTITIONS)
    with client.producer(transactional_id="tx") as producer:
        fault = broker.faults.drop(api, after=True)
        for number in range(3):
            with producer.transaction() as transaction:
                producer.send("out", str(number), partition=0)
                transaction.commit_offsets("g", {TopicPartition("out", 0): number + 1})
    assert fault.struck == 1
    assert [int(each.value) for each in read_committed(client, "out")] == [0, 1, 2]
    assert client.admin.committed("g") == {TopicPartition("out", 0): 3}


def test_every_end_of_a_transaction_raises_the_epoch(broker, client):
    """So that what comes too late of one transaction never gets into the next (KIP-890)."""
    client.admin.create_topic("out", partitions=PARTITIONS)
    epochs = []
    with client.producer(transactional_id="tx") as producer:
        for number in range(4):
            with suppress(ZeroDivisionError), producer.transaction():
                epochs.append(producer._sender._identity.epoch)
                producer.send("out", str(number), partition=0)
                producer.flush()
                1 // (number % 2)  # The first and the third are aborted.
    assert epochs == [0, 1, 2, 3]
    assert [each.value for each in read_committed(client, "out")] == [b"1", b"3"]
    requests = " ".join(broker.last_requests())
    assert "EndTxn" in requests
    assert "ToTxn" not in requests


def send_late(producer, offsets):
    """Run a transaction that cannot end in its time."""
    with producer.transaction(timeout=0.5) as transaction:
        producer.send("out", "late", partition=0)
        transaction.commit_offsets("g", offsets, timeout=0.5)


@pytest.mark.parametrize("api", ["EndTxn", "Produce", "TxnOffsetCommit"])
def test_a_transaction_whose_time_is_up_does_not_leak_into_the_next(broker, client, api):
    """Nobody knows how it ended; the next one must neither carry its records nor be stuck."""
    client.admin.create_topic("out", partitions=PARTITIONS)
    code = "NOT_LEADER_OR_FOLLOWER" if api == "Produce" else "COORDINATOR_LOAD_IN_PROGRESS"
    with client.producer(transactional_id="tx") as producer:
        with producer.transaction():
            producer.send("out", "first", partition=0)
        fault = broker.faults.error(api, code, times=None)
        with fault, pytest.raises(ottla.TimedOut):
            send_late(producer, {TopicPartition("out", 0): 7})
        with producer.transaction(timeout=PATIENCE_SECONDS):
            producer.send("out", "next", partition=0)
    assert [each.value for each in read_committed(client, "out")] == [b"first", b"next"]
    assert client.admin.committed("g") == {}


def test_nobody_goes_back_to_offsets_from_before_an_open_transaction(broker, client):
    """Its commit may be under way: who reads from them writes the same results again."""
    client.admin.create_topic("out", partitions=PARTITIONS)
    where = TopicPartition("out", 0)
    options = {"auto_offset_reset": "earliest", "auto_commit": False}
    with (
        client.producer(transactional_id="tx") as producer,
        client.consumer("out", group="g", **options) as consumer,
    ):
        with producer.transaction() as transaction:
            producer.send("out", "1", partition=0)
            transaction.commit_offsets("g", {where: 1})
            with pytest.raises(ottla.TimedOut):
                consumer.committed(where, timeout=0.5)
        assert consumer.committed(where, timeout=PATIENCE_SECONDS) == {where: 1}


def test_a_producer_that_was_replaced_does_not_take_its_id_back(broker, client):
    """A process that stood still for long must not end the one that was started for it."""
    client.admin.create_topic("out", partitions=PARTITIONS)
    names = {"transactional_id": "tx"}
    with client.producer(**names) as zombie, client.producer(**names) as heir:
        with zombie.transaction():
            zombie.send("out", "0", partition=0)
        fault = broker.faults.error("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
        with fault, pytest.raises(ottla.TimedOut), zombie.transaction(timeout=2):
            zombie.send("out", "zombie", partition=0)
        with heir.transaction(timeout=PATIENCE_SECONDS):
            heir.send("out", "1", partition=0)
        for _ in range(2):
            with pytest.raises(ottla.Fenced), zombie.transaction(timeout=PATIENCE_SECONDS):
                pass
        with heir.transaction(timeout=PATIENCE_SECONDS):
            heir.send("out", "2", partition=0)
    assert [each.value for each in read_committed(client, "out")] == [b"0", b"1", b"2"]


def test_a_transaction_that_ran_out_of_time_is_no_end_of_its_producer(broker, client):
    client.admin.create_topic("out", partitions=PARTITIONS)
    with client.producer(transactional_id="tx") as producer:
        with pytest.raises(ottla.Refused, match="open for longer") as caught:
            send_and_sleep(broker, producer)
        assert (type(caught.value), caught.value.code.name) == (ottla.Refused, "INVALID_TXN_STATE")
        with producer.transaction(timeout=PATIENCE_SECONDS):
            producer.send("out", "next", partition=0)
    assert [each.value for each in read_committed(client, "out")] == [b"next"]


def test_a_write_after_the_time_of_its_transaction_is_no_end_of_its_producer(broker, client):
    """Kafka's leaders, too, say of it what they say of a producer that was replaced."""
    client.admin.create_topic("out", partitions=PARTITIONS)
    with client.producer(transactional_id="tx") as producer:
        with pytest.raises(ottla.Refused, match="open for longer") as caught:
            send_and_sleep(broker, producer, more="later")
        told = (type(caught.value), caught.value.code.name)
        assert told == (ottla.Refused, "INVALID_PRODUCER_EPOCH")
        with producer.transaction(timeout=PATIENCE_SECONDS):
            producer.send("out", "next", partition=0)
    assert [each.value for each in read_committed(client, "out")] == [b"next"]


def test_a_write_of_a_producer_that_was_replaced_is_fenced(broker, client):
    client.admin.create_topic("out", partitions=PARTITIONS)
    names = {"transactional_id": "tx"}
    with client.producer(**names) as zombie, client.producer(**names) as heir:
        with pytest.raises(ottla.Fenced):
            replaced_within(zombie, heir)
        with pytest.raises(ottla.Fenced), zombie.transaction(timeout=PATIENCE_SECONDS):
            pass
    assert [each.value for each in read_committed(client, "out")] == [b"1"]


def replaced_within(zombie, heir):
    """Run a transaction of the zombie, and one of its heir amid it."""
    with zombie.transaction(timeout=PATIENCE_SECONDS):
        zombie.send("out", "0", partition=0)
        zombie.flush()
        with heir.transaction(timeout=PATIENCE_SECONDS):
            heir.send("out", "1", partition=0)
        zombie.send("out", "2", partition=0)


def send_and_sleep(broker, producer, more=None):
    """Run a transaction that its coordinator aborts before it is committed, or writes ``more``."""
    with producer.transaction():
        producer.send("out", "late", partition=0)
        producer.flush()
        broker.clock.advance("2m")
        if more is not None:
            producer.send("out", more, partition=0)


def send_without_offsets(producer, offsets):
    """Go on in a transaction after its offsets could not be sent in time."""
    with producer.transaction() as transaction:
        producer.send("out", "1", partition=0)
        with pytest.raises(ottla.TimedOut):
            transaction.commit_offsets("g", offsets, timeout=0.5)


def test_offsets_whose_time_is_up_abort_the_transaction(broker, client):
    """A caller who goes on all the same would write its output without its offsets."""
    client.admin.create_topic("out", partitions=PARTITIONS)
    fault = broker.faults.error("TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
    offsets = {TopicPartition("out", 0): 7}
    with client.producer(transactional_id="tx") as producer, fault:
        with pytest.raises(ottla.ClientError, match="nobody knows"):
            send_without_offsets(producer, offsets)
        fault.heal()
    assert read_committed(client, "out") == []


def test_what_spoiled_a_transaction_is_told_though_it_cannot_be_aborted(broker, client):
    """The refusal to abort says nothing of what went wrong."""
    client.admin.create_topic("out", partitions=PARTITIONS)
    with client.producer(transactional_id="tx") as producer:
        spoiled = broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED")
        unended = broker.faults.error("EndTxn", "INVALID_TXN_STATE")
        with spoiled, unended, pytest.raises(ottla.NotAllowed), producer.transaction():
            producer.send("out", "1", partition=0)
        with producer.transaction():
            producer.send("out", "2", partition=0)
    assert [each.value for each in read_committed(client, "out")] == [b"2"]


OF_BOTH = ("OffsetFetch", "ListOffsets", "Fetch", "FindCoordinator", "Metadata")
STARTS = [("consumer", api) for api in ("ConsumerGroupHeartbeat", *OF_BOTH)]
STARTS += [("classic", api) for api in ("JoinGroup", "SyncGroup", *OF_BOTH)]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("protocol", "api"), STARTS)
def test_a_lost_request_at_the_start_leaves_the_consumer_reading(
    broker, client, protocol, api, after
):
    client.admin.create_topic("t")
    client.produce("t", "1")
    options = {"group": "g", "auto_offset_reset": "earliest", "group_protocol": protocol}
    fault = broker.faults.drop(api, after=after)
    with client.consumer("t", **options) as consumer:
        assert read(consumer, 1)[0].value == b"1"
    assert fault.struck == 1


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_start_that_failed_is_tried_again_by_the_next_read(broker, client, protocol):
    """The group has given the partitions, but where to begin could not be asked."""
    client.admin.create_topic("t")
    client.produce("t", "1")
    options = {"group": "g", "auto_offset_reset": "earliest", "group_protocol": protocol}
    with client.consumer("t", **options) as consumer:
        fault = broker.faults.error("ListOffsets", "TOPIC_AUTHORIZATION_FAILED")
        with fault, pytest.raises(ottla.NotAllowed):
            read(consumer, 1)
        assert read(consumer, 1)[0].value == b"1"


async def test_a_transaction_that_is_given_up_at_any_moment_does_not_fence_its_own_producer(broker):
    """A coordinator says PRODUCER_FENCED to a raised epoch until the end before is complete."""
    topic, rng, committed = broker.create_topic(), random.Random(2), []
    with broker.faults.slow_disk(up_to="5ms", seed=1):
        async with ottla.AsyncClient(broker.bootstrap) as client:
            producer = client.producer(transactional_id="given up")
            for number in range(120):

                async def work(number=number):
                    async with producer.transaction():
                        await producer.send(topic, str(number))

                task = asyncio.create_task(work())
                await asyncio.sleep(rng.random() * 0.03)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                    committed.append(number)
            async with producer.transaction():
                await producer.send(topic, "last")
        # A commit is answered before its markers are written.
        found = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while found[-1:] != ["last"]:
                await asyncio.sleep(0.01)
                found = [each.value.decode() for each in broker.records(topic)]
    assert len(found) == len(set(found))
    assert {str(number) for number in committed} <= {*found}
