"""The records that a consumer has at hand, one by one, and what a poll waits for.

Owns the place within the current records, their decoding, and the decisions of ``poll``, which are
the same for both faces: a face waits, as it can. ``consumer`` has the faces, ``consuming`` brings
records. Knows no thread.
"""

import asyncio
from collections.abc import Generator
from enum import Enum

from ottla.client.library.consuming import ConsumerCore
from ottla.client.library.failures import BadArgument, Undecodable
from ottla.client.library.formats import Formats, NeedsSchema
from ottla.client.library.reading import Chunk
from ottla.client.library.records import Hooks, Record
from ottla.ids import TopicPartition


class Wait(Enum):
    """What a face is to wait for; beside a schema, which is a NeedsSchema."""

    GLANCE = "whether further records are here at once"
    STEP = "records, or a change of the assignment"


Polling = Generator[Wait | NeedsSchema, bool | None, list[Record]]
"""What to wait for; whether it came in time (at first None); the records of the poll."""


class Taking:
    """The current records of a consumer, one by one; the same for both faces."""

    client: object = None
    """Use: only kept: a client that nobody holds ends."""

    def __init__(self, core: ConsumerCore, formats: Formats, hooks: Hooks | None) -> None:
        self._core = core
        self._formats = formats
        self._hooks = hooks
        self._chunk: Chunk | None = None
        self._index = 0
        self._fetching: asyncio.Future[object] | None = None
        """Use: what fetches a schema, even when nobody waits for it any more."""

    def _next_here(self) -> Record | None:
        """Return the next record that is here; None: a step is needed. Raises NeedsSchema."""
        core = self._core
        chunk = core.current
        if chunk is None:
            return None
        place = core.reader.places.get(chunk.partition)
        if place is None:
            core.current = None
            return None
        if chunk is not self._chunk:
            self._chunk, self._index = chunk, 0
        place.done = place.position
        index = self._index
        if index >= len(chunk.rows):
            place.position = place.done = max(place.position, chunk.end)
            core.current = self._chunk = None
            return None
        offset, time, key, value, headers = chunk.rows[index]
        topic, partition = chunk.partition
        if not self._formats.are_plain:
            try:
                key, value = self._decoded(chunk, offset, key, value)
            except NeedsSchema:
                raise
            except Undecodable:
                self._index = index + 1
                place.position = offset + 1
                raise
        self._index = index + 1
        place.position = offset + 1
        core.given_count += 1
        record = Record(topic, partition, offset, time, key, value, headers)
        if self._hooks is not None:
            self._hooks.on_receive(record)
        return record

    def _decoded(
        self, chunk: Chunk, offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        topic, partition = chunk.partition
        found = []
        for field, data in (("key", key), ("value", value)):
            try:
                found.append(self._formats.apply(topic, field, data))
            except NeedsSchema:
                raise
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise Undecodable(
                    why, topic=topic, partition=partition, offset=offset, field=field, data=data
                ) from error
        return found[0], found[1]

    async def _fetch(self, needed: NeedsSchema) -> None:
        """Fetch a schema, in a thread. One at a time: who gave up waits for the same one again."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().run_in_executor(None, needed.fetch)
            self._fetching.add_done_callback(_note_outcome)
        fetching = self._fetching
        try:
            await asyncio.shield(fetching)
        finally:
            if fetching.done():
                self._fetching = None

    def _polling(self, limit: int) -> Polling:
        """Decide a poll: nothing is waited for while there are records to return."""
        found: list[Record] = []
        while True:
            try:
                found += self._taken(limit - len(found))
            except NeedsSchema as needed:
                # With records at hand not: it may fail, or take longer than the caller waits.
                if found or not (yield needed):
                    return found
                continue
            except Exception:
                if found:
                    self._step_back()
                    return found
                raise
            if len(found) >= limit:
                return found
            if not (yield Wait.GLANCE if found else Wait.STEP):
                return found

    def _taken(self, limit: int) -> list[Record]:
        """Return up to ``limit`` of the records that are here."""
        found: list[Record] = []
        while len(found) < limit:
            try:
                record = self._next_here()
            except NeedsSchema:
                if found:
                    break
                raise
            except Exception:  # Undecodable, or what a hook raises.
                if not found:
                    raise
                self._step_back()  # Those before it first.
                break
            if record is None:
                break
            found.append(record)
        return found

    def _step_back(self) -> None:
        """Meet the record again that could not be decoded."""
        chunk = self._chunk
        place = self._core.reader.places.get(chunk.partition) if chunk is not None else None
        if chunk is None or place is None or self._index > len(chunk.rows):
            return
        last = chunk.rows[self._index - 1][0]
        if place.position == last + 1 and place.done <= last:
            self._index -= 1
            place.position = last

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read here now."""
        return sorted(self._core.reader.places)

    @property
    def paused(self) -> list[TopicPartition]:
        """Those of them that are paused."""
        places = self._core.reader.places
        return sorted(each for each in places if places[each].is_paused)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of what comes next. Raises BadArgument: not assigned."""
        positions = self._core.positions()
        if partition not in positions:
            raise BadArgument("position", f"{partition} is not assigned here")
        return positions[partition]


def _note_outcome(fetching: "asyncio.Future[object]") -> None:
    """Take note of an error that perhaps nobody waits for any more."""
    if not fetching.cancelled():
        fetching.exception()
