"""IncrementalAlterConfigs, key 44: changes the named configs of a topic or a broker.

v1 flexible. Source: KIP-339.
"""

from ottla.cluster.configs import Alteration, ConfigChange, Configs
from ottla.handlers.altering import alter_configs
from ottla.handlers.call import Call
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.sliced import Steps, each


class IncrementalAlterConfigs:
    """Answers when the changes are in force on this node."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs

    def handle(
        self, request: IncrementalAlterConfigsRequest, call: Call
    ) -> Steps[IncrementalAlterConfigsResponse]:
        """Change the configs; each resource succeeds or fails on its own."""
        del call
        alterations = yield from each(request.resources, _alteration)
        outcomes = yield from alter_configs(
            self._configs, alterations, validate_only=request.validate_only
        )
        responses = yield from each(
            outcomes, lambda outcome: AlterConfigsResourceResponse(**outcome._asdict())
        )
        return IncrementalAlterConfigsResponse(responses=responses)


def _alteration(resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        resource.resource_type,
        resource.resource_name,
        [
            ConfigChange(config.name, config.config_operation, config.value)
            for config in resource.configs
        ],
        replaces=False,
    )
