"""Index files of full segments that a power cut left in part: lookups are right, whatever they say.

No start reads them: an entry is verified when it is used (reliability rule 10). Only
one loss cannot be told: the end of a time index whose segment has later timestamps before its end
than there. So the files are durable before their segment counts as such, and made anew whole or not
at all.
"""

import random
import struct
from contextlib import suppress

import pytest

from ottla.env.faulty_disk import DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.log.append import AppendOrigin
from ottla.log.contents.invariants import check_segment
from ottla.log.segment.offset_index import OffsetIndex
from ottla.log.segment.time_index import TimeIndex

NOW = 1_700_000_000_000
CONFIG = {"segment_bytes": 1500, "index_interval_bytes": 100}
SUFFIXES = {".index": 8, ".timeindex": 12}
"""With the bytes of an entry."""


def damage(chance, whole, entry_bytes, *, keeps_end):
    """Return what may be left of an index: of some entries another's, zeros or anything."""
    entries = [whole[at : at + entry_bytes] for at in range(0, len(whole), entry_bytes)]
    for at in range(len(entries) - keeps_end):
        match chance.randrange(6):
            case 0:
                entries[at] = bytes(entry_bytes)
            case 1:
                entries[at] = chance.choice(entries)
            case 2:
                entries[at] = chance.randbytes(entry_bytes)
    if not keeps_end and chance.random() < 0.3:
        entries = entries[: chance.randrange(len(entries) + 1)]
    return b"".join(entries)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("are_times_rising", [True, False])
def test_lookups_are_right_whatever_index_files_say(
    place, open_partition, batch, are_times_rising, seed
):
    disk, directory = place
    chance = random.Random(seed)
    log = open_partition(disk, directory, **CONFIG)
    path = log.directory
    for step in range(40):
        time_ms = step * 10 if are_times_rising else chance.randrange(100)
        log.append(batch(1, timestamp=NOW + time_ms), leader_epoch=0, origin=AppendOrigin.CLIENT)
    log.close()
    damaged = 0
    for name in sorted(disk.list_directory(path)):
        suffix = name[20:]
        if suffix in SUFFIXES and chance.random() < 0.8:
            file = disk.open(f"{path}/{name}")
            whole = file.read_at(0, file.size())
            left = damage(chance, whole, SUFFIXES[suffix], keeps_end=not are_times_rising)
            file.truncate(0)
            file.write_at(0, left)
            damaged += left != whole
    log = open_partition(disk, directory, recovery_point=40, **CONFIG)
    assert damaged
    assert len(log.segments) > 2
    log.check(are_indexes_sure=False)


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 14))
@pytest.mark.parametrize("end", ["kill", "full disk"])
def test_an_index_made_anew_is_whole_or_the_former_one(open_partition, batch, at, end):
    # The time index of a segment whose largest timestamp is not its last: see above.
    inner = MemoryDisk(durability=True)
    inner.make_directory("/data")
    inner.sync_directory("/")
    disk = FaultyDisk(inner)
    config = {"segment_bytes": 100_000, "index_interval_bytes": 100}
    log = open_partition(disk, "/data", **config)
    for step in range(121):
        if step == 120:
            log.roll()
        records = batch(1, timestamp=NOW + (step * 3 if step < 110 else 0))
        log.append(records, leader_epoch=0, origin=AppendOrigin.CLIENT)
    log.flush()
    path = log.segments[0].path
    for suffix in SUFFIXES:
        disk.remove(path.removesuffix(".log") + suffix)
    disk.sync_directory(log.directory)
    log = open_partition(disk, "/data", recovery_point=121, **config)
    if end == "kill":
        disk.kill_at(at)
    else:
        disk.tear_write(12 * at, nth=2)
    with suppress(DiskKilled):
        log.check(are_indexes_sure=False)
    for seed in range(4):
        survivor = inner.crash(SeededRng(seed)) if end == "kill" else inner
        found = open_partition(survivor, "/data", recovery_point=121, **config)
        found.check(are_indexes_sure=False)
        assert found.segments[0].largest_timestamp().timestamp == NOW + 109 * 3


