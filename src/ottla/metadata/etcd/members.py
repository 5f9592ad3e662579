"""The members of an etcd, one connection to each that is needed, and which one is asked.

Owns connections, time limits and what failures mean: whether a request was sent, refused or may
have been carried out. All that is asked goes to one member until it fails; then to the next one. A
member that has lost its leader says so (``hasleader``) instead of answering from what it has.
Knows no message. The only module that knows grpcio: it comes with the extra ``cluster``, and is
imported when a store is opened. No process may fork after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol

import grpc
import grpc.aio

from ottla.env.tasks import begin_task
from ottla.metadata.etcd import wire
from ottla.metadata.etcd.tls_trouble import trouble_of
from ottla.metadata.store import MetadataError, Unavailable

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
CONNECT_SECONDS = 1.5
"""For one member; a search takes as much for each."""
RECONNECT_SECONDS = 0.3
"""For one that was tried before, and not reached."""
ANSWER_SECONDS = 4.0
_SERVICES = {
    "Range": "KV",
    "Txn": "KV",
    "Compact": "KV",
    "Watch": "Watch",
    "LeaseGrant": "Lease",
    "LeaseRevoke": "Lease",
    "LeaseKeepAlive": "Lease",
    "Authenticate": "Auth",
}
_OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_NEVER_CARRIED_OUT = frozenset(
    (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)
"""With these etcd refuses a request before it goes to the others."""
_CLOSED = "the metadata store is closed"
_HAS_LEADER = ("hasleader", "true")
_NO_LEADER = "no leader"
_TOKEN_IS_OLD = ("invalid auth token", "revision of auth store is old", "user name is empty")
"""It has expired, or its member has begun anew; somebody has changed users or roles since."""


class Refused(MetadataError):
    """etcd did not do it, and would not do it at another time or at another member."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.is_not_found = code is grpc.StatusCode.NOT_FOUND
        self.is_out_of_range = code is grpc.StatusCode.OUT_OF_RANGE
        """A revision that is compacted, or not there yet."""
        self.is_too_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED


class NotSent(Unavailable):
    """No member could be asked."""


class _TokenIsOld(NotSent):
    """A member wants a new login; it has done nothing."""


class Unanswered(Unavailable):
    """A member was asked, and may have done it."""


class Security(NamedTuple):
    """How members are talked to."""

    ca: bytes | None = None
    """Certificates of authorities, PEM; None: those of the system."""
    key: bytes | None = None
    certificate: bytes | None = None
    """Ours, PEM; None: members do not ask for one."""
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Security(user={self.user!r})"


class Stream(Protocol):
    """A request that gets many answers."""

    async def write(self, message: bytes) -> None:
        """Send a message. Raises Unanswered."""

    async def read(self) -> bytes:
        """Return the next answer. Raises Unanswered at the end, Refused."""


