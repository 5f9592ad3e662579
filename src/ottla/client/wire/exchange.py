"""Requests to frames and frames to answers, for one connection, without doing input or output.

Owns correlation ids, headers, the versions both sides know and the order of answers. The transport
(``connection`` on asyncio, ``blocking`` on a socket) moves the bytes. A frame is ``size int32`` and
that many bytes: header (``ottla.protocol.header``) and message.
Source: Kafka's protocol guide; KIP-35 and KIP-511 (ApiVersions).
"""

import struct
from collections import deque
from collections.abc import Generator, Mapping
from struct import Struct
from typing import NamedTuple, TypeVar, cast

from ottla import __version__
from ottla.client.wire.errors import Unsendable, error_code
from ottla.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.header import decode_response_header, encode_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.primitives import RecordBytes, Splices
from ottla.protocol.schema import Message

Answer = TypeVar("Answer", bound=Message)

FIRST_RECEIVE_MAX_BYTES = 1 << 20
"""Until the peer has shown itself to be a broker, an answer is small."""
RECEIVE_MAX_BYTES = 1 << 30
"""A larger answer ends the connection. (A Fetch may exceed its own limits by one batch.)"""

BUFFER_BYTES = 64 * 1024
"""Smaller frames are copied out of one buffer."""
AHEAD_BYTES = 4 << 20
"""So much memory a frame gets before more of it than that has come."""

API_VERSIONS = ApiVersionsRequest.API_KEY
_SIZE = Struct(">i")
_CANNOT_BE_HELD = (struct.error, ValueError, TypeError, AttributeError, OverflowError)
"""What encoders raise for a value that is none of its field's; UnicodeError is a ValueError."""
_TLS_ALERT = 0x1503
"""How what a TLS peer answers to plain bytes begins."""


class Expected(NamedTuple):
    """An answer that is due."""

    correlation_id: int
    answer: type[Message]
    version: int


class Step(NamedTuple):
    """One request of a conversation that the transport only carries, and the kind of its answer."""

    request: Message
    answer: type[Message]
    highest: int | None = None
    """The newest version that it may have; None: any."""


class Exchange:
    """The state of one connection's conversation. Answers come in the order of the requests."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._next_correlation_id = 0
        self._expected: deque[Expected] = deque()
        self.versions: Mapping[int, tuple[int, int]] = {API_VERSIONS: (0, 4)}
        """By API key, the first and last version that the peer serves; ``negotiate`` fills it."""
        self.features: Mapping[str, int] = {}
        """The cluster's features and their levels, as ``negotiate`` has heard of them (KIP-584)."""

    @property
    def is_idle(self) -> bool:
        """Whether no answer is due."""
        return not self._expected

    def version(self, request: type[Message], highest: int | None = None) -> int:
        """Return the newest version that both sides know, not above ``highest``.

        Raises KafkaError (UNSUPPORTED_VERSION) when there is none.
        """
        ours = request.VERSIONS
        first, last = self.versions.get(request.API_KEY, (0, -1))
        version = min(ours.last, last, ours.last if highest is None else highest)
        if version < max(ours.first, first):
            name = request.__name__.removesuffix("Request")
            theirs = f"serves {first}-{last}" if last >= 0 else "does not serve it"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{name} {ours} wanted, the broker {theirs}"
            )
        return version

    def request(
        self, message: Message, answer: type[Message] | None, version: int
    ) -> list[RecordBytes]:
        """Return the request's frame in pieces, in order; ``answer`` None: none is due.

        Raises Unsendable for a value that its field cannot hold: callers' arguments come this far.
        """
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        body = bytearray()
        splices: Splices = []
        try:
            message.encoder(version)(message, body, splices)
        except _CANNOT_BE_HELD as error:
            raise Unsendable(type(message).__name__.removesuffix("Request"), error) from error
        header = encode_request_header(message.API_KEY, version, correlation_id, self._client_id)
        pieces: list[RecordBytes] = []
        position = 0
        for at, what in splices:
            pieces.append(memoryview(body)[position:at])
            pieces.append(what if isinstance(what, (bytes, bytearray, memoryview)) else what.read())
            position = at
        pieces.append(memoryview(body)[position:])
        size_bytes = len(header) + sum(map(len, pieces))
        pieces.insert(0, _SIZE.pack(size_bytes) + header)
        if answer is not None:
            self._expected.append(Expected(correlation_id, answer, version))
        return pieces

    def answer(self, frame: memoryview) -> Message:
        """Return the answer in ``frame`` (without its size), which is due next.

        Its records are views into ``frame``. Raises MalformedMessage for anything else; the
        connection is then of no use any more.
        """
        if not self._expected:
            raise MalformedMessage("an answer came that no request asked for")
        expected = self._expected.popleft()
        kind = expected.answer
        correlation_id, position = decode_response_header(
            frame, 0, len(frame), api_key=kind.API_KEY, api_version=expected.version
        )
        if correlation_id != expected.correlation_id:
            raise MalformedMessage(
                f"answer {correlation_id} came where {expected.correlation_id} was due"
            )
        version = self._readable(frame, position, expected)
        message, _ = kind.decoder(version)(frame, position, len(frame))
        return message

    def _readable(self, frame: memoryview, position: int, expected: Expected) -> int:
        """Return the version to decode: a too new ApiVersions is answered in version 0."""
        unsupported = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        is_api_versions = expected.answer.API_KEY == API_VERSIONS
        if is_api_versions and frame[position : position + 2] == unsupported:
            return 0
        return expected.version

    def negotiate(self) -> Generator[Step, Message, None]:
        """Yield the first steps; each is sent its answer. In the end ``versions`` are known."""
        version: int | None = ApiVersionsRequest.VERSIONS.last
        request = ApiVersionsRequest(
            client_software_name="ottla", client_software_version=__version__
        )
        while version is not None:
            answer = yield Step(request, ApiVersionsResponse, version)
            version = self._learn(cast("ApiVersionsResponse", answer))

    def _learn(self, answer: ApiVersionsResponse) -> int | None:
        """Take in the peer's versions; return the ApiVersions version to ask again with, or None.

        Raises KafkaError when the peer refused for another reason.
        """
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            return min(served.get(API_VERSIONS, (0, 0))[1], ApiVersionsRequest.VERSIONS.last - 1)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(answer.error_code), "ApiVersions was refused")
        self.versions = served
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}
        return None


