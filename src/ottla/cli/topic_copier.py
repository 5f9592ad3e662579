"""Copies records from topic to topic, each exactly once, however often it is interrupted.

Owns the lanes, one per partition, and their checkpoints: how far the source was read, and where the
target ended then. They are committed on the target's cluster, for a group of their own, with this
as the metadata of the offset:

    ottla-copy 1 <source topic id> <source next> <target next> <source first> <target first>

What the target holds behind its checkpoint was written by a copy that was interrupted: it is
compared with the source, record by record, and not copied again. So nobody else may write there,
which is noticed by the offsets that the target gives.
"""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from ottla.cli.failure import Failure
from ottla.cli.output import progress
from ottla.cli.record_stream import TO_AN_END, Digest, committed_records, is_same
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import Fetcher
from ottla.client.asyncio.groups import Groups
from ottla.client.asyncio.producer import Delivery, Producer, ProducerSettings
from ottla.client.wire.reading import read_records
from ottla.ids import TopicPartition
from ottla.records.compression import Codec
from ottla.records.record import Record

PENDING_MAX = 20_000
"""Records between two checkpoints: what is compared after an interruption."""
_FORM = ("ottla-copy", "1")


@dataclass(slots=True)
class Lane:
    """One partition on its way. Offsets; ``..._next`` are of what is written for certain."""

    source: TopicPartition
    target: TopicPartition
    source_next: int
    target_next: int
    source_first: int
    """Where the copy once began, and where the target ended then."""
    target_first: int
    source_end: int = 0
    """Where this run ends."""
    target_end: int = 0
    """Where the target ended when this run began."""
    deleted: int = 0
    """How many offsets the source has deleted since the checkpoint, behind that."""
    is_compacted: bool = False
    """Whether the source may lack records from between others, too."""
    copied: int = 0
    read_next: int = 0
    """How far the source was read: to here, once all that is pending is written."""
    pending: "list[asyncio.Future[Delivery]]" = field(default_factory=list)

    @classmethod
    def new(cls, source: TopicPartition, target: TopicPartition, first: int, at: int) -> Self:
        """Return a lane that begins with the source's offset ``first`` at the target's ``at``."""
        return cls(source, target, first, at, first, at)

    def checkpoint(self, topic_id: str) -> str:
        """Return what is kept of it."""
        numbers = (self.source_next, self.target_next, self.source_first, self.target_first)
        return " ".join((*_FORM, topic_id, *map(str, numbers)))


def checkpoint_group(cluster_id: str, topic: str) -> str:
    """Return the group on the target's cluster that holds the checkpoints of a source."""
    return f"ottla-copy-{cluster_id}-{topic}"


def read_checkpoint(text: str, topic_id: str) -> tuple[int, int, int, int] | None:
    """Return the offsets of a checkpoint. Raises Failure if it is of another topic's copy.

    None: it is no checkpoint.
    """
    words = text.split()
    if len(words) != len(_FORM) + 5 or tuple(words[:2]) != _FORM:
        return None
    if words[2] != topic_id:
        why = "the topic was deleted and made anew since its records were copied"
        raise Failure("the target holds another topic's copy", why=why, fix="copy to a new topic")
    try:
        source_next, target_next, source_first, target_first = map(int, words[3:])
    except ValueError:
        return None
    return source_next, target_next, source_first, target_first


class Ends(NamedTuple):
    """From where to where: the clusters, the source's id in hexadecimal, the checkpoints' group."""

    cluster: Cluster
    topic_id: str
    other: Cluster
    group: str


