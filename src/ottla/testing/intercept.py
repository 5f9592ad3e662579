"""Stands between the connections and the router: notes requests, and lets faults strike them.

Owns how a struck request is delayed, refused, or left without an answer. Which one is struck is
``rules``' decision, the words of a refusal are ``refusal``'s. A request that no rule concerns goes
to the router as it came. On the loop's thread.
"""

from collections.abc import Callable

from ottla.env.clock import Clock
from ottla.errors import CloseConnection, MalformedMessage
from ottla.handlers.call import Answer, Keep, copied
from ottla.handlers.client import Client
from ottla.handlers.router import Router
from ottla.pending import Pending
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.header import (
    REQUEST_HEADER_BYTES_MIN,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    read_request_header_start,
)
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.messages.produce import ACKS_NONE, ProduceRequest
from ottla.protocol.primitives import RecordBytes
from ottla.protocol.schema import Message
from ottla.testing.altering import LENGTH_BYTES, corrupted, framed, throttled
from ottla.testing.refusal import (
    NameOf,
    groups_of,
    places_of,
    refuse,
    spoil,
    transactional_ids_of,
)
from ottla.testing.requests import LastRequests
from ottla.testing.rules import Action, Facts, Rule, Rules
from ottla.testing.takeover import take_over

FETCH_SESSION_ID_NOT_FOUND = 70
READS = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_CLUSTER,
    }
)
"""APIs that change nothing: they are served, and the code is put into the true answer."""
UPPERMOST = frozenset({ApiKey.OFFSET_FETCH})
"""Those of them that tell errors of a coordinator by group, not by partition."""

Result = Answer | Pending[Answer | None] | None


