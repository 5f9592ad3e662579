"""Takes a frame to the handler of its API, and the response back into a framed answer.

Owns the table of served API versions, decoding, encoding, and the answer to an unknown request. The
answer to ApiVersions is made from this table, so all that is advertised is served. Knows handlers
only by their API key. A frame goes one of three ways: the direct way (``call.Direct``), the
ordinary way (decode, ``Handler.handle``, encode), or, when it is long, the ordinary way in steps.
Source: KIP-35, KIP-511; the live answers in docs/compatibility.md.
"""

from __future__ import annotations  # else each call would build those of inner functions

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from ottla.errors import MalformedMessage
from ottla.handlers.call import (
    NOT_DIRECT,
    Answer,
    Call,
    Chunk,
    Direct,
    DirectHandler,
    Handler,
    Keep,
    LongHandler,
    Response,
    copied,
)
from ottla.handlers.client import Client
from ottla.handlers.gate import Admit, Passage, Timed
from ottla.handlers.throttle import leave, leave_framed, throttle_position
from ottla.pending import Pending
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.fields import Versions
from ottla.protocol.header import (
    LENGTH_BYTES,
    REQUEST_HEADER_BYTES_MIN,
    decode_request_header,
    read_request_header_start,
    response_header_is_flexible,
)
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.primitives import Splices, spliced_bytes
from ottla.protocol.schema import Message, freed
from ottla.request_memory import LetGo
from ottla.sliced import Room, Slices, Steps

_LENGTH_AND_CORRELATION = struct.Struct(">ii")
LONG_FRAME_BYTES = 32 * 1024
"""A longer request is decoded, served, answered and freed in steps."""
FEW_STEPS = 4
"""A long Produce request is served at once if decoding it takes fewer steps than this, of some
hundred partitions each. Its records are then read where they were received, without a copy."""

LARGE_FRAME_BYTES = 1024 * 1024
"""A longer request waits for room for its answer before it is served. Its answer may be as long as
the request, which may name many things that do not exist, by long names."""
_MODEST = frozenset({"PRODUCE", "FETCH", "OFFSET_COMMIT", "TXN_OFFSET_COMMIT"})
"""Answers of these APIs take hardly more memory than their requests. So requests of at most
``LARGE_FRAME_BYTES`` do not wait for room: records and offsets flow although some other client does
not read its answers."""
NAMES_BYTES_MAX = 64 * 1024
"""A long Produce request with more in topic names, which its answer repeats, is served in steps."""

_UNSUPPORTED_API_VERSIONS = struct.pack(">hihhh", 35, 1, ApiKey.API_VERSIONS, 0, 4)
"""The body (v0) of the answer to ApiVersions in a version that is too new: error 35, and the range
of versions in which the client can ask again. As a live Kafka answers."""


class Route(NamedTuple):
    """One served (API, version): everything a request needs, found by one dictionary lookup."""

    handle: Callable[[Any, Call], Response]
    handle_long: Callable[[Any, Call], Response]
    decode: Callable[[memoryview, int, int], tuple[Any, int]]
    encode: Callable[[Any, bytearray, Splices], None]
    is_flexible_response: bool
    throttle_at: int | None
    """Position of the throttle time in an answer of the direct way; see ``throttle_position``."""
    name: str


class _StepCodec(NamedTuple):
    """The codecs of a route that work in steps, for long requests and answers."""

    decode: Callable[[memoryview, int, int], Steps[tuple[Any, int]]]
    encode: Callable[[Any, bytearray, Splices], Steps[None]]


class Serve(Protocol):
    """Serves one frame, as ``Router.dispatch`` does."""

    def __call__(
        self, frame: memoryview, client: Client, keep: Keep = copied
    ) -> Answer | Pending[Answer | None] | None:
        """Return as ``Router.dispatch``, and raise the same."""


