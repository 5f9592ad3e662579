"""What a client that reads committed sees of a compacted log with transactions, against a list.

Transactions commit and abort while the log is compacted, copied, cut off from its power, started
on damaged indexes, and loses its front to DeleteRecords. Of each key the newest committed record
stays; what was aborted is never shown, and is gone where the log is clean; and producers go on
where they were. Cleaned by the real LogCleaner. Without transactions: test_compaction_model.
"""

import contextlib

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.env.faulty_disk import DiskKilled
from ottla.records.compression import Codec
from ottla.records.control import ControlType
from tests.property.log.compacting import (
    CLEANERS,
    KEYS,
    TP,
    Stage,
    check,
    configs,
    end,
    last_stable_offset,
    put,
    read_committed,
    without_marker,
)

PLAIN, IDEMPOTENT = None, 9
PRODUCERS = st.integers(1, 2)
"""Of transactions. Few, so that one often goes on after it has aborted."""
RECORDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"", b"v", b"w" * 60])),
    min_size=1,
    max_size=4,
)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])
CONTROL_TYPES = st.sampled_from([ControlType.COMMIT, ControlType.ABORT])
VERSIONS = st.sampled_from([0, 2])
"""Of transactions: with 2 each end raises the producer's epoch (KIP-890)."""
SEEDS = st.integers(0, 1000)
"""Of power cuts."""
CALLS = st.integers(1, 60)


