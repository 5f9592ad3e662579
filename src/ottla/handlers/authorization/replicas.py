"""Guards of what elects leaders and moves replicas."""

from __future__ import annotations  # else each call would build those of inner functions

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis import alter_partition_reassignments, elect_leaders
from ottla.handlers.authorization.guarded import Guard, Node, Serve, why_not_of_cluster
from ottla.handlers.call import Call, Response
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps, each, each_in_steps

_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def elect(request: ElectLeadersRequest, call: Call, access: Access, serve: Serve) -> Response:
    """Ask for ALTER on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER):
        return serve(request)
    why = why_not_of_cluster("ElectLeaders", Operation.ALTER)
    return elect_leaders.refused(request.topic_partitions, KafkaError(_REFUSED, why))


def reassign(
    request: AlterPartitionReassignmentsRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for ALTER on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER):
        return serve(request)
    why = why_not_of_cluster("AlterPartitionReassignments", Operation.ALTER)
    return alter_partition_reassignments.refused(request, _REFUSED, why)


def list_reassignments(
    request: ListPartitionReassignmentsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DESCRIBE on the cluster. What was named is told without replicas, as in Kafka."""
    del call
    if access.may_cluster(Operation.DESCRIBE):
        return serve(request)

    def nothing_of(topic: ListPartitionReassignmentsTopics) -> Steps[OngoingTopicReassignment]:
        partitions = yield from each(topic.partition_indexes, _nothing_of)
        return OngoingTopicReassignment(name=topic.name, partitions=partitions)

    return ListPartitionReassignmentsResponse(
        error_code=_REFUSED,
        error_message=why_not_of_cluster("ListPartitionReassignments", Operation.DESCRIBE),
        topics=(yield from each_in_steps(request.topics or (), nothing_of)),
    )


def _nothing_of(index: int) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
    )


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    del node
    return {
        ApiKey.ELECT_LEADERS: elect,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassign,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_reassignments,
    }
