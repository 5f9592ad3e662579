"""DescribeGroups, key 15: state, protocol and members of classic groups.

A group that does not exist is "Dead" before v6, and GROUP_ID_NOT_FOUND from v6 on (KIP-1043).
"""

from ottla.coordinator.group.classic.group import GroupState
from ottla.coordinator.group.coordinator import DescribedGroup as Described
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.answer_room import AnswerRoom, weight
from ottla.handlers.call import Call
from ottla.handlers.operations import GROUP_OPERATIONS
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.sliced import Steps, distinct, each

NOT_FOUND_SINCE = 6


class DescribeGroups:
    """Answers from the group coordinator's memory."""

    def __init__(self, groups: GroupCoordinator, *, elements_max: int) -> None:
        self._groups = groups
        self._elements_max = elements_max

    def handle(self, request: DescribeGroupsRequest, call: Call) -> Steps[DescribeGroupsResponse]:
        """Return each group once, with its own error if it has one."""
        version, room = call.api_version, AnswerRoom(self._elements_max)
        groups: list[DescribedGroup] = []
        for group_id in (yield from distinct(request.groups)):
            try:
                groups.append((yield from self._describe(group_id, room)))
            except KafkaError as error:
                groups.append(_refused(group_id, error, version))
            if request.include_authorized_operations and groups[-1].error_code == ErrorCode.NONE:
                groups[-1].authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    def _describe(self, group_id: str, room: AnswerRoom) -> Steps[DescribedGroup]:
        if room.is_full:
            raise room.refusal
        found: Described = yield self._groups.describe_group(group_id)
        if not room.take((yield from _weight(found))):
            raise room.refusal
        return (yield from _described(found))


def _weight(found: Described) -> Steps[int]:
    weights = yield from each(
        found.members,
        lambda member: weight(member.metadata(found.protocol), member.assignment),
    )
    return 1 + sum(weights)


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


def _described(found: Described) -> Steps[DescribedGroup]:
    group, protocol, members = found
    told = yield from each(
        members,
        lambda member: DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol) if protocol else b"",
            member_assignment=member.assignment,
        ),
    )
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=told,
    )
