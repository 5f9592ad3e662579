"""One connection to one broker, on asyncio: pipelined calls, each with a deadline.

Owns the transport and the futures of the answers that are due; ``exchange`` knows the bytes.
Nothing is retried here. Used by ``cluster``, and where one certain broker is wanted.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from typing import TypeVar, cast

from ottla.client.wire.authentication import authenticate
from ottla.client.wire.errors import ConnectionFailed, NoAnswer, reason
from ottla.client.wire.exchange import RECEIVE_MAX_BYTES, Exchange, FrameReader, Step
from ottla.client.wire.settings import Address, ClientSettings
from ottla.env.net import Net
from ottla.env.rng import SystemRng
from ottla.errors import KafkaError, MalformedMessage
from ottla.protocol.schema import Message

Answer = TypeVar("Answer", bound=Message)


class Connection(asyncio.Protocol):
    """An open connection. ``open`` makes one; a closed one stays closed."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.is_closed = False
        self.exchange = Exchange(settings.client_id)
        self._settings = settings
        self._frames = FrameReader()
        self._waiting: deque[asyncio.Future[Message]] = deque()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def open(
        cls, net: Net, address: Address, settings: ClientSettings | None = None
    ) -> "Connection":
        """Connect, agree on versions and authenticate, within the connect time-out.

        Raises ConnectionFailed, KafkaError SASL_AUTHENTICATION_FAILED and what goes with it.
        """
        settings = settings or ClientSettings()
        connection = cls(address, settings)
        seconds = settings.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                await net.connect(
                    lambda: connection,
                    host=address.host,
                    port=address.port,
                    tls=settings.security.tls,
                )
                await connection._greet()
        except TimeoutError:
            connection.close()
            raise ConnectionFailed(
                *address, f"{connection._missing()} within {seconds:g} s"
            ) from None
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            raise ConnectionFailed(*address, reason(error), refused=refused) from error
        except (ConnectionFailed, KafkaError):
            connection.close()
            raise
        return connection

    async def call(
        self,
        request: Message,
        answer: type[Answer],
        *,
        highest: int | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        """Send ``request`` and return its answer.

        ``highest`` bounds the version. Raises ConnectionFailed (NoAnswer after ``timeout_ms``, the
        connection is closed then), KafkaError UNSUPPORTED_VERSION. Error codes *in* the answer are
        the caller's to read.
        """
        await self.drain()
        timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        future = self.send(request, answer, highest=highest)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            name = type(request).__name__.removesuffix("Request")
            error = NoAnswer(*self.address, f"no answer to {name} within {timeout_ms / 1000:g} s")
            self._fail(error)
            raise error from None

    def send(
        self, request: Message, answer: type[Answer], *, highest: int | None = None
    ) -> "asyncio.Future[Answer]":
        """Send ``request`` and return the future of its answer; more may be sent meanwhile."""
        self._write(request, answer, highest)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return cast("asyncio.Future[Answer]", future)

    def send_only(self, request: Message, *, highest: int | None = None) -> None:
        """Send a request that is not answered: Produce with acks=0."""
        self._write(request, None, highest)

    async def drain(self) -> None:
        """Wait until the peer has taken enough of what was sent."""
        await self._writable.wait()

    def close(self) -> None:
        """Close; answers that are due fail with ConnectionFailed. Harmless when closed already."""
        self._fail(ConnectionFailed(*self.address, "the connection was closed here"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer the futures in order. The loop calls this, and the four below."""
        try:
            for frame in self._frames.feed(data):
                message = self.exchange.answer(frame)
                future = self._waiting.popleft()
                if not future.done():  # a caller may have given up
                    future.set_result(message)
        except MalformedMessage as error:
            self._fail(ConnectionFailed(*self.address, str(error)))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what is due."""
        why = reason(error) if isinstance(error, OSError) else "the broker closed the connection"
        self._fail(ConnectionFailed(*self.address, why))

    def pause_writing(self) -> None:
        """Hold callers of ``drain``."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let callers of ``drain`` go on."""
        self._writable.set()

    def _missing(self) -> str:
        """Return what an ``open`` that was given up waited for."""
        if self._transport is None:
            return "no connection"
        is_agreed = self._frames.max_bytes == RECEIVE_MAX_BYTES
        return f"no answer to {'SaslAuthenticate' if is_agreed else 'ApiVersions'}"

    async def _greet(self) -> None:
        """Agree on versions, then authenticate."""
        await self._follow(self.exchange.negotiate())
        self._frames.max_bytes = RECEIVE_MAX_BYTES
        credentials = self._settings.security.sasl
        if credentials is not None:
            await self._follow(authenticate(credentials, self.exchange, SystemRng()))

    async def _follow(self, steps: Generator[Step, Message, None]) -> None:
        try:
            step = next(steps)
            while True:
                step = steps.send(await self.send(step.request, step.answer, highest=step.highest))
        except StopIteration:
            return

    def _write(self, request: Message, answer: type[Message] | None, highest: int | None) -> None:
        if self.is_closed or self._transport is None:
            raise ConnectionFailed(*self.address, "the connection is closed")
        version = self.exchange.version(type(request), highest)
        self._transport.writelines(self.exchange.request(request, answer, version))

    def _fail(self, error: ConnectionFailed) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
                future.exception()  # one that nobody awaits any more is no news
