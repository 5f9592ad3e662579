"""One wrong byte anywhere in a log directory: a good start or a named error, never wrong data.

A start may refuse the directory, or one partition, with an OttlaError that says why. What it serves
must be right: records, offsets of timestamps, epochs, what is known of producers. What two files in
Kafka's format tell, which have no checksum, nothing else can confirm: see ``TOLD_BY_NOBODY_ELSE``.
"""

import itertools

import pytest

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import OttlaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.files.checkpoints import read_offset_checkpoint
from ottla.log.upkeep.front import drop_segments_below, raise_start_offset
from ottla.records.builder import build_batch
from ottla.records.decode import decode_batches
from ottla.records.record import Record
from tests.by_time import offset_for_timestamp

pytestmark = pytest.mark.slow

NOW = 1_700_000_000_000
TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
PRODUCER_ID = 77
BATCHES = 18
START_OFFSET = 9
"""In the middle of the first segment that is left."""
TOLD_BY_NOBODY_ELSE = {"log-start-offset-checkpoint", "leader-epoch-checkpoint"}
"""One digit for another is as good a start, or epoch; without the lines they are what the segments
say: the records deleted last come back."""
MARK = "/logs/.kafka_cleanshutdown"


def manager_on(disk):
    manager = LogManager(
        disk=disk,
        clock=ManualClock(NOW),
        rng=SeededRng(3),
        log_dirs=["/logs"],
        cluster_id="c",
        node_id=1,
        config_for=lambda topic: CONFIG,
    )
    manager.start()
    return manager


def batch_of(step):
    records = [
        Record(timestamp=NOW + step * 10 + n, key=b"k", value=b"%d.%d" % (step, n))
        for n in range(2)
    ]
    producer = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": 2 * step}
    return memoryview(build_batch(records, **producer))


def files_under(disk, path="/logs"):
    files = {}
    for name in disk.list_directory(path):
        if disk.is_directory(f"{path}/{name}"):
            files |= files_under(disk, f"{path}/{name}")
        else:
            file = disk.open_read_only(f"{path}/{name}")
            files[f"{path}/{name}"] = file.read_at(0, file.size())
    return files


def disk_with(files):
    disk = MemoryDisk()
    for directory in ("/logs", "/logs/t-0", "/logs/u-0"):
        disk.make_directory(directory)
    for path, content in files.items():
        disk.open(path, create=True).write_at(0, content)
    return disk


def consume(log):
    """Read as a client: checksums verified, offsets must continue where the last batch ended."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(
            offset, max_bytes=10_000, upper_offset=log.log_end_offset, min_one_message=True
        )
        for decoded in decode_batches(result.region.read(), 1 << 20):
            header = decoded.header
            if not header.base_offset <= offset < header.next_offset:
                raise NotContinuous
            found += [
                (one.offset, one.value, one.timestamp)
                for one in decoded.records
                if one.offset >= offset
            ]
            offset = header.next_offset
    return found


class NotContinuous(OttlaError):
    """What a client sees of a wrong base offset, which no checksum covers."""


@pytest.fixture(scope="module")
def pristine():
    """(files of a stopped log directory, the records of TP)."""
    disk = MemoryDisk()
    manager = manager_on(disk)
    manager.create(OTHER, TopicId(b"another topic id")).append(batch_of(0), leader_epoch=0)
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    for step in range(BATCHES):
        log.append(batch_of(step), leader_epoch=step // 7)
    log.flush()
    raise_start_offset(log, START_OFFSET)
    manager.checkpoint_job().run()
    for path in drop_segments_below(log, disk, START_OFFSET, 10):
        disk.remove(path)
    expected = consume(log)
    assert log.segment_count > 2
    assert expected[0][0] == START_OFFSET
    manager.stop()
    files = files_under(disk)
    assert {"index", "timeindex", "snapshot", "log"} <= {path.rpartition(".")[2] for path in files}
    return files, expected


def damaged(content, at, damage, rng):
    content = bytearray(content)
    match damage:
        case "flip":
            content[at] ^= 1 << rng.random_below(8)
        case "zero":
            content[at] = 0
        case "ones":
            content[at] = 255
        case "cut":
            del content[at:]
        case "any":
            return damaged(content, at, ("flip", "zero", "ones")[rng.random_below(3)], rng)
    return bytes(content)


def judge(disk, path, expected):
    """Start on a damaged directory. Returns "named" or "served"; asserts that what is, is right."""
    name = path.rpartition("/")[2]
    told = read_offset_checkpoint(disk, "/logs/log-start-offset-checkpoint") or {}
    try:
        manager = manager_on(disk)
    except OttlaError:
        return "named"
    for where in (TP, OTHER):
        if manager.get(where) is None:
            assert isinstance(manager.offline.get(where), OttlaError), where
            assert str(where) in path or "checkpoint" in name, "the others serve"
    log = manager.get(TP)
    if log is None:
        return "named"
    try:
        found = consume(log)
    except OttlaError:
        assert name.endswith(".log"), "only a segment can be unreadable"
        return "named"
    if name == "log-start-offset-checkpoint":
        # Nobody else tells: what the file says holds, if it can be read, and no more than that.
        start = max(told.get(TP, 0), log.segments[0].base_offset)
        assert log.log_start_offset == start
        expected = [one for one in all_records() if one[0] >= start]
    assert found == expected
    if found and path.endswith("index"):
        for offset, _, timestamp in expected:
            assert offset_for_timestamp(log, timestamp).offset == offset
    if name not in TOLD_BY_NOBODY_ELSE:
        assert log.leader_epochs.entries == [(0, START_OFFSET), (1, 14), (2, 28)]
    original = log.append(batch_of(BATCHES - 1), leader_epoch=2)
    assert original.base_offset == 2 * (BATCHES - 1), "a resend is a duplicate"
    assert log.append(batch_of(BATCHES), leader_epoch=2).base_offset == 2 * BATCHES
    log.flush()
    judge_after_kill(disk, consume(log))
    return "served"


def judge_after_kill(disk, acknowledged):
    """What was acknowledged after a good start is there after the next one, too; or it is named."""
    manager = manager_on(disk_with(files_under(disk)))
    log = manager.get(TP)
    if log is None:
        assert isinstance(manager.offline.get(TP), OttlaError)
    else:
        assert consume(log)[-len(acknowledged) :] == acknowledged


def all_records():
    return [
        (2 * step + n, b"%d.%d" % (step, n), NOW + step * 10 + n)
        for step in range(BATCHES)
        for n in range(2)
    ]


def run(pristine, *, clean, damage, stride):
    files, expected = pristine
    files = {path: content for path, content in files.items() if clean or path != MARK}
    rng = SeededRng(clean * 100 + len(damage))
    places = [(path, at) for path, content in files.items() for at in range(len(content))]
    outcomes = {"served": 0, "named": 0}
    for path, at in itertools.islice(places, rng.random_below(stride), None, stride):
        content = damaged(files[path], at, damage, rng)
        if content == files[path]:
            continue
        disk = disk_with(files | {path: content})
        try:
            outcomes[judge(disk, path, expected)] += 1
        except BaseException as error:
            error.add_note(f"{damage} of byte {at} in {path}, clean: {clean}")
            raise
    assert outcomes["served"]
    assert outcomes["named"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["flip", "zero", "ones", "cut"])
def test_some_wrong_bytes_never_give_wrong_data(pristine, clean, damage):
    run(pristine, clean=clean, damage=damage, stride=7)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["any", "cut"])
def test_no_wrong_byte_gives_wrong_data(pristine, clean, damage):
    run(pristine, clean=clean, damage=damage, stride=1)
