"""JoinGroup, key 11: a member joins the next generation of a classic group.

The answer waits until the rebalance is over. The message table tells what each version adds.
"""

from base64 import urlsafe_b64encode

from ottla.coordinator.group.classic.events import Join, JoinAnswer
from ottla.coordinator.group.classic.group import Protocol
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.env.rng import Rng
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

REBALANCE_TIMEOUT_SINCE = 1
KNOWN_MEMBER_ID_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


class JoinGroup:
    """Passes the join to the group coordinator."""

    def __init__(self, groups: GroupCoordinator, rng: Rng, *, protocols_max: int) -> None:
        self._groups = groups
        self._protocols_max = protocols_max
        self._rng = rng

    def handle(
        self, request: JoinGroupRequest, call: Call
    ) -> JoinGroupResponse | Pending[JoinGroupResponse]:
        """Answer when the group has a new generation, or at once with an error."""
        version = call.api_version
        if len(request.protocols) > self._protocols_max:
            refused = JoinAnswer(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return _response(refused, version)
        has_rebalance_timeout = version >= REBALANCE_TIMEOUT_SINCE

        def make_event(reply: object, is_new_group: bool) -> Join:
            return Join(
                reply=reply,
                member_id=request.member_id,
                new_member_id="" if request.member_id else self._new_member_id(request, call),
                new_consumer_id="" if request.member_id else self._new_consumer_id(),
                instance_id=request.group_instance_id,
                client_id=call.client_id or "",
                client_host=f"/{call.client.host}",  # As Java prints an address.
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=(
                    request.rebalance_timeout_ms
                    if has_rebalance_timeout
                    else request.session_timeout_ms
                ),
                protocol_type=request.protocol_type,
                protocols=tuple(Protocol(one.name, one.metadata) for one in request.protocols),
                needs_known_member_id=version >= KNOWN_MEMBER_ID_SINCE,
                can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
                is_new_group=is_new_group,
            )

        return self._groups.join(request.group_id, make_event).then(
            lambda answer: _response(answer, version),
            lambda error: _response(JoinAnswer(request.member_id, error.code), version),
        )

    def _new_member_id(self, request: JoinGroupRequest, call: Call) -> str:
        raw = bytearray(self._rng.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        uuid = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        name = request.group_instance_id
        return f"{call.client_id or '' if name is None else name}-{uuid}"

    def _new_consumer_id(self) -> str:
        """Return an id in Kafka's form: 22 characters, the first one not a hyphen."""
        while True:
            text = urlsafe_b64encode(self._rng.random_bytes(16)).decode().rstrip("=")
            if not text.startswith("-"):
                return text


def _response(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    protocol = answer.protocol
    if protocol is None and version < NULL_PROTOCOL_SINCE:
        protocol = ""
    return JoinGroupResponse(
        error_code=answer.code,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ],
    )
