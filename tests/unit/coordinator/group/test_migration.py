"""A group changes its protocol over a real shard: members keep partitions, wait and time out."""

import struct

import pytest

from ottla.coordinator.group.classic.group import ClassicGroup, GroupState, Protocol
from ottla.coordinator.group.classic.subscription import assignment_bytes
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.machine import Heartbeat
from ottla.coordinator.group.consumer.settings import MigrationPolicy
from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId
from ottla.metadata.image import MetadataDelta, TopicImage

TOPIC = TopicId(b"t" * 16)


def said(*owned, topic=b"t"):
    partitions = struct.pack(f">ih1si{len(owned)}i", 1, 1, b"t", len(owned), *owned)
    return struct.pack(">hih1si", 1, 1, 1, topic, -1) + partitions


class Mixed:
    """Short words for the members of one group."""

    def __init__(self, make_groups, words, **fields):
        settings = words.SETTINGS
        consumer = settings.consumer._replace(**fields)
        self.node = make_groups(settings=settings._replace(consumer=consumer))
        self.node.topics["t"] = TopicImage("t", TOPIC, (0, 1, 2, 3))
        self.words = words

    @property
    def machine(self):
        return self.node.shard("g").machine

    @property
    def consumers(self):
        return self.machine.groups.of(ConsumerGroup, "g")

    def value(self, pending):
        self.node.settle()
        self.node.clock.advance(0)
        self.node.settle()
        return self.node.result_of(pending) if pending.is_done else None

    def ask_join(self, member_id="", *owned, **fields):
        fields.setdefault("protocols", (Protocol("range", said(*owned)),))
        return self.node.join("g", member_id, new_consumer_id="n", **fields)

    def join(self, member_id="", *owned, **fields):
        return self.value(self.ask_join(member_id, *owned, **fields))

    def sync(self, member_id, generation, *given):
        data = {member_id: assignment_bytes(said(), {"t": given})}
        return self.value(self.node.sync("g", member_id, generation, data))

    def classic(self):
        """A stable classic group of one; its member's id."""
        member_id = self.join().member_id
        self.sync(member_id, 1, 0, 1, 2, 3)
        return member_id

    def beat(self, member_id, epoch, *, owned=None, **fields):
        given = {"instance_id": None, "rack_id": None, "regex": None, "assignor": None}
        given |= {"topics": None, "rebalance_timeout_ms": -1} | fields
        held = None if owned is None else {TOPIC: owned} if owned else {}
        heartbeat = Heartbeat(
            member_id=member_id, epoch=epoch, owned=held, client_id="c", client_host="/h", **given
        )
        return self.value(self.node.coordinator.consumer_heartbeat("g", heartbeat))

    def subscribe(self, member_id="m", **fields):
        asked = {"topics": ("t",), "rebalance_timeout_ms": 60_000} | fields
        return self.beat(member_id, 0, owned=[], **asked)

    def classic_beat(self, member_id, generation):
        value = self.value(self.node.beat("g", member_id, generation))
        return value.code if isinstance(value, KafkaError) else value


@pytest.fixture
def mixed(make_groups, words):
    return lambda **fields: Mixed(make_groups, words, **fields)


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        (MigrationPolicy.DISABLED, False, False),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.BIDIRECTIONAL, True, True),
    ],
)
def test_the_policy_says_which_ways_are_open(mixed, policy, up, down):
    g = mixed(migration_policy=policy)
    g.classic()
    answer = g.subscribe()
    assert (g.consumers is not None) is up
    if not up:
        assert answer.code is ErrorCode.GROUP_ID_NOT_FOUND

    g = mixed(migration_policy=policy)
    g.subscribe()
    g.join()
    g.beat("m", -1)
    assert (g.consumers is None) is down


def test_a_group_too_large_for_a_classic_one_stays(mixed):
    g = mixed(classic_members_max=1)
    g.subscribe()
    for member_id in ("a", "b"):
        g.join(member_id)
    g.beat("m", -1)
    assert set(g.consumers.members) == {"a", "b"}
    g.node.leave("g", ("a", None))
    g.node.settle()
    assert g.consumers is None


def test_what_members_have_survives_both_ways(mixed):
    g = mixed()
    member_id = g.classic()
    assert g.subscribe().epoch == 2
    assert g.consumers.members[member_id].assigned == {TOPIC: dict.fromkeys(range(4), 1)}
    assert g.classic_beat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    g.join(member_id, 0, 1, 2, 3)
    g.sync(member_id, 1)
    assert g.join(member_id, 0, 1).generation == 2
    assert g.beat("m", 2, owned=[]).assignment == {TOPIC: {2: 2, 3: 2}}
    g.node.restart()
    assert g.consumers.members[member_id].classic.protocols == (Protocol("range", said(0, 1)),)
    g.beat("m", -1)
    group = g.machine.groups.get("g")
    assert (group.generation, group.state) == (2, GroupState.PREPARING_REBALANCE)
    assert g.join(member_id, 0, 1).generation == 3


