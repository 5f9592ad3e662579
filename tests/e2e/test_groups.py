"""Consumer groups as other people's clients use them."""

import asyncio
import contextlib
import threading
import time

import pytest

PARTITIONS = 6
OPTIONS = {"group.initial.rebalance.delay.ms": 0}
# Other people's code, other people's warnings.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def broker(ottla_server_factory):
    return ottla_server_factory(OPTIONS)


def create(bootstrap, topic, partitions=PARTITIONS):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(bootstrap, topic, numbers, partitions=PARTITIONS):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


class Confluent:
    """librdkafka."""

    def __init__(self, bootstrap, topic, group, **options):
        from confluent_kafka import Consumer

        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
                "session.timeout.ms": 10_000,
                "log_level": 0,
            }
            | options
        )
        self.consumer.subscribe([topic])

    def poll(self):
        return [(m.partition(), int(m.value())) for m in self.consumer.consume(500, 0.2)]

    def commit(self):
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            self.consumer.commit(asynchronous=False)

    def owned(self):
        return {one.partition for one in self.consumer.assignment()}

    def close(self):
        self.consumer.close()


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap, topic, group):
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1000,
            # It may join before its first metadata are there, and assigns no partitions then: it
            # looks for them again at this age, not at once. (Five minutes by default.)
            metadata_max_age_ms=2000,
            partition_assignment_strategy=[RangePartitionAssignor],
        )

    def poll(self):
        # A poll that ends while a SyncGroup is on its way leaves kafka-python 3.0 for ever without
        # heartbeats and partitions: it has time for that.
        found = self.consumer.poll(200 if self.consumer.assignment() else 4000)
        return [(m.partition, int(m.value)) for rows in found.values() for m in rows]

    def commit(self):
        from kafka.errors import KafkaError

        with contextlib.suppress(KafkaError):
            self.consumer.commit()

    def owned(self):
        return {one.partition for one in self.consumer.assignment()}

    def close(self):
        self.consumer.close(autocommit=False)


