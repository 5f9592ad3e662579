"""Guards of groups and their members."""

from __future__ import annotations  # else each call would build those of inner functions

from ottla.errors import ErrorCode
from ottla.handlers.authorization.guarded import Guard, Node, Serve, then, then_in_steps
from ottla.handlers.authorization.permitted import group_operations
from ottla.handlers.call import Call, Response
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import consumer_group_describe as consumer
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps, each, sifted

_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NULL_PROTOCOL_SINCE = 7
_SYNC_NAMES_PROTOCOL_SINCE = 5
_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def join_group(request: JoinGroupRequest, call: Call, access: Access, serve: Serve) -> Response:
    """Ask for READ on the group."""
    if access.may_group(Operation.READ, request.group_id):
        return serve(request)
    return JoinGroupResponse(
        error_code=_REFUSED,
        protocol_name=None if call.api_version >= _NULL_PROTOCOL_SINCE else "",
        leader="",
        member_id="",
        members=[],
    )


def sync_group(request: SyncGroupRequest, call: Call, access: Access, serve: Serve) -> Response:
    """Ask for READ on the group, unless the request is wrong anyway."""
    is_wrong = call.api_version >= _SYNC_NAMES_PROTOCOL_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    )
    if is_wrong or access.may_group(Operation.READ, request.group_id):
        return serve(request)
    return SyncGroupResponse(error_code=_REFUSED, assignment=b"")


def heartbeat(request: HeartbeatRequest, call: Call, access: Access, serve: Serve) -> Response:
    """Ask for READ on the group."""
    del call
    if access.may_group(Operation.READ, request.group_id):
        return serve(request)
    return HeartbeatResponse(error_code=_REFUSED)


def leave_group(request: LeaveGroupRequest, call: Call, access: Access, serve: Serve) -> Response:
    """Ask for READ on the group."""
    del call
    if access.may_group(Operation.READ, request.group_id):
        return serve(request)
    return LeaveGroupResponse(error_code=_REFUSED)


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for READ on the group, and DESCRIBE on every topic that the member names.

    What an expression matches is asked by the coordinator.
    """
    del call
    code = ErrorCode.NONE
    if not access.may_group(Operation.READ, request.group_id):
        code = _REFUSED
    else:
        _, refused = yield from sifted(
            request.subscribed_topic_names or (),
            lambda name: access.may_topic(Operation.DESCRIBE, name),
        )
        if refused:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if code is ErrorCode.NONE:
        return serve(request)
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)


def consumer_group_describe(
    request: consumer.ConsumerGroupDescribeRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DESCRIBE on each group, and on every topic that its members have."""
    del call
    request.group_ids, refused = yield from sifted(
        request.group_ids, lambda name: access.may_group(Operation.DESCRIBE, name)
    )
    asks_operations = request.include_authorized_operations
    answers = yield from each(
        dict.fromkeys(refused), lambda name: _undescribed(name, _REFUSED, None)
    )

    def finish(response: consumer.ConsumerGroupDescribeResponse) -> Steps[None]:
        groups: list[consumer.DescribedGroup] = []
        for found in response.groups:
            group = found
            if group.error_code == ErrorCode.NONE:
                if not (yield from _may_see_topics(group.members, access)):
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    group = _undescribed(group.group_id, code, _HIDDEN_TOPICS)
                elif asks_operations:
                    group.authorized_operations = group_operations(access, group.group_id)
            groups.append(group)
            yield None
        response.groups = groups + answers

    return (yield from then_in_steps(serve(request), finish))


def _may_see_topics(members: list[consumer.Member], access: Access) -> Steps[bool]:
    for member in members:
        for assignment in (member.assignment, member.target_assignment):
            _, hidden = yield from sifted(
                assignment.topic_partitions,
                lambda one: access.may_topic(Operation.DESCRIBE, one.topic_name, quiet=True),
            )
            if hidden:
                return False
    return True


def _undescribed(group_id: str, code: ErrorCode, message: str | None) -> consumer.DescribedGroup:
    return consumer.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def describe_groups(
    request: DescribeGroupsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DESCRIBE on each group."""
    del call
    request.groups, refused = yield from sifted(
        request.groups, lambda name: access.may_group(Operation.DESCRIBE, name)
    )
    asks_operations = request.include_authorized_operations
    answers = yield from each(
        refused,
        lambda name: DescribedGroup(
            error_code=_REFUSED,
            group_id=name,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        ),
    )

    def tell(group: DescribedGroup) -> None:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = group_operations(access, group.group_id)

    def finish(response: DescribeGroupsResponse) -> Steps[None]:
        if asks_operations:
            yield from each(response.groups, tell)
        response.groups += answers

    return (yield from then_in_steps(serve(request), finish))


def delete_groups(
    request: DeleteGroupsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DELETE on each group."""
    del call
    request.groups_names, refused = yield from sifted(
        request.groups_names, lambda name: access.may_group(Operation.DELETE, name)
    )
    answers = yield from each(
        dict.fromkeys(refused),
        lambda name: DeletableGroupResult(group_id=name, error_code=_REFUSED),
    )

    def add(response: DeleteGroupsResponse) -> None:
        response.results += answers

    return (yield from then(serve(request), add))


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    del node
    return {
        ApiKey.JOIN_GROUP: join_group,
        ApiKey.SYNC_GROUP: sync_group,
        ApiKey.HEARTBEAT: heartbeat,
        ApiKey.LEAVE_GROUP: leave_group,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
        ApiKey.DESCRIBE_GROUPS: describe_groups,
        ApiKey.DELETE_GROUPS: delete_groups,
    }
