"""ACLs: what an administrator asks and changes.

Owns requests and answers of the three APIs; ``cluster`` owns connections and retries. On asyncio.
Source: KIP-140, KIP-290.
"""

from collections.abc import Sequence

from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.security.acl import (
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
)
from ottla.security.acl_filter import ANY, AclFilter


class Acls:
    """Calls on a cluster. Every method raises KafkaError with the broker's own words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter wants, sorted."""
        request = DescribeAclsRequest(
            resource_type_filter=ANY if wanted.type is None else wanted.type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=ANY if wanted.operation is None else wanted.operation,
            permission_type=ANY if wanted.permission is None else wanted.permission,
        )

        async def attempt() -> list[Acl]:
            connection = await self._cluster.controller()
            answer = await connection.call(request, DescribeAclsResponse)
            _check(answer.error_code, answer.error_message)
            return sorted(
                Acl(
                    Resource(ResourceType(one.resource_type), one.resource_name),
                    Pattern(one.pattern_type),
                    Rule(
                        each.principal,
                        each.host,
                        Operation(each.operation),
                        Permission(each.permission_type),
                    ),
                )
                for one in answer.resources
                for each in one.acls
            )

        return await self._cluster.retrying(attempt)

    async def create(self, acls: Sequence[Acl]) -> None:
        """Create ACLs. Raises KafkaError if one is refused; the others are created."""
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=acl.resource.type,
                    resource_name=acl.resource.name,
                    resource_pattern_type=acl.pattern,
                    principal=acl.rule.principal,
                    host=acl.rule.host,
                    operation=acl.rule.operation,
                    permission_type=acl.rule.permission,
                )
                for acl in acls
            ]
        )

        async def attempt() -> None:
            connection = await self._cluster.controller()
            answer = await connection.call(request, CreateAclsResponse)
            for result in answer.results:
                _check(result.error_code, result.error_message)

        await self._cluster.retrying(attempt)

    async def delete(self, acls: Sequence[Acl]) -> None:
        """Delete exactly these ACLs. Harmless when one is not there."""
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=acl.resource.type,
                    resource_name_filter=acl.resource.name,
                    pattern_type_filter=acl.pattern,
                    principal_filter=acl.rule.principal,
                    host_filter=acl.rule.host,
                    operation=acl.rule.operation,
                    permission_type=acl.rule.permission,
                )
                for acl in acls
            ]
        )

        async def attempt() -> None:
            connection = await self._cluster.controller()
            answer = await connection.call(request, DeleteAclsResponse)
            for result in answer.filter_results:
                _check(result.error_code, result.error_message)
                for match in result.matching_acls:
                    _check(match.error_code, match.error_message)

        await self._cluster.retrying(attempt)


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(error_code(code), message or "")
