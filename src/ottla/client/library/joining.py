"""How a consumer becomes a member of its group, and where it begins to read.

Owns the choice of the group's protocol and of the first offsets; ``consuming`` owns what is done
with them. On asyncio. Source: KIP-848; Kafka's documentation of auto.offset.reset.
"""

import re
from collections.abc import Mapping

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.consumer_member import ConsumerMember
from ottla.client.asyncio.groups import Groups
from ottla.client.asyncio.member import GroupMember
from ottla.client.asyncio.membership import Membership, new_member
from ottla.client.library.failures import BadArgument, ClientError, check_offset
from ottla.client.library.reading import RESETS
from ottla.client.library.settings import ConsumerSettings
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.ids import TopicPartition


class Joining:
    """For one consumer. Raises KafkaError, ConnectionFailed, ClientError."""

    def __init__(self, cluster: Cluster, groups: Groups, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._groups = groups
        self._settings = settings

    async def starts(
        self, offsets: Mapping[TopicPartition, int | str | None]
    ) -> dict[TopicPartition, int]:
        """Return where to begin: at an offset, an end, or (None) where the group stands."""
        settings = self._settings
        starts = {
            each: check_offset("assign", to)
            for each, to in offsets.items()
            if to is not None and not isinstance(to, str)
        }
        unknown = [each for each, to in offsets.items() if to is None]
        resets = {each: RESETS.get(to, 0) for each, to in offsets.items() if isinstance(to, str)}
        if 0 in resets.values():
            raise BadArgument("seek", 'expected an offset, "earliest" or "latest"')
        if unknown and settings.group is not None:
            found = await self._groups.committed(settings.group, unknown, stable=True)
            starts |= {each: one.offset for each, one in found.items()}
        for each in unknown:
            if each in starts:
                continue
            if settings.auto_offset_reset == "error":
                why = f"group {settings.group} has no offset of {each}"
                raise ClientError("begin to read", why, fix="commit one, or set auto_offset_reset")
            resets[each] = EARLIEST if settings.auto_offset_reset == "earliest" else LATEST
        if resets:
            committed_only = settings.read_committed
            ends = await self._cluster.list_offsets(resets, read_committed=committed_only)
            starts |= {each: one.offset for each, one in ends.items()}
        return starts

    async def matching(
        self, names: frozenset[str], pattern: "re.Pattern[str] | None"
    ) -> frozenset[str]:
        """Return ``names`` and the topics that ``pattern`` matches; internal ones never."""
        if pattern is None:
            return names
        view = await self._cluster.refresh(None)
        found = (
            name
            for name, topic in view.topics.items()
            if not topic.is_internal and pattern.fullmatch(name)
        )
        return names.union(found)

    async def member(self, topics: frozenset[str]) -> GroupMember | ConsumerMember:
        """Return a member: a ConsumerMember has joined, a GroupMember is still to join."""
        settings = self._settings
        membership = Membership(
            settings.group_protocol, settings.session_timeout_ms, settings.rebalance_timeout_ms
        )
        return await new_member(
            self._cluster, self._groups, settings.group or "", topics, membership
        )
