"""A log whose disk refuses, fails or lies: what it keeps, and what it does not try again."""

import pytest

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.log.append import AppendOrigin
from ottla.log.log import LogState
from ottla.records.batch import read_header
from tests.by_time import offset_for_timestamp

NOW = 1_700_000_000_000


def append(log, records):
    return log.append(records, leader_epoch=0, origin=AppendOrigin.CLIENT)


@pytest.fixture
def faulty():
    inner = MemoryDisk(durability=True)
    inner.make_directory("/data")
    return FaultyDisk(inner)


@pytest.mark.parametrize("written", [0, 1, 60, 90])
def test_a_refused_write_leaves_no_trace_and_the_log_goes_on(
    faulty, open_partition, batch, read_all, written
):
    log = open_partition(faulty, "/data")
    append(log, batch(2))
    faulty.tear_write(written)
    with pytest.raises(KafkaError) as caught:
        append(log, batch(3))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 2
    log.check()
    assert append(log, batch(3)).base_offset == 2
    assert [offset for offset, _, _ in read_all(log)] == list(range(5))


@pytest.mark.parametrize("count", [0, 2])
def test_what_a_refused_write_left_does_not_come_back_after_a_clean_stop(
    faulty, open_partition, batch, count
):
    log = open_partition(faulty, "/data")
    if count:
        append(log, batch(count))
        log.flush()
    faulty.tear_write(80)
    with pytest.raises(KafkaError):
        append(log, batch(3))
    log.close()
    faulty.sync_directory("/")
    for seed in range(20):
        disk = faulty.inner.crash(SeededRng(seed))
        again = open_partition(disk, "/data", clean=True)
        assert again.log_end_offset == count
        again.check()


def test_a_write_that_cannot_be_undone_takes_the_log_offline(faulty, open_partition, batch):
    log = open_partition(faulty, "/data")
    append(log, batch(2))
    faulty.tear_write(10)
    faulty.fail(DiskCall.TRUNCATE)
    with pytest.raises(KafkaError):
        append(log, batch())
    assert log.state is LogState.FAILED
    for refused in (
        lambda: append(log, batch()),
        lambda: log.read(0, max_bytes=10, upper_offset=2, min_one_message=True),
        log.flush,
        lambda: offset_for_timestamp(log, 0),
    ):
        with pytest.raises(KafkaError) as caught:
            refused()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failed_sync_is_never_tried_again(faulty, open_partition, batch):
    log = open_partition(faulty, "/data")
    append(log, batch(2))
    job = log.begin_flush()
    faulty.fail(DiskCall.SYNC)
    with pytest.raises(OSError, match="nput/output") as caught:
        job.run()
    log.finish_flush(job, caught.value)
    assert log.state is LogState.FAILED
    assert log.flushed_offset == 0
    assert log.begin_flush() is None


SYNCS = (DiskCall.SYNC, DiskCall.SYNC_VOLUME, DiskCall.SYNC_DIRECTORY)


@pytest.mark.parametrize("flush_messages", [1, 2**63 - 1])
def test_a_roll_waits_for_no_sync(faulty, open_partition, batch, flush_messages):
    """The old segment and the new name are the next flush's business, which runs off the loop."""
    size = len(batch(1)) * 2
    log = open_partition(faulty, "/data", segment_bytes=size, flush_messages=flush_messages)
    counts = [faulty.counts[call] for call in SYNCS]
    for _ in range(5):
        append(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=log.log_end_offset))
    assert log.segment_count == 3
    assert [faulty.counts[call] for call in SYNCS] == counts
    assert log.flushed_offset == 0
    assert log.segments.unsynced
    syncs = faulty.counts[DiskCall.SYNC]
    log.flush()
    # Log, both indexes and the snapshot of producers, twice; the active segment.
    assert faulty.counts[DiskCall.SYNC] >= syncs + 9
    assert log.flushed_offset == 5
    assert not log.segments.unsynced
    log.check()


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_compacted_log_that_rolls_waits_for_what_is_not_flushed_and_no_more(
    faulty, open_partition, batch, is_flushed
):
    """A lost end of the old segment would look like what compaction takes."""
    log = open_partition(faulty, "/data", is_compacted=True)
    append(log, batch(1))
    if is_flushed:
        log.flush()
    counts = [faulty.counts[call] for call in SYNCS]
    log.roll()
    assert [faulty.counts[call] for call in SYNCS] == [counts[0] + (not is_flushed), *counts[1:]]


def test_what_a_roll_left_to_the_next_flush_is_not_compacted_before(place, open_partition, batch):
    """The snapshot of producers may lack still that says what need not be there to replay."""
    log = open_partition(*place, is_compacted=True)
    append(log, batch(3))
    log.flush()
    assert log.settled_offset == log.flushed_offset == 3
    log.roll()
    assert (log.settled_offset, log.flushed_offset) == (0, 3)
    append(log, batch(1))
    job = log.begin_flush()
    assert (log.settled_offset, log.flushed_offset) == (0, 3)
    job.run()
    log.finish_flush(job, None)
    assert log.settled_offset == log.flushed_offset == 4


def test_a_segment_cut_off_before_it_was_synced_is_forgotten(place, open_partition, batch):
    log = open_partition(*place, segment_bytes=len(batch(1)) * 2, flush_messages=2**63 - 1)
    for _ in range(7):
        append(log, batch(1))
    log.truncate_to(3)
    append(log, batch(1))
    log.flush()
    assert log.flushed_offset == log.log_end_offset == 4
    log.check()


def test_a_roll_without_space_can_be_tried_again(faulty, open_partition, batch, read_all):
    log = open_partition(faulty, "/data", segment_bytes=300)
    append(log, batch(6))
    log.flush()
    log.segments.active.save_indexes()
    while log.segments.active.size_bytes + len(batch(6)) <= 300:
        append(log, batch(1))
    log.flush()
    faulty.fail(DiskCall.OPEN, nth=3)  # That of the new segment: an index needs none here.
    with pytest.raises(KafkaError):
        append(log, batch(6))
    assert log.state is LogState.OPEN
    assert log.segment_count == 1
    end = log.log_end_offset
    assert append(log, batch(6)).base_offset == end
    assert log.segment_count == 2
    assert len(read_all(log)) == log.log_end_offset
    log.check()


def test_a_wrong_index_entry_is_noticed_and_rebuilt(place, open_partition, batch, read_all):
    disk, directory = place
    log = open_partition(disk, directory, index_interval_bytes=100, segment_bytes=4000)
    for step in range(60):
        append(log, batch(2, timestamp=NOW + step * 10))
    assert log.segment_count > 1
    expected = read_all(log)
    log.close()
    for suffix in ("index", "timeindex"):
        path = f"{log.directory}/{0:020d}.{suffix}"
        pristine = disk.open(path).read_at(0, 10**6)
        for at in range(len(pristine)):
            damaged = bytearray(pristine)
            damaged[at] ^= 0x41
            disk.open(path).write_at(0, damaged)
            log = open_partition(disk, directory, recovery_point=120, clean=True)
            for offset in range(0, 30, 3):
                found = log.read(offset, max_bytes=1, upper_offset=120, min_one_message=True)
                header = read_header(found.region.read())
                assert header.base_offset <= offset <= header.last_offset
                time = NOW + offset // 2 * 10
                assert offset_for_timestamp(log, time)[:2] == (time, offset // 2 * 2)
            log.abandon()
            disk.open(path).write_at(0, pristine)
    log = open_partition(disk, directory, recovery_point=120, clean=True)
    assert read_all(log) == expected
