"""Reads partitions from given offsets on, without a group. On asyncio.

Owns the positions and one reading task per leader: its next Fetch is on the way while the batches
of the last are worked on. ``batches`` yields record batches as they came, ``records`` opens them.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import NamedTuple, Self

from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.backoff import Backoff
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.fetching import FetchLimits, fetch_request, fetch_version_limit, read_fetch
from ottla.client.wire.reading import read_records
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import FetchResponse
from ottla.records.batch_walk import next_offset
from ottla.records.record import Record

ANSWERS_AHEAD = 2
"""Answers that may wait for the caller; the readers pause beyond."""


class FetchedBatches(NamedTuple):
    """Complete batches of one partition; perhaps none, when only the watermark is news.

    Records before ``offset`` and those of ``aborted`` transactions are to be left out
    (``reading.read_records`` does). ``next_offset`` is where the next read begins.
    """

    partition: TopicPartition
    offset: int
    next_offset: int
    high_watermark: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...]


class Fetcher:
    """Use as an async context manager; ``assign`` first, then iterate. One consumer at a time."""

    def __init__(self, cluster: Cluster, limits: FetchLimits | None = None) -> None:
        self._cluster = cluster
        self._limits = limits or FetchLimits()
        self._positions: dict[TopicPartition, int] = {}
        self._answers: asyncio.Queue[FetchedBatches | OttlaError] = asyncio.Queue(ANSWERS_AHEAD)
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading. Harmless when closed already."""
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, and no other, from these offsets. What was read ahead is lost."""
        await self.close()
        self._positions = dict(offsets)
        self._answers = asyncio.Queue(ANSWERS_AHEAD)
        if offsets:
            self._reading = asyncio.create_task(self._read(), name="ottla fetcher")

    async def stop_partition(self, partition: TopicPartition) -> None:
        """Read ``partition`` no more, the others as before."""
        self._positions.pop(partition, None)

    async def batches(self) -> AsyncIterator[FetchedBatches]:
        """Yield answers with records, as they come, for ever or until nothing is assigned.

        Raises KafkaError (OFFSET_OUT_OF_RANGE among them) and ConnectionFailed when retries are of
        no use or used up.
        """
        while self._reading is not None:
            answer = await self._answers.get()
            if isinstance(answer, OttlaError):
                raise answer
            yield answer

    async def records(self) -> AsyncIterator[tuple[TopicPartition, Record]]:
        """Yield records, as ``batches`` does their batches."""
        async for each in self.batches():
            for record in read_records(each.records, each.offset, each.aborted):
                yield each.partition, record

    async def _read(self) -> None:
        """Keep one reader per leader running; begin anew when leaders changed."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._cluster.settings, loop.time())
        while self._positions:
            before = dict(self._positions)
            try:
                await self._read_from_leaders()
            except (KafkaError, ConnectionFailed) as error:
                if self._positions != before:
                    backoff = Backoff(self._cluster.settings, loop.time())
                backoff.connected()
                pause = backoff.pause_seconds(error, loop.time())
                if pause is None:
                    await self._answers.put(error)
                    return
                self._cluster.trouble.retrying(error, self)
                self._cluster.forget_leaders()
                await asyncio.sleep(pause)

    async def _read_from_leaders(self) -> None:
        await self._cluster.ensure_led(self._positions)
        by_leader = self._cluster.view.by_leader(self._positions)
        readers = [
            asyncio.create_task(self._read_from(leader, partitions))
            for leader, partitions in by_leader.items()
        ]
        try:
            await asyncio.gather(*readers)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _read_from(self, leader: int, partitions: list[TopicPartition]) -> None:
        cluster = self._cluster
        connection = await cluster.connection(leader, "fetch")
        while asked := {
            each: self._positions[each] for each in partitions if each in self._positions
        }:
            view = cluster.view
            answer = await connection.call(
                fetch_request(view, asked, self._limits),
                FetchResponse,
                highest=fetch_version_limit(view, asked),
                timeout_ms=cluster.settings.request_timeout_ms + self._limits.max_wait_ms,
            )
            for partition, fetched in read_fetch(view, answer).items():
                if fetched.error is not ErrorCode.NONE:
                    why = f"{partition} at offset {asked[partition]}: {fetched.error.text}"
                    raise KafkaError(fetched.error, why)
                if self._positions.get(partition) == asked[partition] and len(fetched.records):
                    offset = asked[partition]
                    self._positions[partition] = end = next_offset(fetched.records, offset)
                    await self._answers.put(
                        FetchedBatches(
                            partition,
                            offset,
                            end,
                            fetched.high_watermark,
                            fetched.records,
                            fetched.aborted,
                        )
                    )
            cluster.trouble.answered(self)
            # Later partitions were asked first last time, and have had their share.
            partitions = partitions[1:] + partitions[:1]
