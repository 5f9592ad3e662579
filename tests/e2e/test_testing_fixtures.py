"""The fixtures of ``ottla.testing`` with a suite of other people's clients, on Ottla and Kafka.

The same suite runs on a broker of the fixtures' own, and against the broker under ``--target`` and
Apache Kafka by ``--ottla-bootstrap``.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer


def test_confluent(ottla_broker, ottla_topic, ottla_group):
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce(ottla_topic, b"v", key=b"k")
    assert producer.flush(30) == 0
    assert ottla_broker.lag(ottla_group, ottla_topic) == 1
    consumer = Consumer(
        {
            "bootstrap.servers": ottla_broker.bootstrap,
            "group.id": ottla_group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([ottla_topic])
    while (message := consumer.poll(30)).error():
        pass
    assert (message.key(), message.value()) == (b"k", b"v")
    consumer.commit(asynchronous=False)
    consumer.close()
    ottla_broker.wait_until_read(ottla_group, ottla_topic)


async def test_aiokafka(ottla_broker, ottla_topic, ottla_group):
    ottla_broker.produce(ottla_topic, "before", headers=[("h", b"1")])
    where = {"bootstrap_servers": ottla_broker.bootstrap}
    async with AIOKafkaProducer(**where) as producer:
        await producer.send_and_wait(ottla_topic, b"v")
    async with AIOKafkaConsumer(
        ottla_topic, auto_offset_reset="earliest", group_id=ottla_group, **where
    ) as consumer:
        assert [(await consumer.getone()).value for _ in range(2)] == [b"before", b"v"]
    assert len(ottla_broker.records(ottla_topic, at_least=2)) == 2


def test_partitions_and_transactions(ottla_broker, ottla_topic):
    topic = ottla_broker.create_topic(partitions=3, config={"cleanup.policy": "compact"})
    written = [ottla_broker.produce(topic, b"x", key=b"%d" % i) for i in range(9)]
    assert len({place.partition for place in written}) == 3
    assert len(ottla_broker.records(topic)) == 9
    producer = Producer(
        {"bootstrap.servers": ottla_broker.bootstrap, "transactional.id": ottla_topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(ottla_topic, b"aborted")
    producer.flush(30)
    assert len(ottla_broker.records(ottla_topic, committed=False)) == 1
    producer.abort_transaction(30)
    assert ottla_broker.records(ottla_topic) == []
    ottla_broker.delete_topic(topic)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("where", ["thread", "process", "ottla", "kafka"])
def test_a_suite_with_clients(where, request, tmp_path):
    options = {"thread": [], "process": ["--ottla-process"]}.get(where)
    if options is None:
        if where == "kafka":
            request.getfixturevalue("kafka_libs")
            from tools.kafka_peer import KafkaPeer as Peer
        else:
            from tools.ottla_peer import OttlaPeer as Peer
        with Peer(tmp_path / "data", {}) as peer:
            peer.start()
            run_suite(tmp_path, [f"--ottla-bootstrap={peer.bootstrap}"])
    else:
        run_suite(tmp_path, options)


def run_suite(path, options):
    (path / "test_it.py").write_text(SUITE)
    (path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-p", "ottla.testing.plugin", *options]
    command += ["-p", "pytest_asyncio.plugin"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
