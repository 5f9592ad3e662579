"""A request costs little in a group of many members: calls are counted, so load does not matter."""

import sys
from types import SimpleNamespace

import pytest

from ottla.coordinator.group.answering import Answering
from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import ClassicGroup, Protocol
from ottla.coordinator.group.classic.machine import step
from ottla.coordinator.group.consumer import machine
from ottla.coordinator.group.consumer.assignors import even_out
from ottla.coordinator.group.consumer.group import (
    ConsumerGroup,
    ConsumerGroupState,
    ResolvedRegex,
)
from ottla.coordinator.group.consumer.member import ClassicPart, ConsumerMember
from ottla.coordinator.group.consumer.settings import ConsumerSettings, MigrationPolicy
from ottla.coordinator.group.consumer.targets import metadata_hash_of, preferred_assignor
from ottla.coordinator.group.migration.classic_in_consumer import needs_targets
from ottla.coordinator.group.migration.conversion import (
    downgraded,
    may_downgrade,
    upgraded,
)
from ottla.env.clock import ManualClock
from ottla.sliced import STRIDE, at_once
from ottla.turns import Turns

SETTINGS = events.ClassicSettings(initial_rebalance_delay_ms=0, members_max=100_000)
METADATA = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"
PROTOCOLS = (Protocol("range", METADATA), Protocol("cooperative-sticky", METADATA))


def calls_of(work):
    """Return how many functions, of Python and of C, ``work`` calls; steps of generators, too."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def join(member_id, new_member_id="", protocols=PROTOCOLS):
    return events.Join(
        object(),
        member_id,
        new_member_id,
        None,
        "c",
        "/h",
        45_000,
        300_000,
        "consumer",
        protocols,
        needs_known_member_id=False,
        can_skip_assignment=True,
        is_new_group=False,
    )


def rebalance_of(size):
    """The calls of a whole life: everybody joins, a generation, everybody joins once more."""
    group = ClassicGroup("g", 0)

    def live():
        for number in range(size):
            step(group, join("", f"m{number}"), 0, SETTINGS)
        step(group, events.JoinDelayOver(0, 0), 0, SETTINGS)
        changed = (Protocol("range", METADATA + b"\0"), PROTOCOLS[1])
        for member_id in list(group.members):
            step(group, join(member_id, protocols=changed), 0, SETTINGS)

    calls = calls_of(live)
    group.check()
    assert group.generation == 2
    return calls


def test_a_rebalance_costs_each_member_the_same_in_a_large_group():
    small, large = rebalance_of(200), rebalance_of(1_600)
    assert large < 1.2 * 8 * small


class Members(dict):
    """Says how often all of it is looked at; a copy is such a look, too."""

    looks = 0

    def keys(self):
        self.looks += 1
        return super().keys()

    def values(self):
        self.looks += 1
        return super().values()

    def items(self):
        self.looks += 1
        return super().items()

    def __iter__(self):
        self.looks += 1
        return super().__iter__()


def group_of(size, *, is_classic=False):
    """A stable consumer group of so many, which notes looks at all its members."""
    group = ConsumerGroup("g")
    group.epoch = group.assignment_epoch = 5
    group.assignment_timestamp_ms = 10**9
    group.is_stale, group.changed_topics = False, set()
    group.regexes["t.*"] = ResolvedRegex(frozenset("t"), 1, 0)
    classic = ClassicPart(10_000, (Protocol("range", b""),)) if is_classic else None
    for number in range(size):
        member = ConsumerMember(f"m{number}", topics=("t",), client_id="c", epoch=5)
        group.put(member._replace(classic=classic, regex="" if number else "t.*"))
    group.members = Members(group.members)
    return group


TOPICS = SimpleNamespace(topics={}, topic=lambda _: None, revision=1)


def beat_of(member_id, epoch, **fields):
    given = {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 9,
        "topics": None,
        "regex": None,
        "assignor": None,
        "owned": None,
    } | fields
    return machine.Heartbeat(
        member_id=member_id, epoch=epoch, client_id="c", client_host="", **given
    )


def hear(group, beat):
    settings = ConsumerSettings(45_000, 5_000, 1_000, 100_000)
    return machine.heartbeat(group, beat, TOPICS, 10**9 + 1, settings)


def idle_heartbeat(group):
    assert hear(group, beat_of("m5", 5, rebalance_timeout_ms=-1)).records == []


def a_join(group):
    decision = hear(group, beat_of("new", 0, topics=["t", "u"], regex="u.*", owned={}))
    assert decision.assignment_delay_ms, "it is too early for an assignment"
    assert len(decision.records) == 4  # The member, its expression, the epoch, where it is.


def another_subscription(group):
    assert hear(group, beat_of("m5", 5, topics=["u"])).records


def a_departure(group):
    found = at_once(machine.fence(group, [group.members["m0"]], TOPICS)).records
    assert len(found) == 3 + 1 + 1, "with the only one who had its expression"


def a_look_at_its_state(group):
    assert group.state is ConsumerGroupState.STABLE
    assert group.is_subscribed_to("t")
    group.topics_changed(["t"])
    assert group.is_stale
    assert preferred_assignor(group) == "uniform"


def a_classic_member(group):
    assert group.takes_classic("consumer", ["range"])
    assert not group.takes_classic("consumer", ["other"])
    assert not needs_targets(group)
    assert may_downgrade(group, {"m1"}, MigrationPolicy.BIDIRECTIONAL, members_max=200)


@pytest.mark.parametrize(
    "ask", [idle_heartbeat, a_join, another_subscription, a_departure, a_look_at_its_state]
)
def test_what_one_member_does_does_not_go_over_the_members(ask):
    group = group_of(100)
    ask(group)
    assert group.members.looks == 0


def test_what_a_classic_member_asks_does_not_go_over_the_members():
    group = group_of(100, is_classic=True)
    a_classic_member(group)
    assert group.members.looks == 0


def joined_of(size):
    group = ClassicGroup("g", 0)
    for number in range(size):
        step(group, join("", f"m{number}"), 0, SETTINGS)
    return group, step(group, events.JoinDelayOver(0, 0), 0, SETTINGS)


def test_a_rebalance_that_ends_leaves_what_the_members_are_told_for_later():
    _, few = joined_of(10)
    group, many = joined_of(500)
    assert list(map(type, many)) == list(map(type, few)), "not an effect for each of them"
    (told,) = [one for one in many if isinstance(one, events.Gradually)]
    step(group, events.Leave("", [events.LeavingMember("m7", None)]), 0, SETTINGS)
    answers = [one.answer for one in told.effects if isinstance(one, events.Answer)]
    assert [one.member_id for one in answers] == [f"m{number}" for number in range(500)]
    assert {(one.generation, one.leader, one.code.name) for one in answers} == {(1, "m0", "NONE")}
    assert [one.member_id for one in answers[0].members] == [one.member_id for one in answers]


def test_who_leads_next_is_looked_for_once_however_many_go():
    group, _ = joined_of(500)
    assert group.leader == "m0"
    group.members = Members(group.members)
    for number in range(400):
        group.remove(f"m{number}")
    assert group.members.looks == 0
    assert group.leader == "m400"
    assert group.leader == "m400"
    assert group.members.looks == 1


class Sizes(dict):
    """Counts how often a member's size is looked at."""

    looks = 0

    def __getitem__(self, key):
        self.looks += 1
        return super().__getitem__(key)


