"""Recovery with the bulk walk against recovery batch by batch: whatever the bytes, one answer."""

import importlib.util
import random
import struct
import sys
from array import array
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

import ottla.records
from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.contents.rolling import time_of_first_batch
from ottla.log.directories.recovery import open_log
from ottla.log.producers.states import ProducerStates
from ottla.log.segment import bulk_walk
from ottla.log.segment.bulk_walk import beginnings, headers_at, producer_positions
from ottla.log.segment.scan import Walk
from ottla.records import batch_walk
from ottla.records.batch import BatchHeader, patch_offsets
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.record import Record

NOW = 1_700_000_000_000
LOG = "/t-0/00000000000000000000.log"


def interpreted_walk():
    path = Path(ottla.records.__path__[0]) / "batch_walk.py"
    spec = importlib.util.spec_from_file_location("interpreted_walk", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORMS = {"compiled": batch_walk.walk_batches, "interpreted": interpreted_walk().walk_batches}


@pytest.fixture(params=list(FORMS))
def form(request, monkeypatch):
    """Let a BulkWalk walk over everything, by one form of the kernel, in small pieces."""
    monkeypatch.setattr(bulk_walk, "walk_batches", FORMS[request.param])
    monkeypatch.setattr(bulk_walk, "VERIFY_CHUNK_BYTES", 700)
    monkeypatch.setattr(bulk_walk, "HEADERS_CHUNK_BYTES", 150)
    monkeypatch.setattr(bulk_walk, "_OUTPUT_COUNT", 2)
    monkeypatch.setattr(bulk_walk, "_PRODUCER_SLOTS_MIN", 2)
    return monkeypatch


def make_log(seed, count, *, gaps=False, producers=4, values=(0, 10, 300, 900)):
    """Return ``count`` batches of all kinds, as they stand in a file."""
    chance = random.Random(seed)
    out, offset, epoch = bytearray(), 0, 0
    for _ in range(count):
        producer_id = chance.choice([-1, *range(producers)])
        timestamp = NOW + chance.randrange(-1000, 1000)
        options = {}
        if producer_id >= 0:
            options = {
                "producer_id": producer_id,
                "producer_epoch": chance.randrange(2),
                "base_sequence": chance.randrange(1000),
                "transactional": chance.random() < 0.5,
            }
        if producer_id >= 0 and chance.random() < 0.2:
            batch = build_end_transaction_marker(
                EndTransactionMarker(chance.choice(list(ControlType)), 0),
                producer_id=producer_id,
                producer_epoch=0,
                timestamp_ms=timestamp,
            )
            size = 1
        else:
            size = chance.randrange(1, 4)
            value = b"v" * chance.choice(values)
            records = [Record(timestamp=timestamp + n, key=None, value=value) for n in range(size)]
            batch = build_batch(records, **options)
        if gaps and chance.random() < 0.2:
            offset += chance.randrange(5)
        epoch += chance.random() < 0.1
        patch_offsets(batch, offset, epoch)
        out += batch
        offset += size
    return out


def recover(data, *, recovery_point=0, clean=False, compacted=False, files=()):
    """Return all that an opened log knows, or what it was refused with."""
    disk = MemoryDisk()
    disk.make_directory("/t-0")
    disk.open(LOG, create=True).write_at(0, bytes(data))
    for path, content in files:
        disk.open(path, create=True).write_at(0, content)
    try:
        log = open_log(
            disk,
            ManualClock(NOW),
            "/t-0",
            TopicPartition("t", 0),
            LogConfig(index_interval_bytes=150, is_compacted=compacted),
            recovery_point=recovery_point,
            log_start_offset=0,
            is_clean=clean,
        )
    except OttlaError as error:
        return str(error), disk.size_of(LOG)
    segment = log.segments[0]
    return (
        log.log_end_offset,
        segment.size_bytes,
        bytes(segment.indexes.offsets.entries),
        bytes(segment.indexes.times.entries),
        segment.largest_timestamp(),
        time_of_first_batch(segment),
        segment.last_offset(),
        segment.index_bytes,
        segment._bytes_since_index_entry,
        log.leader_epochs.entries,
        states_of(log.producers.states),
        {name: disk.size_of(f"/t-0/{name}") for name in disk.list_directory("/t-0")},
    )


def states_of(states):
    return [
        (number, one.epoch, one.batches, one.last_timestamp, one.current_transaction_first_offset)
        for number, one in states
    ]


def both(monkeypatch, *arguments, **options):
    monkeypatch.setattr(bulk_walk, "BULK_BYTES_MIN", sys.maxsize)
    slow = recover(*arguments, **options)
    monkeypatch.setattr(bulk_walk, "BULK_BYTES_MIN", 0)
    return slow, recover(*arguments, **options)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_all_kinds_of_batches(form, gaps, clean):
    for seed in range(12):
        data = make_log(seed, seed * 3, gaps=gaps, producers=1 + seed * 2)
        for compacted in {gaps, True}:
            slow, fast = both(form, data, clean=clean, compacted=compacted)
            assert fast == slow, seed


@pytest.mark.slow
def test_every_corrupted_byte_gives_the_same_answer(form):
    data = make_log(3, 6, values=(0, 10, 60))
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        slow, fast = both(form, broken)
        assert fast == slow, position
        slow, fast = both(form, broken, recovery_point=4)
        assert fast == slow, position


def test_every_cut_and_zeroed_tail_gives_the_same_answer(form):
    data = make_log(4, 6)
    for position in range(0, len(data), 3):
        for torn in (data[:position], data[:position] + bytes(len(data) - position)):
            slow, fast = both(form, torn)
            assert fast == slow, position


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    count=st.integers(1, 40),
    gaps=st.booleans(),
    changes=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=3),
    recovery_point=st.integers(0, 60),
    compacted=st.booleans(),
)
@example(
    seed=212, count=5, gaps=False, changes=[(228, 1)], recovery_point=0, compacted=True
)  # An offset within a stretch is too high: nothing behind it may be cut off.
def test_random_damage(seed, count, gaps, changes, recovery_point, compacted):
    data = make_log(seed, count, gaps=gaps)
    for position, value in changes:
        data[position % len(data)] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_walk, "VERIFY_CHUNK_BYTES", 2000)
        patch.setattr(bulk_walk, "HEADERS_CHUNK_BYTES", 200)
        slow, fast = both(patch, data, recovery_point=recovery_point, compacted=compacted)
    assert fast == slow


