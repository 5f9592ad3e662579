"""Configs of topics, brokers, groups and the cluster: what is in force, and since which layer.

On asyncio. Owns requests and answers; ``cluster`` owns connections and retries. Source: KIP-226
(layers), KIP-339 (changes), KIP-569 (documentation), KIP-848 (groups).
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.connection import Connection
from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE = 0, 1
"""What IncrementalAlterConfigs does with a key."""


class ResourceType(IntEnum):
    """What has configs; the numbers are DescribeConfigs'."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Resource(NamedTuple):
    """A topic or group by its name, a broker by its number; BROKER without a name: all brokers."""

    kind: ResourceType
    name: str


class ConfigLayer(NamedTuple):
    """A value as one layer has it; ``key`` is another one where a topic follows its broker."""

    key: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """A config in force; ``source`` is DescribeConfigs' number, ``value`` None: none or secret.

    ``layers``: the strongest first; empty unless they were asked for.
    """

    key: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    type: int
    documentation: str | None
    layers: tuple[ConfigLayer, ...]


class Configs:
    """Config calls on a cluster. Every method raises KafkaError with the broker's own words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(
        self,
        resource: Resource,
        keys: Iterable[str] | None = None,
        *,
        layers: bool = False,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        """Return the configs in force, by key; ``keys`` None: all."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.kind.value,
                    resource_name=resource.name,
                    configuration_keys=None if keys is None else list(keys),
                )
            ],
            include_synonyms=layers,
            include_documentation=documentation,
        )

        async def attempt() -> list[ConfigEntry]:
            connection = await self._of_one_broker(resource) or await self._cluster.any()
            answer = await connection.call(request, DescribeConfigsResponse)
            entries: list[ConfigEntry] = []
            for found in answer.results:
                _check(found.error_code, found.error_message, resource.name)
                entries.extend(
                    ConfigEntry(
                        each.name,
                        each.value,
                        each.config_source,
                        each.read_only,
                        each.is_sensitive,
                        each.config_type,
                        each.documentation,
                        tuple(ConfigLayer(one.name, one.value, one.source)
                              for one in each.synonyms),
                    )
                    for each in found.configs
                )  # fmt: skip
            return sorted(entries)

        return await self._cluster.retrying(attempt, gives_up=_is_unknown)

    async def alter(
        self,
        resource: Resource,
        *,
        configs: Mapping[str, str],
        deleted: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set configs and take others (``deleted``) back to their defaults; leave the rest."""
        changes = [
            AlterableConfig(name=key, config_operation=_SET, value=value)
            for key, value in configs.items()
        ]
        changes += [
            AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in deleted
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource.kind.value, resource_name=resource.name, configs=changes
                )
            ],
            validate_only=validate_only,
        )

        async def attempt() -> None:
            # A broker checks what only it can know, such as its files of certificates.
            connection = await self._of_one_broker(resource) or await self._cluster.controller()
            answer = await connection.call(request, IncrementalAlterConfigsResponse)
            for each in answer.responses:
                _check(each.error_code, each.error_message, each.resource_name)

        await self._cluster.retrying(attempt, gives_up=_is_unknown)

    async def _of_one_broker(self, resource: Resource) -> Connection | None:
        """Return a connection to the broker that the resource is; None: it is no single broker."""
        if resource.kind is not ResourceType.BROKER or not resource.name:
            return None
        await self._cluster.refresh([])
        return await self._cluster.connection(int(resource.name))


def _check(code: int, message: str | None, what: str) -> None:
    if code != ErrorCode.NONE:
        error = error_code(code)
        raise KafkaError(error, message or f"{what}: {error.text}")


def _is_unknown(error: KafkaError) -> bool:
    # A topic is there or it is not: nobody waits for it to appear.
    return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
