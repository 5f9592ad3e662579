"""Transactions that Kafka wrote are read here as Kafka reads them, and the other way round."""

import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest

from ottla.client.wire.reading import read_records
from ottla.env.clock import SystemClock
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SystemRng
from ottla.ids import TopicId, TopicPartition
from ottla.log.aborted import aborted_transactions
from ottla.log.append import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.replicated import append_replicated, check_replicated
from ottla.records.batch_walk import next_offset
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.record import Record
from tools.wire_client import WireClient

pytestmark = pytest.mark.kafka

KAFKAS_CLUSTER = "AAAAAAAAQACAAAAAAAAAAQ"
TOPIC = "transactional"
TP = TopicPartition(TOPIC, 0)
OPTIONS = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
SETTINGS = {"segment.bytes": str(1 << 20), "index.interval.bytes": "2048"}


class Told(NamedTuple):
    """What Kafka said of the topic."""

    values: list[bytes]
    last_stable_offset: int
    end_offset: int
    producers: dict[int, int]
    """Producer ids with the first offset of the transaction that each has open."""


def manager_for(directory):
    manager = LogManager(
        disk=RealDisk(),
        clock=SystemClock(),
        rng=SystemRng(),
        log_dirs=[str(directory)],
        cluster_id=KAFKAS_CLUSTER,
        node_id=1,
        config_for=lambda topic: LogConfig(segment_bytes=1 << 20, index_interval_bytes=2048),
    )
    manager.start()
    assert {where for where in manager.offline if where.topic == TOPIC} == set()
    return manager


def indexes_in(directory):
    return {
        path.name: path.read_bytes()
        for path in (directory / str(TP)).glob("*.txnindex")
        if path.stat().st_size
    }


def read_committed(log, max_bytes=1 << 20):
    """Read as a consumer of committed records does, in pieces of at most ``max_bytes``."""
    log.producers.transactions.commit_to(log.log_end_offset)
    upper = min(log.log_end_offset, log.producers.transactions.first_unstable_offset)
    offset, found = log.log_start_offset, []
    while offset < upper:
        result = log.read(offset, max_bytes=max_bytes, upper_offset=upper, min_one_message=True)
        data = memoryview(result.region.read())
        told = aborted_transactions(log, offset, result, upper)
        aborted = [(one.producer_id, one.first_offset) for one in told]
        found += [record.value for record in read_records(data, offset, aborted)]
        offset = next_offset(data, offset)
    return found, upper


def open_in(log):
    return {
        producer_id: state.current_transaction_first_offset
        for producer_id, state in log.producers.states
        if state.current_transaction_first_offset >= 0
    }


def transact(bootstrap):
    """Run the transactions of four interleaved producers; the last one's stays open."""
    from confluent_kafka import Producer

    producers = []
    for number in range(4):
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"id-{number}"}
        producers.append(Producer({**settings, "linger.ms": 0, "compression.type": "none"}))
        producers[-1].init_transactions(30)
    plain = Producer({"bootstrap.servers": bootstrap})
    began = [-1] * 4
    for step in range(240):
        number = step * 7919 % 4
        producer = producers[number]
        if began[number] < 0:
            producer.begin_transaction()
            began[number] = step
        for part in range(1 + step % 5):
            value = f"{number}:{step}:{part}:".encode().ljust(4000, b"x")
            producer.produce(TOPIC, value, partition=0)
        producer.flush()
        if step % 11 == 0:
            plain.produce(TOPIC, f"plain:{step}".encode(), partition=0)
            plain.flush()
        if number < 3 and step - began[number] > 3 * (number + 1):
            if step % 3:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
            began[number] = -1
    for number in range(3):
        if began[number] >= 0:
            producers[number].abort_transaction(30)
    plain.produce(TOPIC, b"the end", partition=0)
    plain.flush()
    return producers


