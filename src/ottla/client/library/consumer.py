"""Consumers as callers have them: ``AsyncConsumer``, and ``Consumer`` that blocks.

Owns the waiting, and callbacks where the caller waits; ``taking`` has the records one by one,
``consuming`` does the rest. Both faces have the same names; of the async one all that may wait is
awaited.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self

from ottla.client.library.consuming import Change, ConsumerCore
from ottla.client.library.failures import TimedOut, check_partition, seconds_of, within
from ottla.client.library.formats import Formats, NeedsSchema
from ottla.client.library.records import Hooks, Record
from ottla.client.library.taking import Taking, Wait
from ottla.client.library.waiting import Waiter
from ottla.ids import TopicPartition

Assignment = Mapping[TopicPartition, int | str | None] | Iterable[TopicPartition]
OnChange = Callable[[list[TopicPartition]], object]
OnChangeAsync = Callable[[list[TopicPartition]], object | Awaitable[object]]


def _assignment(given: Assignment) -> dict[TopicPartition, int | str | None]:
    pairs = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
    return {check_partition("assign", each): to for each, to in pairs.items()}


class AsyncConsumer(Taking):
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
        loop = asyncio.get_running_loop()
        seconds = seconds_of("read", timeout)
        ends = None if seconds is None else loop.time() + seconds
        polling, came = self._polling(limit), None
        while True:
            try:
                wait = polling.send(came)
            except StopIteration as end:
                found: list[Record] = end.value
                return found
            if isinstance(wait, NeedsSchema):
                came = await self._fetch_before(wait, ends)
            elif wait is Wait.STEP:
                came = await self._step_before(ends)
            else:
                came = await self._core.glance()

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
        await within("seek", self._core.seek(check_partition("seek", partition), to), timeout)

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
        """Return the group's committed offsets; partitions without one are absent.

        Waits while a transaction that commits some of them is open.
        """
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
        """Wait for records or a change; return whether there was time. Callbacks get theirs.

        Without time, too, it takes what is there: else who polls and never waits gets nothing.
        """
        left = None if ends is None else max(ends - asyncio.get_running_loop().time(), 0.0)
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


class Consumer(Taking):
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
        polling, came = self._polling(limit), None
        while True:
            try:
                wait = polling.send(came)
            except StopIteration as end:
                found: list[Record] = end.value
                return found
            if isinstance(wait, NeedsSchema):
                came = self._fetch_before(wait, ends)
            elif wait is Wait.STEP:
                came = self._step_before(ends)
            else:
                came = self._waiter.wait("read", self._core.glance, None)

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
        where = check_partition("seek", partition)
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
        """Return the group's committed offsets; partitions without one are absent.

        Waits while a transaction that commits some of them is open.
        """
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
        """Wait for records or a change; return whether there was time.

        Without time, too, it takes what is there: else who polls and never waits gets nothing.
        """
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
