"""Guards of what makes, deletes and grows topics."""

from __future__ import annotations  # else each call would build those of inner functions

from collections import Counter

from ottla.cluster.topics import NOT_TOPICS
from ottla.errors import ErrorCode
from ottla.handlers.apis.create_topics import CONFIGS_SINCE
from ottla.handlers.apis.delete_topics import BY_STATE_SINCE
from ottla.handlers.authorization.guarded import Guard, Node, Serve, then, then_in_steps
from ottla.handlers.call import Call, Response
from ottla.ids import NULL_TOPIC_ID
from ottla.metadata.image import MetadataImage
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps, each, sifted

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def create_topics(
    request: CreateTopicsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for CREATE on the cluster, else on each topic; show configs with DESCRIBE_CONFIGS.

    Names that are there twice, or reserved, are left to the handler, which refuses them.
    """
    answers: list[CreatableTopicResult] = []
    if not access.may_cluster(Operation.CREATE, quiet=True):
        times: Counter[str] = Counter()
        yield from each(request.topics, lambda one: times.update((one.name,)))
        request.topics, refused = yield from sifted(
            request.topics,
            lambda one: (
                times[one.name] > 1
                or one.name in NOT_TOPICS
                or access.may_topic(Operation.CREATE, one.name)
            ),
        )
        answers = yield from each(
            refused,
            lambda one: CreatableTopicResult(
                name=one.name, error_code=_REFUSED, error_message="Authorization failed."
            ),
        )

    def hide(one: CreatableTopicResult) -> None:
        if one.error_code == ErrorCode.NONE and not access.may_topic(
            Operation.DESCRIBE_CONFIGS, one.name
        ):
            one.topic_config_error_code = _REFUSED
            one.num_partitions = one.replication_factor = -1
            one.configs = []

    def finish(response: CreateTopicsResponse) -> Steps[None]:
        if call.api_version >= CONFIGS_SINCE:
            yield from each(response.topics, hide)
        response.topics += answers

    return (yield from then_in_steps(serve(request), finish))


def delete_topics(image: MetadataImage, *, may_delete: bool) -> Guard:
    """Return the guard of DeleteTopics: DELETE on the cluster, else on each topic.

    ``may_delete``: whether topics can be deleted at all; if not, the handler refuses all.
    """

    def guard(
        request: DeleteTopicsRequest, call: Call, access: Access, serve: Serve
    ) -> Steps[Response]:
        if not may_delete or access.may_cluster(Operation.DELETE, quiet=True):
            return serve(request)
        by_state = call.api_version >= BY_STATE_SINCE
        asked = request.topics
        if not by_state:
            asked = yield from each(
                request.topic_names,
                lambda name: DeleteTopicState(name=name, topic_id=NULL_TOPIC_ID),
            )
        times: Counter[tuple[str | None, bytes]] = Counter()
        yield from each(asked, lambda one: times.update(((one.name, one.topic_id),)))

        def is_left_to_handler(one: DeleteTopicState) -> bool:
            is_wrong = (one.name is None) == (one.topic_id == NULL_TOPIC_ID)
            return is_wrong or times[one.name, one.topic_id] > 1

        refused: list[DeletableTopicResult] = []

        def is_allowed(one: DeleteTopicState) -> bool:
            if is_left_to_handler(one):
                return True
            why = _why_not_deleted(one, image, access)
            if why is not None:
                refused.append(why)
            return why is None

        allowed, _ = yield from sifted(asked, is_allowed)
        if by_state:
            request.topics = allowed
        else:
            request.topic_names = [one.name or "" for one in allowed]

        def add(response: DeleteTopicsResponse) -> None:
            response.responses += refused

        return (yield from then(serve(request), add))

    return guard


def _why_not_deleted(
    one: DeleteTopicState, image: MetadataImage, access: Access
) -> DeletableTopicResult | None:
    """Return the refusal of a topic; None: it may be deleted, or the handler does not know it."""
    by_id = one.name is None
    known = image.topic_by_id(one.topic_id) if by_id else image.topic(one.name or "")
    if known is None and by_id:
        return None
    name = one.name if known is None else known.name
    assert name is not None, "it has a name or an id"
    result = DeletableTopicResult(
        name=name, topic_id=one.topic_id, error_code=_REFUSED, error_message=_REFUSED.text
    )
    if not access.may_topic(Operation.DESCRIBE, name):
        if by_id:
            result.name = None
        return result
    if known is None or access.may_topic(Operation.DELETE, name):
        return None
    return result


def create_partitions(
    request: CreatePartitionsRequest, call: Call, access: Access, serve: Serve
) -> Steps[Response]:
    """Ask for ALTER on each topic. Names that are there twice are left to the handler."""
    del call
    times: Counter[str] = Counter()
    yield from each(request.topics, lambda one: times.update((one.name,)))
    request.topics, refused = yield from sifted(
        request.topics,
        lambda one: times[one.name] > 1 or access.may_topic(Operation.ALTER, one.name),
    )
    answers = yield from each(
        refused, lambda one: CreatePartitionsTopicResult(name=one.name, error_code=_REFUSED)
    )

    def add(response: CreatePartitionsResponse) -> None:
        response.results += answers

    return (yield from then(serve(request), add))


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    return {
        ApiKey.CREATE_TOPICS: create_topics,
        ApiKey.DELETE_TOPICS: delete_topics(node.image, may_delete=node.may_delete),
        ApiKey.CREATE_PARTITIONS: create_partitions,
    }
