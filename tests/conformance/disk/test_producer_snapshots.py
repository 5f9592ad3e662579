"""Snapshots of producers: Kafka's tool and broker read ours, we read those of a Kafka broker."""

import time

import pytest

from ottla.env.clock import SystemClock
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SystemRng
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tools.wire_client import WireClient, batch

pytestmark = pytest.mark.kafka

TP = TopicPartition("snapshots", 0)
KAFKAS_CLUSTER = "AAAAAAAAQACAAAAAAAAAAQ"


def manager_for(directory):
    manager = LogManager(
        disk=RealDisk(),
        clock=SystemClock(),
        rng=SystemRng(),
        log_dirs=[str(directory)],
        cluster_id=KAFKAS_CLUSTER,
        node_id=1,
        config_for=lambda topic: LogConfig(),
    )
    manager.start()
    return manager


def append(log, producer_id, sequence, count=1, *, epoch=0):
    now = SystemClock().wall_ms()
    records = [Record(timestamp=now, key=b"k", value=b"v")] * count
    batch = build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return log.append(memoryview(batch), leader_epoch=max(log.latest_epoch, 0)).base_offset


def snapshots_in(directory):
    return sorted((directory / str(TP)).glob("*.snapshot"))


def produced(wire, records):
    """Produce; a broker that has just started may not lead its partitions yet."""
    deadline = time.monotonic() + 30
    while True:
        answer = wire.produce(TP.topic, records)
        if answer["error_code"] not in {3, 5, 6} or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


@pytest.mark.parametrize("batches", [0, 1, 7])
def test_kafkas_tool_dumps_ours(tmp_path, kafka_tool, batches):
    manager = manager_for(tmp_path / "logs")
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    append(log, -1, -1)
    for sequence in range(0, 3 * batches, 3):
        append(log, 4711, sequence, 3, epoch=2)
        append(log, 4712, sequence, 3)
    manager.stop()
    (path,) = snapshots_in(tmp_path / "logs")
    output = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", path)
    lines = [line for line in output.splitlines() if "producerId: " in line]
    assert len(lines) == (2 if batches else 0), output
    for line, producer_id, epoch, back in zip(lines, (4711, 4712), (2, 0), (3, 0), strict=False):
        last_offset = 6 * batches - back
        assert f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: -1" in line
        assert f"lastSequence: {3 * batches - 1}" in line
        assert f"lastOffset: {last_offset} offsetDelta: 2" in line, line
    assert "rror" not in output
    assert "orrupt" not in output


@pytest.mark.timeout(180)
def test_a_resend_is_recognised_across_a_change_of_brokers_both_ways(tmp_path, kafka_libs):
    from tools.kafka_peer import KafkaPeer

    peer = KafkaPeer(tmp_path / "logs")
    with peer:
        peer.start()
        with WireClient(peer.bootstrap) as wire:
            wire.create_topic(TP.topic)
            for sequence in range(0, 6, 2):
                records = batch(
                    [b"a", b"b"], producer_id=9, producer_epoch=3, base_sequence=sequence
                )
                assert produced(wire, records)["base_offset"] == sequence
        peer.stop()
    assert [path.name for path in snapshots_in(tmp_path / "logs")] == [f"{6:020d}.snapshot"]
    manager = manager_for(tmp_path / "logs")
    log = manager.get(TP)
    assert append(log, 9, 4, 2, epoch=3) == 4
    assert append(log, 9, 6, 2, epoch=3) == 6
    assert append(log, 9, 8, 2, epoch=3) == 8
    assert append(log, 9, 6, 2, epoch=3) == 6
    assert len(log.producers.states.get(9).batches) == 3
    manager.stop()
    with KafkaPeer(tmp_path / "logs") as peer:
        peer.start()
        with WireClient(peer.bootstrap) as wire:
            for sequence, offset in ((8, 8), (10, 10)):
                records = batch(
                    [b"a", b"b"], producer_id=9, producer_epoch=3, base_sequence=sequence
                )
                answer = produced(wire, records)
                assert (answer["error_code"], answer["base_offset"]) == (0, offset)
            records = batch([b"a"], producer_id=9, producer_epoch=2, base_sequence=0)
            assert produced(wire, records)["error_code"] == 47
