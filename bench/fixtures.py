"""What the test fixtures cost: start, plugin, a suite, five long stories, many topics.

    python bench/fixtures.py [PART ...]        # start, suite, stories, topics; all without a PART
    OTTLA_TEST_BOOTSTRAP=HOST:PORT python bench/fixtures.py suite       # the same suite on a Kafka

Prints each figure beside its limit. Wall times; run it with nothing else to do. ``stories`` needs
confluent-kafka and aiokafka.
"""

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiokafka
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import ottla.testing.hosts
import ottla.testing.server  # noqa: F401 - what is imported is not measured
from ottla.testing import Broker

ROUNDS = 7
TESTS = 1_000
TOPICS = 10_000
SUITE = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_it(number, ottla_broker, ottla_topic):
    ottla_broker.produce(ottla_topic, b"%d" % number)
    assert len(ottla_broker.records(ottla_topic)) == 1
"""


def told(what: str, found: float, limit: float | None, unit: str) -> None:
    """Print a figure."""
    said = "" if limit is None else f"   limit {limit:g}{'' if found < limit else '   ABOVE'}"
    print(f"{what:<58} {found:8.2f} {unit}{said}")


def start() -> None:
    """Measure starts, and the import of the plugin."""
    for process, limit in ((False, 15), (True, 180)):
        found = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            with Broker(process=process):
                found.append((time.perf_counter() - began) * 1000)
        told(f"ready, {'process' if process else 'thread'}", min(found), limit, "ms")
    code = (
        "import pytest, time; began = time.perf_counter(); import ottla.testing.plugin; "
        "print((time.perf_counter() - began) * 1000)"
    )
    found = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(ROUNDS)
    ]
    told("import of the pytest plugin", min(found), 5, "ms")


def suite() -> None:
    """Measure a suite of a thousand tests, each with a topic."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "test_it.py").write_text(SUITE.format(count=TESTS))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "ottla.testing.plugin"]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        began = time.perf_counter()
        subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
        told(f"{TESTS:,} tests, a topic each", time.perf_counter() - began, 15, "s")


def producer_of(broker: Broker, **options: str | int) -> Producer:
    """Return a producer that does not wait."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    servers = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0}
    return Producer({**servers, **given})


def consumer_of(broker: Broker, group: str) -> Consumer:
    """Return a member that reads from the start, and whose heartbeats are rare."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 45_000,
            "heartbeat.interval.ms": 44_000,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )


def retention(broker: Broker) -> None:
    """Let seven days pass."""
    topic = broker.create_topic()
    producer = producer_of(broker)
    producer.produce(topic, b"old")
    producer.flush(20)
    broker.clock.advance("8d")
    assert broker.records(topic) == []


def fenced(broker: Broker) -> None:
    """Fence a producer whose transactional id another one takes."""
    topic = broker.create_topic()
    producer = producer_of(broker, transactional_id="it")
    producer.init_transactions(20)
    with broker.faults.zombie_producer("it", within=1):
        try:
            producer.begin_transaction()
            producer.produce(topic, b"v")
            producer.commit_transaction(20)
        except KafkaException:
            assert broker.records(topic) == []
            return
    raise AssertionError("it is not fenced")


def session(broker: Broker) -> None:
    """Let a member's session time out."""
    topic = broker.create_topic()
    broker.produce(topic, b"v")
    member = consumer_of(broker, "timed-out")
    member.subscribe([topic])
    assert member.poll(20)
    broker.clock.advance("46s")
    try:
        member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    except KafkaException:
        pass
    else:
        raise AssertionError("it is still a member")
    member.unsubscribe()


def power_cut(broker: Broker) -> None:
    """Cut the power: what was acknowledged is there."""
    topic = broker.create_topic()
    producer = producer_of(broker)  # An idempotent one of librdkafka waits 0.5 s for its id.
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0
    broker.restart(power_loss=True)
    assert len(broker.records(topic)) == 1


async def rebalance(broker: Broker) -> None:
    """Let a second member take half of the partitions, with aiokafka."""
    topic = await asyncio.to_thread(broker.create_topic, partitions=2)
    options = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": "shared",
        "heartbeat_interval_ms": 10,
        "fetch_max_wait_ms": 20,
        "metadata_max_age_ms": 60_000,
    }
    async with (
        aiokafka.AIOKafkaConsumer(topic, **options) as one,
        aiokafka.AIOKafkaConsumer(topic, **options) as two,
    ):
        while (len(one.assignment()), len(two.assignment())) != (1, 1):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def async_fenced(broker: Broker) -> None:
    """Fence a producer of aiokafka."""
    topic = await asyncio.to_thread(broker.create_topic)
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id="other", retry_backoff_ms=5
    ) as producer:
        scenario = await asyncio.to_thread(broker.faults.zombie_producer, "other", within=1)
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"v")
        except ProducerFenced:
            await asyncio.to_thread(scenario.heal)
            return
    raise AssertionError("it is not fenced")


def stories() -> None:
    """Measure what takes days and minutes elsewhere."""
    logging.disable()  # aiokafka says that it was fenced.
    total = 0.0
    with Broker() as broker:
        broker.produce("warm", b"v")
        runs = {
            "power cut, confluent-kafka": lambda: power_cut(broker),
            "rebalance, aiokafka": lambda: asyncio.run(rebalance(broker)),
            "fenced zombie, confluent-kafka": lambda: fenced(broker),
            "fenced zombie, aiokafka": lambda: asyncio.run(async_fenced(broker)),
            "session timeout, confluent-kafka": lambda: session(broker),
            "7-day retention, confluent-kafka": lambda: retention(broker),
        }
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            took = time.perf_counter() - began
            total += took
            told(name, took * 1000, None, "ms")
    told("together", total, 1, "s")


def topics() -> None:
    """Measure what topics cost, as there are more and more of them: each thousand as the first."""
    with Broker() as broker:
        broker.create_topic()
        pace = []
        for _ in range(10):
            before, began = resident_bytes(), time.process_time()
            for _ in range(TOPICS // 10):
                broker.create_topic()
            pace.append((time.process_time() - began) / (TOPICS // 10) * 1e3)
            print(
                f"  {pace[-1]:.3f} ms of CPU and "
                f"{(resident_bytes() - before) / (TOPICS // 10) / 1024:.1f} KiB a topic"
            )
        told(f"{TOPICS:,} topics: the last thousand / the first", pace[-1] / pace[0], 1.5, "x")


def resident_bytes() -> int:
    """Return the memory that this process has in use."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


PARTS = {"start": start, "suite": suite, "stories": stories, "topics": topics}


def main() -> None:
    """Measure the parts that were asked for."""
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
