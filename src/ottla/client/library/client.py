"""``AsyncClient`` and ``Client``: one cluster, as an application sees it.

Owns the arguments. ``core`` has what both share; the blocking face runs it on a thread of its own.
"""

import asyncio
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from ottla.client.library.core import Core
from ottla.client.library.failures import within
from ottla.client.library.formats import Deserializer, Formats, Serializer
from ottla.client.library.producing import AsyncProducer, Producer
from ottla.client.library.records import GivenHeaders, Hooks, Written
from ottla.client.library.settings import Settings, read_config, settings_of
from ottla.client.library.waiting import Waiter

if TYPE_CHECKING:
    from ottla.client.library.admin import Admin
    from ottla.client.library.async_admin import AsyncAdmin
    from ottla.client.library.consumer import AsyncConsumer, Consumer


class _HasClient(Protocol):
    client: object


Part = TypeVar("Part", bound=_HasClient)
CLOSE_SECONDS = 30.0
_PLAIN = Formats(None, None, encodes=True)


class _Client:
    """The arguments of both faces."""

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        client_id: str = "ottla",
        tls: bool | str = False,
        username: str | None = None,
        password: str | None = None,
        mechanism: str = "SCRAM-SHA-512",
        hooks: Hooks | None = None,
    ) -> None:
        """Make a client, which connects at its first call.

        ``bootstrap``: ``host:port,...``. ``tls``: encrypt; a text is the path of a PEM file with
        the certificates to trust. ``username``: log in by ``mechanism``. ``hooks``: told of each
        record. Raises BadArgument.
        """
        settings = settings_of(
            bootstrap,
            client_id=client_id,
            tls=tls,
            username=username,
            password=password,
            mechanism=mechanism,
        )
        self._begin(settings, hooks)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, hooks: Hooks | None = None) -> Self:
        """Return a client with settings by librdkafka's and Java's keys.

        Those of producers and consumers hold for all that the client makes. Raises BadArgument for
        a key that is not known, with near ones.
        """
        settings = read_config(config)
        client = cls.__new__(cls)
        client._begin(settings, hooks)  # noqa: SLF001 - its own
        return client

    def _begin(self, settings: Settings, hooks: Hooks | None) -> None:
        self._core = Core(settings, hooks)


class AsyncClient(_Client):
    """A cluster, for asyncio. ``async with AsyncClient("host:9092") as client``.

    Every call raises ClientError. For use on one loop.
    """

    _is_watched = False

    async def __aenter__(self) -> Self:
        self._watch()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, *, timeout: float | None = CLOSE_SECONDS) -> None:
        """Close what the client made, and its connections. Harmless when closed."""
        try:
            await within("close the client", self._core.close(), timeout)
        finally:
            self._core.abandon()

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
        """Write one record; return where it is when it is durable. For many: ``producer``.

        ``value`` and ``key``: bytes, a text or None.
        """
        self._watch()
        producer = AsyncProducer(self._core.own_sender(), _PLAIN, self._core.hooks)
        return await producer.produce(
            topic, value, key=key, headers=headers, partition=partition,
            timestamp_ms=timestamp_ms, timeout=timeout,
        )  # fmt: skip

    def producer(
        self,
        *,
        key_serializer: Serializer = None,
        value_serializer: Serializer = None,
        acks: int | None = None,
        linger_ms: float | None = None,
        batch_size_bytes: int | None = None,
        compression: str | None = None,
        idempotent: bool | None = None,
        transactional_id: str | None = None,
        delivery_timeout_ms: int | None = None,
        buffer_bytes: int | None = None,
    ) -> AsyncProducer:
        """Return a producer, idempotent by default; see docs/client.md for the arguments.

        None: as the client's settings say.
        """
        self._watch()
        formats = Formats(key_serializer, value_serializer, encodes=True)
        values = {
            "acks": acks,
            "linger_ms": linger_ms,
            "batch_size_bytes": batch_size_bytes,
            "is_idempotent": idempotent,
            "transactional_id": transactional_id,
            "delivery_timeout_ms": delivery_timeout_ms,
            "buffer_bytes": buffer_bytes,
        }
        sender = self._core.new_sender(values, compression)
        return _kept(AsyncProducer(sender, formats, self._core.hooks), self)

    def consumer(
        self,
        *topics: str,
        group: str | None = None,
        key_deserializer: Deserializer = None,
        value_deserializer: Deserializer = None,
        auto_offset_reset: str | None = None,
        auto_commit: bool | None = None,
        read_committed: bool | None = None,
        group_protocol: str | None = None,
        session_timeout_ms: int | None = None,
        max_poll_interval_ms: int | None = None,
    ) -> "AsyncConsumer":
        """Return a consumer that reads ``topics``, if there are any.

        ``group`` shares the partitions with its other members; without one, ``assign`` says what to
        read. None: as the client's settings say, which are Kafka's. See docs/client.md.
        """
        from ottla.client.library.consumer import AsyncConsumer

        values = {
            "group": group,
            "auto_offset_reset": auto_offset_reset,
            "auto_commit": auto_commit,
            "read_committed": read_committed,
            "group_protocol": group_protocol,
            "session_timeout_ms": session_timeout_ms,
            "rebalance_timeout_ms": max_poll_interval_ms,
        }
        self._watch()
        formats = Formats(key_deserializer, value_deserializer, encodes=False)
        core = self._core.new_consumer(values, topics)
        return _kept(AsyncConsumer(core, formats, self._core.hooks), self)

    @property
    def admin(self) -> "AsyncAdmin":
        """Topics, configs, groups, offsets, users, ACLs and quotas."""
        from ottla.client.library.async_admin import AsyncAdmin

        self._watch()
        return _kept(AsyncAdmin(self._core), self)

    def _watch(self) -> None:
        """Have everything end when nobody holds the client any more. Raises on another loop."""
        self._core.check_loop()
        if not self._is_watched:
            self._is_watched = True
            self._core.end_with_loop()
            weakref.finalize(self, _abandon_soon, asyncio.get_running_loop(), self._core)


