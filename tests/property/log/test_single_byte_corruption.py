"""One wrong byte anywhere in a log directory: a good start or a named error, never wrong data."""

import itertools

import pytest

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import OttlaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.manager import LogManager
from ottla.records.builder import build_batch
from ottla.records.decode import decode_batches
from ottla.records.record import Record

NOW = 1_700_000_000_000
TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)


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


def snapshot(disk, path="/logs"):
    files = {}
    for name in disk.list_directory(path):
        if disk.is_directory(f"{path}/{name}"):
            files |= snapshot(disk, f"{path}/{name}")
        else:
            file = disk.open(f"{path}/{name}")
            files[f"{path}/{name}"] = file.read_at(0, file.size())
    return files


def restore(files):
    disk = MemoryDisk()
    disk.make_directory("/logs")
    disk.make_directory("/logs/t-0")
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
            if decoded.header.base_offset != offset:
                return found
            found += [(one.offset, one.value, one.timestamp) for one in decoded.records]
            offset = decoded.header.next_offset
    return found


@pytest.fixture(scope="module")
def pristine():
    """(files of a stopped log directory, its records)."""
    disk = MemoryDisk()
    manager = manager_on(disk)
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    for step in range(24):
        records = [
            Record(timestamp=NOW + step * 10 + n, key=b"k", value=b"%d.%d" % (step, n))
            for n in range(2)
        ]
        log.append(memoryview(build_batch(records)), leader_epoch=step // 9)
    expected = consume(log)
    assert log.segment_count > 2
    manager.stop()
    return snapshot(disk), expected


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["flip", "zero", "cut"])
def test_never_wrong_data(pristine, clean, damage):
    files, expected = pristine
    rng = SeededRng(clean * 100 + len(damage))
    places = [
        (path, at)
        for path, content in files.items()
        if not path.endswith((".lock", ".kafka_cleanshutdown"))
        for at in range(len(content))
    ]
    outcomes = {"served": 0, "named": 0}
    stride = 3 + rng.random_below(3)
    for path, at in itertools.islice(places, rng.random_below(stride), None, stride):
        damaged = dict(files)
        if not clean:
            del damaged["/logs/.kafka_cleanshutdown"]
        content = bytearray(damaged[path])
        match damage:
            case "flip":
                content[at] ^= 1 << rng.random_below(8)
            case "zero":
                content[at] = 0
            case "cut":
                del content[at:]
        damaged[path] = bytes(content)
        disk = restore(damaged)
        try:
            manager = manager_on(disk)
            log = manager.get(TP)
            if log is None:
                assert isinstance(manager.offline.get(TP), OttlaError), (path, at)
                outcomes["named"] += 1
                continue
            found = consume(log)
        except OttlaError:
            outcomes["named"] += 1
            continue
        outcomes["served"] += 1
        first = found[0][0] if found else 0
        wanted = [record for record in expected if record[0] >= first]
        assert found == wanted[: len(found)], (path, at)
        if not path.endswith(
            ("log", "log-start-offset-checkpoint", "recovery-point-offset-checkpoint")
        ):
            assert found == expected, (path, at)
    assert outcomes["served"]
    assert outcomes["named"]
