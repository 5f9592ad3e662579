"""KIP-848 groups over a real shard: joins, the way to a target, epochs, time, and restarts."""

import pytest

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.group import (
    MATCH_AGAIN_MS,
    ConsumerGroup,
    ConsumerGroupState,
)
from ottla.coordinator.group.consumer.machine import Heartbeat
from ottla.coordinator.group.consumer.member import TRANSITIONS, ConsumerMember, MemberState
from ottla.coordinator.group.consumer.reconcile import reconcile
from ottla.coordinator.group.consumer.targets import preferred_assignor
from ottla.coordinator.group.consumer.topic_pattern import TopicPattern
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId
from ottla.metadata.image import MetadataDelta, TopicImage

TOPIC = TopicId(b"t" * 16)


def beat(member_id, epoch, *, owned=None, topics=None, **fields):
    given = {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "regex": None,
        "assignor": None,
        "client_id": "c",
        "client_host": "/h",
    } | fields
    held = None if owned is None else {TOPIC: owned}
    return Heartbeat(member_id=member_id, epoch=epoch, topics=topics, owned=held, **given)


class Consumers:
    """What members of one group do, in short words."""

    def __init__(self, node):
        self.node = node
        self.resize(4)

    def resize(self, count, name="t", topic_id=TOPIC):
        is_new = name not in self.node.topics
        topic = TopicImage(name, topic_id, tuple(range(count)))
        self.node.topics[name] = topic
        names = (topic,) if is_new else ()
        self.node.coordinator.apply(
            None, MetadataDelta(revision=2, topics_created=names or (topic,))
        )

    @property
    def machine(self):
        return self.node.runtime.shard_for("g").machine

    @property
    def group(self):
        return self.machine.groups.of(ConsumerGroup, "g")

    def send(self, heartbeat):
        pending = self.node.coordinator.consumer_heartbeat("g", heartbeat)
        self.node.settle()
        assert pending.is_done
        self.machine.check()
        return self.node.result_of(pending)

    def say(self, member_id, epoch, **fields):
        return self.send(beat(member_id, epoch, **fields))

    def join(self, member_id, topics=("t",), **fields):
        fields.setdefault("rebalance_timeout_ms", 10_000)
        return self.send(beat(member_id, 0, topics=topics, **fields)._replace(owned={}))

    def beats_until_matched(self, member_id, topics, seen):
        """Beat every 20 s; return how often, until the group's expression stands for ``topics``."""
        for count in range(1, 100):
            self.node.clock.advance(20)
            self.node.settle()
            epoch = self.group.members[member_id].epoch
            self.say(member_id, epoch, may_describe=seen.__contains__)
            if self.group.regexes["t.*"].topics == topics:
                return count
        return None

    def numbers(self, answer):
        return sorted(answer.assignment.get(TOPIC, ()))


@pytest.fixture
def consumers(groups):
    return Consumers(groups)


def test_the_first_member_gets_everything(consumers):
    answer = consumers.join("a")
    assert answer.epoch == 2
    assert consumers.numbers(answer) == [0, 1, 2, 3]
    assert consumers.group.state is ConsumerGroupState.STABLE
    assert consumers.say("a", 2).assignment is None


def test_a_partition_is_given_up_before_it_is_given(consumers):
    consumers.join("a")
    assert consumers.numbers(consumers.join("b")) == []
    asked = consumers.say("a", 2, owned=[0, 1, 2, 3])
    assert (asked.epoch, consumers.numbers(asked)) == (2, [0, 1])
    assert consumers.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert consumers.say("b", 3).assignment is None, "nobody has said that it is free"
    assert consumers.say("a", 2).epoch == 2, "silence is no answer"
    assert consumers.say("a", 2, owned=[0, 1]).epoch == 3
    assert consumers.numbers(consumers.say("b", 3)) == [2, 3]
    assert consumers.group.state is ConsumerGroupState.STABLE


