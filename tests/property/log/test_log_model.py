"""The log against a list: whatever happens in whatever order, both say the same."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.append import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.contents.gaps import end_if_cut
from ottla.log.directories.recovery import open_log
from ottla.log.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from ottla.log.upkeep.front import (
    drop_segments_below,
    has_segments_below,
    raise_start_offset,
)
from ottla.records.builder import build_batch
from ottla.records.decode import decode_batches
from ottla.records.record import Record
from tests.by_time import offset_for_timestamp, offset_of_max_timestamp
from tests.retention import retained_from

NOW = 1_700_000_000_000
TP = TopicPartition("t", 0)


class LogMachine(RuleBasedStateMachine):
    """``batches`` is the model: (records, epoch) in order; a record is (offset, value, time)."""

    @initialize(
        segment_bytes=st.sampled_from([400, 900, 5000]),
        index_interval_bytes=st.sampled_from([1, 150, 4096]),
        segment_index_bytes=st.sampled_from([64, 10_000]),
    )
    def start(self, **config):
        self.config = LogConfig(**config)
        self.clock = ManualClock(NOW)
        self.disk = MemoryDisk(durability=True, clock=self.clock)
        self.disk.make_directory("/t-0")
        self.disk.sync_directory("/")
        self.batches = []
        self.epoch = 0
        self.flushed = 0
        self.start_offset = 0
        self.open(clean=False, recovery_point=0)

    def open(self, *, clean, recovery_point):
        self.log = open_log(
            self.disk,
            self.clock,
            "/t-0",
            TP,
            self.config,
            recovery_point=recovery_point,
            log_start_offset=self.start_checkpoint(),
            is_clean=clean,
        )

    def start_checkpoint(self):
        return (read_offset_checkpoint(self.disk, "/start") or {}).get(TP, 0)

    @property
    def end(self):
        return self.batches[-1][0][-1][0] + 1 if self.batches else 0

    def records(self):
        """What a consumer may see: ``batches`` keep what is deleted, too."""
        return [
            record
            for records, _ in self.batches
            for record in records
            if record[0] >= self.start_offset
        ]

    def delete_below(self, offset):
        """Raise the log start offset as the replica manager does: durably, then the files."""
        before = set(self.disk.list_directory("/t-0"))
        raise_start_offset(self.log, offset)
        self.start_offset = max(self.start_offset, offset)
        write_offset_checkpoint(self.disk, "/start", {TP: self.start_offset})
        for path in drop_segments_below(self.log, self.disk, self.start_offset, 100):
            assert path.removesuffix(".deleted").removeprefix("/t-0/") in before
            self.disk.sync_directory("/t-0")
            self.disk.remove(path)
        assert not has_segments_below(self.log, self.start_offset)

    @rule(
        times=st.lists(st.integers(-1, 50), min_size=1, max_size=4),
        size=st.integers(0, 60),
        codec=st.sampled_from([0, 0, 1, 3]),
        new_leader=st.booleans(),
    )
    def append(self, times, size, codec, new_leader):
        self.epoch += new_leader
        records = [
            Record(timestamp=NOW + time, key=b"k", value=b"%d" % index + b"x" * size)
            for index, time in enumerate(times)
        ]
        result = self.log.append(
            memoryview(build_batch(records, codec=codec)),
            leader_epoch=self.epoch,
            origin=AppendOrigin.CLIENT,
        )
        assert result.base_offset == self.end
        stored = [(self.end + n, one.value, one.timestamp) for n, one in enumerate(records)]
        self.batches.append((stored, self.epoch))
        assert result.last_offset == self.end - 1

    @rule()
    def flush(self):
        self.log.flush()
        self.flushed = self.end
        assert self.log.flushed_offset == self.end

    @rule()
    def roll(self):
        self.log.roll()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share):
        """DeleteRecords: only what is durable may go."""
        self.log.flush()
        self.flushed = self.end
        self.delete_below(int(self.start_offset + share * (self.end - self.start_offset)))

    @rule(upper=st.floats(0, 1), age=st.integers(0, 60))
    def expire(self, upper, age):
        """Retention by time: no record younger than the limit goes, nor what is not committed."""
        upper_offset = int(self.start_offset + upper * (self.end - self.start_offset))
        self.log.config = self.config._replace(retention_ms=age)
        self.clock.advance(0.02)
        start = retained_from(self.log, upper_offset, self.clock.wall_ms())
        assert self.start_offset <= start <= max(upper_offset, self.start_offset)
        gone = [record for record in self.records() if record[0] < start]
        now = self.clock.wall_ms()
        assert all(now - time > age for _, _, time in gone)
        self.delete_below(start)

    @rule(keep=st.integers(0, 2000))
    def shrink(self, keep):
        """Retention by size: the log keeps so much, if it had it, and one segment more at most."""
        self.log.config = self.config._replace(retention_ms=-1, retention_bytes=keep)
        before = self.log.size_bytes
        had_deleted = has_segments_below(self.log, self.start_offset)
        self.delete_below(retained_from(self.log, self.log.flushed_offset, NOW))
        assert had_deleted or self.log.size_bytes >= min(before, keep)

    @rule(share=st.floats(0, 1), upper=st.floats(0, 1), max_bytes=st.integers(0, 800))
    def read(self, share, upper, max_bytes):
        start = int(self.start_offset + share * (self.end - self.start_offset))
        upper_offset = int(start + upper * (self.end - start))
        result = self.log.read(
            start, max_bytes=max_bytes, upper_offset=upper_offset, min_one_message=True
        )
        visible = [
            batch
            for batch, _ in self.batches
            if batch[-1][0] >= start and batch[-1][0] < upper_offset
        ]
        if result.region is None:
            assert not visible
            return
        found = [
            (record.offset, record.value, record.timestamp)
            for decoded in decode_batches(result.region.read(), 1 << 20)
            for record in decoded.records
        ]
        assert found, "the first batch is whole"
        expected = [record for batch in visible for record in batch]
        assert found == expected[: len(found)]

    @rule(offset=st.integers(-5, 1000))
    def read_outside(self, offset):
        if self.start_offset <= offset <= self.end:
            return
        with pytest.raises(KafkaError) as caught:
            self.log.read(offset, max_bytes=10, upper_offset=self.end, min_one_message=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(time=st.integers(-2, 60))
    def find_time(self, time):
        expected = next((r for r in self.records() if r[2] >= NOW + time), None)
        found = offset_for_timestamp(self.log, NOW + time)
        assert (found and found[:2]) == (expected and (expected[2], expected[0]))

    @rule()
    def find_latest_time(self):
        latest = max((r[2] for r in self.records()), default=None)
        found = offset_of_max_timestamp(self.log)
        if self.start_offset == 0:
            assert (found and found.timestamp) == latest
        else:
            # A deleted record in the batches that are left may have been the latest.
            assert found is None or found.timestamp == latest

    @rule(share=st.floats(0, 1))
    def truncate(self, share):
        offset = int(self.start_offset + share * (self.end - self.start_offset))
        point = end_if_cut(self.log.segments, offset)
        if point < self.start_offset:
            return  # The batch that the log starts in would go: followers start anew then.
        self.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch[0][-1][0] < offset]
        self.flushed = min(self.flushed, self.end)
        assert self.log.log_end_offset == self.end

    @rule()
    def restart_clean(self):
        self.log.close()
        self.flushed = self.end
        self.open(clean=True, recovery_point=self.end)

    @rule()
    def restart_killed(self):
        """The process dies: the page cache lives on."""
        self.log.abandon()
        self.open(clean=False, recovery_point=self.flushed)
        self.flushed = self.end

    @precondition(lambda self: self.batches)
    @rule(seed=st.integers(0, 10**6))
    def restart_after_power_cut(self, seed):
        """All that was flushed is there, nothing else is new, and the rest is a prefix."""
        self.log.abandon()
        self.disk = self.disk.crash(SeededRng(seed))
        self.open(clean=False, recovery_point=self.flushed)
        assert self.flushed <= self.log.log_end_offset <= self.end
        self.batches = [
            batch for batch in self.batches if batch[0][-1][0] < self.log.log_end_offset
        ]
        self.flushed = self.end

    @invariant()
    def agree(self):
        if not hasattr(self, "log"):
            return
        self.log.check()
        assert self.log.log_end_offset == self.end
        assert self.log.flushed_offset >= self.flushed
        assert self.log.log_start_offset == self.start_offset
        starts = {}
        for records, epoch in self.batches:
            if records[-1][0] >= self.start_offset:
                starts.setdefault(epoch, max(records[0][0], self.start_offset))
        # A log with nothing left may still know who wrote last, until a restart.
        found = [entry for entry in self.log.leader_epochs.entries if entry[1] < self.end]
        assert found == sorted(starts.items())
        self.flushed = max(self.flushed, self.log.flushed_offset)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
