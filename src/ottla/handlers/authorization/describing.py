"""Guards of what tells about topics, brokers and coordinators."""

from __future__ import annotations  # else each call would build those of inner functions

from collections.abc import Callable, Iterable

from ottla.errors import ErrorCode
from ottla.handlers.apis.find_coordinator import (
    GROUP,
    MANY_SINCE,
    SHARE,
    SHARE_SINCE,
    TRANSACTION,
)
from ottla.handlers.apis.metadata import BY_ID_SINCE, NULL_MEANS_ALL_SINCE
from ottla.handlers.authorization.guarded import Guard, Node, Serve, then, then_in_steps
from ottla.handlers.authorization.permitted import cluster_operations, topic_operations
from ottla.handlers.call import Call, Response
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.metadata.image import MetadataImage
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps, any_in_steps, distinct, each, sifted

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def metadata(image: MetadataImage, *, auto_create: bool) -> Guard:
    """Return the guard of Metadata: DESCRIBE on each topic, CREATE to have one made."""

    def guard(
        request: MetadataRequest, call: Call, access: Access, serve: Serve
    ) -> Steps[Response]:
        asks_operations = request.include_topic_authorized_operations
        asks_of_cluster = request.include_cluster_authorized_operations
        is_all = request.topics is None or (
            call.api_version < NULL_MEANS_ALL_SINCE and not request.topics
        )
        refused: list[MetadataRequestTopic] = []
        hides_all = False
        if not is_all and not (yield from _is_malformed(request, call.api_version)):
            assert request.topics is not None
            request.topics, refused = yield from sifted(
                request.topics, lambda one: _may_describe(one, image, access)
            )
            makes = auto_create and request.allow_auto_topic_creation
            if makes and not access.may_cluster(Operation.CREATE, quiet=True):
                request.topics, more = yield from sifted(
                    request.topics, lambda one: _may_be_made(one, image, access)
                )
                refused += more
            hides_all = not request.topics and call.api_version < NULL_MEANS_ALL_SINCE
        answers = yield from each((yield from _distinct(refused)), _hidden)

        def finish(response: MetadataResponse) -> Steps[None]:
            if is_all:
                response.topics, _ = yield from sifted(
                    response.topics,
                    lambda one: access.may_topic(Operation.DESCRIBE, one.name or "", quiet=True),
                )
            elif hides_all:
                response.topics = []
            if asks_operations:
                yield from each(response.topics, lambda one: _tell_operations_of_name(one, access))
            if asks_of_cluster:
                response.cluster_authorized_operations = cluster_operations(access)
            response.topics += answers

        return (yield from then_in_steps(serve(request), finish))

    return guard


def _is_malformed(request: MetadataRequest, version: int) -> Steps[bool]:
    """Whether the handler refuses the request whatever it names."""
    return (
        yield from any_in_steps(
            request.topics or (),
            lambda one: (
                (one.topic_id != NULL_TOPIC_ID and version < BY_ID_SINCE)
                or (one.topic_id == NULL_TOPIC_ID and one.name is None)
            ),
        )
    )


def _may_describe(one: MetadataRequestTopic, image: MetadataImage, access: Access) -> bool:
    name = one.name or ""
    if one.topic_id != NULL_TOPIC_ID:
        known = image.topic_by_id(one.topic_id)
        if known is None:
            return True  # The handler does not know it either.
        name = known.name
    return access.may_topic(Operation.DESCRIBE, name)


def _may_be_made(one: MetadataRequestTopic, image: MetadataImage, access: Access) -> bool:
    if one.topic_id != NULL_TOPIC_ID or image.topic(one.name or "") is not None:
        return True
    return access.may_topic(Operation.CREATE, one.name or "")


def _distinct(refused: list[MetadataRequestTopic]) -> Steps[Iterable[MetadataRequestTopic]]:
    found: dict[tuple[TopicId, str | None], MetadataRequestTopic] = {}

    def add(one: MetadataRequestTopic) -> None:
        found[one.topic_id, one.name] = one

    yield from each(refused, add)
    return found.values()


def _hidden(one: MetadataRequestTopic) -> MetadataResponseTopic:
    by_id = one.topic_id != NULL_TOPIC_ID
    return MetadataResponseTopic(
        error_code=_REFUSED,
        name=None if by_id else one.name,
        topic_id=one.topic_id,
        partitions=[],
    )


