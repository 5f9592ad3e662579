"""Heartbeat, key 12: keeps a member of a classic group alive and tells it of rebalances."""

from ottla.coordinator.group.classic import events
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class Heartbeat:
    """Passes the heartbeat to the group coordinator."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: HeartbeatRequest, call: Call) -> Pending[HeartbeatResponse]:
        """Answer at once; NONE while the group is loading, as Kafka does: members need not act."""
        del call

        def make_event(reply: object) -> events.Heartbeat:
            return events.Heartbeat(
                reply, request.member_id, request.group_instance_id, request.generation_id
            )

        return self._groups.heartbeat(request.group_id, make_event).then(
            _respond, lambda error: _respond(error.code)
        )


def _respond(code: ErrorCode) -> HeartbeatResponse:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.NONE
    return HeartbeatResponse(error_code=code)
