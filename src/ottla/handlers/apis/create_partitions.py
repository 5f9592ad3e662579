"""CreatePartitions, key 37: adds partitions to existing topics (KIP-195)."""

from operator import attrgetter

from ottla.cluster.controller import Controller
from ottla.cluster.in_time import Patience
from ottla.cluster.topics import NewPartitions
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.handlers.named_twice import without_repeated
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.sliced import Steps, each

QUOTA_SINCE = 3
"""Since then clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


class CreatePartitions:
    """Asks the controller; answers when the partitions can be used."""

    def __init__(self, controller: Controller, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock

    def handle(
        self, request: CreatePartitionsRequest, call: Call
    ) -> Steps[CreatePartitionsResponse]:
        """Add partitions; each topic succeeds or fails on its own."""
        topics, repeated = yield from without_repeated(request.topics, attrgetter("name"))
        wanted = yield from each(topics, _wanted)
        outcomes: list[KafkaError | None] = yield self._controller.create_partitions(
            wanted,
            validate_only=request.validate_only,
            take=call.take(strict_since=QUOTA_SINCE),
            patience=Patience(self._clock, request.timeout_ms),
        )
        answers = yield from each(
            zip(wanted, outcomes, strict=True), lambda one: _result(one[0].name, one[1])
        )
        twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        answers += yield from each(repeated, lambda name: _result(name, twice))
        return CreatePartitionsResponse(results=answers)


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic.name,
        topic.count,
        None if assignments is None else [item.broker_ids for item in assignments],
    )


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.why or None
    )
