"""A new kind of group needs a room and a line in the table, and nothing else."""

import struct
from enum import Enum

import pytest

from ottla.coordinator.group.consumer.machine import Heartbeat
from ottla.coordinator.group.kinds import Kind, kinds_of
from ottla.coordinator.group.registry import GroupKind, check_is_empty
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ErrorCode, KafkaError

TOY = GroupKind("toy")
KEY_TYPE = 77
BEAT = Heartbeat("m", 0, None, None, 60_000, ["t"], None, None, {}, "c", "/h")


class ToyState(Enum):
    PLAYING = "Playing"
    EMPTY = "Empty"


class ToyGroup:
    """A group of which the log tells how many play."""

    kind = TOY
    protocol_type = "toys"

    def __init__(self, group_id, players):
        self.group_id = group_id
        self.players = players
        self.has_heard_of = set()

    @property
    def state(self):
        return ToyState.PLAYING if self.players else ToyState.EMPTY

    @property
    def is_empty(self):
        return not self.players

    def is_subscribed_to(self, topic):
        return False

    def check_offset_commit(self, commit):
        """Let everybody commit."""

    def check_offset_fetch(self, member_id, epoch):
        """Let everybody read."""

    def check_offset_delete(self):
        """Let everybody delete."""

    def check_delete(self):
        check_is_empty(self)

    def retained_from_ms(self, topic, commit_timestamp_ms):
        return commit_timestamp_ms if self.is_empty else None

    def topics_changed(self, names):
        self.has_heard_of |= set(names)

    def check(self):
        """Hold no invariant."""


class ToyGroups:
    """The room."""

    kind = TOY
    key_types = (KEY_TYPE,)

    def __init__(self, common):
        self.registry = common.groups
        self.line = common.line
        self.unloaded_with = None

    def write(self, group_id, players):
        record = self.record(group_id, struct.pack(">i", players))
        self.line.write(group_id, [record], lambda: None, pytest.fail)

    def record(self, group_id, value):
        return CoordinatorRecord(struct.pack(">h", KEY_TYPE) + group_id.encode(), value)

    def replay(self, key_type, stored):
        group_id = stored.key[2:].decode()
        if stored.value is None:
            self.registry.remove(self.group(group_id))
        else:
            self.registry.put(ToyGroup(group_id, *struct.unpack(">i", stored.value)))

    def loaded(self):
        yield

    def unloaded(self, error):
        self.unloaded_with = error.code

    def topics_changed(self, names):
        for group in self.registry.all_of(ToyGroup):
            group.topics_changed(names)

    def group(self, group_id):
        group = self.registry.of(ToyGroup, group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a toy group.")
        return group

    def tombstones(self, group):
        return [self.record(group.group_id, None)]


class NoClassicMembers:
    """Refuses what the classic protocol asks of a toy group."""

    def join(self, group_id, event, pending):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def heard_of(self, group_id, member_id):
        """Note nothing."""


def with_toys(common):
    return (*kinds_of(common), Kind(ToyGroups(common), lambda _: NoClassicMembers()))


@pytest.fixture
def groups(make_groups, words):
    settings = words.SETTINGS._replace(
        offsets_retention_ms=60_000, offsets_retention_check_interval_ms=20_000
    )
    groups = make_groups(settings=settings, make_kinds=with_toys)
    for name, players in (("toys", 2), ("left", 0)):
        groups.shard(name).machine.room(ToyGroups).write(name, players)
    groups.settle()
    return groups


def listed(groups, types=()):
    return {one.group_id: one for one in groups.coordinator.list_groups((), types)}


def test_it_is_listed_beside_the_others(groups):
    groups.member("classic")
    found = listed(groups)
    assert set(found) == {"toys", "left", "classic"}
    assert found["toys"][1:] == ("toys", "Playing", "toy")
    assert set(listed(groups, ["Toy"])) == {"toys", "left"}
    assert set(listed(groups, ["classic"])) == {"classic"}


def test_it_is_described_as_what_it_is(groups, words):
    described = words.result_of(groups.coordinator.describe(TOY, "toys"))
    assert described.players == 2
    for kind in (GroupKind("consumer"), GroupKind("classic")):
        refused = words.result_of(groups.coordinator.describe(kind, "toys"))
        assert refused.code is ErrorCode.GROUP_ID_NOT_FOUND
    groups.member("classic")
    refused = words.result_of(groups.coordinator.describe(TOY, "classic"))
    assert refused.why == "Group classic is not a toy group."


def test_it_is_deleted_with_its_offsets_when_it_is_empty(groups, words):
    groups.commit("left", (0, 5))
    groups.settle()
    kept = groups.coordinator.delete_group("toys")
    deleted = groups.coordinator.delete_group("left")
    groups.settle()
    assert words.result_of(kept).code is ErrorCode.NON_EMPTY_GROUP
    assert words.result_of(deleted) is None
    for _ in range(2):
        assert set(listed(groups)) == {"toys"}
        assert groups.fetch("left") == {}
        groups.restart()


def test_it_expires_by_its_own_rule(groups):
    for name in ("toys", "left"):
        groups.commit(name, (0, 5))
    groups.settle()
    groups.clock.advance(85)
    groups.settle()
    assert set(listed(groups)) == {"toys"}
    assert groups.fetch("toys") == {("t", 0): 5}


def test_it_is_loaded_hears_of_topics_and_is_let_go(groups):
    groups.restart()
    assert groups.group("toys").players == 2
    shard = groups.shard("toys")
    shard.machine.topics_changed({"t"})
    assert groups.group("toys").has_heard_of == {"t"}
    shard.close()
    assert shard.machine.room(ToyGroups).unloaded_with is ErrorCode.NOT_COORDINATOR
    assert len(shard.machine.groups) == 0


def test_requests_of_the_other_kinds_leave_it_alone(groups, words):
    joined = groups.join("toys")
    assert words.result_of(joined).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat = groups.coordinator.consumer_heartbeat("toys", BEAT)
    groups.settle()
    assert words.result_of(beat).why == "Group toys is not a consumer group."
    assert groups.group("toys").players == 2
