"""A name that comes back brings nothing of its former partition with it."""

import errno
from threading import Thread

import pytest

from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.directories import offset_checkpoints
from ottla.log.directories.making import Wanted
from ottla.log.directories.offset_checkpoints import OFFSET_CHECKPOINTS
from ottla.log.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from ottla.log.files.layout import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.log.upkeep.front import raise_start_offset

OLD_ID = TopicId(b"0123456789abcdef")
NEW_ID = TopicId(b"fedcba9876543210")
TP = TopicPartition("t", 0)
BESIDE = TopicPartition("beside", 0)


def append(log, records):
    result = log.append(records, leader_epoch=0)
    log.flush()
    return result


def said(disk, log_dir="/d/logs"):
    return {
        name: read_offset_checkpoint(disk, f"{log_dir}/{name}") or {} for name in OFFSET_CHECKPOINTS
    }


def mentions(disk, where=TP, log_dir="/d/logs"):
    return {name for name, offsets in said(disk, log_dir).items() if where in offsets}


@pytest.fixture
def memory():
    disk = MemoryDisk(durability=True)
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


def fill_and_empty(manager, batch):
    """Make a log of ten records, of which nine are gone; with a neighbour; checkpoint them all."""
    for where in (TP, BESIDE):
        log = manager.create(where, OLD_ID)
        append(log, batch(10))
        raise_start_offset(log, 9)
    checkpoint(manager)


def checkpoint(manager):
    for job in (manager.checkpoint_job(), manager.high_watermark_job()):
        job.run()
        manager.checkpointed(job)
    path = f"{next(iter(manager.directories))}/{CLEANER_CHECKPOINT}"
    manager.checkpoints.job({path: dict.fromkeys(manager.logs, 8)}).run()


def test_a_recreated_partition_gets_nothing_of_the_former_ones_checkpoints(
    make_manager, memory, batch, read_all
):
    manager = make_manager(memory, "/d")
    manager.start()
    fill_and_empty(manager, batch)
    assert mentions(memory) == set(OFFSET_CHECKPOINTS)
    manager.delete(TP)
    log = manager.create(TP, NEW_ID)
    assert mentions(memory) == set(), "before anything can be acknowledged"
    assert mentions(memory, BESIDE) == set(OFFSET_CHECKPOINTS)
    append(log, batch(5))
    for seed in range(5):
        after = make_manager(memory.crash(SeededRng(seed)), "/d")
        after.start()
        assert after.offline == {}
        found = after.get(TP)
        assert (found.log_start_offset, found.log_end_offset) == (0, 5)
        assert found.topic_id == NEW_ID
        assert len(read_all(found)) == 5
        assert after.get(BESIDE).log_start_offset == 9
        after._release()


def test_a_checkpoint_on_its_way_does_not_bring_a_deleted_partitions_entry_back(
    make_manager, memory, batch
):
    manager = make_manager(memory, "/d")
    manager.start()
    fill_and_empty(manager, batch)
    append(manager.get(TP), batch(1))
    late = [manager.checkpoint_job(), manager.high_watermark_job()]
    path = f"/d/logs/{CLEANER_CHECKPOINT}"
    late.append(manager.checkpoints.job({path: {TP: 9, BESIDE: 9}}))
    manager.delete(TP)
    append(manager.create(TP, NEW_ID), batch(5))
    for job in late:
        job.run()
        manager.checkpointed(job)
    assert mentions(memory) == set()
    assert mentions(memory, BESIDE) == set(OFFSET_CHECKPOINTS)
    after = make_manager(memory.crash(SeededRng(1)), "/d")
    after.start()
    assert (after.get(TP).log_start_offset, after.get(TP).log_end_offset) == (0, 5)


