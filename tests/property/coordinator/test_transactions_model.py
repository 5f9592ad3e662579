"""Transactions over real logs against a model: producers come, end, are cut off, time out.

Readers of what is committed see each committed record once, nothing aborted, and nothing behind
what is open; offsets committed in a transaction count when it does; epochs only grow, and a
producer of an earlier one changes nothing any more; whatever a restart of the coordinators
interrupts goes on. Once nothing more goes wrong, everything is decided, by time alone when no
producer ever comes back.
"""

import importlib.util
import itertools
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.records import ProducerIdAndEpoch
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.records.control import ControlType, control_type_of
from ottla.records.decode import decode_batches

pytestmark = pytest.mark.slow

path = Path(__file__).parents[2] / "unit" / "coordinator" / "transaction" / "conftest.py"
spec = importlib.util.spec_from_file_location("transaction_doubles", path)
doubles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(doubles)

NAMES = st.sampled_from(["a", "b"])
PARTITIONS = st.integers(0, 1)


class Transactional(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.node = doubles.TransactionNode()
        self.producers = {}
        self.epochs = {}
        self.sequences = {}
        self.open = {"a": [], "b": []}
        self.committed = []
        self.zombies = []
        self.offsets = {}
        """By group; each producer has one."""
        self.pending_offsets = {}
        """By producer."""
        self.begun = set()
        """Producers with a transaction, written to or not."""
        self.count = 0
        self.init("a")
        self.init("b")

    def teardown(self):
        if not hasattr(self, "node"):
            return
        self.wait()  # Whatever is open is aborted.
        self.offsets_count_when_their_transaction_does()
        for index in (0, 1):
            stable, end = self.node.stable(index)
            assert stable == end, "nothing stays undecided"
            found = self.read(index)
            assert found == [value for where, value in self.committed if where == index]
        self.node.check()

    @rule(name=NAMES)
    def init(self, name):
        for _ in range(3):
            answer = self.node.init(name)
            self.node.settle()
            if answer.value.code is ErrorCode.NONE:
                break
            assert answer.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        self.open[name] = []
        self.pending_offsets.pop(name, None)
        self.begun.discard(name)
        self.now(name, answer.value.producer_id, answer.value.producer_epoch)

    def now(self, name, producer_id, epoch):
        assert epoch > self.epochs.get(name, -1)
        if name in self.producers:
            self.zombies.append(self.producers[name])
        self.epochs[name] = epoch
        self.producers[name] = doubles.Producer(name, producer_id, epoch)
        self.sequences[name] = [0, 0]

    @rule(name=NAMES, index=PARTITIONS)
    def produce(self, name, index):
        if name not in self.producers:
            self.init(name)
        self.count += 1
        value = b"%d" % self.count
        sequences = self.sequences[name]
        producer = self.producers[name]
        assert self.node.produced(producer, index, sequence=sequences[index], value=value) == 0
        sequences[index] += 1
        self.open[name].append((index, value))
        self.begun.add(name)

    @rule(name=NAMES, index=PARTITIONS)
    def add_partition(self, name, index):
        """As a producer of version 1 does, some time before it writes."""
        if name not in self.producers:
            self.init(name)
        added = self.node.transactions.add_partitions(
            self.producers[name], [TopicPartition("t", index)], client_version=0
        )
        self.node.settle()
        assert added.value.code is ErrorCode.NONE
        self.begun.add(name)

    @rule(name=NAMES)
    def commit_offset(self, name):
        if name not in self.producers:
            self.init(name)
        producer = self.producers[name]
        partition = self.node.runtime.partition_for(name)
        where = TopicPartition(doubles.groups.OFFSETS, partition)
        added = self.node.transactions.add_partitions(producer, [where], client_version=2)
        self.node.settle()
        assert added.value.code is ErrorCode.NONE
        self.count += 1
        who = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch)
        asked = [TopicCommit("t", [(0, self.count, -1, None)])]
        done = self.node.coordinator.commit_offsets(
            CommitRequest(name, "", None, -1, -1, asked, False, producer=who)
        )
        self.node.settle()
        assert done.value == [ErrorCode.NONE]
        self.pending_offsets[name] = self.count
        self.begun.add(name)

    @rule(name=NAMES, commit=st.booleans())
    def end(self, name, commit):
        if name not in self.producers:
            return
        answer = self.node.end(self.producers[name], commit=commit)
        self.node.settle()
        code, producer_id, epoch = answer.value
        if commit and name not in self.begun:
            assert code is ErrorCode.INVALID_TXN_STATE
            return
        assert code is ErrorCode.NONE
        self.ended(name, commit)
        self.now(name, producer_id, epoch)

    def ended(self, name, commit):
        offset = self.pending_offsets.pop(name, None)
        self.begun.discard(name)
        if commit:
            self.committed += self.open[name]
            if offset is not None:
                self.offsets[name] = offset
        self.open[name] = []

    @rule(name=NAMES, commit=st.booleans(), steps=st.integers(0, 6))
    def end_and_be_cut_off(self, name, commit, steps):
        if name not in self.begun:
            self.produce(name, steps % 2)
        answer = self.node.end(self.producers[name], commit=commit)
        for _ in range(steps):
            self.node.executor.run_next()
        was_answered = answer.is_done and answer.value.code is ErrorCode.NONE
        self.node.restart()
        found = self.node.transactions.describe(name)
        assert found.state.value in ("Ongoing", "CompleteCommit" if commit else "CompleteAbort")
        if found.state.value == "Ongoing":
            assert not was_answered, "what was answered is forgotten"
            return
        self.ended(name, commit)
        self.now(name, found.producer_id, found.producer_epoch)

    @rule(age=st.integers(0, 3), commit=st.booleans())
    def a_zombie_writes_and_ends(self, age, commit):
        if not self.zombies:
            return
        zombie = self.zombies[-1 - age % len(self.zombies)]
        before = self.node.transactions.describe(zombie.transactional_id)
        for index, version in itertools.product((0, 1), (11, 12)):
            assert self.node.produced(zombie, index, value=b"zombie", version=version) != 0
        self.node.end(zombie, commit=commit)  # NONE if it is how its last transaction ended.
        self.node.settle()
        assert self.node.transactions.describe(zombie.transactional_id) == before

    @rule()
    def restart(self):
        self.node.restart()

    @rule()
    def wait(self):
        self.node.clock.advance(61)
        self.node.settle()
        for name, values in self.open.items():
            if name in self.begun:
                assert self.node.state(name) == "CompleteAbort"
                assert self.node.produced(self.producers[name], sequence=99) == (
                    ErrorCode.INVALID_PRODUCER_EPOCH
                )
                self.zombies.append(self.producers.pop(name))
                self.epochs[name] += 1
                self.pending_offsets.pop(name, None)
                self.begun.discard(name)
                values.clear()

    @invariant()
    def nothing_open_is_behind_the_last_stable_offset(self):
        if not hasattr(self, "node"):
            return
        for index in (0, 1):
            first = self.first_open(index)
            stable, end = self.node.stable(index)
            assert stable == (end if first is None else first)

    @invariant()
    def offsets_count_when_their_transaction_does(self):
        if not hasattr(self, "node"):
            return
        for name in ("a", "b"):
            found = self.node.fetch(name)
            assert found == ({("t", 0): self.offsets[name]} if name in self.offsets else {})
            wanted = self.node.coordinator.fetch_offsets(name, [("t", 0)], require_stable=True)
            is_unstable = wanted.value[0].code is ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert is_unstable == (name in self.pending_offsets)

    def first_open(self, index):
        values = {value for each in self.open.values() for where, value in each if where == index}
        offsets = [
            record.offset
            for header, records in self.batches(index)
            if not header.is_control
            for record in records
            if record.value in values
        ]
        return min(offsets, default=None)

    def batches(self, index):
        log = self.node.node.partition(index).log
        region = log.read(0, max_bytes=10**7, upper_offset=10**9, min_one_message=True).region
        return [] if region is None else list(decode_batches(region.read(), 10**7))

    def read(self, index):
        """What a reader of committed records makes of the whole log, in the order of commits."""
        open_ones, found = {}, []
        for header, records in self.batches(index):
            values = open_ones.setdefault(header.producer_id, [])
            if not header.is_control:
                values += [record.value for record in records]
                continue
            if control_type_of(records[0].key) is ControlType.COMMIT:
                found += values
            open_ones[header.producer_id] = []
        return found


TestTransactional = Transactional.TestCase
TestTransactional.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