def test_who_waits_in_a_classic_group_is_told_to_come_again(mixed):
    g = mixed()
    g.classic()
    waiting = g.ask_join("", instance_id="i")
    g.subscribe()
    assert waiting.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(g.consumers.members) == 3


def test_requests_wait_while_a_group_changes(mixed):
    g = mixed()
    member_id = g.classic()
    beat = Heartbeat("m", 0, None, None, 60_000, ("t",), None, None, {}, "c", "/h")
    opened = g.node.coordinator.consumer_heartbeat("g", beat)
    told = g.node.beat("g", member_id, 1)
    left = g.node.leave("g", (member_id, None))
    assert not any(one.is_done for one in (opened, told, left))
    g.node.settle()
    assert told.value is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(g.consumers.members) == {"m"}


def test_a_partition_given_twice_is_had_once(mixed):
    g = mixed()
    one = g.join().member_id
    g.sync(one, 1, 0, 1, 9, -1)
    other = g.ask_join("", protocols=(Protocol("range", said(1, 3)),))
    again = g.ask_join(one, 0, 1)
    other, again = g.value(other), g.value(again)
    g.subscribe()
    had = {member_id: one.assigned for member_id, one in g.consumers.members.items()}
    assert had[one] == {TOPIC: {0: 2, 1: 2}}
    assert had[other.member_id] == {TOPIC: {3: 2}}


def test_a_member_that_does_not_join_again_in_time_goes(mixed):
    g = mixed()
    member_id = g.classic()
    g.subscribe()
    for _ in range(9):
        assert g.classic_beat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        g.beat("m", 2, owned=[])
        g.node.clock.advance(8)
        g.node.settle()
        if member_id not in g.consumers.members:
            break
    assert set(g.consumers.members) == {"m"}


def test_a_member_that_does_not_sync_in_time_goes(mixed):
    g = mixed()
    g.subscribe()
    g.join("a", rebalance_timeout_ms=9_000)
    g.node.clock.advance(8)
    g.classic_beat("a", 3)
    g.node.settle()
    assert "a" in g.consumers.members
    g.node.clock.advance(2)
    g.node.settle()
    assert "a" not in g.consumers.members


def test_a_silent_member_goes_after_the_session_timeout_it_named(mixed):
    g = mixed()
    g.subscribe()
    g.join("a")
    g.sync("a", 3)
    g.node.clock.advance(9)
    g.node.settle()
    assert "a" in g.consumers.members
    g.node.clock.advance(2)
    g.node.settle()
    assert "a" not in g.consumers.members


def test_the_last_member_of_the_newer_protocol_dies(mixed):
    g = mixed()
    g.subscribe()
    g.join("a")
    for _ in range(8):
        g.classic_beat("a", 3)
        g.sync("a", 3)
        g.node.clock.advance(6)
        g.node.settle()
    assert g.consumers is None
    assert g.machine.groups.get("g").state is GroupState.PREPARING_REBALANCE


def test_a_rebalance_that_a_crash_cut_short_is_made_up_for(mixed):
    g = mixed()
    g.subscribe()
    g.join("a")
    g.beat("m", -1)
    g.node.restart()
    assert g.machine.groups.get("g").state is GroupState.PREPARING_REBALANCE
    g.join("a")
    g.sync("a", 4, 0, 1, 2, 3)
    g.node.restart()
    assert g.machine.groups.get("g").state is GroupState.STABLE


