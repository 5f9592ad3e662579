"""Compaction case by case: transactions, readers in flight, full and rotten disks, power cuts."""

import asyncio
import contextlib
import errno

import pytest

from ottla.env.faulty_disk import DiskCall, DiskKilled
from ottla.housekeeping.log_cleaner import CleanerSettings
from ottla.log.aborted import aborted_below, aborted_transactions
from ottla.log.config import LogConfig
from ottla.log.health import LogState
from ottla.log.segment.full_files import FULL_SEGMENTS_OPEN_MAX
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import (
    ControlType,
)
from ottla.records.record import Record
from tests.property.log.compacting import (
    NOW,
    Now,
    Stage,
    Written,
    check,
    data_of,
    end,
    last_stable_offset,
    markers_of,
    put,
    stage_for,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_aborted_records_go_at_once_and_markers_when_nothing_is_left(codec):
    stage = stage_for(delete_retention_ms=1000)
    put(stage, (b"a", b"old"), (b"b", b"old"))
    put(stage, (b"a", b"aborted"), producer=1, base_sequence=0, codec=codec)
    put(stage, (b"b", b"new"), producer=2, base_sequence=0, codec=codec)
    end(stage, 1, ControlType.ABORT)
    end(stage, 2, ControlType.COMMIT)
    # Later batches of both, so that nothing above is the last that is known of its producer.
    put(stage, (b"", b"x"), producer=1, base_sequence=1)
    put(stage, (b"", b"y"), producer=2, base_sequence=1)
    end(stage, 1, ControlType.COMMIT)
    end(stage, 2, ControlType.COMMIT)
    stage.log.roll()
    stage.clean()
    # The aborted record hides no older one, and is gone itself.
    assert data_of(stage) == [(0, b"a"), (3, b"b"), (7, b"")]
    assert markers_of(stage) == {4: False, 5: False, 8: False, 9: False}
    stage.restart()
    assert stage.log.producers.transactions.first_unstable_offset > stage.log.log_end_offset
    # The next cleaning finds nothing that the marker ends, one after its horizon drops it.
    expected = [{4: True}, {}]
    for turn in range(4):
        put(stage, (b"b", b"newer"), (b"", b"z"))
        stage.log.roll()
        stage.clean()
        stage.clock.advance(2)
        if turn < len(expected):
            found = {base: horizon for base, horizon in markers_of(stage).items() if base == 4}
            assert found == expected[turn]
    assert [key for _, key in data_of(stage)] == [b"a", b"b", b""]
    stage.power_cut(1)
    assert stage.log.producers.transactions.first_unstable_offset > stage.log.log_end_offset
    for producer, sequence in ((1, 2), (2, 2)):
        put(stage, (b"a", b"goes on"), producer=producer, base_sequence=sequence)
    stage.log.check()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_deleted_key_does_not_come_back_when_its_producer_has_once_aborted(codec):
    stage = stage_for(delete_retention_ms=1000)
    put(stage, (b"a", b"aborted"), producer=1, base_sequence=0)
    end(stage, 1, ControlType.ABORT)
    put(stage, (b"a", b"old"), (b"b", b"old"), producer=1, base_sequence=1)
    end(stage, 1, ControlType.COMMIT)
    stage.log.roll()
    stage.clean()
    put(stage, (b"a", None), (b"b", b"new"), producer=1, base_sequence=3, codec=codec)
    end(stage, 1, ControlType.COMMIT)
    stage.log.roll()
    stage.clean()
    assert data_of(stage) == [(5, b"a"), (6, b"b")]
    for _ in range(2):
        stage.clock.advance(5)
        put(stage, (b"", b"makes it dirty"))
        stage.log.roll()
        stage.clean()
    assert [key for _, key in data_of(stage)] == [b"b", b""]


def test_nothing_above_an_open_transaction_is_cleaned():
    stage = stage_for()
    put(stage, (b"a", b"1"))
    stage.log.roll()
    put(stage, (b"a", b"2"), producer=1, base_sequence=0)
    stage.log.roll()
    put(stage, (b"a", b"3"))
    stage.log.roll()
    stage.clean()
    assert [offset for offset, _ in data_of(stage)] == [0, 1, 2]


def test_a_reader_in_flight_goes_on_with_the_old_segment():
    stage = stage_for(file_delete_delay_ms=1000)
    put(stage, (b"a", b"1"))
    put(stage, (b"a", b"2"))
    stage.log.roll()
    region = stage.log.read(0, max_bytes=999, upper_offset=2, min_one_message=True).region
    before = region.read()
    stage.clean()
    assert data_of(stage) == [(1, b"a")]
    names = stage.memory.list_directory("/d/t-0")
    assert f"{0:020d}.log.deleted" in names
    stage.clock.advance(1)
    stage.clean()
    assert not [name for name in stage.memory.list_directory("/d/t-0") if "deleted" in name]
    assert region.read() == before


class Between(Now):
    """An executor with somebody who does something before each piece of work, and after it."""

    def __init__(self, act):
        self._act = act

    def submit(self, work, done, **options):
        def then(result, error):
            self._act()
            done(result, error)

        self._act()
        super().submit(work, then)


def test_a_swapped_segment_reads_from_its_own_file_while_the_old_one_has_its_name():
    """Readers of other segments make a log close files: that one could not be opened again."""
    stage = stage_for(segment_bytes=900)
    for round_ in range(6):
        for key in range(8):
            put(stage, (b"%d" % key, b"%d" % round_ * 60))
        put(stage, (b"once-%d" % round_, b"o" * 60))
        stage.log.roll()
    newest = {one.key: one for one in stage.read()}
    swapping = 0

    def read_it_all():
        nonlocal swapping
        swapping += stage.log.is_swapping
        for _ in range(2):
            assert {one.key: one for one in stage.read()} == newest

    stage.cleaner._executor = Between(read_it_all)
    stage.clean()
    assert swapping
    assert stage.log.segment_count > FULL_SEGMENTS_OPEN_MAX, "files were closed"
    assert {one.key: one for one in stage.read()} == newest
    assert all(segment.is_named for segment in stage.log.segments)
    stage.restart()
    assert {one.key: one for one in stage.read()} == newest


def test_how_far_it_is_clean_is_remembered_as_kafka_does():
    stage = stage_for()
    put(stage, (b"a", b"1"))
    stage.log.roll()
    stage.clean()
    file = stage.memory.open_read_only("/d/cleaner-offset-checkpoint")
    assert file.read_at(0, 100) == b"0\n1\nt 0 1\n"
    before = stage.disk.counts[DiskCall.RENAME]
    stage.restart()
    before = stage.disk.counts[DiskCall.RENAME]
    stage.clean()
    assert stage.disk.counts[DiskCall.RENAME] == before, "there is nothing to clean"


def test_a_rotten_log_is_left_as_it_is():
    stage = stage_for()
    put(stage, (b"a", b"1"))
    put(stage, (b"a", b"2"))
    stage.log.roll()
    file = stage.disk.open("/d/t-0/" + f"{0:020d}.log")
    data = bytearray(file.read_at(0, file.size()))
    data[65] ^= 1
    file.write_at(0, data)
    stage.clean()
    assert stage.cleaner._uncleanable
    assert file.read_at(0, file.size()) == data
    assert not [name for name in stage.memory.list_directory("/d/t-0") if "cleaned" in name]


def test_a_log_that_is_compacted_no_longer_still_opens_after_a_crash():
    stage = stage_for()
    for n in range(10):
        put(stage, (b"a", b"%d" % n))
    stage.log.roll()
    stage.clean()
    assert data_of(stage) == [(9, b"a")]
    stage.config = stage.config._replace(is_compacted=False, is_deleted=True)
    stage.power_cut(4)
    assert data_of(stage) == [(9, b"a")]


@pytest.mark.parametrize("call", [DiskCall.WRITE, DiskCall.RENAME, DiskCall.OPEN])
def test_a_full_disk_stops_a_compaction_and_not_the_log(call):
    for nth in range(1, 12):
        stage = stage_for(segment_bytes=500)
        for n in range(20):
            put(stage, (b"a", b"%d" % n), (b"k%d" % n, b"x"))
        before = stage.read()
        stage.disk.fail(call, nth=nth, errno=errno.ENOSPC)
        with contextlib.suppress(OSError):  # The broker logs it and tries again later.
            stage.clean()
        assert stage.log.state is LogState.OPEN
        assert set(stage.read()) <= set(before)
        stage.disk.heal()
        stage.clean()
        stage.log.check()
        last = stage.log.segments[-1].base_offset
        assert len([one for one in stage.read() if one.key == b"a" and one.offset < last]) == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_power_cut_at_every_call_of_a_compaction(codec):
    """Old or new, never anything between; and a second start changes nothing."""
    nth, died = 0, True
    while died:
        nth += 1
        stage = Stage(
            LogConfig(
                is_compacted=True,
                is_deleted=False,
                segment_bytes=700,
                min_cleanable_dirty_ratio=0.0,
                delete_retention_ms=0,
            ),
            CleanerSettings(backoff_ms=1),
        )
        written = []
        for n in range(40):
            records = [(b"k%d" % (n % 7), None if n % 5 == 4 else b"%d" % n), (b"s%d" % n, b"x")]
            built = [Record(timestamp=NOW + n, key=k, value=v) for k, v in records]
            data = memoryview(build_batch(built, codec=codec))
            base = stage.log.append(data, leader_epoch=0).base_offset
            stage.log.flush()
            new = [Written(base + i, k, v, NOW + n) for i, (k, v) in enumerate(records)]
            stage.tombstones.wrote(new)
            written += new
            if n == 25:
                stage.clean()
                stage.clock.advance(1)
        stage.disk.kill_at(nth)
        try:
            stage.clean()
            died = False
        except DiskKilled:
            pass
        stage.power_cut(nth)
        found = stage.read()
        stage.log.check()
        check(found, written, stage.tombstones.gone)
        names = stage.memory.list_directory("/d/t-0")
        assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted"))]
        stage.power_cut(nth + 1)
        assert stage.read() == found
        stage.clean()
        check(stage.read(), written, stage.tombstones.gone)
    assert nth > 30


@pytest.mark.parametrize("altered", [False, True])
@pytest.mark.parametrize("lag", ["min_compaction_lag_ms", "max_compaction_lag_ms"])
def test_choosing_what_to_clean_does_not_use_up_the_files_nor_hold_the_loop(lag, altered):
    """After a restart all dirty segments were opened at once, and stayed open.

    Later they still were where somebody altered the topic's options meanwhile.
    """
    lag_ms = 1 if lag.startswith("min") else 10**12
    stage = stage_for(min_cleanable_dirty_ratio=1.0, **{lag: lag_ms})
    for number in range(40):
        put(stage, (b"%d" % number, b"v"))
        stage.log.roll()
    stage.log.flush()
    stage.restart()
    stage.clock.advance(10)
    opened_in_turn = [0]
    for name in ("open", "open_read_only"):
        opens = getattr(stage.disk, name)

        def counted(path, *, opens=opens, **options):
            opened_in_turn[-1] += path.endswith(".log")
            return opens(path, **options)

        setattr(stage.disk, name, counted)

    async def run():
        task = asyncio.ensure_future(stage.cleaner.clean())
        while not task.done():
            await asyncio.sleep(0)
            if altered and sum(opened_in_turn) == 5:
                stage.log.config = stage.log.config._replace(flush_ms=1)
            opened_in_turn.append(0)
        await task

    asyncio.run(run())
    assert sum(opened_in_turn) >= 40, "else nothing was looked at"
    assert max(opened_in_turn) == 1
    assert sum(segment.is_file_open for segment in stage.log.segments) <= 1 + FULL_SEGMENTS_OPEN_MAX


def test_aborts_of_many_segments_do_not_use_up_the_files():
    stage = stage_for(min_cleanable_dirty_ratio=1.0)
    for number in range(20):
        put(stage, (b"a", b"aborted"), producer=number, base_sequence=0)
        end(stage, number, ControlType.ABORT)
        stage.log.roll()
    stage.log.flush()
    stage.restart()
    indexes = [segment.transaction_index for segment in stage.log.segments]
    indexes = [index for index in indexes if index is not None]
    assert len(indexes) == 20
    assert len(aborted_below(stage.log, 40)()) == 20
    assert not any(index.is_open for index in indexes)
    put(stage, (b"a", b"open"), producer=1000, base_sequence=0)
    result = stage.log.read(0, max_bytes=1, upper_offset=40, min_one_message=True)
    assert len(aborted_transactions(stage.log, 0, result, 40)) == 1
    assert sum(index.is_open for index in indexes) <= 1


def test_an_abort_below_the_log_start_takes_nothing_above_it():
    """Whoever leaves the segments below the start out must not take the abort for an open one."""
    stage = stage_for(min_cleanable_dirty_ratio=0.0)
    put(stage, (b"a", b"aborted"), producer=3, base_sequence=0)
    end(stage, 3, ControlType.ABORT)
    stage.log.roll()
    put(stage, (b"a", b"committed"), producer=3, base_sequence=1)
    end(stage, 3, ControlType.COMMIT)
    stage.log.roll()
    put(stage, (b"z", b"last"))
    stage.log.roll()
    stage.log.flush()
    stage.delete_records(2, are_segments_dropped=False)
    stage.clean()
    assert (2, b"committed") in [(one.offset, one.value) for one in stage.read()]


def test_what_lies_below_the_log_start_goes_before_anything_is_cleaned():
    """A power cut brought bytes of a refused write back there: the log was not compacted any more.

    No start looks there.
    """
    stage = stage_for(min_cleanable_dirty_ratio=0.0)
    for number in range(4):
        put(stage, (b"a", b"%d" % number), (b"b", b"%d" % number))
        stage.log.roll()
    stage.log.flush()
    stage.delete_records(3, are_segments_dropped=False)
    with contextlib.closing(stage.disk.open(stage.log.segments[0].path)) as file:
        file.write_at(file.size(), b"\0")
        file.sync()
    stage.power_cut(1)
    stage.log.check()
    asyncio.run(stage.cleaner.clean())
    assert len(stage.read()) == 5
    stage.clean()
    assert [(one.offset, one.value) for one in stage.read()] == [(6, b"3"), (7, b"3")]


def test_what_lies_below_a_start_that_rises_amid_the_choice_is_not_cleaned():
    stage = stage_for(min_cleanable_dirty_ratio=0.0)
    for number in range(4):
        put(stage, (b"a", b"%d" % number))
        stage.log.roll()
    stage.log.flush()
    cleaner = stage.cleaner
    clean = cleaner._clean

    async def clean_later(partition, part):
        stage.delete_records(3, are_segments_dropped=False)
        return await clean(partition, part)

    cleaner._clean = clean_later
    asyncio.run(cleaner.clean())
    assert [segment.base_offset for segment in stage.log.segments] == [0, 1, 2, 3, 4]
    assert [(one.offset, one.value) for one in stage.read()] == [(3, b"3")]


def test_the_epoch_of_a_producer_of_markers_only_outlives_their_horizon():
    """Emptied, its last marker did not tell a start without a snapshot of it."""
    stage = stage_for(min_cleanable_dirty_ratio=0.0, delete_retention_ms=0)
    end(stage, 3, ControlType.COMMIT, epoch=4)
    for number in range(3):
        stage.log.roll()
        put(stage, (b"z", b"%d" % number))
        stage.log.flush()
        stage.clock.advance(1)
        stage.clean()
    for offset in stage.log.producers.snapshots.offsets:
        stage.disk.remove(stage.log.producers.snapshots.path_of(offset))
    stage.start_after_a_kill()
    assert stage.log.producers.states.get(3).epoch == 4


def clean_thrice(stage, value):
    """Clean, with time enough in between for whatever has a horizon to go, and something new."""
    for _ in range(3):
        stage.clean()
        stage.clock.advance(1)
        put(stage, (b"a", value))
        stage.log.roll()


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_stays_while_its_records_lie_below_the_log_start(monkeypatch, kind):
    """A start that reads those, for there is no snapshot, would find the transaction open for ever.

    Nobody would read committed records behind it, nor would anything be compacted.
    """
    monkeypatch.setattr("ottla.log.producers.producers.PRODUCERS_PER_ROLL_MAX", 0)
    stage = stage_for(delete_retention_ms=0)
    put(stage, (b"a", b"1"), producer=5, base_sequence=0)
    stage.log.roll()
    end(stage, 5, kind)
    put(stage, (b"a", b"2"))
    stage.log.roll()
    put(stage, (b"b", b"3"))
    stage.log.roll()
    stage.delete_records(1, are_segments_dropped=False)
    clean_thrice(stage, b"4")
    stage.start_after_a_kill()
    assert last_stable_offset(stage.log) == stage.log.log_end_offset
    stage.delete_records(1, are_segments_dropped=True)
    clean_thrice(stage, b"5")
    assert not markers_of(stage)
