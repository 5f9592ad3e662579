"""Members of consumer groups, classic and KIP-848: they read what they are given.

Judged at once: nobody else may be given a partition that a living member of the same group has not
given up. A member that was not heard for half a session counts as gone. What they commit is judged
as every commit is.
"""

import uuid

from ottla.client.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    RANGE,
    assign_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.ids import TopicPartition
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.campaigns.administering.history import Call, Commit, Verdict
from tests.simulation.clients.base import COMES_BACK, NOT_THE_COORDINATOR, Client
from tests.simulation.clients.readers import (
    EARLIEST,
    GROUP,
    commit_request,
    fetch_request,
    list_offset,
    read_of,
)

SESSION_SECONDS = 10.0
ANEW = {22, 25, 27, 69, 82, 110, 113}
"""Codes of a group that goes on without this member as it is: it begins anew."""
MEMBER_ID_REQUIRED = 79
FENCED = {25, 69, 110}
GROUPS_FROM = 4
"""So many members are of more than one group."""
LINGERS_SECONDS = 6.0
"""How long a member may work on with what it has to give up: less than its rebalance timeout, and
than two heartbeats besides."""


def owned_by_topic(owned):
    """Return partitions, pairs of a topic's id and a number, as a heartbeat tells them."""
    by_topic = {}
    for topic_id, partition in sorted(owned, key=str):
        by_topic.setdefault(topic_id, []).append(partition)
    return [
        TopicPartitions(topic_id=topic_id.bytes, partitions=partitions)
        for topic_id, partitions in by_topic.items()
    ]


def join_request(group, member_id, topic_names):
    """Return the request of a classic member that wants to read these topics."""
    metadata = encode_subscription(sorted(topic_names) or ["none"])
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=int(SESSION_SECONDS * 1000),
        rebalance_timeout_ms=15_000,
        member_id=member_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=metadata)],
    )


def sync_request(group, joined, partition_counts):
    """Return the request of a classic member that has joined: as leader it assigns.

    ``joined``: the answer of JoinGroup. ``partition_counts``: of the topics that it knows, by name.
    """
    assignments = []
    if joined.leader == joined.member_id:
        wanted = {
            one.member_id: [n for n in decode_subscription(one.metadata) if n in partition_counts]
            for one in joined.members
        }
        given = assign_range(wanted, partition_counts)
        assignments = [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(given.get(member_id, []))
            )
            for member_id in wanted
        ]
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=RANGE,
        assignments=assignments,
    )


def places_of(assignment, topics):
    """Return what an answer of SyncGroup assigns: pairs of a topic's id and a partition."""
    by_name = {topic.name: topic.topic_id for topic in topics}
    assigned = [TopicPartition(*one) for one in decode_assignment(assignment)]
    return {(by_name[one.topic], one.partition) for one in assigned if one.topic in by_name}


