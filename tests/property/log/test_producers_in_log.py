"""What a log remembers of producers, through everything that happens to it, is what it holds.

The model is the list of batches in the log: of each producer the last five of its latest epoch.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import KafkaError
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.recovery import open_log
from ottla.records.builder import build_batch
from ottla.records.record import Record

NOW = 1_700_000_000_000
PRODUCERS = st.integers(0, 2)


class ProducersMachine(RuleBasedStateMachine):
    """``batches``: (producer id or -1, epoch, first sequence, first offset, count), in order."""

    @initialize(segment_bytes=st.sampled_from([200, 500, 5000]))
    def start(self, segment_bytes):
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=150)
        self.disk = MemoryDisk(durability=True)
        self.disk.make_directory("/t-0")
        self.disk.sync_directory("/")
        self.batches = []
        self.flushed = 0
        self.open(clean=False)

    def open(self, *, clean):
        self.log = open_log(
            self.disk,
            ManualClock(NOW),
            "/t-0",
            TopicPartition("t", 0),
            self.config,
            recovery_point=self.flushed,
            log_start_offset=0,
            is_clean=clean,
        )

    @property
    def end(self):
        return self.batches[-1][3] + self.batches[-1][4] if self.batches else 0

    def write(self, producer_id, epoch, sequence, count):
        records = [Record(timestamp=NOW, key=b"k", value=b"v")] * count
        batch = build_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return self.log.append(memoryview(batch), leader_epoch=0).base_offset

    def remembered(self, producer_id):
        own = [batch for batch in self.batches if batch[0] == producer_id]
        return [batch for batch in own if batch[1] == own[-1][1]][-5:]

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), new_epoch=st.sampled_from([0, 0, 0, 1]))
    def append(self, producer_id, count, new_epoch):
        known = self.remembered(producer_id)
        epoch, sequence = 0, 0
        if known:
            _, epoch, first, _, size = known[-1]
            epoch, sequence = (epoch + 1, 0) if new_epoch else (epoch, first + size)
        assert self.write(producer_id, epoch, sequence, count) == self.end
        self.batches.append((producer_id, epoch, sequence, self.end, count))

    @rule(count=st.integers(1, 3))
    def append_without_producer(self, count):
        assert self.write(-1, -1, -1, count) == self.end
        self.batches.append((-1, -1, -1, self.end, count))

    @rule(producer_id=PRODUCERS)
    def resend(self, producer_id):
        for _, epoch, sequence, offset, count in self.remembered(producer_id):
            assert self.write(producer_id, epoch, sequence, count) == offset

    @rule(producer_id=PRODUCERS, gap=st.integers(1, 9))
    def skip(self, producer_id, gap):
        known = self.remembered(producer_id)
        if known:
            _, epoch, sequence, _, count = known[-1]
            with pytest.raises(KafkaError):
                self.write(producer_id, epoch, sequence + count + gap, 1)

    @rule()
    def flush(self):
        self.log.flush()
        self.flushed = self.end

    @rule()
    def roll(self):
        self.log.roll()

    @rule(share=st.floats(0, 1))
    def truncate(self, share):
        offset = int(share * self.end)
        self.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch[3] + batch[4] <= offset]
        self.flushed = min(self.flushed, self.end)

    @rule()
    def restart_clean(self):
        self.log.close()
        self.flushed = self.end
        self.open(clean=True)

    @rule()
    def restart_killed(self):
        self.log.abandon()
        self.open(clean=False)
        self.flushed = self.end

    @rule(seed=st.integers(0, 10**6))
    def restart_after_power_cut(self, seed):
        self.log.abandon()
        self.disk = self.disk.crash(SeededRng(seed))
        self.open(clean=False)
        end = self.log.log_end_offset
        self.batches = [batch for batch in self.batches if batch[3] < end]
        self.flushed = self.end

    @invariant()
    def agree(self):
        if not hasattr(self, "log"):
            return
        self.flushed = max(self.flushed, self.log.flushed_offset)
        assert self.log.log_end_offset == self.end
        producers = {batch[0] for batch in self.batches} - {-1}
        found = {
            producer_id: (
                state.epoch,
                [(one.first_sequence, one.first_offset) for one in state.batches],
            )
            for producer_id, state in self.log.producers.states
        }
        assert found == {
            producer_id: (
                self.remembered(producer_id)[-1][1],
                [(batch[2], batch[3]) for batch in self.remembered(producer_id)],
            )
            for producer_id in producers
        }


TestProducersMachine = ProducersMachine.TestCase
TestProducersMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
