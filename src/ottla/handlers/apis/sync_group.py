"""SyncGroup, key 14: a classic group's leader hands in the assignment, members get theirs."""

from ottla.coordinator.group.classic.events import Sync, SyncAnswer
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


class SyncGroup:
    """Hands the request to the group's machine."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(
        self, request: SyncGroupRequest, call: Call
    ) -> SyncGroupResponse | Pending[SyncGroupResponse]:
        """Answer once the assignment is durable, or at once with why not."""
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

        def respond(answer: SyncAnswer | KafkaError) -> SyncGroupResponse:
            if isinstance(answer, KafkaError):
                answer = SyncAnswer(answer.code)
            return SyncGroupResponse(
                error_code=answer.code,
                protocol_type=answer.protocol_type,
                protocol_name=answer.protocol,
                assignment=answer.assignment,
            )

        return self._groups.sync(request.group_id, make_event).then(respond)
