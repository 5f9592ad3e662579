"""A group coordinator over the replica manager of the replication tests: one node, two shards."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import Protocol
from ottla.coordinator.group.consumer.settings import ConsumerSettings
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.kinds import kinds_of
from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.group.settings import GroupSettings
from ottla.coordinator.group.shard import Groups
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import Context
from ottla.errors import KafkaError
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.image import MetadataDelta, PartitionChange, TopicImage
from ottla.metadata.values import PartitionState
from ottla.records.compression import Codec
from ottla.turns import Turns

path = Path(__file__).parents[1] / "replication" / "conftest.py"
spec = importlib.util.spec_from_file_location("replication_doubles", path)
doubles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(doubles)

OFFSETS = "__consumer_offsets"
OFFSETS_ID = TopicId(b"offsets-topic-id")
CLASSIC = events.ClassicSettings(initial_rebalance_delay_ms=0, members_max=100)
SETTINGS = GroupSettings(
    classic=CLASSIC,
    consumer=ConsumerSettings(45_000, 5_000, 0, 100),
    session_timeout_min_ms=6_000,
    session_timeout_max_ms=1_800_000,
    metadata_length_max=4096,
    offsets_retention_ms=7 * 24 * 3600 * 1000,
    offsets_retention_check_interval_ms=600_000,
)


def state_of(leader=1, epoch=0):
    nodes = (NodeId(1), NodeId(2))
    return PartitionState(nodes, (NodeId(1),), NodeId(leader), LeaderEpoch(epoch), epoch)


def result_of(pending):
    """The value of a done Pending, or the KafkaError that it failed with."""
    assert pending.is_done, "still waiting"
    if pending.error is None:
        return pending.value
    assert isinstance(pending.error, KafkaError)
    return pending.error


class GroupNode:
    """The node, its coordinator, and short words for what clients do."""

    def __init__(
        self,
        *,
        settings=SETTINGS,
        partitions=2,
        started=True,
        codec=Codec.NONE,
        make_kinds=kinds_of,
        **config,
    ):
        self.make_kinds = make_kinds
        config.setdefault("is_compacted", True)
        self.node = doubles.Node(partitions=0, **config)
        self.clock, self.executor = self.node.clock, self.node.executor
        self.turns = Turns(self.clock, call_soon=lambda turn: self.clock.call_later(0, turn))
        self.topics = {}
        self.image = SimpleNamespace(
            topic=self.topics.get,
            partition=lambda where: self.topics[where.topic].partitions[where.partition],
            topics=self.topics,
            revision=1,
            racks=lambda topic: ((),) * len(topic.partitions),
        )
        self.settings = settings
        self.codec = codec
        self.partitions = partitions
        self.lead(*range(partitions), start=False)
        self.boot()
        if started:
            self.settle()

    # Life.

    def lead(self, *indexes, leader=1, epoch=0, start=True):
        old = self.topics.get(OFFSETS)
        states = list(old.partitions) if old else [state_of()] * self.partitions
        changes = []
        for index in indexes:
            before, states[index] = states[index], state_of(leader, epoch)
            changes.append(
                PartitionChange(OFFSETS, OFFSETS_ID, index, before if old else None, states[index])
            )
        self.topics[OFFSETS] = TopicImage(OFFSETS, OFFSETS_ID, tuple(states))
        self.node.change(*changes)
        if start:
            self.coordinator.apply(None, MetadataDelta(revision=1, partitions=tuple(changes)))

    def boot(self):
        """Make a coordinator that knows nothing: what it knows it reads from the logs."""
        context = Context(
            self.node.replica_manager, self.executor, self.clock, self.codec, self.turns
        )
        self.runtime = CoordinatorRuntime(
            context,
            self.image,
            node_id=NodeId(1),
            topic=OFFSETS,
            partition_count=self.partitions,
            make_machine=lambda shard: Groups(
                shard, self.settings, self.image, make_kinds=self.make_kinds
            ),
        )
        self.coordinator = GroupCoordinator(self.runtime, self.settings)
        self.coordinator.start()

    def restart(self):
        self.coordinator.stop()
        self.boot()
        self.settle()

    result_of = staticmethod(result_of)

    def settle(self):
        """Let flushes and loads end."""
        self.executor.run_all()

    def partition(self, index):
        return self.node.replica_manager.get(TopicPartition(OFFSETS, index))

    def shard(self, group):
        return self.runtime.shard_for(group)

    def group(self, group):
        return self.shard(group).machine.groups.get(group)

    def check(self):
        for shard in self.runtime.shards:
            shard.machine.check()
        self.node.check()

    # Clients.

    def join(self, group="g", member_id="", **fields):
        given = {
            "new_member_id": f"m{self.next_id()}",
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (Protocol("range", b"\x00\x00\x00\x00\x00\x00"),),
            "needs_known_member_id": False,
            "can_skip_assignment": True,
        } | fields
        return self.coordinator.join(
            group, lambda reply, new: events.Join(reply, member_id, is_new_group=new, **given)
        )

    def next_id(self):
        self.ids = getattr(self, "ids", 0) + 1
        return self.ids

    def sync(self, group, member_id, generation, assignments=None, instance_id=None):
        return self.coordinator.sync(
            group,
            lambda reply: events.Sync(
                reply, member_id, instance_id, generation, None, None, assignments or {}
            ),
        )

    def beat(self, group, member_id, generation, instance_id=None):
        return self.coordinator.heartbeat(
            group, lambda reply: events.Heartbeat(reply, member_id, instance_id, generation)
        )

    def leave(self, group, *members):
        return self.coordinator.leave(group, [events.LeavingMember(*one) for one in members])

    def commit(self, group="g", *offsets, member_id="", generation=-1, retention_ms=-1, topic="t"):
        return self.coordinator.commit_offsets(
            CommitRequest(
                group,
                member_id,
                None,
                generation,
                retention_ms,
                [TopicCommit(topic, [(index, offset, -1, "m") for index, offset in offsets])],
                True,
            )
        )

    def fetch(self, group="g", require_stable=False):
        names = result_of(self.coordinator.partitions_of(group, require_stable=require_stable))
        if isinstance(names, Exception):
            return names
        pending = self.coordinator.fetch_offsets(group, names, require_stable=require_stable)
        found = result_of(pending)
        if isinstance(found, Exception):
            return found
        return {(one.topic, one.partition): one.committed.offset for one in found if one.committed}

    def member(self, group="g"):
        """A member of a stable group of one; its id and generation."""
        joined = self.join(group)
        self.clock.advance(0)
        self.settle()
        answer = result_of(joined)
        self.sync(group, answer.member_id, answer.generation)
        self.settle()
        return answer.member_id, answer.generation


@pytest.fixture
def make_groups():
    nodes = []

    def make(**config):
        node = GroupNode(**config)
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.check()


@pytest.fixture
def groups(make_groups):
    return make_groups()


@pytest.fixture
def words():
    """Short words for modules that cannot import a conftest."""
    return SimpleNamespace(OFFSETS=OFFSETS, SETTINGS=SETTINGS, CLASSIC=CLASSIC, result_of=result_of)
