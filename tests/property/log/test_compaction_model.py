"""What compaction leaves of a log, through restarts and power cuts, against a dict.

Of each key the newest record stays where it was, all else may go; a reader from the start ends up
with the same map from keys to values as one that read everything. A newest record without a value
goes, too, but not before its time, and not after it. Cleaned by the real LogCleaner.
"""

import asyncio
import contextlib
import errno
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import TopicId, TopicPartition
from ottla.log.append import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory
from ottla.log.full_files import FULL_SEGMENTS_OPEN_MAX
from ottla.log.health import LogState
from ottla.log.offset_checkpoints import OffsetCheckpoints
from ottla.log.recovery import open_log
from ottla.log.space import SpaceLimits
from ottla.records.batch import iterate_headers
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from ottla.records.decode import decode_batches
from ottla.records.record import Record
from ottla.replication.log_cleaner import CleanerSettings, LogCleaner

NOW = 1_700_000_000_000
TP = TopicPartition("t", 0)
KEYS = [b"a", b"b", b"", b"long" * 20]


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


class Now:
    """An executor that does at once what it is given, and says so in the loop's next turn."""

    def submit(self, work, done):
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - it crosses to the loop, as in the real one
            error = raised
        asyncio.get_running_loop().call_soon(done, result, error)

    def close(self):
        pass


class OnePartition:
    topic_partition = TP
    topic_id = TopicId(b"0123456789abcdef")

    def __init__(self, stage):
        self.log, self.stage = stage.log, stage

    @property
    def last_stable_offset(self):
        return min(self.log.flushed_offset, self.stage.stable_offset)


class Stage:
    """A log on a disk that can be cut off from power, and its cleaner."""

    def __init__(self, config, cleaner):
        self.config, self.settings = config, cleaner
        self.clock = ManualClock(NOW)
        self.memory = MemoryDisk(durability=True)
        self.memory.make_directory("/d")
        self.memory.make_directory("/d/t-0")
        self.memory.sync_directory("/d")
        self.memory.sync_directory("/")
        self.recovery_point = 0
        self.stable_offset = 2**62
        self.tombstones = Tombstones(config.delete_retention_ms)
        self.open(clean=False)

    def open(self, *, clean):
        self.disk = FaultyDisk(self.memory)
        self.log = open_log(
            self.disk,
            self.clock,
            "/d/t-0",
            TP,
            self.config,
            recovery_point=self.recovery_point,
            log_start_offset=0,
            is_clean=clean,
        )
        partition = OnePartition(self)
        directory = LogDirectory(self.disk, "/d", SpaceLimits())
        checkpoints = OffsetCheckpoints(self.disk, {"/d": directory})
        checkpoints.read("/d")
        self.cleaner = LogCleaner(
            disk=self.disk,
            checkpoints=checkpoints,
            clock=self.clock,
            rng=SeededRng(3),
            executor=Now(),
            partitions=lambda: [partition],
            settings=lambda: self.settings,
            save_recovery_points=self.save,
        )
        self.watch(self.cleaner)

    def watch(self, cleaner):
        """Tell ``tombstones`` of each cleaning that began, and of each that ended."""
        plan, note = cleaner._plan, cleaner._note

        def planned(partition, part):
            found = self.tombstones.begun = plan(partition, part)
            return found

        async def noted(partition, end_offset):
            await note(partition, end_offset)
            self.tombstones.cleaned(end_offset)

        cleaner._plan, cleaner._note = planned, noted

    async def save(self):
        self.recovery_point = self.log.flushed_offset

    def clean(self):
        asyncio.run(self.run_cleaner())

    async def run_cleaner(self):
        """Let time pass whenever the cleaner waits for it."""
        task = asyncio.ensure_future(self.cleaner.clean())
        while not task.done():
            await asyncio.sleep(0)
            if self.cleaner._wait is not None:
                self.clock.advance(1)
        await task

    def power_cut(self, seed):
        self.memory = self.memory.crash(SeededRng(seed))
        self.open(clean=False)
        self.tombstones.was_cut_short(self.horizons_on_disk())

    def restart(self):
        self.log.close()
        self.recovery_point = self.log.flushed_offset
        self.open(clean=True)

    def read(self):
        """Every record as a consumer reads it: by following offsets."""
        log, offset, found = self.log, self.log.log_start_offset, []
        while offset < log.log_end_offset:
            result = log.read(
                offset, max_bytes=300, upper_offset=log.log_end_offset, min_one_message=True
            )
            if result.region is None:
                break
            for decoded in decode_batches(result.region.read(), 1 << 20):
                found += [
                    Written(record.offset, record.key, record.value, record.timestamp)
                    for record in decoded.records
                    if record.offset >= offset
                ]
                offset = decoded.header.next_offset
        return found

    def horizons_on_disk(self):
        """By the offset of a tombstone, until when its batch keeps it; None: not known yet."""
        batches = [
            header
            for segment in self.log.segments
            for _, header in iterate_headers(segment.file.read_at(0, segment.size_bytes))
        ]
        return {
            one.offset: next(
                header.base_timestamp if header.has_delete_horizon else None
                for header in batches
                if header.base_offset <= one.offset <= header.last_offset
            )
            for one in self.read()
            if one.value is None
        }