class Member(Client):
    """What both kinds share: reading and committing what is theirs."""

    async def heard(self, asked_at=None):
        """Take note that the group counted this member when it asked; None: just now."""
        self.last_heard = self.world.loop.now if asked_at is None else asked_at

    def __init__(self, world, number):
        super().__init__(world, number)
        # A member that is alone has nobody to share with.
        count = world.mix.group_count if world.mix.clients[self.kind] >= GROUPS_FROM else 1
        self.group = f"{self.kind}-{number % count}"
        self.member_id = ""
        self.epoch = -1
        """Generation, or member epoch."""
        self.owned = set()
        """Places: topic id and partition."""
        self.last_heard = -SESSION_SECONDS
        self._positions = {}
        self._former = None
        """As whom it left the group: member id and epoch, and in which life of the node."""
        self._timeout_ms = 30_000
        world.members.setdefault(self.group, []).append(self)

    def has_left(self, code):
        """Take note of an answer: who it was until now is no member any more."""
        if code == 0:
            self._former = (self.member_id, self.epoch, self.world.node.lives)

    def give_up_all(self):
        self.owned = set()
        self._positions.clear()

    def take(self, places):
        """Own these from now on. Nobody else who is alive may have one of them.

        Who learns it by an answer that a cut has held up may be none of the group any more.
        """
        now = self.world.loop.now
        is_late = now - self.last_heard > SESSION_SECONDS / 2
        for other in self.world.members[self.group]:
            if other is self or is_late or now - other.last_heard > SESSION_SECONDS / 2:
                continue
            both = other.owned & places
            if both and self.is_same_time(other):
                topic_id, partition = min(both, key=str)
                where = f"{self.group}: {topic_id}-{partition}"
                self.world.problem(f"{where} is given to {self.name} while {other.name} has it")
        self.owned = set(places)
        for place in list(self._positions):
            if place not in places:
                del self._positions[place]
        self.world.trace.note("owns", self.name, self.epoch, len(places))

    def is_same_time(self, other):
        return True

    async def read(self):
        """Read some of what is owned, and commit some of it."""
        topics = {topic.topic_id: topic for topic in self.history.living()}
        places = sorted((place for place in self.owned if place[0] in topics), key=str)
        if not places:
            return
        place = self.random.choice(places)
        topic = topics[place[0]]
        if place not in self._positions:
            code, offset = await list_offset(self, topic, place[1], EARLIEST)
            if code or place not in self.owned:
                return
            self._positions[place] = offset
        request = fetch_request([(*place, self._positions[place])], isolation=1, wait_ms=100)
        told = (await self.call(request, FetchResponse)).responses[0].partitions[0]
        if told.error_code:
            self._positions.pop(place, None)
            return
        read, _ = read_of(told)
        if read and place in self._positions:
            self._positions[place] = max(self._positions[place], read[-1].end_offset)
        if place in self._positions and self.random.random() < 0.5:
            await self._commit(place)
        if self._former is not None and place in self._positions and self.random.random() < 0.2:
            await self._commit_as_former(place)

    async def _commit_as_former(self, place):
        """Commit as a process does that has not noticed that it was given up."""
        member_id, epoch, life = self._former
        if life != self.world.node.lives:
            self._former = None  # That somebody left need not outlive the node.
            return
        commit = Commit(0, Call())
        self.history.commits[self.group, *place].append(commit)
        code = await self._ask_to_commit(place, 0, member_id, epoch)
        self.world.coverage.answered(f"OffsetCommit of a former {self.kind}", code)
        if code == 0:
            commit.call.answer(Verdict.OK)
            text = f"a commit of a member that has left counts: {member_id}, epoch {epoch}"
            self.world.problem(f"{self.group}: {text}")
        elif code in ANEW:
            commit.call.answer(Verdict.FAIL)

    async def _ask_to_commit(self, place, offset, member_id, epoch):
        request = commit_request(self.group, place, offset, member_id=member_id, epoch=epoch)
        answer = await self.call(request, OffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code

    async def _commit(self, place):
        offset = self._positions[place]
        commit = Commit(offset, Call())
        self.history.commits[self.group, *place].append(commit)
        code = await self._ask_to_commit(place, offset, self.member_id, self.epoch)
        self.world.coverage.answered(f"OffsetCommit of {self.kind}", code)
        if code == 0:
            commit.call.answer(Verdict.OK)
            self.history.count("offsets committed by members")
        elif code in ANEW:
            commit.call.answer(Verdict.FAIL)


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat; the leader assigns by range."""

    kind = "classic"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._must_join = True

    def is_same_time(self, other):
        # Who has not heard of the newest generation may still think that it owns something.
        return other.epoch == self.epoch

    async def step(self):
        if self._must_join:
            await self._join()
            return
        code = (
            await self.call(
                HeartbeatRequest(
                    group_id=self.group, generation_id=self.epoch, member_id=self.member_id
                ),
                HeartbeatResponse,
            )
        ).error_code
        self.world.coverage.answered("Heartbeat", code)
        if code == 0:
            await self.heard()
            await self.read()
        else:
            await self._lost(code)
        if self.random.random() < 0.02:
            await self._leave()

    async def pause(self):
        await self.world.sleep(self.random.random() * SESSION_SECONDS / 5)

    async def _lost(self, code):
        self._must_join = True
        if code in NOT_THE_COORDINATOR:
            await self.find_coordinator(GROUP, self.group)
        elif code in ANEW and code != 27:
            self.give_up_all()
            if code in FENCED:
                self.member_id = ""

    async def _join(self):
        names = {topic.name for topic in self.history.living()}
        request = join_request(self.group, self.member_id, names)
        answer = await self.call(request, JoinGroupResponse)
        self.world.coverage.answered("JoinGroup", answer.error_code)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if answer.error_code:
            await self._lost(answer.error_code)
            return
        self.give_up_all()
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        await self._sync(answer)

    async def _sync(self, joined):
        counts = {topic.name: topic.partition_count for topic in self.history.living()}
        request = sync_request(self.group, joined, counts)
        answer = await self.call(request, SyncGroupResponse)
        self.world.coverage.answered("SyncGroup", answer.error_code)
        if answer.error_code:
            await self._lost(answer.error_code)
            return
        self._must_join = False
        await self.heard()
        self.take(places_of(answer.assignment, self.history.living()))

    async def _leave(self):
        request = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(member_id=self.member_id)]
        )
        self.give_up_all()
        self._must_join = True
        answer = await self.call(request, LeaveGroupResponse)
        codes = [answer.error_code, *(one.error_code for one in answer.members)]
        self.has_left(max(codes))
        self.member_id = ""


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat: the server assigns, the member gives up first and says so."""

    kind = "consumer"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._begin_anew()

    def _begin_anew(self):
        self.member_id = str(uuid.UUID(int=self.random.getrandbits(128)))
        self.epoch = 0
        self._is_new = True
        self._lingering = set()
        """Places that it has to give up, and still works with."""
        self._lingers_until = 0.0
        self._has_heard = False
        """The last heartbeat was answered: what has to be given up is news now."""

    async def step(self):
        await self._beat()
        if not self._is_new:
            await self.read()
        if self.random.random() < 0.02:
            await self._leave()

    async def pause(self):
        await self.world.sleep(self.random.random() * 3)

    def _let_go(self):
        """Give up what it has lingered with for long enough."""
        if self._lingering and self.world.loop.now >= self._lingers_until:
            self.owned -= self._lingering
            self._lingering = set()

    def _assigned(self, places, asked_at):
        """Own these, and for a while what is not among them any more.

        The while counts from before the coordinator can have begun to wait for it.
        """
        now = self.world.loop.now
        left = self.owned - places
        if not self._lingering and self._has_heard and self.random.random() < 0.5:
            self._lingers_until = asked_at + self.random.random() * LINGERS_SECONDS
            self._lingering = left
        self._lingering = self._lingering & left if now < self._lingers_until else set()
        self.take(places | self._lingering)

    async def _beat(self):
        names = sorted({topic.name for topic in self.history.living()}) or ["none"]
        self._let_go()
        is_whole = self._is_new or not self._has_heard
        asked_at = self.world.loop.now
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            # Whole after an answer that was lost, as real clients ask: it may have told them to
            # give up something, which is told once.
            rebalance_timeout_ms=15_000 if is_whole else -1,
            subscribed_topic_names=names,
            server_assignor="uniform" if is_whole else None,
            topic_partitions=owned_by_topic(self.owned),
        )
        had_heard, self._has_heard = self._has_heard, False
        answer = await self.call(request, ConsumerGroupHeartbeatResponse)
        self._has_heard = had_heard
        self._let_go()
        self.world.coverage.answered("ConsumerGroupHeartbeat", answer.error_code)
        code = answer.error_code
        if code == 0:
            self._is_new = False
            self.epoch = answer.member_epoch
            await self.heard(asked_at)
            if answer.assignment is not None:
                places = {
                    (uuid.UUID(bytes=one.topic_id), partition)
                    for one in answer.assignment.topic_partitions
                    for partition in one.partitions
                }
                self._assigned(places, asked_at)
            self._has_heard = True
        elif code in NOT_THE_COORDINATOR:
            await self.find_coordinator(GROUP, self.group)
        elif code in ANEW:
            self.give_up_all()
            self._begin_anew()
        elif code not in COMES_BACK:
            self.world.problem(
                f"{self.name}: ConsumerGroupHeartbeat: {code} {answer.error_message}"
            )

    async def _leave(self):
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=-1
        )
        self.give_up_all()
        answer = await self.call(request, ConsumerGroupHeartbeatResponse)
        self.has_left(answer.error_code)
        self._begin_anew()
