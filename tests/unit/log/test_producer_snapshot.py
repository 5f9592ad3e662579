"""Producers through snapshots, restarts, kills, power cuts and truncations."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.log.append import AppendOrigin
from ottla.log.producers.snapshot import decode_snapshot, encode_snapshot
from ottla.log.producers.states import ProducerStates
from ottla.log.replicated import append_replicated, check_replicated
from ottla.records.batch import TimestampType
from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)

NOW = 1_700_000_000_000
DAY = 24 * 60 * 60 * 1000
EMPTY_OF_KAFKA = bytes.fromhex("000148674bc700000000")
ONE_OF_KAFKA = bytes.fromhex(
    "00019a20855b00000001000000000000000000000000e781000000000000e78100000017"
    "000001a1fde78173ffffffffffffffffffffffff"
)
"""Written by Apache Kafka 4.3 for producer 0, whose last batch ended at 59265 with 24 records."""


def states_of(*loaded):
    states = ProducerStates(DAY)
    states.load(loaded)
    return states


def snapshots_in(disk, log_directory):
    return [name for name in disk.list_directory(log_directory) if name.endswith(".snapshot")]


@pytest.fixture
def write(batch):
    """Append a batch of producer 7 at sequence ``sequence``; return the result."""

    def append(log, sequence, count=1, *, producer_id=7, epoch=0, **options):
        return log.append(
            batch(
                count,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                **options,
            ),
            leader_epoch=0,
        )

    return append


@pytest.mark.parametrize("content", [EMPTY_OF_KAFKA, ONE_OF_KAFKA])
def test_what_kafka_wrote_is_read_and_written_again_to_the_byte(content):
    assert encode_snapshot(states_of(*decode_snapshot(content, NOW))) == content


def test_the_fields_stand_where_kafka_put_them():
    ((producer_id, state),) = decode_snapshot(ONE_OF_KAFKA, NOW)
    (last,) = state.batches
    assert (producer_id, state.epoch) == (0, 0)
    assert last == (59265, 59265, 23, 1795261170035)
    assert (last.first_sequence, last.first_offset) == (59242, 59242)
    assert (state.coordinator_epoch, state.current_transaction_first_offset) == (-1, -1)
    assert state.last_timestamp == last.timestamp


def test_a_snapshot_keeps_all_five_batches_of_each_producer(log, write):
    for sequence in range(7):
        write(log, sequence)
    write(log, 0, producer_id=3)
    for sequence in (0, 2, 4):
        write(log, sequence, 2, producer_id=5, epoch=4)
    content = encode_snapshot(log.producers.states)
    loaded = decode_snapshot(content, NOW)
    assert [len(state.batches) for _, state in loaded] == [5, 1, 3]
    for producer_id, state in loaded:
        assert state.batches == log.producers.states.get(producer_id).batches
    assert encode_snapshot(states_of(*loaded)) == content


def test_every_changed_or_missing_byte_makes_it_no_snapshot(log, write):
    for sequence in range(3):
        write(log, sequence)
    write(log, 0, producer_id=8)
    content = encode_snapshot(log.producers.states)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0x40
        assert decode_snapshot(bytes(changed), NOW) is None, position
        assert decode_snapshot(content[:position], NOW) is None, position
    assert decode_snapshot(content + b"\0", NOW) is None


def test_a_duplicate_is_told_where_the_original_stands_and_nothing_is_written(log, write):
    write(log, 0, 3, producer_id=1)
    first = write(log, 0, 2, timestamp=NOW - 50)
    size_bytes, end = log.size_bytes, log.log_end_offset
    again = write(log, 0, 2, timestamp=NOW - 50)
    assert (first.base_offset, first.last_offset, first.log_append_time_ms) == (3, 4, -1)
    assert again == (3, 4, NOW - 49, 0), "the time is the largest of the batch, as Kafka answers"
    assert (log.size_bytes, log.log_end_offset) == (size_bytes, end)


def test_with_log_append_time_a_duplicate_is_told_the_time_of_the_original(
    place, open_partition, write, clock
):
    config = {"message_timestamp_type": TimestampType.LOG_APPEND_TIME}
    log = open_partition(*place, **config)
    assert write(log, 0).log_append_time_ms == NOW
    clock.advance(5)
    assert write(log, 0).log_append_time_ms == NOW
    assert write(log, 1).log_append_time_ms > NOW


def test_a_refused_batch_leaves_no_trace(log, write):
    write(log, 0)
    size_bytes = log.size_bytes
    with pytest.raises(KafkaError) as caught:
        write(log, 2)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (log.size_bytes, log.log_end_offset) == (size_bytes, 1)
    assert write(log, 1).base_offset == 1


def test_a_write_that_the_disk_refused_is_not_remembered(open_partition, write):
    disk = FaultyDisk(MemoryDisk(durability=True))
    disk.make_directory("/data")
    log = open_partition(disk, "/data")
    write(log, 0)
    disk.fail(DiskCall.WRITE, errno=errno.ENOSPC)
    with pytest.raises(KafkaError):
        write(log, 1)
    assert write(log, 1).base_offset == 1
    assert write(log, 1).base_offset == 1


def test_replicated_batches_and_markers_are_noted_unchecked(log, batch):
    one = batch(2, base_offset=0, producer_id=7, producer_epoch=0, base_sequence=40)
    two = batch(1, base_offset=2, producer_id=7, producer_epoch=0, base_sequence=42)
    both = memoryview(bytearray(one) + two)
    append_replicated(log, check_replicated(both))
    assert [each.last_offset for each in log.producers.states.get(7).batches] == [1, 2]
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlType.COMMIT, 0),
        producer_id=7,
        producer_epoch=1,
        timestamp_ms=NOW,
    )
    log.append(memoryview(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    assert (log.producers.states.get(7).epoch, log.producers.states.get(7).batches) == (1, [])


@pytest.mark.parametrize("clean", [True, False])
def test_a_resend_after_a_restart_gets_the_first_offset(place, open_partition, write, clean):
    log = open_partition(*place)
    write(log, 0, 2, producer_id=1)
    offsets = [write(log, sequence).base_offset for sequence in range(7)]
    log.close() if clean else log.abandon()
    log = open_partition(*place, clean=clean)
    for sequence in range(2, 7):
        assert write(log, sequence).base_offset == offsets[sequence]
    assert write(log, 0, 2, producer_id=1).base_offset == 0
    assert log.log_end_offset == 9
    assert write(log, 7).base_offset == 9


def test_a_kill_between_append_and_answer_behind_a_roll_forgets_no_batch_in_flight(
    place, open_partition, write
):
    """Kafka's snapshot has the last batch only: resends of those before the roll failed with 45."""
    log = open_partition(*place)
    before = [write(log, sequence).base_offset for sequence in range(3)]
    log.roll()
    after = [write(log, sequence).base_offset for sequence in (3, 4)]
    log.abandon()
    log = open_partition(*place)
    assert [write(log, sequence).base_offset for sequence in range(5)] == before + after