class TransactionalCompactionMachine(RuleBasedStateMachine):
    @initialize(
        config=configs(is_deleted=True),
        cleaner=CLEANERS,
        fetch_max_bytes=st.sampled_from([100, 300, 5000]),
    )
    def start(self, config, cleaner, fetch_max_bytes):
        self.stage = Stage(config, cleaner)
        self.fetch_max_bytes = fetch_max_bytes
        self.written = []
        self.aborted = set()
        self.open = {}
        """The records of the transaction that each producer has open."""
        self.epochs = {}
        self.sequences = {}
        """What each producer sends next."""
        self.end_offset = 0
        self.told_to = 0
        """Up to where the tombstones know what was written."""
        self.copy = None
        self.copy_count = 0

    # -- producers ----------------------------------------------------------------------------

    @rule(producer=st.sampled_from([PLAIN, IDEMPOTENT]), records=RECORDS, codec=CODECS)
    def write(self, producer, records, codec):
        self.append(producer, records, codec, transactional=False)

    @rule(producer=PRODUCERS, records=RECORDS, codec=CODECS)
    def write_in_transaction(self, producer, records, codec):
        new = self.append(producer, records, codec, transactional=True)
        self.open.setdefault(producer, []).extend(new)
        self.tell_tombstones()

    @rule(producer=PRODUCERS, control_type=CONTROL_TYPES, version=VERSIONS)
    def end_transaction(self, producer, control_type, version):
        """Also one without a record in this partition."""
        if version == 2:
            self.epochs[producer] = self.epochs.get(producer, 0) + 1
            self.sequences[producer] = 0
        epoch = self.epochs.get(producer, 0)
        end(self.stage, producer, control_type, epoch=epoch, version=version)
        self.end_offset += 1
        records = self.open.pop(producer, [])
        if control_type is ControlType.ABORT:
            self.aborted |= set(records)
        self.tell_tombstones()

    @precondition(lambda self: self.open)
    @rule(control_type=CONTROL_TYPES, version=VERSIONS)
    def end_the_oldest_transaction(self, control_type, version):
        """The one that nothing is cleaned behind."""
        oldest = min(self.open, key=lambda producer: self.open[producer][0].offset)
        self.end_transaction(oldest, control_type, version)

    @rule(
        producer=PRODUCERS,
        records=RECORDS,
        codec=CODECS,
        control_type=CONTROL_TYPES,
        version=VERSIONS,
    )
    def write_and_end(self, producer, records, codec, control_type, version):
        self.write_in_transaction(producer, records, codec)
        self.end_transaction(producer, control_type, version)

    def append(self, producer, records, codec, *, transactional):
        options = {"codec": codec}
        if producer is not PLAIN:
            sequence = self.sequences.get(producer, 0)
            options |= {
                "producer": producer,
                "producer_epoch": self.epochs.get(producer, 0),
                "base_sequence": sequence,
                "transactional": transactional,
            }
            self.sequences[producer] = sequence + len(records)
        new = put(self.stage, *records, **options)
        assert new[0].offset == self.end_offset
        self.end_offset += len(new)
        self.written += new
        if not transactional:
            self.tell_tombstones()
        return new

    def tell_tombstones(self):
        """Tell them what has become stable: nothing behind it is cleaned."""
        start, stable = max(self.told_to, self.stage.start_offset), self.stable_offset
        self.stage.tombstones.wrote(self.committed(start, stable))
        self.told_to = max(start, stable)

    @property
    def stable_offset(self):
        first = min((records[0].offset for records in self.open.values()), default=self.end_offset)
        return max(first, self.stage.start_offset)

    def committed(self, start, stop):
        """Return what is left of ``[start, stop)`` without the cleaner; all of it is decided."""
        return [
            one for one in self.written if start <= one.offset < stop and one not in self.aborted
        ]

    # -- the log ------------------------------------------------------------------------------

    @rule()
    def roll(self):
        self.stage.log.roll()

    @rule(seconds=st.sampled_from([1, 10]))
    def wait(self, seconds):
        self.stage.clock.advance(seconds)

    @rule(rolls=st.sampled_from([True, True, False]))
    def clean(self, rolls):
        """All that can be cleaned is clean then: the whole segments of which all is decided."""
        log = self.stage.log
        if rolls:
            log.roll()
        upper = min(self.stable_offset, log.segments[-1].base_offset)
        upper = max(one.base_offset for one in log.segments if one.base_offset <= upper)
        self.stage.clean()
        assert not log.is_swapping
        assert not self.stage.cleaner._uncleanable
        clean_end = self.stage.cleaner._cleaned_to.get(TP, (None, 0))[1]
        if upper > self.stage.start_offset:
            assert clean_end == upper
        keys = [
            one.key for one in read_committed(log, self.fetch_max_bytes) if one.offset < clean_end
        ]
        assert len(set(keys)) == len(keys)
        assert not {one for one in self.stage.read() if one.offset < clean_end} & self.aborted

    @rule(share=st.floats(0, 1), are_segments_dropped=st.booleans())
    def delete_records(self, share, are_segments_dropped):
        start = self.stage.start_offset
        offset = start + int(share * (self.end_offset - start))
        self.stage.delete_records(offset, are_segments_dropped=are_segments_dropped)
        self.tell_tombstones()

    @rule(is_completed=st.booleans())
    def copy_to_another_directory(self, is_completed):
        """Copy some more while the log goes on, or the rest: then it is all that the log is."""
        copy = self.copy
        if copy is None or copy.log is not self.stage.log:
            self.copy_count += 1
            copy = self.copy = self.stage.begin_copy(f"/d/copy-{self.copy_count}")
        if not is_completed:
            if (step := copy.next_step()) is not None:
                step.run()
                copy.took(step)
            return
        self.copy = None
        copy.complete()
        log = self.stage.open_log(copy.directory, clean=True)
        self.agrees(log)
        log.abandon()

    # -- stops and starts ---------------------------------------------------------------------

    @rule()
    def restart(self):
        self.stage.restart()

    @rule(seed=SEEDS)
    def power_cut(self, seed):
        self.stage.power_cut(seed)

    @rule(nth=CALLS, seed=st.none() | SEEDS)
    def die_while_cleaning(self, nth, seed):
        self.stage.disk.kill_at(nth)
        with contextlib.suppress(DiskKilled):
            self.stage.clean()
        self.start_after_death(seed)

    @precondition(lambda self: self.transaction_indexes())
    @rule(share=st.floats(0, 1, exclude_max=True), nth=st.none() | CALLS, seed=st.none() | SEEDS)
    def start_on_a_damaged_index(self, share, nth, seed):
        """Perhaps the first start dies, too."""
        stage = self.stage
        indexes = self.transaction_indexes()
        path = indexes[int(share * len(indexes))].path
        stage.log.close()
        file = stage.memory.open(path)
        file.write_at(0, bytes(file.size()))
        file.sync()
        try:
            stage.open(clean=True, kill_at=nth)
            stage.disk.heal()
        except DiskKilled:
            self.start_after_death(seed)

    def start_after_death(self, seed):
        """Of the process alone, or (with a seed) of the machine."""
        if seed is None:
            self.stage.start_after_a_kill()
        else:
            self.stage.power_cut(seed)

    def transaction_indexes(self):
        found = [segment.transaction_index for segment in self.stage.log.segments]
        return [index for index in found if index is not None and index.count]

    # -- what holds at any time ---------------------------------------------------------------

    @invariant()
    def nothing_is_lost_and_nothing_comes_back(self):
        self.agrees(self.stage.log)

    @invariant()
    def nothing_is_cleaned_that_is_not_decided(self):
        found = [one for one in self.stage.read() if one.key in KEYS]
        stable = self.stable_offset
        assert [one for one in found if one.offset >= stable] == [
            one for one in self.written if one.offset >= stable
        ]

    @invariant()
    def tombstones_go_in_their_time(self):
        horizons = self.stage.tombstones.horizons
        on_disk = self.stage.horizons_on_disk()
        assert {offset: on_disk.get(offset) for offset in horizons} == horizons

    def agrees(self, log):
        log.check()
        start, stable = self.stage.start_offset, self.stable_offset
        assert log.log_start_offset == start
        assert log.log_end_offset == self.end_offset
        assert last_stable_offset(log) == stable
        found = read_committed(log, self.fetch_max_bytes)
        check(found, self.committed(start, stable), self.stage.tombstones.gone)
        ongoing = {
            producer for producer, records in self.open.items() if records[-1].offset >= start
        }
        assert ongoing <= without_marker(log) <= set(self.open)
        for producer, sequence in self.sequences.items():
            state = log.producers.states.get(producer)
            assert state.epoch == self.epochs.get(producer, 0)
            if sequence:
                assert state.batches[-1].last_sequence == sequence - 1
            first = self.open[producer][0].offset if producer in self.open else -1
            assert state.current_transaction_first_offset == first


TestTransactionalCompaction = TransactionalCompactionMachine.TestCase
TestTransactionalCompaction.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None
)
