"""What the answer to a Fetch says of one partition."""

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from ottla.replication.fetch import INVALID_OFFSET, FetchedPartition, Isolation
from ottla.sliced import Steps, each

_NO_ERROR, _COMMITTED = ErrorCode.NONE, Isolation.READ_COMMITTED
"""Named here because a member of an Enum is found ten times slower by its class."""


def refused_data(index: int, code: ErrorCode) -> PartitionData:
    """Return what is told of a partition that is not read."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=INVALID_OFFSET,
        last_stable_offset=INVALID_OFFSET,
        log_start_offset=INVALID_OFFSET,
        aborted_transactions=[],
        records=b"",
    )


def data_of(fetched: FetchedPartition, isolation: Isolation) -> PartitionData:
    """Return what is told of a partition that was read."""
    may_have_aborted = isolation is _COMMITTED and fetched.code is _NO_ERROR
    return PartitionData(
        partition_index=fetched.topic_partition.partition,
        error_code=fetched.code,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=[
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in fetched.aborted
        ]
        if may_have_aborted
        else None,
        records=b"" if fetched.region is None else fetched.region,
        preferred_read_replica=-1 if fetched.preferred is None else fetched.preferred,
        diverging_epoch=fetched.diverging
        and EpochEndOffset(epoch=fetched.diverging.epoch, end_offset=fetched.diverging.end_offset),
        current_leader=fetched.current_leader
        and LeaderIdAndEpoch(
            leader_id=fetched.current_leader.node_id,
            leader_epoch=fetched.current_leader.leader_epoch,
        ),
    )


def refuse_all(request: FetchRequest, code: ErrorCode) -> Steps[FetchResponse]:
    """Return an answer that refuses each partition of a request."""
    topics = []
    for topic in request.topics:
        partitions = yield from each(
            topic.partitions, lambda part: refused_data(part.partition, code)
        )
        topics.append(
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return FetchResponse(
        error_code=code if code is ErrorCode.UNKNOWN_SERVER_ERROR else ErrorCode.NONE,
        responses=topics,
    )
