"""SyncGroup, key 14: a classic group's leader sends the assignment, each member gets its part."""

from ottla.coordinator.group.classic.events import Sync, SyncAnswer
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


class SyncGroup:
    """Passes the request to the group coordinator."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(
        self, request: SyncGroupRequest, call: Call
    ) -> SyncGroupResponse | Pending[SyncGroupResponse]:
        """Answer when the assignment is durable, or at once with an error."""
        has_protocol = request.protocol_type is not None and request.protocol_name is not None
        if call.api_version >= PROTOCOL_SINCE and not has_protocol:
            return SyncGroupResponse(
                error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b""
            )

        def make_event(reply: object) -> Sync:
            return Sync(
                reply,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                request.protocol_type,
                request.protocol_name,
                {one.member_id: one.assignment for one in request.assignments},
            )

        return self._groups.sync(request.group_id, make_event).then(
            _respond, lambda error: _respond(SyncAnswer(error.code))
        )


def _respond(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.code,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
