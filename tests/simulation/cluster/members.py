"""Members of a group of the newer protocol (KIP-848) whose coordinator may move.

Judged at once: nobody is given a partition that another living member has not given up; one that
was not heard for half a session counts as gone. Offsets of a group rise here, whoever commits, so
that a commit by a former owner shows: a committed offset never falls.
"""

import uuid

from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.simulation.clients.members import owned_by_topic
from tests.simulation.cluster.clients import COMES_BACK, GROUP
from tests.simulation.cluster.reading import Committer

GROUP_ID = "members"
SESSION_SECONDS = 10.0
BEAT_SECONDS = 2.0
"""The longest time between two heartbeats of one that is well."""
ABSENT_CHANCE = 0.02
"""Of a step, that the member is not heard for more than a session, and works on then."""
ABSENT_SECONDS = (11.0, 16.0)
LEAVES_CHANCE = 0.05
ANEW = {25, 82, 110, 113}
"""Codes of a group that knows this member no more, or otherwise: it begins anew."""


class Member(Committer):
    """Joins, heartbeats, commits for what it owns, leaves."""

    kind = "member"

    def __init__(self, world, number):
        super().__init__(world, number)
        self.group = GROUP_ID
        self.owned = set()
        """Places: topic id and partition."""
        self.last_heard = -SESSION_SECONDS
        self._begin_anew()
        world.members.append(self)

    def _begin_anew(self):
        self._member_id = str(uuid.UUID(int=self.random.getrandbits(128)))
        self._epoch = 0
        self._tells_all = True
        """The last heartbeat was not answered: it says all again, as real clients do."""
        self.owned = set()

    async def step(self):
        number = await self.coordinator(GROUP, GROUP_ID)
        await self._beat(number)
        if self.owned:
            await self._commit(number)
        topic, partition = self.choose()
        await self.look(topic, partition)
        chance = self.random.random()
        if chance < LEAVES_CHANCE:
            await self._leave(number)
        elif chance < LEAVES_CHANCE + ABSENT_CHANCE:
            await self.world.sleep(self.random.uniform(*ABSENT_SECONDS))
        else:
            await self.world.sleep(self.random.random() * BEAT_SECONDS)

    async def _beat(self, number):
        asked_at = self.world.loop.now
        tells_all, self._tells_all = self._tells_all, True
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=15_000 if tells_all else -1,
            subscribed_topic_names=sorted(topic.name for topic in self.world.topics),
            server_assignor="uniform" if tells_all else None,
            topic_partitions=owned_by_topic(self.owned),
        )
        answer = await self.ask(number, request, ConsumerGroupHeartbeatResponse)
        code = answer.error_code
        self.ledger.counts[f"ConsumerGroupHeartbeat {code}"] += 1
        if code in ANEW:
            self._begin_anew()
        elif code and code not in COMES_BACK:
            self.world.problem(f"{self.name}: ConsumerGroupHeartbeat: error {code}")
        if code:
            return
        self._tells_all = False
        self._epoch, self.last_heard = answer.member_epoch, asked_at
        if answer.assignment is not None:
            self._take(
                {
                    (uuid.UUID(bytes=one.topic_id), partition)
                    for one in answer.assignment.topic_partitions
                    for partition in one.partitions
                }
            )

    def _take(self, places):
        """Own these from now on. Nobody else who is alive may have one of them."""
        now = self.world.loop.now
        for other in [self, *self.world.members]:
            if now - other.last_heard > SESSION_SECONDS / 2:
                if other is self:
                    break  # It learns this by an answer that was long on its way.
                continue
            both = other.owned & places
            if other is not self and both:
                topic_id, partition = min(both, key=str)
                where = f"{GROUP_ID}: {topic_id}-{partition}"
                self.world.problem(f"{where} is given to {self.name} while {other.name} has it")
        self.owned = places

    async def _commit(self, number):
        topic_id, partition = self.random.choice(sorted(self.owned, key=str))
        topic = next((one for one in self.world.topics if one.topic_id == topic_id), None)
        if topic is None:
            return  # Its maker has not told of it yet.
        key = GROUP_ID, (topic.name, partition)
        promised, asked = self.ledger.commits.get(key, (-1, -1))
        offset = asked + 1
        self.ledger.commits[key] = promised, offset
        one = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP_ID,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(topic_id=topic_id.bytes, partitions=[one])],
        )
        answer = await self.ask(number, request, OffsetCommitResponse)
        code = answer.topics[0].partitions[0].error_code
        self.ledger.counts[f"OffsetCommit of a member {code}"] += 1
        if code == 0:
            promised, asked = self.ledger.commits[key]
            self.ledger.commits[key] = max(promised, offset), asked
        elif code not in (*COMES_BACK, *ANEW):
            self.world.problem(f"{self.name}: OffsetCommit: error {code}")

    async def _leave(self, number):
        self.owned = set()
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID, member_id=self._member_id, member_epoch=-1
        )
        answer = await self.ask(number, request, ConsumerGroupHeartbeatResponse)
        self.ledger.counts[f"leaving {answer.error_code}"] += 1
        self._begin_anew()
