"""The Fetch request for one leader, and what its answer says. No input or output.

Record batches stay bytes here: ``ottla.records`` opens them, and Spark does in its own way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.wire.errors import error_code
from ottla.client.wire.view import ClusterView
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import (
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

LAST_VERSION_BY_NAME = TOPIC_IDS_SINCE - 1
"""The last version of Fetch that names topics instead of giving their ids."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much one Fetch brings, and how long it waits for ``min_bytes``."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 4 << 20
    read_committed: bool = False


class FetchedPartition(NamedTuple):
    """What one partition gave. ``records`` are whole batches, the last perhaps cut short.

    The first batch may begin before the offset asked for. ``aborted``: (producer id, first offset)
    of the transactions to leave out when reading committed records only.
    """

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...]


def fetch_request(
    view: ClusterView, offsets: Mapping[TopicPartition, int], limits: FetchLimits
) -> FetchRequest:
    """Return the request for the partitions of one leader, from these offsets, in this order."""
    by_topic: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=view.partition(topic, partition).leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=limits.partition_max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=1 if limits.read_committed else 0,
        topics=[
            FetchTopic(topic=name, topic_id=view.topics[name].topic_id, partitions=each)
            for name, each in by_topic.items()
        ],
    )


def fetch_version_limit(view: ClusterView, offsets: Mapping[TopicPartition, int]) -> int | None:
    """Return the highest version usable for these topics; None for no limit."""
    have_ids = view.have_ids({topic for topic, _ in offsets})
    return None if have_ids else LAST_VERSION_BY_NAME


def read_fetch(view: ClusterView, answer: FetchResponse) -> dict[TopicPartition, FetchedPartition]:
    """Return what each partition gave. Raises KafkaError for an error of the whole answer."""
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(error_code(answer.error_code), "Fetch was refused")
    fetched: dict[TopicPartition, FetchedPartition] = {}
    for topic in answer.responses:
        name = topic.topic or view.topic_name(topic.topic_id)
        for each in topic.partitions:
            fetched[TopicPartition(name, each.partition_index)] = _partition(each)
    return fetched


def _partition(data: PartitionData) -> FetchedPartition:
    records = data.records
    if records is None or not isinstance(records, (bytes, bytearray, memoryview)):
        records = b""
    return FetchedPartition(
        error=error_code(data.error_code),
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        records=memoryview(records),
        aborted=tuple(
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        ),
    )
