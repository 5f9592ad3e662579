"""DeleteGroups, key 42: deletes empty groups and their offsets (KIP-229)."""

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.handlers.gathering import gathered
from ottla.pending import Pending
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


class DeleteGroups:
    """Has the groups deleted, each when it is durable."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def handle(self, request: DeleteGroupsRequest, call: Call) -> Pending[DeleteGroupsResponse]:
        """Answer every group by itself; one named twice is answered once, as in Kafka."""
        del call
        names = list(dict.fromkeys(request.groups_names))
        deleted = gathered([self._groups.delete_group(name) for name in names])

        def respond(outcomes: list[KafkaError | None]) -> DeleteGroupsResponse:
            return DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(
                        group_id=name,
                        error_code=ErrorCode.NONE if outcome is None else outcome.code,
                    )
                    for name, outcome in zip(names, outcomes, strict=True)
                ]
            )

        return deleted.then(respond)
