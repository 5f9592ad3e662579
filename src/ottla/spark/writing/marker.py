"""Which micro-batch of a query a topic has already, and what follows from that. Pure.

The marker is a group's committed offset, written in the transaction of the batch itself: the offset
is the batch's number, the metadata names the query and where its rows go. The group is named like
the transactional id. So marker and rows are there together or not at all.

    offset    int64   number of the last batch committed
    metadata  JSON    {"ottla": 1, "query": "<id of the query>", "topic": "<option topic>" or null}

Used by ``delivery`` between InitProducerId (which has ended whatever was open) and the first row.
"""

import json
from enum import Enum
from typing import NamedTuple

from ottla.client.coordination import Committed
from ottla.client.transacting import OffsetToCommit
from ottla.errors import OttlaError
from ottla.ids import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
VERSION = 1


class DeliveryError(OttlaError):
    """A batch cannot be delivered exactly once, or not be told whether it has been."""


class Marker(NamedTuple):
    """A batch of a query, as it is committed."""

    query_id: str
    batch_id: int
    topic: str | None
    """The sink's option; None: the rows say it."""

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


class Step(Enum):
    """What to do with a batch."""

    WRITE = "write"
    SKIP = "it is there already"


def marker_place(topic: str | None) -> TopicPartition:
    """Return the partition under which the group keeps the marker: one that surely exists."""
    return TopicPartition(OFFSETS_TOPIC if topic is None else topic, 0)


def write_marker(marker: Marker) -> OffsetToCommit:
    """Return what to commit."""
    metadata = {"ottla": VERSION, "query": marker.query_id, "topic": marker.topic}
    return OffsetToCommit(marker.batch_id, json.dumps(metadata, ensure_ascii=False))


def read_marker(committed: Committed | None) -> Marker | None:
    """Return what was committed, None for nothing. Raises DeliveryError for somebody else's."""
    if committed is None:
        return None
    try:
        metadata = json.loads(committed.metadata)
        if metadata["ottla"] == VERSION:
            return Marker(str(metadata["query"]), committed.offset, metadata["topic"])
    except (ValueError, LookupError, TypeError):
        pass
    message = (
        f"the group named like the transactional id has an offset that is no marker of this sink "
        f"(offset {committed.offset}, metadata {committed.metadata!r}): choose another id"
    )
    raise DeliveryError(message)


def decide(found: Marker | None, wanted: Marker, *, missing_is_new: bool) -> Step:
    """Return what to do with ``wanted`` when ``found`` was committed last.

    ``missing_is_new``: without a marker a batch is one that was never written, whatever its number.
    Raises DeliveryError where neither step would be exactly once.
    """
    if found is None or found.query_id != wanted.query_id:
        if wanted.batch_id == 0 or missing_is_new:
            return Step.WRITE
        there = "there is none" if found is None else f"there is {found}"
        message = (
            f"cannot tell whether {wanted} was written before: its transactional id has no marker "
            f"of this query ({there}). Either the query wrote without delivery=exactly-once until "
            "now, or with another transactional.id or topic, or the marker has expired (brokers "
            "keep offsets for offsets.retention.minutes, 7 days). If the batch was not written, "
            "start once with the option onMissingMarker=write"
        )
        raise DeliveryError(message)
    if found.topic != wanted.topic:
        message = (
            f"{wanted} goes to topic {wanted.topic or 'of its rows'}, but its transactional id "
            f"belongs to a sink for {found.topic or 'the topic of its rows'}: each sink needs its "
            "own transactional.id"
        )
        raise DeliveryError(message)
    if found.batch_id > wanted.batch_id:
        message = (
            f"{wanted} comes after batch {found.batch_id} was committed: the checkpoint is older "
            "than the topic. Writing it again would double rows, leaving it out might lose some"
        )
        raise DeliveryError(message)
    return Step.SKIP if found.batch_id == wanted.batch_id else Step.WRITE
