"""A partition under the real LogCleaner, what was written to it, and what must be left."""

import asyncio
from typing import NamedTuple

import hypothesis.strategies as st

from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.housekeeping.log_cleaner import CleanerSettings, LogCleaner
from ottla.ids import TopicId, TopicPartition
from ottla.log.aborted import aborted_transactions
from ottla.log.append import own
from ottla.log.config import LogConfig
from ottla.log.directories.copying import LogCopy
from ottla.log.directories.directory import LogDirectory
from ottla.log.directories.offset_checkpoints import OffsetCheckpoints
from ottla.log.directories.recovery import open_log
from ottla.log.directories.space import SpaceLimits
from ottla.log.upkeep.front import (
    drop_segments_below,
    end_below,
    has_segments_below,
    is_told_durably,
    raise_start_offset,
)
from ottla.log.upkeep.snapshot_job import SnapshotJob
from ottla.records.batch import iterate_headers
from ottla.records.builder import build_batch
from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
    control_type_of,
)
from ottla.records.decode import decode_batches
from ottla.records.record import Record

NOW = 1_700_000_000_000
TP = TopicPartition("t", 0)
DIRECTORY = "/d/t-0"
KEYS = [b"a", b"b", b"", b"long" * 20]
CLEANERS = st.fixed_dictionaries(
    {
        "dedupe_buffer_bytes": st.sampled_from([24 * 9, 24 * 1000]),
        "io_buffer_bytes": st.sampled_from([0, 100_000]),
    }
).map(lambda chosen: CleanerSettings(**chosen))


def configs(*, is_deleted):
    """Return the strategy of a compacted log's settings; ``is_deleted``: retention, too."""
    return st.fixed_dictionaries(
        {
            "segment_bytes": st.sampled_from([900, 2000]),
            "index_interval_bytes": st.sampled_from([0, 100, 4096]),
            "delete_retention_ms": st.sampled_from([0, 5000]),
        }
    ).map(
        lambda chosen: LogConfig(
            is_compacted=True, is_deleted=is_deleted, min_cleanable_dirty_ratio=0.0, **chosen
        )
    )


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


class Now:
    """An executor that does at once what it is given, and says so in the loop's next turn."""

    def submit(self, work, done, **options):
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
        self.log = stage.log

    @property
    def last_stable_offset(self):
        return last_stable_offset(self.log)


class Stage:
    """A log on a disk that can be cut off from power, and its cleaner."""

    def __init__(self, config, cleaner):
        self.config, self.settings = config, cleaner
        self.clock = ManualClock(NOW)
        self.memory = MemoryDisk(durability=True)
        self.memory.make_directory("/d")
        self.memory.make_directory(DIRECTORY)
        self.memory.sync_directory("/d")
        self.memory.sync_directory("/")
        self.recovery_point = 0
        self.start_offset = 0
        self.tombstones = Tombstones(config.delete_retention_ms)
        self.open(clean=False)

    def open(self, *, clean, kill_at=None):
        """Start on what is on the disk, which dies at the ``kill_at``th change, if any."""
        self.disk = FaultyDisk(self.memory)
        if kill_at is not None:
            self.disk.kill_at(kill_at)
        self.log = self.open_log(DIRECTORY, clean=clean)
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

    def open_log(self, directory, *, clean):
        """Open the log in ``directory``. All that it holds counts as committed: see ``commit``."""
        log = open_log(
            self.disk,
            self.clock,
            directory,
            TP,
            self.config,
            recovery_point=self.recovery_point,
            log_start_offset=self.start_offset,
            is_clean=clean,
        )
        log.producers.transactions.commit_to(log.log_end_offset)
        return log

    def commit(self):
        """Flush the log, and let the high watermark follow."""
        self.log.flush()
        self.log.producers.transactions.commit_to(self.log.log_end_offset)

    def watch(self, cleaner):
        """Tell ``tombstones`` of each cleaning that began, and of each that ended."""
        plan, note = cleaner._plan, cleaner._note

        async def planned(partition, part):
            found = self.tombstones.begun = await plan(partition, part)
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
        """Let time pass whenever the cleaner waits for it. What was rolled has been flushed.

        Retention has been here: a log is not cleaned while segments lie below its start.
        """
        self.log.flush()
        self.drop_segments()
        task = asyncio.ensure_future(self.cleaner.clean())
        while not task.done():
            await asyncio.sleep(0)
            if self.cleaner._wait is not None:
                self.clock.advance(1)
        await task

    def power_cut(self, seed):
        self.memory = self.memory.crash(SeededRng(seed))
        self.start_after_a_kill()

    def start_after_a_kill(self):
        """Open what the page cache has, also of what was not synced."""
        self.open(clean=False)
        self.tombstones.was_cut_short(self.horizons_on_disk())

    def restart(self):
        self.log.close()
        self.recovery_point = self.log.flushed_offset
        self.open(clean=True)

    def delete_records(self, offset, *, are_segments_dropped):
        """Let the log start at ``offset``; its segments may wait for the next retention."""
        raise_start_offset(self.log, offset)
        self.start_offset = self.log.log_start_offset
        self.tombstones.deleted_below(self.start_offset)
        if are_segments_dropped:
            self.drop_segments()

    def drop_segments(self):
        """Take away what lies below the log start, as retention does."""
        if not has_segments_below(self.log, self.start_offset):
            return
        tell_below(self.log, self.disk, self.start_offset)
        paths = drop_segments_below(self.log, self.disk, self.start_offset, 99)
        self.disk.sync_directory(DIRECTORY)
        for path in paths:
            self.disk.remove(path)

    def begin_copy(self, directory):
        self.disk.make_directory(directory)
        return LogCopy(self.disk, self.log, directory)

    def read(self):
        """Every record as a consumer reads it: by following offsets."""
        log = self.log
        return [
            one
            for batches, _ in fetches(log, log.log_end_offset, 300)
            for decoded in batches
            for one in written_in(log, decoded)
        ]

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


