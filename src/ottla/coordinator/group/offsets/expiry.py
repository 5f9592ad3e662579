"""Decides which committed offsets have been kept for long enough. Pure.

The retention of an empty group's offsets begins when the group became empty; that of clients
without a group begins at each commit. A group with members keeps the offsets of topics that its
members read; the retention of others begins at each commit. A client may have asked for a retention
of its own (OffsetCommit v2-v4). Offsets of a deleted topic belong to nobody, even if another topic
has the name now: a crash, or a refused write, may have prevented their deletion with the topic.
Source: KIP-211; Kafka's OffsetExpirationCondition.
"""

from ottla.coordinator.group.offsets.committed import (
    NEVER_EXPIRES,
    CommittedOffset,
    OffsetKey,
    Offsets,
)
from ottla.coordinator.group.registry import Group
from ottla.coordinator.group.topics import Topics
from ottla.ids import NULL_TOPIC_ID
from ottla.sliced import STRIDE, Steps


def expired_offsets(
    group: Group, offsets: Offsets, now_ms: int, retention_ms: int
) -> Steps[tuple[list[OffsetKey], bool]]:
    """Return the expired offsets of ``group``, and whether no other offsets are left.

    In steps between which neither the group nor its offsets change.
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
        return False  # The commit did not say.
    known = topics.topic(topic)
    return known is not None and known.topic_id != committed.topic_id


def offsets_of_former(offsets: Offsets, group: str, topics: Topics) -> list[OffsetKey]:
    """Return the offsets of ``group`` that were committed for earlier topics of their names.

    Except where a transaction has a pending offset: a tombstone would remove both.
    """
    return [
        OffsetKey(group, topic, partition)
        for topic, partition, committed in offsets.committed_of_group(group)
        if is_of_former(committed, topic, topics)
        and not offsets.is_pending(group, topic, partition)
    ]