class FrameReader:
    """Cuts what is received into frames; the transport writes it where the reader says.

    A large frame is received into memory of its own, which is handed out without a copy.
    """

    def __init__(self, max_bytes: int = FIRST_RECEIVE_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        """Of one frame; a larger one is refused."""
        self._shared = self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._have_bytes = 0
        """Of the buffer, received. Invariant: there is room for more."""
        self._needed_bytes = 0
        """With its size, of the one frame that has the buffer for itself. 0: it is the shared."""

    def writable(self) -> memoryview:
        """Return where to receive next; it is not empty."""
        return self._buffer[self._have_bytes :]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames, without size, that ``count`` more bytes complete.

        Raises MalformedMessage.
        """
        self._have_bytes += count
        if self._needed_bytes:
            return self._received_of_one()
        buffer, have_bytes = self._buffer, self._have_bytes
        frames: list[memoryview] = []
        position, needed_bytes = 0, 0
        while have_bytes - position >= _SIZE.size:
            needed_bytes = _SIZE.size + frame_size(buffer, position, self.max_bytes)
            if needed_bytes > have_bytes - position:
                break
            end = position + needed_bytes
            frames.append(memoryview(bytes(buffer[position + _SIZE.size : end])))
            position, needed_bytes = end, 0
        rest = buffer[position:have_bytes]
        self._have_bytes = len(rest)
        if needed_bytes > len(buffer):
            self._needed_bytes = needed_bytes
            self._move(rest)
        elif position:
            buffer[: len(rest)] = rest
        return frames

    def _received_of_one(self) -> list[memoryview]:
        """Return the frame that has the buffer for itself if it is complete; else make room."""
        buffer, needed_bytes = self._buffer, self._needed_bytes
        if self._have_bytes == needed_bytes:
            self._buffer = self._shared
            self._have_bytes = self._needed_bytes = 0
            return [buffer[_SIZE.size :].toreadonly()]
        if self._have_bytes == len(buffer):
            self._move(buffer)
        return []

    def _move(self, begun: memoryview) -> None:
        """Make a larger buffer for a frame. A peer that only says that much is coming gets less."""
        size_bytes = min(self._needed_bytes, max(AHEAD_BYTES, 2 * len(begun)))
        self._buffer = memoryview(bytearray(size_bytes))
        self._buffer[: len(begun)] = begun


def frame_size(data: bytes | bytearray | memoryview, position: int, max_bytes: int) -> int:
    """Return the size that stands at ``position``. Raises MalformedMessage for a senseless one."""
    size: int = _SIZE.unpack_from(data, position)[0]
    if size >> 16 == _TLS_ALERT and size > max_bytes:
        raise MalformedMessage("the broker speaks TLS on this port: set security.protocol to SSL")
    if not 4 <= size <= max_bytes:
        raise MalformedMessage(f"an answer of {size} bytes; is that a Kafka broker?")
    return size
