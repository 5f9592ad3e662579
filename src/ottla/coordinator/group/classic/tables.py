"""Keys and values of classic groups in ``__consumer_offsets``, as Kafka 4.3 writes them.

See docs/formats. Source: the message schemas in Kafka's group coordinator; directories that a live
Kafka wrote.
"""

from ottla.protocol.schema import Message, Struct, array, bytes_, int32, int64, string

GROUP_METADATA = 2
"""The type of the key."""
GROUP_METADATA_VERSION = 3


class GroupMetadataKey(Message, versions="2"):
    """A classic group."""

    group: str = string()


class MemberMetadata(Struct):
    """One member, with its metadata for the protocol chosen, and its assignment."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A classic group as its last rebalance left it."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)