def looks_to_even_out(count):
    """Of so many members the first tenth has everything, ten each."""
    names = [f"m{number}" for number in range(count)]
    holders = names[: count // 10]
    loads = {name: {} for name in names}
    for rank, name in enumerate(holders):
        loads[name][b"t"] = set(range(10 * rank, 10 * rank + 10))
    sizes = Sizes({name: 10 * (name in holders) for name in names})
    assert at_once(even_out(b"t", names, loads, sizes))
    assert set(sizes.values()) == {1}
    assert {name: len(loads[name][b"t"]) for name in names} == dict.fromkeys(names, 1)
    return sizes.looks


def test_an_assignment_is_evened_out_without_a_look_at_all_members_for_each_move():
    small, large = looks_to_even_out(100), looks_to_even_out(800)
    assert large < 1.2 * 8 * small


READS_T = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff" * 4


def steps_of(steps):
    """How often it gives way, and what comes of it."""
    count = 0
    while True:
        try:
            assert next(steps) is None
        except StopIteration as end:
            return count, end.value
        count += 1


def test_very_many_topics_are_looked_at_in_steps():
    names = [f"t{number}" for number in range(10 * STRIDE)]
    count, found = steps_of(metadata_hash_of(set(names), TOPICS))
    assert (count >= 10, found) == (True, 0)
    group = group_of(3)
    group.put(ConsumerMember("reads all", topics=tuple(names), epoch=5))
    count, decision = steps_of(machine.fence(group, [group.members["m1"]], TOPICS))
    assert count == 0, "what is read is the same: there is nothing to look at"
    group.is_stale = True
    count, decision = steps_of(machine.fence(group, [group.members["m1"]], TOPICS))
    assert count >= 10
    assert len(decision.records) == 4


def test_a_large_group_changes_its_protocol_in_steps():
    group = ClassicGroup("g", 0)
    size = 10 * STRIDE
    for number in range(size):
        step(group, join("", f"m{number}", (Protocol("range", READS_T),)), 0, SETTINGS)
    step(group, events.JoinDelayOver(0, 0), 0, SETTINGS)
    count, upgrade = steps_of(upgraded(group, TOPICS))
    assert count >= 5 * 10, "what is read, read again, written, ... of each some at a time"
    assert len(upgrade.records) == 3 * size + 3
    upgrade.group.put(ConsumerMember("new"))
    count, downgrade = steps_of(downgraded(upgrade.group, {"new"}, None, TOPICS, 0))
    assert count >= 5 * 10
    assert set(downgrade.group.members) == set(group.members)
    assert downgrade.group.generation == group.generation


def test_ids_that_nobody_comes_back_with_are_forgotten_the_oldest_first():
    settings = SETTINGS._replace(pending_ids_max=3)
    group = ClassicGroup("g", 0)
    for number in range(5):
        asked = join("", f"m{number}")._replace(needs_known_member_id=True)
        effects = step(group, asked, 0, settings)
        (answer,) = [one.answer for one in effects if isinstance(one, events.Answer)]
        assert (answer.member_id, answer.code.name) == (f"m{number}", "MEMBER_ID_REQUIRED")
        cancelled = [one.member_id for one in effects if isinstance(one, events.CancelTimer)]
        assert cancelled == ([] if number < 3 else [f"m{number - 3}"])
    assert list(group.pending_joins) == ["m2", "m3", "m4"]
    (refused,) = step(group, join("m0"), 0, settings)
    assert refused.answer.code.name == "UNKNOWN_MEMBER_ID"
    step(group, join("m4"), 0, settings)
    assert list(group.members) == ["m4"]
    group.check()


def test_what_members_know_is_bounded_however_they_come():
    group = ClassicGroup("g", 0)
    settings = SETTINGS._replace(metadata_max_bytes=100)

    def code(*given, **named):
        effects = step(group, join(*given)._replace(**named), 0, settings)
        group.check()
        return [one.answer.code.name for one in effects if isinstance(one, events.Answer)]

    of_45, of_50, of_55, of_60 = ((Protocol("range", b"r" * (n - 5)),) for n in (45, 50, 55, 60))
    refused = ["GROUP_MAX_SIZE_REACHED"]
    assert code("", "a", of_50) == []
    assert code("", "s1", of_55, instance_id="s") == refused
    assert code("", "s1", of_45, instance_id="s") == []
    assert code("", "b", of_50) == refused
    assert group.metadata_bytes == 95
    # In the place of what the same member knew, whatever it is known by.
    assert code("a", "", of_60) == refused
    assert list(group.members) == ["a", "s1"]
    assert code("a", "", of_55) == ["REBALANCE_IN_PROGRESS"], "its former request is answered"
    assert code("", "s2", of_50, instance_id="s") == refused
    assert code("", "s2", of_45, instance_id="s") == ["FENCED_INSTANCE_ID"]
    assert (list(group.members), group.metadata_bytes) == (["a", "s2"], 100)
    # Names count as well.
    assert code("a", "", (Protocol("range", b""), Protocol("n" * 60, b""))) == refused


class BusyClock(ManualClock):
    """Each look at it tells that a millisecond has gone: work takes its time."""

    def monotonic(self):
        self.hold(0.001)
        return super().monotonic()


@pytest.fixture
def turns():
    """Turns whose next one comes with ``turns.next()``."""
    due = []
    turns = Turns(BusyClock(), call_soon=due.append)

    def take():
        work, due[:] = list(due), []
        for one in work:
            one()
        return bool(work)

    turns.next = take
    return turns


def test_the_answers_of_a_large_group_are_given_in_slices(turns):
    given = []
    answering = Answering(turns)
    answering.take(given.append, range(50))
    in_a_slice = len(given)
    assert 0 < in_a_slice < 10
    answering.take(given.append, ["later"])
    assert len(given) == in_a_slice, "they wait for those before them"
    while turns.next():
        assert len(given) - in_a_slice < 10
        in_a_slice = len(given)
    assert given == [*range(50), "later"]
    assert answering.is_idle


def test_an_answer_that_fails_does_not_keep_the_others(turns):
    given = []
    answering = Answering(turns)
    with pytest.raises(ZeroDivisionError):
        answering.take(lambda number: given.append(1 // number), [0, 1])
    turns.next()
    assert given == [1]