class Tombstones:
    """When records without a value go (KIP-534), by offset.

    The first cleaning that comes by gives a tombstone its horizon, ``delete.retention.ms`` ahead;
    the first one at that time or later takes it away.
    """

    def __init__(self, retention_ms):
        self.retention_ms = retention_ms
        self.horizons = {}
        self.gone = set()
        self._newest = {}
        self.begun = None
        """The plan of a cleaning that has not ended: cut short, it may have done some of it."""

    def wrote(self, records):
        """One with a newer record of its key may go at any time: it is not followed any more."""
        for one in records:
            self.horizons.pop(self._newest.get(one.key), None)
            self._newest[one.key] = one.offset
            if one.value is None:
                self.horizons[one.offset] = None

    def cleaned(self, end_offset):
        now_ms = self.begun.now_ms
        for offset, horizon_ms in self._reached(end_offset):
            if horizon_ms is None:
                self.horizons[offset] = now_ms + self.retention_ms
            elif horizon_ms <= now_ms:
                self._go(offset)
        self.begun = None

    def was_cut_short(self, on_disk):
        """Take what a cleaning without an end has done: all of it is allowed, and no more."""
        if self.begun is None:
            return
        now_ms = self.begun.now_ms
        for offset, horizon_ms in self._reached(self.begun.first_uncleanable_offset):
            found = on_disk.get(offset, "gone")
            if found == "gone":
                assert horizon_ms is not None, offset
                assert horizon_ms <= now_ms, offset
                self._go(offset)
            else:
                may_be_new = horizon_ms is None and found == now_ms + self.retention_ms
                assert found == horizon_ms or may_be_new, (offset, found, horizon_ms)
                self.horizons[offset] = found
        self.begun = None

    def _reached(self, end_offset):
        """Whole segments are cleaned, though the map may have ended within the last one."""
        ends = [one.end_offset for one in self.begun.sources if one.base_offset < end_offset]
        return [one for one in self.horizons.items() if one[0] < max(ends, default=0)]

    def _go(self, offset):
        del self.horizons[offset]
        self.gone.add(offset)


def check(found, written, gone):
    """Nothing was invented or changed, and the newest of each key is there, but for ``gone``."""
    assert set(found) <= set(written)
    assert [one.offset for one in found] == sorted({one.offset for one in found})
    newest = {one.key: one for one in written}
    kept = {one.key: one for one in found}
    for key, one in newest.items():
        # Of a tombstone that is gone nothing older may be left.
        assert kept.get(key) == (None if one.offset in gone else one), key


CONFIGS = st.fixed_dictionaries(
    {
        "segment_bytes": st.sampled_from([900, 2000]),
        "index_interval_bytes": st.sampled_from([0, 100, 4096]),
        "delete_retention_ms": st.sampled_from([0, 5000]),
    }
).map(
    lambda chosen: LogConfig(
        is_compacted=True, is_deleted=False, min_cleanable_dirty_ratio=0.0, **chosen
    )
)
CLEANERS = st.fixed_dictionaries(
    {
        "dedupe_buffer_bytes": st.sampled_from([24 * 9, 24 * 1000]),
        "io_buffer_bytes": st.sampled_from([0, 100_000]),
    }
).map(lambda chosen: CleanerSettings(**chosen))
RECORDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"", b"v", b"w" * 60])),
    min_size=1,
    max_size=5,
)


