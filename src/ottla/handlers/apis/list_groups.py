"""ListGroups, key 16: the groups that this node coordinates. v4 filters by state, v5 by type.

Who may describe the cluster sees all groups, others those that they may describe: others' groups do
not count, so that nobody's list is refused because of them.
"""

from itertools import compress

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import KafkaError
from ottla.handlers.answer_room import AnswerRoom, weight
from ottla.handlers.call import Call
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.sliced import Steps, each


class ListGroups:
    """Answers from the group coordinator's memory."""

    def __init__(self, groups: GroupCoordinator, *, elements_max: int) -> None:
        self._groups = groups
        self._elements_max = elements_max

    def handle(self, request: ListGroupsRequest, call: Call) -> Steps[ListGroupsResponse]:
        """Return all groups, or an error while some are still loading or when they are too many.

        A part of them would look like all. A client can filter by state or type to get fewer.
        """
        try:
            found = self._groups.list_groups(request.states_filter, request.types_filter)
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code, groups=[])
        access = call.client.access
        if access is not None and not access.may_list_all_groups():
            may_list = access.may_list_group
            seen = yield from each(found, lambda group: may_list(group.group_id))
            found = list(compress(found, seen))
        room = AnswerRoom(self._elements_max)
        weights = yield from each(found, lambda group: weight(group.group_id, group.protocol_type))
        if not room.take(sum(weights), first_is_free=False):
            return ListGroupsResponse(error_code=room.refusal.code, groups=[])
        groups = yield from each(
            found,
            lambda group: ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            ),
        )
        return ListGroupsResponse(groups=groups)
