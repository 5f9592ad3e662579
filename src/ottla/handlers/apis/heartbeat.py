"""Heartbeat, key 12: keeps a member of a classic group alive and tells it about rebalances."""

from ottla.coordinator.group.classic import events
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class Heartbeat:
    """Hands the request to the group's machine."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: HeartbeatRequest, call: Call) -> Pending[HeartbeatResponse]:
        """Answer at once. Kafka's yes while the group is loading is ours: nobody need worry."""
        del call

        def make_event(reply: object) -> events.Heartbeat:
            return events.Heartbeat(
                reply, request.member_id, request.group_instance_id, request.generation_id
            )

        return self._groups.heartbeat(request.group_id, make_event).then(_respond)


def _respond(outcome: ErrorCode | KafkaError) -> HeartbeatResponse:
    code = outcome.code if isinstance(outcome, KafkaError) else outcome
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.NONE
    return HeartbeatResponse(error_code=code)
