"""Transactions as other people's clients use them, with the broker killed between their steps."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path

import pytest

from tools.wire_client import WireClient

RECORDS = 3000
KILLS = 5
STAYS = {"metadata.recovery.strategy": "none"}
"""librdkafka forgets all brokers when the last has gone (KIP-1102), and then waits for ever for the
group coordinator that it remembers: the one that it has forgotten."""
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


def create(broker, *topics):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        made.result(30)


def producer(broker, transactional_id, **options):
    from confluent_kafka import Producer

    made = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            **STAYS,
            "log_level": 0,
        }
        | options
    )
    made.init_transactions(40)
    return made


def read(broker, topic, isolation="read_committed"):
    """Return the values up to where such a reader may look now."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    values, ended = [], set()
    deadline = time.monotonic() + 40
    while len(ended) < 2 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error():
            ended.add(message.partition())
        elif message is not None:
            values.append(message.value())
    consumer.close()
    assert len(ended) == 2
    return values


def write(broker, made, topic, values, *, commit=True):
    made.begin_transaction()
    for number, value in enumerate(values):
        made.produce(topic, value, partition=number % 2)
    assert made.flush(30) == 0
    (made.commit_transaction if commit else made.abort_transaction)(30)


def test_readers_of_what_is_committed_see_whole_transactions(broker):
    create(broker, "t")
    made = producer(broker, "a")
    wanted = []
    for number in range(12):
        values = [b"%d-%d" % (number, index) for index in range(20)]
        commit = number % 3 != 1
        write(broker, made, "t", values, commit=commit)
        wanted += values if commit else []
    made.begin_transaction()
    made.produce("t", b"open", partition=0)
    assert made.flush(30) == 0
    assert sorted(read(broker, "t")) == sorted(wanted)
    everything = read(broker, "t", "read_uncommitted")
    assert len(everything) == 12 * 20 + 1
    made.commit_transaction(30)
    assert sorted(read(broker, "t")) == sorted([*wanted, b"open"])


def test_a_second_instance_fences_the_first(broker):
    from confluent_kafka import KafkaException

    create(broker, "t")
    old = producer(broker, "a")
    old.begin_transaction()
    old.produce("t", b"zombie", partition=0)
    assert old.flush(30) == 0
    new = producer(broker, "a")
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(30)
    assert caught.value.args[0].name() == "_FENCED"
    write(broker, new, "t", [b"fresh"])
    assert read(broker, "t") == [b"fresh"]


def test_a_transaction_that_is_left_open_is_aborted_in_time(broker):
    other = producer(broker, "b")
    timeout_seconds = 3.0
    while True:
        topic = f"t-{timeout_seconds}"
        create(broker, topic)
        made = producer(broker, "a", **{"transaction.timeout.ms": int(timeout_seconds * 1000)})
        made.begin_transaction()
        began = time.monotonic()
        made.produce(topic, b"left", partition=0)
        assert made.flush(60) == 0
        write(broker, other, topic, [b"behind"])
        found = read(broker, topic)
        if time.monotonic() < began + timeout_seconds:
            break
        # The machine was too busy to look in time: begin anew, with more of it.
        timeout_seconds *= 2
    assert found == []
    while not (found := read(broker, topic)):
        assert time.monotonic() < began + timeout_seconds + 60
        time.sleep(0.1)
    assert time.monotonic() >= began + timeout_seconds
    assert found == [b"behind"]


def test_python_clients_agree(broker):
    aiokafka = pytest.importorskip("aiokafka")
    kafka = pytest.importorskip("kafka")
    create(broker, "t")

    async def write_both():
        made = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="aiokafka"
        )
        await made.start()
        async with made.transaction():
            await made.send_and_wait("t", b"aiokafka", partition=0)
        with contextlib.suppress(ValueError):
            async with made.transaction():
                await made.send_and_wait("t", b"not aiokafka", partition=0)
                raise ValueError
        await made.stop()

    async def read_all():
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, isolation_level="read_committed"
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition("t", index) for index in range(2)])
        await consumer.seek_to_beginning()
        found = []
        while len(found) < 2:
            for messages in (await consumer.getmany(timeout_ms=20_000)).values():
                found += [message.value for message in messages]
        await consumer.stop()
        return found

    asyncio.run(write_both())
    made = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="kafka-python")
    made.init_transactions()
    for value, end in ((b"kafka-python", "commit_transaction"), (b"no", "abort_transaction")):
        made.begin_transaction()
        made.send("t", value, partition=1).get(timeout=30)
        getattr(made, end)()
    made.close()
    assert sorted(asyncio.run(read_all())) == [b"aiokafka", b"kafka-python"]
    assert sorted(read(broker, "t")) == [b"aiokafka", b"kafka-python"]


