"""KIP-848 groups under any order of joins, heartbeats, lost answers, writes that fail, leaves,
expiries and loads.

Safe: what clients believe to own never overlaps, and epochs only grow: the group's, its target's
and each member's. Alive: once the faults are over, everything is assigned and everybody is stable.
"""

from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.coordinator.group.consumer import machine, records
from ottla.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from ottla.coordinator.group.consumer.machine import Heartbeat
from ottla.coordinator.group.consumer.settings import ConsumerSettings
from ottla.coordinator.records import StoredRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId
from ottla.metadata.image import TopicImage
from ottla.sliced import at_once

SETTINGS = ConsumerSettings(45_000, 5_000, 0, 100)
NAMES = ("t", "u")
MEMBERS = st.sampled_from(("a", "b", "c", "d"))
SUBSCRIPTIONS = st.sampled_from((("t",), ("u",), ("t", "u")))
ROUNDS_MAX = 30


def replay(group, stored):
    kind = int.from_bytes(stored.key[:2], "big")
    records.replay(group, kind, records.read_key(kind, stored).name, stored)


class Client:
    """What a consumer knows: its epoch, and what it reads."""

    def __init__(self):
        self.epoch = 0
        self.owned = set()
        self.topics = None
        self.has_missed = False
        """An answer was lost: it says everything anew."""


class Groups(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.log = []
        self.counts = {"t": 4, "u": 3}
        self.ids = {name: TopicId(name.encode() * 16) for name in NAMES}
        self.group = ConsumerGroup("g")
        self.clients = {}
        self.epochs = (0, 0)

    @property
    def topics(self):
        topics = {
            name: TopicImage(name, self.ids[name], tuple(range(count)))
            for name, count in self.counts.items()
        }
        racks = lambda topic: ((),) * len(topic.partitions)  # noqa: E731 - a field
        return SimpleNamespace(topics=topics, topic=topics.get, revision=1, racks=racks)

    def take(self, decision):
        for one in decision.records:
            stored = StoredRecord(len(self.log), -1, one.key, one.value)
            self.log.append(stored)
            replay(self.group, stored)
        return decision.answer

    def send(self, name, topics, *, is_lost, forgets=False, is_unwritten=False):
        client = self.clients[name]
        if client.epoch == 0:
            client.topics = topics
        is_full = client.epoch == 0 or client.has_missed
        held = {}
        for topic, number in client.owned:
            held.setdefault(topic, []).append(number)
        beat = Heartbeat(
            name,
            client.epoch,
            None,
            None,
            10_000 if is_full else -1,
            client.topics if is_full else None,
            None,
            None,
            None if forgets and not is_full else held,
            "c",
            "/h",
        )
        try:
            decision = machine.heartbeat(self.group, beat, self.topics, 1, SETTINGS)
        except KafkaError as error:
            if error.code not in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                raise
            self.clients[name] = Client()
            return
        if is_unwritten and decision.records:
            client.has_missed = True
            return
        answer = self.take(decision)
        self.group.is_stale = False
        client.has_missed = is_lost
        if is_lost:
            return
        assert answer.epoch >= client.epoch
        client.epoch = answer.epoch
        if answer.assignment is not None:
            client.owned = {
                (topic, number)
                for topic, numbers in answer.assignment.items()
                for number in numbers
            }

    @rule(
        name=MEMBERS,
        topics=SUBSCRIPTIONS,
        is_lost=st.booleans(),
        forgets=st.booleans(),
        is_unwritten=st.sampled_from((False, False, True)),
    )
    def beat(self, name, topics, is_lost, forgets, is_unwritten):
        self.clients.setdefault(name, Client())
        self.send(name, topics, is_lost=is_lost, forgets=forgets, is_unwritten=is_unwritten)

    @rule(name=MEMBERS)
    def leave(self, name):
        """It goes, or is taken out while it is away: then it has stopped reading by itself."""
        if name in self.group.members:
            gone = [self.group.members[name]]
            self.take(at_once(machine.fence(self.group, gone, self.topics)))
        self.clients.pop(name, None)

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 2))
    def grow(self, name, more):
        self.counts[name] += more
        self.group.is_stale = True

    @rule()
    def load(self):
        """Another broker reads the log."""
        group = ConsumerGroup("g")
        for stored in self.log:
            replay(group, stored)
        assert (group.members, group.targets) == (self.group.members, self.group.targets)
        assert group.owners == self.group.owners
        self.group = group

    @rule()
    def settle(self):
        for name in list(self.group.members):
            if name not in self.clients:
                self.leave(name)
        for _ in range(ROUNDS_MAX):
            for name in self.clients:
                self.send(name, ("t",), is_lost=False)
            if self.group.state is ConsumerGroupState.STABLE:
                break
        if self.clients:
            assert self.group.state is ConsumerGroupState.STABLE
            read = {
                (self.ids[topic], number)
                for member in self.group.members.values()
                for topic in member.topics
                for number in range(self.counts[topic])
            }
            assert set(self.group.owners) == read

    def teardown(self):
        self.settle()

    @invariant()
    def nothing_is_read_by_two(self):
        seen = set()
        for client in self.clients.values():
            assert not seen & client.owned
            seen |= client.owned

    @invariant()
    def the_group_is_whole(self):
        self.group.check()

    @invariant()
    def epochs_grow(self):
        epochs = (self.group.epoch, self.group.assignment_epoch)
        assert epochs >= self.epochs
        assert self.group.assignment_epoch >= self.epochs[1]
        self.epochs = epochs
        for client_id, member in self.group.members.items():
            assert member.epoch <= self.group.epoch
            assert client_id not in self.clients or self.clients[client_id].epoch <= member.epoch


Groups.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestGroups = Groups.TestCase