def ask(bootstrap):
    """Have Kafka say what is committed."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    with WireClient(bootstrap) as wire:
        request = {"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}
        offsets = [
            wire.call(
                "list_offsets", 7, replica_id=-1, isolation_level=isolation, topics=[request]
            )["topics"][0]["partitions"][0]["offset"]
            for isolation in (1, 0)
        ]
        request = [{"name": TOPIC, "partition_indexes": [0]}]
        described = wire.call("describe_producers", 0, topics=request)
    states = described["topics"][0]["partitions"][0]["active_producers"]
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "g",
        "isolation.level": "read_committed",
    }
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([Partition(TOPIC, 0, 0)])
    values = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            break
        values.append(message.value())
    consumer.close()
    producers = {state["producer_id"]: state["current_txn_start_offset"] for state in states}
    opened = {number: offset for number, offset in producers.items() if offset >= 0}
    return Told(values, *offsets, opened)


def wait_for_markers(bootstrap):
    """Block until Kafka knows of each ended transaction that its markers are there.

    Whoever loads one that does not writes them once more.
    """
    with WireClient(bootstrap) as wire:
        while True:
            asked = {"state_filters": [], "producer_id_filters": []}
            listed = wire.call("list_transactions", 0, **asked)["transaction_states"]
            if all(not one["transaction_state"].startswith("Prepare") for one in listed):
                return


@pytest.fixture(scope="module")
def directories(tmp_path_factory, kafka_libs):
    """Kafka's log directory after kill -9 and after a clean stop, and what Kafka said."""
    from tools.kafka_peer import KafkaPeer

    root = tmp_path_factory.mktemp("kafka-wrote")
    peer = KafkaPeer(root / "clean", OPTIONS)
    with peer:
        peer.start()
        with WireClient(peer.bootstrap) as wire:
            wire.create_topic(TOPIC, **{key.replace(".", "_"): SETTINGS[key] for key in SETTINGS})
        producers = transact(peer.bootstrap)
        wait_for_markers(peer.bootstrap)
        told = ask(peer.bootstrap)
        peer.kill9()
        shutil.copytree(root / "clean", root / "killed")
        peer.start()
        peer.stop()
        del producers
    assert told.last_stable_offset < told.end_offset
    assert len(told.producers) == 1
    return root, told


@pytest.fixture(params=["clean", "killed"])
def copied(request, directories, tmp_path):
    root, told = directories
    shutil.copytree(root / request.param, tmp_path / "logs")
    return tmp_path / "logs", told


@pytest.mark.timeout(180)
def test_a_directory_of_kafka_gives_committed_readers_what_kafka_gave_them(copied):
    directory, told = copied
    kafkas = indexes_in(directory)
    assert len(kafkas) > 1
    log = manager_for(directory).get(TP)
    assert log.segment_count > 2
    assert log.log_end_offset == told.end_offset
    assert open_in(log) == told.producers
    for max_bytes in (1, 30_000, 1 << 20):
        assert read_committed(log, max_bytes) == (told.values, told.last_stable_offset)
    assert indexes_in(directory) == kafkas


@pytest.mark.timeout(180)
@pytest.mark.parametrize("gone", ["txnindex", "snapshot", "both"])
def test_what_is_lost_is_found_again_to_the_byte(copied, gone):
    directory, told = copied
    kafkas = indexes_in(directory)
    for path in (directory / str(TP)).iterdir():
        if path.suffix == ".snapshot" or (gone != "snapshot" and path.suffix == ".txnindex"):
            path.unlink()
    log = manager_for(directory).get(TP)
    assert indexes_in(directory) == kafkas
    assert open_in(log) == told.producers
    assert read_committed(log)[0] == told.values


@pytest.mark.timeout(180)
def test_the_same_history_written_here_gives_the_same_files(directories, tmp_path):
    root, _ = directories
    manager = manager_for(tmp_path / "logs")
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    theirs = root / "clean" / str(TP)
    for path in sorted(theirs.glob("*.log")):
        if int(path.stem) > 0:
            log.roll(int(path.stem))
        data = memoryview(bytearray(path.read_bytes()))
        position = 0
        while position < len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            batch = data[position : position + size]
            append_replicated(log, check_replicated(memoryview(batch)))
            position += size
    manager.stop()
    assert indexes_in(tmp_path / "logs") == indexes_in(root / "clean")
    for path in theirs.glob("*.log"):
        assert (tmp_path / "logs" / str(TP) / path.name).read_bytes() == path.read_bytes()


