"""Keys and values of ``__consumer_offsets``, as Kafka 4.3 writes them. See docs/formats.

    key    = type int16, then the table of that type
    value  = version int16, then the table in that version; no value: the key is deleted

Types 0 and 1 are committed offsets (0 of times before Kafka 0.8.2, the same fields), 2 is a classic
group. Kafka's other types belong to groups of the newer protocols.
Source: the message schemas in Kafka's group coordinator; directories that a live Kafka wrote.
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import Message, Struct, array, bytes_, int32, int64, string, uuid

LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
"""Only this one has the expiry that clients could ask for until OffsetCommit v4."""
OFFSET_COMMIT_VERSION_WITHOUT_ID = 3
GROUP_METADATA_VERSION = 3


class OffsetCommitKey(Message, versions="0-1"):
    """What an offset is of."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: TopicId = uuid("4+", default=NULL_TOPIC_ID, tag=0)


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