class AioKafka:
    """aiokafka, with a loop of its own."""

    def __init__(self, bootstrap, topic, group):
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        self.loop = asyncio.new_event_loop()

        async def start():
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=10_000,
                heartbeat_interval_ms=1000,
                partition_assignment_strategy=[RangePartitionAssignor],
            )
            await consumer.start()
            return consumer

        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.consumer = self.run(start())

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def poll(self):
        found = self.run(self.consumer.getmany(timeout_ms=200))
        return [(m.partition, int(m.value)) for rows in found.values() for m in rows]

    def commit(self):
        from aiokafka.errors import KafkaError

        with contextlib.suppress(KafkaError):
            self.run(self.consumer.commit())

    def owned(self):
        return {one.partition for one in self.consumer.assignment()}

    def close(self):
        self.run(self.consumer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()


CLIENTS = {"confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": AioKafka}


class Crowd:
    """Members that poll and commit side by side, each in a thread of its own."""

    def __init__(self):
        self.read, self.members = [], {}
        self.once = set()
        self.failures = []

    def add(self, name, make):
        stop = threading.Event()
        state = {"stop": stop}

        def run():
            try:
                member = make()
                state["member"] = member
                while not stop.is_set():
                    rows = member.poll()
                    self.read += rows
                    if rows:
                        member.commit()
                    state["owned"] = member.owned()
                member.close()
            except Exception as error:  # noqa: BLE001 - told at the end
                self.failures.append((name, error))

        state["thread"] = threading.Thread(target=run, daemon=True)
        state["thread"].start()
        self.members[name] = state

    def remove(self, *names):
        for name in names:
            self.members[name]["stop"].set()
        for name in names:
            self.members.pop(name)["thread"].join(60)

    def owned(self):
        return {name: state.get("owned", set()) for name, state in self.members.items()}

    def wait(self, satisfied, seconds=60):
        deadline = time.monotonic() + seconds
        while not satisfied():
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, (self.owned(), len(self.read))
            time.sleep(0.05)

    def wait_for_all(self, count, *, once_from):
        """Wait until the first ``count`` numbers, and no others, are read.

        Those from ``once_from`` on were written while nobody came or went: they are read once, and
        in the order of their partition. Of others some may come again: whoever had them did not
        get to commit.
        """
        self.wait(lambda: {number for _, number in self.read} == set(range(count)))
        self.once.update(range(once_from, count))
        self.check()

    def check(self):
        """Assert what ``wait_for_all`` says; at the end, too: what comes again comes late."""
        by_partition = {}
        for partition, number in list(self.read):
            if number in self.once:
                by_partition.setdefault(partition, []).append(number)
        for partition, numbers in by_partition.items():
            assert numbers == sorted(set(numbers)), f"partition {partition}: {numbers}"
        assert sum(map(len, by_partition.values())) == len(self.once)

    def wait_for_shares(self):
        """Wait until every partition has one owner, and every member has its share."""

        def shared():
            owned = self.owned()
            every = [partition for one in owned.values() for partition in one]
            fair = PARTITIONS // len(owned)
            return sorted(every) == list(range(PARTITIONS)) and all(
                len(one) >= fair for one in owned.values()
            )

        self.wait(shared)


@pytest.fixture
def crowd():
    together = Crowd()
    yield together
    together.remove(*together.members)
    assert not together.failures, together.failures
    together.check()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_goes_on_where_it_was(broker, topic_name, client):
    create(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, range(600))
    make = CLIENTS[client]
    seen = []
    for expected in (600, 900):
        with contextlib.closing(make(broker.bootstrap, topic_name, "g")) as member:
            deadline = time.monotonic() + 60
            while len(seen) < expected:
                assert time.monotonic() < deadline, len(seen)
                seen += member.poll()
            member.commit()
        if expected == 600:
            broker.kill9()
            broker.start()
            produce(broker.bootstrap, topic_name, range(600, 900))
    assert sorted(number for _, number in seen) == list(range(900))


def test_members_of_three_clients_share_one_group(broker, topic_name, crowd):
    create(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, range(3000))
    for name, make in CLIENTS.items():
        crowd.add(name, lambda make=make: make(broker.bootstrap, topic_name, "mixed"))
    crowd.wait_for_shares()
    produce(broker.bootstrap, topic_name, range(3000, 6000))
    crowd.wait_for_all(6000, once_from=3000)
    crowd.remove("aiokafka")
    crowd.wait_for_shares()
    produce(broker.bootstrap, topic_name, range(6000, 7000))
    crowd.wait_for_all(7000, once_from=6000)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go(broker, topic_name, crowd, strategy):
    create(broker.bootstrap, topic_name)
    options = {"partition.assignment.strategy": strategy}

    def make():
        return Confluent(broker.bootstrap, topic_name, "rolling", **options)

    sent = 0
    for name in ("a", "b", "c"):
        crowd.add(name, make)
        crowd.wait_for_shares()
        produce(broker.bootstrap, topic_name, range(sent, sent + 600))
        sent += 600
    for name in ("a", "b"):
        crowd.remove(name)
        crowd.wait_for_shares()
        produce(broker.bootstrap, topic_name, range(sent, sent + 600))
        sent += 600
    crowd.wait_for_all(sent, once_from=sent - 600)


def test_a_static_member_restarts_without_a_rebalance(broker, topic_name, crowd):
    create(broker.bootstrap, topic_name)

    def make(name):
        return Confluent(broker.bootstrap, topic_name, "static", **{"group.instance.id": name})

    for name in ("a", "b"):
        crowd.add(name, lambda name=name: make(name))
    crowd.wait_for_shares()
    before = crowd.owned()
    crowd.remove("b")
    crowd.add("b", lambda: make("b"))
    crowd.wait(lambda: crowd.owned() == before)
    produce(broker.bootstrap, topic_name, range(600))
    crowd.wait_for_all(600, once_from=0)


def test_a_group_outlives_the_broker(broker, topic_name, crowd):
    """Members stay members over a kill -9: their next heartbeat finds the group as it was."""
    create(broker.bootstrap, topic_name)
    for name in ("a", "b"):
        crowd.add(name, lambda: Confluent(broker.bootstrap, topic_name, "alive"))
    crowd.wait_for_shares()
    produce(broker.bootstrap, topic_name, range(600))
    crowd.wait_for_all(600, once_from=600)  # The last commit may not get through.
    broker.kill9()
    broker._asked_port = broker.port  # Its clients know no other.
    broker.start()
    produce(broker.bootstrap, topic_name, range(600, 1200))
    crowd.wait_for_all(1200, once_from=600)
    crowd.wait_for_shares()


def test_offsets_survive_compaction(ottla_server_factory, topic_name):
    """What the cleaner leaves of the log is what was committed last, also after kill -9."""
    from confluent_kafka import Consumer, TopicPartition

    broker = ottla_server_factory(
        OPTIONS
        | {
            "offsets.topic.num.partitions": 1,
            "offsets.topic.segment.bytes": 1 << 20,
            "log.cleaner.backoff.ms": 100,
            "log.cleaner.min.cleanable.ratio": 0.01,
        }
    )
    create(broker.bootstrap, topic_name)
    consumers = [
        Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "log_level": 0})
        for name in ("kept", "moved")
    ]

    def committed(consumer):
        found = consumer.committed([TopicPartition(topic_name, index) for index in range(6)], 30)
        return [one.offset for one in found]

    def commit(consumer, offset):
        offsets = [
            TopicPartition(topic_name, index, offset, metadata="x" * 4000) for index in range(6)
        ]
        consumer.commit(offsets=offsets, asynchronous=False)

    def size():
        logs = broker.data.glob("__consumer_offsets-0/*.log")
        return sum(path.stat().st_size for path in logs)

    commit(consumers[0], 7)
    for offset in range(100):  # 24 kB each: more than two segments.
        commit(consumers[1], offset)
    deadline = time.monotonic() + 60
    while size() > 1_100_000:
        assert time.monotonic() < deadline, size()
        time.sleep(0.1)
    assert [committed(consumer) for consumer in consumers] == [[7] * 6, [99] * 6]
    broker.kill9()
    broker._asked_port = broker.port
    broker.start()
    assert [committed(consumer) for consumer in consumers] == [[7] * 6, [99] * 6]
    for consumer in consumers:
        consumer.close()