class Copier:
    """Copies lanes from their ``source_next`` to their ``source_end``."""

    def __init__(self, ends: Ends, lanes: list[Lane], *, codec: Codec, batch_bytes: int) -> None:
        self._cluster = ends.cluster
        self._topic_id = ends.topic_id
        self._other = ends.other
        self._group = ends.group
        self._groups = Groups(ends.other)
        self._lanes = {lane.source: lane for lane in lanes}
        self._settings = ProducerSettings(
            codec=codec,
            batch_size_bytes=batch_bytes,
            may_create_topics=False,
            stops_at_failure=True,
        )
        self._pending = 0
        self._shown = 0.0

    async def run(self) -> None:
        """Copy until each lane is at its end. Raises Failure, KafkaError, ConnectionFailed."""
        for lane in self._lanes.values():
            await self._take_up(lane)
        await self._commit()
        open_lanes = {
            each: lane.source_next
            for each, lane in self._lanes.items()
            if lane.source_next < lane.source_end
        }
        if not open_lanes:
            return
        async with (
            Producer(self._other, self._settings) as producer,
            Fetcher(self._cluster, TO_AN_END) as fetcher,
        ):
            await self._copy(producer, fetcher, open_lanes)
            await self._settle(producer)
        progress("")

    async def _copy(
        self, producer: Producer, fetcher: Fetcher, open_lanes: dict[TopicPartition, int]
    ) -> None:
        await fetcher.assign(open_lanes)
        async for batches in fetcher.batches():
            lane = self._lanes[batches.partition]
            for record in read_records(batches.records, batches.offset, batches.aborted):
                if record.offset >= lane.source_end:
                    break
                promise = await producer.send(
                    lane.target.topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=lane.target.partition,
                    timestamp_ms=record.timestamp,
                )
                lane.pending.append(promise)
                lane.read_next = record.offset + 1
                self._pending += 1
                if self._pending >= PENDING_MAX:
                    await self._settle(producer)
            lane.read_next = min(batches.next_offset, lane.source_end)
            if batches.next_offset >= lane.source_end:
                del open_lanes[batches.partition]
                await fetcher.stop_partition(batches.partition)
            if not open_lanes:
                return

    async def _settle(self, producer: Producer) -> None:
        """Wait until all that was sent is written where it belongs, and keep how far that is."""
        await producer.flush()
        for lane in self._lanes.values():
            for promise in lane.pending:
                delivery = await promise
                if delivery.offset != lane.target_next:
                    raise Failure(
                        f"somebody else writes to {lane.target}",
                        why=f"a record was given offset {delivery.offset},"
                        f" expected {lane.target_next}",
                        fix="copy to a topic of its own",
                    )
                lane.target_next += 1
                lane.copied += 1
            lane.pending.clear()
            lane.source_next = max(lane.source_next, lane.read_next)
        self._pending = 0
        await self._commit()
        self._show()

    async def _commit(self) -> None:
        await self._groups.commit(
            self._group,
            {lane.target: lane.target_next for lane in self._lanes.values()},
            metadata={
                lane.target: lane.checkpoint(self._topic_id) for lane in self._lanes.values()
            },
        )

    async def _take_up(self, lane: Lane) -> None:
        """Go behind what an interrupted copy has written. Raises Failure if it is something else.

        Records that the target has compacted away since are counted by their offsets.
        """
        end = lane.target_end
        if end <= lane.target_next:
            return
        if lane.deleted or lane.is_compacted:
            await self._take_up_thinned(lane)
            return
        async with (
            aclosing(
                committed_records(self._cluster, lane.source, lane.source_next, lane.source_end)
            ) as ours,
            aclosing(committed_records(self._other, lane.target, lane.target_next, end)) as theirs,
        ):
            found = await anext(theirs, None)
            for offset in range(lane.target_next, end):
                record = await anext(ours, None)
                is_there = found is not None and found.offset == offset
                if record is None or (is_there and found and not is_same(record, found)):
                    raise _not_copied(lane, offset)
                if is_there:
                    found = await anext(theirs, None)
                lane.source_next = record.offset + 1
        lane.target_next = end

    async def _take_up_thinned(self, lane: Lane) -> None:
        """As ``_take_up``, when the source has lost records since: go behind the last that is left.

        What is left of the source's was written in this order, and the target has not more of it
        than it has offsets.
        """
        first, end = lane.target_next, lane.target_end
        written: set[str] = set()
        async with aclosing(committed_records(self._other, lane.target, first, end)) as theirs:
            async for record in theirs:
                written.add(_digest(record))
        next_offset, count = -1, 0
        ours = committed_records(self._cluster, lane.source, lane.source_next, lane.source_end)
        async with aclosing(ours):
            async for record in ours:
                if _digest(record) in written:
                    next_offset = record.offset + 1
                count += 1
                if count >= end - first:
                    break
        if next_offset >= 0:
            lane.source_next = next_offset
        elif written and lane.deleted < end - first:  # Else all of it may have been deleted.
            raise _not_copied(lane, first)
        lane.target_next = end

    def _show(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._shown < 1:
            return
        self._shown = now
        done = sum(lane.copied for lane in self._lanes.values())
        left = sum(lane.source_end - lane.source_next for lane in self._lanes.values())
        progress(f"copied {done:,} records, {left:,} offsets to go")


def _digest(record: Record) -> str:
    digest = Digest()
    digest.add(record)
    return digest.text()


def _not_copied(lane: Lane, offset: int) -> Failure:
    return Failure(
        f"{lane.target} holds what was not copied, at offset {offset}",
        why=f"the copy of {lane.source} had come to {lane.target_next}",
        fix="copy to a topic of its own",
    )


async def count_before(cluster: Cluster, lane: Lane, offset: int) -> int:
    """Return how many records of the copy lie before the source's ``offset``.

    Raises Failure when the source does not hold all of them any more.
    """
    before = count = 0
    async with aclosing(
        committed_records(cluster, lane.source, lane.source_first, lane.source_next)
    ) as records:
        async for record in records:
            count += 1
            if record.offset < offset:
                before += 1
    written = lane.target_next - lane.target_first
    if count != written:
        raise Failure(
            f"offsets of {lane.source} cannot be translated",
            why=f"{written:,} records were copied, and {count:,} of them are still there",
            fix=f"ottla group reset GROUP --topic {lane.target.topic} --to TIME",
        )
    return before
