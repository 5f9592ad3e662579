"""One connection to a broker by blocking calls: versions, logins and frames.

Used by one thread at a time; ``cluster`` opens one for each broker. What is said at a login, and
what an answer says, is ``client.wire``'s.
"""

from collections import deque
from collections.abc import Generator
from math import inf
from typing import TypeVar, cast

from ottla.client.wire.authentication import (
    authenticate,
    refuse_if_login_is_wanted,
    renewal_seconds,
)
from ottla.client.wire.errors import AT_ONCE, UNSERVED, ConnectionFailed, NoAnswer, reason
from ottla.client.wire.exchange import (
    FIRST_RECEIVE_MAX_BYTES,
    RECEIVE_MAX_BYTES,
    Exchange,
    Step,
    frame_size,
)
from ottla.client.wire.fetching import LAST_VERSION_BY_NAME
from ottla.client.wire.settings import Address, ClientSettings
from ottla.env.blocking import BlockingClock, BlockingStream
from ottla.env.rng import SystemRng
from ottla.errors import KafkaError, MalformedMessage
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.schema import Message

Answer = TypeVar("Answer", bound=Message)

SIZE_BYTES = 4
GROWTH_BYTES = 64 << 20
"""A larger answer's buffer grows with what arrives, whatever size the peer declares."""


