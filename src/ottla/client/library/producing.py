"""Producers as callers have them: ``AsyncProducer``, and ``Producer`` that blocks.

Owns the arguments: what may be sent, and how it becomes bytes. ``gathering`` fills batches,
``sending`` sends them. Both faces have the same names; of the async one nearly all are awaited.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from operator import index
from os import getpid
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.client.library.failures import (
    BadArgument,
    ClientClosed,
    ClientError,
    bytes_of,
    check_offsets,
    within,
)
from ottla.client.library.formats import Formats, NeedsSchema
from ottla.client.library.gathering import Batch, Topic
from ottla.client.library.records import GivenHeaders, Hooks, Written, headers_of
from ottla.client.library.sender import Sender
from ottla.client.library.waiting import Waiter
from ottla.client.wire.transacting import OffsetToCommit
from ottla.ids import TopicPartition
from ottla.records.rows import Headers, PlainRow

if TYPE_CHECKING:
    from ottla.client.library.consumer import AsyncConsumer, Consumer


class _Handle:
    """A record that was handed in: what became of it."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """Whether it was written, or has failed."""
        self._look_into_parts()
        return self._batch.is_done

    def _look_into_parts(self) -> None:
        """Find the batch that the record is in, if that was divided."""
        while self._batch.parts:
            first, self._batch = next(
                each for each in reversed(self._batch.parts) if each[0] <= self._index
            )
            self._index -= first

    def _outcome(self) -> Written:
        self._look_into_parts()
        batch = self._batch
        if batch.error is not None:
            batch.is_seen = True
            raise batch.error
        topic, partition = batch.lane.partition
        offset = batch.base_offset + self._index if batch.base_offset >= 0 else -1
        time = batch.append_time if batch.append_time >= 0 else batch.times[self._index]
        return Written(topic, partition, offset, time)


class AsyncDelivery(_Handle):
    """What ``AsyncProducer.send`` returns."""

    __slots__ = ("_sender",)

    def __init__(self, batch: Batch, index: int, sender: Sender) -> None:
        super().__init__(batch, index)
        self._sender = sender

    async def result(self, *, timeout: float | None = None) -> Written:
        """Return where it was written. Raises ClientError if it was not; TimedOut says neither."""
        if not self._batch.is_done:
            what = f"write to {self._batch.lane.partition}"
            await within(what, self._sender.wait_for(self._batch), timeout)
        return self._outcome()


class Delivery(_Handle):
    """What ``Producer.send`` returns."""

    __slots__ = ("_sender", "_waiter")

    def __init__(self, batch: Batch, index: int, sender: Sender, waiter: Waiter) -> None:
        super().__init__(batch, index)
        self._sender = sender
        self._waiter = waiter

    def result(self, *, timeout: float | None = None) -> Written:
        """Return where it was written. Raises ClientError if it was not; TimedOut says neither."""
        if not self._batch.is_done:
            what = f"write to {self._batch.lane.partition}"
            self._waiter.wait(what, lambda: self._sender.wait_for(self._batch), timeout)
        return self._outcome()


class _Face:
    """What both producers do with a record before it is put into a batch."""

    client: object = None
    """Use: only kept: a client that nobody holds ends."""

    def __init__(self, sender: Sender, formats: Formats, hooks: Hooks | None) -> None:
        self._sender = sender
        self._formats = formats
        self._hooks = hooks

    def _encoded(self, topic: str, field: str, given: Any) -> bytes | None:
        """Return what is sent for ``given``. Raises BadArgument, NeedsSchema."""
        formats = self._formats
        if not formats.are_plain:
            try:
                given = formats.apply(topic, field, given)
            except (NeedsSchema, ClientError):
                raise
            except Exception as error:
                what = f"encode the {field} of a record for {topic}"
                raise BadArgument(what, f"{type(error).__name__}: {error}") from error
        if given is None or given.__class__ is bytes:
            return given
        if isinstance(given, str):
            return bytes_of(f"send the {field} of a record to {topic}", given)
        if isinstance(given, (bytes, bytearray, memoryview)):
            return bytes(given)
        why = f"expected bytes, a text or None, found {type(given).__name__}"
        fix = f'give the producer a {field}_serializer, such as "json"'
        raise BadArgument(f"send to {topic}", why, fix=fix)

    def _headers(self, topic: str, given: GivenHeaders) -> Headers:
        headers = headers_of(given) if given else ()
        return headers if self._hooks is None else headers_of(self._hooks.on_send(topic, headers))

    def _time(self, given: int | None) -> int:
        if given is None:
            return self._sender.clock.wall_ms()
        if not hasattr(given, "__index__") or not 0 <= given < 1 << 62:
            why = f"timestamp_ms={given!r} is no whole number of ms since 1970"
            raise BadArgument("send", why)
        return index(given)


class AsyncProducer(_Face):
    """Sends records in batches. ``async with`` flushes at the end; see ``AsyncClient.producer``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(flush=error is None)

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> AsyncDelivery:
        """Hand in a record; it is sent with others. Returns what tells what became of it.

        Waits while the buffer is full, and for a topic's first use. ``partition`` None: by the
        key's hash, as Java's clients; without a key any. ``flush`` raises the first failure that no
        ``result`` has told. Raises ClientError.
        """
        sender = self._sender
        sender.check()
        known = sender.gatherer.topics.get(topic)
        row: PlainRow | None = None
        if known is not None and not sender.gatherer.is_full:
            with suppress(NeedsSchema):
                row = self._row(topic, key, value, headers, timestamp_ms)
        if known is None or row is None:
            serial = sender.transaction_serial
            work = self._prepared(topic, key, value, headers, timestamp_ms)
            prepared: tuple[Topic, PlainRow] = await within(f"send to {topic}", work, timeout)
            known, row = prepared
            sender.check(serial)
        if partition is not None and not known.has(partition):
            serial = sender.transaction_serial
            await within(f"send to {topic}", sender.targets.look_again(topic), timeout)
            sender.check(serial)
        batch, at, wakes = sender.gatherer.add(known, partition, row, sender.clock.monotonic())
        if wakes:
            sender.wake()
            await asyncio.sleep(0)  # a caller that never waits would starve the sender
        return AsyncDelivery(batch, at, sender)

    async def produce(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> Written:
        """Send a record at once; return where it was written when it is. Raises ClientError."""

        async def work() -> Written:
            delivery = await self.send(
                topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )  # fmt: skip
            await self._sender.wait_for(delivery._batch, at_once=True)  # noqa: SLF001
            return await delivery.result()

        return await within(f"write to {topic}", work(), timeout)

    async def flush(self, *, timeout: float | None = None) -> None:
        """Send what is buffered; return when everything is written. Raises the first failure."""
        await within("flush", self._sender.flush(), timeout)

    async def close(self, *, flush: bool = True, timeout: float | None = None) -> None:
        """Flush, unless told not to, and end. Harmless when closed."""
        if self._sender.is_closed:
            return
        try:
            if flush and not self._sender.is_in_transaction:
                await self.flush(timeout=timeout)
        finally:
            await self._sender.close()

    def transaction(self, *, timeout: float | None = None) -> "AsyncTransaction":
        """Return a transaction for ``async with``: an exception aborts it."""
        return AsyncTransaction(self._sender, timeout)

    def _row(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: GivenHeaders,
        time: int | None,
    ) -> PlainRow:
        return (
            self._time(time),
            self._encoded(topic, "key", key),
            self._encoded(topic, "value", value),
            self._headers(topic, headers),
        )

    async def _prepared(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: GivenHeaders,
        time: int | None,
    ) -> tuple[Topic, PlainRow]:
        """Return what ``gatherer.add`` takes, when the topic and its schemas are known."""
        sender = self._sender
        known = sender.gatherer.topics.get(topic) or await sender.targets.topic(topic)
        await sender.wait_for_room()
        while True:
            try:
                return known, self._row(topic, key, value, headers, time)
            except NeedsSchema as needed:
                await asyncio.get_running_loop().run_in_executor(None, needed.fetch)


class AsyncTransaction:
    """A transaction: ``async with producer.transaction() as transaction``."""

    def __init__(self, sender: Sender, timeout: float | None) -> None:
        self._sender = sender
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        await within("begin a transaction", self._sender.begin(), self._timeout)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sender.is_in_transaction:
            await _end(self._sender, error, self._timeout)

    async def commit_offsets(
        self,
        consumer: "AsyncConsumer | str",
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Have the consumer's group remember how far it has read, if the transaction commits.

        ``offsets`` None: the consumer's positions. A group's name takes ``offsets`` only.
        """
        group, wanted, member = _committed(consumer, offsets)
        work = self._sender.send_offsets(group, wanted, member=member)
        await within("commit offsets with the transaction", work, timeout)


async def _end(sender: Sender, error: BaseException | None, timeout: float | None) -> None:
    if error is None:
        await within("commit the transaction", sender.end(commit=True), timeout)
        return
    try:
        await within("abort the transaction", sender.end(commit=False), timeout)
    except ClientError as failed:
        # What ended the transaction is what the caller has to see.
        error.add_note(f"the transaction was not aborted either: {failed}")


class Producer(_Face):
    """Sends records in batches, and blocks. ``with`` flushes at the end; see ``Client.producer``.

    For use from any thread.
    """

    def __init__(
        self, sender: Sender, formats: Formats, hooks: Hooks | None, waiter: Waiter
    ) -> None:
        super().__init__(sender, formats, hooks)
        self._waiter = waiter

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(flush=error is None)

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Hand in a record; it is sent with others. Returns what tells what became of it.

        Blocks while the buffer is full, and for a topic's first use. ``partition`` None: by the
        key's hash, as Java's clients; without a key any. ``flush`` raises the first failure that no
        ``result`` has told. Raises ClientError.
        """
        sender, waiter, serial = self._sender, self._waiter, self._sender.transaction_serial
        if getpid() != waiter.process_id:
            waiter.check("send")  # In a fork's child a batch would take it, and never be sent.
        sender.check()
        known: Topic | None = sender.gatherer.topics.get(topic)
        if known is None or sender.gatherer.is_full:
            what, ends = f"send to {topic}", waiter.ends(timeout)
            known = known or waiter.wait(what, lambda: sender.targets.topic(topic), timeout)
            waiter.wait(what, sender.wait_for_room, waiter.left(ends), said=timeout)
            sender.check(serial)
        row: PlainRow | None = None
        while row is None:
            try:
                row = (
                    self._time(timestamp_ms),
                    self._encoded(topic, "key", key),
                    self._encoded(topic, "value", value),
                    self._headers(topic, headers),
                )
            except NeedsSchema as needed:
                needed.fetch()
                sender.check(serial)
        if partition is not None and not known.has(partition):
            waiter.wait(f"send to {topic}", lambda: sender.targets.look_again(topic), timeout)
            sender.check(serial)
        batch, at, wakes = sender.gatherer.add(known, partition, row, sender.clock.monotonic())
        if wakes:
            waiter.soon(sender.wake)
        return Delivery(batch, at, sender, waiter)

    def produce(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> Written:
        """Send a record at once; return where it was written when it is. Raises ClientError."""
        ends = self._waiter.ends(timeout)
        delivery = self.send(
            topic, value, key=key, headers=headers, partition=partition,
            timestamp_ms=timestamp_ms, timeout=timeout,
        )  # fmt: skip
        batch, left = delivery._batch, self._waiter.left(ends)  # noqa: SLF001
        work = partial(self._sender.wait_for, batch, at_once=True)
        self._waiter.wait(f"write to {topic}", work, left, said=timeout)
        return delivery.result()

    def flush(self, *, timeout: float | None = None) -> None:
        """Send what is buffered; return when everything is written. Raises the first failure."""
        self._waiter.wait("flush", self._sender.flush, timeout)

    def close(self, *, flush: bool = True, timeout: float | None = None) -> None:
        """Flush, unless told not to, and end. Harmless when closed."""
        if self._sender.is_closed:
            return
        try:
            if flush and not self._sender.is_in_transaction:
                self.flush(timeout=timeout)
        finally:
            self._waiter.wait("close the producer", self._sender.close, None)

    def transaction(self, *, timeout: float | None = None) -> "Transaction":
        """Return a transaction for ``with``: committed at its end, aborted by an exception."""
        return Transaction(self._sender, self._waiter, timeout)


class Transaction:
    """A transaction: ``with producer.transaction() as transaction``."""

    def __init__(self, sender: Sender, waiter: Waiter, timeout: float | None) -> None:
        self._sender = sender
        self._waiter = waiter
        self._timeout = timeout

    def __enter__(self) -> Self:
        self._waiter.wait("begin a transaction", self._sender.begin, self._timeout)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sender.is_in_transaction:
            what = "end the transaction"
            self._waiter.wait(what, lambda: _end(self._sender, error, self._timeout), None)

    def commit_offsets(
        self,
        consumer: "Consumer | str",
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Have the consumer's group remember how far it has read, if the transaction commits.

        ``offsets`` None: the consumer's positions. A group's name takes ``offsets`` only.
        """
        group, wanted, member = _committed(consumer, offsets)
        self._waiter.wait(
            "commit offsets with the transaction",
            lambda: self._sender.send_offsets(group, wanted, member=member),
            timeout,
        )


def _committed(
    consumer: "AsyncConsumer | Consumer | str", offsets: Mapping[TopicPartition, int] | None
) -> tuple[str, dict[TopicPartition, OffsetToCommit], tuple[str, int]]:
    """Return the group, its offsets, and the member that commits them."""
    if isinstance(consumer, str):
        if offsets is None:
            raise BadArgument("commit offsets", "a group's name needs offsets beside it")
        group, member = consumer, ("", -1)
    else:
        core = consumer._core  # noqa: SLF001 - of the same room
        if core.settings.group is None:
            raise BadArgument("commit offsets", "the consumer has no group")
        if core.is_closed:
            raise ClientClosed("commit offsets", "the consumer is closed")
        group, member = core.settings.group, core.membership()
        offsets = core.positions() if offsets is None else offsets
    wanted = check_offsets("commit offsets", offsets)
    return group, {each: OffsetToCommit(offset) for each, offset in wanted.items()}, member
