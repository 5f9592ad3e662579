"""DescribeConfigs, key 32: every option of a topic or of this broker, and where its value is from.

v1 sources and synonyms (KIP-226), v3 type and documentation (KIP-569), v4 flexible.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum

from ottla.cluster.topics import topic_name_error
from ottla.config.config import Config
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.handlers.config_entries import describe, listed
from ottla.ids import NodeId
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


class ResourceType(IntEnum):
    """What can be configured; the numbers are the protocol's. Others are not described here."""

    TOPIC = 2
    BROKER = 4


class DescribeConfigs:
    """Answers from the option tables, the given values and the metadata image."""

    def __init__(
        self,
        node_id: NodeId,
        image: MetadataImage,
        broker_config: Config,
        topic_config: Callable[[str], Config],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._broker_config = broker_config
        self._topic_config = topic_config

    def handle(self, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
        """Answer per resource, in the request's order."""
        del call
        return DescribeConfigsResponse(
            results=[self._result(resource, request) for resource in request.resources]
        )

    def _result(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest
    ) -> DescribeConfigsResult:
        code, message = ErrorCode.NONE, ""
        entries: list[DescribeConfigsResourceResult] = []
        try:
            entries = list(self._entries(resource, request))
        except KafkaError as error:
            code, message = error.code, error.why
        return DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=entries,
        )

    def _entries(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest
    ) -> Iterator[DescribeConfigsResourceResult]:
        if resource.resource_type == ResourceType.BROKER and not resource.resource_name:
            return  # The cluster-wide defaults: none can be set yet.
        config = self._config(resource)
        wanted = frozenset(resource.configuration_keys or ())
        for option in listed(config):
            if not wanted or option.key in wanted:
                yield describe(
                    config,
                    option,
                    synonyms=request.include_synonyms,
                    documentation=request.include_documentation,
                )

    def _config(self, resource: DescribeConfigsResource) -> Config:
        if resource.resource_type == ResourceType.TOPIC:
            return self._config_of_topic(resource.resource_name)
        if resource.resource_type == ResourceType.BROKER:
            return self._config_of_broker(resource.resource_name)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource.resource_type} is not described here: ask for 2 (topic) or "
            "4 (broker)",
        )

    def _config_of_topic(self, name: str) -> Config:
        problem = topic_name_error(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in self._image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._topic_config(name)

    def _config_of_broker(self, name: str) -> Config:
        try:
            is_mine = int(name) == self._node_id
        except ValueError as error:
            why = f"Broker id must be an integer, but it is: {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why) from error
        if not is_mine:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._node_id} or empty string, "
                f"but received {name}",
            )
        return self._broker_config
