"""LeaveGroup, key 13: takes members out of a classic group without waiting for their timeout.

Before v3 one member, whose error is the answer's; from v3 on many, each with its own.
"""

from ottla.coordinator.group.classic.events import LeaveAnswer, LeavingMember
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from ottla.sliced import Steps, each

MANY_SINCE = 3
MEMBERS_AT_A_TIME = 500
"""More of them leave as if by several requests."""


class LeaveGroup:
    """Hands the request to the group's machine."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: LeaveGroupRequest, call: Call) -> Steps[LeaveGroupResponse]:
        """Answer at once; the others' rebalance begins behind it."""
        is_many = call.api_version >= MANY_SINCE
        members = [LeavingMember(request.member_id, None)]
        if is_many:
            members = yield from each(
                request.members, lambda one: LeavingMember(one.member_id, one.group_instance_id)
            )
        answers: list[LeaveAnswer] = []
        for begin in range(0, max(len(members), 1), MEMBERS_AT_A_TIME):
            some = members[begin : begin + MEMBERS_AT_A_TIME]
            outcome: tuple[LeaveAnswer, ...] | KafkaError = yield self._groups.leave(
                request.group_id, some
            )
            if isinstance(outcome, KafkaError):
                if not (is_many and outcome.code is ErrorCode.UNKNOWN_MEMBER_ID):
                    return LeaveGroupResponse(error_code=outcome.code)
                outcome = tuple(LeaveAnswer(member, outcome.code) for member in some)
            answers += outcome
            yield None
        if not is_many:
            return LeaveGroupResponse(error_code=answers[0].code)
        return LeaveGroupResponse(members=(yield from each(answers, _response)))


def _response(answer: LeaveAnswer) -> MemberResponse:
    member, code = answer
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.instance_id, error_code=code
    )
