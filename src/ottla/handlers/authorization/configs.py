"""Guards of the configs of topics, groups and brokers."""

from __future__ import annotations  # else each call would build those of inner functions

from collections import Counter
from typing import Any

from ottla.cluster.configs import CLUSTER_DEFAULT, broker_number
from ottla.cluster.configs import ResourceType as ConfigResource
from ottla.errors import ErrorCode
from ottla.handlers.authorization.guarded import Guard, Node, Serve, then
from ottla.handlers.call import Call, Response
from ottla.ids import NodeId
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import alter_configs as whole
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps, each, sifted

_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_BROKER_LOGGER, _CLIENT_METRICS = 8, 16
_OF_CLUSTER = (ConfigResource.BROKER, _BROKER_LOGGER, _CLIENT_METRICS)


def _refusal_of(operation: Operation, kind: int, name: str, access: Access) -> ErrorCode | None:
    """Return the code if the configs of a resource are refused; None for an unknown type, too."""
    if kind == ConfigResource.TOPIC:
        if not access.may_topic(operation, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif kind == ConfigResource.GROUP:
        if not access.may_group(operation, name):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif kind in _OF_CLUSTER and not access.may_cluster(operation):
        return _CLUSTER
    return None


def describe_configs(
    request: DescribeConfigsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DESCRIBE_CONFIGS on each resource; of a broker, on the cluster."""
    del call
    refused: list[DescribeConfigsResult] = []

    def is_allowed(one: DescribeConfigsResource) -> bool:
        code = _refusal_of(Operation.DESCRIBE_CONFIGS, one.resource_type, one.resource_name, access)
        if code is not None:
            refused.append(
                DescribeConfigsResult(
                    error_code=code,
                    error_message=code.text,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    configs=[],
                )
            )
        return code is None

    request.resources, _ = yield from sifted(request.resources, is_allowed)

    def add(response: DescribeConfigsResponse) -> None:
        response.results += refused

    return (yield from then(serve(request), add))


def alter_configs(node_id: NodeId) -> Guard:
    """Return the guard of AlterConfigs and IncrementalAlterConfigs: ALTER_CONFIGS on each resource.

    What is named twice, and other brokers, are left to the handler, which refuses them.
    """

    def guard(
        request: whole.AlterConfigsRequest | incremental.IncrementalAlterConfigsRequest,
        call: Call,
        access: Access,
        serve: Serve,
    ) -> Steps[Response]:
        del call
        times: Counter[tuple[int, str]] = Counter()
        resources: list[Any] = request.resources
        result: type[Any] = incremental.AlterConfigsResourceResponse
        if isinstance(request, whole.AlterConfigsRequest):
            result = whole.AlterConfigsResourceResponse
        yield from each(
            resources, lambda one: times.update(((one.resource_type, one.resource_name),))
        )
        refused: list[Any] = []

        def is_allowed(one: Any) -> bool:  # noqa: ANN401 - a resource of either API
            kind, name = one.resource_type, one.resource_name
            if times[kind, name] > 1 or (
                kind in (ConfigResource.BROKER, _BROKER_LOGGER)
                and name != CLUSTER_DEFAULT
                and broker_number(name) != node_id
            ):
                return True
            code = _refusal_of(Operation.ALTER_CONFIGS, kind, name, access)
            if code is not None:
                refused.append(
                    result(
                        error_code=code,
                        error_message=None if kind == _BROKER_LOGGER else code.text,
                        resource_type=kind,
                        resource_name=name,
                    )
                )
            return code is None

        allowed, _ = yield from sifted(resources, is_allowed)
        request.resources = allowed

        def add(response: Any) -> None:  # noqa: ANN401 - of either API
            response.responses += refused

        return (yield from then(serve(request), add))

    return guard


def list_config_resources(
    request: ListConfigResourcesRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for DESCRIBE_CONFIGS on the cluster."""
    del call
    if access.may_cluster(Operation.DESCRIBE_CONFIGS):
        return serve(request)
    return ListConfigResourcesResponse(error_code=_CLUSTER, config_resources=[])


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    return {
        ApiKey.DESCRIBE_CONFIGS: describe_configs,
        ApiKey.ALTER_CONFIGS: alter_configs(node.node_id),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs(node.node_id),
        ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
    }
