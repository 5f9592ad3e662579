"""Which committed offsets have been kept for long enough. Pure.

An empty group's offsets expire so long after it became empty; those of clients without a group so
long after each commit; a group with members keeps what its members read, and forgets what they do
not read any more. A client that named a retention of its own (OffsetCommit v2-v4) gets that.
What was committed for a topic that is gone is nobody's, whatever bears its name now: a crash, or a
refused write, may have kept it from being forgotten with its topic.
Source: KIP-211; Kafka's OffsetExpirationCondition.
"""

from ottla.coordinator.group.classic.group import ClassicGroup, GroupState
from ottla.coordinator.group.consumer.targets import Topics
from ottla.coordinator.group.offsets import NEVER_EXPIRES, CommittedOffset, OffsetKey, Offsets
from ottla.ids import NULL_TOPIC_ID


def expired_offsets(
    group: ClassicGroup, offsets: Offsets, now_ms: int, retention_ms: int
) -> tuple[list[OffsetKey], bool]:
    """Return the offsets of ``group`` to be forgotten, and whether nothing is left then."""
    is_simple = group.protocol_type is None
    is_empty = group.state is GroupState.EMPTY
    is_read_known = group.is_consumer_group and group.subscribed_topics is not None
    if not is_simple and not is_empty and not (is_read_known and group.state is GroupState.STABLE):
        return [], not offsets.of_group(group.group_id)
    expired: list[OffsetKey] = []
    is_all = True
    for topic, partition, committed in offsets.committed_of_group(group.group_id):
        base_ms = committed.commit_timestamp_ms
        if is_empty and not is_simple and group.state_timestamp_ms >= 0:
            base_ms = group.state_timestamp_ms
        due_ms = committed.expire_timestamp_ms
        if due_ms == NEVER_EXPIRES:
            due_ms = base_ms + retention_ms
        if (
            now_ms >= due_ms
            and not group.is_subscribed_to(topic)
            and not offsets.is_pending(group.group_id, topic, partition)
        ):
            expired.append(OffsetKey(group.group_id, topic, partition))
        else:
            is_all = False
    return expired, is_all and not offsets.has_open_transaction(group.group_id)


def is_of_former(committed: CommittedOffset, topic: str, topics: Topics) -> bool:
    """Tell whether an offset was committed for an earlier topic of the name."""
    if committed.topic_id == NULL_TOPIC_ID:
        return False  # Nobody knows.
    known = topics.topic(topic)
    return known is not None and known.topic_id != committed.topic_id


def offsets_of_former(offsets: Offsets, group: str, topics: Topics) -> list[OffsetKey]:
    """Return the offsets of ``group`` that were committed for earlier topics of their names.

    Not where a transaction is about to commit another: to forget the one forgets the other.
    """
    return [
        OffsetKey(group, topic, partition)
        for topic, partition, committed in offsets.committed_of_group(group)
        if is_of_former(committed, topic, topics)
        and not offsets.is_pending(group, topic, partition)
    ]
