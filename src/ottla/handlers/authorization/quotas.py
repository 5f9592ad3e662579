"""Guards of client quotas."""

from __future__ import annotations  # else each call would build those of inner functions

from ottla.errors import ErrorCode
from ottla.handlers.authorization.guarded import Guard, Node, Serve, why_not_of_cluster
from ottla.handlers.call import Call, Response
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import alter_client_quotas as alter
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps, each

_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def describe_client_quotas(
    request: DescribeClientQuotasRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for DESCRIBE_CONFIGS on the cluster. Kafka gives no text with this refusal."""
    del call
    if access.may_cluster(Operation.DESCRIBE_CONFIGS):
        return serve(request)
    return DescribeClientQuotasResponse(error_code=_CLUSTER, entries=None)


def alter_client_quotas(
    request: alter.AlterClientQuotasRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for ALTER_CONFIGS on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER_CONFIGS):
        return serve(request)
    why = why_not_of_cluster("AlterClientQuotas", Operation.ALTER_CONFIGS)
    entries = yield from each(
        request.entries,
        lambda one: alter.ResponseEntryData(
            error_code=_CLUSTER, error_message=why, entity=one.entity
        ),
    )
    return alter.AlterClientQuotasResponse(entries=entries)


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    del node
    return {
        ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
        ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    }