def _tell_operations_of_name(one: MetadataResponseTopic, access: Access) -> None:
    """Tell what may be done, also with a topic that does not exist (yet), as Kafka does."""
    if one.name is not None:
        one.topic_authorized_operations = topic_operations(access, one.name)


def _tell_operations(one: DescribeTopicPartitionsResponseTopic, access: Access) -> None:
    if one.error_code != ErrorCode.INVALID_REQUEST:  # Else the whole request is refused.
        one.topic_authorized_operations = topic_operations(access, one.name or "")


def describe_topic_partitions(image: MetadataImage) -> Guard:
    """Return the guard of DescribeTopicPartitions: DESCRIBE; pages count only what is seen."""

    def guard(
        request: DescribeTopicPartitionsRequest, call: Call, access: Access, serve: Serve
    ) -> Steps[Response]:
        del call
        wants_all = not request.topics
        named = request.topics
        if wants_all:
            named = yield from each(list(image.topics), lambda name: TopicRequest(name=name))
        cursor = request.cursor
        if cursor is not None:
            begins = cursor.topic_name
            is_named = yield from any_in_steps(named, lambda one: one.name == begins)
            if cursor.partition_index < 0 or not (wants_all or is_named):
                return serve(request)  # The handler refuses it, before anybody's rights count.
        seen, refused = yield from sifted(
            named,
            lambda one: access.may_topic(Operation.DESCRIBE, one.name, quiet=wants_all),
        )
        if cursor is not None:
            begins = cursor.topic_name
            seen, _ = yield from sifted(seen, lambda one: one.name >= begins)
            refused, _ = yield from sifted(refused, lambda one: one.name >= begins)
            if not (yield from any_in_steps(seen, lambda one: one.name == begins)):
                request.cursor = None
        answers: list[DescribeTopicPartitionsResponseTopic] = []
        if not wants_all:
            names = yield from distinct(one.name for one in refused)
            answers = yield from each(names, _undescribed)
        if not seen:
            return DescribeTopicPartitionsResponse(topics=answers)
        request.topics = seen

        def finish(response: DescribeTopicPartitionsResponse) -> Steps[None]:
            yield from each(response.topics, lambda one: _tell_operations(one, access))
            response.topics += answers

        return (yield from then_in_steps(serve(request), finish))

    return guard


def _undescribed(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=_REFUSED, name=name, topic_id=NULL_TOPIC_ID, partitions=[]
    )


def describe_cluster(
    request: DescribeClusterRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Everybody may see the brokers; tell only what the client may do with the cluster."""
    del call
    asks_operations = request.include_cluster_authorized_operations

    def tell(response: DescribeClusterResponse) -> None:
        if asks_operations and response.error_code == ErrorCode.NONE:
            response.cluster_authorized_operations = cluster_operations(access)

    return (yield from then(serve(request), tell))


def find_coordinator(
    request: FindCoordinatorRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DESCRIBE on each group or transactional id."""
    code, may = _may_find(request.key_type, call.api_version, access)
    if call.api_version < MANY_SINCE:
        if may(request.key):
            return serve(request)
        return FindCoordinatorResponse(
            error_code=code, error_message=code.text, node_id=-1, host="", port=-1
        )
    request.coordinator_keys, refused = yield from sifted(request.coordinator_keys, may)
    answers = yield from each(
        (yield from distinct(refused)),
        lambda key: Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=""
        ),
    )

    def add(response: FindCoordinatorResponse) -> None:
        response.coordinators += answers

    return (yield from then(serve(request), add))


def _may_find(
    key_type: int, version: int, access: Access
) -> tuple[ErrorCode, Callable[[str], bool]]:
    if key_type == GROUP:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, lambda key: access.may_group(
            Operation.DESCRIBE, key
        )
    if key_type == TRANSACTION:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, lambda key: access.may_transaction(
            Operation.DESCRIBE, key
        )
    needs_cluster = key_type == SHARE and version >= SHARE_SINCE
    return (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        lambda _: not needs_cluster or access.may_cluster(Operation.CLUSTER_ACTION),
    )


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    return {
        ApiKey.METADATA: metadata(node.image, auto_create=node.auto_create),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions(node.image),
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        ApiKey.FIND_COORDINATOR: find_coordinator,
    }