def test_a_clean_start_reads_no_log_file_of_closed_segments(open_partition, write):
    disk = FaultyDisk(MemoryDisk(durability=True))
    disk.make_directory("/data")
    log = open_partition(disk, "/data")
    for sequence in range(20):
        write(log, sequence)
        log.roll()
    log.close()
    few = disk.counts[DiskCall.OPEN]
    open_partition(disk, "/data", clean=True).abandon()
    few = disk.counts[DiskCall.OPEN] - few
    log = open_partition(disk, "/data", clean=True)
    for sequence in range(20, 120):
        write(log, sequence)
        log.roll()
    log.close()
    many = disk.counts[DiskCall.OPEN]
    log = open_partition(disk, "/data", clean=True)
    assert disk.counts[DiskCall.OPEN] - many == few
    assert write(log, 119).base_offset == 119


def test_an_idle_partition_writes_no_snapshot_at_its_next_stop(place, open_partition, write):
    disk, directory = place
    log = open_partition(disk, directory)
    log.close()
    assert snapshots_in(disk, log.directory) == [], "there is nothing to remember"
    log = open_partition(disk, directory, clean=True)
    write(log, 0)
    log.close()
    path = f"{log.directory}/{1:020d}.snapshot"
    disk.open(path).write_at(0, b"touched")
    log = open_partition(disk, directory, recovery_point=1, clean=False)
    assert snapshots_in(disk, log.directory) == []
    log.close()
    assert snapshots_in(disk, log.directory) == [f"{1:020d}.snapshot"]
    assert write(open_partition(disk, directory, clean=True), 0).base_offset == 0


