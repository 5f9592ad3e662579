"""Guards of committed offsets."""

from __future__ import annotations  # else each call would build those of inner functions

from ottla.errors import ErrorCode
from ottla.handlers.apis.offset_commit.direct import IDS_SINCE
from ottla.handlers.apis.offset_fetch import MANY_SINCE, TOP_LEVEL_ERROR_SINCE
from ottla.handlers.authorization.guarded import Guard, Node, Serve, then, then_in_steps
from ottla.handlers.call import Call, Response
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.metadata.image import MetadataImage
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps, each, each_in_steps, sifted

_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _may(
    operation: Operation,
    name: str,
    topic_id: TopicId,
    image: MetadataImage,
    access: Access,
) -> bool:
    """Ask about a topic that is named, or has an id; leave an unknown id to the handler."""
    if topic_id != NULL_TOPIC_ID:
        known = image.topic_by_id(topic_id)
        if known is None:
            return True
        name = known.name
    return access.may_topic(operation, name)


def offset_commit(image: MetadataImage) -> Guard:
    """Return the guard of OffsetCommit: READ on the group and on each topic."""

    def guard(
        request: OffsetCommitRequest, call: Call, access: Access, serve: Serve
    ) -> Steps[Response]:
        if not access.may_group(Operation.READ, request.group_id):
            topics = yield from each_in_steps(request.topics, lambda one: _committed(one, _GROUP))
            return OffsetCommitResponse(topics=topics)
        by_id = call.api_version >= IDS_SINCE

        def is_allowed(one: OffsetCommitRequestTopic) -> bool:
            if by_id and one.topic_id == NULL_TOPIC_ID:
                return True  # No topic has this id: the handler refuses it.
            return _may(Operation.READ, one.name, one.topic_id, image, access)

        request.topics, refused = yield from sifted(request.topics, is_allowed)
        answers = yield from each_in_steps(refused, lambda one: _committed(one, _TOPIC))
        if answers and not request.topics:
            return OffsetCommitResponse(topics=answers)

        def add(response: OffsetCommitResponse) -> None:
            response.topics += answers

        return (yield from then(serve(request), add))

    return guard


def _committed(
    topic: OffsetCommitRequestTopic, code: ErrorCode
) -> Steps[OffsetCommitResponseTopic]:
    parts = yield from each(
        topic.partitions,
        lambda part: OffsetCommitResponsePartition(
            partition_index=part.partition_index, error_code=code
        ),
    )
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts)