def tell_below(log, disk, offset):
    """Make durable what segments below ``offset`` say of producers, as deletion does."""
    if not is_told_durably(log, end_below(log, offset)):
        job = SnapshotJob(log, disk)
        while not job.encode(100):
            pass
        job.run()
        assert job.publish(0)
        job.clean_up()
        job.end()
        log.flush()


def last_stable_offset(log):
    """Return it as the leader of a partition without other replicas does."""
    unstable = log.producers.transactions.first_unstable_offset
    return min(log.flushed_offset, max(unstable, log.log_start_offset))


def fetches(log, upper_offset, max_bytes):
    """Yield (batches, aborted transactions) of each fetch of one who follows offsets."""
    offset = log.log_start_offset
    while offset < upper_offset:
        result = log.read(
            offset, max_bytes=max_bytes, upper_offset=upper_offset, min_one_message=True
        )
        if result.region is None:
            break
        batches = list(decode_batches(result.region.read(), 1 << 20))
        yield batches, aborted_transactions(log, offset, result, upper_offset)
        offset = batches[-1].header.next_offset


def written_in(log, decoded):
    return [
        Written(record.offset, record.key, record.value, record.timestamp)
        for record in decoded.records
        if record.offset >= log.log_start_offset
    ]


def read_committed(log, max_bytes):
    """Every record as a client of Kafka shows it with ``isolation.level=read_committed``."""
    found = []
    for batches, told in fetches(log, last_stable_offset(log), max_bytes):
        to_come, ongoing = list(told), set()
        for decoded in batches:
            header = decoded.header
            while to_come and to_come[0].first_offset <= header.last_offset:
                ongoing.add(to_come.pop(0).producer_id)
            if header.is_control:
                if ControlType.ABORT in {control_type_of(one.key) for one in decoded.records}:
                    ongoing.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in ongoing:
                found += written_in(log, decoded)
    return found


def without_marker(log):
    """Return the producers with a transaction open to one who has only what is left of the log."""
    found = set()
    for segment in log.segments:
        for _, header in iterate_headers(segment.file.read_at(0, segment.size_bytes)):
            if header.is_control and header.record_count:
                found.discard(header.producer_id)
            elif header.is_transactional and not header.is_control:
                found.add(header.producer_id)
    return found


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

    def deleted_below(self, start_offset):
        """Let go of what DeleteRecords has hidden."""
        self.horizons = {
            offset: horizon for offset, horizon in self.horizons.items() if offset >= start_offset
        }

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


def stage_for(**config):
    defaults = {"is_compacted": True, "is_deleted": False, "min_cleanable_dirty_ratio": 0.0}
    return Stage(
        LogConfig(**{**defaults, **config}),
        CleanerSettings(),
    )


def put(stage, *pairs, producer=None, **options):
    """Append one batch, transactional if there is a ``producer``; return its records."""
    if producer is not None:
        options = {"producer_id": producer, "producer_epoch": 0, "transactional": True} | options
    now = stage.clock.wall_ms()
    built = [Record(timestamp=now, key=key, value=value) for key, value in pairs]
    base = stage.log.append(memoryview(build_batch(built, **options)), leader_epoch=0).base_offset
    stage.commit()
    return [Written(base + i, key, value, now) for i, (key, value) in enumerate(pairs)]


def end(stage, producer, control_type, *, epoch=0, version=0):
    """Append a marker with this producer epoch, and of this transaction version (KIP-890)."""
    marker = build_end_transaction_marker(
        EndTransactionMarker(control_type, 0),
        producer_id=producer,
        producer_epoch=epoch,
        timestamp_ms=stage.clock.wall_ms(),
    )
    analysis = own(memoryview(marker), transaction_version=version)
    stage.log.append_analysed(analysis, leader_epoch=0)
    stage.commit()


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
