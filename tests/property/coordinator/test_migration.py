"""One group, members of both protocols that come, go, die and change: under any order of steps.

Safe: what clients believe to own never overlaps while the group changes its kind under them, and
generations and epochs only grow. Alive: once the faults are over, everything is read by somebody.
"""

import importlib.util
import struct
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordinator.group.classic.group import ClassicGroup, Protocol
from ottla.coordinator.group.classic.subscription import (
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.machine import Heartbeat
from ottla.coordinator.group.consumer.settings import ConsumerSettings, MigrationPolicy
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId
from ottla.metadata.image import TopicImage

path = Path(__file__).parents[2] / "unit" / "coordinator" / "conftest.py"
spec = importlib.util.spec_from_file_location("coordinator_doubles", path)
doubles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(doubles)

TOPIC = TopicId(b"t" * 16)
PARTITIONS = 5
MEMBERS = st.sampled_from(("a", "b", "c", "d"))
AWAY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
ROUNDS_MAX = 60
STEP_SECONDS = 2


def subscription(owned):
    numbers = sorted(owned)
    partitions = struct.pack(
        f">i h1s i{len(numbers)}i".replace(" ", ""), 1, 1, b"t", len(numbers), *numbers
    )
    return struct.pack(">hi h1s i".replace(" ", ""), 1, 1, 1, b"t", -1) + partitions


class Classic:
    """A client of the classic protocol: eager, or cooperative."""

    def __init__(self, machine, *, is_cooperative):
        self.node, self.is_cooperative = machine.node, is_cooperative
        self.name = "cooperative-sticky" if is_cooperative else "range"
        self.owned = set()
        self.member_id, self.generation = "", -1
        self.waits_for = self.pending = None
        self.has_to_join = True

    def step(self):
        if self.pending is not None:
            if self.pending.is_done:
                pending, self.pending = self.pending, None
                {"join": self.joined, "sync": self.synced}[self.waits_for](
                    self.node.result_of(pending)
                )
        elif self.has_to_join:
            self.join()
        else:
            code = self.result(self.node.beat("g", self.member_id, self.generation))
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.join()
            elif code is not ErrorCode.NONE:
                self.lost(code)

    def result(self, pending):
        self.node.settle()
        value = self.node.result_of(pending)
        return value.code if isinstance(value, KafkaError) else value

    def lost(self, code):
        if code in AWAY:
            return
        self.owned, self.has_to_join = set(), True
        if code is not ErrorCode.ILLEGAL_GENERATION:
            self.member_id, self.generation = "", -1

    def join(self):
        if not self.is_cooperative:
            self.owned = set()
        said = subscription(self.owned)
        self.has_to_join, self.waits_for = True, "join"
        self.pending = self.node.join(
            "g",
            self.member_id,
            protocols=(Protocol(self.name, said),),
            needs_known_member_id=True,
            new_consumer_id=f"n{self.node.next_id()}",
        )

    def joined(self, answer):
        if isinstance(answer, KafkaError):
            self.lost(answer.code)
        elif answer.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.code is ErrorCode.NONE:
            assert answer.generation >= self.generation
            self.member_id, self.generation = answer.member_id, answer.generation
            given = self.share(answer.members) if answer.members else {}
            self.waits_for = "sync"
            self.pending = self.node.sync("g", self.member_id, self.generation, given)
        elif answer.code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.lost(answer.code)

    def share(self, members):
        """Give out what nobody else has still."""
        said = {one.member_id: read_subscription(one.metadata) for one in members}
        holders = {
            number: member_id
            for member_id, one in said.items()
            for number in one.owned.get("t", ())
        }
        given = {member_id: [] for member_id in said}
        for number in range(PARTITIONS):
            member_id = sorted(said)[number % len(said)]
            if holders.get(number, member_id) == member_id:
                given[member_id].append(number)
        return {
            one.member_id: assignment_bytes(one.metadata, {"t": given[one.member_id]})
            for one in members
        }

    def synced(self, answer):
        if isinstance(answer, KafkaError) or answer.code is not ErrorCode.NONE:
            if answer.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self.lost(answer.code)
            self.has_to_join = True
            return
        had = self.owned
        self.owned = (
            set(read_assignment(answer.assignment).get("t", ())) if answer.assignment else set()
        )
        self.has_to_join = bool(had - self.owned)  # A cooperative one says what it gave up.

    def leave(self):
        if self.member_id:
            self.node.leave("g", (self.member_id, None))


class Consumer:
    """A client of the consumer protocol."""

    def __init__(self, machine, name):
        self.node, self.name = machine.node, f"{name}{machine.node.next_id()}"
        self.owned, self.epoch = set(), 0

    def step(self):
        is_new = self.epoch == 0
        self.beat(
            topics=("t",) if is_new else None,
            rebalance_timeout_ms=60_000 if is_new else -1,
            owned={} if is_new else {TOPIC: sorted(self.owned)},
        )

    def beat(self, *, topics=None, rebalance_timeout_ms=-1, owned=None):
        pending = self.node.coordinator.consumer_heartbeat(
            "g",
            Heartbeat(
                self.name,
                self.epoch,
                None,
                None,
                rebalance_timeout_ms,
                topics,
                None,
                None,
                owned,
                "c",
                "/h",
            ),
        )
        self.node.settle()
        answer = self.node.result_of(pending)
        if isinstance(answer, KafkaError):
            if answer.code not in AWAY:
                self.owned, self.epoch = set(), 0
            return
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.owned = set(answer.assignment.get(TOPIC, ()))

    def leave(self):
        if self.epoch > 0:
            self.epoch = -1
            self.beat()


class Groups(RuleBasedStateMachine):
    @initialize(is_cooperative=st.booleans())
    def begin(self, is_cooperative):
        consumer = ConsumerSettings(10_000, 5_000, 0, 100, MigrationPolicy.BIDIRECTIONAL)
        self.node = doubles.GroupNode(settings=doubles.SETTINGS._replace(consumer=consumer))
        self.node.topics["t"] = TopicImage("t", TOPIC, tuple(range(PARTITIONS)))
        self.is_cooperative = is_cooperative
        self.clients = {}
        self.epoch = 0

    @rule(name=MEMBERS, is_classic=st.booleans())
    def start(self, name, is_classic):
        if name not in self.clients:
            if is_classic:
                self.clients[name] = Classic(self, is_cooperative=self.is_cooperative)
            else:
                self.clients[name] = Consumer(self, name)
        self.step(name)

    @rule(name=MEMBERS, count=st.integers(1, 3))
    def step(self, name, count=1):
        for _ in range(count):
            if name in self.clients:
                self.clients[name].step()
                self.node.clock.advance(0.001)
                self.node.settle()

    @rule(name=MEMBERS)
    def leave(self, name):
        client = self.clients.pop(name, None)
        if client is not None:
            client.leave()
            self.node.settle()

    @rule(name=MEMBERS)
    def die(self, name):
        self.clients.pop(name, None)

    @rule()
    def restart(self):
        self.node.restart()
        self.epoch = 0  # A generation is written with its assignment: one without is gone.

    @rule()
    def settle(self):
        for _ in range(ROUNDS_MAX):
            for name in list(self.clients):
                self.step(name)
                self.nothing_is_read_by_two()
            self.node.clock.advance(STEP_SECONDS)
            self.node.settle()
        if self.clients:
            read = set().union(*(client.owned for client in self.clients.values()))
            assert read == set(range(PARTITIONS))

    @invariant()
    def nothing_is_read_by_two(self):
        seen = set()
        for client in self.clients.values():
            assert not seen & client.owned
            seen |= client.owned

    @invariant()
    def epochs_grow_while_there_are_members(self):
        machine = self.node.shard("g").machine
        groups = machine.groups
        consumers, classic = groups.of(ConsumerGroup, "g"), groups.of(ClassicGroup, "g")
        epoch = 0
        if consumers is not None and consumers.members:
            epoch = consumers.epoch
        elif classic is not None and classic.members:
            epoch = classic.generation
        assert epoch == 0 or epoch >= self.epoch
        self.epoch = epoch

    def teardown(self):
        self.node.check()


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
