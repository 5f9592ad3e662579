"""Guards of what concerns the cluster as a whole: its metadata, its nodes, its features."""

from __future__ import annotations  # else each call would build those of inner functions

from ottla.errors import ErrorCode
from ottla.handlers.authorization.guarded import Guard, Node, Serve, why_not_of_cluster
from ottla.handlers.call import Call, Response
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from ottla.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.security.access import Access
from ottla.security.acl import Operation

_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def describe_quorum(
    request: DescribeQuorumRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for DESCRIBE on the cluster."""
    del call
    if access.may_cluster(Operation.DESCRIBE):
        return serve(request)
    return DescribeQuorumResponse(error_code=_REFUSED, error_message=_REFUSED.text, topics=[])


def unregister(
    request: UnregisterBrokerRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for ALTER on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER):
        return serve(request)
    why = why_not_of_cluster("UnregisterBroker", Operation.ALTER)
    return UnregisterBrokerResponse(error_code=_REFUSED, error_message=why)


def update_features(
    request: UpdateFeaturesRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for ALTER on the cluster."""
    del call
    if access.may_cluster(Operation.ALTER):
        return serve(request)
    why = why_not_of_cluster("UpdateFeatures", Operation.ALTER)
    return UpdateFeaturesResponse(error_code=_REFUSED, error_message=why)


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    del node
    return {
        ApiKey.DESCRIBE_QUORUM: describe_quorum,
        ApiKey.UNREGISTER_BROKER: unregister,
        ApiKey.UPDATE_FEATURES: update_features,
    }
