"""The pure machine of classic groups does the right thing for each event in each state."""

import pytest

from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import (
    TRANSITIONS,
    ClassicGroup,
    GroupState,
    Protocol,
)
from ottla.coordinator.group.classic.machine import STEPS, step
from ottla.errors import ErrorCode

SETTINGS = events.ClassicSettings(initial_rebalance_delay_ms=3000, members_max=10)
RANGE, STICKY = Protocol("range", b"r"), Protocol("sticky", b"s")


def one_by_one(effects):
    for effect in effects:
        yield from effect.effects if isinstance(effect, events.Gradually) else (effect,)


class Machine:
    """A group, what was answered to whom, its timers, and what it wants written."""

    def __init__(self, settings=SETTINGS):
        self.group = ClassicGroup("g", 0)
        self.settings = settings
        self.now_ms = 0
        self.answers, self.timers, self.stores = {}, {}, []

    def happen(self, event):
        for effect in one_by_one(step(self.group, event, self.now_ms, self.settings)):
            if isinstance(effect, events.Answer):
                assert effect.reply not in self.answers, "answered twice"
                self.answers[effect.reply] = effect.answer
            elif isinstance(effect, events.SetTimer):
                self.timers[effect.kind, effect.member_id] = effect
            elif isinstance(effect, events.CancelTimer):
                self.timers.pop((effect.kind, effect.member_id), None)
            else:
                self.stores.append(effect)
        self.group.check()

    def fire(self, kind, member_id=""):
        self.happen(self.timers.pop((kind, member_id)).event)

    def join(self, reply, member_id="", **fields):
        given = {
            "new_member_id": f"id-{reply}",
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (RANGE,),
            "needs_known_member_id": False,
            "can_skip_assignment": True,
            "is_new_group": False,
        } | fields
        self.happen(events.Join(reply, member_id, **given))
        return self.answers.get(reply)

    def sync(self, reply, member_id, generation=None, assignments=None, **fields):
        given = {"instance_id": None, "protocol_type": None, "protocol": None} | fields
        generation = self.group.generation if generation is None else generation
        self.happen(
            events.Sync(
                reply, member_id, generation=generation, assignments=assignments or {}, **given
            )
        )
        return self.answers.get(reply)

    def beat(self, member_id, generation=None, instance_id=None):
        generation = self.group.generation if generation is None else generation
        self.happen(events.Heartbeat("beat", member_id, instance_id, generation))
        return self.answers.pop("beat")

    def leave(self, *members):
        self.happen(events.Leave("leave", [events.LeavingMember(*one) for one in members]))
        return [answer.code for answer in self.answers.pop("leave")]

    def written(self, code=ErrorCode.NONE):
        """Let everything that was to be written be durable, or fail."""
        stores, self.stores = self.stores, []
        for store in stores:
            if isinstance(store, events.Store) and store.stored is not None:
                self.happen(store.stored._replace(code=code))

    def stable(self, *names, **fields):
        """Let the first generation of some members be stable; returns their ids."""
        for name in names:
            self.join(name, **fields)
        self.fire(events.TimerKind.JOIN)
        if self.group.state is GroupState.PREPARING_REBALANCE:
            self.fire(events.TimerKind.JOIN)
        ids = [self.answers.pop(name).member_id for name in names]
        for name, member_id in zip(names, ids, strict=True):
            assignments = {one: one.encode() for one in ids}
            self.sync(name, member_id, assignments=assignments)
        self.written()
        for name, member_id in zip(names, ids, strict=True):
            assert self.answers.pop(name).assignment == member_id.encode()
        assert self.group.state is GroupState.STABLE
        return ids


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def make_machine():
    return Machine


JOIN, SYNC, SESSION = events.TimerKind.JOIN, events.TimerKind.SYNC, events.TimerKind.SESSION


def test_the_transition_table_is_kafkas():
    table = {state.value: {one.value for one in after} for state, after in TRANSITIONS.items()}
    assert table == {
        "Empty": {"PreparingRebalance", "Dead"},
        "PreparingRebalance": {"Empty", "CompletingRebalance", "Dead"},
        "CompletingRebalance": {"PreparingRebalance", "Stable", "Dead"},
        "Stable": {"PreparingRebalance", "Dead"},
        "Dead": {"Dead"},
    }
    group = ClassicGroup("g", 0)
    with pytest.raises(AssertionError):
        group.transition(GroupState.STABLE, 0)


def test_every_event_has_a_step():
    assert set(STEPS) == set(events.Event.__args__)


