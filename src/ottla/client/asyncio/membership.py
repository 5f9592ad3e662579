"""Which protocol a new member of a group speaks: KIP-848's, or the classic one where that is not.

On asyncio. The two kinds of members have their own modules. Source: KIP-848, group.protocol.
"""

from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.consumer_member import ConsumerMember
from ottla.client.asyncio.groups import Groups
from ottla.client.asyncio.member import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, GroupMember
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_CLASSIC_INSTEAD = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
)
"""Answers of a group or a broker that does not take the newer protocol."""


class Membership(NamedTuple):
    """How to be a member. ``protocol``: "consumer", "classic", or "auto": the newer one if any."""

    protocol: str = "auto"
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS


async def new_member(
    cluster: Cluster, groups: Groups, group: str, topics: frozenset[str], membership: Membership
) -> GroupMember | ConsumerMember:
    """Return a member: a ConsumerMember has joined, a GroupMember is still to join.

    Raises KafkaError, ConnectionFailed.
    """
    protocol, session_timeout_ms, rebalance_timeout_ms = membership
    await cluster.retrying(lambda: groups.coordinator(group))
    connection = await groups.coordinator(group)
    is_there = ConsumerGroupHeartbeatRequest.API_KEY in connection.exchange.versions
    if protocol == "consumer" or (protocol == "auto" and is_there):
        newer = ConsumerMember(cluster, group, topics, rebalance_timeout_ms=rebalance_timeout_ms)
        try:
            await newer.join()
        except KafkaError as error:
            if protocol == "consumer" or error.code not in _CLASSIC_INSTEAD:
                raise
        else:
            return newer
    return GroupMember(
        cluster,
        group,
        topics,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
    )
