"""DescribeGroups, key 15: state, protocol and members of classic groups.

A group that is not there is "Dead" before v6 and GROUP_ID_NOT_FOUND from then on (KIP-1043).
"""

from ottla.coordinator.group.classic_group import GroupState
from ottla.coordinator.group.coordinator import DescribedGroup as Described
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.answer_room import AnswerRoom, weight
from ottla.handlers.call import Call
from ottla.handlers.gathering import gathered
from ottla.handlers.operations import GROUP_OPERATIONS
from ottla.pending import Pending
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6


class DescribeGroups:
    """Answers from memory."""

    def __init__(self, groups: GroupCoordinator, *, elements_max: int) -> None:
        self._groups = groups
        self._elements_max = elements_max

    def handle(self, request: DescribeGroupsRequest, call: Call) -> Pending[DescribeGroupsResponse]:
        """Answer every group by itself, and once."""
        group_ids = list(dict.fromkeys(request.groups))
        room = AnswerRoom(self._elements_max)
        found = gathered([self._groups.describe_group(group_id) for group_id in group_ids])

        def respond(outcomes: list[Described | KafkaError]) -> DescribeGroupsResponse:
            groups = [
                _refused(group_id, outcome, call.api_version)
                if isinstance(outcome, KafkaError)
                else _described(outcome)
                if room.take(_weight(outcome))
                else _refused(group_id, room.refusal, call.api_version)
                for group_id, outcome in zip(group_ids, outcomes, strict=True)
            ]
            for group in groups if request.include_authorized_operations else ():
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
            return DescribeGroupsResponse(groups=groups)

        return found.then(respond)


def _weight(found: Described) -> int:
    return 1 + sum(
        weight(member.metadata(found.protocol), member.assignment) for member in found.members
    )


def _refused(group_id: str, error: KafkaError, version: int) -> DescribedGroup:
    code, state, why = error.code, "", None
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        state = GroupState.DEAD.value
        if version < NOT_FOUND_SINCE:
            code = ErrorCode.NONE
        else:
            why = error.why
    elif code is ErrorCode.INVALID_REQUEST and version >= NOT_FOUND_SINCE:
        why = error.why
    return DescribedGroup(
        error_code=code,
        error_message=why,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _described(found: Described) -> DescribedGroup:
    group, protocol, members = found
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if protocol else b"",
                member_assignment=member.assignment,
            )
            for member in members
        ],
    )