class CompactionMachine(RuleBasedStateMachine):
    @initialize(config=CONFIGS, cleaner=CLEANERS)
    def start(self, config, cleaner):
        self.stage = Stage(config, cleaner)
        self.written = []
        self.sequences = {}

    @rule(
        records=RECORDS,
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD]),
        producer=st.sampled_from([-1, 1, 2]),
    )
    def write(self, records, codec, producer):
        log = self.stage.log
        now = self.stage.clock.wall_ms()
        options = {"codec": codec}
        if producer > 0:
            options |= {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer, 0),
            }
        built = [Record(timestamp=now + i, key=k, value=v) for i, (k, v) in enumerate(records)]
        base = log.append(memoryview(build_batch(built, **options)), leader_epoch=0).base_offset
        log.flush()
        if producer > 0:
            self.sequences[producer] = self.sequences.get(producer, 0) + len(records)
        new = [Written(base + i, k, v, now + i) for i, (k, v) in enumerate(records)]
        self.stage.tombstones.wrote(new)
        self.written += new

    @rule()
    def roll(self):
        self.stage.log.roll()

    @rule(seconds=st.sampled_from([1, 10]))
    def wait(self, seconds):
        self.stage.clock.advance(seconds)

    @rule()
    def clean(self):
        self.stage.clean()
        log = self.stage.log
        clean_end = self.stage.cleaner._cleaned_to.get(TP, (None, 0))[1]
        assert not log.is_swapping
        assert not self.stage.cleaner._uncleanable
        last = log.segments[-1].base_offset
        # All that can be cleaned is clean: one record of each key below the active segment.
        if last and len(self.stage.log.segments) > 1:
            assert clean_end == last
        below = [one for one in self.stage.read() if one.offset < last]
        assert len({one.key for one in below}) == len(below)

    @rule()
    def restart(self):
        self.stage.restart()

    @rule(seed=st.integers(0, 1000))
    def power_cut(self, seed):
        self.stage.power_cut(seed)

    @rule(nth=st.integers(1, 60), seed=st.integers(0, 1000))
    def power_cut_while_cleaning(self, nth, seed):
        self.stage.disk.kill_at(nth)
        with contextlib.suppress(DiskKilled):
            self.stage.clean()
        self.stage.power_cut(seed)

    @precondition(lambda self: self.sequences)
    @rule()
    def a_resend_is_known(self):
        for producer, sequence in self.sequences.items():
            last = self.stage.log.producers.states.get(producer).batches[-1]
            assert last.last_sequence == sequence - 1

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "stage"):
            return
        self.stage.log.check()
        tombstones = self.stage.tombstones
        check(self.stage.read(), self.written, tombstones.gone)
        on_disk = self.stage.horizons_on_disk()
        assert {offset: on_disk.get(offset) for offset in tombstones.horizons} == (
            tombstones.horizons
        )
        end = self.written[-1].offset + 1 if self.written else 0
        assert self.stage.log.log_end_offset == end


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def stage_for(**config):
    return Stage(
        LogConfig(is_compacted=True, is_deleted=False, min_cleanable_dirty_ratio=0.0, **config),
        CleanerSettings(),
    )


def put(stage, *pairs, producer=None, **options):
    if producer is not None:
        options |= {"producer_id": producer, "producer_epoch": 0, "transactional": True}
    now = stage.clock.wall_ms()
    built = [Record(timestamp=now, key=key, value=value) for key, value in pairs]
    stage.log.append(memoryview(build_batch(built, **options)), leader_epoch=0)
    stage.log.flush()


def end(stage, producer, control_type):
    marker = build_end_transaction_marker(
        EndTransactionMarker(control_type, 0),
        producer_id=producer,
        producer_epoch=0,
        timestamp_ms=stage.clock.wall_ms(),
    )
    stage.log.append(memoryview(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    stage.log.flush()
    stage.log.producers.transactions.commit_to(stage.log.log_end_offset)


def headers(stage):
    """(base offset, record count, is control, has a delete horizon) of every batch."""
    found = []
    for segment in stage.log.segments:
        data = segment.file.read_at(0, segment.size_bytes)
        found += [
            (one.base_offset, one.record_count, one.is_control, one.has_delete_horizon)
            for _, one in iterate_headers(data)
        ]
    return found


def markers_of(stage):
    return {base: horizon for base, _, is_control, horizon in headers(stage) if is_control}


def data_of(stage):
    return [(one.offset, one.key) for one in stage.read() if one.key in KEYS]


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


def test_nothing_above_an_open_transaction_is_cleaned():
    stage = stage_for()
    put(stage, (b"a", b"1"))
    stage.log.roll()
    put(stage, (b"a", b"2"), producer=1, base_sequence=0)
    stage.log.roll()
    put(stage, (b"a", b"3"))
    stage.log.roll()
    stage.stable_offset = stage.log.producers.transactions.first_unstable_offset
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

    def submit(self, work, done):
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