def test_a_member_that_has_to_give_up_more_stays_in_its_epoch(consumers):
    """As in Kafka 4.3: the epoch is that of the last assignment which the member has reached."""
    consumers.join("a")
    consumers.join("b")
    consumers.say("a", 2, owned=[0, 1, 2, 3])
    asked = consumers.say("a", 2, owned=[0, 1], topics=["nowhere"])
    assert (asked.epoch, consumers.numbers(asked)) == (2, [])
    assert consumers.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert consumers.say("a", 2, owned=[]).epoch == consumers.group.epoch


def test_a_heartbeat_that_changes_nothing_writes_nothing(consumers):
    consumers.join("a")
    consumers.say("a", 2)
    partition = consumers.node.runtime.shard_for("g").where.partition
    before = consumers.node.partition(partition).log.log_end_offset
    for _ in range(10):
        consumers.say("a", 2, owned=[0, 1, 2, 3])
    assert consumers.node.partition(partition).log.log_end_offset == before


def test_heartbeats_that_come_together_see_each_other(consumers):
    """Two joins before either is durable: a lost one would leave a partition to two members."""
    answers = [
        consumers.node.coordinator.consumer_heartbeat(
            "g", beat(one, 0, topics=["t"], rebalance_timeout_ms=9)._replace(owned={})
        )
        for one in "abc"
    ]
    consumers.node.settle()
    assert [one.value.epoch for one in answers] == [2, 3, 4]
    assert set(consumers.group.members) == {"a", "b", "c"}
    consumers.machine.check()


def test_a_restart_finds_the_group_as_it_was(consumers):
    consumers.join("a", instance_id="i", assignor="range", rack_id="r")
    consumers.join("b", topics=(), regex="t+")
    consumers.say("a", 2, owned=[0, 1, 2, 3], instance_id="i")
    before = consumers.group
    consumers.node.restart()
    after = consumers.group
    assert after is not before
    assert after.members == before.members
    assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)
    assert after.targets == before.targets
    assert after.regexes == before.regexes
    assert after.owners == before.owners
    consumers.machine.check()


def test_a_silent_member_is_taken_out(consumers):
    consumers.join("a")
    consumers.join("b")
    epoch = 3
    for _ in range(6):
        consumers.node.clock.advance(10)
        epoch = consumers.say("b", epoch).epoch
    assert set(consumers.group.members) == {"b"}
    assert consumers.say("a", 2).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert sorted(consumers.group.members["b"].assigned[TOPIC]) == [0, 1, 2, 3]


def test_who_was_heard_while_a_write_took_long_is_not_taken_out(consumers):
    consumers.join("a")
    consumers.node.clock.advance(44)
    coordinator = consumers.node.coordinator
    first = coordinator.consumer_heartbeat("g", beat("a", 2, topics=("t", "u")))
    consumers.node.clock.advance(2)
    assert not first.is_done, "the disk is slow"
    second = coordinator.consumer_heartbeat("g", beat("a", 2))
    consumers.node.settle()
    assert first.is_done
    assert second.is_done
    assert set(consumers.group.members) == {"a"}
    consumers.node.clock.advance(46)
    consumers.node.settle()
    assert not consumers.group.members, "it is silent now"


def test_who_does_not_give_up_in_time_is_taken_out(consumers):
    consumers.join("a", rebalance_timeout_ms=5_000)
    consumers.join("b")
    consumers.say("a", 2, owned=[0, 1, 2, 3])
    for _ in range(6):
        consumers.node.clock.advance(1)
        consumers.say("a", 2, owned=[0, 1, 2, 3])
    assert set(consumers.group.members) == {"b"}


def test_who_gives_up_in_time_stays(consumers):
    consumers.join("a", rebalance_timeout_ms=5_000)
    consumers.join("b")
    consumers.say("a", 2, owned=[0, 1, 2, 3])
    consumers.say("a", 2, owned=[0, 1])
    consumers.node.clock.advance(6)
    consumers.node.settle()
    assert set(consumers.group.members) == {"a", "b"}


