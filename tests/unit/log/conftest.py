"""Disks, batches and logs that the log's tests share."""

import pytest

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SeededRng
from ottla.ids import TopicId, TopicPartition
from ottla.log.append import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.directories.recovery import open_log
from ottla.records.builder import build_batch
from ottla.records.record import Record

TOPIC_ID = TopicId(b"0123456789abcdef")
TP = TopicPartition("flights", 0)
NOW = 1_700_000_000_000


@pytest.fixture(params=["memory", "real"])
def place(request, tmp_path):
    """(disk, empty directory), once in memory and once on the real disk."""
    if request.param == "memory":
        disk = MemoryDisk(durability=True)
        disk.make_directory("/data")
        return disk, "/data"
    (tmp_path / "data").mkdir()
    return RealDisk(), str(tmp_path / "data")


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def batch():
    """Build one batch as a producer sends it: ``batch(3)`` has three records."""

    def build(count=1, *, timestamp=NOW, step=1, size=20, key=b"k", **options):
        records = [
            Record(timestamp=timestamp + index * step, key=key, value=b"v" * size)
            for index in range(count)
        ]
        return memoryview(build_batch(records, **options))

    return build


@pytest.fixture
def open_partition(clock):
    """Open a partition directory by itself, as the manager would."""

    def open_it(disk, directory, *, recovery_point=0, start=0, clean=False, **config):
        path = f"{directory}/{TP}"
        if not disk.exists(path):
            disk.make_directory(path)
            disk.sync_directory(directory)
        return open_log(
            disk,
            clock,
            path,
            TP,
            LogConfig(**config),
            recovery_point=recovery_point,
            log_start_offset=start,
            is_clean=clean,
        )

    return open_it


@pytest.fixture
def log(place, open_partition):
    return open_partition(*place)


@pytest.fixture
def make_manager(clock):
    def make(
        disk,
        directory,
        *,
        cluster_id="ottla-test",
        node_id=1,
        names=("logs",),
        recovery_threads=1,
        **config,
    ):
        return LogManager(
            recovery_threads=recovery_threads,
            disk=disk,
            clock=clock,
            rng=SeededRng(7),
            log_dirs=[f"{directory}/{name}" for name in names],
            cluster_id=cluster_id,
            node_id=node_id,
            config_for=lambda topic: LogConfig(**config),
        )

    return make


@pytest.fixture
def read_all():
    """Read a log as a consumer would: follow the offsets, return (offset, value, timestamp)s."""
    from ottla.records.decode import decode_batches

    def read(log, start=None, upper=None, max_bytes=1 << 20):
        offset = log.log_start_offset if start is None else start
        upper = log.log_end_offset if upper is None else upper
        found = []
        while offset < upper:
            result = log.read(offset, max_bytes=max_bytes, upper_offset=upper, min_one_message=True)
            assert result.region is not None, (offset, upper)
            before = offset
            for decoded in decode_batches(result.region.read(), 1 << 26):
                found += [
                    (record.offset, record.value, record.timestamp)
                    for record in decoded.records
                    if record.offset >= offset
                ]
                offset = decoded.header.next_offset
            assert offset > before
        return found

    return read


@pytest.fixture
def stopped(place, open_partition, batch, read_all):
    """A partition of several segments after a clean stop: (disk, directory, path, records)."""

    def make(count=20, **config):
        disk, directory = place
        log = open_partition(disk, directory, **config)
        for step in range(count):
            records = batch(2, timestamp=NOW + step * 10)
            log.append(records, leader_epoch=step // 10, origin=AppendOrigin.CLIENT)
        records = read_all(log)
        log.close()
        return disk, directory, log.directory, records

    return make
