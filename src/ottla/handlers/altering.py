"""What AlterConfigs and IncrementalAlterConfigs have in common."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cluster.configs import Alteration, Configs
from ottla.errors import ErrorCode, KafkaError
from ottla.sliced import Steps, each


class AlterOutcome(NamedTuple):
    """What the answer says of one resource; the fields are the message's."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


def alter_configs(
    configs: Configs, alterations: Sequence[Alteration], *, validate_only: bool
) -> Steps[list[AlterOutcome]]:
    """Have the configs changed, but none of a resource that is named twice; outcomes in order."""
    times = Counter(map(_resource, alterations))
    once = [alteration for alteration in alterations if times[_resource(alteration)] == 1]

    errors: list[KafkaError | None] = yield configs.alter(once, validate_only=validate_only)
    by_resource = dict(zip(map(_resource, once), errors, strict=True))
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    return (
        yield from each(
            alterations, lambda one: _outcome(one, by_resource.get(_resource(one), twice))
        )
    )


def _resource(alteration: Alteration) -> tuple[int, str]:
    return alteration.resource_type, alteration.resource_name


def _outcome(alteration: Alteration, error: KafkaError | None) -> AlterOutcome:
    return AlterOutcome(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.why or None,
        resource_type=alteration.resource_type,
        resource_name=alteration.resource_name,
    )