def test_the_first_rebalance_waits_for_more_members(machine):
    machine.join("a")
    assert machine.timers[JOIN, ""].delay_ms == 3000
    machine.join("b")
    machine.fire(JOIN)  # Somebody came: it waits once more.
    assert not machine.answers
    machine.fire(JOIN)
    leader, follower = machine.answers["a"], machine.answers["b"]
    assert (leader.generation, leader.leader, leader.protocol) == (1, "id-a", "range")
    assert [one.member_id for one in leader.members] == ["id-a", "id-b"]
    assert (follower.leader, follower.members) == ("id-a", ())


def test_the_initial_delay_ends_with_the_rebalance_timeout(machine):
    waited = 0
    machine.join("first", rebalance_timeout_ms=7000)
    for number in range(10):
        machine.join(number, rebalance_timeout_ms=7000)
        waited += machine.timers[JOIN, ""].delay_ms
        machine.fire(JOIN)
        if machine.answers:
            break
    assert waited == 3000 + 3000 + 1000
    assert machine.group.state is GroupState.COMPLETING_REBALANCE


def test_assignments_are_handed_out_when_they_are_durable(machine):
    for name in "ab":
        machine.join(name)
    machine.fire(JOIN)
    machine.fire(JOIN)
    machine.answers.clear()
    machine.sync("a", "id-a", assignments={"id-a": b"A"})
    machine.sync("b", "id-b")
    assert not machine.answers
    (store,) = machine.stores
    assert store.assignments == {"id-a": b"A", "id-b": b""}
    machine.written()
    assert machine.answers["a"] == (ErrorCode.NONE, "consumer", "range", b"A")
    assert machine.answers["b"].assignment == b""
    assert machine.group.state is GroupState.STABLE
    assert machine.sync("again", "id-a").assignment == b"A"


def test_an_assignment_that_cannot_be_written_starts_over(machine):
    for name in "ab":
        machine.join(name)
    machine.fire(JOIN)
    machine.fire(JOIN)
    machine.answers.clear()
    machine.sync("a", "id-a")
    machine.sync("b", "id-b")
    machine.written(ErrorCode.NOT_COORDINATOR)
    assert {machine.answers[name].code for name in "ab"} == {ErrorCode.NOT_COORDINATOR}
    assert machine.group.state is GroupState.PREPARING_REBALANCE


def test_an_assignment_of_an_earlier_generation_comes_too_late(machine):
    a, b = machine.stable("a", "b")
    machine.join("a2", a)
    machine.join("b2", b)
    machine.sync("a3", a, assignments={a: b"old"})
    stores, machine.stores = machine.stores, []
    machine.join("c")  # A new member while the assignment is being written.
    assert machine.answers["a3"].code is ErrorCode.REBALANCE_IN_PROGRESS
    machine.stores = stores
    machine.written()
    assert machine.group.state is GroupState.PREPARING_REBALANCE


def test_a_new_member_makes_all_join_again(machine):
    a, b = machine.stable("a", "b")
    machine.join("c")
    assert machine.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    machine.join("a", a)
    assert not machine.answers
    machine.join("b", b)
    assert {machine.answers[name].generation for name in "abc"} == {2}
    assert machine.beat(a, 1) is ErrorCode.ILLEGAL_GENERATION
    assert machine.beat(a) is ErrorCode.NONE


def test_who_does_not_join_in_time_is_dropped(machine):
    a, b = machine.stable("a", "b")
    machine.join("c")
    machine.join("b", b)
    machine.fire(JOIN)
    assert set(machine.group.members) == {b, "id-c"}
    assert machine.answers["b"].leader == b, "somebody who is there leads"
    assert machine.beat(a) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_never_syncs_is_dropped(machine):
    for name in "ab":
        machine.join(name)
    machine.fire(JOIN)
    machine.fire(JOIN)
    machine.answers.clear()
    machine.sync("a", "id-a")
    machine.written()
    machine.fire(SYNC)
    assert list(machine.group.members) == ["id-a"]
    assert machine.group.state is GroupState.PREPARING_REBALANCE


def test_a_silent_member_is_dropped(machine):
    a, b = machine.stable("a", "b")
    machine.fire(SESSION, b)
    assert list(machine.group.members) == [a]
    assert machine.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_waits_for_us_is_not_silent(machine):
    a, b = machine.stable("a", "b")
    machine.join("c")
    machine.join("a", a)
    machine.fire(SESSION, a)
    assert a in machine.group.members
    machine.fire(SESSION, b)
    assert {machine.answers[name].generation for name in "ac"} == {2}


