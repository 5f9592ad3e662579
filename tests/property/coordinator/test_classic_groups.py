"""Classic groups under any order of events: never a wrong state, never a stuck member.

Safety: the machine's invariants, one answer per request, generations only grow, an assignment has
one owner per generation. A restart makes the group anew from what was durable: no generation whose
assignments were handed out is forgotten or given again. Liveness: once nothing more goes wrong, the
members that are there get a common generation, or the group is empty.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinator.group.classic import events, records
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState, Protocol
from ottla.coordinator.group.classic.machine import step
from ottla.coordinator.group.classic.rebalance import session_timer
from ottla.coordinator.records import StoredRecord
from ottla.errors import ErrorCode

PROTOCOLS = [
    (Protocol("range", b"1"),),
    (Protocol("range", b"2"), Protocol("sticky", b"")),
    (Protocol("sticky", b""),),
]
ids = st.sampled_from([f"id-{number}" for number in range(12)])
instances = st.sampled_from([None, None, "i1", "i2"])
numbers = st.integers(0, 10**6)


class ClassicGroups(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.group = ClassicGroup("g", 0)
        self.settings = events.ClassicSettings(3000, members_max=4)
        self.waiting = {}
        self.timers = {}
        self.stores = []
        self.generation = 0
        self.made = 0
        self.given = {}
        """Who got an assignment, by generation and assignment."""
        self.durable = None

    def happen(self, event):
        self.carry_out(step(self.group, event, self.made, self.settings))
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    def carry_out(self, effects):
        for effect in effects:
            if isinstance(effect, events.Answer):
                request = self.waiting.pop(effect.reply)  # KeyError: answered twice.
                self.answered(request, effect.answer)
            elif isinstance(effect, events.SetTimer):
                assert effect.delay_ms >= 0
                self.timers[effect.kind, effect.member_id] = effect.event
            elif isinstance(effect, events.CancelTimer):
                self.timers.pop((effect.kind, effect.member_id), None)
            elif isinstance(effect, events.Gradually):
                self.carry_out(effect.effects)
            elif isinstance(effect, events.Store):
                record = records.group_record(self.group, effect.assignments)
                self.stores.append((effect, record))

    def answered(self, request, answer):
        if isinstance(request, events.Join) and answer.code is ErrorCode.NONE:
            assert answer.generation == self.group.generation
            member = self.group.members[answer.member_id]
            assert any(one.name == answer.protocol for one in member.protocols)
        if isinstance(request, events.Sync) and answer.code is ErrorCode.NONE:
            assert request.generation == self.group.generation
            if answer.assignment:
                given = (request.generation, answer.assignment)
                owner = self.given.setdefault(given, request)
                is_owner = owner.member_id == request.member_id
                # A static member keeps what it had, under another id.
                is_owner |= owner.instance_id == request.instance_id is not None
                assert is_owner, "one owner per assignment and generation"
                assert self.durable is not None, "what is handed out survives"

    def reply(self):
        self.made += 1
        return self.made

    @rule(
        member_id=st.one_of(st.just(""), ids),
        instance_id=instances,
        protocols=st.sampled_from(PROTOCOLS),
        flags=st.tuples(st.booleans(), st.booleans()),
    )
    def join(self, member_id, instance_id, protocols, flags):
        reply = self.reply()
        event = events.Join(
            reply, member_id, f"id-{reply % 12}" if reply > 12 else f"id-{reply}-", instance_id,
            "c", "/h", 10_000, 60_000, "consumer", protocols, *flags, is_new_group=False,
        )  # fmt: skip
        if event.new_member_id in self.group.members or (
            event.new_member_id in self.group.pending_joins
        ):
            return  # Ids are random: they do not come twice.
        self.waiting[reply] = event
        self.happen(event)

    @rule(number=numbers)
    def join_again(self, number):
        """As a member does that is told to: with what it said before."""
        members = list(self.group.members.values())
        if members:
            member = members[number % len(members)]
            self.rejoin(member)

    def rejoin(self, member):
        reply = self.reply()
        event = events.Join(
            reply, member.member_id, "", member.instance_id, "c", "/h", 10_000, 60_000,
            "consumer", member.protocols, True, True, is_new_group=False,
        )  # fmt: skip
        self.waiting[reply] = event
        self.happen(event)

    @rule(number=numbers, back=st.integers(0, 1))
    def sync(self, number, back):
        members = list(self.group.members.values())
        if members:
            self.send_sync(members[number % len(members)], self.group.generation - back)

    def send_sync(self, member, generation):
        reply = self.reply()
        assignments = {}
        if member.member_id == self.group.leader:
            assignments = {one: f"{generation}-{one}".encode() for one in self.group.members}
        event = events.Sync(
            reply, member.member_id, member.instance_id, generation, None, None, assignments
        )
        self.waiting[reply] = event
        self.happen(event)

    @rule(member_id=ids, instance_id=instances, generation=st.integers(-1, 5))
    def heartbeat(self, member_id, instance_id, generation):
        reply = self.reply()
        self.waiting[reply] = event = events.Heartbeat(reply, member_id, instance_id, generation)
        self.happen(event)

    @rule(member_id=st.one_of(st.just(""), ids), instance_id=instances, number=numbers)
    def leave(self, member_id, instance_id, number):
        members = list(self.group.members)
        if members and number % 2:
            member_id, instance_id = members[number % len(members)], None
        reply = self.reply()
        leaving = [events.LeavingMember(member_id, instance_id)]
        self.waiting[reply] = event = events.Leave(reply, leaving)
        self.happen(event)

    @precondition(lambda self: self.timers)
    @rule(number=numbers)
    def time_passes(self, number):
        self.happen(self.timers.pop(list(self.timers)[number % len(self.timers)]))

    @precondition(lambda self: self.stores)
    @rule(is_written=st.booleans())
    def store_ends(self, is_written):
        self.end_store(ErrorCode.NONE if is_written else ErrorCode.NOT_COORDINATOR)

    def end_store(self, code):
        store, record = self.stores.pop(0)
        if code is ErrorCode.NONE:
            self.durable = record
        if store.stored is not None:
            self.happen(store.stored._replace(code=code))

    @rule(number=numbers)
    def restart(self, number):
        """Some of the writes in flight were done; who waits for an answer gets none."""
        for _, record in self.stores[: number % (len(self.stores) + 1)]:
            self.durable = record
        self.stores.clear()
        self.waiting.clear()
        self.timers.clear()
        self.group = ClassicGroup("g", 0)
        if self.durable is not None:
            self.group = records.read_group("g", StoredRecord(0, -1, *self.durable))
        self.generation = self.group.generation
        handed_out = max((generation for generation, _ in self.given), default=0)
        assert self.generation >= handed_out, "a generation would come twice"
        for (generation, assignment), owner in self.given.items():
            member = self.group.members.get(owner.member_id)
            if generation == self.generation and member is not None:
                assert member.assignment == assignment
        for member in self.group.members.values():
            self.carry_out([session_timer(member)])

    @invariant()
    def holds(self):
        self.group.check()
        waits = {one.awaiting_join for one in self.group.members.values()} | {
            one.awaiting_sync for one in self.group.members.values()
        }
        waits |= {
            store.stored.join.reply
            for store, _ in self.stores
            if isinstance(store.stored, events.StaticMemberStored)
        }
        assert set(self.waiting) <= waits, "a request that nobody will ever answer"
        if self.group.state is GroupState.PREPARING_REBALANCE:
            assert (events.TimerKind.JOIN, "") in self.timers, "nothing would end this rebalance"
        if self.group.state is GroupState.COMPLETING_REBALANCE and self.group.pending_syncs:
            assert (events.TimerKind.SYNC, "") in self.timers

    def teardown(self):
        """From here on nothing goes wrong."""
        for _ in range(30):
            if self.is_settled() and not self.stores:
                break
            self.cooperate()
        assert self.is_settled()

    def is_settled(self):
        state = self.group.state
        return state in (GroupState.EMPTY, GroupState.STABLE) and not self.waiting

    @rule()
    def cooperate(self):
        """Members do what they are told, and writes end."""
        while self.stores:
            self.end_store(ErrorCode.NONE)
        for member in list(self.group.members.values()):
            known = self.group.members.get(member.member_id)
            if known is None or known.awaiting_join is not None:
                continue
            if self.group.state is GroupState.PREPARING_REBALANCE:
                self.rejoin(known)
            elif (
                self.group.state is GroupState.COMPLETING_REBALANCE and known.awaiting_sync is None
            ):
                self.send_sync(known, self.group.generation)
        while self.stores:
            self.end_store(ErrorCode.NONE)
        if self.group.state is GroupState.PREPARING_REBALANCE:
            self.happen(self.timers.pop((events.TimerKind.JOIN, "")))


ClassicGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestClassicGroups = ClassicGroups.TestCase