def test_the_newest_durable_snapshot_stays_with_the_one_before_and_all_after(
    place, open_partition, write
):
    disk, directory = place
    log = open_partition(disk, directory)
    for sequence in range(5):
        write(log, sequence)
        log.roll()
        if sequence < 3:
            log.flush()
    assert snapshots_in(disk, log.directory) == [f"{n:020d}.snapshot" for n in (2, 3, 4, 5)]
    log.flush()
    write(log, 5)
    log.close()
    assert snapshots_in(disk, log.directory) == [f"{n:020d}.snapshot" for n in (5, 6)]


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_snapshot_is_passed_over_for_the_one_before_or_the_log(
    place, open_partition, write, damaged
):
    disk, directory = place
    log = open_partition(disk, directory)
    write(log, 0, producer_id=1)
    for sequence in range(4):
        write(log, sequence)
        log.roll()
        log.flush()
    log.close()
    for name in snapshots_in(disk, log.directory)[-damaged:]:
        disk.open(f"{log.directory}/{name}").write_at(8, b"\xff")
    log = open_partition(disk, directory, clean=True)
    assert write(log, 0, producer_id=1).base_offset == 0
    assert [write(log, sequence).base_offset for sequence in range(4)] == [1, 2, 3, 4]
    assert len(snapshots_in(disk, log.directory)) == 2 - damaged


def test_a_truncation_rewinds_the_producers_and_drops_later_snapshots(place, open_partition, write):
    disk, directory = place
    log = open_partition(disk, directory)
    for sequence in range(6):
        write(log, sequence)
        log.roll()
    log.truncate_to(3)
    assert snapshots_in(disk, log.directory) == [f"{n:020d}.snapshot" for n in (1, 2, 3)]
    assert [one.last_sequence for one in log.producers.states.get(7).batches] == [0, 1, 2]
    assert write(log, 2).base_offset == 2
    assert write(log, 3).base_offset == 3
    log.abandon()
    log = open_partition(disk, directory)
    assert [one.last_sequence for one in log.producers.states.get(7).batches] == [0, 1, 2, 3]


def test_a_snapshot_above_a_torn_tail_is_not_believed(place, open_partition, write):
    """The log passes its offset again, with batches that it does not know."""
    disk, directory = place
    log = open_partition(disk, directory)
    write(log, 0)
    write(log, 1)
    size_bytes = log.size_bytes
    write(log, 2)
    log.close()
    disk.open(f"{log.directory}/{0:020d}.log").truncate(size_bytes + 10)
    log = open_partition(disk, directory)
    assert log.log_end_offset == 2
    assert snapshots_in(disk, log.directory) == []
    write(log, 0, producer_id=1)
    log.abandon()
    log = open_partition(disk, directory)
    assert log.producers.states.get(7).batches[-1].last_sequence == 1
    assert log.producers.states.get(1) is not None


