"""Members of classic groups: JoinGroup, SyncGroup, Heartbeat; some come back by their names."""

from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.sync_group import SyncGroupResponse
from tests.simulation.clients.base import NOT_THE_COORDINATOR
from tests.simulation.clients.members import (
    ANEW,
    DELETE_CHANCE,
    FENCED,
    LEAVE_CHANCE,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    REBALANCE_SECONDS,
    SESSION_SECONDS,
    Member,
    join_request,
    places_of,
    sync_request,
)
from tests.simulation.clients.readers import GROUP

DAWDLE_CHANCE = 0.1
"""Of a classic member that has to join again, that it goes on with something else for a while."""
STATIC_CHANCE = 0.3
"""Of a classic member, that it has a name by which it comes back (KIP-345)."""


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat; the leader assigns by range."""

    kind = "classic"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._must_join = True
        self._dawdles_until = 0.0
        if self.random.random() < STATIC_CHANCE:
            self.instance_id = self.name

    def be_another(self):
        self.member_id, self._must_join = "", True

    def is_same_time(self, other):
        # Who has not heard of the newest generation may still think that it owns something.
        return other.epoch == self.epoch

    async def step(self):
        if self.vanishes():
            return
        if self._must_join:
            if self.world.loop.now < self._dawdles_until:
                await self._beat(self.epoch)  # It lives, and the others wait for it.
            else:
                await self._join()
            return
        asked_at = self.world.loop.now
        code = await self._beat(self.epoch)
        self.world.coverage.answered("Heartbeat", code)
        if code == 0:
            await self.heard(asked_at)  # A slow disk may have held the answer up.
            if self.random.random() < DELETE_CHANCE:
                await self.try_to_delete()
            elif (former := self.former()) is not None and self.random.random() < 0.1:
                await self._beat_as_former(*former)
            await self.read()
        else:
            await self._lost(code)
        if self.random.random() < LEAVE_CHANCE * self._unrest:
            await self._leave()

    async def _beat(self, generation):
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return (await self.call(request, HeartbeatResponse)).error_code

    async def _beat_as_former(self, member_id, generation):
        """Ask as one does who has slept through a rebalance."""
        if member_id != self.member_id:
            return
        code = await self._beat(generation)
        self.world.coverage.answered("Heartbeat of a former generation", code)
        if code in (0, REBALANCE_IN_PROGRESS):
            text = f"a heartbeat of generation {generation} counts, {self.epoch} was told"
            self.world.problem(f"{self.group}: {self.name}: {text}")

    async def pause(self):
        await self.world.sleep(self.random.random() * SESSION_SECONDS / 5)

    async def _lost(self, code):
        self._must_join = True
        if code == REBALANCE_IN_PROGRESS and self.random.random() < DAWDLE_CHANCE:
            dawdles_seconds = self.random.random() * 3 * REBALANCE_SECONDS
            self._dawdles_until = self.world.loop.now + dawdles_seconds
        if code in NOT_THE_COORDINATOR:
            await self.find_coordinator(GROUP, self.group)
        elif code in ANEW and code != REBALANCE_IN_PROGRESS:
            self.give_up_all()
            if code in FENCED:
                self.member_id = ""
                self._former = None

    async def _join(self):
        names = {topic.name for topic in self.history.living()}
        request = join_request(self.group, self.member_id, names, self.instance_id)
        begun, life = self.world.loop.now, self.world.node.lives
        try:
            answer = await self.call(request, JoinGroupResponse)
        finally:
            self._judge_wait(begun)
        self.world.coverage.answered("JoinGroup", answer.error_code)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if answer.error_code:
            await self._lost(answer.error_code)
            return
        self.give_up_all()
        self._judge_generation(answer.generation_id, begun)
        if answer.member_id == self.member_id and 0 < self.epoch < answer.generation_id:
            # If the node has ended since, nobody knows that generation: it may come again.
            self._former = (self.member_id, self.epoch, life)
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        await self._sync(answer)

    def _judge_wait(self, begun):
        """Whoever joins waits for others no longer than these may take."""
        world, waited = self.world, self.world.loop.now - begun
        is_judged = world.is_unhindered and world.unhindered_since < begun
        if is_judged and waited > REBALANCE_SECONDS + 10.0:
            text = f"JoinGroup has been waiting for {waited:.0f} s"
            world.problem(f"{self.group}: {self.name}: {text}")

    def _judge_generation(self, generation, asked_at):
        """A generation that was handed out is durable: it does not come again.

        Others may have been told of a later one while a cut held up the answer.
        A group without offsets may have been forgotten in between, when it had no members, and any
        group may have been deleted then.
        """
        before, since = self.world.generations.get(self.group, (0, 0.0))
        living = {topic.topic_id for topic in self.history.living()}
        has_offsets = any(
            group == self.group and topic_id in living and one.call.is_ok and one.offset >= 0
            for (group, topic_id, _), commits in self.history.commits.items()
            for one in commits[-1:]
        )
        expires = "offsets.retention.minutes" in self.world.mix.broker_options
        is_kept = has_offsets and not expires and not self.world.deletions[self.group]
        if generation < before and is_kept and since < asked_at:
            text = f"generation {generation} follows {before}, which was told at {since:.1f} s"
            self.world.problem(f"{self.group}: {self.name}: {text}")

    async def _sync(self, joined):
        counts = {topic.name: topic.partition_count for topic in self.history.living()}
        request = sync_request(self.group, joined, counts, self.instance_id)
        asked_at = self.world.loop.now
        answer = await self.call(request, SyncGroupResponse)
        self.world.coverage.answered("SyncGroup", answer.error_code)
        if answer.error_code:
            await self._lost(answer.error_code)
            return
        self._must_join = False
        known = self.world.generations.get(self.group, (0, 0.0))
        self.world.generations[self.group] = max(known, (self.epoch, self.world.loop.now))
        await self.heard(asked_at)
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
