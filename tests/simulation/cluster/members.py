"""Members of groups whose coordinator may move, of both protocols: KIP-848 and the classic one.

Judged at once: nobody is given a partition that another living member has not given up; one that
was not heard for half a session counts as gone. Offsets of a group rise here, whoever commits, so
that a commit by a former owner shows: a committed offset never falls.
"""

import uuid

from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse
from tests.simulation.clients.members import (
    ANEW,
    FENCED,
    MEMBER_ID_REQUIRED,
    SESSION_SECONDS,
    join_request,
    owned_by_topic,
    places_of,
    sync_request,
)
from tests.simulation.clients.readers import commit_request
from tests.simulation.cluster.clients import COMES_BACK, GROUP
from tests.simulation.cluster.reading import Committer

BEAT_SECONDS = 2.0
"""The longest time between two heartbeats of one that is well."""
ABSENT_CHANCE = 0.02
"""Of a step, that the member is not heard for more than a session, and works on then."""
ABSENT_SECONDS = (11.0, 16.0)
LEAVES_CHANCE = 0.05
REBALANCES = 27


class Owner(Committer):
    """What both kinds share: what they own, and commits for that."""

    anew = ANEW
    """Codes of a group that goes on without this member as it is."""

    def __init__(self, world, number):
        super().__init__(world, number)
        self.group = f"{self.kind}s"
        self.owned = set()
        """Places: topic id and partition."""
        self.last_heard = -SESSION_SECONDS
        self.member_id = ""
        self.epoch = -1
        """Generation, or member epoch."""
        world.members.append(self)

    async def step(self):
        number = await self.coordinator(GROUP, self.group)
        await self.beat(number)
        if self.owned:
            await self._commit(number)
        topic, partition = self.choose()
        await self.look(topic, partition)
        chance = self.random.random()
        if chance < LEAVES_CHANCE:
            await self.leave(number)
        elif chance < LEAVES_CHANCE + ABSENT_CHANCE:
            await self.world.sleep(self.random.uniform(*ABSENT_SECONDS))
        else:
            await self.world.sleep(self.random.random() * BEAT_SECONDS)

    async def beat(self, number):
        """Tell the coordinator that this member lives, and learn what it owns."""
        raise NotImplementedError

    async def leave(self, number):
        raise NotImplementedError

    def is_same_time(self, other):
        return True

    def take(self, places):
        """Own these from now on. Nobody else who is alive may have one of them."""
        now = self.world.loop.now
        # Who learns this by an answer that was long on its way may be none of the group any more.
        is_late = now - self.last_heard > SESSION_SECONDS / 2
        for other in self.world.members:
            if other is self or is_late or other.group != self.group:
                continue
            both = other.owned & places
            is_alive = now - other.last_heard <= SESSION_SECONDS / 2
            if both and is_alive and self.is_same_time(other):
                topic_id, partition = min(both, key=str)
                where = f"{self.group}: {topic_id}-{partition}"
                self.world.problem(f"{where} is given to {self.name} while {other.name} has it")
        self.owned = places

    async def _commit(self, number):
        topic_id, partition = self.random.choice(sorted(self.owned, key=str))
        topic = next((one for one in self.world.topics if one.topic_id == topic_id), None)
        if topic is None:
            return  # Its maker has not told of it yet.
        key = self.group, (topic.name, partition)
        promised, asked = self.ledger.commits.get(key, (-1, -1))
        offset = asked + 1
        self.ledger.commits[key] = promised, offset
        request = commit_request(
            self.group,
            (topic_id, partition),
            offset,
            member_id=self.member_id,
            epoch=self.epoch,
        )
        answer = await self.ask(number, request, OffsetCommitResponse)
        code = answer.topics[0].partitions[0].error_code
        self.ledger.counts[f"OffsetCommit of a {self.kind} {code}"] += 1
        if code == 0:
            promised, asked = self.ledger.commits[key]
            self.ledger.commits[key] = max(promised, offset), asked
        elif code not in (*COMES_BACK, *self.anew):
            self.world.problem(f"{self.name}: OffsetCommit: error {code}")

    def heard(self, what, code):
        """Take note of the code of an answer; return whether it is none."""
        self.ledger.counts[f"{what} {code}"] += 1
        if code and code not in (*COMES_BACK, *self.anew, MEMBER_ID_REQUIRED):
            self.world.problem(f"{self.name}: {what}: error {code}")
        return code == 0