class Intercepted:
    """A Serve in the place of the router's."""

    def __init__(
        self, router: Router, rules: Rules, requests: LastRequests, clock: Clock, own_id: str
    ) -> None:
        """``clock``: by which delays go. ``own_id``: the client whose requests nothing strikes."""
        self._router = router
        self._rules = rules
        self._requests = requests
        self._clock = clock
        self._own_id = own_id
        self.name_of: NameOf = lambda _: None
        """Use: tells the names of topics by id. Set when the broker has started."""
        self.restart: Callable[[Rule], None] = lambda _: None
        """Use: restarts the broker soon. Set when the broker has started."""

    def __call__(self, frame: memoryview, client: Client, keep: Keep = copied) -> Result:
        """Serve a frame as ``Router.dispatch`` does, unless a rule strikes it."""
        size = len(frame)
        if size < REQUEST_HEADER_BYTES_MIN:
            return self._router.dispatch(frame, client, keep)
        key, version, _, id_bytes = read_request_header_start(frame)
        name = bytes(frame[REQUEST_HEADER_BYTES_MIN:][: max(id_bytes, 0)]).decode(errors="replace")
        self._requests.note(key, version, name, client, size)
        if not self._rules or name == self._own_id or not self._rules.concern(key):
            return self._router.dispatch(frame, client, keep)
        return self._judge(frame, client, keep)

    def _judge(self, frame: memoryview, client: Client, keep: Keep) -> Result:
        header = decode_request_header(frame, 0, len(frame))
        if (
            header.api_key not in API_TABLE
            or header.api_version not in API_TABLE[ApiKey(header.api_key)].versions
        ):
            return self._router.dispatch(frame, client, keep)
        table = API_TABLE[ApiKey(header.api_key)].request
        copy = memoryview(bytes(frame))  # A struck request may be served later.
        request, _ = table.decoder(header.api_version)(copy, header.position, len(copy))
        version = header.api_version
        places = places_of(request, version, self.name_of)
        if (
            header.api_key == ApiKey.FETCH
            and not places
            and self._rules.look_for_places(header.api_key)
        ):
            # It reads what earlier requests of its session named: have the client name it again.
            return framed(
                header, refuse(request, _answer_of(header), version, FETCH_SESSION_ID_NOT_FOUND)
            )
        facts = Facts(
            header.api_key,
            header.client_id or "",
            groups_of(request),
            places,
            transactional_ids_of(request),
        )
        struck = self._rules.strike(facts)
        corrupts = self._rules.have_corrupting(facts)
        if not struck and not corrupts:
            return self._router.dispatch(frame, client, keep)
        seconds = sum(rule.seconds for rule in struck if rule.action is Action.DELAY)
        others = [rule for rule in struck if rule.action is not Action.DELAY]

        def serve() -> Result:
            if not others:
                return self._router.dispatch(copy, client, copied)
            if others[0].action is Action.FENCE:
                return take_over(
                    min(facts.transactional_ids),
                    lambda asked: self._router.dispatch(asked, client, copied),
                    lambda: self._router.dispatch(copy, client, copied),
                    self._clock,
                )
            if others[0].action is Action.THROTTLE:
                return self._throttled(others[0], copy, client, header)
            return self._spoilt(others[0], copy, client, header, request)

        result = self._later(seconds, serve) if seconds else serve()
        return self._corrupted(result, facts, header) if corrupts else result

    def _spoilt(
        self,
        rule: Rule,
        frame: memoryview,
        client: Client,
        header: RequestHeader,
        request: Message,
    ) -> Result:
        """Refuse a request or drop its connection, before its work or after."""

        def dropped(_: Answer | None) -> Answer | None:
            raise CloseConnection(f"a fault drops {ApiKey(header.api_key).name}")

        def refused(_: Answer | None) -> Answer | None:
            if isinstance(request, ProduceRequest) and request.acks == ACKS_NONE:
                return None
            answer = refuse(request, _answer_of(header), header.api_version, rule.code)
            return framed(header, answer)

        def changed(answer: Answer | None) -> Answer | None:
            return None if answer is None else _changed(answer, header, rule.code)

        if rule.action is Action.RESTART:
            self.restart(rule)
            if not rule.kill:
                return self._router.dispatch(frame, client, copied)
        if rule.action in (Action.DROP, Action.RESTART):
            end: Callable[[Answer | None], Answer | None] = dropped
        else:
            end = changed if header.api_key in READS else refused
        if not rule.after and end is not changed:
            return end(None)
        return _behind(self._router.dispatch(frame, client, copied), end)

    def _throttled(
        self, rule: Rule, frame: memoryview, client: Client, header: RequestHeader
    ) -> Result:
        """Serve a request, and have its client wait."""

        def told(answer: Answer | None) -> Answer | None:
            if client.line is not None:
                client.line.mute(rule.seconds)
            return None if answer is None else throttled(answer, header, rule.seconds)

        return _behind(self._router.dispatch(frame, client, copied), told)

    def _corrupted(self, result: Result, facts: Facts, header: RequestHeader) -> Result:
        """Damage the records of an answer, if it has any and a rule strikes it."""

        def damaged(answer: Answer | None) -> Answer | None:
            found = None if answer is None else corrupted(answer, header)
            return found if found and self._rules.strike(facts, records=True) else answer

        return _behind(result, damaged)

    def _later(self, seconds: float, serve: Callable[[], Result]) -> Pending[Answer | None]:
        """Serve a request after a while; nothing of its connection is served before."""
        later: Pending[Answer | None] = Pending()

        def go() -> None:
            try:
                result = serve()
            except (CloseConnection, MalformedMessage) as error:
                later.fail(error)
                return
            later.follow(result)

        timer = self._clock.call_later(seconds, go)
        later.on_cancel(timer.cancel)
        return later


def _behind(result: Result, step: Callable[[Answer | None], Answer | None]) -> Result:
    return result.then(step) if isinstance(result, Pending) else step(result)


def _answer_of(header: RequestHeader) -> type[Message]:
    return API_TABLE[ApiKey(header.api_key)].response


def _changed(answer: Answer, header: RequestHeader, code: int) -> Answer:
    """Return the true answer with ``code`` in it. Its records, if any, are not read."""
    data = memoryview(b"".join(each for each in answer if isinstance(each, RecordBytes)))
    key, version = header.api_key, header.api_version
    _, position = decode_response_header(
        data, LENGTH_BYTES, len(data), api_key=key, api_version=version
    )
    message, _ = _answer_of(header).decoder(version)(data, position, len(data))
    if isinstance(message, MetadataResponse):
        for topic in message.topics:
            topic.error_code = code
    else:
        spoil(message, version, code, deep=key not in UPPERMOST)
    return framed(header, message)
