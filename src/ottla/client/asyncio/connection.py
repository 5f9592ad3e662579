"""One connection to one broker, on asyncio: pipelined calls, each with a deadline.

Owns the transport and the futures of the answers that are due; ``exchange`` knows the bytes.
Nothing is retried here. Used by ``cluster``, and where one certain broker is wanted.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from math import inf
from typing import TypeVar, cast

from ottla.client.wire.authentication import (
    authenticate,
    refuse_if_login_is_wanted,
    renewal_seconds,
)
from ottla.client.wire.errors import AT_ONCE, UNSERVED, ConnectionFailed, NoAnswer, reason
from ottla.client.wire.exchange import RECEIVE_MAX_BYTES, Exchange, FrameReader, Step
from ottla.client.wire.settings import Address, ClientSettings
from ottla.env.net import Net
from ottla.env.rng import SystemRng
from ottla.errors import KafkaError, MalformedMessage
from ottla.protocol.schema import Message

Answer = TypeVar("Answer", bound=Message)


class Connection(asyncio.BufferedProtocol):
    """An open connection. ``open`` makes one; a closed one stays closed."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.is_closed = False
        self._is_served = False
        """Use: whether anything but the versions was answered."""
        self.exchange = Exchange(settings.client_id)
        self._settings = settings
        self._frames = FrameReader()
        self._waiting: deque[asyncio.Future[Message]] = deque()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._renew_at = inf
        """Use: when to authenticate again, by the loop's clock. Invariant: inf: never."""
        self._held: list[Callable[[], None]] = []
        """Use: requests that wait for the end of a re-authentication, in order."""
        self._renewing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        net: Net,
        address: Address,
        settings: ClientSettings | None = None,
        *,
        is_doubtful: bool = False,
    ) -> "Connection":
        """Connect, agree on versions and authenticate, within the connect time-out.

        ``is_doubtful``: the one before was not served, so ask whether a login is wanted.
        Raises ConnectionFailed, KafkaError SASL_AUTHENTICATION_FAILED and what goes with it.
        """
        settings = settings or ClientSettings()
        connection = cls(address, settings)
        token = await _token(settings, address)
        seconds = settings.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                await net.connect(
                    lambda: connection,
                    host=address.host,
                    port=address.port,
                    tls=settings.security.tls,
                )
                await connection._greet(token, is_doubtful=is_doubtful)
        except TimeoutError:
            connection.close()
            raise ConnectionFailed(
                *address, f"{connection._missing()} within {seconds:g} s"
            ) from None
        except (OSError, UnicodeError) as error:  # The latter: of a host that is no name.
            refused = isinstance(error, ConnectionRefusedError)
            raise ConnectionFailed(*address, reason(error), refused=refused) from error
        except BaseException:  # Whoever waited may be cancelled: nobody else knows of it.
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
        name = type(request).__name__.removesuffix("Request")
        seconds = timeout_ms / 1000
        timer = asyncio.get_running_loop().call_later(seconds, self._expire, future, name, seconds)
        try:
            return await future
        finally:
            # A caller that has given up ends the wait, not the judgement: else a silent peer is
            # asked again and again by callers with less patience than it takes to find out.
            if not future.cancelled():
                timer.cancel()

    def _expire(self, future: "asyncio.Future[Answer]", name: str, seconds: float) -> None:
        """Close the connection if ``future`` has no answer, whether somebody waits or not."""
        error = NoAnswer(*self.address, f"no answer to {name} within {seconds:g} s")
        if future in self._waiting:
            self._fail(error)
        elif not future.done():  # It is held until a re-authentication has ended.
            self._fail(error)
            future.set_exception(error)

    def send(
        self, request: Message, answer: type[Answer], *, highest: int | None = None
    ) -> "asyncio.Future[Answer]":
        """Send ``request`` and return the future of its answer; more may be sent meanwhile."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._must_wait():
            self._held.append(lambda: self._send_held(request, answer, highest, future))
        else:
            self._send(request, answer, highest, future)
        return cast("asyncio.Future[Answer]", future)

    def send_only(self, request: Message, *, highest: int | None = None) -> None:
        """Send a request that is not answered: Produce with acks=0."""
        if self._must_wait():
            self._held.append(lambda: self._write_held(request, highest))
        else:
            self._write(request, None, highest)

    async def drain(self) -> None:
        """Wait until the peer has taken enough of what was sent. Raises NoAnswer: it does not."""
        if self._writable.is_set():
            return
        seconds = self._settings.request_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                await self._writable.wait()
        except TimeoutError:
            error = NoAnswer(*self.address, f"it has taken no bytes for {seconds:g} s")
            self._fail(error)
            raise error from None

    def close(self) -> None:
        """Close; answers that are due fail with ConnectionFailed. Harmless when closed already."""
        self._fail(ConnectionFailed(*self.address, "the connection was closed here"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if self.is_closed:  # It was given up meanwhile.
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to receive. The loop calls this, and the five below."""
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Answer the futures in order."""
        try:
            for frame in self._frames.received(nbytes):
                message = self.exchange.answer(frame)
                self._is_served = self._has_versions
                future = self._waiting.popleft()
                if not future.done():  # a caller may have given up
                    future.set_result(message)
        except MalformedMessage as error:
            self._fail(ConnectionFailed(*self.address, str(error)))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what is due."""
        why = reason(error) if isinstance(error, OSError) else "the broker closed the connection"
        if not self._has_versions and self._settings.security.tls is None:
            why += AT_ONCE
        unserved = self._has_versions and not self._is_served
        if unserved and self._settings.security.sasl is None:
            why += UNSERVED
        self._fail(ConnectionFailed(*self.address, why, unserved=unserved))

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
        return f"no answer to {'SaslAuthenticate' if self._has_versions else 'ApiVersions'}"

    @property
    def _has_versions(self) -> bool:
        return self._frames.max_bytes == RECEIVE_MAX_BYTES

    async def _greet(self, token: str, *, is_doubtful: bool) -> None:
        """Agree on versions, then authenticate."""
        await self._follow(self.exchange.negotiate())
        self._frames.max_bytes = RECEIVE_MAX_BYTES
        if is_doubtful and self._settings.security.sasl is None:
            await self._follow(refuse_if_login_is_wanted(self.exchange))
        await self._authenticate(token)

    async def _authenticate(self, token: str) -> None:
        credentials = self._settings.security.sasl
        if credentials is None:
            return
        steps = authenticate(credentials, self.exchange, SystemRng(), token)
        lifetime_ms = await self._follow(steps)
        if lifetime_ms:
            self._renew_at = asyncio.get_running_loop().time() + renewal_seconds(lifetime_ms)

    def _must_wait(self) -> bool:
        """Whether a request has to wait for a re-authentication, which begins if it is due."""
        if self._renewing is not None:
            return not self.is_closed
        if self.is_closed or asyncio.get_running_loop().time() < self._renew_at:
            return False
        self._renew_at = inf
        self._renewing = asyncio.get_running_loop().create_task(self._authenticate_again())
        return True

    async def _authenticate_again(self) -> None:
        """Renew the session (KIP-368), then send what has waited. A failure ends the connection."""
        try:
            token = await _token(self._settings, self.address)
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                await self._authenticate(token)
        except TimeoutError:
            self._fail(NoAnswer(*self.address, "no answer to a re-authentication"))
        except (ConnectionFailed, KafkaError) as error:
            self._fail(ConnectionFailed(*self.address, f"no re-authentication: {error}"))
        finally:
            self._renewing = None
            held, self._held = self._held, []
            for send in held:
                send()

    async def _follow(self, steps: Generator[Step, Message, int | None]) -> int | None:
        """Send each step and give it its answer. Returns what the steps return."""
        try:
            step = next(steps)
            while True:
                future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
                self._send(step.request, step.answer, step.highest, future)
                step = steps.send(await future)
        except StopIteration as end:
            return cast("int | None", end.value)

    def _send(
        self,
        request: Message,
        answer: type[Message],
        highest: int | None,
        future: "asyncio.Future[Message]",
    ) -> None:
        self._write(request, answer, highest)
        self._waiting.append(future)

    def _write_held(self, request: Message, highest: int | None) -> None:
        """Send a request without answer that has waited; when that fails nobody waits to hear."""
        with suppress(ConnectionFailed, KafkaError):
            self._write(request, None, highest)

    def _send_held(
        self,
        request: Message,
        answer: type[Message],
        highest: int | None,
        future: "asyncio.Future[Message]",
    ) -> None:
        """Send a request that has waited; its error goes to who waits for the answer."""
        if future.done():  # Its caller has given up: the peer need not work for nobody.
            return
        try:
            self._send(request, answer, highest, future)
        except (ConnectionFailed, KafkaError) as error:
            future.set_exception(error)
            future.exception()  # one that nobody awaits any more is no news

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


async def _token(settings: ClientSettings, address: Address) -> str:
    """Return the token for a broker, with OAUTHBEARER; else "". Raises as ``Tokens.current``."""
    credentials = settings.security.sasl
    if credentials is None or credentials.tokens is None:
        return ""
    from ottla.client.tokens import tokens_of  # noqa: PLC0415 - few have tokens

    current = tokens_of(credentials.tokens).current
    return await asyncio.get_running_loop().run_in_executor(None, current, address)
