"""DeleteGroups, key 42: deletes empty groups and their offsets (KIP-229)."""

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.handlers.gathering import gathered
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.sliced import STRIDE, Steps, distinct


class DeleteGroups:
    """Has the groups deleted, each when it is durable."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: DeleteGroupsRequest, call: Call) -> Steps[DeleteGroupsResponse]:
        """Answer every group by itself; one named twice is answered once, as in Kafka."""
        del call
        names = yield from distinct(request.groups_names)
        results: list[DeletableGroupResult] = []
        for begin in range(0, len(names), STRIDE):  # So many wait for the disk together.
            some = names[begin : begin + STRIDE]
            outcomes = yield gathered([self._groups.delete_group(name) for name in some])
            results += map(_result, some, outcomes)
        return DeleteGroupsResponse(results=results)


def _result(name: str, outcome: KafkaError | None) -> DeletableGroupResult:
    code = ErrorCode.NONE if outcome is None else outcome.code
    return DeletableGroupResult(group_id=name, error_code=code)
