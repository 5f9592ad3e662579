"""What a client may do, as bits of answers (KIP-430). A client that did not ask gets none."""

from ottla.security.access import CLUSTER, Access
from ottla.security.acl import OPERATIONS_OF, Operation, ResourceType


def topic_operations(access: Access, name: str) -> int:
    """Return what may be done with a topic."""
    return access.operations(ResourceType.TOPIC, name, OPERATIONS_OF[ResourceType.TOPIC])


def group_operations(access: Access, name: str) -> int:
    """Return what may be done with a group."""
    return access.operations(ResourceType.GROUP, name, OPERATIONS_OF[ResourceType.GROUP])


def cluster_operations(access: Access) -> int:
    """Return what may be done with the cluster; 0 for who may not describe it."""
    if not access.may_cluster(Operation.DESCRIBE):
        return 0
    return access.operations(*CLUSTER, OPERATIONS_OF[ResourceType.CLUSTER])
