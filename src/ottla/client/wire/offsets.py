"""Offsets by place or time: the ListOffsets request, and what its answer says. No I/O."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_OFFSET",
    "FoundOffset",
    "list_offsets_request",
    "read_list_offsets",
]


class FoundOffset(NamedTuple):
    """Where ``timestamp`` is in a partition; offset and timestamp are -1 when there is none."""

    offset: int
    timestamp: int
    leader_epoch: int
    error: ErrorCode


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> ListOffsetsRequest:
    """Return the request for one leader: timestamps in ms, or ``LATEST`` or ``EARLIEST``."""
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in timestamps.items():
        by_topic.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if read_committed else 0,
        topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in by_topic.items()],
    )


def read_list_offsets(answer: ListOffsetsResponse) -> dict[TopicPartition, FoundOffset]:
    """Return what was found, with an error code for each partition."""
    return {
        TopicPartition(topic.name, each.partition_index): FoundOffset(
            each.offset, each.timestamp, each.leader_epoch, error_code(each.error_code)
        )
        for topic in answer.topics
        for each in topic.partitions
    }
