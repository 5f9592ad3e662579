"""Transactions whose coordinator, partitions and group are on different nodes."""

import threading
import time

import pytest

from tests.nodes import Nodes

PARTITIONS = 6
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def nodes():
    with Nodes({"transaction.state.log.num.partitions": "3"}) as nodes:
        nodes.start(1, 2, 3)
        yield nodes


def create(nodes, *topics):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    for one in made.values():
        one.result(30)


def producer_of(nodes, name, **options):
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "transactional.id": name,
            "log_level": 0,
            "linger.ms": 1,
            "socket.timeout.ms": 10_000,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 50,
            **options,
        }
    )
    producer.init_transactions(30)
    return producer


def read_committed(nodes, topic, *, count=None, seconds=30):
    """Return (key, value) of all that is committed; ``count``: wait until there is as much."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    where = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
    consumer.assign(where)
    found, deadline, at_end = [], time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        messages = consumer.consume(1000, 0.1)
        found += [(message.key(), message.value()) for message in messages]
        at_end = 0 if messages else at_end + 1
        if (count is not None and len(found) >= count) or (count is None and at_end >= 10):
            break
    consumer.close()
    return found


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e", "f"])
def test_what_is_aborted_stays_unseen_and_what_is_committed_is_seen_on_all_nodes(nodes, name):
    create(nodes, "t")
    producer = producer_of(nodes, name)
    for number in range(4):
        producer.begin_transaction()
        for index in range(PARTITIONS):
            producer.produce("t", b"%d" % number, b"%d" % number, partition=index)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    found = read_committed(nodes, "t", count=2 * PARTITIONS)
    assert sorted(found) == sorted([(b"0", b"0"), (b"2", b"2")] * PARTITIONS)


def test_a_groups_offsets_take_effect_with_the_transaction_wherever_they_are(nodes):
    from confluent_kafka import Consumer, TopicPartition

    create(nodes, "in")
    for group in ("g-0", "g-1", "g-2", "g-3"):
        consumer = Consumer(
            {"bootstrap.servers": nodes.bootstrap, "group.id": group, "log_level": 0}
        )
        where = TopicPartition("in", 0)
        wanted = TopicPartition("in", 0, 5)
        producer = producer_of(nodes, f"of {group}")
        for is_commit in (False, True):
            producer.begin_transaction()
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([wanted], metadata, 30)
            (producer.commit_transaction if is_commit else producer.abort_transaction)(30)
            deadline = time.monotonic() + 30
            while (found := consumer.committed([where], 30)[0].offset) != 5 and is_commit:
                assert time.monotonic() < deadline
            assert (found == 5) == is_commit
        consumer.close()


class Writer:
    """Writes numbered transactions of one record per partition until it is told to stop."""

    def __init__(self, nodes, name):
        self.nodes = nodes
        self.name = name
        self.committed, self.unknown = set(), set()
        self.stop = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            self.write()
        except Exception as error:  # noqa: BLE001 - the test's thread raises it
            self.failure = error

    def write(self):
        from confluent_kafka import KafkaException

        producer, number = producer_of(self.nodes, self.name), 0
        while not self.stop.is_set():
            number += 1
            key = f"{self.name} {number}".encode()
            try:
                producer.begin_transaction()
                for index in range(PARTITIONS):
                    producer.produce("t", key, key, partition=index)
                if number % 5 == 0:
                    producer.abort_transaction(20)
                    continue
                self.unknown.add(key)
                producer.commit_transaction(20)
                self.committed.add(key)
                self.unknown.discard(key)
            except KafkaException as error:
                try:
                    if not error.args[0].fatal():
                        producer.abort_transaction(20)
                        self.unknown.discard(key)
                        continue
                except KafkaException:
                    pass
                producer = producer_of(self.nodes, self.name)


@pytest.mark.slow
def test_nodes_that_are_killed_tear_no_transaction(nodes):
    create(nodes, "t")
    writers = [Writer(nodes, name) for name in ("a", "b", "c")]
    try:
        for victim in (2, 3, 1):
            before = sum(len(writer.committed) for writer in writers)
            wait_for_more(writers, before + 10)
            nodes.kill(victim)
            time.sleep(0.3)  # As long as a restart takes; what happens meanwhile may be anything.
            nodes.start(victim)
        wait_for_more(writers, sum(len(writer.committed) for writer in writers) + 10)
    finally:
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.thread.join(50)
    assert [writer.failure for writer in writers] == [None] * 3
    committed = set().union(*(writer.committed for writer in writers))
    unknown = set().union(*(writer.unknown for writer in writers))
    expected = len(committed) * PARTITIONS
    found = [key for key, _ in read_committed(nodes, "t")]
    deadline = time.monotonic() + 30
    while len(found) < expected and time.monotonic() < deadline:
        found = [key for key, _ in read_committed(nodes, "t")]
    counts = {key: found.count(key) for key in set(found)}
    assert committed <= counts.keys() <= committed | unknown
    assert set(counts.values()) == {PARTITIONS}


def wait_for_more(writers, count):
    deadline = time.monotonic() + 40
    while sum(len(writer.committed) for writer in writers) < count:
        assert time.monotonic() < deadline
        assert not any(writer.failure for writer in writers)
        time.sleep(0.01)
