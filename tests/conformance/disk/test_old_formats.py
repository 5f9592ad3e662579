"""Segments in the formats of Kafka 0.8 to 0.10 (magic 0 and 1), written by Kafka's own builders.

``OldFormats.java`` makes the files and says how Apache Kafka reads them. ``--target kafka`` asks
a live Kafka 4.3 the same questions.
"""

import contextlib
import shutil
import subprocess

import pytest

from ottla.env.clock import SystemClock
from ottla.env.real_disk import RealDisk
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.contents.gaps import end_if_cut
from ottla.log.directories.recovery import open_log
from ottla.records.decode import decode_batches
from tests.by_time import offset_for_timestamp, offset_of_max_timestamp
from tests.old_formats import COUNT, SEGMENTS, start_with_segments, write_segments

pytestmark = pytest.mark.kafka

START_MS = 1_500_000_000_000
TP = TopicPartition("legacy", 0)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory, kafka_libs):
    """The files of three segments, and every record in them as Kafka reads it."""
    directory = tmp_path_factory.mktemp("old-formats")
    return directory, write_segments(directory, kafka_libs)


def open_copy(fixture, tmp_path, **config):
    shutil.copytree(fixture[0], tmp_path / str(TP))
    options = {"recovery_point": 0, "log_start_offset": 0, "is_clean": False}
    settings = LogConfig(index_interval_bytes=500, **config)
    path = str(tmp_path / str(TP))
    return open_log(RealDisk(), SystemClock(), path, TP, settings, **options)


def read(log, offset, max_bytes=1 << 20):
    upper = log.log_end_offset
    result = log.read(offset, max_bytes=max_bytes, upper_offset=upper, min_one_message=True)
    return result.region.read()


def plain(records, start=0):
    return [(r.offset, r.timestamp, r.key, r.value) for r in records if r.offset >= start]


def test_every_record_is_read_as_kafka_reads_it(fixture, tmp_path):
    log = open_copy(fixture, tmp_path)
    assert (log.log_end_offset, log.segment_count) == (COUNT, 3)
    found, offset = [], 0
    while offset < COUNT:
        for batch in decode_batches(read(log, offset, 3000), 1 << 20):
            found += plain(batch.records, offset)
            offset = batch.header.next_offset
    assert found == fixture[1]
    log.check()


def test_every_offset_is_found_inside_its_batch(fixture, tmp_path):
    log = open_copy(fixture, tmp_path)
    for offset in range(COUNT):
        first = next(decode_batches(read(log, offset), 1 << 20))
        assert first.header.base_offset <= offset <= first.header.last_offset


def test_bytes_are_served_as_they_are(fixture, tmp_path):
    log = open_copy(fixture, tmp_path)
    assert read(log, 0) == (fixture[0] / f"{0:020d}.log").read_bytes()


@pytest.mark.parametrize("timestamp", [0, 49_999, 50_000, 99_001, 140_500, 150_500, 212_000])
def test_a_time_leads_to_its_record(fixture, tmp_path, timestamp):
    log = open_copy(fixture, tmp_path)
    wanted = START_MS + timestamp
    expected = next(record for record in fixture[1] if record[1] >= wanted)
    found = offset_for_timestamp(log, wanted)
    assert (found.offset, found.timestamp) == expected[:2]


def test_the_latest_time_decides_on_retention(fixture, tmp_path):
    log = open_copy(fixture, tmp_path)
    assert [segment.newest_ms() for segment in log.segments] == [
        max(record[1] for record in fixture[1] if record[0] < 150),
        max(record[1] for record in fixture[1] if 150 <= record[0] < 200),
        max(record[1] for record in fixture[1]),
    ]
    assert offset_of_max_timestamp(log).offset == COUNT - 1


