"""Which committed offsets have been kept for long enough. Pure.

An empty group's offsets expire so long after it became empty; those of clients without a group so
long after each commit; a group with members keeps what its members read, and forgets what they do
not read any more. A client that named a retention of its own (OffsetCommit v2-v4) gets that.
What was committed for a topic that is gone is nobody's, whatever bears its name now: a crash, or a
refused write, may have kept it from being forgotten with its topic.
Source: KIP-211; Kafka's OffsetExpirationCondition.
"""

from ottla.coordinator.group.consumer.targets import Topics
from ottla.coordinator.group.offsets import NEVER_EXPIRES, CommittedOffset, OffsetKey, Offsets
from ottla.coordinator.group.registry import Group
from ottla.ids import NULL_TOPIC_ID
from ottla.sliced import STRIDE, Steps


def expired_offsets(
    group: Group, offsets: Offsets, now_ms: int, retention_ms: int
) -> Steps[tuple[list[OffsetKey], bool]]:
    """Return the offsets of ``group`` to be forgotten, and whether nothing is left then.

    In steps between which neither changes.
    """
    expired: list[OffsetKey] = []
    is_all = True
    for ordinal, place in enumerate(offsets.committed_of_group(group.group_id), 1):
        if not ordinal % STRIDE:
            yield None
        topic, partition, committed = place
        from_ms = group.retained_from_ms(topic, committed.commit_timestamp_ms)
        due_ms = committed.expire_timestamp_ms
        if due_ms == NEVER_EXPIRES and from_ms is not None:
            due_ms = from_ms + retention_ms
        if (
            from_ms is not None
            and now_ms >= due_ms
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
