"""Where a leader epoch ended: the OffsetForLeaderEpoch request, and its answer. No input or output.

A reader that knows which epoch a log was in when it had read up to some offset finds out by this
whether the log still is the one it read (KIP-320).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER = -1
"""The replica id of a client that is no replica."""


class EpochEnd(NamedTuple):
    """Where an epoch ended; the offset is -1 when the log knows no epoch so old."""

    end_offset: int
    leader_epoch: int
    """The largest epoch there is that is not above the one asked for."""
    error: ErrorCode


def epoch_end_request(epochs: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
    """Return the request for one leader."""
    by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, partition), epoch in epochs.items():
        by_topic.setdefault(topic, []).append(
            OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
        )
    topics = [OffsetForLeaderTopic(topic=name, partitions=each) for name, each in by_topic.items()]
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=topics)


def read_epoch_ends(answer: OffsetForLeaderEpochResponse) -> dict[TopicPartition, EpochEnd]:
    """Return what was found, with an error code for each partition."""
    return {
        TopicPartition(topic.topic, each.partition): EpochEnd(
            each.end_offset, each.leader_epoch, error_code(each.error_code)
        )
        for topic in answer.topics
        for each in topic.partitions
    }