def test_a_static_member_goes_over_alone(mixed):
    g = mixed()
    g.subscribe("m", instance_id="i")
    answer = g.join("", instance_id="i")
    assert (answer.member_id, answer.generation) == ("n", 2)
    group = g.machine.groups.get("g")
    assert (group.state, group.generation) == (GroupState.STABLE, 2)
    assert g.sync("n", 2).assignment == assignment_bytes(said(), {"t": range(4)})
    assert g.subscribe("m2", instance_id="i").epoch == 2
    assert g.classic_beat("n", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_upgrade_changes_nothing(mixed):
    g = mixed(members_max=1)
    member_id = g.classic()
    assert g.subscribe().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert g.classic_beat(member_id, 1) is ErrorCode.NONE
    g = mixed()
    g.join("", protocols=(Protocol("range", b"\0"),))
    assert g.subscribe().code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_gives_its_place_in_one_batch(mixed):
    g = mixed()
    g.subscribe()
    g.beat("m", -1)
    before = g.node.partition(0).log.log_end_offset, g.node.partition(1).log.log_end_offset
    g.join()
    after = g.node.partition(0).log.log_end_offset, g.node.partition(1).log.log_end_offset
    assert sum(after) - sum(before) == 3
    g.node.restart()
    assert g.machine.groups.of(ClassicGroup, "g") is not None


def test_a_member_is_not_asked_to_join_before_there_is_a_target(mixed):
    g = mixed(assignment_interval_ms=5_000)
    g.node.clock.advance(100)
    g.subscribe()
    g.join("a")
    assert g.classic_beat("a", 2) is ErrorCode.NONE
    assert g.sync("a", 2).code is ErrorCode.NONE
    g.node.clock.advance(6)
    g.node.settle()
    assert g.classic_beat("a", 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_clock_set_back_does_not_keep_a_group_from_its_next_assignment(mixed):
    g = mixed(assignment_interval_ms=5_000)
    first = g.subscribe("m")
    assert sorted(first.assignment[TOPIC]) == [0, 1, 2, 3]
    g.node.clock.jump_wall(-24 * 3600 * 1000)
    assert not g.subscribe("other").assignment, "the interval is not over"
    g.node.clock.advance(5)
    g.node.settle()
    assert len(g.beat("m", first.epoch).assignment[TOPIC]) == 2


def test_a_clock_set_back_does_not_keep_a_classic_member_from_its_next_rebalance(mixed):
    g = mixed(assignment_interval_ms=5_000)
    g.subscribe()
    g.node.clock.jump_wall(-24 * 3600 * 1000)
    g.join("a")
    assert g.classic_beat("a", 2) is ErrorCode.NONE
    assert g.sync("a", 2).code is ErrorCode.NONE
    g.node.clock.advance(6)
    g.node.settle()
    assert g.classic_beat("a", 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_of_the_classic_protocol_alone_get_what_was_left(mixed):
    g = mixed(migration_policy=MigrationPolicy.UPGRADE)
    g.subscribe()
    g.join("a")
    for owned in ([0, 1, 2, 3], [0, 1]):
        g.beat("m", 2, owned=owned)
    g.join("a")
    g.sync("a", 3)
    g.beat("m", -1)
    assert g.consumers is not None
    assert g.classic_beat("a", 3) is ErrorCode.NONE
    g.node.clock.advance(0)
    g.node.settle()
    assert g.classic_beat("a", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert g.join("a").generation == 4
    assert g.sync("a", 4).assignment == assignment_bytes(said(), {"t": range(4)})


@pytest.mark.parametrize("fault", [None, DiskCall.SYNC])
def test_a_group_does_not_change_while_its_assignment_is_being_written(mixed, fault):
    """Else the leader is told of partitions that the first newer member gets as well."""
    g = mixed()
    leader = g.join().member_id
    assigned = assignment_bytes(said(), {"t": (0, 1, 2, 3)})
    synced = g.node.sync("g", leader, 1, {leader: assigned})
    asked = Heartbeat("m", 0, None, None, 60_000, ("t",), None, None, {}, "c", "/h")
    joined = g.node.coordinator.consumer_heartbeat("g", asked)
    beaten = g.node.beat("g", leader, 1)
    if fault is not None:
        g.node.node.disk.fail(fault)
    g.node.settle()
    g.node.clock.advance(0)
    g.node.settle()
    if fault is not None:
        told = {g.node.result_of(one).code for one in (synced, joined, beaten)}
        assert told == {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
        return
    told = g.node.result_of(synced)
    assert (told.code, told.assignment) == (ErrorCode.NONE, assigned)
    assert g.node.result_of(joined).assignment == {}, "the leader has all of them still"
    assert set(g.consumers.owners.values()) == {leader}
    assert g.node.result_of(beaten) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_shows_others_no_topic_that_they_may_not_see(mixed):
    """Its JoinGroup found a new topic first, and matched it with everybody's expressions."""
    hidden = TopicId(b"h" * 16)
    g = mixed(assignment_interval_ms=0)
    g.subscribe(topics=(), regex="t.*", may_describe=lambda name: name == "t")
    g.beat("m", 2, may_describe=lambda name: name == "t")
    g.node.topics["th"] = made = TopicImage("th", hidden, (0,))
    g.node.coordinator.apply(None, MetadataDelta(revision=3, topics_created=(made,)))
    g.node.settle()
    g.join()
    assert g.consumers.regexes["t.*"].topics == {"t"}
    answer = g.beat("m", 2, may_describe=lambda name: name == "t")
    assert hidden not in (answer.assignment or {})
    assert hidden not in g.consumers.targets["m"]
    g.beat("m", g.consumers.members["m"].epoch, may_describe=lambda name: True)
    assert g.consumers.regexes["t.*"].topics == {"t"}, "nothing is new any more"
