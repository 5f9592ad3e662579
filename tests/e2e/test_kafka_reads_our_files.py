"""The files are Kafka's: DumpLogSegments reads ours, and we serve a directory that it wrote."""

import gzip
import re
import shutil
import time
from pathlib import Path

import pytest

from tools.wire_client import WireClient, batch, batches, record, values_of

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(180)]
FIND_COORDINATOR = 10
COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|exception|error|found timestamp|not indexed|should be|truncat"
    r"|are not found|index sanity",
    re.IGNORECASE,
)


def honest_lines(dump):
    """The lines of a dump without those that name a file or carry data."""
    return [
        line
        for line in dump.splitlines()
        if "isvalid: true" not in line and not line.startswith("Dumping ")
    ]


def write_many_segments(client, topic):
    """More than three segments of 1 MiB with index entries, in several codecs and sizes."""
    client.create_topic(topic, segment_bytes="1048576", index_interval_bytes="1024")
    stamp = 1_700_000_000_000
    for number in range(400):
        stamp += 1000 - 1500 * (number % 7 == 0)  # now and then the clock goes back
        values = [b"%06d-%d" % (number, index) + b"x" * 300 for index in range(1 + number % 40)]
        if number % 5 == 0:
            inner = b"".join(
                record(delta, value, timestamp_delta=delta * 10)
                for delta, value in enumerate(values)
            )
            records = batch(
                values,
                payload=gzip.compress(inner),
                attributes=1,
                base_timestamp=stamp,
                timestamp_step_ms=10,
            )
        else:
            records = batch(values, base_timestamp=stamp, timestamp_step_ms=10)
        got = client.produce(topic, records)
        assert got["error_code"] == 0, got


def partition_directory(data, topic, partition=0):
    found = [path for path in Path(data).rglob(f"{topic}-{partition}") if path.is_dir()]
    assert len(found) == 1, found
    return found[0]


def dump(kafka_tool, files):
    return kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--deep-iteration", "--files", ",".join(map(str, files))),
        timeout=100,
    )


def check_dump(kafka_tool, directory, *, segments):
    logs = sorted(directory.glob("*.log"))
    indexes = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    assert len(logs) >= segments
    assert len(indexes) == 2 * len(logs)
    told = dump(kafka_tool, logs)
    assert not [line for line in honest_lines(told) if COMPLAINTS.search(line)]
    assert "isvalid: false" not in told
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", told, re.MULTILINE)]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) > 0
    filled = [path for path in indexes if path.stat().st_size]
    assert len(filled) >= segments  # each closed segment has entries
    told = dump(kafka_tool, filled)
    assert not [line for line in honest_lines(told) if COMPLAINTS.search(line)], told[-3000:]
    assert len(re.findall(r"^offset: \d+ position: \d+", told, re.MULTILINE)) > segments
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", told, re.MULTILINE)) >= segments
    return offsets


@pytest.mark.parametrize("end", ["clean stop", "kill -9", "kill -9 and recovery"])
def test_dump_log_segments_accepts_every_file(ottla_server_factory, kafka_tool, end):
    server = ottla_server_factory()
    with WireClient(server.bootstrap) as client:
        write_many_segments(client, "dumped")
        (_, count), *_ = client.list_offsets("dumped", [0])
    if end == "clean stop":
        assert server.stop() == 0
    else:
        server.kill9()
    if end == "kill -9 and recovery":
        server.start()
        server.stop()
    if end == "kill -9":  # indexes of the active segment may be behind, never wrong
        directory = partition_directory(server.data, "dumped")
        told = dump(kafka_tool, sorted(directory.glob("*.log")))
        assert not [line for line in honest_lines(told) if COMPLAINTS.search(line)]
        return
    offsets = check_dump(kafka_tool, partition_directory(server.data, "dumped"), segments=3)
    assert len(offsets) == count


def test_real_clients_segments_pass_dump_log_segments(ottla_server_factory, kafka_tool):
    from confluent_kafka import Producer

    server = ottla_server_factory()
    with WireClient(server.bootstrap) as client:
        served = {api["api_key"] for api in client.call("api_versions", 0)["api_keys"]}
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            client.create_topic(codec, segment_bytes="1048576")
            producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": codec})
            for number in range(5000):
                producer.produce(codec, b"%d" % number * 20, b"k%d" % number, partition=0)
            assert producer.flush(30) == 0
    server.stop()
    logs = sorted(Path(server.data).rglob("*.log"))
    told = dump(kafka_tool, [path for path in logs if path.parent.name.endswith("-0")])
    assert not [line for line in honest_lines(told) if COMPLAINTS.search(line)]
    # librdkafka sends lz4 only to brokers that serve FindCoordinator, and plain records to others.
    codecs = ["none", "gzip", "snappy", "zstd"] + ["lz4"] * (FIND_COORDINATOR in served)
    for codec in codecs:
        assert f"compresscodec: {codec} " in told


def fill_kafka(peer, topic, kafka_tool):
    with WireClient(peer.bootstrap) as client:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            code = client.call("init_producer_id", 4, transactional_id=None)["error_code"]
            if code == 0:
                break
        write_many_segments(client, topic)
        asked = [{"topic_id": None, "name": topic}]
        topic_id = client.call("metadata", 12, topics=asked)["topics"][0]["topic_id"]
        return topic_id, read_all(client, topic)


def read_all(client, topic):
    """Every batch as (base offset, count, timestamps, CRC), in order."""
    found = []
    offset = 0
    (_, end), *_ = client.list_offsets(topic, [0])
    while offset < end:
        got = client.fetch(topic, offset, max_bytes=1 << 21, partition_max_bytes=1 << 21)
        assert got["error_code"] == 0, got
        for header in batches(got["records"]):
            assert header["crc_ok"]
            found.append(
                (
                    header["base_offset"],
                    header["count"],
                    header["base_timestamp"],
                    header["max_timestamp"],
                    header["crc"],
                    header["payload"],
                )
            )
            offset = header["base_offset"] + header["last_offset_delta"] + 1
    return found


@pytest.mark.parametrize("end", ["clean stop", "kill -9"])
def test_a_partition_directory_of_kafka_is_served(
    ottla_server_factory, kafka_server_factory, kafka_tool, end
):
    topic = "from-kafka"
    kafka = kafka_server_factory()
    _, written = fill_kafka(kafka, topic, kafka_tool)
    kafka_stamps = {}
    with WireClient(kafka.bootstrap) as client:
        for stamp in (0, 1_700_000_100_000, 1_700_000_200_000, 1_800_000_000_000):
            kafka_stamps[stamp] = client.list_offsets(topic, [0], stamp)
    if end == "clean stop":
        kafka.stop()
    else:
        kafka.kill9()

    server = ottla_server_factory()
    with WireClient(server.bootstrap) as client:
        client.create_topic(topic)
    server.stop()
    ours = partition_directory(server.data, topic)
    theirs = partition_directory(kafka.data, topic)
    for path in ours.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in theirs.iterdir():
        if path.name != "partition.metadata":
            shutil.copy(path, ours / path.name)
    server.start()
    with WireClient(server.bootstrap) as client:
        assert read_all(client, topic) == written
        for stamp, found in kafka_stamps.items():
            assert client.list_offsets(topic, [0], stamp) == found
        end_offset = written[-1][0] + written[-1][1]
        got = client.produce(topic, batch([b"after"]))
        assert (got["error_code"], got["base_offset"]) == (0, end_offset)
        assert values_of(client.fetch(topic, end_offset)["records"]) == [(end_offset, b"after")]
    server.stop()
    check_dump(kafka_tool, ours, segments=3)
