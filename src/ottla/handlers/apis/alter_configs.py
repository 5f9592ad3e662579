"""AlterConfigs, key 33: gives a topic or a broker the named configs and no others.

The older way to change configs: what the request does not name goes back to its default. v2
flexible. Source: KIP-133.
"""

from ottla.cluster.configs import Alteration, ConfigChange, Configs, Operation
from ottla.handlers.altering import alter_configs
from ottla.handlers.call import Call
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.sliced import Steps, each


class AlterConfigs:
    """Answers when the changes are in force on this node."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs

    def handle(self, request: AlterConfigsRequest, call: Call) -> Steps[AlterConfigsResponse]:
        """Replace the configs; each resource succeeds or fails on its own."""
        del call
        alterations = yield from each(request.resources, _alteration)
        outcomes = yield from alter_configs(
            self._configs, alterations, validate_only=request.validate_only
        )
        responses = yield from each(
            outcomes, lambda outcome: AlterConfigsResourceResponse(**outcome._asdict())
        )
        return AlterConfigsResponse(responses=responses)


def _alteration(resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        resource.resource_type,
        resource.resource_name,
        [ConfigChange(config.name, Operation.SET, config.value) for config in resource.configs],
        replaces=True,
    )
