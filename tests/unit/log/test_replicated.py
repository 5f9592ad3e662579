"""What a follower appends: checked before anything is written, and followed as the leader did."""

import random

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.errors import ErrorCode, KafkaError
from ottla.log.aborted import aborted_transactions
from ottla.log.append import AppendOrigin, analyse
from ottla.log.replicated import append_replicated, check_replicated
from ottla.records.batch import patch_offsets
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from tools.wire_client import batches

NOW = 1_700_000_000_000
CONTROL = 0x20


@pytest.fixture
def logs(open_partition):
    """(the leader's log, the follower's), in segments of different sizes."""

    def make(follower_segment_bytes):
        found = []
        for size in (500, follower_segment_bytes):
            disk = MemoryDisk(durability=True)
            disk.make_directory("/data")
            found.append(open_partition(disk, "/data", segment_bytes=size))
        return found

    return make


def stored(log):
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)


def copy(records, log):
    append_replicated(log, check_replicated(memoryview(records)))


def write(log, batch, producer_id, sequence):
    records = batch(
        1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    log.append(records, leader_epoch=0)


def end(log, producer_id, kind):
    records = build_end_transaction_marker(
        EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW
    )
    analysis = analyse(memoryview(records), log.config, NOW, AppendOrigin.COORDINATOR)
    log.append_analysed(analysis, leader_epoch=0)


def aborts(log):
    indexes = [segment.transaction_index for segment in log.segments]
    return [tuple(one) for index in indexes if index is not None for one in index.entries()]


def told(log, start, upper):
    result = log.read(start, max_bytes=1 << 20, upper_offset=upper, min_one_message=True)
    found = aborted_transactions(log, start, result, upper)
    return [(one.producer_id, one.first_offset) for one in found]


def transacting(log, batch, chance, is_open):
    """Write batches of four producers; some of their transactions end, and some of them aborted.

    Yields after each of 40 steps. ``is_open``: whose transactions are open.
    """
    sequences = {}
    for _ in range(40):
        producer_id = chance.randrange(4)
        if is_open.get(producer_id) and chance.random() < 0.4:
            end(log, producer_id, chance.choice(list(ControlType)[:2]))
            is_open[producer_id] = False
        else:
            sequence = sequences.get(producer_id, 0)
            write(log, batch, producer_id, sequence)
            sequences[producer_id], is_open[producer_id] = sequence + 1, True
        yield


def committed_from(log, offset):
    """Return the offsets that a reader of committed records keeps: a read ends with its segment."""
    kept, upper = [], log.log_end_offset
    while offset < upper:
        result = log.read(offset, max_bytes=1 << 20, upper_offset=upper, min_one_message=True)
        found = aborted_transactions(log, offset, result, upper)
        waiting = [(one.first_offset, one.producer_id) for one in found]
        left_out = set()
        for one in batches(result.region.read()):
            offset = one["base_offset"]
            while waiting and waiting[0][0] <= offset:
                left_out.add(waiting.pop(0)[1])
            if one["attributes"] & CONTROL:
                left_out.discard(one["producer_id"])
            elif one["producer_id"] not in left_out:
                kept.append(offset)
            offset += 1
    return kept


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_begins_amid_transactions_shows_nothing_aborted_and_hides_nothing(
    open_partition, logs, batch, seed
):
    """It never had their first batches: DeleteRecords had moved the log's start into them."""
    (leader, _), chance = logs(500), random.Random(seed)
    list(transacting(leader, batch, chance, {}))
    for producer_id in range(4):  # So that the log is stable to its end.
        if leader.producers.states.has_open_transaction(producer_id, 0):
            end(leader, producer_id, ControlType.ABORT)
    records = stored(leader)
    places = [(one["base_offset"], one["length"] + 12) for one in batches(records)]
    differing = position = 0
    for begin, size_bytes in places:
        disk = MemoryDisk(durability=True)
        disk.make_directory("/data")
        follower = open_partition(disk, "/data", segment_bytes=500, start=begin)
        copy(records[position:], follower)
        position += size_bytes
        differing += aborts(follower) != [one for one in aborts(leader) if one[2] >= begin]
        for start in range(begin, leader.log_end_offset):
            assert committed_from(follower, start) == committed_from(leader, start), (begin, start)
    assert differing, "some transaction began below"


@pytest.mark.parametrize("segment_bytes", [1 << 20, 333])
@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_aborted_stays_aborted_at_a_replica_that_was_away_and_then_leads(
    logs, batch, segment_bytes, pieces, seed
):
    leader, follower = logs(segment_bytes)
    chance, is_open = random.Random(seed), {9: True}
    write(leader, batch, 9, 0)  # It stays open until after the fetch.
    for _ in transacting(leader, batch, chance, is_open):
        if chance.random() < 0.05 and is_open.get(9):
            end(leader, 9, ControlType.ABORT)
            is_open[9] = False
    records = stored(leader)
    begin = 0
    for number in range(pieces):
        limit = len(records) * (number + 1) // pieces
        piece = check_replicated(memoryview(records)[begin:limit])
        append_replicated(follower, piece)
        begin += len(piece.records)
    assert stored(follower) == records
    assert aborts(follower) == aborts(leader)
    assert aborts(leader)
    first = {one: state.current_transaction_first_offset for one, state in leader.producers.states}
    for producer_id, state in follower.producers.states:
        assert state.current_transaction_first_offset == first.pop(producer_id)
    assert not first
    # It leads: what a consumer is told to leave out, wherever its fetch ends.
    stable = min(leader.producers.transactions.first_unstable_offset, leader.log_end_offset)
    for upper in range(1, stable + 1):
        for start in range(upper):
            found = set(told(follower, start, upper))
            needed = {
                (producer_id, begin)
                for producer_id, begin, last, _ in aborts(leader)
                if begin < upper and last >= start
            }
            bound = follower.segments.holding(start)
            at = follower.segments[:].index(bound) + 1
            if at < follower.segment_count:  # A read ends with its segment.
                edge = follower.segments[at].base_offset
                needed = {one for one in needed if one[1] < edge}
            assert needed <= found, (start, upper)


def test_the_rest_of_a_batch_that_an_answer_cut_is_left_out(logs, batch):
    leader, follower = logs(1000)
    for _ in range(3):
        leader.append(batch(2), leader_epoch=0)
    records = stored(leader)
    size = len(records) // 3
    for cut in (1, size - 20, size - 1):
        assert check_replicated(memoryview(records)[: 3 * size - cut]).next_offset == 4
    copy(records[: 3 * size - 1], follower)
    assert follower.log_end_offset == 4
    follower.check()


def spoilt(records, how, batch):
    size = len(records) // 3
    match how:
        case "a wrong sum":
            records[size + 70] ^= 1
        case "another format":
            records[size + 16] = 1
        case "no whole batch":
            del records[size - 1 :]
        case "a length below any batch's":
            records[size + 8 : size + 12] = (10).to_bytes(4, "big")
        case "a negative length":
            records[size + 8 : size + 12] = b"\xff\xff\xff\xf0"
        case "a negative offset":
            records[0] = 0x80
        case "an offset behind all":
            records[2 * size : 2 * size + 8] = b"\x7f" + b"\xff" * 7
        case "a negative delta":
            records[size + 23] = 0xFF
        case "an offset that falls":
            records[size : size + 8] = bytes(8)
        case "an epoch that falls":
            patch_offsets(memoryview(records)[size:], 2, 4)
    return records


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("a wrong sum", ErrorCode.CORRUPT_MESSAGE),
        ("another format", ErrorCode.CORRUPT_MESSAGE),
        ("no whole batch", ErrorCode.CORRUPT_MESSAGE),
        ("a length below any batch's", ErrorCode.CORRUPT_MESSAGE),
        ("a negative length", ErrorCode.CORRUPT_MESSAGE),
        ("a negative offset", ErrorCode.CORRUPT_MESSAGE),
        ("an offset behind all", ErrorCode.CORRUPT_MESSAGE),
        ("a negative delta", ErrorCode.CORRUPT_MESSAGE),
        ("an offset that falls", ErrorCode.INVALID_RECORD),
        ("an epoch that falls", ErrorCode.INVALID_RECORD),
    ],
)
def test_nothing_is_written_of_an_answer_with_one_bad_batch(logs, batch, how, code):
    leader, follower = logs(1000)
    for _ in range(3):
        leader.append(batch(2), leader_epoch=5)
    records = spoilt(bytearray(stored(leader)), how, batch)
    with pytest.raises(KafkaError) as refused:
        copy(records, follower)
    assert refused.value.code is code
    assert follower.log_end_offset == 0
    assert stored(follower) == b""
    copy(stored(leader), follower)
    assert follower.log_end_offset == 6


def test_an_epoch_below_the_logs_last_one_is_refused(logs, batch):
    leader, follower = logs(1000)
    leader.append(batch(2), leader_epoch=5)
    copy(stored(leader), follower)
    late = batch(2)
    patch_offsets(late, 2, 4)
    with pytest.raises(KafkaError) as refused:
        copy(late, follower)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert follower.log_end_offset == 2


def test_each_segment_of_a_copy_goes_on_where_the_one_before_ends(logs, batch):
    _, follower = logs(200)
    for offset in (7, 30, 31, 500, 900):
        records = batch(1)
        patch_offsets(records, offset, 0)
        copy(records, follower)
    ends = [segment.last_offset() + 1 for segment in follower.segments]
    assert follower.segment_count > 2
    assert [segment.base_offset for segment in follower.segments] == [0, *ends[:-1]]
    follower.check()
