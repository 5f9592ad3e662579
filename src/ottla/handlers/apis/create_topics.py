"""CreateTopics, key 19. v5 answers with the configuration (KIP-525), v7 with the id (KIP-516)."""

from operator import attrgetter

from ottla.cluster.controller import Controller, TopicOutcome
from ottla.cluster.in_time import Patience
from ottla.cluster.topics import NewTopic
from ottla.config.topic import TOPIC_TABLE
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.handlers.config_entries import created
from ottla.handlers.named_twice import without_repeated
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.sliced import Steps, each

CONFIGS_SINCE = 5
_REPEATED = "Duplicate topic name."
QUOTA_SINCE = 6
"""Since then clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


class CreateTopics:
    """Asks the controller; answers when the topics can be used."""

    def __init__(self, controller: Controller, clock: Clock, *, elements_max: int) -> None:
        self._controller = controller
        self._clock = clock
        self._configs_max = max(elements_max // len(list(TOPIC_TABLE)), 1)
        """The answer holds the configs of at most so many topics."""

    def handle(self, request: CreateTopicsRequest, call: Call) -> Steps[CreateTopicsResponse]:
        """Create topics; each succeeds or fails on its own."""
        topics, repeated = yield from without_repeated(request.topics, attrgetter("name"))
        wanted = yield from each(topics, _new_topic)
        outcomes: list[TopicOutcome | KafkaError] = yield self._controller.create_topics(
            wanted,
            validate_only=request.validate_only,
            patience=Patience(self._clock, request.timeout_ms),
            take=call.take(strict_since=QUOTA_SINCE),
            configs_max=self._configs_max if call.api_version >= CONFIGS_SINCE else 0,
        )
        answers: list[CreatableTopicResult] = []
        for topic, outcome in zip(wanted, outcomes, strict=True):
            answers.append(_answer(topic.name, outcome))
            yield None  # After each: a topic may have some thirty configs.
        answers += yield from each(
            repeated, lambda name: _refused(name, ErrorCode.INVALID_REQUEST, _REPEATED)
        )
        return CreateTopicsResponse(topics=answers)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(item.partition_index, item.broker_ids) for item in topic.assignments],
        configs=[(item.name, item.value) for item in topic.configs],
    )


def _answer(name: str, outcome: TopicOutcome | KafkaError) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        is_over = outcome.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED  # Without a text, as Kafka.
        why = outcome.why or (None if is_over else outcome.code.text)
        return _refused(name, outcome.code, why)
    if outcome.config is None:  # As Kafka answers clients that may not see configs.
        return CreatableTopicResult(
            name=name,
            topic_id=outcome.topic_id,
            topic_config_error_code=ErrorCode.INVALID_REQUEST,
        )
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.topic_id,
        num_partitions=outcome.partition_count,
        replication_factor=outcome.replication_factor,
        configs=created(outcome.config),
    )


def _refused(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)
