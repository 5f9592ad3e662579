"""Compaction through the wire, and beside a live Kafka with the same history."""

import random
import re
import shutil
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.timeout(120),
]

CLEANER = {"log.cleaner.backoff.ms": 100, "log.segment.delete.delay.ms": 100}
TOPIC = "compacted"
SEGMENT_BYTES = 1 << 20
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "100",
}


def make_topic(bootstrap, **config):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=COMPACTED | config)])[TOPIC].result(30)


def alter_topic(bootstrap):
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in COMPACTED.items()
    ]
    resource = ConfigResource("topic", TOPIC, incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(30)


def history(count, *, seed=5, size=1000):
    """(key, value) by offset: many updates of few keys, some keys once, tombstones."""
    dice = random.Random(seed)
    for number in range(count):
        key = b"once-%d" % number if dice.random() < 0.05 else b"key-%d" % dice.randrange(300)
        value = None if dice.random() < 0.1 else dice.randbytes(size // 2).hex().encode()
        yield key, value


def produce(bootstrap, records, codec="none", **options):
    from confluent_kafka import Producer

    told = {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.size": 30_000}
    producer = Producer(told | options)
    if "transactional.id" in options:
        producer.init_transactions()
    for at in range(0, len(records), 100):
        if "transactional.id" in options:
            producer.begin_transaction()
        for key, value in records[at : at + 100]:
            producer.produce(TOPIC, key=key, value=value, partition=0)
        assert producer.flush(30) == 0
        if "transactional.id" in options:
            # Every third is given up.
            (producer.abort_transaction if at % 300 == 0 else producer.commit_transaction)(30)


def read(bootstrap, end_offset):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "nothing comes any more"
            if message.error() is not None:
                break
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()
    assert not found or found[-1][0] < end_offset
    return found


def directory_of(peer):
    return next(Path(peer.data).rglob(f"{TOPIC}-0"))


def bases(directory):
    found = [re.fullmatch(r"(\d{20})\.log", path.name) for path in directory.iterdir()]
    return sorted(int(match[1]) for match in found if match)


def wait_until_clean(peer, seconds=60):
    """Return the base offset of the active segment once all below it is clean."""
    directory = directory_of(peer)
    deadline = time.monotonic() + seconds
    while True:
        active = bases(directory)[-1]
        checkpoint = directory.parent / "cleaner-offset-checkpoint"
        text = checkpoint.read_text() if checkpoint.exists() else ""
        if f"{TOPIC} 0 {active}\n" in text and "swap" not in str(list(directory.iterdir())):
            return active
        assert time.monotonic() < deadline, (active, text)
        time.sleep(0.1)


def survivors(records, active):
    """What compaction leaves, by offset: of each key below ``active`` the last, all above."""
    newest = {key: offset for offset, (key, _) in enumerate(records[:active])}
    return [
        (offset, key, value)
        for offset, (key, value) in enumerate(records)
        if offset >= active or newest[key] == offset
    ]


def check_survivors(peer, records):
    active = wait_until_clean(peer)
    assert active > len(records) // 2
    found = read(peer.bootstrap, len(records))
    assert found == survivors(records, active)
    return active


@pytest.mark.parametrize("codec", CODECS)
def test_the_newest_of_each_key_is_left(ottla_server_factory, codec):
    peer = ottla_server_factory(CLEANER)
    make_topic(peer.bootstrap)
    records = list(history(6000))
    produce(peer.bootstrap, records[:4000], codec)
    check_survivors(peer, records[:4000])
    produce(peer.bootstrap, records[4000:], codec)
    active = check_survivors(peer, records)
    peer.stop()
    peer.start()
    assert read(peer.bootstrap, len(records)) == survivors(records, active)
    peer.kill9()
    peer.start()
    assert read(peer.bootstrap, len(records)) == survivors(records, active)


def test_compaction_and_retention_together(ottla_server_factory):
    peer = ottla_server_factory(CLEANER | {"log.retention.check.interval.ms": 100})
    make_topic(peer.bootstrap, **{"cleanup.policy": "compact,delete", "retention.bytes": "100000"})
    records = list(history(8000))
    produce(peer.bootstrap, records)
    deadline, before = time.monotonic() + 30, []
    while bases(directory_of(peer)) != before or before[0] < 4000:
        assert time.monotonic() < deadline, before
        before = bases(directory_of(peer))
        time.sleep(1)
    active = wait_until_clean(peer)
    found = read(peer.bootstrap, len(records))
    assert found == [one for one in survivors(records, active) if one[0] >= found[0][0]]
    peer.stop()
    peer.start()
    assert read(peer.bootstrap, len(records)) == found


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_leaves_the_same(kafka_server_factory, ottla_server_factory, kafka_tool):
    records = list(history(6000))
    peers = [kafka_server_factory(CLEANER), ottla_server_factory(CLEANER)]
    for peer in peers:
        make_topic(peer.bootstrap)
        for turn, codec in enumerate(CODECS):
            produce(peer.bootstrap, records[turn * 1200 : (turn + 1) * 1200], codec)
            if turn == 2:
                wait_until_clean(peer)
    actives = [check_survivors(peer, records) for peer in peers]
    common = min(actives)
    kept = [
        [one for one in read(peer.bootstrap, len(records)) if one[0] < common] for peer in peers
    ]
    newest = {key: offset for offset, (key, _) in enumerate(records[:common])}
    assert [one for one in kept[0] if newest[one[1]] == one[0]] == [
        one for one in kept[1] if newest[one[1]] == one[0]
    ]
    peers[1].stop()
    paths = sorted(directory_of(peers[1]).glob("*.log"))
    indexes = [path.with_suffix(".index") for path in paths]
    for option, files in (("--deep-iteration", paths), ("--index-sanity-check", indexes)):
        # All at once: each call starts a JVM.
        named = ",".join(map(str, files))
        told = kafka_tool("org.apache.kafka.tools.DumpLogSegments", option, "--files", named)
        assert told.count("Dumping") == len(files) > 2
        assert "isvalid: false" not in told
        assert "mismatch" not in told.lower()
        assert "rror" not in told


@pytest.mark.kafka
@pytest.mark.slow
def test_a_directory_that_kafka_compacted_is_served_and_compacted_on(
    kafka_server_factory, ottla_server_factory, tmp_path
):
    kafka = kafka_server_factory(CLEANER)
    make_topic(kafka.bootstrap)
    records = list(history(6000))
    produce(kafka.bootstrap, records[:3000], **{"transactional.id": "t"})
    produce(kafka.bootstrap, records[3000:], "lz4", **{"enable.idempotence": True})
    active = wait_until_clean(kafka)
    expected = read(kafka.bootstrap, 1 << 40)
    assert 300 < len(expected) < len(records) - 2000
    kafka.stop()
    data = tmp_path / "taken-over"
    shutil.copytree(kafka.data, data)
    ottla = ottla_server_factory(CLEANER, data=data)
    assert read(ottla.bootstrap, 1 << 40) == expected
    alter_topic(ottla.bootstrap)  # Kafka keeps a topic's config elsewhere.
    make_more = list(history(3000, seed=6))
    produce(ottla.bootstrap, make_more)
    assert wait_until_clean(ottla) > active
    newest = {key: value for _, key, value in expected} | dict(make_more)
    assert {key: value for _, key, value in read(ottla.bootstrap, 1 << 40)} == newest
