"""Reads partitions from given offsets on: one request at a time to each leader. On asyncio.

Owns the positions and what was read ahead, a bounded amount for each partition. Knows no group;
``consuming`` says which partitions, and from where. Source: Kafka's documentation of fetch.*.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ottla.client.asyncio.cluster import Cluster
from ottla.client.library.failures import ClientError, as_failure
from ottla.client.library.settings import ConsumerSettings
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.fetching import (
    FetchedPartition,
    FetchLimits,
    fetch_request,
    fetch_version_limit,
    read_fetch,
)
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.client.wire.view import ClusterView
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import FetchResponse
from ottla.records.batch_walk import next_offset
from ottla.records.control import ControlType, control_type_of
from ottla.records.decode import decode_rows, whole_batches
from ottla.records.rows import FoundRow

DECOMPRESSED_BYTES_MAX = 1 << 30
AHEAD = 2
"""Answers of one partition that may wait for the caller."""
RESETS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(slots=True)
class Chunk:
    """Records of one partition, in order, as the caller gets them; ``end``: what follows them."""

    partition: TopicPartition
    rows: list[FoundRow]
    end: int


@dataclass(slots=True)
class _Answer:
    """Batches as they came, not opened yet."""

    batches: deque[tuple[int, memoryview]]
    end: int
    aborted: list[tuple[int, int]]
    being_aborted: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Place:
    """One partition: how far it was read."""

    partition: TopicPartition
    fetch_offset: int
    """Use: where the next Fetch begins."""
    position: int
    """Use: what the caller gets next; what it commits."""
    done: int
    """Use: what the caller has surely worked on; what is committed behind its back."""
    is_paused: bool = False
    is_fetching: bool = False
    answers: deque[_Answer] = field(default_factory=deque)
    epoch: int = 0
    """Use: counts the seeks, so that an answer from before one is known."""
    error: ClientError | None = None
    failing_since: float | None = None
    """Use: since when it cannot be read for a reason that may pass, by the loop's clock."""


