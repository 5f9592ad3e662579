"""Apache Kafka's DumpLogSegments reads what the log writes, without a complaint."""

import re

import pytest

from ottla.env.clock import SystemClock
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SystemRng
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.records.batch import TimestampType
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.by_time import offset_for_timestamp

pytestmark = pytest.mark.kafka

TP = TopicPartition("written-by-ottla", 0)
COMPLAINTS = (
    "mismatch",
    "Non-consecutive",
    "followed by",
    "out of order",
    "isvalid: false",
    "invalid",
    "rror",
)


def manager_for(directory, **config):
    manager = LogManager(
        disk=RealDisk(),
        clock=SystemClock(),
        rng=SystemRng(),
        log_dirs=[str(directory)],
        cluster_id="c",
        node_id=1,
        config_for=lambda topic: LogConfig(**config),
    )
    manager.start()
    return manager


def fill(log, count, codecs=range(5)):
    """Append ``count`` batches: codecs and sizes change, two in three are later than before."""
    now = SystemClock().wall_ms() - 10 * count
    expected = 0
    codecs = list(codecs)
    for step in range(count):
        moment = now + step * 10 - (500 if step % 3 == 2 else 0)
        records = [
            Record(timestamp=moment + n, key=b"k%d" % n, value=b"v%d-%d" % (step, n) * 9)
            for n in range(1 + step % 7)
        ]
        batch = build_batch(records, codec=codecs[step % len(codecs)])
        log.append(memoryview(batch), leader_epoch=step * 3 // count)
        expected += len(records)
    return expected


def dump(kafka_tool, directory, *options):
    files = sorted(
        str(path) for path in directory.iterdir() if path.suffix in {".log", ".index", ".timeindex"}
    )
    output = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(files)
    )
    # Of every segment but the first, Kafka's own too, it says that -1 is followed by the base.
    output = re.sub(
        r"Non-consecutive offsets in \S*/(\d{20})\.log\n +-1 is followed by 0*(\d+)\n",
        lambda match: "" if int(match[1]) == int(match[2]) else match[0],
        output + "\n",
    )
    complaints = [line for line in output.splitlines() if any(c in line for c in COMPLAINTS)]
    assert not complaints, "\n".join(complaints[:20])
    return output


def offsets_in(output):
    return [
        int(line.split("offset: ")[1].split()[0])
        for line in output.splitlines()
        if line.lstrip().startswith("| offset: ")
    ]


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_every_segment_and_index_of_a_running_and_a_stopped_log(tmp_path, kafka_tool, stop):
    config = {"segment_bytes": 40_000, "index_interval_bytes": 500}
    manager = manager_for(tmp_path / "logs", **config)
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    expected = fill(log, 600)
    assert log.segment_count >= 3
    if stop == "clean":
        manager.stop()
    else:
        manager._release()
        manager_for(tmp_path / "logs", **config).stop()
    directory = tmp_path / "logs" / str(TP)
    output = dump(kafka_tool, directory, "--deep-iteration")
    assert offsets_in(output) == list(range(expected))
    for codec in ("NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"):
        assert f"compresscodec: {codec.lower()}" in output.lower()
    dump(kafka_tool, directory, "--index-sanity-check")
    dump(kafka_tool, directory, "--verify-index-only")


def test_log_append_time_and_replaced_indexes(tmp_path, kafka_tool):
    config = {
        "segment_bytes": 20_000,
        "index_interval_bytes": 300,
        "message_timestamp_type": TimestampType.LOG_APPEND_TIME,
    }
    manager = manager_for(tmp_path / "logs", **config)
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    expected = fill(log, 300)
    manager.stop()
    directory = tmp_path / "logs" / str(TP)
    for path in list(directory.glob("*.index"))[:2] + list(directory.glob("*.timeindex"))[:1]:
        path.unlink()
    manager = manager_for(tmp_path / "logs", **config)
    log = manager.get(TP)
    for offset in range(0, expected, 50):
        log.read(offset, max_bytes=100, upper_offset=expected, min_one_message=True)
    assert offset_for_timestamp(log, 0).offset == 0
    manager.stop()
    output = dump(kafka_tool, directory, "--deep-iteration")
    assert offsets_in(output) == list(range(expected))
    assert "LogAppendTime" in output
    dump(kafka_tool, directory, "--index-sanity-check")


def test_after_truncation_and_a_torn_tail(tmp_path, kafka_tool):
    config = {"segment_bytes": 30_000, "index_interval_bytes": 400}
    manager = manager_for(tmp_path / "logs", **config)
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    fill(log, 300)
    log.truncate_to(log.log_end_offset * 2 // 3)
    end = log.log_end_offset
    log.segments.active.file.write_at(log.segments.active.size_bytes, b"\0" * 5000)
    manager._release()
    manager = manager_for(tmp_path / "logs", **config)
    log = manager.get(TP)
    assert log.log_end_offset == end
    more = fill(log, 100)
    manager.stop()
    directory = tmp_path / "logs" / str(TP)
    output = dump(kafka_tool, directory, "--deep-iteration")
    assert offsets_in(output) == list(range(end + more))
    dump(kafka_tool, directory, "--index-sanity-check")


BATCH_LINE = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) "
    r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) .* position: (\d+) "
    r"(\w+): (-?\d+) size: (\d+) magic: (\d) compresscodec: (\w+) crc: (\d+) isvalid: (\w+)"
)


def test_our_dump_tells_what_kafkas_tells(tmp_path, kafka_tool):
    from ottla.env.real_disk import RealDisk
    from ottla.log.inspect.dump import IndexEntry, TimeIndexEntry, dump_file

    manager = manager_for(tmp_path / "logs", segment_bytes=40_000, index_interval_bytes=500)
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    fill(log, 300)
    for sequence in range(5):
        records = [Record(value=b"x")] * 2
        fields = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 2 * sequence}
        log.append(memoryview(build_batch(records, **fields)), leader_epoch=4)
    manager.stop()
    directory = tmp_path / "logs" / str(TP)
    for path in sorted(directory.glob("*.log")):
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
        theirs = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", path)
        expected = [match.groups() for match in map(BATCH_LINE.match, theirs.splitlines()) if match]
        ours = [
            tuple(
                map(
                    str,
                    (
                        *(row.base_offset, row.last_offset, row.record_count, row.base_sequence),
                        *(row.last_sequence, row.producer_id, row.producer_epoch),
                        *(row.leader_epoch, row.position, row.timestamp_type, row.max_timestamp),
                        *(row.size_bytes, row.magic, row.codec, row.crc, str(row.is_valid).lower()),
                    ),
                )
            )
            for row in dump_file(RealDisk(), str(path))
        ]
        assert ours == expected
        assert [row[-1] for row in ours].count("false") == 1
    for path in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
        theirs = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", path, check=False)
        rows = list(dump_file(RealDisk(), str(path)))
        pattern = (
            r"timestamp: (\d+) offset: (\d+)"
            if path.suffix == ".timeindex"
            else (r"offset: (\d+) position: (\d+)")
        )
        found = [tuple(map(int, pair)) for pair in re.findall(pattern, theirs)]
        assert [tuple(row) for row in rows] == found
        assert all(isinstance(row, (IndexEntry, TimeIndexEntry)) for row in rows)