class Members:
    """The members at ``endpoints``, of which one is asked."""

    def __init__(
        self, endpoints: Sequence[str], *, is_tls: bool = False, security: Security | None = None
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._is_tls = is_tls
        self._security = security or Security()
        self._token = ""
        self._channels: dict[int, Any] = {}
        """Use: grpcio's, by the member's index; opened when it is first asked."""
        self._asked = 0
        """The index of the member that is asked."""
        self._search: asyncio.Task[tuple[int, Any]] | None = None
        """Use: looks for a member; all who need one wait for it."""
        self._is_closed = False

    async def call(self, method: str, message: bytes, *, seconds: float = ANSWER_SECONDS) -> bytes:
        """Return the answer of one member. Raises NotSent, Unanswered, Refused."""
        with suppress(_TokenIsOld):
            return await self._call(method, message, seconds)
        return await self._call(method, message, seconds)

    async def _call(self, method: str, message: bytes, seconds: float) -> bytes:
        index, channel = await self._reached()
        token = self._token
        try:
            answer: bytes = await channel.unary_unary(_path(method))(
                message, timeout=seconds, metadata=_metadata(token)
            )
        except _FAULTS as error:
            raise self._failed(index, error, token) from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise Unanswered(_CLOSED) from None
        return answer

    async def call_again(self, method: str, message: bytes) -> bytes:
        """Return an answer; ask others if one has none. For what may be done twice.

        Raises Unavailable, Refused.
        """
        for _ in self._endpoints:
            try:
                return await self.call(method, message)
            except Unanswered:
                continue
        return await self.call(method, message)

    @asynccontextmanager
    async def stream(self, method: str, *, seconds: float | None = None) -> AsyncIterator[Stream]:
        """Open a stream to one member, for at most ``seconds``. Raises NotSent."""
        index, channel = await self._reached()
        token = self._token
        call = channel.stream_stream(_path(method))(timeout=seconds, metadata=_metadata(token))
        try:
            yield _Call(call, lambda error: self._failed(index, error, token))
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close all connections. What is under way fails."""
        self._is_closed = True
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    # Which member.

    async def _reached(self) -> tuple[int, Any]:
        """Return a member to which there is a connection. Raises NotSent."""
        if self._is_closed:
            raise NotSent(_CLOSED)
        channel = self._channel(self._asked)
        is_known = bool(self._token) or not self._security.user
        if is_known and channel.get_state() is grpc.ChannelConnectivity.READY:
            return self._asked, channel
        if self._search is None:
            self._search = begin_task(self._find(), name="look for etcd", ended=self._searched)
        return await asyncio.shield(self._search)

    async def _find(self) -> tuple[int, Any]:
        """Return the first member that can be asked. Raises NotSent, Refused."""
        troubles: dict[str, None] = {}
        for _ in self._endpoints:
            if self._is_closed:
                break
            index = self._asked
            channel = self._channel(index)
            if await _is_ready(channel) and await self._is_logged_in(index, channel):
                return index, channel
            if self._is_tls and (trouble := await _tls_trouble(channel)):
                troubles[f"{self._endpoints[index]}: {trouble}"] = None
            self._next_after(index)
        why = f" by TLS ({'; '.join(troubles)})" if troubles else ""
        raise NotSent(f"no etcd answers at {', '.join(self._endpoints)}{why}")

    def _searched(self, search: asyncio.Task[tuple[int, Any]]) -> None:
        self._search = None
        if not search.cancelled():
            search.exception()  # Who waits has it.

    async def _is_logged_in(self, index: int, channel: Any) -> bool:  # noqa: ANN401 - grpcio has no types
        if self._token or not self._security.user:
            return True
        try:
            answer = await channel.unary_unary(_path("Authenticate"))(
                wire.login(self._security.user, self._security.password), timeout=ANSWER_SECONDS
            )
        except _FAULTS as error:
            failure = self._failed(index, error, "")
            if isinstance(failure, Refused):
                raise failure from error
            return False
        self._token = wire.read_token(answer)
        return True

    def _next_after(self, index: int) -> None:
        if self._asked == index:
            self._asked = (index + 1) % len(self._endpoints)

    def _channel(self, index: int) -> Any:  # noqa: ANN401 - grpcio has no types
        channel = self._channels.get(index)
        if channel is None:
            endpoint = self._endpoints[index]
            if self._is_tls:
                known = self._security
                credentials = grpc.ssl_channel_credentials(known.ca, known.key, known.certificate)
                channel = grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)
            else:
                channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
            self._channels[index] = channel
        return channel

    # Failures.

    def _failed(self, index: int, error: BaseException, token: str) -> MetadataError:
        """Return what an error of grpcio means; ask another member next unless this one is well.

        ``token``: the one that was shown; empty: none was.
        """
        if isinstance(error, grpc.RpcError):
            code, text = error.code(), error.details() or ""
        else:  # A call that was over when it was used: grpc.aio says so in its own ways.
            code, text = grpc.StatusCode.UNAVAILABLE, str(error) or repr(error)
        if token and any(words in text for words in _TOKEN_IS_OLD):
            if self._token == token:
                self._token = ""
            return _TokenIsOld(text)
        if code in _NEVER_CARRIED_OUT:
            return Refused(code, text)
        self._next_after(index)
        where = self._endpoints[index]
        if _NO_LEADER in text:
            return NotSent(f"etcd at {where} has no leader")
        return Unanswered(f"etcd at {where} did not answer: {text}")


class _Call:
    """A stream of grpcio."""

    def __init__(self, call: Any, failed: Callable[[BaseException], MetadataError]) -> None:  # noqa: ANN401
        self._call = call
        self._failed = failed

    async def write(self, message: bytes) -> None:
        try:
            await self._call.write(message)
        except _FAULTS as error:
            raise self._failed(error) from error

    async def read(self) -> bytes:
        try:
            answer: Any = await self._call.read()
        except _FAULTS as error:
            raise self._failed(error) from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise Unanswered(_CLOSED) from None
        if answer is grpc.aio.EOF:
            raise Unanswered("etcd has ended the stream")
        message: bytes = answer
        return message


_FAULTS = (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError)


def _is_cancelled() -> bool:
    """Whether the running task is cancelled itself, not only a call whose connection was closed."""
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


async def _is_ready(channel: Any) -> bool:  # noqa: ANN401 - grpcio has no types
    """Whether there is a connection, which is waited for.

    A channel that has failed tries again by itself, and does not say so until it has succeeded.
    """
    known = grpc.ChannelConnectivity
    state = channel.get_state(try_to_connect=True)
    has_failed = state is known.TRANSIENT_FAILURE
    try:
        async with asyncio.timeout(RECONNECT_SECONDS if has_failed else CONNECT_SECONDS):
            while state is not known.READY:
                if state is known.SHUTDOWN or (state is known.TRANSIENT_FAILURE and not has_failed):
                    return False
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except (TimeoutError, grpc.aio.UsageError):
        return False
    return True


async def _tls_trouble(channel: Any) -> str:  # noqa: ANN401 - grpcio has no types
    """Return why a channel that is not ready has no TLS connection; "": it has one by now."""
    try:
        await channel.unary_unary(_path("Range"))(b"", timeout=CONNECT_SECONDS)
    except grpc.RpcError as error:
        return trouble_of(error.details() or repr(error))
    except _FAULTS as error:
        return repr(error)
    return ""


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (_HAS_LEADER, ("token", token)) if token else (_HAS_LEADER,)


def _path(method: str) -> str:
    return f"/etcdserverpb.{_SERVICES[method]}/{method}"