@pytest.mark.parametrize("index", [OffsetIndex, TimeIndex])
def test_a_check_of_lookups_misses_no_index_entry(open_partition, batch, index, monkeypatch):
    # It looks for the first and the last batch of each entry only.
    disk = MemoryDisk()
    disk.make_directory("/data")
    log = open_partition(disk, "/data", index_interval_bytes=300)
    for step in range(60):
        records = batch(1, timestamp=NOW + step * 10)
        log.append(records, leader_epoch=0, origin=AppendOrigin.CLIENT)
    log.roll()
    segment = log.segments[0]
    batches = check_segment(segment, are_indexes_sure=False)
    indexes = segment.indexes
    count = (indexes.offsets if index is OffsetIndex else indexes.times).count
    assert 10 < count < len(batches) // 2
    lookup = index.lookup
    for ordinal in range(count - 1):

        def begin_too_late(self, key, ordinal=ordinal):
            found = lookup(self, key)
            return self.entry(ordinal + 1) if found == self.entry(ordinal) else found

        monkeypatch.setattr(index, "lookup", begin_too_late)
        with pytest.raises(AssertionError):
            check_segment(segment, are_indexes_sure=False)


@pytest.mark.parametrize("sync", ["none", "failed, kept", "failed, dropped"])
def test_indexes_of_a_roll_outlive_a_kill_and_a_power_cut(open_partition, batch, sync):
    # All records were durable before the roll, so that no start had to look at the full segment.
    # ``sync``: of the index files, before the kill. After one that failed the device has a part of
    # them, and so has who reads; or memory reads back, which is clean: no later sync writes it.
    for seed in range(60):
        disk = MemoryDisk(durability=True)
        disk.make_directory("/data")
        disk.sync_directory("/")
        config = {"segment_bytes": 100_000, "index_interval_bytes": 100}
        log = open_partition(disk, "/data", **config)
        for step in range(121):
            if step == 120:
                log.flush()
                log.roll()
            records = batch(1, timestamp=NOW + (step * 3 if step < 110 else 0))
            log.append(records, leader_epoch=0, origin=AppendOrigin.CLIENT)
        for suffix, entry_bytes in SUFFIXES.items() if sync != "none" else ():
            file = disk.open(log.segments[0].path_of(suffix))
            whole = file.read_at(0, file.size())
            on_device = seed % (len(whole) // entry_bytes) * entry_bytes
            file.truncate(on_device)
            file.sync()
            if sync == "failed, kept":
                file.write_at(on_device, whole[on_device:])
                file.forget_unsynced()
        open_partition(disk, "/data", recovery_point=120, **config)
        survivor = disk.crash(SeededRng(seed))
        found = open_partition(survivor, "/data", recovery_point=121, **config)
        assert found.segments[0].largest_timestamp().timestamp == NOW + 109 * 3, seed


def test_a_time_index_of_an_earlier_writing_does_not_tell_what_comes_before_its_entries(
    open_partition, batch
):
    # World s1128a.1245: offsets of all batches, times of few; the latest batch but one between two
    # entries was passed over, and the next one was indexed as the latest so far.
    disk = MemoryDisk()
    disk.make_directory("/data")
    times = [0, 10, 40, 20, 30, 50, 60]
    log = open_partition(disk, "/data", index_interval_bytes=1)
    for time_ms in times:
        records = batch(1, timestamp=NOW + time_ms)
        log.append(records, leader_epoch=0, origin=AppendOrigin.CLIENT)
    log.flush()
    offsets, indexed = (
        disk.open(log.segments[0].path_of(suffix)) for suffix in (".index", ".timeindex")
    )
    log.close()
    offsets.truncate(4 * SUFFIXES[".index"])  # The last one is of offset 4.
    indexed.truncate(0)
    indexed.write_at(0, struct.pack(">qI", NOW + 50, 5))
    found = open_partition(disk, "/data", recovery_point=7, index_interval_bytes=1)
    found.check(are_indexes_sure=False)
    assert found.segments[0].first_batch_reaching(NOW + 35, 0).base_offset == 2