def test_checkpoints_that_are_being_written_do_not_hold_up_the_loop(
    make_manager, memory, batch, monkeypatch
):
    manager = make_manager(memory, "/d")
    manager.start()
    append(manager.create(TP, NEW_ID), batch(5))
    later = []

    def write(disk, path, offsets):
        # A slow disk: meanwhile the loop wants to save something newer.
        loop = Thread(target=lambda: later.append(manager.high_watermark_job()), daemon=True)
        loop.start()
        loop.join(10)
        write_offset_checkpoint(disk, path, offsets)

    monkeypatch.setattr(offset_checkpoints, "write_offset_checkpoint", write)
    job = manager.checkpoint_job()
    job.run()
    assert not job.failures
    assert len(later) == len(job.files), "each was made while a file was written"


def test_entries_left_by_a_crash_are_forgotten_before_their_name_is_used(
    make_manager, memory, batch
):
    manager = make_manager(memory, "/d")
    manager.start()
    fill_and_empty(manager, batch)
    manager.delete(TP)
    memory = memory.crash(SeededRng(2))
    manager = make_manager(memory, "/d")
    manager.start()
    assert mentions(memory) == set(OFFSET_CHECKPOINTS), "no directory, but entries"
    assert manager.high_watermarks == {BESIDE: 10}
    append(manager.create(TP, NEW_ID), batch(5))
    after = make_manager(memory.crash(SeededRng(3)), "/d")
    after.start()
    assert (after.get(TP).log_start_offset, after.get(TP).log_end_offset) == (0, 5)


def test_a_cut_at_any_call_of_delete_and_create_leaves_the_old_log_or_the_new_one(
    make_manager, memory, batch, read_all
):
    """In whatever state the disk is left: what is there is right, and can be deleted and made."""
    manager = make_manager(memory, "/d")
    manager.start()
    fill_and_empty(manager, batch)
    append(manager.get(TP), batch(1))
    before = memory.crash(SeededRng(4))
    calls, killed = 0, True
    while killed:
        inner = before.crash(SeededRng(calls))
        disk = FaultyDisk(inner)
        manager = make_manager(disk, "/d")
        manager.start()
        disk.kill_at(calls + 1)
        acknowledged, killed = 0, False
        try:
            job = manager.checkpoint_job()
            manager.delete(TP)
            log = manager.create(TP, NEW_ID)
            append(log, batch(5))
            acknowledged = 5
            job.run()
        except (DiskKilled, KafkaError):
            killed = True
        after = make_manager(inner.crash(SeededRng(calls)), "/d")
        after.start()
        assert after.offline == {}, calls
        found = after.get(TP)
        if found is not None and found.topic_id == OLD_ID:
            assert not acknowledged
            assert (found.log_start_offset, found.log_end_offset) == (9, 11)
        elif found is not None:
            assert found.log_start_offset == 0
            assert found.log_end_offset >= acknowledged
        after.remove_deleted()
        after.delete(TP)
        append(after.create(TP, NEW_ID), batch(5))
        again = make_manager(after.disk.crash(SeededRng(calls)), "/d")
        again.start()
        assert (again.get(TP).log_start_offset, again.get(TP).log_end_offset) == (0, 5)
        calls += 1
    assert calls > 20


def test_a_disk_that_keeps_the_former_entries_gets_no_log_of_that_name(make_manager, memory, batch):
    disk = FaultyDisk(memory)
    manager = make_manager(disk, "/d")
    manager.start()
    fill_and_empty(manager, batch)
    manager.delete(TP)
    disk.fail(DiskCall.WRITE, errno=errno.EDQUOT, lasting=True)
    with pytest.raises(KafkaError, match="still tell of a former t-0") as caught:
        manager.create(TP, NEW_ID)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not disk.exists("/d/logs/t-0")
    disk.heal()
    assert manager.create(TP, NEW_ID).log_start_offset == 0
    assert mentions(memory) == set()