@pytest.mark.timeout(180)
def test_served_from_here_consumers_of_librdkafka_and_ours_get_what_they_got_from_kafka(copied):
    from tools.ottla_peer import OttlaPeer

    directory, told = copied
    for name in ("__cluster_metadata-0", "bootstrap.checkpoint"):
        path = directory / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    with OttlaPeer(directory) as peer:
        peer.start()
        assert ask(peer.bootstrap) == told
        consume = [sys.executable, "-m", "ottla", "consume", TOPIC, "--read-committed"]
        done = subprocess.run(
            [*consume, "-f", r"%v\n", "-b", peer.bootstrap],
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.splitlines() == told.values


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """A directory that was written here, with what is committed in it; one transaction is open."""
    directory = tmp_path_factory.mktemp("ottla-wrote") / "logs"
    manager = manager_for(directory)
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    now, sequences, committed, pending = SystemClock().wall_ms(), {}, [], {}

    def write(producer_id, count):
        values = [f"{producer_id}:{log.log_end_offset}:{n}".encode() * 40 for n in range(count)]
        first = sequences.get(producer_id, 0)
        sequences[producer_id] = first + count
        batch = build_batch(
            [Record(timestamp=now, value=value) for value in values],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=first,
            transactional=True,
        )
        result = log.append(memoryview(batch), leader_epoch=0)
        entries = pending.setdefault(producer_id, [])
        entries += [(result.base_offset + n, value) for n, value in enumerate(values)]

    def complete(producer_id, kind):
        marker = build_end_transaction_marker(
            EndTransactionMarker(kind, 1),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=now,
        )
        log.append(memoryview(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        if kind is ControlType.COMMIT:
            committed.extend(pending[producer_id])
        pending[producer_id] = []

    for step in range(1500):
        producer_id = 100 + step * 7919 % 5
        write(producer_id, 1 + step % 6)
        if step % 4 == 0:
            complete(producer_id, ControlType.ABORT if step % 8 else ControlType.COMMIT)
    for producer_id in range(100, 105):
        complete(producer_id, ControlType.ABORT)
    write(106, 2)
    assert log.segment_count > 2
    values = [value for _, value in sorted(committed)]
    assert read_committed(log)[0] == values
    manager.stop()
    return directory, values


@pytest.mark.timeout(180)
def test_kafkas_tool_accepts_ours(ours, kafka_tool):
    directory, _ = ours
    files = sorted(
        path
        for path in (directory / str(TP)).iterdir()
        if path.suffix in {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    )
    names = ",".join(map(str, files))
    output = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names
    )
    complaints = [
        line
        for line in output.splitlines()
        if "ismatch" in line or "rror" in line or "orrupt" in line or "xception" in line
    ]
    assert not complaints
    entries = sum(len(path.read_bytes()) // 34 for path in files if path.suffix == ".txnindex")
    assert output.count("lastStableOffset: ") == entries > 100
    assert output.count("endTxnMarker: ABORT") >= entries
    assert "endTxnMarker: COMMIT" in output


@pytest.mark.timeout(180)
def test_kafka_serves_committed_readers_from_ours(ours, tmp_path, kafka_libs):
    from tools.kafka_peer import KafkaPeer

    directory, values = ours
    seed = KafkaPeer(tmp_path / "logs", OPTIONS)
    with seed:
        seed.start()
        with WireClient(seed.bootstrap) as wire:
            topic_id = wire.create_topic(TOPIC)
        seed.stop()
        metadata = (tmp_path / "logs" / str(TP) / "partition.metadata").read_text()
        assert topic_id
        shutil.rmtree(tmp_path / "logs" / str(TP))
        shutil.copytree(directory / str(TP), tmp_path / "logs" / str(TP))
        (tmp_path / "logs" / str(TP) / "partition.metadata").write_text(metadata)
        (tmp_path / "logs" / ".kafka_cleanshutdown").unlink()
        kafkas = indexes_in(directory)
        seed.start()
        told = ask(seed.bootstrap)
        assert told.values == values
        assert list(told.producers) == [106]
        seed.stop()
    assert indexes_in(tmp_path / "logs") == kafkas