class Member(Owner):
    """Of the newer protocol: joins, heartbeats, commits for what it owns, leaves."""

    kind = "member"
    anew = ANEW - {22, 27, 69}

    def __init__(self, world, number):
        super().__init__(world, number)
        self._begin_anew()

    def _begin_anew(self):
        self.member_id = str(uuid.UUID(int=self.random.getrandbits(128)))
        self.epoch = 0
        self._tells_all = True
        """The last heartbeat was not answered: it says all again, as real clients do."""
        self.owned = set()

    async def beat(self, number):
        asked_at = self.world.loop.now
        tells_all, self._tells_all = self._tells_all, True
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=15_000 if tells_all else -1,
            subscribed_topic_names=sorted(topic.name for topic in self.world.topics),
            server_assignor="uniform" if tells_all else None,
            topic_partitions=owned_by_topic(self.owned),
        )
        answer = await self.ask(number, request, ConsumerGroupHeartbeatResponse)
        code = answer.error_code
        if not self.heard("ConsumerGroupHeartbeat", code):
            if code in self.anew:
                self._begin_anew()
            return
        self._tells_all = False
        self.epoch, self.last_heard = answer.member_epoch, asked_at
        if answer.assignment is not None:
            self.take(
                {
                    (uuid.UUID(bytes=one.topic_id), partition)
                    for one in answer.assignment.topic_partitions
                    for partition in one.partitions
                }
            )

    async def leave(self, number):
        self.owned = set()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=-1
        )
        answer = await self.ask(number, request, ConsumerGroupHeartbeatResponse)
        self.ledger.counts[f"leaving {answer.error_code}"] += 1
        self._begin_anew()


class ClassicMember(Owner):
    """JoinGroup, SyncGroup, Heartbeat; the leader assigns by range."""

    kind = "classic"

    def __init__(self, world, number):
        super().__init__(world, number)
        self.timeout_ms = 30_000  # An answer of JoinGroup may take as long as a rebalance.
        self._must_join = True

    def is_same_time(self, other):
        # Who has not heard of the newest generation may still think that it owns something.
        return other.epoch == self.epoch

    async def beat(self, number):
        if self._must_join:
            await self._join(number)
            return
        asked_at = self.world.loop.now
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.epoch, member_id=self.member_id
        )
        code = (await self.ask(number, request, HeartbeatResponse)).error_code
        if self.heard("Heartbeat", code):
            self.last_heard = asked_at
        else:
            self._lost(code)

    def _lost(self, code):
        self._must_join = self._must_join or code in self.anew
        if code in self.anew and code != REBALANCES:
            self.owned = set()
            if code in FENCED:
                self.member_id = ""

    async def _join(self, number):
        request = join_request(
            self.group, self.member_id, {topic.name for topic in self.world.topics}
        )
        joined = await self.ask(number, request, JoinGroupResponse)
        code = joined.error_code
        if not self.heard("JoinGroup", code):
            if code == MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            self._lost(code)
            return
        self.owned = set()
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        asked_at, before = self.world.loop.now, self.ledger.generations.get(self.group, 0)
        counts = {topic.name: topic.partition_count for topic in self.world.topics}
        request = sync_request(self.group, joined, counts)
        answer = await self.ask(number, request, SyncGroupResponse)
        if not self.heard("SyncGroup", answer.error_code):
            self._lost(answer.error_code)
            return
        self._must_join, self.last_heard = False, asked_at
        self.ledger.assigned(self.group, self.epoch, before, self.name)
        self.take(places_of(answer.assignment, self.world.topics))

    async def leave(self, number):
        self.owned = set()
        self._must_join = True
        request = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(member_id=self.member_id)]
        )
        answer = await self.ask(number, request, LeaveGroupResponse)
        self.ledger.counts[f"leaving {answer.error_code}"] += 1
        self.member_id = ""