def test_more_partitions_and_new_topics_are_seen(consumers):
    consumers.join("a", topics=(), regex="t.*")
    consumers.resize(6)
    assert consumers.numbers(consumers.say("a", 2)) == [0, 1, 2, 3, 4, 5]
    consumers.resize(1, "tt", TopicId(b"u" * 16))
    assert len(consumers.say("a", 3).assignment) == 2


def test_only_topics_that_changed_are_held_against_an_expression(consumers, monkeypatch):
    consumers.join("a", topics=(), regex="t.*")
    consumers.say("a", 2)
    asked = []
    select = TopicPattern.select
    monkeypatch.setattr(
        TopicPattern, "select", lambda self, names: asked.extend(names) or select(self, names)
    )
    consumers.resize(1, "tt", TopicId(b"u" * 16))
    assert set(consumers.say("a", 2).assignment) == {TOPIC, TopicId(b"u" * 16)}
    del consumers.node.topics["tt"]
    gone = TopicImage("tt", TopicId(b"u" * 16), (0,))
    consumers.node.coordinator.apply(None, MetadataDelta(revision=3, topics_deleted=(gone,)))
    consumers.node.settle()
    assert consumers.group.is_stale
    consumers.say("a", 3, owned=[0, 1, 2, 3])
    assert asked == ["tt"]
    assert consumers.group.regexes["t.*"].topics == {"t"}


def test_who_may_see_a_topic_is_asked_again_in_time(consumers):
    """A topic whose ACL comes after it was never read, and one whose ACL goes was read for ever."""
    seen = {"t"}
    consumers.resize(1, "tt", TopicId(b"u" * 16))
    consumers.join("a", topics=(), regex="t.*", may_describe=seen.__contains__)
    consumers.say("a", 2, may_describe=seen.__contains__)
    seen.add("tt")
    consumers.say("a", 2, may_describe=seen.__contains__)
    assert consumers.group.regexes["t.*"].topics == {"t"}
    beats = consumers.beats_until_matched("a", {"t", "tt"}, seen)
    assert beats * 20_000 == MATCH_AGAIN_MS
    asked = []
    consumers.say("a", 3, may_describe=lambda name: asked.append(name) or True)
    assert not asked
    seen.remove("t")
    assert consumers.beats_until_matched("a", {"tt"}, seen)


def test_an_expression_tells_nothing_of_topics_that_must_not_be_seen(consumers):
    """Matched first and hidden then, one that is much work for their names alone was refused."""
    for letter in "bcdefgh":
        consumers.resize(1, letter * 249, TopicId(letter.encode() * 16))
    laborious = "(.?){900}"
    answer = consumers.join("a", topics=(), regex=laborious, may_describe={"t"}.__contains__)
    assert consumers.group.regexes[laborious].topics == {"t"}
    assert answer.epoch > 0
    refused = consumers.join("b", topics=(), regex=laborious + "u?", may_describe=lambda _: True)
    assert refused.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_topic_that_is_made_while_its_first_reader_joins_is_not_missed(consumers):
    consumers.join("a")
    joining = consumers.node.coordinator.consumer_heartbeat(
        "g", beat("b", 0, topics=["u"], rebalance_timeout_ms=9)._replace(owned={})
    )
    assert not joining.is_done, "it is being written"
    consumers.resize(2, "u", TopicId(b"u" * 16))
    consumers.node.settle()
    assert set(consumers.say("b", joining.value.epoch).assignment) == {TopicId(b"u" * 16)}


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ((None, None, None), "uniform"),
        (("range", None, None), "range"),
        (("range", "range", "uniform"), "range"),
        (("range", "uniform", None), "uniform"),
    ],
)
def test_the_assignor_that_most_ask_for_is_taken(consumers, asked, chosen):
    for name, assignor in zip("abc", asked, strict=True):
        consumers.join(name, assignor=assignor)
    assert preferred_assignor(consumers.group) == chosen


