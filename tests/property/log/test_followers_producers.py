"""Whoever leads next knows the producers as who led before: two logs, one of which follows.

The model is a replay, from nothing, of all batches that a log has, as they were written.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import TopicPartition
from ottla.log.append import own
from ottla.log.config import LogConfig
from ottla.log.directories.recovery import open_log
from ottla.log.producers.states import ProducerStates
from ottla.log.replicated import append_replicated, check_replicated
from ottla.records.batch import read_header
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.record import Record

NOW = 1_700_000_000_000
EXPIRATION_MS = 10**9
PRODUCERS = st.integers(0, 3)
WHICH = st.integers(0, 1)


class FollowingMachine(RuleBasedStateMachine):
    """``written``: (header as sent, first offset, bytes as stored, marker or None), in order."""

    @initialize(segment_bytes=st.lists(st.sampled_from([250, 600, 5000]), min_size=2, max_size=2))
    def start(self, segment_bytes):
        self.configs = [
            LogConfig(segment_bytes=size, index_interval_bytes=150) for size in segment_bytes
        ]
        self.disks = []
        for _ in range(2):
            disk = MemoryDisk(durability=True)
            disk.make_directory("/t-0")
            disk.sync_directory("/")
            self.disks.append(disk)
        self.flushed = [0, 0]
        self.logs = [self.opened(which, clean=False) for which in range(2)]
        self.written = []
        self.leading, self.epoch = 0, 0

    def opened(self, which, *, clean):
        return open_log(
            self.disks[which],
            ManualClock(NOW),
            "/t-0",
            TopicPartition("t", 0),
            self.configs[which],
            recovery_point=self.flushed[which],
            log_start_offset=0,
            is_clean=clean,
        )

    @property
    def leader(self):
        return self.logs[self.leading]

    @property
    def follower(self):
        return self.logs[1 - self.leading]

    def note(self, sent, marker, result):
        log = self.leader
        read = log.read(
            result.base_offset, max_bytes=1, upper_offset=log.log_end_offset, min_one_message=True
        )
        self.written.append((read_header(sent), result.base_offset, read.region.read(), marker))

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), is_new=st.sampled_from([0, 0, 0, 1]))
    def append(self, producer_id, count, is_new):
        state = self.leader.producers.states.get(producer_id)
        is_open = state is not None and state.current_transaction_first_offset >= 0
        epoch = 0 if state is None else state.epoch + (is_new and not is_open)
        batches = state.batches if state is not None and epoch == state.epoch else ()
        batch = build_batch(
            [Record(timestamp=NOW, key=b"k", value=b"v")] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batches[-1].last_sequence + 1 if batches else 0,
            transactional=producer_id < 3,
        )
        result = self.leader.append(memoryview(batch), leader_epoch=self.epoch)
        self.note(batch, None, result)

    @rule(
        producer_id=st.integers(0, 2),
        kind=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
        version=st.sampled_from([1, 2]),
    )
    def end(self, producer_id, kind, version):
        state = self.leader.producers.states.get(producer_id)
        marker = EndTransactionMarker(kind, self.epoch)
        batch = build_end_transaction_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=(0 if state is None else state.epoch) + (version == 2),
            timestamp_ms=NOW,
        )
        analysed = own(memoryview(batch), transaction_version=version)
        self.note(batch, marker, self.leader.append_analysed(analysed, leader_epoch=self.epoch))

    @rule(count=st.integers(1, 9))
    def follow(self, count):
        end = self.follower.log_end_offset
        piece = [one[2] for one in self.written if one[1] >= end][:count]
        if piece:
            append_replicated(self.follower, check_replicated(memoryview(b"".join(piece))))

    @rule(which=WHICH)
    def flush(self, which):
        self.logs[which].flush()
        self.flushed[which] = self.logs[which].log_end_offset

    @rule(which=WHICH)
    def roll(self, which):
        self.logs[which].roll()

    @rule(which=WHICH)
    def stop(self, which):
        self.logs[which].close()
        self.flushed[which] = self.logs[which].log_end_offset
        self.logs[which] = self.opened(which, clean=True)

    @rule(which=WHICH)
    def kill(self, which):
        self.logs[which].abandon()
        self.logs[which] = self.opened(which, clean=False)

    @rule(seed=st.integers(0, 10**6))
    def cut_the_followers_power(self, seed):
        which = 1 - self.leading
        self.logs[which].abandon()
        self.disks[which] = self.disks[which].crash(SeededRng(seed))
        self.logs[which] = self.opened(which, clean=False)
        self.flushed[which] = self.logs[which].log_end_offset

    @rule()
    def move_the_leadership(self):
        """The follower leads, and what it lacks is cut off where it was."""
        end = self.follower.log_end_offset
        before, self.leading = self.leading, 1 - self.leading
        self.flushed[before] = min(self.flushed[before], end)
        self.logs[before].truncate_to(end)
        self.written = [one for one in self.written if one[1] < end]
        self.epoch += 1

    @invariant()
    def know_the_same(self):
        for which, log in enumerate(getattr(self, "logs", ())):
            self.flushed[which] = max(self.flushed[which], log.flushed_offset)
            states, aborted = self.replayed(log.log_end_offset)
            assert known(log.producers.states) == known(states)
            assert in_indexes(log) == aborted

    def replayed(self, end):
        states, aborted = ProducerStates(EXPIRATION_MS), []
        for header, first, _, marker in self.written:
            last = first + header.last_offset_delta
            if last >= end:
                break
            if marker is None:
                states.update(header, last, NOW, 0)
                continue
            ended = states.complete(header, marker, first, NOW, 0)
            if ended is not None:
                stable = states.transactions.complete(ended)
                if ended.is_aborted:
                    aborted.append((ended.producer_id, ended.first_offset, first, stable))
        return states, aborted


def known(states):
    return {
        producer_id: (
            state.epoch,
            state.batches,
            state.coordinator_epoch,
            state.current_transaction_first_offset,
        )
        for producer_id, state in states
    }


def in_indexes(log):
    indexes = [segment.transaction_index for segment in log.segments]
    return [tuple(entry) for index in indexes if index is not None for entry in index.entries()]


TestFollowingMachine = FollowingMachine.TestCase
TestFollowingMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
