"""What reads back although no sync has covered it, and what becomes of it when the power goes.

A process may begin on the page cache of one whose sync failed, or that was killed before it synced:
bytes and names are there, and the device has none of them.
"""

from posixpath import dirname

import pytest

from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk, FaultyFile
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.append import AppendOrigin
from ottla.log.files.faults import SyncFailed
from tests.ended_process import give_locks_back

SEEDS = range(8)
TP = TopicPartition("flights", 0)
TOPIC_ID = TopicId(b"0123456789abcdef")
SMALL_SEGMENTS = {"segment_bytes": 700, "index_interval_bytes": 100}
MANY_BYTES = {"flush_messages": 2**63 - 1, "segment_bytes": 1 << 30}


@pytest.fixture
def inner():
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def append(log, records, epoch=0):
    return log.append(records, leader_epoch=epoch)


def lose_pages(inner, open_partition, batch, *, before, after, **config):
    """Flush ``before`` batches, then append ``after`` more whose sync fails; return the point."""
    disk = FaultyDisk(inner)
    log = open_partition(disk, "/data", **config)
    for _ in range(before):
        append(log, batch(2))
    log.flush()
    recovery_point = log.flushed_offset
    for _ in range(after):
        append(log, batch(2))
    disk.fail(DiskCall.SYNC)
    with pytest.raises(KafkaError):
        log.flush()
    for name in inner.list_directory(log.directory):
        inner.open(f"{log.directory}/{name}").forget_unsynced()
    return recovery_point


