"""Request and response headers, which come before every message.

    request header v1  := api_key:int16 api_version:int16 correlation_id:int32 client_id:nullable
    request header v2  := v1 tags                                       (flexible requests)
    response header v0 := correlation_id:int32
    response header v1 := correlation_id:int32 tags                     (flexible responses)

``client_id`` has an int16 length even in v2. The response to ApiVersions always has header v0,
because its reader does not know yet which versions the broker serves. Knows the table of APIs, but
no message. The router decodes requests and encodes responses with it; our own client does the
opposite.
"""

from struct import Struct, error
from typing import NamedTuple

from ottla.errors import MalformedMessage
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.primitives import get_uvarint, skip_tags

REQUEST_HEADER_BYTES_MIN = 10
CORRELATION_ID_BYTES = 4
LENGTH_BYTES = 4
"""The size of a frame's length, which comes before every header."""

FLEXIBLE_FROM: dict[int, int] = {
    int(key): api.flexible_from for key, api in API_TABLE.items() if api.flexible_from is not None
}
"""API key to the first version whose request has header v2."""

_NEVER = 1 << 15
_REQUEST = Struct(">hhih")
_CORRELATION_ID = Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request, and the position in the frame where the message begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    position: int


def decode_request_header(buffer: memoryview, position: int, end: int) -> RequestHeader:
    """Return the header that begins at ``position``.

    Unknown keys and versions are returned as they are; the router judges them. A client id that is
    not UTF-8 is accepted, as in Kafka. Raises MalformedMessage.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(buffer, position)
        position += _REQUEST.size
        client_id = None
        if length >= 0:
            stop = position + length
            if stop > end:
                raise MalformedMessage("request header: client_id ends outside the frame")
            client_id = str(buffer[position:stop], "utf-8", "replace")
            position = stop
        if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER):
            count, position = get_uvarint(buffer, position)
            if count:
                position = skip_tags(count, buffer, position, end)
    except (error, IndexError):
        raise MalformedMessage("request header: ends too early") from None
    if position > end:
        raise MalformedMessage("request header: ends too early")
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def read_request_header_start(frame: memoryview) -> tuple[int, int, int, int]:
    """Return API key, version, correlation id and the client id's length (negative: null).

    The frame must have ``REQUEST_HEADER_BYTES_MIN`` bytes; the client id begins after them.
    """
    return _REQUEST.unpack_from(frame)


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return an encoded request header, in the header version of this API and version."""
    text = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(text)
    flexible = api_version >= FLEXIBLE_FROM.get(api_key, _NEVER)
    tags = b"\x00" if flexible else b""
    return _REQUEST.pack(api_key, api_version, correlation_id, length) + text + tags


def response_header_is_flexible(api_key: int, api_version: int) -> bool:
    """Whether the response has header v1 (with tags after the correlation id)."""
    if api_key == ApiKey.API_VERSIONS:
        return False
    return api_version >= FLEXIBLE_FROM.get(api_key, _NEVER)


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the encoded header of a response to a request of this key and version."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + b"\x00" if response_header_is_flexible(api_key, api_version) else header


def decode_response_header(
    buffer: memoryview, position: int, end: int, *, api_key: int, api_version: int
) -> tuple[int, int]:
    """Return the correlation id, and the position after the header. Raises MalformedMessage."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, position)
        position += _CORRELATION_ID.size
        if response_header_is_flexible(api_key, api_version):
            count, position = get_uvarint(buffer, position)
            if count:
                position = skip_tags(count, buffer, position, end)
    except (error, IndexError):
        raise MalformedMessage("response header: ends too early") from None
    if position > end:
        raise MalformedMessage("response header: ends too early")
    return correlation_id, position