def test_a_partition_that_found_no_room_at_the_start_comes_back_whatever_else_is_refused(
    make_manager, memory, batch, monkeypatch
):
    """Simulated world h1.4: one name that could not be freed kept others offline for good."""
    manager = make_manager(memory, "/d")
    manager.start()
    fill_and_empty(manager, batch)
    manager.delete(TP)
    disk = FaultyDisk(memory.crash(SeededRng(1)))

    def refuse(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    manager = make_manager(disk, "/d")
    with monkeypatch.context() as full:
        full.setattr("ottla.log.directories.opening.open_log", refuse)
        manager.start()
    assert set(manager.offline) == {BESIDE}

    def make():
        job = manager.maker.making_job([Wanted(BESIDE, OLD_ID, False), Wanted(TP, NEW_ID)])
        job.run()
        return manager.maker.made(job)

    disk.fail(DiskCall.WRITE, errno=errno.ENOSPC, lasting=True)
    assert isinstance(make()[TP], KafkaError)
    disk.heal()
    made = make()
    assert made[BESIDE].log_start_offset == 9
    assert made[TP].log_start_offset == 0
    assert not manager.offline


@pytest.mark.parametrize("was_deleted", [True, False])
def test_a_topic_deleted_while_it_found_no_room_does_not_keep_its_name(
    make_manager, memory, batch, monkeypatch, was_deleted
):
    """Simulated worlds base.12, fr.18, fs.11: the name was taken until a restart."""
    manager = make_manager(memory, "/d")
    manager.start()
    fill_and_empty(manager, batch)
    disk = memory.crash(SeededRng(1))

    def refuse(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    manager = make_manager(disk, "/d")
    with monkeypatch.context() as full:
        full.setattr("ottla.log.directories.opening.open_log", refuse)
        manager.start()
    assert BESIDE in manager.offline
    if was_deleted:
        manager.maker.deleted_unopened(BESIDE, OLD_ID)

    def make():
        job = manager.maker.making_job([Wanted(BESIDE, NEW_ID, False)])
        job.run()
        return manager.maker.made(job)[BESIDE]

    assert make().code is ErrorCode.INCONSISTENT_TOPIC_ID
    again = make()
    if was_deleted:
        assert (again.log_start_offset, again.log_end_offset) == (0, 0)
        assert BESIDE not in manager.offline
        assert mentions(disk, BESIDE) == set()
    else:
        assert isinstance(again, KafkaError), "whose it is nobody knows: it stays as it is"
        assert disk.exists(f"/d/logs/beside-0/{0:020d}.log")


def test_many_new_logs_cost_one_write_of_each_checkpoint_and_new_names_none(
    make_manager, memory, batch
):
    disk = FaultyDisk(memory)
    manager = make_manager(disk, "/d")
    manager.start()
    names = [TopicPartition("t", number) for number in range(50)]
    for where in (*names, BESIDE):
        append(manager.create(where, OLD_ID), batch(1))
    checkpoint(manager)
    for where in names:
        manager.delete(where)
    before = disk.counts[DiskCall.RENAME]
    job = manager.maker.making_job(Wanted(where, NEW_ID) for where in names)
    job.run()
    assert len(manager.maker.made(job)) == len(names)
    own = (disk.counts[DiskCall.RENAME] - before - 3) / len(names)  # The log start is 0: not there.
    before = disk.counts[DiskCall.RENAME]
    manager.create(TopicPartition("another", 0), NEW_ID)
    assert disk.counts[DiskCall.RENAME] - before == own == 1, "partition.metadata alone"


def test_an_offline_partitions_entries_stay_when_others_names_are_forgotten(
    make_manager, memory, batch
):
    manager = make_manager(memory, "/d")
    manager.start()
    fill_and_empty(manager, batch)
    manager.stop()
    memory.open(f"/d/logs/beside-0/{0:020d}.log").truncate(0)
    manager = make_manager(memory, "/d")
    manager.start()
    assert set(manager.offline) == {BESIDE}
    manager.delete(TP)
    manager.create(TP, NEW_ID)
    checkpoint(manager)
    found = said(memory)
    assert found[LOG_START_CHECKPOINT] == {BESIDE: 9}
    assert found[RECOVERY_POINT_CHECKPOINT] == {BESIDE: 10, TP: 0}
    assert found[HIGH_WATERMARK_CHECKPOINT] == {BESIDE: 10, TP: 0}


def test_what_another_directory_says_of_the_name_is_forgotten_too(make_manager, memory, batch):
    manager = make_manager(memory, "/d", names=("a", "b"))
    manager.start()
    for log_dir in ("/d/a", "/d/b"):
        write_offset_checkpoint(memory, f"{log_dir}/{LOG_START_CHECKPOINT}", {TP: 3})
        write_offset_checkpoint(memory, f"{log_dir}/{RECOVERY_POINT_CHECKPOINT}", {TP: 1000})
    manager._release()
    manager = make_manager(memory, "/d", names=("a", "b"))
    manager.start()
    append(manager.create(TP, NEW_ID), batch(5))
    for log_dir in ("/d/a", "/d/b"):
        assert mentions(memory, TP, log_dir) == set()


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_directory_that_goes_offline_while_a_topic_is_made_anew_takes_nothing_of_it(
    make_manager, memory, batch, is_clean
):
    """Its checkpoints cannot be told to forget the former topic; a sync failed, writes go on."""
    manager = make_manager(memory, "/d")
    manager.start()
    append(manager.create(TP, OLD_ID), batch(41))
    checkpoint(manager)
    manager.delete(TP)
    job = manager.maker.making_job([Wanted(TP, NEW_ID)])
    manager.fail_directory("/d/logs", OSError(errno.EIO, "I/O error"))
    job.run()
    assert manager.maker.made(job)[TP].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not memory.exists(f"/d/logs/{TP}")
    if is_clean:
        manager.stop()
    else:
        manager._release()
    after = make_manager(memory, "/d")
    after.start()
    assert after.offline == {}, "the former topic's recovery point is not believed"
    assert len(after.logs) == 0
    found = after.create(TP, NEW_ID)
    assert (found.log_start_offset, found.log_end_offset) == (0, 0)
    assert mentions(memory) == set()


@pytest.mark.parametrize("call", [DiskCall.SYNC_DIRECTORY, DiskCall.RENAME])
def test_entries_of_a_checkpoint_whose_writing_was_refused_are_forgotten_all_the_same(
    make_manager, memory, batch, call
):
    """Without a descriptor for the sync of its directory it is in its place, and says the new."""
    disk = FaultyDisk(memory)
    manager = make_manager(disk, "/d")
    manager.start()
    for where in (TP, BESIDE):
        log = manager.create(where, OLD_ID)
        append(log, batch(100))
        raise_start_offset(log, 90)
    disk.fail(call, errno=errno.EMFILE, lasting=True)
    checkpoint(manager)
    disk.heal()
    assert manager.directories["/d/logs"].is_online
    manager.delete(TP)
    append(manager.create(TP, NEW_ID), batch(5))
    assert mentions(memory) == set()
    after = make_manager(memory.crash(SeededRng(5)), "/d")
    after.start()
    assert after.offline == {}
    assert (after.get(TP).log_start_offset, after.get(TP).log_end_offset) == (0, 5)
    checkpoint(manager)
    assert mentions(memory, BESIDE) == set(OFFSET_CHECKPOINTS), "what was refused is written later"


@pytest.mark.parametrize("call", [DiskCall.OPEN, DiskCall.WRITE, DiskCall.RENAME])
def test_what_the_disk_refused_to_lower_is_lowered_the_next_time(make_manager, memory, batch, call):
    """Once it counted as lowered: the log was cut, and after a power cut no start opened it."""
    disk = FaultyDisk(memory)
    manager = make_manager(disk, "/d")
    manager.start()
    append(manager.create(TP, OLD_ID), batch(10))
    checkpoint(manager)
    disk.fail(call, errno=errno.ENOSPC, lasting=True)
    lower = manager.checkpoints.lower
    assert lower(TP, "/d/logs", 5, committed=4).failures
    disk.heal()
    assert not lower(TP, "/d/logs", 5, committed=4).failures
    says = said(memory.crash(SeededRng(1)))
    assert says[RECOVERY_POINT_CHECKPOINT][TP] == says[CLEANER_CHECKPOINT][TP] == 5
    assert says[HIGH_WATERMARK_CHECKPOINT][TP] == 4
