"""What compaction leaves of a log, through restarts and power cuts, against a dict.

Of each key the newest record stays where it was, all else may go; a reader from the start ends up
with the same map from keys to values as one that read everything. A newest record without a value
goes, too, but not before its time, and not after it. Cleaned by the real LogCleaner.
"""

import contextlib

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.env.faulty_disk import DiskKilled
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.record import Record
from tests.property.log.compacting import CLEANERS, KEYS, TP, Stage, Written, check, configs

RECORDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"", b"v", b"w" * 60])),
    min_size=1,
    max_size=5,
)


class CompactionMachine(RuleBasedStateMachine):
    @initialize(config=configs(is_deleted=False), cleaner=CLEANERS)
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
