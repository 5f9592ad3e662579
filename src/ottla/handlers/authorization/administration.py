"""Guards of log directories, users and ACLs."""

from __future__ import annotations  # else each call would build those of inner functions

from ottla.cluster.configs import ResourceType as ConfigResource
from ottla.errors import ErrorCode
from ottla.handlers.authorization.guarded import Guard, Node, Serve, why_not_of_cluster
from ottla.handlers.call import Call, Response
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps, each

_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_LOG_DIRS_TELL_ERRORS_SINCE = 3
_BROKER_LOGGER, _CLIENT_METRICS = 8, 16
_OF_CLUSTER = (ConfigResource.BROKER, _BROKER_LOGGER, _CLIENT_METRICS)


# Log directories.


def describe_log_dirs(
    request: DescribeLogDirsRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for DESCRIBE on the cluster."""
    if access.may_cluster(Operation.DESCRIBE):
        return serve(request)
    tells = call.api_version >= _LOG_DIRS_TELL_ERRORS_SINCE
    return DescribeLogDirsResponse(error_code=_CLUSTER if tells else ErrorCode.NONE, results=[])


def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for ALTER on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER):
        return serve(request)
    parts: dict[str, dict[int, AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            known = parts.setdefault(topic.name, {})
            yield from each(
                topic.partitions,
                lambda index, known=known: known.setdefault(  # type: ignore[misc]
                    index,
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=_CLUSTER),
                ),
            )
    results = yield from each(
        parts.items(),
        lambda one: AlterReplicaLogDirTopicResult(
            topic_name=one[0], partitions=list(one[1].values())
        ),
    )
    return AlterReplicaLogDirsResponse(results=results)


# Users.


def describe_users(
    request: DescribeUserScramCredentialsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DESCRIBE on the cluster.

    A refusal names no users, as in Kafka. (Who asks for all and may not is never answered there.)
    """
    del call
    if access.may_cluster(Operation.DESCRIBE):
        return serve(request)
    results = yield from each(
        request.users or (),
        lambda _: DescribeUserScramCredentialsResult(
            user="", error_code=_CLUSTER, credential_infos=[]
        ),
    )
    return DescribeUserScramCredentialsResponse(error_code=_CLUSTER, results=results)


def alter_users(
    request: AlterUserScramCredentialsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for ALTER on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER):
        return serve(request)
    names: dict[str, None] = {}
    yield from each(request.deletions, lambda one: names.setdefault(one.name))
    yield from each(request.upsertions, lambda one: names.setdefault(one.name))
    why = why_not_of_cluster("AlterUserScramCredentials", Operation.ALTER)
    results = yield from each(
        names,
        lambda name: AlterUserScramCredentialsResult(
            user=name, error_code=_CLUSTER, error_message=why
        ),
    )
    return AlterUserScramCredentialsResponse(results=results)


# ACLs.


def describe_acls(
    request: DescribeAclsRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for DESCRIBE on the cluster."""
    del call
    if access.may_cluster(Operation.DESCRIBE):
        return serve(request)
    why = why_not_of_cluster("DescribeAcls", Operation.DESCRIBE)
    return DescribeAclsResponse(error_code=_CLUSTER, error_message=why, resources=[])


def create_acls(
    request: CreateAclsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for ALTER on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER):
        return serve(request)
    why = why_not_of_cluster("CreateAcls", Operation.ALTER)
    results = yield from each(
        request.creations, lambda _: AclCreationResult(error_code=_CLUSTER, error_message=why)
    )
    return CreateAclsResponse(results=results)


def delete_acls(
    request: DeleteAclsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for ALTER on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER):
        return serve(request)
    why = why_not_of_cluster("DeleteAcls", Operation.ALTER)
    results = yield from each(
        request.filters,
        lambda _: DeleteAclsFilterResult(error_code=_CLUSTER, error_message=why, matching_acls=[]),
    )
    return DeleteAclsResponse(filter_results=results)


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    del node
    return {
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
        ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_users,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_users,
        ApiKey.DESCRIBE_ACLS: describe_acls,
        ApiKey.CREATE_ACLS: create_acls,
        ApiKey.DELETE_ACLS: delete_acls,
    }
