"""Turns an OffsetCommit or TxnOffsetCommit into records, and into memory. Pure.

A commit is what group coordinators do most, so it costs neither an object per partition nor a
replay of its own records: ``take`` puts into ``Offsets`` what a replay would, and a test compares
both ways. The group decides whether a commit is allowed; ``records`` has the layout of the records.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import error as StructError  # noqa: N812 - it is a class
from typing import NamedTuple

from ottla.coordinator.group.offsets import records
from ottla.coordinator.group.offsets.committed import NEVER_EXPIRES, CommittedOffset, Offsets
from ottla.coordinator.group.record_bytes import too_long
from ottla.coordinator.records import ProducerIdAndEpoch
from ottla.errors import ErrorCode
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.records.builder import KeyAndValue

RECORD_BYTES_MIN = 40
"""An offset's record takes more: 7 bytes of its own, 10 and two names in its key, 24 in its value.
So a commit that cannot be one batch is refused before its records are made."""

PartitionCommit = tuple[int, int, int, str | None]
"""A partition, the offset, the leader epoch of the last record read (-1: not told), metadata."""


class TopicCommit(NamedTuple):
    """The partitions of one topic in an OffsetCommit."""

    topic: str
    partitions: Sequence[PartitionCommit]
    topic_id: TopicId = NULL_TOPIC_ID


class CommitRequest(NamedTuple):
    """An OffsetCommit of partitions that exist."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    """The generation or epoch; negative: the client is in no group."""
    retention_ms: int
    """-1: the retention of the node."""
    topics: Sequence[TopicCommit]
    tells_unknown_group: bool
    """If the group does not exist, a generation is refused with GROUP_ID_NOT_FOUND (v9), not
    ILLEGAL_GENERATION."""
    producer: ProducerIdAndEpoch | None = None
    """The producer in whose transaction the offsets are committed; they are pending until it ends.
   """
    check: Callable[[], None] | None = None
    """Called in the commit's turn; raises KafkaError if the commit is not allowed."""

    @property
    def is_transactional(self) -> bool:
        """Whether the commit is part of a transaction."""
        return self.producer is not None

    def places(self) -> Iterator[tuple[TopicId, int]]:
        """Yield the partitions that are committed."""
        for topic in self.topics:
            for partition, _, _, _ in topic.partitions:
                yield topic.topic_id, partition


class Written(NamedTuple):
    """The codes and records of a commit."""

    codes: list[ErrorCode]
    """The code of each partition, in the order of the request."""
    records: list[KeyAndValue]
    """One record for each partition whose code is NONE, in that order."""
    topics: Sequence[TopicCommit]
    """The partitions of the records."""
    time_ms: int
    expire_ms: int


def write(request: CommitRequest, now_ms: int, metadata_length_max: int) -> Written:
    """Return the records of a commit. Raises KafkaError if a text is too long to store."""
    expire_ms = NEVER_EXPIRES if request.retention_ms == -1 else now_ms + request.retention_ms
    codes: list[ErrorCode] = []
    found: list[KeyAndValue] = []
    taken: list[TopicCommit] = []
    for topic, asked, topic_id in request.topics:
        partitions = asked
        has_metadata = False
        for _, _, _, metadata in asked:
            if metadata:
                has_metadata = True
                break
        if has_metadata:
            partitions = []
            for commit in asked:
                fits = _fits(commit[3] or "", metadata_length_max)
                codes.append(NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE)
                if fits:
                    partitions.append(commit)
        else:
            codes += [NONE] * len(asked)
        try:
            found += records.offset_records(
                request.group_id, topic, topic_id, partitions, now_ms, expire_ms
            )
        except StructError as error:
            raise too_long() from error
        taken.append(TopicCommit(topic, partitions, topic_id))
    return Written(codes, found, taken, now_ms, expire_ms)


def take(
    offsets: Offsets, group_id: str, written: Written, base_offset: int, producer_id: int
) -> None:
    """Put a commit into memory whose records begin at ``base_offset`` in the log.

    ``producer_id`` >= 0: the commit is part of that producer's transaction.
    """
    _, _, topics, time_ms, expire_ms = written
    record_offset = base_offset
    expires = expire_ms != NEVER_EXPIRES
    for topic, partitions, told_id in topics:
        # The record of a commit that expires has no topic id: see ``records``.
        topic_id = NULL_TOPIC_ID if expires else told_id
        values: list[tuple[int, CommittedOffset]] = []
        for partition, offset, told_epoch, metadata in partitions:
            epoch = -1 if expires else told_epoch
            values.append(
                (
                    partition,
                    CommittedOffset(
                        offset, epoch, metadata or "", time_ms, expire_ms, topic_id, record_offset
                    ),
                )
            )
            record_offset += 1
        offsets.put_all(group_id, topic, values, producer_id)


NONE = ErrorCode.NONE


def _fits(metadata: str, length_max: int) -> bool:
    """Kafka counts UTF-16 units: never more than twice the code points."""
    return 2 * len(metadata) <= length_max or _utf16_length(metadata) <= length_max


def _utf16_length(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)