def test_a_static_member_comes_back_to_what_it_had(consumers):
    consumers.join("a", instance_id="i")
    consumers.say("a", -2, instance_id="i")
    assert consumers.join("b").epoch == 3, "its partitions are kept for it"
    answer = consumers.join("c", instance_id="i")
    assert consumers.numbers(answer) in ([0, 1], [2, 3])
    assert set(consumers.group.members) == {"b", "c"}


@pytest.mark.parametrize(
    ("heartbeat", "code"),
    [
        (beat("a", 1), ErrorCode.FENCED_MEMBER_EPOCH),
        (beat("a", 3), ErrorCode.FENCED_MEMBER_EPOCH),
        (beat("who", 2), ErrorCode.UNKNOWN_MEMBER_ID),
        (beat("a", -3), ErrorCode.INVALID_REQUEST),
        (beat("", 2), ErrorCode.INVALID_REQUEST),
        (beat("a", 2, assignor="nope"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (beat("a", 2, regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (beat("a", 2, instance_id="i"), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_is_refused_changes_nothing(consumers, heartbeat, code):
    consumers.join("a")
    before = consumers.group.members
    assert consumers.send(heartbeat).code is code
    assert consumers.group.members == before


def test_a_group_that_is_let_go_answers_everybody(consumers):
    pending = [
        consumers.node.coordinator.consumer_heartbeat(
            "g", beat(one, 0, topics=["t"], rebalance_timeout_ms=9)._replace(owned={})
        )
        for one in "ab"
    ]
    consumers.node.coordinator.stop()
    consumers.node.settle()
    assert all(one.error.code is ErrorCode.NOT_COORDINATOR for one in pending)


def test_classic_and_consumer_groups_take_turns(consumers):
    consumers.join("a")
    machine = consumers.node.runtime.shard_for("g").machine
    consumers.say("a", -1)
    machine.classic.make("g")
    assert machine.groups.of(ConsumerGroup, "g") is None
    assert consumers.join("b").epoch == 2
    assert machine.groups.of(ClassicGroup, "g") is None


@pytest.mark.parametrize("state", MemberState)
def test_every_step_of_a_member_is_in_the_table(state):
    targets = ({}, {TOPIC: frozenset({0})}, {TOPIC: frozenset({0, 1, 2})})
    for target in targets:
        for owned in (None, {}, {TOPIC: [0, 1]}):
            for held in (True, False):
                member = ConsumerMember("m", epoch=3, state=state, assigned={TOPIC: {0: 2, 1: 3}})
                if state is MemberState.UNREVOKED_PARTITIONS:
                    member = member._replace(revoking={TOPIC: {3: 2}})
                if state is MemberState.UNKNOWN and owned != {}:
                    continue  # It is fenced.
                after = reconcile(
                    member,
                    target_epoch=5,
                    target=target,
                    subscribed=[TOPIC],
                    is_held=lambda *_, held=held: held,
                    owned=owned,
                )
                assert after is member or after.state in TRANSITIONS[state]
                assert after.epoch >= member.epoch


@pytest.mark.parametrize("owned", [None, {TOPIC: [0]}])
def test_a_member_of_an_unknown_state_is_fenced_until_it_has_nothing(owned):
    member = ConsumerMember("m", epoch=3, state=MemberState.UNKNOWN)
    with pytest.raises(KafkaError) as refused:
        reconcile(
            member, target_epoch=5, target={}, subscribed=[], is_held=lambda *_: False, owned=owned
        )
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_group_is_deleted_with_all_its_records(consumers):
    consumers.join("a", topics=(), regex="t")
    consumers.say("a", -1)
    keys = {one.key for one in consumer_records.group_tombstones(consumers.group)}
    assert len(keys) == 2 + len(consumers.group.regexes)
    pending = consumers.node.coordinator.delete_group("g")
    consumers.node.settle()
    assert consumers.node.result_of(pending) is None
    assert "g" not in consumers.machine.groups
    consumers.node.restart()
    assert "g" not in consumers.machine.groups
