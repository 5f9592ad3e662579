"""A log directory that Apache Kafka wrote opens here and serves the same records."""

import shutil

import pytest

from ottla.env.clock import SystemClock
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SystemRng
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.directories.manager import LogManager
from ottla.records.builder import build_batch
from ottla.records.decode import decode_batches
from ottla.records.record import Record
from tests.by_time import offset_for_timestamp

pytestmark = pytest.mark.kafka

CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
TOPIC = "written-by-kafka"
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def manager_for(directory, cluster_id=CLUSTER_ID):
    return LogManager(
        disk=RealDisk(),
        clock=SystemClock(),
        rng=SystemRng(),
        log_dirs=[str(directory)],
        cluster_id=cluster_id,
        node_id=1,
        config_for=lambda topic: LogConfig(segment_bytes=1 << 20),
    )


def read_all(log):
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        result = log.read(
            offset, max_bytes=1 << 20, upper_offset=log.log_end_offset, min_one_message=True
        )
        for batch in decode_batches(result.region.read(), 1 << 27):
            found += [record for record in batch.records if record.offset >= offset]
            offset = batch.header.next_offset
    return found


def produce(bootstrap):
    """Produce 30,000 records into several segments; return what a producer was told of them."""
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    settings = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1024"}
    admin.create_topics([NewTopic(TOPIC, 1, 1, topic_configs=settings)])
    admin.close()
    sent = []
    for number in range(30_000):
        value = f"{number}:".encode() + (f"{number * 7919 % 1_000_003}" * 20).encode()
        sent.append((f"k{number % 50}".encode(), value))
    for ordinal, codec in enumerate(CODECS):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20, acks="all"
        )
        for key, value in sent[ordinal * 6000 : (ordinal + 1) * 6000]:
            producer.send(TOPIC, key=key, value=value, partition=0)
        producer.flush()
        producer.close()
    return sent


@pytest.fixture(scope="module")
def directories(tmp_path_factory, kafka_libs):
    """Kafka's log directory after kill -9 and after a clean stop, and what was produced."""
    from tools.kafka_peer import KafkaPeer

    root = tmp_path_factory.mktemp("kafka-wrote")
    peer = KafkaPeer(root / "data")
    with peer:
        peer.start()
        sent = produce(peer.bootstrap)
        peer.kill9()
        shutil.copytree(root / "data", root / "killed")
        peer.start()
        peer.stop()
    return {"clean": root / "data", "killed": root / "killed"}, sent


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["clean", "killed"])
def test_it_opens_and_serves_the_same_records(directories, tmp_path, kafka_tool, how):
    sources, sent = directories
    shutil.copytree(sources[how], tmp_path / "logs")
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists() == (how == "clean")
    manager = manager_for(tmp_path / "logs")
    manager.start()
    assert {tp for tp in manager.offline if tp.topic == TOPIC} == set()
    log = manager.get(TopicPartition(TOPIC, 0))
    assert log.topic_id is not None
    assert log.segment_count > 1
    assert log.leader_epochs.entries
    log.check()
    records = read_all(log)
    assert [(record.key, record.value) for record in records] == sent
    for record in records[::997]:
        found = offset_for_timestamp(log, record.timestamp)
        first = next(one for one in records if one.timestamp >= record.timestamp)
        assert found.offset == first.offset
    batch = build_batch([Record(key=b"k", value=b"by ottla", timestamp=records[-1].timestamp)])
    assert log.append(memoryview(batch), leader_epoch=log.latest_epoch).base_offset == len(sent)
    log.check()
    manager.stop()
    files = ",".join(
        str(path)
        for path in sorted((tmp_path / "logs" / f"{TOPIC}-0").iterdir())
        if path.suffix in {".log", ".index", ".timeindex"}
    )
    output = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", files)
    complaints = [line for line in output.splitlines() if "mismatch" in line or "rror" in line]
    assert not complaints


@pytest.mark.timeout(180)
def test_kafka_starts_on_it_again_after_ottla_wrote_to_it(directories, tmp_path, kafka_libs):
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaTopicPartition

    from tools.kafka_peer import KafkaPeer

    sources, sent = directories
    shutil.copytree(sources["clean"], tmp_path / "logs")
    manager = manager_for(tmp_path / "logs")
    manager.start()
    log = manager.get(TopicPartition(TOPIC, 0))
    batch = build_batch([Record(key=b"k", value=b"by ottla", timestamp=1_700_000_000_000)])
    log.append(memoryview(batch), leader_epoch=log.latest_epoch)
    manager.stop()
    with KafkaPeer(tmp_path / "logs") as peer:
        peer.start()
        consumer = KafkaConsumer(bootstrap_servers=peer.bootstrap, auto_offset_reset="earliest")
        partition = KafkaTopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, len(sent) - 1)
        values = []
        while len(values) < 2:
            for batch in consumer.poll(timeout_ms=1000).values():
                values += [record.value for record in batch]
        consumer.close()
        assert values == [sent[-1][1], b"by ottla"]


@pytest.mark.timeout(180)
def test_it_is_not_taken_over_by_another_cluster(directories, tmp_path):
    sources, _ = directories
    shutil.copytree(sources["clean"], tmp_path / "logs")
    with pytest.raises(LogDirectoryUnusable, match=CLUSTER_ID):
        manager_for(tmp_path / "logs", cluster_id="other").start()
