"""``log verify`` and ``doctor`` on a directory of Apache Kafka: running, killed and stopped."""

import pytest

from ottla.env.real_disk import RealDisk
from ottla.log.inspect.dump import Unreadable, dump_file
from ottla.log.inspect.examine import examine
from ottla.log.inspect.findings import Finding, Severity
from ottla.log.inspect.verify import VerifiedSegment, verify_partition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory, kafka_libs):
    """Kafka's directory: what was found while it ran, after kill -9, and after a clean stop."""
    from tools.kafka_peer import KafkaPeer

    data = tmp_path_factory.mktemp("kafka") / "data"
    peer = KafkaPeer(
        data, {"log.cleaner.backoff.ms": 200, "transaction.state.log.num.partitions": 1}
    )
    with peer:
        peer.start()
        fill(peer.bootstrap)
        seen = {"running": (look(data), peer.pid)}
        peer.kill9()
        seen["killed"] = (look(data), None)
        peer.start()
        peer.stop()
        seen["clean"] = (look(data), None)
    return data, seen


def fill(bootstrap):
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic("plain", 2, 1), NewTopic("compacted", 1, 1, config=COMPACTED)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    for number in range(30_000):
        producer.produce("compacted", key=b"k%d" % (number % 100), value=b"%d" % number * 30)
        producer.produce("plain", value=b"%d" % number, partition=number % 2)
        if number % 1000 == 0:
            producer.flush(30)
    producer.flush(30)
    for number in range(3):
        options = {"bootstrap.servers": bootstrap, "transactional.id": f"t{number}"}
        transactional = Producer(options)
        transactional.init_transactions(30)
        for end in ("commit_transaction", "abort_transaction"):
            transactional.begin_transaction()
            for value in range(50):
                transactional.produce("plain", value=b"%d" % value, partition=0)
            transactional.flush(30)
            getattr(transactional, end)(30)


def look(data):
    directory, findings = examine(RealDisk(), str(data))
    outcomes = []
    for partition in directory.partitions:
        claims = directory.claims_of(partition.topic_partition)
        outcomes += verify_partition(RealDisk(), partition.directory, claims, deep=True)
    return directory, findings, outcomes


@pytest.mark.parametrize("how", ["running", "killed", "clean"])
def test_a_sound_directory_gives_no_findings(looked_at, how):
    (directory, findings, outcomes), pid = looked_at[1][how]
    wrong = [
        each
        for each in outcomes
        if isinstance(each, Finding) and "are in no segment" not in each.what
    ]
    assert wrong == []
    assert [each for each in findings if each.severity is not Severity.NOTE] == []
    assert (directory.kind, directory.locked_by) == ("kafka", pid)
    assert directory.is_clean == (how == "clean")
    segments = [each for each in outcomes if isinstance(each, VerifiedSegment)]
    assert sum(each.record_count for each in segments) > 30_000


def test_every_file_is_dumped(looked_at, kafka_tool):
    data, _ = looked_at
    aborted = []
    for path in sorted(data.rglob("*")):
        rows = dump_file(RealDisk(), str(path)) if path.is_file() else None
        shown = [] if rows is None else list(rows)
        assert not any(isinstance(row, Unreadable) for row in shown), path
        if path.suffix == ".txnindex" and shown:
            aborted += shown
            theirs = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", path)
            for row in shown:
                line = (
                    f"version: 0 producerId: {row.producer_id} firstOffset: {row.first_offset} "
                    f"lastOffset: {row.last_offset} lastStableOffset: {row.last_stable_offset}"
                )
                assert line in theirs
    assert len(aborted) == 3