def test_few_positions_tell_all_of_many_producers(form):
    form.setattr(bulk_walk, "BULK_BYTES_MIN", 0)
    for seed in range(10):
        data = make_log(seed, 300, producers=1 + seed)
        disk = MemoryDisk()
        file = disk.open("/log", create=True)
        file.write_at(0, bytes(data))
        slow, fast = ProducerStates(1 << 40), ProducerStates(1 << 40)
        walk = Walk(file, 0, len(data), verify_crc=False)
        for _ in walk:
            if walk.header[9] >= 0:
                header = BatchHeader(*walk.header)
                slow.update(header, header.last_offset, header.max_timestamp, NOW)
        positions = producer_positions(file, 0, len(data), 0)
        for header in headers_at(file, positions):
            fast.update(header, header.last_offset, header.max_timestamp, NOW)
        assert states_of(fast) == states_of(slow)


def test_plain_batches_of_a_producer_leave_five_positions(form):
    form.setattr(bulk_walk, "BULK_BYTES_MIN", 0)
    batch = build_batch(
        [Record(timestamp=NOW, key=None, value=b"")],
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
    )
    data = bytearray()
    for offset in range(1000):
        patch_offsets(batch, offset, 0)
        data += batch
    file = MemoryDisk().open("/log", create=True)
    file.write_at(0, bytes(data))
    size = len(batch)
    positions = producer_positions(file, 0, len(data), 0)
    assert positions == [0, *(size * number for number in range(995, 1000))]


def test_beginnings_are_the_changes_of_epoch(form):
    form.setattr(bulk_walk, "BULK_BYTES_MIN", 0)
    batch = build_batch([Record(timestamp=NOW, key=None, value=b"")])
    data = bytearray()
    for offset in range(300):
        patch_offsets(batch, offset, offset // 100)
        data += batch
    file = MemoryDisk().open("/log", create=True)
    file.write_at(0, bytes(data))
    walk = Walk(file, 0, len(data), verify_crc=False)
    bulk = bulk_walk.BulkWalk(
        file, len(data), base_offset=0, verify_crc=False, may_skip=False, index_interval_bytes=100
    )
    assert [batch.base_offset for batch in beginnings(walk, bulk)] == [0, 100, 200]


def test_an_array_that_is_too_small_is_refused():

    words, table = array("I", bytes(64)), array("q", bytes(1024))
    state = array("q", bytes(8 * batch_walk.WALK_STATE_SIZE))
    good = [memoryview(b""), state, words, words, table, table]
    for walk in FORMS.values():
        assert walk(*good) == batch_walk.WALK_NEEDS_DATA
        for ordinal, empty in enumerate("xqIIqq"):
            if ordinal:
                bad = [*good]
                bad[ordinal] = array(empty)
                with pytest.raises(ValueError, match="small"):
                    walk(*bad)
        state[batch_walk.DATA_END] = 1
        with pytest.raises(ValueError, match="smaller than told"):
            walk(*good)
        state[batch_walk.DATA_END] = 0


def test_offsets_at_the_edges_of_their_type():
    for offset in (2**31 - 2, 2**31, 2**62, 2**63 - 1):
        batch = build_batch([Record(timestamp=-1, key=None, value=b"")])
        struct.pack_into(">q", batch, 0, offset)
        for walk in FORMS.values():
            state = array("q", bytes(8 * batch_walk.WALK_STATE_SIZE))
            state[batch_walk.NEXT_OFFSET] = offset
            state[batch_walk.LEADER_EPOCH] = -1
            state[batch_walk.DATA_END] = state[batch_walk.FILE_END] = len(batch)
            state[batch_walk.VERIFY] = 1
            words, table = array("I", bytes(64)), array("q", bytes(1024))
            outcome = walk(memoryview(batch), state, words, words, table, table)
            is_within = offset <= 2**31 - 1
            assert outcome == (batch_walk.WALK_NEEDS_DATA if is_within else batch_walk.WALK_UNUSUAL)
            assert state[batch_walk.POSITION] == (len(batch) if is_within else 0)
