"""From a frame to its handler and back to a framed answer.

Owns which API versions are served (ApiVersions is computed from this table, so what is served and
what is said cannot differ), decoding, encoding, and what an unknown request gets. Knows handlers by
their key only. Source: KIP-35, KIP-511; the live answers in docs/compatibility.md.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from ottla.errors import MalformedMessage
from ottla.handlers.call import UNUSUAL, Answer, Call, Chunk, Client, Direct, Handler, Response
from ottla.pending import Pending
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.fields import Versions
from ottla.protocol.header import (
    REQUEST_HEADER_BYTES_MIN,
    decode_request_header,
    read_request_header_start,
    response_header_is_flexible,
)
from ottla.protocol.primitives import Splices, spliced_bytes
from ottla.protocol.schema import Message

_LENGTH_AND_CORRELATION = struct.Struct(">ii")
LENGTH_BYTES = 4

_UNSUPPORTED_API_VERSIONS = struct.pack(">hihhh", 35, 1, ApiKey.API_VERSIONS, 0, 4)
"""The v0 body that an ApiVersions request from the future gets: error 35 and the one range that
helps the client to ask again (seen on a live broker)."""


class Route(NamedTuple):
    """One served (API, version): everything a request needs, found by one dictionary lookup."""

    handle: Callable[[Any, Call], Response]
    decode: Callable[[memoryview, int, int], tuple[Any, int]]
    encode: Callable[[Any, bytearray, Splices], None]
    is_flexible_response: bool


class Router:
    """The table of served APIs, and the way through it."""

    def __init__(self, handlers: Mapping[ApiKey, Handler[Any]]) -> None:
        self._handlers = dict(handlers)
        self._routes: dict[tuple[int, int], Route] = {}
        self._directs: dict[tuple[int, int], Direct] = {}
        """Invariant: has a route as well."""

    def add(self, key: ApiKey, handler: Handler[Any]) -> None:
        """Serve one more API; for the one that has to know all the others."""
        self._handlers[key] = handler

    def served(self) -> dict[ApiKey, Versions]:
        """Return the advertised version range of every API served, by key."""
        return {key: API_TABLE[key].advertised_versions for key in sorted(self._handlers)}

    def dispatch(self, frame: memoryview, client: Client) -> Answer | Pending[Answer | None] | None:
        """Serve one frame, which is valid only during this call.

        Raises MalformedMessage when it cannot be decoded or is of an API or version not served;
        CloseConnection when the handler says so.
        """
        size = len(frame)
        if size >= REQUEST_HEADER_BYTES_MIN:
            key, version, correlation_id, client_id_bytes = read_request_header_start(frame)
            direct = self._directs.get((key, version))
            if direct is not None:
                position = REQUEST_HEADER_BYTES_MIN + max(client_id_bytes, 0)
                answer = direct(frame, position, correlation_id)
                if answer is not UNUSUAL:
                    return answer
        header = decode_request_header(frame, 0, size)
        key, version, correlation_id, client_id, position = header
        route = self._routes.get((key, version))
        if route is None:
            versions = self._served_versions(key)
            if version not in versions:
                if key == ApiKey.API_VERSIONS:
                    return [_framed(correlation_id, _UNSUPPORTED_API_VERSIONS)]
                raise MalformedMessage(f"API {key} version {version} is not served")
            route = self._compile(ApiKey(key), version)
        request, _ = route.decode(frame, position, size)
        response = route.handle(request, Call(version, client_id, client))
        if response is None:
            return None
        if isinstance(response, Pending):
            return response.then(
                lambda message: None if message is None else _encode(message, correlation_id, route)
            )
        return _encode(response, correlation_id, route)

    def _served_versions(self, key: int) -> Versions:
        """Return the versions that are decoded, an empty range for an API that is not served."""
        if key not in set(self._handlers):
            return Versions.parse("")
        return API_TABLE[ApiKey(key)].versions

    def _compile(self, key: ApiKey, version: int) -> Route:
        """Make and keep the route of a served (key, version), on its first use."""
        api = API_TABLE[key]
        route = Route(
            handle=self._handlers[key].handle,
            decode=api.request.decoder(version),
            encode=api.response.encoder(version),
            is_flexible_response=response_header_is_flexible(key, version),
        )
        self._routes[key, version] = route
        make_direct = getattr(self._handlers[key], "direct", None)
        if make_direct is not None:
            direct = make_direct(
                version, lambda message, correlation_id: _encode(message, correlation_id, route)
            )
            if direct is not None:
                self._directs[key, version] = direct
        return route


def _framed(correlation_id: int, body: bytes) -> bytes:
    return _LENGTH_AND_CORRELATION.pack(LENGTH_BYTES + len(body), correlation_id) + body


def _encode(message: Message, correlation_id: int, route: Route) -> Answer:
    """Frame a response; large records stay where they are and become chunks of their own."""
    out = bytearray(9 if route.is_flexible_response else 8)
    splices: Splices = []
    route.encode(message, out, splices)
    size_bytes = len(out) - LENGTH_BYTES
    if not splices:
        _LENGTH_AND_CORRELATION.pack_into(out, 0, size_bytes, correlation_id)
        return [out]
    size_bytes += spliced_bytes(splices)
    _LENGTH_AND_CORRELATION.pack_into(out, 0, size_bytes, correlation_id)
    answer: Answer = []
    begin = 0
    for position, splice in splices:
        answer.append(bytes(out[begin:position]))
        answer.append(cast("Chunk", splice))  # Regions are the one Splice there is.
        begin = position
    if begin < len(out):
        answer.append(bytes(out[begin:]))
    return answer
