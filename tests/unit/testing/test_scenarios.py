"""Named scenarios: the same seed plans the same, and real clients meet what they are named for."""

import asyncio
import os
import subprocess
import sys

import aiokafka
import pytest
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from ottla.env.rng import SeededRng
from ottla.testing import Broker, scenarios

pytestmark = pytest.mark.slow
RECORDS_MAX = 2_000


@pytest.fixture(params=["thread", "process"])
def broker(request):
    with Broker(process=request.param == "process") as made:
        yield made


def producer_of(broker, **options):
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 0,
            "retry.backoff.ms": 5,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
            "enable.idempotence": True,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )


def write(producer, topic, value):
    producer.produce(topic, value)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    "drawn",
    [
        lambda rng: scenarios.rolling_restart(rng, times=5, away_seconds=0.1),
        lambda rng: scenarios.leader_moves(rng, times=5, topic="t", partition=None),
        lambda rng: scenarios.zombie_producer(rng, transactional_id="x", within=50),
        lambda rng: scenarios.slow_disk(rng, up_to_seconds=1.0),
    ],
)
def test_a_seed_plans_the_same_and_another_one_something_else(drawn):
    assert drawn(SeededRng(1)) == drawn(SeededRng(1))
    assert len({str(drawn(SeededRng(seed))) for seed in range(20)}) > 10


def test_a_drawn_seed_is_told_and_repeats_the_scenario(in_thread):
    said = [in_thread.faults.slow_disk().what for _ in range(2)]
    assert said[0] != said[1]
    assert said[0].startswith("slow_disk(up_to='50ms', seed=")
    again = in_thread.faults.slow_disk(seed=int(said[0][:-1].split("seed=")[1]))
    assert again.what == said[0]
    in_thread.faults.clear()


def test_a_rolling_restart_loses_and_doubles_nothing(broker):
    topic = broker.create_topic(partitions=2)
    producer = producer_of(broker)
    written = 0
    with broker.faults.rolling_restart(seed=7) as scenario:
        while scenario.struck < 3 and written < RECORDS_MAX:
            write(producer, topic, b"%d" % written)
            written += 1
        assert scenario.struck == 3
    assert sorted(int(each.value) for each in broker.records(topic)) == list(range(written))
    another = broker.create_topic()  # The broker's own calls go on, whichever is the first.
    assert broker.produce(another, "v").offset == 0
    broker.restart()
    broker.delete_topic(another)


async def test_aiokafka_gets_over_a_rolling_restart(in_thread):
    topic = in_thread.create_topic()
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=in_thread.bootstrap, enable_idempotence=True, retry_backoff_ms=10
    ) as producer:
        written = 0
        with in_thread.faults.rolling_restart(times=2, seed=3) as scenario:
            while scenario.struck < 2 and written < RECORDS_MAX:
                await producer.send_and_wait(topic, b"%d" % written)
                written += 1
            assert scenario.struck == 2
    found = await asyncio.to_thread(in_thread.records, topic)
    assert [int(each.value) for each in found] == list(range(written))


@pytest.mark.parametrize("seed", range(3))
def test_the_zombie_is_fenced_and_writes_nothing_more(broker, seed):
    topic = broker.create_topic()
    producer = producer_of(broker, transactional_id="billing-1")
    producer.init_transactions(60)
    committed = []

    def work():
        for number in range(10):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number)
            producer.commit_transaction(60)
            committed.append(number)

    with broker.faults.zombie_producer("billing-1", seed=seed) as scenario:
        with pytest.raises(KafkaException) as caught:
            work()
        assert caught.value.args[0].code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}
        assert scenario.struck == 1
    assert [int(each.value) for each in broker.records(topic)] == committed


async def test_aiokafka_hears_that_it_is_a_zombie(in_thread):
    topic = in_thread.create_topic()
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=in_thread.bootstrap, transactional_id="billing-2"
    ) as producer:

        async def work():
            for _ in range(10):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"v")

        with in_thread.faults.zombie_producer(seed=5) as scenario:
            with pytest.raises(ProducerFenced):
                await work()
            assert scenario.struck == 1


def test_clients_follow_a_leader_that_moves(broker):
    topic = broker.create_topic()
    producer = producer_of(broker)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "followers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    with broker.faults.leader_moves(topic=topic, seed=11) as scenario:
        for number in range(20):
            write(producer, topic, b"%d" % number)
        found = []
        while len(found) < 20:
            message = consumer.poll(60)
            assert message is not None, found
            if message.error() is None:
                found.append(int(message.value()))
        assert scenario.struck >= 6
    consumer.close()
    assert found == list(range(20))


def test_a_slow_disk_is_waited_for(broker):
    topic = broker.create_topic()
    with broker.faults.slow_disk(up_to="30ms", seed=1) as scenario:
        producer = producer_of(broker)
        for number in range(5):
            write(producer, topic, b"%d" % number)
        assert scenario.struck >= 5
    assert len(broker.records(topic)) == 5


def test_a_fault_of_the_disk_outlives_a_kill_of_the_broker(in_thread):
    topic = in_thread.create_topic()
    in_thread.produce(topic, "1")
    with in_thread.faults.slow_disk(up_to="1ms", seed=1) as slow:
        in_thread.restart(kill=True)
        before = slow.struck
        in_thread.produce(topic, "2")
        assert slow.struck > before >= 0


def test_a_restart_that_comes_while_the_test_ends_is_no_trouble():
    for _ in range(3):
        with Broker() as broker:
            topic = broker.create_topic()
            producer = producer_of(broker)
            broker.faults.rolling_restart(times=1, seed=2, away="100ms")
            while not broker.faults._planned[0].struck:
                producer.produce(topic, b"v")
                producer.flush(0.05)
        producer.purge()


@pytest.mark.parametrize("times", [0, -1])
def test_what_makes_no_sense_is_refused(in_thread, times):
    with pytest.raises(ValueError, match="times must be at least 1"):
        in_thread.faults.rolling_restart(times=times)


def test_the_report_of_a_failed_test_tells_the_seed(tmp_path):
    (tmp_path / "test_it.py").write_text(
        """
def test_it(ottla_broker, ottla_topic):
    with ottla_broker.faults.leader_moves(topic=ottla_topic, seed=42):
        assert False
"""
    )
    command = [sys.executable, "-m", "pytest", "-p", "ottla.testing.plugin", "-p", "no:randomly"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert "leader_moves(topic='topic-" in done.stdout
    assert "seed=42): struck 0 times" in done.stdout
    assert "UnmatchedFault: nothing met leader_moves" in done.stdout


def test_a_jump_of_the_clock_amid_a_rebalance_leaves_the_group_working(broker):
    """A member joins, and before the other one has noticed days pass: both were away too long."""
    topic = broker.create_topic(partitions=2)
    options = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "jumped",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 50,
        "log_level": 0,
    }
    for number in range(4):
        broker.produce(topic, b"%d" % number, partition=number % 2)
    first, second = Consumer(options), Consumer(options)
    first.subscribe([topic])
    found = set()
    while len(found) < 4:
        message = first.poll(60)
        assert message is not None, found
        if message.error() is None:
            found.add(message.value())
    second.subscribe([topic])
    second.poll(0)
    while not any("JoinGroup" in line for line in broker.last_requests()):
        second.poll(0.01)
    broker.clock.advance("1h")
    shared = 0
    for _ in range(3_000):
        for consumer in (first, second):
            consumer.poll(0.02)
        shared = sorted((len(first.assignment()), len(second.assignment())))
        if shared == [1, 1]:
            break
    assert shared == [1, 1]
    first.close()
    second.close()
