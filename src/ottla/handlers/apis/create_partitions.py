"""CreatePartitions, key 37: more partitions for topics that exist (KIP-195)."""

from operator import attrgetter

from ottla.cluster.controller import Controller
from ottla.cluster.topics import NewPartitions
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.handlers.named_twice import without_repeated
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
        topics, repeated = without_repeated(request.topics, attrgetter("name"))
        wanted = [
            NewPartitions(
                topic.name,
                topic.count,
                None
                if topic.assignments is None
                else [item.broker_ids for item in topic.assignments],
            )
            for topic in topics
        ]

        def respond(outcomes: list[KafkaError | None]) -> CreatePartitionsResponse:
            answers = [
                _result(topic.name, outcome)
                for topic, outcome in zip(wanted, outcomes, strict=True)
            ]
            answers += [
                _result(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
                for name in repeated
            ]
            return CreatePartitionsResponse(results=answers)

        return self._controller.create_partitions(wanted, validate_only=request.validate_only).then(
            respond
        )


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.why or None
    )