class Router:
    """The table of served APIs; ``dispatch`` serves one frame."""

    def __init__(
        self,
        makers: Mapping[ApiKey, Callable[[], Handler[Any]]],
        slices: Slices,
        admit: Admit | None = None,
    ) -> None:
        """``makers``: what makes the handler of each served API, called at its first request."""
        self.admit = admit
        """Use: asked for each request; may be replaced at any time. None: every request is let in,
        and none counted."""
        self._makers = dict(makers)
        self._handlers: dict[ApiKey, Handler[Any]] = {}
        """Invariant: each key is in ``_makers``, too."""
        self._slices = slices
        self._routes: dict[tuple[int, int], Route] = {}
        self._step_codecs: dict[tuple[int, int], _StepCodec] = {}
        self._directs: dict[tuple[int, int], Direct] = {}
        """Invariant: each key is in ``_routes``, too."""
        self.known: Callable[[Client], Client] = lambda client: client
        """Use: given each client before its first request; adds what it may do."""

    def add(self, key: ApiKey, make: Callable[[], Handler[Any]]) -> None:
        """Serve one more API. For ApiVersions, whose handler needs the router."""
        self._makers[key] = make

    def served(self) -> dict[ApiKey, Versions]:
        """Return the advertised version range of every served API, by key."""
        return {key: API_TABLE[key].advertised_versions for key in sorted(self._makers)}

    def dispatch(
        self, frame: memoryview, client: Client, keep: Keep = copied
    ) -> Answer | Pending[Answer | None] | None:
        """Serve one frame, which is valid only during this call unless ``keep`` makes it last.

        Returns None for a request without an answer. Raises MalformedMessage when the frame cannot
        be decoded, or when its API or version is not served; CloseConnection when the handler
        raises it.
        """
        size = len(frame)
        passage: Passage | None = None
        if size >= REQUEST_HEADER_BYTES_MIN:
            key, version, correlation_id, client_id_bytes = read_request_header_start(frame)
            admit = self.admit
            if admit is not None:
                passage = admit(key, frame, client, client_id_bytes)
            direct = self._directs.get((key, version))
            if direct is not None and (size <= LONG_FRAME_BYTES or key == ApiKey.PRODUCE):
                position = REQUEST_HEADER_BYTES_MIN + max(client_id_bytes, 0)
                answer = direct(frame, position, correlation_id, client)
                if answer is not NOT_DIRECT:
                    if passage is None:
                        return answer
                    return _leave_direct(passage, answer, self._routes[key, version].throttle_at)
        header = decode_request_header(frame, 0, size)
        key, version, correlation_id, client_id, position = header
        route = self._routes.get((key, version))
        if route is None:
            if version not in self._served_versions(key):
                return _unserved(key, correlation_id, Call(version, client_id, client, passage))
            route = self._compile(ApiKey(key), version)
        call = Call(version, client_id, client, passage)
        if size <= LONG_FRAME_BYTES:
            request, _ = route.decode(frame, position, size)
        else:
            request = self._decode_few(route, frame, position, call)
            if request is None:
                steps = self._serve_long(route, keep(frame), position, call, correlation_id)
                return self._run(steps, route, call, frame_bytes=size)
        return self._answer(route.handle(request, call), route, call, correlation_id)

    def _decode_few(
        self, route: Route, frame: memoryview, position: int, call: Call
    ) -> Message | None:
        """Decode a long Produce request that names few partitions; None for any other request."""
        if route.name != ApiKey.PRODUCE.name:
            return None
        steps = self._step_codec(route, call).decode(frame, position, len(frame))
        try:
            for _ in range(FEW_STEPS):
                next(steps)
        except StopIteration as end:
            request: ProduceRequest = end.value[0]
            if sum(len(topic.name) for topic in request.topic_data) <= NAMES_BYTES_MAX:
                return request
            return None
        steps.close()
        return None

    def _answer(
        self, response: Response, route: Route, call: Call, correlation_id: int
    ) -> Answer | Pending[Answer | None] | None:
        """Encode what a handler returned, now or when it is ready."""
        if isinstance(response, Message):
            return _leave(call, response, correlation_id, route)
        if response is None:
            leave(call, None)
            return None
        if isinstance(response, Pending):
            return self._answer_later(response, route, call, correlation_id, is_long=False)
        return self._run(
            self._answer_in_steps([response], route, call, correlation_id), route, call
        )

    def _answer_later(
        self,
        response: Pending[Any],
        route: Route,
        call: Call,
        correlation_id: int,
        *,
        is_long: bool,
    ) -> Pending[Answer | None]:
        """Encode the value of ``response`` when it is ready: a message, or steps that return one.

        ``is_long``: encode a message in steps.
        """
        later: Pending[Answer | None] = Pending(overlaps=response.overlaps)
        later.on_cancel(response.cancel, response.hurry)
        passage = call.passage
        if passage is not None:
            passage.waits()

        def forward(done: Pending[Any]) -> None:
            if passage is not None:
                passage.goes_on()
            if done.error is not None:
                later.fail(done.error)
                return
            found = done.value
            answer: Answer | Pending[Answer | None] | None = None
            try:
                if found is None:
                    leave(call, None)
                elif isinstance(found, Message) and not is_long:
                    answer = _leave(call, found, correlation_id, route)
                else:
                    steps = self._answer_in_steps([found], route, call, correlation_id)
                    answer = self._run(steps, route, call)
            except Exception as error:  # noqa: BLE001 - travels to whoever listens
                later.fail(error)
                return
            later.follow(answer)

        response.on_done(forward)
        return later

    def _serve_long(
        self,
        route: Route,
        kept: tuple[memoryview, LetGo],
        position: int,
        call: Call,
        correlation_id: int,
    ) -> Steps[Answer | Pending[Answer | None] | None]:
        """Decode, serve and answer a long request, in steps. Raises as ``dispatch``."""
        frame, let_go = kept
        try:
            codec = self._step_codec(route, call)
            decoded = yield from codec.decode(frame, position, len(frame))
            request = [decoded[0]]
            del decoded
            response = [route.handle_long(request[0], call)]
            answer = yield from self._answer_in_steps(response, route, call, correlation_id)
            yield from freed(request)
        finally:
            let_go()
        return answer

    def _answer_in_steps(
        self, response: list[Response], route: Route, call: Call, correlation_id: int
    ) -> Steps[Answer | Pending[Answer | None] | None]:
        """Encode the one item of ``response``, in steps.

        Takes it out of the list, so that nothing else refers to it and it can be freed in steps. A
        Pending is returned as one: while it waits, this work has no place among the running.
        """
        message = response.pop()
        if not (message is None or isinstance(message, Message | Pending)):
            message = yield from message
        if isinstance(message, Pending):
            return self._answer_later(message, route, call, correlation_id, is_long=True)
        leave(call, message)
        if message is None:
            return None
        out = bytearray(9 if route.is_flexible_response else 8)
        splices: Splices = []
        yield from self._step_codec(route, call).encode(message, out, splices)
        if len(out) > LONG_FRAME_BYTES:
            answered = [message]
            del message
            yield from freed(answered)
        return _frame(out, splices, correlation_id)

    def _run(
        self,
        steps: Steps[Answer | Pending[Answer | None] | None],
        route: Route,
        call: Call,
        *,
        frame_bytes: int = 0,
    ) -> Answer | Pending[Answer | None] | None:
        client = call.client
        if call.passage is not None:
            steps = Timed(steps, call.passage)
        if frame_bytes > LARGE_FRAME_BYTES:
            room = Room.TO_BEGIN
        else:
            room = Room.NEVER if route.name in _MODEST else Room.TO_GO_ON
        return self._slices.run(
            steps,
            lambda: f"{route.name} of {client.host}:{client.port}",
            room=room,
        )

    def _step_codec(self, route: Route, call: Call) -> _StepCodec:
        key, version = ApiKey[route.name], call.api_version
        codec = self._step_codecs.get((key, version))
        if codec is None:
            api = API_TABLE[key]
            codec = _StepCodec(
                api.request.step_decoder(version), api.response.step_encoder(version)
            )
            self._step_codecs[key, version] = codec
        return codec

    def _served_versions(self, key: int) -> Versions:
        """Return the versions that are served; an empty range for an API that is not."""
        if key not in set(self._makers):
            return Versions.parse("")
        return API_TABLE[ApiKey(key)].versions

    def _handler(self, key: ApiKey) -> Handler[Any]:
        """Return the handler of a served API; it is made when it is first asked for."""
        handler = self._handlers.get(key)
        if handler is None:
            handler = self._makers[key]()
            if not _is_stand_in(handler):
                self._handlers[key] = handler
        return handler

    def _compile(self, key: ApiKey, version: int) -> Route:
        """Make and keep the route, and the direct way if any, of a served (key, version)."""
        api, handler = API_TABLE[key], self._handler(key)
        is_flexible = response_header_is_flexible(key, version)
        route = Route(
            handle=handler.handle,
            handle_long=handler.handle_long if isinstance(handler, LongHandler) else handler.handle,
            decode=api.request.decoder(version),
            encode=api.response.encoder(version),
            is_flexible_response=is_flexible,
            throttle_at=throttle_position(api.response, version, is_flexible_header=is_flexible)
            if isinstance(handler, DirectHandler)
            else None,
            name=key.name,
        )
        if _is_stand_in(handler):
            return route
        self._routes[key, version] = route
        if isinstance(handler, DirectHandler):
            direct = handler.direct(
                version, lambda message, correlation_id: _encode(message, correlation_id, route)
            )
            if direct is not None:
                self._directs[key, version] = direct
        return route