class Reader:
    """Call ``start`` on a loop. ``take`` gives records."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self.places: dict[TopicPartition, Place] = {}
        self._cluster = cluster
        self._settings = settings
        self._limits = FetchLimits(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            partition_max_bytes=settings.partition_max_bytes,
            read_committed=settings.read_committed,
        )
        self._changed = asyncio.Event()
        self.news = asyncio.Event()
        """Set when there may be something to take."""
        self._task: asyncio.Task[None] | None = None
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._failing_since: float | None = None
        self._error: ClientError | None = None

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, too, from these offsets."""
        for each, offset in offsets.items():
            self.places[each] = Place(each, offset, offset, offset)
        self._begin()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        for each in partitions:
            self.places.pop(each, None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading at ``offset``; what was read ahead is dropped."""
        place = self.places[partition]
        place.fetch_offset = place.position = place.done = offset
        place.answers.clear()
        place.error = None
        place.epoch += 1
        self._begin()

    def wake(self) -> None:
        """Have a look at what may be fetched."""
        self._begin()

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ottla reader")
        self._changed.set()

    def abandon(self) -> "list[asyncio.Task[None]]":
        """Let the tasks end, and return them."""
        tasks = [*self._fetches.values(), *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        return tasks

    def take(self) -> Chunk | None:
        """Return the next records that are there, of the partition that has waited longest.

        None: there are none. Raises ClientError for a partition that cannot be read; the others go
        on, and so does it when it is sought.
        """
        if self._error is not None:
            error, self._error = self._error, None
            self._failing_since = None
            raise error
        for place in list(self.places.values()):
            if place.is_paused:
                continue
            if place.error is not None:
                failed, place.error = place.error, None
                self._changed.set()
                raise failed
            while place.answers:
                chunk = self._open(place)
                if chunk is not None:
                    # The others come first next time.
                    self.places[place.partition] = self.places.pop(place.partition)
                    return chunk
        return None

    def glance(self) -> Chunk | None:
        """As ``take``, but whatever is wrong is left for that to raise."""
        for place in list(self.places.values()):
            if place.is_paused or place.error is not None:
                continue
            with suppress(ClientError):  # The batch is read again.
                while place.answers:
                    chunk = self._open(place)
                    if chunk is not None:
                        self.places[place.partition] = self.places.pop(place.partition)
                        return chunk
        return None

    def _open(self, place: Place) -> Chunk | None:
        """Decode the first batch that waits; None if nothing of it is for the caller."""
        answer = place.answers[0]
        if not answer.batches:
            place.answers.popleft()
            place.position = max(place.position, answer.end)
            place.done = max(place.done, place.position)
            self._changed.set()
            return None
        magic, entry = answer.batches.popleft()
        try:
            header, rows = decode_rows(magic, entry, DECOMPRESSED_BYTES_MAX)
        except KafkaError as error:
            # The reader stands before the bad batch; a seek gets over it.
            place.answers.clear()
            place.fetch_offset = place.position
            place.epoch += 1
            raise as_failure(f"read {place.partition} at offset {place.position}", error) from error
        while answer.aborted and answer.aborted[0][1] <= header.last_offset:
            answer.being_aborted.add(answer.aborted.pop(0)[0])
        if header.is_control:
            if any(control_type_of(row[2]) is ControlType.ABORT for row in rows):
                answer.being_aborted.discard(header.producer_id)
            rows = []
        elif header.is_transactional and header.producer_id in answer.being_aborted:
            rows = []
        end = max(header.next_offset, place.position)
        if rows and rows[0][0] < place.position:
            rows = [row for row in rows if row[0] >= place.position]
        if not rows:
            place.done = place.done if place.done < place.position else end
            place.position = end
            return None
        return Chunk(place.partition, rows, end)

    async def _run(self) -> None:
        """Keep a Fetch under way at each leader that has something to be asked for."""
        while True:
            self._changed.clear()
            wanted = [each for each in self.places.values() if self._may_fetch(each)]
            pause: float | None = None
            if wanted:
                backoff = self._cluster.settings.retry_backoff_max_ms / 1000
                try:
                    view = await self._cluster.look({each.partition for each in wanted})
                except (KafkaError, ConnectionFailed) as error:
                    self._note(error)
                    pause = backoff
                else:
                    pause = None if self._fetch(view, wanted) else backoff
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    def _may_fetch(self, place: Place) -> bool:
        return not (
            place.is_paused or place.is_fetching or place.error or len(place.answers) >= AHEAD
        )

    def _fetch(self, view: ClusterView, wanted: list[Place]) -> bool:
        """Begin fetches; return whether all partitions have leaders. The others are read on."""
        by_leader: dict[int, list[Place]] = {}
        are_led = True
        for place in wanted:
            if self.places.get(place.partition) is place and self._may_fetch(place):
                try:
                    leader = view.partition(*place.partition).leader
                except KafkaError as error:
                    are_led = False
                    self._note_place(place, error)
                    continue
                if leader not in self._fetches:
                    by_leader.setdefault(leader, []).append(place)
        for leader, places in by_leader.items():
            for place in places:
                place.is_fetching = True
            work = self._fetch_from(view, leader, places)
            self._fetches[leader] = task = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(partial(self._fetched, leader))
        return are_led

    def _fetched(self, leader: int, _: "asyncio.Task[None]") -> None:
        self._fetches.pop(leader, None)
        self._changed.set()

    async def _fetch_from(self, view: ClusterView, leader: int, places: list[Place]) -> None:
        asked = {each.partition: each.fetch_offset for each in places}
        epochs = {each.partition: each.epoch for each in places}
        by_partition = {each.partition: each for each in places}
        try:
            connection = await self._cluster.connection(leader, "fetch")
            answer = await connection.call(
                fetch_request(view, asked, self._limits),
                FetchResponse,
                highest=fetch_version_limit(view, asked),
                timeout_ms=self._cluster.settings.request_timeout_ms + self._limits.max_wait_ms,
            )
            self._failing_since = None
            are_led = True
            for partition, fetched in read_fetch(view, answer).items():
                place = by_partition.get(partition)
                is_current = place is not None and place.epoch == epochs[partition]
                if place is not None and is_current and self.places.get(partition) is place:
                    are_led = await self._accept(place, fetched) and are_led
            if not are_led:
                self._cluster.forget_leaders()
                await asyncio.sleep(self._cluster.settings.retry_backoff_ms / 1000)
        except (KafkaError, ConnectionFailed) as error:
            self._note(error)
            self._cluster.forget_leaders()
            await asyncio.sleep(self._cluster.settings.retry_backoff_ms / 1000)
        finally:
            for place in places:
                place.is_fetching = False

    async def _accept(self, place: Place, fetched: FetchedPartition) -> bool:
        """Take what came of a partition. False: it is to be looked for elsewhere, or later."""
        if fetched.error is ErrorCode.NONE:
            place.failing_since = None
            if len(fetched.records):
                end = next_offset(fetched.records, place.fetch_offset)
                aborted = sorted(fetched.aborted, key=lambda each: each[1])
                try:
                    batches = deque(whole_batches(fetched.records))
                except KafkaError as error:
                    place.error = as_failure(f"read {place.partition}", error)
                else:
                    place.answers.append(_Answer(batches, end, aborted))
                    place.fetch_offset = end
                self.news.set()
            return True
        why = f"{place.partition} at offset {place.fetch_offset}: {fetched.error.text}"
        refused = KafkaError(fetched.error, why)
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._reset(place, refused)
        else:
            self._note_place(place, refused)
            return not fetched.error.retriable
        return True

    async def _reset(self, place: Place, error: KafkaError) -> None:
        """Go where ``auto_offset_reset`` says; the offset is not in the log any more."""
        timestamp = RESETS.get(self._settings.auto_offset_reset)
        if timestamp is None or place.answers:
            place.error = as_failure(f"read {place.partition}", error)
            self.news.set()
            return
        epoch = place.epoch
        found = await self._cluster.list_offsets(
            {place.partition: timestamp}, read_committed=self._settings.read_committed
        )
        if place.epoch == epoch and self.places.get(place.partition) is place:
            self.seek(place.partition, found[place.partition].offset)

    def _note_place(self, place: Place, error: KafkaError) -> None:
        """Tell the caller of one partition's trouble, as ``_note``; the others are read on."""
        now = asyncio.get_running_loop().time()
        if place.failing_since is None:
            place.failing_since = now
        patience = self._cluster.settings.retry_timeout_ms / 1000
        if not error.code.retriable or now - place.failing_since >= patience:
            place.failing_since = None
            place.error = as_failure(f"read {place.partition}", error)
            self.news.set()

    def _note(self, error: KafkaError | ConnectionFailed) -> None:
        """Tell the caller of trouble that lasts, and at once of what no retry mends."""
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        is_hopeless = isinstance(error, KafkaError) and not error.code.retriable
        patience = self._cluster.settings.retry_timeout_ms / 1000
        if is_hopeless or now - self._failing_since >= patience:
            self._error = as_failure("read", error)
            self.news.set()
