"""ListConfigResources, key 74: the resources whose configs can be described.

v0 asks for client metrics resources only (KIP-714). v1 asks for the types that it names, or for all
when it names none (KIP-1142). Loggers and client metrics have no configs here.
"""

from collections.abc import Sequence

from ottla.cluster.configs import ResourceType
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.metadata.image import MetadataImage
from ottla.metadata.keys import ConfigType
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.sliced import Steps, distinct, each, sorted_in_steps

_EMPTY_TYPES = frozenset({8, 16})
"""Broker loggers and client metrics: types that Kafka knows, but without configs here."""
_TYPES = frozenset(ResourceType) | _EMPTY_TYPES
_V0_TYPES = frozenset({16})


class ListConfigResources:
    """Answers from the metadata image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def handle(
        self, request: ListConfigResourcesRequest, call: Call
    ) -> Steps[ListConfigResourcesResponse]:
        """Return the brokers, the topics, and the groups that have configs of their own."""
        wanted = frozenset((yield from distinct(request.resource_types))) or _TYPES
        if call.api_version == 0:
            wanted = _V0_TYPES
        if not wanted <= _TYPES:
            return ListConfigResourcesResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
            )
        resources: list[ConfigResource] = []
        if ResourceType.BROKER in wanted:
            resources += [
                ConfigResource(resource_name=str(node_id), resource_type=ResourceType.BROKER)
                for node_id in sorted(self._image.brokers)
            ]
        if ResourceType.TOPIC in wanted:
            names = yield from sorted_in_steps(list(self._image.topics))
            resources += yield from _named(names, ResourceType.TOPIC)
        if ResourceType.GROUP in wanted:
            groups = list(self._image.configured(ConfigType.GROUP))
            resources += yield from _named(groups, ResourceType.GROUP)
        return ListConfigResourcesResponse(config_resources=resources)


def _named(names: Sequence[str], kind: ResourceType) -> Steps[list[ConfigResource]]:
    return (
        yield from each(names, lambda name: ConfigResource(resource_name=name, resource_type=kind))
    )
