"""Members of KIP-848 groups."""

import uuid

from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.simulation.clients.base import COMES_BACK, NOT_THE_COORDINATOR
from tests.simulation.clients.members import (
    ANEW,
    DELETE_CHANCE,
    LEAVE_CHANCE,
    Member,
    owned_by_topic,
)
from tests.simulation.clients.readers import GROUP

LINGERS_SECONDS = 6.0
"""How long a member may work on with what it has to give up: less than its rebalance timeout, and
than two heartbeats besides."""


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
        """The last heartbeat was answered without an error: what has to be given up is news."""

    def be_another(self):
        self._begin_anew()

    async def step(self):
        if self.vanishes():
            return
        await self._beat()
        if not self._is_new and self._has_heard and self.random.random() < DELETE_CHANCE:
            await self.try_to_delete()
        if not self._is_new:
            await self.read()
        if self.random.random() < LEAVE_CHANCE * self._unrest:
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
            # Whole after an error or an answer that was lost, as real clients ask: it may be
            # durable all the same that they have to give up something, which is told once.
            rebalance_timeout_ms=15_000 if is_whole else -1,
            subscribed_topic_names=names,
            server_assignor="uniform" if is_whole else None,
            topic_partitions=owned_by_topic(self.owned),
        )
        had_heard, self._has_heard = self._has_heard, False
        answer = await self.call(request, ConsumerGroupHeartbeatResponse)
        self._let_go()
        self.world.coverage.answered("ConsumerGroupHeartbeat", answer.error_code)
        code = answer.error_code
        if code == 0:
            self._is_new = False
            self.epoch = answer.member_epoch
            await self.heard(asked_at)
            self._has_heard = had_heard
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
