"""Keys and values of committed offsets, as Kafka 4.3 writes them. See docs/formats.

    key    = type int16, then the table of that type
    value  = version int16, then the table in that version; no value: the key is deleted

Types 0 and 1 are committed offsets (0 of times before Kafka 0.8.2, the same fields). Kafka's other
types are of groups.
Source: the message schemas in Kafka's group coordinator; directories that a live Kafka wrote.
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import Message, int32, int64, string, uuid

LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1

OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
"""Only this version has the expiry for which clients could ask until OffsetCommit v4."""
OFFSET_COMMIT_VERSION_WITHOUT_ID = 3


class OffsetCommitKey(Message, versions="0-1"):
    """The group and partition of an offset."""

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
