"""The topics in which coordinators keep their state: made when the first client asks for them.

Makes each topic once, however many clients ask at the same time. The caller says how a
topic is made. Source: Kafka's AutoTopicCreationManager.
"""

import logging
from collections.abc import Callable

from ottla.cluster.controller import TopicOutcome
from ottla.cluster.topics import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending

logger = logging.getLogger(__name__)

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"

CreateTopics = Callable[[list[NewTopic]], Pending[list[TopicOutcome | KafkaError]]]


class InternalTopicMaker:
    """Makes one topic, unless it exists."""

    def __init__(
        self,
        topic: NewTopic,
        image: MetadataImage,
        create: CreateTopics,
        tell: Callable[[str], None] = logger.error,
    ) -> None:
        """Build it; ``tell`` logs that it failed, which clients bring about with each request."""
        self._tell = tell
        self._topic = topic
        self._image = image
        self._create = create
        self._waiting: list[Pending[bool]] = []

    def ensure(self) -> Pending[bool]:
        """Make the topic unless it exists; resolves with whether it exists then."""
        pending: Pending[bool] = Pending()
        if not self._waiting and self._image.topic(self._topic.name) is not None:
            pending.resolve(True)
            return pending
        self._waiting.append(pending)
        if len(self._waiting) == 1:
            self._create([self._topic]).on_done(self._created)
        return pending

    def _created(self, done: Pending[list[TopicOutcome | KafkaError]]) -> None:
        outcome = done.error if done.value is None else done.value[0]
        is_there = not isinstance(outcome, Exception) or (
            isinstance(outcome, KafkaError) and outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS
        )
        if not is_there:
            self._tell(f"cannot create {self._topic.name}: {outcome}")
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            pending.resolve(is_there)
