"""Transactions in a log: what is open, what was aborted, and what a restart makes of it."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.log.aborted import aborted_transactions
from ottla.log.append import AppendOrigin, analyse
from ottla.log.producers import producers
from ottla.log.producers.transactions import ALL_STABLE
from ottla.log.replicated import append_replicated, check_replicated
from ottla.log.segment.transaction_index import ENTRY
from ottla.log.upkeep.front import drop_segments_below, raise_start_offset
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker

NOW = 1_700_000_000_000
INDEX = "txnindex"


@pytest.fixture
def write(batch):
    """Append a transactional batch of a producer; return the offset of its first record."""
    sequences = {}

    def append(log, producer_id, count=1, *, epoch=0, transactional=True):
        first = sequences.get((log, producer_id, epoch), 0)
        sequences[log, producer_id, epoch] = first + count
        return log.append(
            batch(
                count,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=first,
                transactional=transactional,
            ),
            leader_epoch=0,
        ).base_offset

    return append


def marker(producer_id, kind, *, epoch=0, coordinator_epoch=0):
    return memoryview(
        build_end_transaction_marker(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=NOW,
        )
    )


def end(log, producer_id, kind, *, version=0, **fields):
    records = marker(producer_id, kind, **fields)
    analysis = analyse(records, log.config, NOW, AppendOrigin.COORDINATOR)
    analysis = analysis._replace(transaction_version=version)
    return log.append_analysed(analysis, leader_epoch=0).base_offset


def abort(log, producer_id, **fields):
    return end(log, producer_id, ControlType.ABORT, **fields)


def commit(log, producer_id, **fields):
    return end(log, producer_id, ControlType.COMMIT, **fields)


def aborted_in(log):
    return [
        tuple(entry)
        for segment in log.segments
        if segment.transaction_index is not None
        for entry in segment.transaction_index.entries()
    ]


def open_in(log):
    return {
        producer_id: state.current_transaction_first_offset
        for producer_id, state in log.producers.states
        if state.current_transaction_first_offset >= 0
    }


def indexes_on(disk, directory):
    return [name for name in disk.list_directory(directory) if name.endswith(INDEX)]


def told(log, start, upper=None, max_bytes=1 << 20):
    """What a reader of committed records from ``start`` is told to leave out."""
    upper = log.log_end_offset if upper is None else upper
    result = log.read(start, max_bytes=max_bytes, upper_offset=upper, min_one_message=True)
    found = aborted_transactions(log, start, result, upper)
    return [(one.producer_id, one.first_offset) for one in found]


def test_aborts_are_indexed_with_the_last_stable_offset_commits_are_not(log, write):
    assert write(log, 1, 2) == 0
    assert write(log, 2) == 2
    assert write(log, 3) == 3
    assert abort(log, 2) == 4
    assert commit(log, 3) == 5
    assert write(log, 3) == 6
    assert abort(log, 1) == 7
    assert abort(log, 3) == 8
    assert aborted_in(log) == [(2, 2, 4, 0), (1, 0, 7, 6), (3, 6, 8, 9)]
    assert open_in(log) == {}
    assert told(log, 0) == [(1, 0), (2, 2), (3, 6)]
    log.check()


def test_an_abort_of_nothing_leaves_no_index(place, log, write):
    abort(log, 1)
    write(log, 2)
    commit(log, 2)
    assert aborted_in(log) == []
    log.close()
    assert indexes_on(place[0], log.directory) == []


def test_a_reader_is_told_of_what_overlaps_its_region_and_of_little_else(
    place, open_partition, write, batch
):
    size = len(batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log = open_partition(*place, index_interval_bytes=size)
    for _ in range(20):
        write(log, 1)
        abort(log, 1)
    assert told(log, 0, upper=2) == [(1, 0)]
    assert told(log, 1, upper=2) == [(1, 0)], "its marker must be understood"
    assert told(log, 2, upper=4) == [(1, 2)]
    few = told(log, 10, max_bytes=size)
    assert (1, 10) in few
    assert len(few) <= 3
    log.roll()
    assert told(log, 39) == [(1, 38)]
    assert told(log, 10, max_bytes=size) == few


def test_a_reader_is_told_of_an_abort_whose_marker_stands_segments_later(log, write, batch):
    write(log, 1)
    log.roll()
    log.append(batch(3), leader_epoch=0)
    write(log, 2)
    abort(log, 2)
    log.roll()
    log.append(batch(), leader_epoch=0)
    log.roll()
    abort(log, 1)
    assert aborted_in(log) == [(2, 4, 5, 0), (1, 0, 7, 8)]
    assert told(log, 0) == [(1, 0)], "the rest begins behind the segment that is read"
    assert told(log, 1) == [(1, 0), (2, 4)]
    assert told(log, 6) == [(1, 0)]


def test_a_transaction_version_2_marker_begins_the_next_epoch(log, write):
    write(log, 1)
    with pytest.raises(KafkaError) as caught:
        commit(log, 1, version=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 1
    assert commit(log, 1, epoch=1, version=2) == 1
    assert commit(log, 1, epoch=1, version=2) == 2, "its answer was lost: once more does no harm"
    assert write(log, 1, epoch=1) == 3
    assert open_in(log) == {1: 3}


def test_a_fenced_coordinator_writes_nothing(log, write):
    write(log, 1)
    abort(log, 1, coordinator_epoch=5)
    write(log, 1)
    with pytest.raises(KafkaError) as caught:
        commit(log, 1, coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert open_in(log) == {1: 2}
    assert log.log_end_offset == 3


def test_markers_come_several_at_once_and_by_replication(place, log, write, open_partition):
    write(log, 1)
    write(log, 2)
    both = memoryview(bytearray(marker(1, ControlType.ABORT)) + marker(2, ControlType.COMMIT))
    log.append(both, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    write(log, 3)
    late = build_end_transaction_marker(
        EndTransactionMarker(ControlType.ABORT, -1),
        producer_id=3,
        producer_epoch=0,
        timestamp_ms=NOW,
    )
    late[:8] = (5).to_bytes(8, "big")
    append_replicated(log, check_replicated(memoryview(late)))
    assert aborted_in(log) == [(1, 0, 2, 1), (3, 4, 5, 6)]


def test_a_control_batch_that_is_no_marker_is_refused_of_a_coordinator(log, batch):
    other = batch(key=b"\0\0\0\5", producer_id=1, producer_epoch=0, control=True)
    with pytest.raises(KafkaError) as caught:
        log.append(other, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def history(log, write):
    """Two aborts, one of them across a roll, one commit, one transaction left open."""
    write(log, 1, 2)  # 0
    write(log, 2)  # 2
    abort(log, 2)  # 3
    log.roll()
    write(log, 3)  # 4
    abort(log, 1)  # 5
    commit(log, 3)  # 6
    write(log, 2)  # 7


HISTORY = [(2, 2, 3, 0), (1, 0, 5, 4)]


@pytest.mark.parametrize("how", ["clean", "killed", "no snapshots", "no indexes", "bad index"])
def test_a_restart_knows_open_transactions_and_aborted_ones(place, open_partition, write, how):
    disk, directory = place
    log = open_partition(*place)
    history(log, write)
    if how == "clean":
        log.close()
    else:
        log.abandon()
    for name in disk.list_directory(log.directory):
        path = f"{log.directory}/{name}"
        if (how not in {"clean", "killed"} and name.endswith(".snapshot")) or (
            how == "no indexes" and name.endswith(INDEX)
        ):
            disk.remove(path)
        elif how == "bad index" and name == f"{0:020d}.{INDEX}":
            disk.open(path).truncate(7)
    for attempt in range(2):
        is_clean = how == "clean" and not attempt
        log = open_partition(disk, directory, clean=is_clean, recovery_point=4)
        assert aborted_in(log) == HISTORY
        assert open_in(log) == {2: 7}
        assert log.producers.transactions.first_unstable_offset <= 7
        log.producers.transactions.commit_to(log.log_end_offset)
        assert log.producers.transactions.first_unstable_offset == 7
        assert log.producers.states.get(1).coordinator_epoch == 0
        log.abandon()


@pytest.mark.parametrize("ordinal", [0, 4])
@pytest.mark.parametrize("size", [0, 7, 33, 35, 68])
def test_a_damaged_index_is_made_anew_although_there_is_a_snapshot(
    place, open_partition, write, ordinal, size
):
    disk, directory = place
    log = open_partition(*place)
    history(log, write)
    log.close()
    file = disk.open(f"{log.directory}/{ordinal:020d}.{INDEX}")
    if size == 0:
        file.write_at(0, bytes(34))
    else:
        file.truncate(size)
    log = open_partition(disk, directory, clean=True)
    assert aborted_in(log) == HISTORY
    assert open_in(log) == {2: 7}


def test_a_damaged_index_costs_no_producer_whose_records_are_deleted(place, open_partition, write):
    disk, directory = place
    log = open_partition(*place)
    write(log, 5, transactional=False)
    log.roll()
    for producer_id in (1, 2):
        write(log, producer_id)
        abort(log, producer_id)
    log.close()
    for name in disk.list_directory(log.directory):
        if name.startswith(f"{0:020d}."):
            disk.remove(f"{log.directory}/{name}")
    path = f"{log.directory}/{1:020d}.{INDEX}"
    disk.open(path).truncate(34)
    log = open_partition(disk, directory, clean=True, start=1)
    assert aborted_in(log) == [(1, 1, 2, 3), (2, 3, 4, 5)]
    assert log.producers.states.get(5).batches[-1].last_sequence == 0


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_kill_while_indexes_are_made_anew_shows_nobody_what_was_aborted(
    open_partition, write, is_power_cut
):
    was_killed = False
    for nth in range(1, 80):
        inner = MemoryDisk(durability=True)
        inner.make_directory("/data")
        inner.sync_directory("/")
        log = open_partition(inner, "/data")
        history(log, write)
        log.close()
        file = inner.open(f"{log.directory}/{0:020d}.{INDEX}")
        file.write_at(0, bytes(34))
        file.sync()
        disk = FaultyDisk(inner)
        disk.kill_at(nth)
        try:
            open_partition(disk, "/data", clean=True)
        except DiskKilled:
            was_killed = True
        else:
            break
        survivor = inner.crash(SeededRng(nth)) if is_power_cut else inner
        found = open_partition(survivor, "/data", recovery_point=8)
        assert aborted_in(found) == HISTORY, nth
        assert open_in(found) == {2: 7}
    assert was_killed


@pytest.mark.parametrize("seed", range(12))
def test_after_a_power_cut_both_say_what_the_log_says(open_partition, write, seed):
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    disk.sync_directory("/")
    log = open_partition(disk, "/data")
    history(log, write)
    log.flush()
    abort(log, 2)
    log.abandon()
    log = open_partition(disk.crash(SeededRng(seed)), "/data", recovery_point=8)
    last = [(2, 7, 8, 9)] if log.log_end_offset == 9 else []
    assert aborted_in(log) == HISTORY + last
    assert open_in(log) == ({} if last else {2: 7})


@pytest.mark.parametrize("offset", range(9))
def test_a_truncation_takes_aborts_back(place, open_partition, write, offset):
    log = open_partition(*place)
    history(log, write)
    log.truncate_to(offset)
    log_end = log.log_end_offset
    assert aborted_in(log) == [entry for entry in HISTORY if entry[2] < log_end]
    spans = ((1, 0, 5), (2, 2, 3), (3, 4, 6), (2, 7, 99))
    expected = {producer_id: first for producer_id, first, last in spans if first < log_end <= last}
    assert open_in(log) == expected
    log.check()


def test_a_torn_index_costs_no_replay_of_everything(place, open_partition, write, monkeypatch):
    disk, directory = place
    log = open_partition(*place)
    history(log, write)
    abort(log, 2)
    log.flush()
    log.abandon()
    disk.open(f"{log.directory}/{4:020d}.{INDEX}").truncate(34 + 9)
    replayed = []
    replay = producers._replay
    monkeypatch.setattr(
        producers, "_replay", lambda one, *rest: (replayed.append(one), replay(one, *rest))
    )
    log = open_partition(disk, directory, recovery_point=9)
    assert aborted_in(log) == [*HISTORY, (2, 7, 8, 9)]
    assert [segment.base_offset for segment in replayed] == [4]


@pytest.mark.parametrize("how", ["roll", "close"])
@pytest.mark.parametrize("seed", range(12))
def test_what_a_start_found_again_is_durable_before_a_snapshot_spares_it(
    open_partition, write, seed, how
):
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    disk.sync_directory("/")
    log = open_partition(disk, "/data", flush_messages=2**62)
    history(log, write)
    log.flush()
    log.abandon()
    for name in disk.list_directory(log.directory):
        if name.endswith((INDEX, ".snapshot")):
            disk.remove(f"{log.directory}/{name}")
    log = open_partition(disk, "/data", recovery_point=8)
    log.roll() if how == "roll" else log.close()
    after = disk.crash(SeededRng(seed))
    found = []
    for base_offset in (0, 4):
        file = after.open_read_only(f"{log.directory}/{base_offset:020d}.{INDEX}")
        found += [fields[1:] for fields in ENTRY.iter_unpack(file.read_at(0, file.size()))]
    assert found == HISTORY


def test_a_truncated_segment_leaves_no_index_to_one_that_begins_there_again(
    place, open_partition, write
):
    disk, _ = place
    log = open_partition(*place)
    history(log, write)
    log.truncate_to(4)
    log.roll()
    assert indexes_on(disk, log.directory) == [f"{0:020d}.{INDEX}"]


def test_an_index_without_its_segment_goes_at_the_start(place, open_partition, write):
    disk, directory = place
    log = open_partition(*place)
    history(log, write)
    log.abandon()
    disk.open(f"{log.directory}/{8:020d}.{INDEX}", create=True).write_at(0, bytes(34))
    log = open_partition(disk, directory)
    assert indexes_on(disk, log.directory) == [f"{0:020d}.{INDEX}", f"{4:020d}.{INDEX}"]


def test_an_index_goes_with_its_segment(place, open_partition, write):
    disk, _ = place
    log = open_partition(*place)
    history(log, write)
    log.flush()
    raise_start_offset(log, 4)
    paths = drop_segments_below(log, disk, 4, 10)
    assert f"{log.directory}/{0:020d}.{INDEX}.deleted" in paths
    assert indexes_on(disk, log.directory) == [f"{4:020d}.{INDEX}"]
    assert told(log, 4) == [(1, 0)]


def test_a_disk_that_refuses_the_index_entry_costs_no_abort(open_partition, write):
    disk = FaultyDisk(MemoryDisk(durability=True))
    disk.make_directory("/data")
    log = open_partition(disk, "/data")
    write(log, 1)
    disk.fail(DiskCall.WRITE, errno=errno.ENOSPC, nth=2)
    assert abort(log, 1) == 1
    assert indexes_on(disk, log.directory) == [f"{0:020d}.{INDEX}"]
    assert told(log, 0) == [(1, 0)]
    log.close()
    assert aborted_in(open_partition(disk, "/data", clean=True)) == [(1, 0, 1, 2)]


def test_a_marker_that_the_disk_refused_ends_nothing(open_partition, write):
    disk = FaultyDisk(MemoryDisk(durability=True))
    disk.make_directory("/data")
    log = open_partition(disk, "/data")
    write(log, 1)
    disk.fail(DiskCall.WRITE, errno=errno.ENOSPC)
    with pytest.raises(KafkaError):
        abort(log, 1)
    assert open_in(log) == {1: 0}
    assert aborted_in(log) == []
    assert abort(log, 1) == 1


def test_without_transactions_nothing_is_unstable_and_nothing_is_kept(log, batch):
    log.append(batch(producer_id=1, producer_epoch=0, base_sequence=0), leader_epoch=0)
    log.roll()
    assert log.producers.transactions.first_unstable_offset == ALL_STABLE
    assert all(segment.transaction_index is None for segment in log.segments)
