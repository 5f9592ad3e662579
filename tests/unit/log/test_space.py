"""A disk that fills up: batches are refused, the rest goes on, and it passes by itself."""

import errno

import pytest

from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.directories.space import SpaceLimits
from ottla.log.log import LogState

TOPIC_ID = TopicId(b"0123456789abcdef")
TP = TopicPartition("t", 0)
MIB = 1 << 20
LIMITS = SpaceLimits(reserve_bytes=2 * MIB, floor_bytes=4 * MIB)


@pytest.mark.parametrize(
    ("total", "reserve", "floor"),
    [
        (64 * MIB, MIB, 3_355_443),  # a small volume: a share of it
        (1 << 40, 2 * MIB, 4 * MIB),  # a large one: an absolute amount, however full it is
        (0, 0, 0),
    ],
)
def test_a_small_volume_leaves_a_share_free_a_large_one_an_amount(total, reserve, floor):
    assert LIMITS.on_volume(total) == (reserve, floor)


@pytest.mark.parametrize(
    ("free", "was_full", "has_reserve", "is_full"),
    [
        (4 * MIB, False, True, False),
        (4 * MIB - 1, False, True, True),
        (4 * MIB, True, True, True),
        (5 * MIB - 1, True, True, True),
        (5 * MIB, True, True, False),
        (7 * MIB - 1, True, False, True),
        (7 * MIB, True, False, False),
    ],
)
def test_full_is_left_later_than_entered_and_not_without_the_reserve(
    free, was_full, has_reserve, is_full
):
    assert LIMITS.is_full(free, was_full=was_full, has_reserve=has_reserve) is is_full


def test_without_limits_only_a_refused_write_counts():
    none = SpaceLimits()
    assert not none.is_full(0, was_full=False, has_reserve=True)
    assert none.is_full(0, was_full=True, has_reserve=True)


CAPACITY = 256 * MIB


@pytest.fixture
def disk():
    inner = MemoryDisk(durability=True, capacity_bytes=CAPACITY)
    inner.make_directory("/d")
    return FaultyDisk(inner)


def start(disk, space=LIMITS, **config):
    manager = LogManager(
        disk=disk,
        clock=ManualClock(),
        rng=SeededRng(7),
        log_dirs=["/d/logs"],
        cluster_id="c",
        node_id=1,
        config_for=lambda topic: LogConfig(**config),
        space=space,
    )
    manager.start()
    return manager


def fill(disk, free_bytes=0):
    """Let others take the space, but for so much."""
    path = "/d/others"
    file = disk.open(path, create=True)
    file.allocate(file.size() + disk.free_bytes("/d") - free_bytes)
    return lambda: disk.remove(path)


def append(log, records):
    return log.append(records, leader_epoch=0)


def refused(log, records):
    with pytest.raises(KafkaError) as caught:
        append(log, records)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return str(caught.value)


def measure(manager):
    manager.space_measured(manager.measure_space())


def test_the_reserve_is_taken_at_the_start_and_once(disk):
    for _ in range(2):
        manager = start(disk)
        assert disk.size_of("/d/logs/.ottla-reserve") == 2 * MIB
        writes = disk.counts[DiskCall.WRITE]
        manager.stop()
    assert disk.counts[DiskCall.WRITE] - writes < 6, "it is not written anew"


def test_a_full_disk_refuses_batches_serves_reads_and_returns_by_itself(disk, batch, read_all):
    manager = start(disk)
    log = manager.create(TP, TOPIC_ID)
    append(log, batch(3))
    release = fill(disk, free_bytes=10)
    refused(log, batch(3))
    assert log.state is LogState.FULL
    assert disk.size_of(log.segments[-1].path) == log.segments[-1].size_bytes, "nothing half"
    assert not disk.exists("/d/logs/.ottla-reserve"), "given up"
    assert "out of disk space" in refused(log, batch())
    assert len(read_all(log)) == 3
    log.flush()
    job = manager.checkpoint_job()
    job.run()
    assert job.failures == {}
    measure(manager)
    assert "out of disk space" in refused(log, batch()), "the freed reserve is not for batches"
    release()
    measure(manager)
    assert disk.size_of("/d/logs/.ottla-reserve") == 2 * MIB, "first of all"
    append(log, batch(2))
    assert len(read_all(log)) == 5
    log.check()
    manager.stop()
    assert disk.exists("/d/logs/.kafka_cleanshutdown")


