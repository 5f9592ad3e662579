"""Which segments go, how they go, and what a power cut on the way leaves."""

from itertools import takewhile

import pytest

from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, InvariantBroken, KafkaError
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from ottla.log.upkeep.front import (
    drop_segments_below,
    has_segments_below,
    raise_start_offset,
)
from ottla.log.upkeep.retention import Candidate, Decision
from tests.retention import retained_from

TP = TopicPartition("flights", 0)
NOW = 1_700_000_000_000
OFF = {"retention_ms": -1, "retention_bytes": -1}


# -- the decision ---------------------------------------------------------------------------------


def count_to_delete(candidates, config, **facts):
    decision = Decision(config, **facts)
    return len(list(takewhile(decision.goes, candidates)))


def count(*segments, start=0, upper=None, now=1000, **config):
    """``segments``: (end offset, size, newest timestamp), the last one active."""
    candidates = [
        Candidate(end, size, at == len(segments) - 1, lambda newest=newest: newest)
        for at, (end, size, newest) in enumerate(segments)
    ]
    return count_to_delete(
        candidates,
        LogConfig(**(OFF | config)),
        now_ms=now,
        log_size_bytes=sum(size for _, size, _ in segments),
        log_start_offset=start,
        upper_offset=segments[-1][0] if upper is None else upper,
    )


THREE = [(10, 100, 500), (20, 100, 600), (30, 100, 700)]


@pytest.mark.parametrize(
    ("expected", "config"),
    [
        (0, {}),
        # By time: older than, not as old as.
        (0, {"retention_ms": 500}),
        (1, {"retention_ms": 499}),
        (2, {"retention_ms": 300}),
        (3, {"retention_ms": 0}),
        # By size: the log keeps at least so much.
        (0, {"retention_bytes": 300}),
        (0, {"retention_bytes": 201}),
        (1, {"retention_bytes": 200}),
        (2, {"retention_bytes": 1}),
        (2, {"retention_bytes": 100}),
        (3, {"retention_bytes": 0}),
        # Together: whichever takes more.
        (2, {"retention_bytes": 200, "retention_ms": 300}),
        # By the log start: whole segments, never the active one.
        (0, {"start": 9}),
        (1, {"start": 10}),
        (2, {"start": 29}),
        (2, {"start": 30}),
        # Without "delete" age and size do not matter; the log start does.
        (0, {"is_deleted": False, "retention_ms": 0, "retention_bytes": 0}),
        (1, {"is_deleted": False, "retention_ms": 0, "start": 15}),
        # What is not committed stays.
        (2, {"retention_ms": 0, "upper": 29}),
        (1, {"retention_bytes": 0, "upper": 10}),
        (0, {"start": 10, "upper": 9}),
    ],
)
def test_the_oldest_segments_go_that_are_due(expected, config):
    assert count(*THREE, **config) == expected


def test_a_young_segment_protects_the_older_ones_behind_it():
    assert count((10, 1, 900), (20, 1, 100), (30, 1, 100), retention_ms=500) == 0


def test_an_empty_active_segment_stays():
    assert count((10, 100, 1), (10, 0, 1), retention_ms=0, retention_bytes=0) == 1
    assert count((0, 0, 1), retention_ms=0, retention_bytes=0) == 0


def test_a_record_of_the_future_does_not_expire():
    assert count((10, 1, 10**15), (20, 1, 1), retention_ms=0) == 0


def test_nobody_asks_for_the_time_of_a_segment_whose_size_decides():
    def fail():
        raise AssertionError

    candidates = [Candidate(1, 100, False, fail), Candidate(2, 100, True, lambda: 1000)]
    config = LogConfig(retention_bytes=100, retention_ms=10)
    assert (
        count_to_delete(
            candidates,
            config,
            now_ms=1000,
            log_size_bytes=200,
            log_start_offset=0,
            upper_offset=2,
        )
        == 1
    )


# -- the log --------------------------------------------------------------------------------------


@pytest.fixture
def rolled(place, open_partition, batch):
    """A log of three segments of two records each, the third active; one second between them."""

    def make(**config):
        log = open_partition(*place, **(OFF | config))
        for index in range(3):
            if index:
                log.roll()
            log.append(batch(2, timestamp=NOW + 1000 * index), leader_epoch=index)
        log.flush()
        return log

    return make


