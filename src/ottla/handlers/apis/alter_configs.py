"""AlterConfigs, key 33, and IncrementalAlterConfigs, key 44: change configs of what there is.

The older one gives a resource the named configs and no others: what the request does not name goes
back to its default. The other one changes only what it names. They differ in their message tables,
and in that each config of the second says what becomes of it.
Source: KIP-133 (v2 flexible), KIP-339 (v1 flexible).
"""

from collections import Counter
from typing import Any, Generic, TypeVar

from ottla.cluster.configs import CHANGES_MAX, Alteration, ConfigChange, Configs, Operation
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.protocol.messages import alter_configs as whole
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.sliced import Steps, each

Request = TypeVar("Request", whole.AlterConfigsRequest, incremental.IncrementalAlterConfigsRequest)
Resource = whole.AlterConfigsResource | incremental.AlterConfigsResource
Outcome = tuple[Alteration, KafkaError | None]
_TWICE = "Each resource must appear at most once."


class _Altering(Generic[Request]):
    """Answers when the changes are in force on this node; each succeeds or fails on its own."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs

    def _alter(self, request: Request) -> Steps[list[Outcome]]:
        """Have the configs changed, but none of a resource that is named twice; in order."""
        alterations = yield from each(request.resources, _alteration)
        times: Counter[tuple[int, str]] = Counter()
        yield from each(alterations, lambda one: times.update((_resource(one),)))
        wanted = [one for one in alterations if times[_resource(one)] == 1]
        yield None
        errors: list[KafkaError | None] = yield self._configs.alter(
            wanted, validate_only=request.validate_only
        )
        twice = KafkaError(ErrorCode.INVALID_REQUEST, _TWICE)
        left = iter(errors)
        return (
            yield from each(
                alterations,
                lambda one: (one, next(left) if times[_resource(one)] == 1 else twice),
            )
        )


class AlterConfigs(_Altering[whole.AlterConfigsRequest]):
    """Replaces configs."""

    def handle(
        self, request: whole.AlterConfigsRequest, call: Call
    ) -> Steps[whole.AlterConfigsResponse]:
        """Give each resource the configs that are named, and no others."""
        del call
        outcomes = yield from self._alter(request)
        told = yield from each(
            outcomes, lambda one: whole.AlterConfigsResourceResponse(**_told(*one))
        )
        return whole.AlterConfigsResponse(responses=told)


class IncrementalAlterConfigs(_Altering[incremental.IncrementalAlterConfigsRequest]):
    """Changes configs."""

    def handle(
        self, request: incremental.IncrementalAlterConfigsRequest, call: Call
    ) -> Steps[incremental.IncrementalAlterConfigsResponse]:
        """Change the configs of each resource that are named."""
        del call
        outcomes = yield from self._alter(request)
        told = yield from each(
            outcomes, lambda one: incremental.AlterConfigsResourceResponse(**_told(*one))
        )
        return incremental.IncrementalAlterConfigsResponse(responses=told)


def _alteration(resource: Resource) -> Alteration:
    configs = resource.configs[: CHANGES_MAX + 1]  # One more than is taken.
    return Alteration(
        resource.resource_type,
        resource.resource_name,
        [ConfigChange(one.name, _operation(one), one.value) for one in configs],
        replaces=isinstance(resource, whole.AlterConfigsResource),
    )


def _operation(config: whole.AlterableConfig | incremental.AlterableConfig) -> int:
    if isinstance(config, incremental.AlterableConfig):
        return config.config_operation
    return Operation.SET


def _resource(alteration: Alteration) -> tuple[int, str]:
    return alteration.resource_type, alteration.resource_name


def _told(alteration: Alteration, error: KafkaError | None) -> dict[str, Any]:
    """Return what the answer says of one resource; the fields are the message's."""
    return {
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": None if error is None else error.why or None,
        "resource_type": alteration.resource_type,
        "resource_name": alteration.resource_name,
    }
