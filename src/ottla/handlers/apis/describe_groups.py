"""DescribeGroups, key 15: state, protocol and members of classic groups.

A group that is not there is "Dead" before v6 and GROUP_ID_NOT_FOUND from then on (KIP-1043).
"""

from ottla.coordinator.group.classic_group import GroupState
from ottla.coordinator.group.coordinator import DescribedGroup as Described
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
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

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: DescribeGroupsRequest, call: Call) -> Pending[DescribeGroupsResponse]:
        """Answer every group by itself."""
        found = gathered([self._groups.describe_group(group_id) for group_id in request.groups])

        def respond(outcomes: list[Described | KafkaError]) -> DescribeGroupsResponse:
            groups = [
                _refused(group_id, outcome, call.api_version)
                if isinstance(outcome, KafkaError)
                else _described(outcome)
                for group_id, outcome in zip(request.groups, outcomes, strict=True)
            ]
            for group in groups if request.include_authorized_operations else ():
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
            return DescribeGroupsResponse(groups=groups)

        return found.then(respond)


def _refused(group_id: str, error: KafkaError, version: int) -> DescribedGroup:
    code, state, why = error.code, "", None
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        state = GroupState.DEAD.value
        if version < NOT_FOUND_SINCE:
            code = ErrorCode.NONE
        else:
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
