"""Finds out which topics and partitions of an OffsetCommit or TxnOffsetCommit exist.

Partitions that do not exist are refused here and never reach the group. Knows the shape that both
requests share, and nothing of the rules of groups.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import NamedTuple, Protocol, TypeVar

from ottla.coordinator.group.offsets.committing import PartitionCommit, TopicCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import TopicImage
from ottla.sliced import STRIDE, Steps


class AskedPartition(Protocol):
    """A partition, as both requests name it."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class AskedTopic(Protocol):
    """A topic, as both requests name it."""

    @property
    def partitions(self) -> Sequence[AskedPartition]:
        """The partitions, in the order in which they are answered."""


Topic = TypeVar("Topic", bound=AskedTopic)


class Sorted(NamedTuple):
    """A request's topics, sorted."""

    existing: list[TopicCommit]
    refusals: list[ErrorCode | None]
    """For each partition of the request, in order: why it is refused; None: it exists."""

    def codes(self, of_existing: Iterable[ErrorCode]) -> list[ErrorCode]:
        """Return the code of each partition of the request, in order.

        ``of_existing``: the group's codes for the partitions in ``existing``.
        """
        codes = iter(of_existing)
        return [next(codes) if refusal is None else refusal for refusal in self.refusals]

    def codes_refused(self, error: KafkaError) -> list[ErrorCode]:
        """Return the code of each partition when the group refuses all of ``existing``."""
        return self.codes(repeat(error.code))


def sort_topics(
    topics: Sequence[Topic],
    topic_of: Callable[[Topic], TopicImage | None],
    unknown: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> Steps[Sorted]:
    """Sort topics and partitions; ``unknown`` is the code of topics that do not exist."""
    existing: list[TopicCommit] = []
    refusals: list[ErrorCode | None] = []
    for asked in topics:
        yield None
        topic = topic_of(asked)
        if topic is None:
            refusals += [unknown] * len(asked.partitions)
            continue
        count = len(topic.partitions)
        partitions: list[PartitionCommit] = []
        for number, one in enumerate(asked.partitions, 1):
            if not number % STRIDE:
                yield None
            if 0 <= one.partition_index < count:
                refusals.append(None)
                partitions.append(
                    (
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata,
                    )
                )
            else:
                refusals.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partitions:
            existing.append(TopicCommit(topic.name, partitions, topic.topic_id))
    return Sorted(existing, refusals)