@pytest.mark.kafka
def test_java_clients_raise_their_epoch_with_every_transaction(broker, kafka_tool):
    create(broker, "in", "out")
    copy = Path(__file__).parent / "java" / "TransactionalCopy.java"
    told = kafka_tool(copy, broker.bootstrap, 1000, timeout=120)
    assert "copied 1000" in told
    assert "fenced" in told
    wanted = [b"%d-%d" % (number, index) for number in range(0, 20, 2) for index in range(100)]
    assert sorted(read(broker, "in")) == sorted(wanted)
    assert sorted(read(broker, "out")) == sorted(wanted)
    with WireClient(broker.bootstrap) as wire:
        answer = wire.call("list_transactions", 1, duration_filter=-1)
        (sink,) = [one for one in answer["transaction_states"] if one["transactional_id"] == "sink"]
        asked = [{"name": "out", "partition_indexes": [0]}]
        (part,) = wire.call("describe_producers", 0, topics=asked)["topics"][0]["partitions"]
        epochs = {one["producer_id"]: one["producer_epoch"] for one in part["active_producers"]}
    assert epochs[sink["producer_id"]] >= 20, "a transaction of version 2 has an epoch of its own"


@pytest.mark.kafka
def test_kafkas_tools_see_end_and_read_transactions(broker, kafka_tool):
    create(broker, "t")
    made = producer(broker, "mine")
    made.begin_transaction()
    made.produce("t", b"left", partition=0)
    assert made.flush(30) == 0

    def command(*arguments):
        told = kafka_tool(
            "org.apache.kafka.tools.TransactionsCommand",
            *("--bootstrap-server", broker.bootstrap, *arguments),
        )
        return [line.split() for line in told.splitlines()[1:]]

    assert [(line[0], line[3]) for line in command("list")] == [("mine", "Ongoing")]
    (line,) = command("describe", "--transactional-id", "mine")
    assert (line[4], line[-1]) == ("Ongoing", "t-0")
    command("forceTerminateTransaction", "--transactionalId", "mine")
    deadline = time.monotonic() + 20
    while command("list")[0][3] == "Ongoing" and time.monotonic() < deadline:
        pass
    assert read(broker, "t") == []
    broker.kill9()
    logs = Path(broker.data).glob("__transaction_state-*/*.log")
    (log,) = [path for path in logs if path.stat().st_size]
    told = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", log
    )
    for text in ('"transactionalId":"mine"', '"transactionStatus":3', '"transactionStatus":5'):
        assert text in told


class Application:
    """Reads a topic and writes it to another one, each record once, whatever happens."""

    def __init__(self, broker):
        self.broker = broker
        self.count = 0
        self.restarts = 0
        self.is_over = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        from confluent_kafka import KafkaException

        try:
            while not self.is_over.is_set():
                with contextlib.suppress(KafkaException):
                    self.live()
                self.restarts += 1
        except BaseException as error:  # noqa: BLE001 - told by stop
            self.failure = error

    def live(self):
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "application",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                **STAYS,
                "log_level": 0,
            }
        )
        try:
            made = producer(self.broker, "application", **{"transaction.timeout.ms": 10_000})
            consumer.subscribe(["in"])
            while not self.is_over.is_set():
                messages = [one for one in consumer.consume(20, 0.5) if not one.error()]
                if not messages:
                    continue
                made.begin_transaction()
                for message in messages:
                    made.produce("out", message.value(), partition=message.partition())
                made.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()),
                    consumer.consumer_group_metadata(),
                    10,
                )
                made.commit_transaction(10)
                self.count += len(messages)
        finally:
            consumer.close()

    def stop(self):
        self.is_over.set()
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.failure is None


def test_an_application_and_a_killed_broker_lose_and_repeat_nothing(broker):
    create(broker, "in", "out")
    broker._asked_port = broker.port  # Its clients know no other.
    source = producer(broker, "source")
    values = [b"%d" % number for number in range(RECORDS)]
    write(broker, source, "in", values)
    application = Application(broker)
    kills, committed = 0, []
    deadline = time.monotonic() + 140
    try:
        while len(committed) < RECORDS and time.monotonic() < deadline:
            goal = (kills + 1) * RECORDS // (KILLS + 2)
            while kills < KILLS and application.count < goal and time.monotonic() < deadline:
                time.sleep(0.01)
            if kills < KILLS:
                broker.kill9()
                kills += 1
                broker.start()
            else:
                time.sleep(0.5)
                committed = read(broker, "out")
    finally:
        application.stop()
    assert kills == KILLS
    assert sorted(read(broker, "out")) == sorted(values)
