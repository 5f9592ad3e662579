"""Consumers as callers have them: ``AsyncConsumer``, and ``Consumer`` that blocks.

Owns the iteration: records one by one, decoded, and callbacks where the caller waits. ``consuming``
does the rest. Both faces have the same names; of the async one all that may wait is awaited.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self

from ottla.client.library.consuming import Change, ConsumerCore
from ottla.client.library.failures import BadArgument, TimedOut, Undecodable, within
from ottla.client.library.formats import Formats, NeedsSchema
from ottla.client.library.reading import Chunk
from ottla.client.library.records import Hooks, Record
from ottla.client.library.waiting import Waiter
from ottla.ids import TopicPartition

Assignment = Mapping[TopicPartition, int | str | None] | Iterable[TopicPartition]
OnChange = Callable[[list[TopicPartition]], object]
OnChangeAsync = Callable[[list[TopicPartition]], object | Awaitable[object]]


class _Face:
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
            except Undecodable:
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


def _assignment(given: Assignment) -> dict[TopicPartition, int | str | None]:
    pairs = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
    return {TopicPartition(*each): to for each, to in pairs.items()}


class AsyncConsumer(_Face):
    """Reads records: ``async for record in consumer``; see ``AsyncClient.consumer``."""

    _on_assigned: OnChangeAsync | None = None
    _on_revoked: OnChangeAsync | None = None
    _on_lost: OnChangeAsync | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._core.close(clean=error is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while True:
            try:
                record = self._next_here()
            except NeedsSchema as needed:
                await asyncio.get_running_loop().run_in_executor(None, needed.fetch)
                continue
            if record is not None:
                return record
            change = await self._step(None)
            if change is not None:
                await self._core.settle(change)

    async def poll(self, *, limit: int = 500, timeout: float | None = 1.0) -> list[Record]:
        """Return up to ``limit`` records, at least one; none when ``timeout`` seconds are over."""
        found: list[Record] = []
        loop = asyncio.get_running_loop()
        ends = None if timeout is None else loop.time() + timeout
        while True:
            try:
                found += self._taken(limit - len(found))
            except NeedsSchema as needed:
                # With records at hand not: it may fail, or take longer than the caller waits.
                if found or not await self._fetch_before(needed, ends):
                    return found
                continue
            except Undecodable:
                if found:
                    self._step_back()
                    return found
                raise
            if len(found) >= limit:
                return found
            if found:
                if not await self._core.glance():
                    return found
            elif not await self._step_before(ends):
                return []

    async def subscribe(
        self,
        *topics: str,
        pattern: "str | re.Pattern[str] | None" = None,
        on_assigned: OnChangeAsync | None = None,
        on_revoked: OnChangeAsync | None = None,
        on_lost: OnChangeAsync | None = None,
    ) -> None:
        """Read topics with the group, by name or whose whole names match ``pattern``.

        The callbacks (functions or coroutine functions) get partitions, while the caller waits for
        records: after they came; before they are given up; when others have them already.
        """
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._core.subscribe(topics, pattern)

    async def assign(self, partitions: Assignment, *, timeout: float | None = None) -> None:
        """Read these partitions and no other, without asking a group for them.

        A mapping says from where: an offset, "earliest", "latest", None: where the group stands.
        """
        await within("assign", self._core.assign(_assignment(partitions)), timeout)

    async def seek(
        self, partition: TopicPartition, to: int | str, *, timeout: float | None = None
    ) -> None:
        """Go on with ``partition`` at an offset, at "earliest" or at "latest"."""
        await within("seek", self._core.seek(TopicPartition(*partition), to), timeout)

    async def seek_to_time(self, timestamp_ms: int, *, timeout: float | None = None) -> None:
        """Go on with all partitions at their first records from ``timestamp_ms`` on."""
        await within("seek", self._core.seek_to_time(timestamp_ms), timeout)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of ``partitions`` (none named: of all) until they are resumed."""
        self._core.pause(partitions or self.assignment, paused=True)

    async def resume(self, *partitions: TopicPartition) -> None:
        """Go on with ``partitions`` (none named: with all)."""
        self._core.pause(partitions or self.assignment, paused=False)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit how far the caller has read, the last record included, or ``offsets``.

        Returns when it is durable. Raises GroupMoved when others have the partitions.
        """
        await within("commit", self._core.commit(offsets), timeout)

    async def committed(
        self, *partitions: TopicPartition, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are absent."""
        return await within("committed", self._core.committed(partitions or None), timeout)

    async def close(self, *, timeout: float | None = None) -> None:
        """Commit (with auto commit), leave the group. Harmless when closed."""
        await within("close the consumer", self._core.close(), timeout)

    async def _fetch_before(self, needed: NeedsSchema, ends: float | None) -> bool:
        left = None if ends is None else max(ends - asyncio.get_running_loop().time(), 0.0)
        try:
            await within("read", self._fetch(needed), left)
        except TimedOut:
            return False
        return True

    async def _step_before(self, ends: float | None) -> bool:
        """Wait for records or a change; return whether there was time. Callbacks get theirs."""
        left = None if ends is None else ends - asyncio.get_running_loop().time()
        if left is not None and left <= 0:
            return False
        try:
            change = await self._step(left)
            if change is not None and ends is not None:
                left = max(ends - asyncio.get_running_loop().time(), 0.0)
                await within("rebalance", self._core.settle(change), left)
            elif change is not None:
                await self._core.settle(change)
        except TimedOut:
            return False
        return True

    async def _step(self, timeout: float | None) -> Change | None:
        """Wait for records or a change; tell of the change, which then is to be settled."""
        step = await within("read", self._core.step(), timeout)
        if not isinstance(step, Change):
            return None
        heard = getattr(self, f"_on_{step.kind}")
        if heard is not None:
            answer = heard(list(step.partitions))
            if inspect.isawaitable(answer):
                await answer
        return step