def test_a_new_member_whose_client_went_away_is_given_up(machine):
    machine.stable("a")
    machine.join("c", session_timeout_ms=10_000)
    assert machine.timers[SESSION, "id-c"].delay_ms == 300_000
    machine.fire(SESSION, "id-c")
    assert machine.answers["c"].code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_to_leave_empties_the_group(machine):
    (a,) = machine.stable("a")
    assert machine.leave((a, None)) == [ErrorCode.NONE]
    assert machine.group.state is GroupState.EMPTY
    assert machine.group.generation == 2
    (store,) = machine.stores
    assert store == ({}, None)
    assert (machine.group.leader, machine.group.protocol) == (None, None)
    assert machine.join("a", a).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.beat(a) is ErrorCode.UNKNOWN_MEMBER_ID


def test_all_may_leave_before_the_first_generation(machine):
    machine.join("a")
    assert machine.leave(("id-a", None)) == [ErrorCode.NONE]
    assert machine.answers["a"].code is ErrorCode.UNKNOWN_MEMBER_ID
    machine.fire(JOIN)
    assert machine.group.state is GroupState.EMPTY


def test_a_member_without_an_id_is_sent_away_with_one(machine):
    sent = machine.join("x", needs_known_member_id=True, is_new_group=True)
    assert (sent.code, sent.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "id-x")
    assert machine.stores == [events.StoreNew("x")]
    assert machine.timers[SESSION, "id-x"].delay_ms == 10_000
    machine.join("a", "id-x", needs_known_member_id=True)
    machine.fire(JOIN)
    assert machine.answers["a"].member_id == "id-x"


def test_an_id_that_nobody_comes_back_with_holds_nobody_up_for_long(machine):
    (a,) = machine.stable("a")
    machine.join("x", needs_known_member_id=True)
    assert machine.group.state is GroupState.STABLE
    machine.join("a2", a)
    assert "a2" not in machine.answers
    machine.fire(SESSION, "id-x")
    assert machine.answers["a2"].generation == 2


def test_an_id_may_leave_before_it_joins(machine):
    machine.stable("a")
    machine.join("x", needs_known_member_id=True)
    assert machine.leave(("id-x", None)) == [ErrorCode.NONE]
    assert not machine.group.pending_joins


def test_the_protocol_that_all_know_and_most_like(machine):
    machine.join("a", protocols=(STICKY, RANGE))
    machine.join("b", protocols=(STICKY, RANGE))
    machine.join("c", protocols=(RANGE, STICKY))
    machine.fire(JOIN)
    machine.fire(JOIN)
    assert machine.answers["a"].protocol == "sticky"
    assert [one.metadata for one in machine.answers["a"].members] == [b"s"] * 3
    refused = machine.join("d", protocols=(Protocol("roundrobin", b""),))
    assert refused.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = machine.join("e", protocol_type="connect")
    assert refused.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_for_another_protocol(machine):
    (a,) = machine.stable("a")
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert machine.sync("x", a, protocol_type="connect").code is wrong
    assert machine.sync("y", a, protocol="sticky").code is wrong
    assert machine.sync("z", a, protocol_type="consumer", protocol="range").code is ErrorCode.NONE


def test_a_follower_that_joins_a_stable_group_again_is_told_what_is(machine):
    a, b = machine.stable("a", "b")
    assert machine.join("b2", b).generation == 1
    assert machine.group.state is GroupState.STABLE
    machine.join("b3", b, protocols=(Protocol("range", b"other topics"),))
    assert machine.group.state is GroupState.PREPARING_REBALANCE
    machine.join("a2", a)
    assert machine.answers["a2"].generation == 2


def test_a_leader_that_joins_a_stable_group_again_wants_a_rebalance(machine):
    (a,) = machine.stable("a")
    assert machine.join("a2", a).generation == 2


def test_a_member_that_lost_the_answer_to_its_join(machine):
    for name in "ab":
        machine.join(name)
    machine.fire(JOIN)
    machine.fire(JOIN)
    assert machine.join("a2", "id-a").members == machine.answers["a"].members
    assert machine.join("b2", "id-b").members == ()
    assert machine.group.generation == 1


def test_no_more_members_than_may_be(make_machine):
    machine = make_machine(SETTINGS._replace(members_max=2))
    a, b = machine.stable("a", "b")
    assert machine.join("c").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    machine.join("a2", a)
    machine.join("b2", b)
    assert machine.group.generation == 2


def test_a_loaded_group_with_too_many_members_keeps_those_who_come_first(make_machine):
    machine = make_machine()
    a, b, c = machine.stable("a", "b", "c")
    machine.settings = SETTINGS._replace(members_max=2)
    machine.happen(events.RejoinAll())
    machine.join("b", b)
    machine.join("c", c)
    assert machine.join("a", a).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert machine.answers["b"].generation == 2
    assert set(machine.group.members) == {b, c}


# Static members (KIP-345).