CASES = {
    "one segment": (3, 4, {}),
    "nothing durable": (0, 4, {}),
    "the point within a segment of several": (
        20,
        20,
        {**SMALL_SEGMENTS, "flush_messages": 2**63 - 1},
    ),
    "all of several segments": (0, 30, {**SMALL_SEGMENTS, "flush_messages": 2**63 - 1}),
    "more than one piece": (1, 9000, MANY_BYTES),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_start_takes_for_durable_survives_the_power_cut(
    inner, open_partition, batch, read_all, case
):
    before, after, config = CASES[case]
    recovery_point = lose_pages(inner, open_partition, batch, before=before, after=after, **config)
    log = open_partition(inner, "/data", recovery_point=recovery_point, **config)
    kept = read_all(log)
    assert log.flushed_offset == len(kept) >= recovery_point
    assert len(kept) == 2 * (before + after)
    for seed in SEEDS:
        survivor = inner.crash(SeededRng(seed))
        log = open_partition(survivor, "/data", recovery_point=len(kept), **config)
        assert read_all(log) == kept


def test_records_behind_those_that_read_back_do_not_take_the_partition_offline(
    inner, open_partition, batch, read_all
):
    recovery_point = lose_pages(inner, open_partition, batch, before=3, after=4)
    log = open_partition(inner, "/data", recovery_point=recovery_point)
    append(log, batch(5))
    log.flush()
    acknowledged = read_all(log)
    for seed in SEEDS:
        survivor = inner.crash(SeededRng(seed))
        log = open_partition(survivor, "/data", recovery_point=log.flushed_offset)
        assert read_all(log) == acknowledged


def test_what_is_proven_durable_is_not_written_again(inner, open_partition, batch):
    """The tail above the recovery point is, and no byte more: a start costs what is in doubt."""
    recovery_point = lose_pages(inner, open_partition, batch, before=300, after=2)
    disk = FaultyDisk(inner)
    disk.open(f"/data/{TP}/{0:020d}.log")
    written = []
    write_at = FaultyFile.write_at

    def count(file, position, data):
        if file.path.endswith(".log"):
            written.append(len(data))
        write_at(file, position, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFile, "write_at", count)
        open_partition(disk, "/data", recovery_point=recovery_point)
        assert written == [2 * len(batch(2))]
        open_partition(disk, "/data", recovery_point=recovery_point + 4)
        assert len(written) == 1


def test_pages_that_are_dropped_while_they_are_written_again_are_not_believed(
    inner, open_partition, batch
):
    """Between two looks the kernel may give up what it calls clean: the device's bytes return."""
    recovery_point = lose_pages(inner, open_partition, batch, before=3, after=4)
    path = f"/data/{TP}/{0:020d}.log"
    size_bytes = inner.size_of(path)
    begin = size_bytes * recovery_point // 14
    disk = FaultyDisk(inner)
    read_into = FaultyFile.read_into

    def dropped(file, position, buffer):
        if position == begin and file.path == path:
            inner.open(path).write_at(begin, bytes(size_bytes - begin))
        return read_into(file, position, buffer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFile, "read_into", dropped)
        with pytest.raises(SyncFailed, match="read back otherwise"):
            open_partition(disk, "/data", recovery_point=recovery_point)
    assert len(open_partition(inner, "/data", recovery_point=recovery_point).segments) == 1


@pytest.mark.parametrize("starts", [1, 3])
def test_a_start_whose_sync_fails_takes_the_directory_out_and_teaches_the_next_nothing(
    inner, batch, make_manager, read_all, starts
):
    manager = make_manager(inner, "/data", names=("a", "b"))
    manager.start()
    log = manager.create(TP, TOPIC_ID)
    log_dir = dirname(log.directory)
    append(log, batch(2))
    manager._release()  # The process dies, before any sync.
    for _ in range(starts):
        disk = FaultyDisk(inner)
        disk.fail(DiskCall.SYNC)  # That of the log.
        manager = make_manager(disk, "/data", names=("a", "b"))
        manager.start()
        assert [one.path for one in manager.online()] != [log_dir]
        assert not manager.directories[log_dir].is_online
        manager._release()
    manager = make_manager(inner, "/data", names=("a", "b"))
    manager.start()
    assert len(read_all(manager.logs[TP])) == 2
    manager.checkpoint_job().run()
    manager._release()
    for seed in SEEDS:
        manager = make_manager(inner.crash(SeededRng(seed)), "/data", names=("a", "b"))
        manager.start()
        assert len(read_all(manager.logs[TP])) == 2


# -- names ------------------------------------------------------------------------------------


def die_before_names_are_synced(live):
    """Run ``live(disk)`` and kill it at each call that syncs names, one run after the other."""
    at = 0
    while True:
        at += 1
        disk = MemoryDisk(durability=True)
        disk.make_directory("/data")
        disk.sync_directory("/")
        dying = _DyingBeforeNames(disk, at)
        try:
            live(dying)
        except DiskKilled:
            yield disk
        else:
            return


class _DyingBeforeNames(FaultyDisk):
    """Dies when names are synced for the n-th time: the names are there, and not durable."""

    def __init__(self, inner, at):
        super().__init__(inner)
        self._left = at

    def enter(self, call, path):
        if call is DiskCall.SYNC_DIRECTORY:
            self._left -= 1
            if self._left == 0:
                self.kill()
        return super().enter(call, path)


def test_names_that_a_killed_process_did_not_sync_outlive_a_later_power_cut(
    batch, make_manager, read_all
):
    """A new segment, a new leader epoch, a new partition: found, used, and gone with the power."""

    def live(disk):
        manager = make_manager(disk, "/data", segment_bytes=200)
        manager.start()
        log = manager.create(TP, TOPIC_ID)
        for epoch in range(3):
            append(log, batch(2), epoch=epoch)
            append(log, batch(2), epoch=epoch)
            log.flush()
            manager.checkpoint_job().run()  # A roll comes next: all that there is is durable.

    deaths = 0
    for disk in die_before_names_are_synced(live):
        deaths += 1
        give_locks_back(disk, *(f"/data/{name}" for name in disk.list_directory("/data")))
        manager = make_manager(disk, "/data")
        manager.start()
        log = manager.create(TP, TOPIC_ID)
        append(log, batch(2), epoch=max(log.latest_epoch, 0))  # Neither a roll nor a new epoch.
        log.flush()
        acknowledged = read_all(log)
        for _ in range(2):
            for seed in SEEDS:
                later = make_manager(disk.crash(SeededRng(seed)), "/data")
                later.start()
                assert later.offline == {}, (deaths, seed)
                assert read_all(later.logs[TP]) == acknowledged, (deaths, seed)
                later._release()
            manager.checkpoint_job().run()
        manager._release()
    assert deaths > 8


@pytest.mark.parametrize("has_next", [False, True])
def test_what_a_refused_write_left_is_cut_though_its_segment_was_rolled(
    place, open_partition, batch, has_next
):
    # World lead1127.79: a full disk took a part of a batch; it was cut off, and the segment rolled,
    # but a power cut came before either was durable. All records before had been.
    disk, directory = place
    log = open_partition(disk, directory)
    log.append(batch(2), leader_epoch=0, origin=AppendOrigin.CLIENT)
    log.flush()
    first = log.segments.active
    whole = first.size_bytes
    log.roll()
    if has_next:
        log.append(batch(1), leader_epoch=0, origin=AppendOrigin.CLIENT)
    first.file.truncate(whole)
    first.file.write_at(whole, bytes(range(1, 137)))
    found = open_partition(disk, directory, recovery_point=2)
    found.check()
    assert found.log_end_offset == 2
    assert found.segments[0].size_bytes == whole
