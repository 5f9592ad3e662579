"""Groups of the newer protocol (KIP-848) as librdkafka and Java's consumer use them."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTITIONS = 12
RECORDS = 6_000
OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.assignment.interval.ms": 100,
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def broker(ottla_server_factory):
    return ottla_server_factory(OPTIONS)


def create(bootstrap, topic, partitions=PARTITIONS):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return admin


def produce(bootstrap, topic, numbers, partitions=PARTITIONS):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(60) == 0


class Reader(threading.Thread):
    """A member in a thread of its own; it commits what it has read, and may stop or vanish."""

    def __init__(self, bootstrap, topics, group="g", **options):
        super().__init__(daemon=True)
        self.options = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **options,
        }
        self.topics = topics
        self.read = []
        self.owned = set()
        self.failures = []
        self.is_committed = False
        self.ended = threading.Event()
        self.start()

    def run(self):
        from confluent_kafka import Consumer

        consumer = Consumer(self.options)
        consumer.subscribe(self.topics)
        while not self.ended.is_set():
            messages = consumer.consume(200, 0.1)
            self.is_committed &= not messages
            for message in messages:
                if message.error():
                    self.failures.append(message.error())
                else:
                    self.read.append(int(message.value()))
            self.is_committed = commits(consumer)
            self.owned = {(one.topic, one.partition) for one in consumer.assignment()}
        consumer.close()

    def stop(self):
        self.ended.set()
        self.join(30)
        assert not self.is_alive()


def commits(consumer):
    """Commit what was read, and tell whether nothing is left: in a rebalance the broker refuses."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        return error.args[0].code() == KafkaError._NO_OFFSET
    return True


def wait_for(is_so, seconds=40):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def share(readers):
    """Tell whether every partition is owned once, and nobody has two more than another."""
    owned = [one for reader in readers for one in reader.owned]
    sizes = [len(reader.owned) for reader in readers]
    return len(owned) == len(set(owned)) == PARTITIONS and max(sizes) - min(sizes) <= 1


def test_members_come_and_go_and_every_record_is_read(broker):
    create(broker.bootstrap, "t")
    numbers = iter(range(RECORDS))
    produce(broker.bootstrap, "t", [next(numbers) for _ in range(RECORDS // 3)])
    readers = [Reader(broker.bootstrap, ["t"])]
    wait_for(lambda: share(readers))
    readers += [Reader(broker.bootstrap, ["t"]) for _ in range(3)]
    wait_for(lambda: share(readers))
    produce(broker.bootstrap, "t", [next(numbers) for _ in range(RECORDS // 3)])
    gone = [readers.pop(0), readers.pop(0)]
    for one in gone:
        one.stop()
    wait_for(lambda: share(readers))
    produce(broker.bootstrap, "t", list(numbers))
    readers.append(Reader(broker.bootstrap, ["t"]))
    wait_for(lambda: share(readers))

    def read():
        return {number for one in (*gone, *readers) for number in one.read}

    wait_for(lambda: read() == set(range(RECORDS)) and all(one.is_committed for one in readers))
    for one in readers:
        one.stop()
    assert not any(one.failures for one in (*gone, *readers))
    again = Reader(broker.bootstrap, ["t"])
    wait_for(lambda: share([again]))
    time.sleep(1)  # Nothing comes: that takes a while to show.
    again.stop()
    assert again.read == [], "what was committed is not read again"


def test_the_group_goes_on_after_kill_9_of_the_broker(broker):
    create(broker.bootstrap, "t")
    produce(broker.bootstrap, "t", range(1000))
    readers = [Reader(broker.bootstrap, ["t"]) for _ in range(2)]
    wait_for(lambda: share(readers))
    broker.kill9()
    broker._asked_port = broker.port  # Its clients know no other.
    broker.start()
    produce(broker.bootstrap, "t", range(1000, 2000))
    wait_for(lambda: {n for one in readers for n in one.read} == set(range(2000)))
    wait_for(lambda: share(readers))
    for one in readers:
        one.stop()


def test_a_regular_expression_follows_topics_that_come(broker):
    create(broker.bootstrap, "orders-1", 2)
    create(broker.bootstrap, "other", 2)
    reader = Reader(broker.bootstrap, ["^orders-.*"])
    wait_for(lambda: {topic for topic, _ in reader.owned} == {"orders-1"})
    create(broker.bootstrap, "orders-2", 2)
    wait_for(lambda: {topic for topic, _ in reader.owned} == {"orders-1", "orders-2"})
    reader.stop()


def test_more_partitions_are_shared_out(broker):
    from confluent_kafka.admin import NewPartitions

    admin = create(broker.bootstrap, "t", 2)
    readers = [Reader(broker.bootstrap, ["t"]) for _ in range(2)]
    wait_for(lambda: sum(len(one.owned) for one in readers) == 2)
    admin.create_partitions([NewPartitions("t", PARTITIONS)])["t"].result(30)
    wait_for(lambda: share(readers))
    for one in readers:
        one.stop()


def test_javas_consumer_reads_as_a_member(broker, kafka_libs):
    create(broker.bootstrap, "t")
    produce(broker.bootstrap, "t", range(500))
    done = subprocess.run(
        [
            *("java", "-Xmx256m", "-cp", f"{kafka_libs}/*"),
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.bootstrap, "--topic", "t", "--from-beginning"),
            *("--group", "g", "--max-messages", "500", "--timeout-ms", "30000"),
            *("--command-property", "group.protocol=consumer"),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert sorted(map(int, done.stdout.split())) == list(range(500)), done.stderr


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_goes_over_member_by_member_and_back(broker, strategy):
    from confluent_kafka import KafkaError

    classic = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
    classic |= {"heartbeat.interval.ms": 200, "session.timeout.ms": 6_000}
    admin = create(broker.bootstrap, "t")
    gone, numbers = [], iter(range(RECORDS))
    readers = [Reader(broker.bootstrap, ["t"], **classic) for _ in range(3)]

    def kind():
        found = admin.list_consumer_groups().result(30).valid
        return [one.type.name for one in found if one.group_id == "g"]

    wait_for(lambda: share(readers))
    assert kind() == ["CLASSIC"]
    for options, after in (({}, "CONSUMER"), (classic, "CLASSIC")):
        for _ in range(3):
            produce(broker.bootstrap, "t", [next(numbers) for _ in range(RECORDS // 6)])
            gone.append(readers.pop(0))
            gone[-1].stop()
            readers.append(Reader(broker.bootstrap, ["t"], **options))
            wait_for(lambda: share(readers))
        assert kind() == [after]

    def read():
        return {number for one in (*gone, *readers) for number in one.read}

    wait_for(lambda: read() == set(range(RECORDS)) and all(one.is_committed for one in readers))
    for one in readers:
        one.stop()
    # Who waits in JoinGroup when the group goes over is told to come again, by Kafka, too.
    told = KafkaError.REBALANCE_IN_PROGRESS
    assert {one.code() for reader in (*gone, *readers) for one in reader.failures} <= {told}
    again = Reader(broker.bootstrap, ["t"])
    wait_for(lambda: share([again]))
    time.sleep(1)  # Nothing comes: that takes a while to show.
    again.stop()
    assert again.read == [], "what was committed is not read again"


def test_a_short_campaign():
    script = ROOT / "tests" / "campaigns" / "consumer_groups.py"
    done = subprocess.run(
        [sys.executable, script, "--seconds", "12", "--members", "20", "--partitions", "40"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["counts"]["kills"] >= 1
