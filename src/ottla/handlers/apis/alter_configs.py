"""AlterConfigs, key 33, and IncrementalAlterConfigs, key 44: change configs of resources.

AlterConfigs sets the configs that it names and resets all others of the resource to their defaults.
IncrementalAlterConfigs changes only what it names; each config comes with an operation (set,
delete, append, subtract).
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
    """The part that both APIs share: answers when the changes are in force on this node."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs

    def _alter(self, request: Request) -> Steps[list[Outcome]]:
        """Alter each resource that is named once; return one outcome per resource, in order.

        Resources that are named twice are refused. Each resource succeeds or fails on its own.
        """
        alterations = yield from each(request.resources, _alteration)
        times: Counter[tuple[int, str]] = Counter()
        yield from each(alterations, lambda one: times.update((_resource(one),)))
        wanted: list[Alteration] = []
        yield from each(
            alterations, lambda one: wanted.append(one) if times[_resource(one)] == 1 else None
        )
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
    """Replaces all configs of resources."""

    def handle(
        self, request: whole.AlterConfigsRequest, call: Call
    ) -> Steps[whole.AlterConfigsResponse]:
        """Set the named configs of each resource, and reset its others."""
        del call
        outcomes = yield from self._alter(request)
        told = yield from each(
            outcomes, lambda one: whole.AlterConfigsResourceResponse(**_told(*one))
        )
        return whole.AlterConfigsResponse(responses=told)


class IncrementalAlterConfigs(_Altering[incremental.IncrementalAlterConfigsRequest]):
    """Changes single configs of resources."""

    def handle(
        self, request: incremental.IncrementalAlterConfigsRequest, call: Call
    ) -> Steps[incremental.IncrementalAlterConfigsResponse]:
        """Change the named configs of each resource."""
        del call
        outcomes = yield from self._alter(request)
        told = yield from each(
            outcomes, lambda one: incremental.AlterConfigsResourceResponse(**_told(*one))
        )
        return incremental.IncrementalAlterConfigsResponse(responses=told)


def _alteration(resource: Resource) -> Alteration:
    configs = resource.configs[: CHANGES_MAX + 1]  # One more than allowed: it will be refused.
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
    """Return the fields of the answer for one resource."""
    return {
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": None if error is None else error.why or None,
        "resource_type": alteration.resource_type,
        "resource_name": alteration.resource_name,
    }
