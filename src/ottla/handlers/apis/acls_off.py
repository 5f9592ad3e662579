"""DescribeAcls, CreateAcls and DeleteAcls, keys 29 to 31, of a node without an authorizer."""

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
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
from ottla.sliced import Steps, each

_OFF = ErrorCode.SECURITY_DISABLED
_WHY = "No Authorizer is configured on the broker"
_WHY_NOT = "No Authorizer is configured."
"""So say those that would change ACLs."""


class DescribeNoAcls:
    """Says that there are none, and why."""

    def handle(self, request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
        """Refuse."""
        del request, call
        return DescribeAclsResponse(error_code=_OFF, error_message=_WHY, resources=[])


class CreateNoAcls:
    """Says that there can be none."""

    def handle(self, request: CreateAclsRequest, call: Call) -> Steps[CreateAclsResponse]:
        """Refuse each creation."""
        del call
        results = yield from each(
            request.creations,
            lambda _: AclCreationResult(error_code=_OFF, error_message=_WHY_NOT),
        )
        return CreateAclsResponse(results=results)


class DeleteNoAcls:
    """Says that there are none."""

    def handle(self, request: DeleteAclsRequest, call: Call) -> Steps[DeleteAclsResponse]:
        """Refuse each filter."""
        del call
        results = yield from each(
            request.filters,
            lambda _: DeleteAclsFilterResult(
                error_code=_OFF, error_message=_WHY_NOT, matching_acls=[]
            ),
        )
        return DeleteAclsResponse(filter_results=results)
