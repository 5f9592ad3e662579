"""Committed offsets through the whole runtime, against a dictionary.

Whatever is asked in whatever order, with flushes that end when they like: what a client sees is
what was durable, in the order it was asked for; and after a restart it is the same.
"""

import importlib.util
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.errors import ErrorCode

path = Path(__file__).parents[2] / "unit" / "coordinator" / "conftest.py"
spec = importlib.util.spec_from_file_location("coordinator_doubles", path)
doubles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(doubles)

groups = st.sampled_from(["a", "b", "c"])
topics = st.sampled_from(["t", "u"])
partitions = st.integers(0, 2)


class OffsetsModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.node = doubles.GroupNode()
        self.expected = {}
        """Where it ends once everything is durable: by group, by (topic, partition)."""
        self.history = {}
        """Every value that each key had, in order; None: nothing."""
        self.seen = {}
        """How far in its history each key was seen."""
        self.answers = []

    def put(self, group, where, value):
        offsets = self.expected.setdefault(group, {})
        if value is None:
            offsets.pop(where, None)
        else:
            offsets[where] = value
        self.history.setdefault((group, where), [None]).append(value)

    @rule(group=groups, topic=topics, partition=partitions, offset=st.integers(0, 99))
    def commit(self, group, topic, partition, offset):
        pending = self.node.commit(group, (partition, offset), topic=topic)
        self.answers.append((pending, [ErrorCode.NONE]))
        self.put(group, (topic, partition), offset)

    @rule(group=groups, topic=topics)
    def delete_offsets(self, group, topic):
        wanted = [(topic, index) for index in range(3)]
        pending = self.node.coordinator.delete_offsets(group, wanted)
        if group in self.expected:
            self.answers.append((pending, [ErrorCode.NONE] * 3))
        for where in wanted:
            if where in self.expected.get(group, {}):
                self.put(group, where, None)

    @rule(group=groups)
    def delete_group(self, group):
        pending = self.node.coordinator.delete_group(group)
        if group in self.expected:
            self.answers.append((pending, None))
        for where in list(self.expected.pop(group, {})):
            self.history[group, where].append(None)

    @rule(topic=topics)
    def delete_topic(self, topic):
        for shard in self.node.runtime.shards:
            shard.machine.forget_topics({topic})
        for group, offsets in self.expected.items():
            for where in [one for one in offsets if one[0] == topic]:
                del offsets[where]
                self.history[group, where].append(None)

    @rule(group=groups)
    def fetch_stable(self, group):
        """Waits for what was asked before, and sees it."""
        everything = [(topic, index) for topic in ("t", "u") for index in range(3)]
        pending = self.node.coordinator.fetch_offsets(group, everything, require_stable=True)
        self.answers.append((pending, dict(self.expected.get(group, {}))))

    @rule(count=st.integers(1, 3))
    def flushes_end(self, count):
        for _ in range(count):
            self.node.executor.run_next()

    @rule()
    def restart(self):
        self.node.settle()
        self.check_settled()
        self.node.restart()
        self.seen.clear()
        self.check_settled()

    def check_settled(self):
        for group in ("a", "b", "c"):
            assert self.node.fetch(group) == self.expected.get(group, {})
        for pending, expected in self.answers:
            assert pending.is_done
            value = self.node.result_of(pending)
            if isinstance(expected, dict):
                value = {
                    (one.topic, one.partition): one.committed.offset
                    for one in value
                    if one.committed
                }
            assert value == expected
        self.answers.clear()

    @invariant()
    def what_is_seen_goes_on_in_its_order(self):
        found = {group: self.node.fetch(group) for group in ("a", "b", "c")}
        for (group, where), values in self.history.items():
            value = found[group].get(where)
            begin = self.seen.get((group, where), 0)
            assert value in values[begin:], (group, where, value, values[begin:])
            self.seen[group, where] = values.index(value, begin)

    def teardown(self):
        self.node.settle()
        self.check_settled()
        self.node.check()


OffsetsModel.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestOffsetsModel = OffsetsModel.TestCase
