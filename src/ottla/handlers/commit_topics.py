"""The topics of an OffsetCommit or TxnOffsetCommit: which of them exist, and an answer for each.

Partitions that do not exist are refused here and never reach the group. Knows the shape that both
requests share, nothing of groups' rules.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ottla.coordinator.group.committing import PartitionCommit, TopicCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import TopicImage
from ottla.sliced import STRIDE, Steps


class AskedPartition(Protocol):
    """One partition of a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class AskedTopic(Protocol):
    """One topic of a request."""

    @property
    def partitions(self) -> Sequence[AskedPartition]:
        """In the order in which they are answered."""


Topic = TypeVar("Topic", bound=AskedTopic)


class Sorted(NamedTuple):
    """A request's topics, sorted."""

    existing: list[TopicCommit]
    refusals: list[ErrorCode | None]
    """Of each partition asked for, in order: why it is refused; None: it is in ``existing``."""

    def codes(self, outcome: list[ErrorCode] | KafkaError) -> list[ErrorCode]:
        """Return what each partition is answered, given what the group says to the existing."""
        if isinstance(outcome, KafkaError):
            return [outcome.code if refusal is None else refusal for refusal in self.refusals]
        codes = iter(outcome)
        return [next(codes) if refusal is None else refusal for refusal in self.refusals]


def sort_topics(
    topics: Sequence[Topic],
    topic_of: Callable[[Topic], TopicImage | None],
    unknown: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> Steps[Sorted]:
    """Sort out what does not exist; ``unknown`` is the answer to a topic that does not."""
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
                refusals.append(unknown)
        if partitions:
            existing.append(TopicCommit(topic.name, partitions, topic.topic_id))
    return Sorted(existing, refusals)
