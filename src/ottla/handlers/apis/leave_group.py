"""LeaveGroup, key 13: removes members from a classic group at once, before their session expires.

Before v3 a request names one member, and its error is the answer's; from v3 on it names many, each
with an error of its own.
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
"""More members leave in several steps, as if by several requests."""


class LeaveGroup:
    """Passes the leaving members to the group coordinator."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: LeaveGroupRequest, call: Call) -> Steps[LeaveGroupResponse]:
        """Answer at once; the rebalance of the other members begins after that."""
        is_many = call.api_version >= MANY_SINCE
        members = [LeavingMember(request.member_id, None)]
        if is_many:
            members = yield from each(
                request.members, lambda one: LeavingMember(one.member_id, one.group_instance_id)
            )
        answers: list[LeaveAnswer] = []
        for begin in range(0, max(len(members), 1), MEMBERS_AT_A_TIME):
            some = members[begin : begin + MEMBERS_AT_A_TIME]
            try:
                answers += yield self._groups.leave(request.group_id, some)
            except KafkaError as error:
                if not (is_many and error.code is ErrorCode.UNKNOWN_MEMBER_ID):
                    return LeaveGroupResponse(error_code=error.code)
                answers += [LeaveAnswer(member, error.code) for member in some]
            yield None
        if not is_many:
            return LeaveGroupResponse(error_code=answers[0].code)
        return LeaveGroupResponse(members=(yield from each(answers, _response)))


def _response(answer: LeaveAnswer) -> MemberResponse:
    member, code = answer
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.instance_id, error_code=code
    )
