"""Members of consumer groups, classic and KIP-848: they read what they are given.

Judged at once: nobody else may be given a partition that a living member of the same group has not
given up. A member that was not heard for half a session counts as gone. What they commit is judged
as every commit is.
"""

import random

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
from ottla.protocol.messages.consumer_group_heartbeat import TopicPartitions
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.campaigns.administering.history import Call, Commit, Verdict
from tests.simulation.clients.base import Client
from tests.simulation.clients.readers import (
    EARLIEST,
    commit_request,
    fetch_request,
    list_offset,
    read_of,
)

SESSION_SECONDS = 10.0
REBALANCE_SECONDS = 15.0
"""How long the others wait for one that does not join again."""
ANEW = {22, 25, 27, 69, 82, 110, 113}
"""Codes of a group that goes on without this member as it is: it begins anew."""
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
NOTHING_COMMITTED = -1
FENCED = {25, 69, 110}
NON_EMPTY_GROUP = 68
LEAVE_CHANCE = 0.02
VANISH_CHANCE = 0.02
"""Of a step, that this process is killed, and the next one comes later, or at once."""
VANISH_WITH_NODE = 0.15
"""Likewise, of the first step after the node was started again."""
VANISHES_SECONDS = (0.0, 3.0, 20.0, 60.0)
DELETE_CHANCE = 0.01
"""Of a step, that a member tries to have its group deleted."""
GROUPS_FROM = 4
"""So many members are of more than one group."""


def owned_by_topic(owned):
    """Return partitions, pairs of a topic's id and a number, as a heartbeat tells them."""
    by_topic = {}
    for topic_id, partition in sorted(owned, key=str):
        by_topic.setdefault(topic_id, []).append(partition)
    return [
        TopicPartitions(topic_id=topic_id.bytes, partitions=partitions)
        for topic_id, partitions in by_topic.items()
    ]


def join_request(group, member_id, topic_names, instance_id=None):
    """Return the request of a classic member that wants to read these topics.

    ``instance_id``: the name of a static one; None: it is dynamic.
    """
    metadata = encode_subscription(sorted(topic_names) or ["none"])
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=int(SESSION_SECONDS * 1000),
        rebalance_timeout_ms=int(REBALANCE_SECONDS * 1000),
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=metadata)],
    )


def sync_request(group, joined, partition_counts, instance_id=None):
    """Return the request of a classic member that has joined: as leader it assigns.

    ``joined``: the answer of JoinGroup. ``partition_counts``: of the topics that it knows, by name.
    ``instance_id``: as for ``join_request``.
    """
    assignments = []
    if joined.leader == joined.member_id and not joined.skip_assignment:
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
        group_instance_id=instance_id,
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

    instance_id = None
    """The name by which it comes back; None: it has none."""

    async def heard(self, asked_at):
        """Take note that the group counted this member when it asked."""
        now = self.world.loop.now
        self.last_heard = asked_at
        since, last = self.world.lively.get(self.group, (now, now))
        self.world.lively[self.group] = (since if now - last < SESSION_SECONDS else now, now)

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
        self._away_until = 0.0
        # In some worlds groups are left in peace: only then it counts who is gone and still listed.
        self._unrest = random.Random(f"{world.seed}/unrest").choice([1.0, 0.1])
        # In some worlds offsets stay as they are for long, and must not be forgotten.
        self._commit_chance = random.Random(f"{world.seed}/commits").choice([0.5, 0.5, 0.05])
        self._known_life = 0
        world.members.setdefault(self.group, []).append(self)

    async def call(self, request, answer, *, highest=None):
        """Ask; the group may have heard of this member from now on."""
        self._show()
        told = await super().call(request, answer, highest=highest)
        self._show()
        return told

    def _show(self):
        for name in (self.member_id, self.instance_id):
            if name:
                self.world.shown[self.group, name] = self.world.loop.now

    def vanishes(self):
        """Tell whether this process is not there now: it was killed, and says no word."""
        now, life = self.world.loop.now, self.world.node.lives
        chance = VANISH_CHANCE * self._unrest if life == self._known_life else VANISH_WITH_NODE
        self._known_life = life
        if now >= self._away_until and self.random.random() < chance:
            self._away_until = now + self.random.random() * self.random.choice(VANISHES_SECONDS)
            self.history.count("members that vanish")
            self.give_up_all()
            self.hang_up()
            self.be_another()
        return now < self._away_until

    def be_another(self):
        """Forget who it was: a new process begins."""
        raise NotImplementedError

    async def try_to_delete(self):
        """Ask for the group's end, amid it: nobody may delete a group that has members."""
        asked_at = self.last_heard
        self.world.deletions[self.group] += 1
        gone = [
            (commits, Commit(NOTHING_COMMITTED, Call()))
            for place, commits in self.history.commits.items()
            if place[0] == self.group
        ]
        for commits, one in gone:
            commits.append(one)
        request = DeleteGroupsRequest(groups_names=[self.group])
        code = (await self.call(request, DeleteGroupsResponse)).results[0].error_code
        self.world.coverage.answered("DeleteGroups amid work", code)
        self.world.deletions[self.group] -= 1
        if code == 0:
            self.world.generations.pop(self.group, None)
        for commits, one in gone:
            if code == NON_EMPTY_GROUP:
                commits.remove(one)
            elif code == 0:
                one.call.answer(Verdict.OK)
        if code == 0 and self.world.loop.now - asked_at < SESSION_SECONDS / 2:
            self.world.problem(f"{self.group} was deleted, and {self.member_id} is a member of it")

    def has_left(self, code):
        """Take note of an answer: who it was until now is no member any more.

        It may have been the last one, and then the group has none for a moment.
        """
        if code == 0:
            self.world.lively.pop(self.group, None)
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
        if place in self._positions and self.random.random() < self._commit_chance:
            await self._commit(place)
        former = self.former()
        if former is not None and place in self._positions and self.random.random() < 0.2:
            await self._commit_as_former(place, *former)

    def former(self):
        """Return the member id and epoch by which it was known before; None: there are none.

        They need not outlive the node: that somebody left, or a generation that nobody was
        assigned anything in.
        """
        if self._former is not None and self._former[2] != self.world.node.lives:
            self._former = None
        return self._former and self._former[:2]

    async def _commit_as_former(self, place, member_id, epoch):
        """Commit as a process does that has not noticed that it was given up."""
        commit = Commit(0, Call())
        self.history.commits[self.group, *place].append(commit)
        code = await self._ask_to_commit(place, 0, member_id, epoch)
        self.world.coverage.answered(f"OffsetCommit of a former {self.kind}", code)
        if code == 0:
            commit.call.answer(Verdict.OK)
            text = f"a commit of who was a member counts: {member_id}, epoch {epoch}"
            self.world.problem(f"{self.group}: {text}")
        elif code in ANEW:
            commit.call.answer(Verdict.FAIL)

    async def _ask_to_commit(self, place, offset, member_id, epoch):
        request = commit_request(self.group, place, offset, member_id=member_id, epoch=epoch)
        request.group_instance_id = self.instance_id
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