@pytest.mark.parametrize("call", [DiskCall.OPEN, DiskCall.WRITE, DiskCall.RENAME])
def test_a_roll_does_not_need_its_snapshot(open_partition, write, call):
    disk = FaultyDisk(MemoryDisk(durability=True))
    disk.make_directory("/data")
    log = open_partition(disk, "/data")
    write(log, 0)
    log.flush()
    log.segments.active.seal()
    disk.fail(call, errno=errno.ENOSPC)
    log.roll()
    assert log.segment_count == 2
    assert snapshots_in(disk, log.directory) == []
    assert not [name for name in disk.list_directory(log.directory) if name.endswith(".tmp")]
    write(log, 1)
    log.abandon()
    log = open_partition(disk, "/data")
    assert [write(log, sequence).base_offset for sequence in range(2)] == [0, 1]


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_cut_what_is_remembered_is_what_is_in_the_log(open_partition, write, seed):
    rng = SeededRng(seed)
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    disk.sync_directory("/")
    next_sequence, flushed = {1: 0, 2: 0}, 0
    for _ in range(6):
        log = open_partition(disk, "/data", recovery_point=flushed)
        for producer_id in next_sequence:
            state = log.producers.states.get(producer_id)
            next_sequence[producer_id] = state.batches[-1].last_sequence + 1 if state else 0
        for _ in range(8):
            producer_id = 1 + rng.random_below(2)
            sequence = next_sequence[producer_id]
            offset = write(log, sequence, producer_id=producer_id).base_offset
            assert offset == log.log_end_offset - 1
            assert write(log, sequence, producer_id=producer_id).base_offset == offset
            next_sequence[producer_id] += 1
            if rng.random_below(3) == 0:
                log.flush()
            if rng.random_below(4) == 0:
                log.roll()
        flushed = log.flushed_offset
        log.abandon()
        disk = disk.crash(rng)
    log = open_partition(disk, "/data", recovery_point=flushed)
    total = sum(
        (
            log.producers.states.get(each).batches[-1].last_sequence + 1
            if log.producers.states.get(each)
            else 0
        )
        for each in next_sequence
    )
    assert total == log.log_end_offset, "every sequence up to the last stands in the log once"


@pytest.mark.parametrize("is_clean", [True, False])
def test_snapshots_do_not_pile_up_over_many_starts(place, open_partition, write, is_clean):
    disk, directory = place
    for sequence in range(8):
        log = open_partition(disk, directory, clean=is_clean and sequence > 0)
        write(log, sequence)
        if is_clean:
            log.close()
        else:
            log.roll()
            log.flush()
            log.abandon()
    assert len(snapshots_in(disk, log.directory)) == 2


def test_snapshots_of_many_rolls_behind_one_flush_go_a_few_at_a_time(open_partition, write):
    """All at once took the loop seconds on a slow disk."""
    disk = FaultyDisk(MemoryDisk())
    disk.make_directory("/data")
    log = open_partition(disk, "/data")
    for sequence in range(40):
        write(log, sequence)
        log.roll()
    counts = []
    for sequence in range(40, 100):
        before = len(snapshots_in(disk, log.directory))
        log.flush()
        counts.append(before - len(snapshots_in(disk, log.directory)))
        write(log, sequence)
        log.roll()
    assert max(counts) == 2
    assert len(snapshots_in(disk, log.directory)) == 3


@pytest.mark.parametrize("seed", range(6))
def test_a_roll_leaves_the_snapshot_at_its_offset_as_it_is(open_partition, write, seed):
    """It may be all that tells of what was deleted: written anew, a power cut takes it."""
    memory = MemoryDisk(durability=True)
    memory.make_directory("/data")
    memory.sync_directory("/")
    log = open_partition(memory, "/data")
    write(log, 0)
    log.close()
    log = open_partition(memory, "/data", clean=True)
    log.roll()
    assert log.producers.snapshots.durable_to(1) == -1, "a start does not know whether it is"
    survivor = memory.crash(SeededRng(seed))
    (name,) = snapshots_in(survivor, log.directory)
    data = survivor.open(f"{log.directory}/{name}").read_at(0, 1000)
    assert [producer for producer, _ in decode_snapshot(data, 0)] == [7]


def test_a_copy_without_its_snapshot_is_none(place, open_partition, write):
    """Its segments may not be all that tells of producers."""
    disk, directory = place
    log = open_partition(disk, directory)
    write(log, 0)
    with pytest.raises(OSError, match="nowhere"):
        log.producers.save_to(f"{directory}/nowhere", log.log_end_offset)