def stable_static(machine, *names):
    for name in names:
        machine.join(name, instance_id=f"i-{name}")
    machine.fire(JOIN)
    if machine.group.state is GroupState.PREPARING_REBALANCE:
        machine.fire(JOIN)
    for name in names:
        ids = {f"id-{one}": one.encode() for one in names}
        machine.sync(f"sync-{name}", f"id-{name}", assignments=ids, instance_id=f"i-{name}")
    machine.written()
    machine.answers.clear()
    return [f"id-{name}" for name in names]


@pytest.mark.parametrize("is_skipped", [True, False])
def test_a_static_leader_comes_back_without_a_rebalance(machine, is_skipped):
    a, b = stable_static(machine, "a", "b")
    machine.join("new", instance_id="i-a", can_skip_assignment=is_skipped)
    assert "new" not in machine.answers, "not before its new id is durable"
    (store,) = machine.stores
    assert store.assignments == {"id-new": b"a", b: b"b"}
    machine.written()
    answer = machine.answers["new"]
    assert (answer.generation, answer.member_id) == (1, "id-new")
    assert answer.skip_assignment is is_skipped
    assert answer.leader == ("id-new" if is_skipped else a)
    assert len(answer.members) == (2 if is_skipped else 0)
    assert machine.group.state is GroupState.STABLE
    assert machine.sync("s", "id-new", instance_id="i-a").assignment == b"a"
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert machine.beat(a, 1, "i-a") is fenced
    assert machine.sync("old", a, instance_id="i-a").code is fenced
    assert machine.join("old2", a, instance_id="i-a").code is fenced
    assert machine.leave((a, "i-a")) == [fenced]


def test_a_static_member_whose_new_id_cannot_be_written_stays_what_it_was(machine):
    a, _ = stable_static(machine, "a", "b")
    machine.join("new", instance_id="i-a", session_timeout_ms=20_000)
    machine.written(ErrorCode.NOT_COORDINATOR)
    assert machine.answers["new"].code is ErrorCode.NOT_COORDINATOR
    assert machine.group.static_members["i-a"] == a
    assert machine.group.members[a].session_timeout_ms == 10_000
    assert machine.group.leader == a


def test_a_static_member_comes_back_during_a_rebalance(machine):
    a, b = stable_static(machine, "a", "b")
    machine.join("new", instance_id="i-b")
    machine.join("c")  # Before the new id of b is durable.
    machine.written()
    assert "new" not in machine.answers
    machine.join("a2", a, instance_id="i-a")
    assert {machine.answers[name].generation for name in ("new", "a2", "c")} == {2}
    assert machine.answers["new"].member_id == "id-new"
    assert b not in machine.group.members


def test_a_static_member_that_comes_twice_fences_the_first(machine):
    machine.join("a", instance_id="i")
    machine.join("b", instance_id="i")
    assert machine.answers["a"].code is ErrorCode.FENCED_INSTANCE_ID
    machine.fire(JOIN)
    assert machine.answers["b"].generation == 1
    machine.sync("s", "id-b", instance_id="i")
    machine.join("c", instance_id="i")
    assert machine.answers["s"].code is ErrorCode.FENCED_INSTANCE_ID
    assert machine.answers["c"].generation == 2


def test_a_static_member_that_does_not_join_in_time_stays(machine):
    a, b = stable_static(machine, "a", "b")
    machine.join("c")
    machine.fire(JOIN)
    assert set(machine.group.members) == {a, b, "id-c"}
    assert machine.answers["c"].leader == "id-c"


def test_static_members_alone_are_waited_for(machine):
    a, b = stable_static(machine, "a", "b")
    machine.fire(SESSION, a)
    machine.fire(JOIN)
    assert machine.group.state is GroupState.PREPARING_REBALANCE
    assert list(machine.group.members) == [b]
    machine.join("b2", b, instance_id="i-b")
    assert machine.answers["b2"].generation == 2


def test_a_static_member_leaves_by_its_name(machine):
    stable_static(machine, "a", "b")
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.leave(("", "i-a"), ("", "who"), ("", None), ("who", None)) == [
        ErrorCode.NONE,
        unknown,
        unknown,
        unknown,
    ]
    assert list(machine.group.static_members) == ["i-b"]


def test_a_static_member_with_another_protocol_starts_a_rebalance(machine):
    stable_static(machine, "a")
    machine.join("new", instance_id="i-a", protocols=(STICKY, RANGE))
    assert (machine.answers["new"].generation, machine.answers["new"].protocol) == (2, "sticky")


def test_a_member_of_an_unknown_instance(machine):
    (a,) = machine.stable("a")
    assert machine.beat(a, 1, "who") is ErrorCode.UNKNOWN_MEMBER_ID