class Consumer(_Face):
    """Reads records: ``for record in consumer``; see ``Client.consumer``. For one thread."""

    _on_assigned: OnChange | None = None
    _on_revoked: OnChange | None = None
    _on_lost: OnChange | None = None

    def __init__(
        self, core: ConsumerCore, formats: Formats, hooks: Hooks | None, waiter: Waiter
    ) -> None:
        super().__init__(core, formats, hooks)
        self._waiter = waiter

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(clean=error is None, timeout=None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        while True:
            try:
                record = self._next_here()
            except NeedsSchema as needed:
                needed.fetch()
                continue
            if record is not None:
                return record
            self._step(None)

    def poll(self, *, limit: int = 500, timeout: float | None = 1.0) -> list[Record]:
        """Return up to ``limit`` records, at least one; none when ``timeout`` seconds are over."""
        ends = self._waiter.ends(timeout)
        found: list[Record] = []
        while True:
            try:
                found += self._taken(limit - len(found))
            except NeedsSchema as needed:
                # With records at hand not: it may fail, or take longer than the caller waits.
                if found or not self._fetch_before(needed, ends):
                    return found
                continue
            except Undecodable:
                if found:
                    self._step_back()
                    return found
                raise
            if len(found) >= limit:
                return found
            if found:
                if not self._waiter.wait("read", self._core.glance, None):
                    return found
                continue
            if not self._step_before(ends):
                return []

    def subscribe(
        self,
        *topics: str,
        pattern: "str | re.Pattern[str] | None" = None,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> None:
        """Read topics with the group, by name or whose whole names match ``pattern``.

        The callbacks get partitions, on the caller's thread, while it waits for records: after they
        came; before they are given up; when others have them already.
        """
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._core.subscribe(topics, pattern)

    def assign(self, partitions: Assignment, *, timeout: float | None = None) -> None:
        """Read these partitions and no other, without asking a group for them.

        A mapping says from where: an offset, "earliest", "latest", None: where the group stands.
        """
        wanted = _assignment(partitions)
        self._waiter.wait("assign", lambda: self._core.assign(wanted), timeout)

    def seek(
        self, partition: TopicPartition, to: int | str, *, timeout: float | None = None
    ) -> None:
        """Go on with ``partition`` at an offset, at "earliest" or at "latest"."""
        where = TopicPartition(*partition)
        self._waiter.wait("seek", lambda: self._core.seek(where, to), timeout)

    def seek_to_time(self, timestamp_ms: int, *, timeout: float | None = None) -> None:
        """Go on with all partitions at their first records from ``timestamp_ms`` on."""
        self._waiter.wait("seek", lambda: self._core.seek_to_time(timestamp_ms), timeout)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of ``partitions`` (none named: of all) until they are resumed."""
        self._pause(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with ``partitions`` (none named: with all)."""
        self._pause(partitions, paused=False)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit how far the caller has read, the last record included, or ``offsets``.

        Returns when it is durable. Raises GroupMoved when others have the partitions.
        """
        self._waiter.wait("commit", lambda: self._core.commit(offsets), timeout)

    def committed(
        self, *partitions: TopicPartition, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are absent."""
        wanted = partitions or None
        return self._waiter.wait("committed", lambda: self._core.committed(wanted), timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """Commit (with auto commit), leave the group. Harmless when closed."""
        self._close(clean=True, timeout=timeout)

    def _close(self, *, clean: bool, timeout: float | None) -> None:
        if not self._core.is_closed:
            work = self._core.close
            self._waiter.wait("close the consumer", lambda: work(clean=clean), timeout)

    def _pause(self, partitions: tuple[TopicPartition, ...], *, paused: bool) -> None:
        async def work() -> None:
            self._core.pause(partitions or self.assignment, paused=paused)

        self._waiter.wait("pause", work, None)

    def _fetch_before(self, needed: NeedsSchema, ends: float | None) -> bool:
        try:
            self._waiter.wait("read", lambda: self._fetch(needed), self._waiter.left(ends))
        except TimedOut:
            return False
        return True

    def _step_before(self, ends: float | None) -> bool:
        """Wait for records or a change; return whether there was time."""
        if self._waiter.left(ends) == 0.0:
            return False
        try:
            self._step(ends)
        except TimedOut:
            return False
        return True

    def _step(self, ends: float | None) -> None:
        """Wait for records or a change. Callbacks get as long as they take."""
        step = self._waiter.wait("read", self._core.step, self._waiter.left(ends))
        if isinstance(step, Change):
            heard = getattr(self, f"_on_{step.kind}")
            if heard is not None:
                heard(list(step.partitions))
            settle = partial(self._core.settle, step)
            self._waiter.wait("rebalance", settle, self._waiter.left(ends))