def _is_stand_in(handler: Handler[Any]) -> bool:
    """Whether it serves only until what the handler needs is there, as ``WhenReady`` does."""
    return getattr(handler, "is_stand_in", False)


Intercept = Callable[[Router], Serve]
"""Returns what serves frames in the router's place, and may pass them on to it."""


def _leave_direct(
    passage: Passage, answer: Answer | Pending[Answer | None], throttle_at: int | None
) -> Answer | Pending[Answer | None] | None:
    """Pass the answer of a direct way through the gate, now or when it is ready."""
    if isinstance(answer, Pending):
        passage.waits()

        def leave_later(done: Answer | None) -> Answer | None:
            passage.goes_on()
            return leave_framed(passage, done, throttle_at)

        return answer.then(leave_later)
    return leave_framed(passage, answer, throttle_at)


def _leave(call: Call, message: Message, correlation_id: int, route: Route) -> Answer:
    """Pass a response through the gate, and frame it."""
    passage = call.passage
    if passage is None or not passage.counts_answer:
        return _encode(message, correlation_id, route)
    leave(call, message)
    answer = _encode(message, correlation_id, route)
    passage.left()
    return answer


def _unserved(key: int, correlation_id: int, call: Call) -> Answer:
    """Answer to ApiVersions in a version that is not served; raise MalformedMessage for others."""
    if key != ApiKey.API_VERSIONS:
        raise MalformedMessage(f"API {key} version {call.api_version} is not served")
    leave(call, None)
    return [_framed(correlation_id, _UNSUPPORTED_API_VERSIONS)]


def _framed(correlation_id: int, body: bytes) -> bytes:
    return _LENGTH_AND_CORRELATION.pack(LENGTH_BYTES + len(body), correlation_id) + body


def _encode(message: Message, correlation_id: int, route: Route) -> Answer:
    """Frame a response. Regions of files are not read; they become chunks of their own."""
    out = bytearray(9 if route.is_flexible_response else 8)
    splices: Splices = []
    route.encode(message, out, splices)
    return _frame(out, splices, correlation_id)


def _frame(out: bytearray, splices: Splices, correlation_id: int) -> Answer:
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
        answer.append(cast("Chunk", splice))  # Every splice is a Region.
        begin = position
    if begin < len(out):
        answer.append(bytes(out[begin:]))
    return answer