class BlockingConnection:
    """One open connection to one broker; ``send`` and ``receive`` pipeline, ``call`` does both."""

    def __init__(
        self, address: Address, settings: ClientSettings, *, is_doubtful: bool = False
    ) -> None:
        """Connect, agree on versions, authenticate. Raises ConnectionFailed, KafkaError (SASL).

        ``is_doubtful``: the one before was not served, so ask whether a login is wanted.
        """
        token = _token(settings, address)
        self._clock = BlockingClock()
        self._renew_at = inf
        """Use: when to authenticate again, by the monotonic clock. Invariant: inf: never."""
        self._early: deque[Message] = deque()
        """Use: answers that came before a re-authentication; ``receive`` gives them first."""
        self.address = address
        self.exchange = Exchange(settings.client_id)
        self._settings = settings
        seconds = settings.connect_timeout_ms / 1000
        try:
            self._stream = BlockingStream.connect(
                *address, timeout_seconds=seconds, tls=settings.security.tls
            )
        except TimeoutError as error:
            raise ConnectionFailed(*address, f"no connection within {seconds:g} s") from error
        except (OSError, UnicodeError) as error:  # The latter: of a host that is no name.
            refused = isinstance(error, ConnectionRefusedError)
            raise ConnectionFailed(*address, reason(error), refused=refused) from error
        self._receive_max_bytes = FIRST_RECEIVE_MAX_BYTES
        self._buffer = bytearray()
        self._is_served = False
        """Use: whether anything but the versions was answered."""
        try:
            self._greet(token, is_doubtful=is_doubtful)
        except (ConnectionFailed, KafkaError):
            self.close()
            raise
        self._stream.set_timeout(settings.request_timeout_ms / 1000)

    def call(self, request: Message, answer: type[Answer], *, highest: int | None = None) -> Answer:
        """Send ``request`` and return its answer.

        Raises ConnectionFailed (the connection is closed then), KafkaError UNSUPPORTED_VERSION.
        """
        self.send(request, answer, highest=highest)
        return cast("Answer", self.receive())

    @property
    def has_answer(self) -> bool:
        """Whether ``receive`` would find at least the beginning of an answer."""
        return bool(self._early) or self._stream.is_readable()

    @property
    def fetches_by_id(self) -> bool:
        """Whether the broker takes the ids of topics in Fetch."""
        return self.exchange.version(FetchRequest) > LAST_VERSION_BY_NAME

    def send(
        self, request: Message, answer: type[Message] | None, *, highest: int | None = None
    ) -> None:
        """Send ``request``; ``receive`` gives the answers in the same order. None: none comes."""
        if self._clock.monotonic() >= self._renew_at:
            self._authenticate_again()
        self._send(request, answer, highest)

    def _send(self, request: Message, answer: type[Message] | None, highest: int | None) -> None:
        version = self.exchange.version(type(request), highest)
        pieces = self.exchange.request(request, answer, version)
        try:
            self._stream.send(pieces)
        except OSError as error:
            self.close()
            raise ConnectionFailed(*self.address, reason(error)) from error

    def receive(self, *, reuse_buffer: bool = False) -> Message:
        """Return the answer that is due next.

        ``reuse_buffer``: its records are views into a buffer that the next such call overwrites.
        """
        if self._early:
            return self._early.popleft()
        return self._receive(reuse_buffer=reuse_buffer)

    def _receive(self, *, reuse_buffer: bool = False) -> Message:
        try:
            head = bytearray(SIZE_BYTES)
            self._stream.receive_into(memoryview(head))
            size = frame_size(head, 0, self._receive_max_bytes)
            self._is_served = self._has_versions
            return self.exchange.answer(
                self._frame_again(size) if reuse_buffer else self._frame(size)
            )
        except TimeoutError as error:
            self.close()
            seconds = self._settings.request_timeout_ms / 1000
            raise NoAnswer(*self.address, f"no answer within {seconds:g} s") from error
        except OSError as error:
            self.close()
            raise self._hung_up(error) from error
        except MalformedMessage as error:
            self.close()
            raise ConnectionFailed(*self.address, str(error)) from error

    def close(self) -> None:
        """Close. Harmless when closed already."""
        self._stream.close()

    def _frame(self, size: int) -> memoryview:
        buffer = bytearray(min(size, GROWTH_BYTES))
        self._stream.receive_into(memoryview(buffer))
        while len(buffer) < size:
            more = bytearray(min(size - len(buffer), GROWTH_BYTES))
            self._stream.receive_into(memoryview(more))
            buffer += more
        return memoryview(buffer)

    def _frame_again(self, size: int) -> memoryview:
        """Return the next frame, in the buffer of the one before if that is large enough."""
        if size > GROWTH_BYTES:
            return self._frame(size)
        if size > len(self._buffer):
            self._buffer = bytearray(size + size // 8)
        view = memoryview(self._buffer)[:size]
        self._stream.receive_into(view)
        return view

    @property
    def _has_versions(self) -> bool:
        return self._receive_max_bytes == RECEIVE_MAX_BYTES

    def _hung_up(self, error: OSError) -> ConnectionFailed:
        why = reason(error)
        if not self._has_versions and self._settings.security.tls is None:
            why += AT_ONCE
        unserved = self._has_versions and not self._is_served
        if unserved and self._settings.security.sasl is None:
            why += UNSERVED
        return ConnectionFailed(*self.address, why, unserved=unserved)

    def _greet(self, token: str, *, is_doubtful: bool) -> None:
        """Agree on versions, then authenticate."""
        self._follow(self.exchange.negotiate())
        self._receive_max_bytes = RECEIVE_MAX_BYTES
        if is_doubtful and self._settings.security.sasl is None:
            self._follow(refuse_if_login_is_wanted(self.exchange))
        self._authenticate(token)

    def _authenticate(self, token: str) -> None:
        credentials = self._settings.security.sasl
        if credentials is None:
            return
        lifetime_ms = self._follow(authenticate(credentials, self.exchange, SystemRng(), token))
        if lifetime_ms:
            self._renew_at = self._clock.monotonic() + renewal_seconds(lifetime_ms)

    def _authenticate_again(self) -> None:
        """Renew the session (KIP-368): the answers that are due come first, nothing in between.

        Raises ConnectionFailed, KafkaError; the connection is closed then.
        """
        try:
            token = _token(self._settings, self.address)
            while not self.exchange.is_idle:
                self._early.append(self._receive())
            self._authenticate(token)
        except (ConnectionFailed, KafkaError):
            self.close()
            raise

    def _follow(self, steps: Generator[Step, Message, int | None]) -> int | None:
        """Send each step and give it its answer. Returns what the steps return."""
        try:
            step = next(steps)
            while True:
                self._send(step.request, step.answer, step.highest)
                step = steps.send(self._receive())
        except StopIteration as end:
            return cast("int | None", end.value)


def _token(settings: ClientSettings, address: Address) -> str:
    """Return the token for a broker, with OAUTHBEARER; else "". Raises as ``Tokens.current``."""
    credentials = settings.security.sasl
    if credentials is None or credentials.tokens is None:
        return ""
    from ottla.client.tokens import tokens_of  # noqa: PLC0415 - few have tokens

    return tokens_of(credentials.tokens).current(address)