# Apache Kafka's own tools.

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.mark.kafka
def test_java_consumer_and_group_command(broker, topic_name, kafka_tool):
    create(broker.bootstrap, topic_name, 2)
    produce(broker.bootstrap, topic_name, range(100), 2)
    at = ("--bootstrap-server", broker.bootstrap)

    def console():
        read = kafka_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *(*at, "--topic", topic_name, "--group", "java", "--from-beginning"),
            *("--timeout-ms", 5000),
        )
        return sorted(int(line) for line in read.splitlines() if line.isdigit())

    def command(*arguments, **options):
        return kafka_tool(COMMAND, *at, *arguments, **options)

    assert console() == list(range(100))
    assert console() == []
    told = command("--describe", "--group", "java").split()
    assert told.count(topic_name) == 2
    assert told.count("50") == 4, "committed and end, of both partitions"
    assert "Empty" in command("--describe", "--group", "java", "--state")
    reset = ("--reset-offsets", "--group", "java", "--topic", topic_name)
    assert command(*reset, "--shift-by", -10, "--dry-run").split().count("40") == 2
    assert command(*reset, "--to-offset", 45, "--execute").split().count("45") == 2
    assert console() == list(range(90, 100))
    deleted = command("--delete-offsets", "--group", "java", "--topic", topic_name)
    assert deleted.count("Successful") == 2
    assert "was successful" in command("--delete", "--group", "java")
    assert "java" not in command("--list").split()