def test_below_the_floor_batches_are_refused_before_the_disk_is_full(disk, batch):
    manager = start(disk)
    log = manager.create(TP, TOPIC_ID)
    release = fill(disk, free_bytes=4 * MIB - 1)
    measure(manager)
    refused(log, batch())
    assert disk.exists("/d/logs/.ottla-reserve"), "kept for when there is nothing left at all"
    other = manager.create(TopicPartition("t", 1), TOPIC_ID)
    refused(other, batch())
    release()
    measure(manager)
    append(log, batch())
    append(other, batch())
    manager.stop()


def test_a_checkpoint_on_a_full_disk_takes_the_reserve(disk, batch):
    manager = start(disk)
    log = manager.create(TP, TOPIC_ID)
    append(log, batch())
    log.flush()
    fill(disk)
    job = manager.checkpoint_job()
    job.run()
    manager.checkpointed(job)
    assert (job.failures, log.state) == ({}, LogState.FULL)
    assert disk.size_of("/d/logs/recovery-point-offset-checkpoint") == len(b"0\n1\nt 0 1\n")


@pytest.mark.parametrize("space", [LIMITS, SpaceLimits(), SpaceLimits(reserve_bytes=2 * MIB)])
def test_a_node_starts_on_a_full_disk_to_serve_and_to_delete(disk, batch, read_all, space):
    manager = start(disk, space)
    log = manager.create(TP, TOPIC_ID)
    for _ in range(3):
        append(log, batch(5))
        log.flush()
    manager._release()  # the process dies
    release = fill(disk)
    manager = start(disk, space)
    if not space.reserve_bytes and TP in manager.offline:
        return  # Without a reserve there may be no room for what recovery writes: it is said.
    log = manager.get(TP)
    assert len(read_all(log)) == 15
    if space.floor_bytes:
        refused(log, batch())
    manager.delete(TP)
    release()
    manager.stop()


def test_a_new_partition_avoids_a_full_disk(batch):
    inner = MemoryDisk()
    inner.make_directory("/d")
    manager = LogManager(
        disk=inner,
        clock=ManualClock(),
        rng=SeededRng(7),
        log_dirs=["/d/a", "/d/b"],
        cluster_id="c",
        node_id=1,
        config_for=lambda topic: LogConfig(),
    )
    manager.start()
    manager.space_measured({"/d/a": True})
    for number in range(3):
        log = manager.create(TopicPartition("t", number), TOPIC_ID)
        assert log.directory == f"/d/b/t-{number}"
    manager.space_measured({"/d/b": True})
    refused(manager.create(TopicPartition("t", 9), TOPIC_ID), batch())
    manager.stop()


def test_a_failed_volume_is_not_taken_for_a_full_one(disk):
    manager = start(disk)
    disk.fail(DiskCall.LOOK, lasting=True)
    assert manager.measure_space() == {"/d/logs": False}
    disk.heal()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_leader_epochs_that_find_no_room_are_flushed_later(disk, batch, number):
    manager = start(disk)
    log = manager.create(TP, TOPIC_ID)
    append(log, batch())
    job = log.begin_flush()
    disk.fail(DiskCall.WRITE, errno=number)
    with pytest.raises(OSError, match=r"\[Errno"):
        job.run()
    log.finish_flush(job, OSError(number, "full"))
    assert (log.state, log.flushed_offset) == (LogState.FULL, 0)
    log.flush()
    assert log.flushed_offset == 1
    assert disk.exists("/d/logs/t-0/leader-epoch-checkpoint")
    manager.stop()
