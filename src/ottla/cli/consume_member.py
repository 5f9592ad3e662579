"""A member of a group of KIP-848, with the manners of a classic one: for ``consume_group``.

Owns how the newer protocol's steps look to a reader that gives up everything when the group has
changed, and goes on with what it is told. Source: KIP-848.
"""

import asyncio
from collections.abc import Mapping

from ottla.client.asyncio.consumer_member import ConsumerMember
from ottla.client.asyncio.groups import Groups
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

STALE_TRIES = 100
STALE_SECONDS = 0.1
"""How often, and after which pause, a commit with an old epoch is tried again: the next heartbeat
brings the new one."""
_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_MOVING = ("Assigning", "Reconciling")
"""States in which members are still to give up or to take partitions."""


class SharingMember:
    """See ``GroupMember`` for its methods. ``member`` has joined."""

    def __init__(self, member: ConsumerMember, groups: Groups) -> None:
        self.group = member.group
        self.must_join = member.must_join
        self._member = member
        self._groups = groups

    async def join(self) -> list[TopicPartition]:
        """Give up what others are to have, take what is free; return what the member has now.

        What was read is committed already. Raises KafkaError.
        """
        member = self._member
        if member.error is not None:
            raise member.error
        if member.is_lost:
            await member.join()
        target = member.target
        await member.hold(target)
        return sorted(target)

    async def is_settled(self) -> bool:
        """Whether nobody is about to give partitions to the member. Raises KafkaError."""
        if self.must_join.is_set():
            return False
        found = await self._groups.describe(self.group)
        return found.state not in _MOVING and not self.must_join.is_set()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets; False when the group has given the partitions to others meanwhile."""
        if not offsets:
            return True
        for left in range(STALE_TRIES, -1, -1):
            member_id, epoch = self._member.identity
            try:
                await self._groups.commit(
                    self.group, offsets, generation=epoch, member_id=member_id
                )
            except KafkaError as error:
                if error.code is ErrorCode.STALE_MEMBER_EPOCH and left:
                    await asyncio.sleep(STALE_SECONDS)
                    continue
                if error.code not in _LOST:
                    raise
                self.must_join.set()
                return False
            return True
        raise AssertionError("the last try raises")

    async def leave(self) -> None:
        """Leave the group. Harmless when not in."""
        await self._member.leave()