def test_appends_follow_and_a_restart_trusts_the_end(fixture, tmp_path):
    from ottla.records.builder import build_batch
    from ottla.records.record import Record

    log = open_copy(fixture, tmp_path)
    log.append(memoryview(build_batch([Record(value=b"new")])), leader_epoch=4)
    log.close()
    for is_clean in (True, False):
        again = open_log(
            *(RealDisk(), SystemClock(), str(tmp_path / str(TP)), TP, LogConfig()),
            recovery_point=COUNT + 1 if is_clean else 0,
            log_start_offset=0,
            is_clean=is_clean,
        )
        assert again.log_end_offset == COUNT + 1
        assert again.leader_epochs.entries == [(4, COUNT)]
        again.check()
        again.abandon()


@pytest.mark.parametrize("offset", [20, 42, 150, 171, 205, 212])
def test_a_log_is_cut_between_batches(fixture, tmp_path, offset):
    log = open_copy(fixture, tmp_path)
    point = end_if_cut(log.segments, offset)
    log.truncate_to(offset)
    assert log.log_end_offset == point <= offset
    log.check()


def test_a_torn_tail_is_cut_and_bit_rot_is_not(fixture, tmp_path):
    from ottla.errors import CorruptFile

    path = tmp_path / "torn" / str(TP)
    shutil.copytree(fixture[0], path)
    first = path / f"{0:020d}.log"
    for later in (150, 200):
        (path / f"{later:020d}.log").unlink()
    data = first.read_bytes()
    first.write_bytes(data[:-7])
    arguments = (RealDisk(), SystemClock(), str(path), TP, LogConfig())
    log = open_log(*arguments, recovery_point=0, log_start_offset=0, is_clean=False)
    assert log.log_end_offset == 140
    log.abandon()
    for index in path.glob("*index"):
        index.unlink()
    broken = bytearray(data)
    broken[1000] ^= 1
    first.write_bytes(broken)
    with pytest.raises(CorruptFile):
        open_log(*arguments, recovery_point=150, log_start_offset=0, is_clean=False)


@pytest.fixture(scope="module")
def served(request, fixture, target_kind, tmp_path_factory):
    """A broker that found the segments in its directory when it started."""
    from tools.kafka_peer import KafkaPeer
    from tools.ottla_peer import OttlaPeer

    make = {"kafka": KafkaPeer, "ottla": OttlaPeer}[target_kind]
    peer = make(tmp_path_factory.mktemp("served") / "data", None)
    with contextlib.ExitStack() as stack:
        stack.callback(peer.kill9)
        start_with_segments(peer, fixture[0])
        yield peer


@pytest.mark.parametrize("version", [4, 10, 12])
@pytest.mark.parametrize("offset", [0, 41, 99, 139, 150, 171, 190, 203, 224])
def test_fetch_gives_what_is_on_the_disk(served, fixture, version, offset):
    from tools.wire_client import WireClient

    with WireClient(served.bootstrap) as client:
        got = client.fetch("legacy", offset, version=version)
    assert (got["error_code"], got["high_watermark"]) == (0, COUNT)
    data = bytes(got["records"])
    name = max(base for base in SEGMENTS if base <= offset)
    assert (fixture[0] / f"{name:020d}.log").read_bytes().endswith(data)
    batches = list(decode_batches(data, 1 << 20))
    assert batches[0].header.base_offset <= offset <= batches[0].header.last_offset


@pytest.mark.parametrize("timestamp", [0, 49_999, 99_001, 140_500, 150_500, 212_000, 10**9])
def test_list_offsets_finds_times(served, fixture, timestamp):
    from tools.wire_client import WireClient

    wanted = START_MS + timestamp
    expected = next((record[0] for record in fixture[1] if record[1] >= wanted), -1)
    with WireClient(served.bootstrap) as client:
        ((code, offset),) = client.list_offsets("legacy", [0], timestamp=wanted)
    assert (code, offset) == (0, expected)


def test_the_command_line_prints_them(served, fixture, target_kind):
    import sys

    if target_kind == "kafka":
        pytest.skip("asked of Ottla only")
    command = [sys.executable, "-m", "ottla", "consume", "legacy", "--from", "earliest"]
    done = subprocess.run(
        [*command, "-b", served.bootstrap, "-f", "%o %T\\n"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert found == [record[:2] for record in fixture[1]]
