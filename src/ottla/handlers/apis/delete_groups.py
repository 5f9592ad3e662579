"""DeleteGroups, key 42: deletes empty groups and their offsets (KIP-229)."""

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.handlers.call import Call
from ottla.handlers.gathering import gathered
from ottla.pending import Pending
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.sliced import STRIDE, Steps, distinct


class DeleteGroups:
    """Has the group coordinator delete groups; answers when that is durable."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: DeleteGroupsRequest, call: Call) -> Steps[DeleteGroupsResponse]:
        """Return one code per group; a group that is named twice is answered once, as in Kafka."""
        del call
        names = yield from distinct(request.groups_names)
        results: list[DeletableGroupResult] = []
        for begin in range(0, len(names), STRIDE):  # The groups of a stride share flushes.
            some = names[begin : begin + STRIDE]
            results += yield gathered([self._delete(name) for name in some])
        return DeleteGroupsResponse(results=results)

    def _delete(self, name: str) -> Pending[DeletableGroupResult]:
        return self._groups.delete_group(name).then(
            lambda _: DeletableGroupResult(group_id=name),
            lambda error: DeletableGroupResult(group_id=name, error_code=error.code),
        )
