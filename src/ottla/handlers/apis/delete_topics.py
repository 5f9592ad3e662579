"""DeleteTopics, key 20. v5 error texts, v6 deletes by topic id too (KIP-516)."""

from collections import Counter

from ottla.cluster.controller import Controller
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.pending import Pending
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BY_STATE_SINCE = 6

Deleted = tuple[str, TopicId]


class DeleteTopics:
    """Asks the controller; answers when the topics are gone."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handle(self, request: DeleteTopicsRequest, call: Call) -> Pending[DeleteTopicsResponse]:
        """Delete what is there; each topic succeeds or fails on its own."""
        asked = request.topics
        if call.api_version < BY_STATE_SINCE:
            asked = [
                DeleteTopicState(name=name, topic_id=NULL_TOPIC_ID) for name in request.topic_names
            ]
        refused: list[DeletableTopicResult] = []
        wanted: list[DeleteTopicState] = []
        times = Counter((topic.name, topic.topic_id) for topic in asked)
        for (name, topic_id), count in times.items():
            problem = _problem(name, topic_id, count)
            if problem is None:
                wanted.append(DeleteTopicState(name=name, topic_id=topic_id))
            else:
                refused.append(
                    _refused(name, topic_id, KafkaError(ErrorCode.INVALID_REQUEST, problem))
                )

        def respond(outcomes: list[Deleted | KafkaError]) -> DeleteTopicsResponse:
            answers = [
                _refused(topic.name, topic.topic_id, outcome)
                if isinstance(outcome, KafkaError)
                else DeletableTopicResult(name=outcome[0], topic_id=outcome[1])
                for topic, outcome in zip(wanted, outcomes, strict=True)
            ]
            return DeleteTopicsResponse(responses=answers + refused)

        return self._controller.delete_topics(
            [(topic.name, topic.topic_id) for topic in wanted]
        ).then(respond)


def _problem(name: str | None, topic_id: TopicId, count: int) -> str | None:
    if name is not None and topic_id != NULL_TOPIC_ID:
        return "You may not specify both topic name and topic id."
    if name is None and topic_id == NULL_TOPIC_ID:
        return "Neither topic name nor id were specified."
    if count > 1:
        return f"Duplicate topic {'name' if name is not None else 'id'}."
    return None


def _refused(name: str | None, topic_id: TopicId, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=error.code,
        error_message=error.why or error.code.text,
    )
