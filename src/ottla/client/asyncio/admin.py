"""Topics, partitions and the cluster itself: what an administrator asks and changes.

Owns requests and answers of the admin APIs; ``cluster`` owns connections and retries. On asyncio.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.errors import error_code
from ottla.client.wire.settings import Address
from ottla.client.wire.view import TopicView
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

CLUSTER_DEFAULT = -1
"""Instead of a number of partitions or replicas: what the broker is set to."""


class CreatedTopic(NamedTuple):
    """A topic that was made, as far as the broker's version tells."""

    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int


class BrokerDescription(NamedTuple):
    """One broker of a cluster."""

    node_id: int
    address: Address
    rack: str | None
    is_controller: bool


class ClusterDescription(NamedTuple):
    """A cluster's id and its brokers, by number."""

    cluster_id: str
    brokers: tuple[BrokerDescription, ...]


class Admin:
    """Admin calls on a cluster. Every method raises KafkaError with the broker's own words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic and return what was made."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partition_count,
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=self._cluster.settings.request_timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> CreatedTopic:
            connection = await self._cluster.controller()
            answer = await connection.call(request, CreateTopicsResponse)
            for topic in answer.topics:
                _check(topic.error_code, topic.error_message, name)
                return CreatedTopic(
                    topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor
                )
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer about topic {name}")

        return await self._cluster.retrying(attempt)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics. Raises for the first that was not; the others may be gone by then."""
        wanted = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=NULL_TOPIC_ID) for name in wanted],
            topic_names=wanted,
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )

        async def attempt() -> None:
            connection = await self._cluster.controller()
            answer = await connection.call(request, DeleteTopicsResponse)
            for topic in answer.responses:
                _check(topic.error_code, topic.error_message, f"topic {topic.name}")

        await self._cluster.retrying(attempt, gives_up=_is_unknown)

    async def create_partitions(
        self, topic: str, total_count: int, *, validate_only: bool = False
    ) -> None:
        """Raise the number of a topic's partitions to ``total_count``."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total_count, assignments=None)],
            timeout_ms=self._cluster.settings.request_timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> None:
            connection = await self._cluster.controller()
            answer = await connection.call(request, CreatePartitionsResponse)
            for each in answer.results:
                _check(each.error_code, each.error_message, f"topic {each.name}")

        await self._cluster.retrying(attempt, gives_up=_is_unknown)

    async def list_topics(self) -> list[TopicView]:
        """Return all topics, internal ones included, by name."""

        async def attempt() -> list[TopicView]:
            view = await self._cluster.refresh(None)
            return [view.topics[name] for name in sorted(view.topics)]

        return await self._cluster.retrying(attempt)

    async def describe_topic(self, name: str) -> TopicView:
        """Return one topic. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""

        async def attempt() -> TopicView:
            view = await self._cluster.refresh([name])
            return view.topic(name)

        return await self._cluster.retrying(attempt, gives_up=_is_unknown)

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id and brokers."""

        async def attempt() -> ClusterDescription:
            connection = await self._cluster.any()
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            answer = await connection.call(request, DescribeClusterResponse)
            _check(answer.error_code, answer.error_message, "DescribeCluster")
            brokers = (
                BrokerDescription(
                    each.broker_id,
                    Address(each.host, each.port),
                    each.rack,
                    each.broker_id == answer.controller_id,
                )
                for each in answer.brokers
            )
            return ClusterDescription(answer.cluster_id, tuple(sorted(brokers)))

        return await self._cluster.retrying(attempt)

    async def fenced_brokers(self) -> set[int]:
        """Return the brokers that are registered, and down; none where that is not told.

        Kafka tells it from 4.0 on (KIP-1073), and only to who may describe the cluster.
        """
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, include_fenced_brokers=True
        )

        async def attempt() -> set[int]:
            connection = await self._cluster.any()
            try:
                answer = await connection.call(request, DescribeClusterResponse)
            except KafkaError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                return set()
            return {each.broker_id for each in answer.brokers if each.is_fenced}

        return await self._cluster.retrying(attempt)


def _check(code: int, message: str | None, what: str) -> None:
    if code != ErrorCode.NONE:
        error = error_code(code)
        raise KafkaError(error, message or f"{what}: {error.text}")


def _is_unknown(error: KafkaError) -> bool:
    # An administrator's topic is there or it is not: nobody waits for it to appear.
    return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
