"""Transactions in a log, through everything that happens to it, against the list of its batches."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import TopicPartition
from ottla.log.aborted import aborted_transactions
from ottla.log.append import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.directories.recovery import open_log
from ottla.log.producers.transactions import ALL_STABLE
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.record import Record

NOW = 1_700_000_000_000
PRODUCERS = st.integers(0, 3)


class TransactionsMachine(RuleBasedStateMachine):
    """``batches``: (first offset, last offset, producer id, "data", "commit" or "abort")."""

    @initialize(
        segment_bytes=st.sampled_from([250, 600, 5000]), flush_messages=st.sampled_from([1, 2**63])
    )
    def start(self, segment_bytes, flush_messages):
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=150, flush_messages=flush_messages
        )
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
        self.log.producers.transactions.commit_to(self.log.log_end_offset)

    @property
    def end(self):
        return self.batches[-1][1] + 1 if self.batches else 0

    def model(self, end):
        """Go over the batches below ``end``: (open transactions, entries of the index)."""
        ongoing, aborted = {}, []
        for first, last, producer_id, kind in self.batches:
            if last >= end:
                break
            if kind == "data":
                ongoing.setdefault(producer_id, first)
            elif producer_id in ongoing:
                began = ongoing.pop(producer_id)
                if kind == "abort":
                    stable = min(ongoing.values(), default=last + 1)
                    aborted.append((producer_id, began, last, stable))
        return ongoing, aborted

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3))
    def append(self, producer_id, count):
        state = self.log.producers.states.get(producer_id)
        last = state.batches[-1].last_sequence if state and state.batches else -1
        batch = build_batch(
            [Record(timestamp=NOW, key=b"k", value=b"v")] * count,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=last + 1,
            transactional=True,
        )
        first = self.end
        assert self.log.append(memoryview(batch), leader_epoch=0).base_offset == first
        self.batches.append((first, first + count - 1, producer_id, "data"))

    @rule(producer_id=PRODUCERS, kind=st.sampled_from(["abort", "abort", "commit"]))
    def complete(self, producer_id, kind):
        word = ControlType.ABORT if kind == "abort" else ControlType.COMMIT
        marker = build_end_transaction_marker(
            EndTransactionMarker(word, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=NOW,
        )
        origin, first = AppendOrigin.COORDINATOR, self.end
        found = self.log.append(memoryview(marker), leader_epoch=0, origin=origin)
        assert found.base_offset == first
        self.batches.append((first, first, producer_id, kind))

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
        self.batches = [batch for batch in self.batches if batch[1] < offset]
        self.flushed = min(self.flushed, self.end)
        self.log.producers.transactions.commit_to(self.end)

    @rule(share=st.floats(0, 1))
    def commit_to(self, share):
        """Raise the high watermark: what is open or ends behind it stays unstable."""
        watermark = int(share * (self.end + 1))
        transactions = self.log.producers.transactions
        transactions.commit_to(watermark)
        ongoing, _ = self.model(self.end)
        unstable = set(ongoing.values()) | {first for _, first in transactions.unreplicated}
        assert transactions.first_unstable_offset == min(unstable, default=ALL_STABLE)
        assert all(marker >= watermark for marker, _ in transactions.unreplicated)

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
        self.batches = [batch for batch in self.batches if batch[0] < end]
        self.flushed = self.end

    @precondition(lambda self: getattr(self, "batches", None))
    @rule(one=st.floats(0, 1), other=st.floats(0, 1), max_bytes=st.integers(0, 900))
    def read_committed(self, one, other, max_bytes):
        """Whatever range is read, who leaves out what is told gets what was committed."""
        start, upper = sorted((int(one * self.end), int(other * (self.end + 1))))
        result = self.log.read(start, max_bytes=max_bytes, upper_offset=upper, min_one_message=True)
        if result.region is None:
            return
        told = aborted_transactions(self.log, start, result, upper)
        assert told == sorted(told, key=lambda entry: entry.first_offset)
        given = {(entry.producer_id, entry.first_offset) for entry in told}
        region_end = result.position + result.region.length_bytes
        _, aborted = self.model(self.end)
        segment = next(
            each for each in self.log.segments if each.base_offset == result.segment_base_offset
        )
        inside = [
            batch
            for batch in self.batches
            if start <= batch[1] < upper
            and batch[0] >= segment.base_offset
            and segment.position_of(batch[0]) < region_end
        ]
        for producer_id, first, last, _ in aborted:
            if any(batch[1] >= first and batch[0] <= last for batch in inside):
                assert (producer_id, first) in given
        assert given <= {(producer_id, first) for producer_id, first, _, _ in aborted}

    @invariant()
    def agree(self):
        if not hasattr(self, "log"):
            return
        self.flushed = max(self.flushed, self.log.flushed_offset)
        assert self.log.log_end_offset == self.end
        ongoing, aborted = self.model(self.end)
        assert ongoing == {
            producer_id: state.current_transaction_first_offset
            for producer_id, state in self.log.producers.states
            if state.current_transaction_first_offset >= 0
        }
        assert len(self.log.producers.transactions) == len(ongoing)
        found = []
        for segment in self.log.segments:
            if segment.transaction_index is not None:
                entries = list(segment.transaction_index.entries())
                assert all(entry.last_offset >= segment.base_offset for entry in entries)
                found += map(tuple, entries)
        assert found == aborted


TestTransactionsMachine = TransactionsMachine.TestCase
TestTransactionsMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
