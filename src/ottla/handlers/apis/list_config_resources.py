"""ListConfigResources, key 74: the resources whose configs can be described.

v0 asks for client metrics resources only (KIP-714). v1 asks for the types that it names, or for all
when it names none (KIP-1142). Loggers and client metrics have no configs here.
"""

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
    ) -> ListConfigResourcesResponse:
        """Return the brokers, the topics, and the groups that have configs of their own."""
        wanted = frozenset(request.resource_types) or _TYPES
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
            resources += [
                ConfigResource(resource_name=name, resource_type=ResourceType.TOPIC)
                for name in sorted(self._image.topics)
            ]
        if ResourceType.GROUP in wanted:
            resources += [
                ConfigResource(resource_name=name, resource_type=ResourceType.GROUP)
                for name in self._image.configured(ConfigType.GROUP)
            ]
        return ListConfigResourcesResponse(config_resources=resources)