def delete(log, disk, now_ms, upper=None):
    """Delete as the replica manager does, without its checkpoint."""
    upper = log.log_end_offset if upper is None else upper
    raise_start_offset(log, retained_from(log, upper, now_ms))
    paths = drop_segments_below(log, disk, log.log_start_offset, 100)
    disk.sync_directory(log.directory)
    return paths


def names(disk, log):
    found = disk.list_directory(log.directory)
    return [name for name in found if name.endswith((".log", ".index", ".timeindex"))]


def test_by_time_whole_segments_go_and_earliest_follows(place, rolled, clock, read_all):
    disk, _ = place
    log = rolled(retention_ms=10_000)
    clock.advance(11.0)
    paths = delete(
        log, disk, clock.wall_ms()
    )  # 10,999 ms since the newest record of the first segment.
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (2, 6, 2)
    assert [offset for offset, _, _ in read_all(log)] == [2, 3, 4, 5]
    assert [path.rsplit("/")[-1][20:] for path in paths] == [
        ".timeindex.deleted",
        ".index.deleted",
        ".log.deleted",
    ]
    assert all(disk.exists(path) for path in paths)
    assert not any(name.startswith("0" * 20) for name in names(disk, log))
    with pytest.raises(KafkaError) as caught:
        log.read(1, max_bytes=100, upper_offset=6, min_one_message=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.check()


def test_by_size_the_oldest_go_until_the_log_is_small_enough(place, rolled, clock):
    log = rolled()
    log.config = log.config._replace(retention_bytes=log.size_bytes // 3)
    delete(log, place[0], clock.wall_ms())
    assert (log.log_start_offset, log.segment_count) == (4, 1)
    log.check()


@pytest.mark.parametrize(("high_watermark", "end"), [(6, 4), (5, 2), (4, 2), (3, 0), (0, 0)])
def test_by_size_what_is_not_committed_does_not_count(rolled, clock, high_watermark, end):
    """A leader that was cut off took records by the size of a tail that it then lost."""
    log = rolled()
    log.config = log.config._replace(retention_bytes=log.size_bytes // 3)
    assert retained_from(log, high_watermark, clock.wall_ms()) == end


def test_a_wholly_expired_log_is_rolled_first_and_goes_on(place, rolled, clock, batch, read_all):
    log = rolled(retention_ms=10_000)
    clock.advance(60.0)
    delete(log, place[0], clock.wall_ms())
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (6, 6, 1)
    assert log.append(batch(timestamp=NOW + 60_000), leader_epoch=2).base_offset == 6
    log.flush()
    assert len(read_all(log)) == 1
    delete(log, place[0], clock.wall_ms())
    assert log.log_start_offset == 6, "the young record stays"
    log.check()


def test_what_is_known_of_producers_outlives_a_wholly_expired_log(open_partition, batch, clock):
    """No batch tells of them any more: the snapshot of the roll does, and the power may go."""
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    disk.sync_directory("/")
    log = open_partition(disk, "/data", retention_ms=1000)
    for sequence in range(3):
        sent = batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append(sent, leader_epoch=0)
        if not sequence:
            log.roll()  # A start that lost the next snapshot would believe this one.
        log.flush()
    clock.advance(60.0)
    delete(log, disk, clock.wall_ms())
    assert (log.log_start_offset, log.segment_count) == (3, 1)
    disk.sync_directory(log.directory)
    for seed in range(20):
        survivor = open_partition(
            disk.crash(SeededRng(seed)), "/data", recovery_point=3, start=3, retention_ms=1000
        )
        sent = batch(producer_id=7, producer_epoch=0, base_sequence=3)
        assert survivor.append(sent, leader_epoch=0).base_offset == 3


def test_a_full_segment_stays_until_what_its_roll_left_is_durable(place, open_partition, batch):
    disk, _ = place
    log = open_partition(*place)
    log.append(batch(2), leader_epoch=0)
    log.flush()
    log.roll()
    log.append(batch(1), leader_epoch=0)
    raise_start_offset(log, 2)
    assert drop_segments_below(log, disk, 2, 10) == []
    log.flush()
    assert len(drop_segments_below(log, disk, 2, 10)) > 0


def test_what_is_not_committed_or_not_durable_stays(place, open_partition, batch, clock):
    log = open_partition(*place, retention_ms=1000, flush_messages=100)
    log.append(batch(2), leader_epoch=0)
    log.roll()
    log.append(batch(2), leader_epoch=0)
    clock.advance(60.0)
    assert retained_from(log, 4, clock.wall_ms()) == 0, "nothing is durable"
    log.flush()
    assert retained_from(log, 1, clock.wall_ms()) == 0
    assert retained_from(log, 2, clock.wall_ms()) == 2
    assert log.segment_count == 2, "asking changes nothing"


def test_segments_without_timestamps_go_by_the_time_of_their_file(place, open_partition, clock):
    disk, directory = place
    log = open_partition(disk, directory, retention_ms=1000)
    from ottla.records.builder import build_batch
    from ottla.records.record import Record

    log.append(memoryview(build_batch([Record(timestamp=-1, value=b"v")])), leader_epoch=0)
    log.flush()
    written = disk.modified_ms(f"{log.directory}/{0:020d}.log")
    clock.advance((written + 1000 - clock.wall_ms()) / 1000)
    assert retained_from(log, 1, clock.wall_ms()) == 0
    clock.advance(0.002)
    assert retained_from(log, 1, clock.wall_ms()) == 1


def test_a_reader_in_flight_goes_on_reading_what_was_deleted(place, rolled):
    disk, _ = place
    log = rolled()
    region = log.read(0, max_bytes=10_000, upper_offset=6, min_one_message=True).region
    before = region.read()
    raise_start_offset(log, 4)
    for path in drop_segments_below(log, disk, log.log_start_offset, 100):
        disk.remove(path)
    assert region.read() == before


def test_deleting_opens_no_file(open_partition, batch):
    memory = MemoryDisk()
    memory.make_directory("/data")
    disk = FaultyDisk(memory)
    log = open_partition(disk, "/data", segment_bytes=100)
    for _ in range(5):
        log.append(batch(), leader_epoch=0)
    log.flush()
    before = disk.counts[DiskCall.OPEN], disk.counts[DiskCall.READ]
    raise_start_offset(log, 4)
    drop_segments_below(log, disk, log.log_start_offset, 100)
    assert log.segment_count == 1
    assert (disk.counts[DiskCall.OPEN], disk.counts[DiskCall.READ]) == before


def test_segments_go_a_few_at_a_time(place, rolled):
    disk, _ = place
    log = rolled()
    raise_start_offset(log, 5)
    drop_segments_below(log, disk, log.log_start_offset, 1)
    assert (log.segment_count, has_segments_below(log, log.log_start_offset)) == (2, True)
    drop_segments_below(log, disk, log.log_start_offset, 1)
    assert (log.segment_count, has_segments_below(log, log.log_start_offset)) == (1, False)
    log.check()


def test_epochs_are_trimmed_at_the_front(rolled):
    log = rolled()
    raise_start_offset(log, 3)
    assert log.leader_epochs.entries == [(1, 3), (2, 4)]


def test_the_log_start_rises_only_and_not_above_the_end(rolled):
    log = rolled()
    assert raise_start_offset(log, 3)
    assert not raise_start_offset(log, 2)
    assert log.log_start_offset == 3
    with pytest.raises(InvariantBroken):
        raise_start_offset(log, 7)


def test_a_disk_that_refuses_the_rename_keeps_the_segment(open_partition, batch, read_all):
    memory = MemoryDisk()
    memory.make_directory("/data")
    disk = FaultyDisk(memory)
    log = open_partition(disk, "/data", segment_bytes=100)
    for _ in range(3):
        log.append(batch(), leader_epoch=0)
    log.flush()
    raise_start_offset(log, 2)
    disk.fail(DiskCall.RENAME, errno=5)
    with pytest.raises(KafkaError) as caught:
        drop_segments_below(log, disk, log.log_start_offset, 100)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert log.segment_count == 3
    drop_segments_below(log, disk, log.log_start_offset, 100)
    assert log.segment_count == 1
    assert [offset for offset, _, _ in read_all(log)] == [2]
    log.check()


def test_a_start_removes_what_was_marked(place, rolled, open_partition):
    disk, directory = place
    log = rolled()
    raise_start_offset(log, 4)
    paths = drop_segments_below(log, disk, log.log_start_offset, 100)
    log.close()
    again = open_partition(disk, directory, start=4, recovery_point=6, clean=True)
    assert not any(disk.exists(path) for path in paths)
    assert (again.log_start_offset, again.log_end_offset) == (4, 6)


def test_jitter_rolls_segments_earlier_and_not_all_together(place, open_partition, batch):
    disk, directory = place
    ends = set()
    log = open_partition(disk, directory, segment_ms=1000, segment_jitter_ms=800)
    timestamp = NOW
    for _ in range(12):
        first, segments = timestamp, log.segment_count
        while log.segment_count == segments:
            log.append(batch(timestamp=timestamp), leader_epoch=0)
            timestamp += 50
        ends.add(timestamp - first)
    assert min(ends) >= 200
    assert max(ends) <= 1150
    assert len(ends) > 3


# -- power cuts -----------------------------------------------------------------------------------

CUT = {"segment_bytes": 250, "index_interval_bytes": 1, "retention_ms": 5}


def run_until_cut(disk, open_partition, batch, clock, known):
    """Append, expire, delete records, in turn; ``known`` holds (start, end) that are promised."""
    log = open_partition(disk, "/data", **CUT)
    for turn in range(8):
        for _ in range(4):
            log.append(batch(2, timestamp=clock.wall_ms()), leader_epoch=turn // 2)
            log.flush()
            known[1] = log.log_end_offset
            clock.advance(0.002)
        if turn % 3 == 2:
            wanted = log.log_end_offset - turn % 2
        else:
            wanted = retained_from(log, log.flushed_offset, clock.wall_ms())
        known[2] = wanted
        raise_start_offset(log, wanted)
        write_offset_checkpoint(disk, "/data/start", {TP: log.log_start_offset})
        known[0] = log.log_start_offset
        paths = drop_segments_below(log, disk, log.log_start_offset, 100)
        disk.sync_directory(log.directory)
        for path in paths:
            disk.remove(path)


@pytest.mark.slow
def test_power_cuts_while_deleting_lose_no_live_record_and_bring_none_back(
    open_partition, batch, read_all, clock
):
    at = 0
    while True:
        at += 1
        memory = MemoryDisk(durability=True)
        memory.make_directory("/data")
        memory.sync_directory("/")
        disk = FaultyDisk(memory)
        disk.kill_at(at)
        known = [0, 0, 0]  # Log start promised, log end promised, log start being written.
        try:
            run_until_cut(disk, open_partition, batch, clock, known)
        except DiskKilled:
            pass
        else:
            break
        for seed in range(2):
            survivor = memory.crash(SeededRng(seed * 1000 + at))
            start = (read_offset_checkpoint(survivor, "/data/start") or {}).get(TP, 0)
            assert known[0] <= start <= max(known[0], known[2]), at
            log = open_partition(survivor, "/data", start=start, **CUT)
            log.check()
            assert log.log_start_offset == start, "segments go only below the promised start"
            assert log.log_end_offset >= known[1]
            records = read_all(log)
            assert [offset for offset, _, _ in records] == list(range(start, log.log_end_offset))
            found = survivor.list_directory(log.directory)
            assert not [name for name in found if name.endswith(".deleted")]
            epochs = list(log.leader_epochs.entries)
            again = open_partition(survivor, "/data", start=start, **CUT)
            assert read_all(again) == records, "a second recovery changes nothing"
            assert again.leader_epochs.entries == epochs
            assert survivor.list_directory(log.directory) == found
    assert at > 300


def test_renames_that_became_durable_out_of_order_cost_nothing(open_partition, batch, read_all):
    disk = MemoryDisk()
    disk.make_directory("/data")
    log = open_partition(disk, "/data", segment_bytes=100)
    for _ in range(6):
        log.append(batch(), leader_epoch=0)
    log.flush()
    log.abandon()
    for missing in (1, 2):  # Segments 0 and 3 came back, those between did not.
        disk.remove(f"{log.directory}/{missing:020d}.log")
    again = open_partition(disk, "/data", start=4, segment_bytes=100)
    assert [offset for offset, _, _ in read_all(again)] == [4, 5]
    drop_segments_below(again, disk, again.log_start_offset, 100)
    again.check()
    assert again.segment_count == 2
