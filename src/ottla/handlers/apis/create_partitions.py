"""CreatePartitions, key 37: more partitions for topics that exist (KIP-195)."""

from collections import Counter

from ottla.cluster.controller import Controller
from ottla.cluster.topics import NewPartitions
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


class CreatePartitions:
    """Asks the controller; answers when the partitions are there to be used."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handle(
        self, request: CreatePartitionsRequest, call: Call
    ) -> Pending[CreatePartitionsResponse]:
        """Add partitions; each topic succeeds or fails on its own."""
        del call
        times = Counter(topic.name for topic in request.topics)
        duplicates = [
            _result(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            for name, count in times.items()
            if count > 1
        ]
        wanted = [
            NewPartitions(
                topic.name,
                topic.count,
                None
                if topic.assignments is None
                else [item.broker_ids for item in topic.assignments],
            )
            for topic in request.topics
            if times[topic.name] == 1
        ]

        def respond(outcomes: list[KafkaError | None]) -> CreatePartitionsResponse:
            answers = [
                _result(topic.name, outcome)
                for topic, outcome in zip(wanted, outcomes, strict=True)
            ]
            return CreatePartitionsResponse(results=answers + duplicates)

        return self._controller.create_partitions(wanted, validate_only=request.validate_only).then(
            respond
        )


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.why or None
    )
