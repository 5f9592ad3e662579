"""DescribeAcls, CreateAcls and DeleteAcls, keys 29 to 31: the ACLs over the wire.

Owns how the numbers of the wire become ACLs and filters. Who may ask is asked before. Loaded only
with an authorizer; without one ``acls_off`` answers. Source: KIP-140, KIP-290.
"""

from collections.abc import Iterator

from ottla.cluster.acls import CHANGES_MAX, Acls, Outcome
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.security.acl import (
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
)
from ottla.security.acl_filter import ANY, AclFilter, PatternFilter
from ottla.security.authorizer import Authorizer
from ottla.sliced import STRIDE, Steps, each


class DescribeAcls:
    """Answers from the authorizer's memory."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handle(self, request: DescribeAclsRequest, call: Call) -> Steps[DescribeAclsResponse]:
        """Return the matching ACLs, by what they are about."""
        del call
        try:
            wanted = _filter(request)
        except KafkaError as error:
            return DescribeAclsResponse(
                error_code=error.code, error_message=error.why, resources=[]
            )
        resources: dict[tuple[Resource, Pattern], DescribeAclsResource] = {}

        def take(acl: Acl) -> None:
            (kind, name), pattern, rule = acl
            resource = resources.get((acl.resource, pattern))
            if resource is None:
                resource = resources[acl.resource, pattern] = DescribeAclsResource(
                    resource_type=kind, resource_name=name, pattern_type=pattern, acls=[]
                )
            resource.acls.append(
                AclDescription(
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
            )

        for count, acl in enumerate(self._authorizer.select(wanted), 1):
            if acl is not None:
                take(acl)
            if not count % STRIDE:
                yield None
        return DescribeAclsResponse(resources=list(resources.values()))


class CreateAcls:
    """Creates ACLs; answers when they are in force on this node."""

    def __init__(self, acls: Acls) -> None:
        self._acls = acls

    def handle(self, request: CreateAclsRequest, call: Call) -> Steps[CreateAclsResponse]:
        """Create each ACL or refuse it; one that is there already is a success."""
        del call
        if len(request.creations) > CHANGES_MAX:
            results = yield from each(
                request.creations,
                lambda _: _created(KafkaError(ErrorCode.INVALID_REQUEST, _TOO_MANY)),
            )
            return CreateAclsResponse(results=results)
        read = yield from each(request.creations, _acl)
        outcomes: list[Outcome] = yield self._acls.create(
            [one for one in read if isinstance(one, Acl)]
        )
        left = iter(outcomes)
        results = yield from each(
            read, lambda one: _created(one if isinstance(one, KafkaError) else next(left))
        )
        return CreateAclsResponse(results=results)


class DeleteAcls:
    """Deletes the ACLs that filters want; answers when they are gone on this node."""

    def __init__(self, acls: Acls, authorizer: Authorizer) -> None:
        self._acls = acls
        self._authorizer = authorizer

    def handle(self, request: DeleteAclsRequest, call: Call) -> Steps[DeleteAclsResponse]:
        """Return what each filter has deleted. If that is too much, nothing is deleted."""
        del call
        behind: Outcome = yield self._acls.catch_up()
        if behind is not None:
            results = yield from each(request.filters, lambda _: _not_deleted(behind))
            return DeleteAclsResponse(filter_results=results)
        found: list[list[Acl] | KafkaError] = []
        count = 0
        too_many = len(request.filters) > CHANGES_MAX
        for ordinal, one in enumerate(request.filters if not too_many else ()):
            if not ordinal % STRIDE:
                yield None  # What fits nothing has no steps of its own.
            try:
                wanted = _filter(one)
            except KafkaError as error:
                found.append(error.as_value())
                continue
            matching = yield from _selected(self._authorizer.select(wanted), CHANGES_MAX - count)
            count += len(matching)
            found.append(matching)
            if count > CHANGES_MAX:
                too_many = True
                break
        if too_many:
            why = KafkaError(ErrorCode.INVALID_REQUEST, _TOO_MANY)
            results = yield from each(request.filters, lambda _: _not_deleted(why))
            return DeleteAclsResponse(filter_results=results)
        doomed = [acl for one in found if isinstance(one, list) for acl in one]
        outcomes: dict[Acl, Outcome] = yield self._acls.delete(doomed)
        answers: list[DeleteAclsFilterResult] = []
        for acls in found:
            if isinstance(acls, KafkaError):
                answers.append(_not_deleted(acls))
                continue
            matches = yield from each(acls, lambda acl: _match(acl, outcomes[acl]))
            answers.append(DeleteAclsFilterResult(matching_acls=matches))
        return DeleteAclsResponse(filter_results=answers)


_TOO_MANY = f"A request may create or delete {CHANGES_MAX} ACLs at most"


def _selected(found: Iterator[Acl | None], at_most: int) -> Steps[list[Acl]]:
    """Return the ACLs that a filter wants: all, or ``at_most`` and one more.

    None in ``found`` stands for one that the filter has looked at in vain.
    """
    acls: list[Acl] = []
    for count, acl in enumerate(found, 1):
        if acl is not None:
            acls.append(acl)
            if len(acls) > at_most:
                break
        if not count % STRIDE:
            yield None
    return acls


def _created(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message="")
    return AclCreationResult(error_code=error.code, error_message=error.why)


def _not_deleted(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.why, matching_acls=[])


def _match(acl: Acl, error: KafkaError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.why,
        resource_type=acl.resource.type,
        resource_name=acl.resource.name,
        pattern_type=acl.pattern,
        principal=acl.rule.principal,
        host=acl.rule.host,
        operation=acl.rule.operation,
        permission_type=acl.rule.permission,
    )


def _acl(one: AclCreation) -> Acl | KafkaError:
    """Return the ACL that a request describes, or why there is no such."""
    try:
        return Acl(
            Resource(ResourceType(one.resource_type), one.resource_name),
            Pattern(one.resource_pattern_type),
            Rule(
                one.principal,
                one.host,
                Operation(one.operation),
                Permission(one.permission_type),
            ),
        )
    except ValueError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"an ACL cannot have this: {error}").as_value()


def _filter(one: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter that a request describes. Raises KafkaError."""
    try:
        return AclFilter(
            None if one.resource_type_filter == ANY else ResourceType(one.resource_type_filter),
            one.resource_name_filter,
            PatternFilter(one.pattern_type_filter),
            one.principal_filter,
            one.host_filter,
            None if one.operation == ANY else Operation(one.operation),
            None if one.permission_type == ANY else Permission(one.permission_type),
        )
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a filter cannot have this: {error}"
        ) from error
