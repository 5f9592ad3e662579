"""DeleteTopics, key 20. v5 adds error texts, v6 deletes by topic id, too (KIP-516).

A topic that is named more than once, also once by name and once by id, is refused.
"""

from collections import Counter

from ottla.cluster.controller import Controller
from ottla.cluster.in_time import Patience
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.sliced import STRIDE, Steps, each

BY_STATE_SINCE = 6
_BY_BOTH = "The provided topic name maps to an ID that was already supplied."

Deleted = tuple[str, TopicId]
QUOTA_SINCE = 5
"""Since then clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


class DeleteTopics:
    """Asks the controller; answers when the topics are deleted."""

    def __init__(self, controller: Controller, image: MetadataImage, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock
        self._image = image

    def handle(self, request: DeleteTopicsRequest, call: Call) -> Steps[DeleteTopicsResponse]:
        """Delete topics; each succeeds or fails on its own."""
        asked, access = request.topics, call.client.access
        if call.api_version < BY_STATE_SINCE:
            asked = yield from each(
                request.topic_names,
                lambda name: DeleteTopicState(name=name, topic_id=NULL_TOPIC_ID),
            )
        refused: list[DeletableTopicResult] = []
        wanted: list[DeleteTopicState] = []
        times: Counter[tuple[str | None, TopicId]] = Counter()
        yield from each(asked, lambda topic: times.update(((topic.name, topic.topic_id),)))
        named_by_id: set[TopicId] = set()
        yield from each(times, lambda one: named_by_id.add(one[1]) if one[0] is None else None)
        by_both: set[TopicId] = set()
        for ordinal, ((name, topic_id), count) in enumerate(times.items()):
            if ordinal % STRIDE == STRIDE - 1:
                yield None
            problem = _problem(name, topic_id, count)
            found = None if problem or name is None else self._image.topic(name)
            if found is not None and found.topic_id in named_by_id:
                by_both.add(found.topic_id)
                why = KafkaError(ErrorCode.INVALID_REQUEST, _BY_BOTH)
                refused.append(_refused(name, found.topic_id, why))
            elif problem is None:
                wanted.append(DeleteTopicState(name=name, topic_id=topic_id))
            else:
                refused.append(
                    _refused(name, topic_id, KafkaError(ErrorCode.INVALID_REQUEST, problem))
                )

        wanted = [one for one in wanted if one.name is not None or one.topic_id not in by_both]
        outcomes: list[Deleted | KafkaError] = yield self._controller.delete_topics(
            [(topic.name, topic.topic_id) for topic in wanted],
            take=call.take(strict_since=QUOTA_SINCE),
            patience=Patience(self._clock, request.timeout_ms),
            may_delete=None if access is None else access.may_delete_topic,
        )
        answers = yield from each(zip(wanted, outcomes, strict=True), lambda one: _result(*one))
        return DeleteTopicsResponse(responses=answers + refused)


def _problem(name: str | None, topic_id: TopicId, count: int) -> str | None:
    if name is not None and topic_id != NULL_TOPIC_ID:
        return "You may not specify both topic name and topic id."
    if name is None and topic_id == NULL_TOPIC_ID:
        return "Neither topic name nor id were specified."
    if count > 1:
        return f"Duplicate topic {'name' if name is not None else 'id'}."
    return None


def _result(asked: DeleteTopicState, outcome: Deleted | KafkaError) -> DeletableTopicResult:
    if isinstance(outcome, KafkaError):
        return _refused(asked.name, asked.topic_id, outcome)
    return DeletableTopicResult(name=outcome[0], topic_id=outcome[1])


def _refused(name: str | None, topic_id: TopicId, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=error.code,
        error_message=error.why or error.code.text,
    )
