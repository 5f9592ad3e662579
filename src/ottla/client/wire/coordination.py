"""Coordinators and committed offsets: the requests, and what their answers say. No I/O.

Shared by the asyncio side (``coordinators``, ``groups``) and the blocking one
(``blocking_coordinators``).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

GROUP = 0
TRANSACTION = 1
"""Kinds of coordinators, as FindCoordinator has them."""
NAMES_ONLY = 9
"""The newest version of OffsetCommit and OffsetFetch that names topics, not their ids."""
KEPT_LAST = 4
"""The newest version of OffsetCommit in which a client says how long an offset is kept."""
NOBODY = -1
"""The generation of a commit from outside of the group."""
AS_THE_BROKER_SAYS = -1
"""Stands for the broker's offsets.retention.minutes."""


class Committed(NamedTuple):
    """How far a group has read a partition."""

    offset: int
    leader_epoch: int
    metadata: str


def check_coordinator(kind: int, key: str, code: int, message: str | None = None) -> None:
    """Raise KafkaError for an error in an answer about ``key``."""
    if code != ErrorCode.NONE:
        error = error_code(code)
        what = "group" if kind == GROUP else "transactional id"
        raise KafkaError(error, message or f"{what} {key}: {error.text}")


def find_coordinator_request(kind: int, key: str) -> FindCoordinatorRequest:
    """Return the request in the forms of all versions: one key, and many."""
    return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def read_find_coordinator(kind: int, key: str, answer: FindCoordinatorResponse) -> int:
    """Return the node id. Raises KafkaError."""
    found = answer.coordinators[0] if answer.coordinators else answer
    check_coordinator(kind, key, found.error_code, found.error_message)
    return found.node_id


def committed_request(
    group: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = False
) -> OffsetFetchRequest:
    """Return the request for a group's offsets, of ``partitions`` or (None) of all it has.

    ``stable``: while a transaction that commits some of them is open the answer is
    UNSTABLE_OFFSET_COMMIT, not the offsets of before.
    """
    if partitions is None:
        one = OffsetFetchRequestGroup(group_id=group, topics=None)
        return OffsetFetchRequest(group_id=group, topics=None, groups=[one], require_stable=stable)
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    one = OffsetFetchRequestGroup(
        group_id=group,
        topics=[
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in by_topic.items()
        ],
    )
    return OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic.items()
        ],
        groups=[one],
        require_stable=stable,
    )


def read_committed_offsets(
    group: str, answer: OffsetFetchResponse
) -> dict[TopicPartition, Committed]:
    """Return the offsets; partitions without one are absent. Raises KafkaError."""
    top = answer.groups[0] if answer.groups else answer
    check_coordinator(GROUP, group, top.error_code)
    found: dict[TopicPartition, Committed] = {}
    for topic in top.topics:
        for one in topic.partitions:
            check_coordinator(GROUP, group, one.error_code)
            if one.committed_offset >= 0:
                found[TopicPartition(topic.name, one.partition_index)] = Committed(
                    one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                )
    return found


def commit_request(
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = NOBODY,
    member_id: str = "",
    metadata: Mapping[TopicPartition, str] | None = None,
    kept_ms: int = AS_THE_BROKER_SAYS,
) -> OffsetCommitRequest:
    """Return the request; without a generation only a group without members takes it.

    ``metadata``: a text to keep beside an offset. ``kept_ms``: for how long, to ``KEPT_LAST``.
    """
    texts = metadata or {}
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_metadata=texts.get(TopicPartition(topic, index)),
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=kept_ms,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=each) for name, each in by_topic.items()
        ],
    )


def check_offset_commit(group: str, answer: OffsetCommitResponse) -> None:
    """Raise KafkaError for the first offset that was refused."""
    for topic in answer.topics:
        for one in topic.partitions:
            check_coordinator(GROUP, group, one.error_code)