class Client(_Client):
    """A cluster, for programs that block. ``with Client("host:9092") as client``.

    Every call raises ClientError. For use from any thread.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self, settings: Settings, hooks: Hooks | None) -> None:
        super()._begin(settings, hooks)
        self._waiter = Waiter()
        self._waiter.start()
        weakref.finalize(self, _abandon_thread, self._waiter, self._core)

    def close(self, *, timeout: float | None = CLOSE_SECONDS) -> None:
        """Close what the client made, its connections and its thread. Harmless when closed."""
        if self._core.is_closed or self._waiter.is_elsewhere:
            return
        try:
            self._waiter.wait("close the client", self._core.close, timeout)
        finally:
            self._waiter.soon(self._core.abandon)
            self._waiter.stop()

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
        """Write one record; return where it is when it is durable. For many: ``producer``.

        ``value`` and ``key``: bytes, a text or None.
        """
        sender = self._core.own_sender()
        producer = Producer(sender, _PLAIN, self._core.hooks, self._waiter)
        return producer.produce(
            topic, value, key=key, headers=headers, partition=partition,
            timestamp_ms=timestamp_ms, timeout=timeout,
        )  # fmt: skip

    def producer(
        self,
        *,
        key_serializer: Serializer = None,
        value_serializer: Serializer = None,
        acks: int | None = None,
        linger_ms: float | None = None,
        batch_size_bytes: int | None = None,
        compression: str | None = None,
        idempotent: bool | None = None,
        transactional_id: str | None = None,
        delivery_timeout_ms: int | None = None,
        buffer_bytes: int | None = None,
    ) -> Producer:
        """Return a producer, idempotent by default; see docs/client.md for the arguments.

        None: as the client's settings say.
        """
        formats = Formats(key_serializer, value_serializer, encodes=True)
        values = {
            "acks": acks,
            "linger_ms": linger_ms,
            "batch_size_bytes": batch_size_bytes,
            "is_idempotent": idempotent,
            "transactional_id": transactional_id,
            "delivery_timeout_ms": delivery_timeout_ms,
            "buffer_bytes": buffer_bytes,
        }
        sender = self._core.new_sender(values, compression)
        return _kept(Producer(sender, formats, self._core.hooks, self._waiter), self)

    def consumer(
        self,
        *topics: str,
        group: str | None = None,
        key_deserializer: Deserializer = None,
        value_deserializer: Deserializer = None,
        auto_offset_reset: str | None = None,
        auto_commit: bool | None = None,
        read_committed: bool | None = None,
        group_protocol: str | None = None,
        session_timeout_ms: int | None = None,
        max_poll_interval_ms: int | None = None,
    ) -> "Consumer":
        """Return a consumer that reads ``topics``, if there are any.

        ``group`` shares the partitions with its other members; without one, ``assign`` says what to
        read. None: as the client's settings say, which are Kafka's. See docs/client.md.
        """
        from ottla.client.library.consumer import Consumer

        values = {
            "group": group,
            "auto_offset_reset": auto_offset_reset,
            "auto_commit": auto_commit,
            "read_committed": read_committed,
            "group_protocol": group_protocol,
            "session_timeout_ms": session_timeout_ms,
            "rebalance_timeout_ms": max_poll_interval_ms,
        }
        formats = Formats(key_deserializer, value_deserializer, encodes=False)
        core = self._core.new_consumer(values, topics)
        return _kept(Consumer(core, formats, self._core.hooks, self._waiter), self)

    @property
    def admin(self) -> "Admin":
        """Topics, configs, groups, offsets, users, ACLs and quotas."""
        from ottla.client.library.admin import Admin

        return _kept(Admin(self._core, self._waiter), self)


def _kept(part: Part, client: _Client) -> Part:
    """Let ``part`` hold its client, which ends when nobody does."""
    part.client = client
    return part


def _abandon_soon(loop: asyncio.AbstractEventLoop, core: Core) -> None:
    if not core.is_closed and not loop.is_closed():
        loop.call_soon_threadsafe(core.abandon)


def _abandon_thread(waiter: Waiter, core: Core) -> None:
    if not core.is_closed and not waiter.is_elsewhere:
        waiter.soon(core.abandon)
        waiter.abandon()
