"""DescribeConfigs, key 32: the options of a topic, a group or this broker, and their sources.

v1 sources and synonyms (KIP-226), v3 type and documentation (KIP-569), v4 flexible.
"""

from collections.abc import Callable, Iterator

from ottla.cluster.configs import (
    CLUSTER_DEFAULT,
    ResourceType,
    broker_number,
    dynamic_texts,
)
from ottla.cluster.topics import topic_name_error
from ottla.config.broker import BROKER_TABLE
from ottla.config.config import Config, Layer
from ottla.config.group import stored_group_config
from ottla.config.option import Source
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.answer_room import AnswerRoom, weight
from ottla.handlers.call import Call
from ottla.handlers.config_entries import describe, listed, unknown
from ottla.ids import NodeId
from ottla.metadata.image import MetadataImage
from ottla.metadata.keys import ConfigType
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.sliced import Steps, each


class DescribeConfigs:
    """Answers from the option tables, the node's configuration and the metadata image."""

    def __init__(
        self,
        node_id: NodeId,
        image: MetadataImage,
        broker_config: Callable[[], Config],
        topic_config: Callable[[str], Config],
        *,
        elements_max: int,
    ) -> None:
        self._elements_max = elements_max
        self._node_id = node_id
        self._image = image
        self._broker_config = broker_config
        self._topic_config = topic_config

    def handle(self, request: DescribeConfigsRequest, call: Call) -> Steps[DescribeConfigsResponse]:
        """Return one result per resource, in the request's order, without exact repetitions."""
        del call
        room = AnswerRoom(self._elements_max)
        resources: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsResource] = {}

        def note(one: DescribeConfigsResource) -> None:
            keys = tuple(one.configuration_keys or ())
            resources.setdefault((one.resource_type, one.resource_name, keys), one)

        yield from each(request.resources, note)
        results: list[DescribeConfigsResult] = []
        for resource in resources.values():  # Each may be worth half a millisecond.
            results.append(self._result(resource, request, room))
            yield None
        return DescribeConfigsResponse(results=results)

    def _result(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest, room: AnswerRoom
    ) -> DescribeConfigsResult:
        code, message = ErrorCode.NONE, ""
        entries: list[DescribeConfigsResourceResult] = []
        try:
            if room.is_full:
                raise room.refusal
            found = list(self._entries(resource, request))
            if not room.take(1 + sum(_weight(entry) for entry in found)):
                raise room.refusal
            entries = found
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
        config = self._config(resource)
        is_default = resource.resource_name == CLUSTER_DEFAULT  # No topic's name is empty.
        wanted = frozenset(resource.configuration_keys or ())
        for option in listed(config):
            if is_default and not config.is_given(option):
                continue
            if not wanted or option.key in wanted:
                entry = describe(
                    config,
                    option,
                    synonyms=request.include_synonyms,
                    documentation=request.include_documentation,
                )
                if is_default:
                    del entry.synonyms[1:]  # Only what is set; not what applies otherwise.
                yield entry
        if resource.resource_type == ResourceType.BROKER:
            for entry in self._meaningless(resource.resource_name, request.include_synonyms):
                if not wanted or entry.name in wanted:
                    yield entry

    def _meaningless(self, name: str, synonyms: bool) -> Iterator[DescribeConfigsResourceResult]:
        """Yield keys that are set for brokers but are no options here; without values, as Kafka."""
        layers = [(Source.DYNAMIC_DEFAULT_BROKER, CLUSTER_DEFAULT)]
        if name:
            layers.insert(0, (Source.DYNAMIC_BROKER, str(self._node_id)))
        found: dict[str, list[Source]] = {}
        for source, layer in layers:
            texts = self._image.config(ConfigType.BROKER, layer)
            for key in texts.keys() - dynamic_texts(texts).keys():
                found.setdefault(key, []).append(source)
        for key, sources in found.items():
            yield unknown(key, sources, synonyms=synonyms)

    def _config(self, resource: DescribeConfigsResource) -> Config:
        if resource.resource_type == ResourceType.TOPIC:
            return self._config_of_topic(resource.resource_name)
        if resource.resource_type == ResourceType.BROKER:
            if resource.resource_name == CLUSTER_DEFAULT:
                return self._cluster_defaults()
            return self._config_of_broker(resource.resource_name)
        if resource.resource_type == ResourceType.GROUP:
            return self._config_of_group(resource.resource_name)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource.resource_type} is not described here: ask for 2 (topic), "
            "4 (broker) or 32 (group)",
        )

    def _config_of_topic(self, name: str) -> Config:
        problem = topic_name_error(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in self._image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._topic_config(name)

    def _config_of_group(self, name: str) -> Config:
        """Return a group's configuration, whether the group exists or not, as Kafka does."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        texts = self._image.config(ConfigType.GROUP, name)
        return stored_group_config(texts, self._broker_config())

    def _cluster_defaults(self) -> Config:
        texts = dynamic_texts(self._image.config(ConfigType.BROKER, CLUSTER_DEFAULT))
        return Config(BROKER_TABLE, Layer(Source.DYNAMIC_DEFAULT_BROKER, texts))

    def _config_of_broker(self, name: str) -> Config:
        number = broker_number(name)
        if number is None:
            why = f"Broker id must be an integer, but it is: {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        if number != self._node_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._node_id} or empty string, "
                f"but received {name}",
            )
        return self._broker_config()


def _weight(entry: DescribeConfigsResourceResult) -> int:
    return weight(entry.value, entry.documentation) + len(entry.synonyms)