def txn_offset_commit(
    request: TxnOffsetCommitRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for WRITE on the transactional id, READ on the group and on each topic."""
    del call
    code = ErrorCode.NONE
    if not access.may_transaction(Operation.WRITE, request.transactional_id):
        code = _TRANSACTION
    elif not access.may_group(Operation.READ, request.group_id):
        code = _GROUP
    if code is not ErrorCode.NONE:
        topics = yield from each_in_steps(request.topics, lambda one: _committed_in(one, code))
        return TxnOffsetCommitResponse(topics=topics)
    request.topics, refused = yield from sifted(
        request.topics, lambda one: access.may_topic(Operation.READ, one.name)
    )
    answers = yield from each_in_steps(refused, lambda one: _committed_in(one, _TOPIC))
    if answers and not request.topics:
        return TxnOffsetCommitResponse(topics=answers)

    def add(response: TxnOffsetCommitResponse) -> None:
        response.topics += answers

    return (yield from then(serve(request), add))


def _committed_in(
    topic: TxnOffsetCommitRequestTopic, code: ErrorCode
) -> Steps[TxnOffsetCommitResponseTopic]:
    parts = yield from each(
        topic.partitions,
        lambda part: TxnOffsetCommitResponsePartition(
            partition_index=part.partition_index, error_code=code
        ),
    )
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts)


def offset_delete(
    request: OffsetDeleteRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for DELETE on the group and READ on each topic."""
    del call
    if not access.may_group(Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=_GROUP, topics=[])
    request.topics, refused = yield from sifted(
        request.topics, lambda one: access.may_topic(Operation.READ, one.name)
    )
    answers = yield from each_in_steps(refused, _undeleted)

    def add(response: OffsetDeleteResponse) -> None:
        if response.error_code == ErrorCode.NONE:
            response.topics += answers

    return (yield from then(serve(request), add))


def _undeleted(topic: OffsetDeleteRequestTopic) -> Steps[OffsetDeleteResponseTopic]:
    parts = yield from each(
        topic.partitions,
        lambda part: OffsetDeleteResponsePartition(
            partition_index=part.partition_index, error_code=_TOPIC
        ),
    )
    return OffsetDeleteResponseTopic(name=topic.name, partitions=parts)


def offset_fetch(image: MetadataImage) -> Guard:
    """Return the guard of OffsetFetch: DESCRIBE on each group and topic."""

    def guard(
        request: OffsetFetchRequest, call: Call, access: Access, serve: Serve
    ) -> Steps[Response]:
        if call.api_version < MANY_SINCE:
            return (yield from _fetch_of_one(request, call, access, serve))
        return (yield from _fetch_of_many(request, image, access, serve))

    return guard


def _fetch_of_one(
    request: OffsetFetchRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Serve the versions that name one group."""
    if not access.may_group(Operation.DESCRIBE, request.group_id):
        if call.api_version >= TOP_LEVEL_ERROR_SINCE:
            return OffsetFetchResponse(error_code=_GROUP)
        topics = yield from each_in_steps(request.topics or (), lambda one: _missing(one, _GROUP))
        return OffsetFetchResponse(topics=topics)
    answers: list[OffsetFetchResponseTopic] = []
    names_topics = request.topics is not None
    if request.topics is not None:
        request.topics, refused = yield from sifted(
            request.topics, lambda one: access.may_topic(Operation.DESCRIBE, one.name)
        )
        answers = yield from each_in_steps(refused, lambda one: _missing(one, _TOPIC))

    def finish(response: OffsetFetchResponse) -> Steps[None]:
        if not names_topics:
            response.topics, _ = yield from sifted(
                response.topics,
                lambda one: access.may_topic(Operation.DESCRIBE, one.name, quiet=True),
            )
        if response.error_code == ErrorCode.NONE:
            response.topics += answers

    return (yield from then_in_steps(serve(request), finish))


def _missing(topic: OffsetFetchRequestTopic, code: ErrorCode) -> Steps[OffsetFetchResponseTopic]:
    parts = yield from each(
        topic.partition_indexes,
        lambda index: OffsetFetchResponsePartition(
            partition_index=index, committed_offset=-1, metadata="", error_code=code
        ),
    )
    return OffsetFetchResponseTopic(name=topic.name, partitions=parts)


def _fetch_of_many(
    request: OffsetFetchRequest, image: MetadataImage, access: Access, serve: Serve
) -> Steps[Response]:
    """Serve the versions that name several groups."""
    wanted, refused = yield from sifted(
        request.groups, lambda one: access.may_group(Operation.DESCRIBE, one.group_id)
    )
    answers = yield from each(
        {one.group_id: None for one in refused},
        lambda name: OffsetFetchResponseGroup(group_id=name, topics=[], error_code=_GROUP),
    )
    whole: set[str] = set()
    hidden: dict[str, list[OffsetFetchResponseTopics]] = {}
    for group in wanted:
        if group.topics is None:
            whole.add(group.group_id)
        else:
            group.topics = yield from _sift_topics(group, image, access, hidden)
        yield None
    request.groups = wanted

    def finish(response: OffsetFetchResponse) -> Steps[None]:
        for group in response.groups:
            if group.group_id in whole:
                group.topics, _ = yield from sifted(
                    group.topics, lambda one: _is_seen(one, image, access)
                )
            if group.error_code == ErrorCode.NONE:
                group.topics += hidden.pop(group.group_id, [])
            yield None
        response.groups += answers

    return (yield from then_in_steps(serve(request), finish))


def _sift_topics(
    group: OffsetFetchRequestGroup,
    image: MetadataImage,
    access: Access,
    hidden: dict[str, list[OffsetFetchResponseTopics]],
) -> Steps[list[OffsetFetchRequestTopics]]:
    """Return the topics of a group that may be seen; put answers for the others in ``hidden``."""
    seen, refused = yield from sifted(
        group.topics or (),
        lambda one: _may(Operation.DESCRIBE, one.name, one.topic_id, image, access),
    )
    if refused:
        answers = yield from each_in_steps(refused, _hidden)
        hidden.setdefault(group.group_id, []).extend(answers)
    return seen


def _hidden(topic: OffsetFetchRequestTopics) -> Steps[OffsetFetchResponseTopics]:
    parts = yield from each(
        topic.partition_indexes,
        lambda index: OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, metadata="", error_code=_TOPIC
        ),
    )
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=parts)


def _is_seen(topic: OffsetFetchResponseTopics, image: MetadataImage, access: Access) -> bool:
    name = topic.name
    if topic.topic_id != NULL_TOPIC_ID:
        known = image.topic_by_id(topic.topic_id)
        name = "" if known is None else known.name
    return access.may_topic(Operation.DESCRIBE, name, quiet=True)


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    return {
        ApiKey.OFFSET_COMMIT: offset_commit(node.image),
        ApiKey.OFFSET_FETCH: offset_fetch(node.image),
        ApiKey.OFFSET_DELETE: offset_delete,
        ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    }
