"""Keys and values of KIP-848 groups in ``__consumer_offsets``, as Kafka 4.3 writes them.

    3 the group's epoch                  6 the epoch of the target assignment
    4 (what its topics were; Kafka 4.0)  7 one member's target
    5 one member: what it asked for      8 one member: what it has, and must give up
    16 a regular expression and the topics it matched

Source: the message schemas in Kafka's group coordinator; the log of a live Kafka 4.3.
"""

from ottla.ids import TopicId
from ottla.protocol.schema import (
    Message,
    Struct,
    array,
    bytes_,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)

GROUP = 3
PARTITION_METADATA = 4
MEMBER = 5
TARGET_EPOCH = 6
TARGET_MEMBER = 7
CURRENT_MEMBER = 8
REGEX = 16


class ConsumerGroupKey(Message, versions="0"):
    """The key of a record of which a group has one: types 3, 4 and 6."""

    group: str = string()


class ConsumerGroupMemberKey(Message, versions="0"):
    """The key of a record of each member (types 5, 7, 8), or of each expression (16)."""

    group: str = string()
    name: str = string()


class GroupValue(Message, versions="0", flexible="0+"):
    """Type 3."""

    epoch: int = int32()
    metadata_hash: int = int64(default=0, tag=0)


class ClassicProtocol(Struct):
    """An assignor that a member of the classic protocol knows, and its metadata for it."""

    name: str = string()
    metadata: bytes = bytes_()


class ClassicMember(Struct):
    """The fields of a member of the classic protocol that others do not have."""

    session_timeout: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class MemberValue(Message, versions="0", flexible="0+"):
    """Type 5."""

    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    rebalance_timeout: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+", default=None)
    classic_member: ClassicMember | None = struct(ClassicMember, nullable="0+", default=None, tag=0)


class TargetEpochValue(Message, versions="0", flexible="0+"):
    """Type 6."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


class TargetPartitions(Struct):
    """Partitions of one topic."""

    topic_id: TopicId = uuid()
    partitions: list[int] = array(int32)


class TargetMemberValue(Message, versions="0", flexible="0+"):
    """Type 7."""

    topics: list[TargetPartitions] = array(TargetPartitions)


class CurrentPartitions(Struct):
    """Partitions of one topic, and the epoch in which each was assigned."""

    topic_id: TopicId = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", default=None, tag=0)


class CurrentMemberValue(Message, versions="0", flexible="0+"):
    """Type 8."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned: list[CurrentPartitions] = array(CurrentPartitions)
    pending_revocation: list[CurrentPartitions] = array(CurrentPartitions)


class RegexValue(Message, versions="0", flexible="0+"):
    """Type 16."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
