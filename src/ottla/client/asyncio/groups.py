"""Consumer groups: who coordinates one, its offsets, its members, and taking it away. On asyncio.

Owns requests and answers of the group APIs that an administrator and a member share; ``member``
joins groups. ``cluster`` owns connections and retries.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.connection import Connection
from ottla.client.asyncio.coordinators import CoordinatorFinder
from ottla.client.wire.coordination import (
    GROUP,
    NAMES_ONLY,
    NOBODY,
    Committed,
    commit_request,
    committed_request,
    read_committed_offsets,
)
from ottla.client.wire.group_description import (
    GroupDescription,
    describe_classic,
    describe_consumer,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchResponse


class ListedGroup(NamedTuple):
    """A group as a list shows it; ``state`` and ``type`` are empty if the broker is too old."""

    group: str
    type: str
    state: str
    protocol_type: str


class Groups:
    """Group calls on a cluster. Every method raises KafkaError with the broker's own words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = CoordinatorFinder(cluster, GROUP)

    async def coordinator(self, group: str, purpose: str = "") -> Connection:
        """Return a connection to a group's coordinator; ``purpose`` as in ``Cluster``."""
        return await self._coordinators.connection(group, purpose)

    def forget_coordinator(self, group: str) -> None:
        """Ask anew who coordinates ``group``: the last answer was wrong."""
        self._coordinators.forget(group)

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[ListedGroup]:
        """Return the groups of all brokers, by name. A filter that is empty lets all through."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        found = {
            one.group_id: ListedGroup(
                one.group_id, one.group_type.lower(), one.group_state, one.protocol_type
            )
            for answer in await self._cluster.ask_every_broker(request, ListGroupsResponse)
            for one in answer.groups
        }
        return [found[name] for name in sorted(found)]

    async def describe(self, group: str) -> GroupDescription:
        """Return a group, of the classic or the newer protocol. Raises GROUP_ID_NOT_FOUND."""

        async def attempt() -> GroupDescription:
            connection = await self.coordinator(group)
            request = DescribeGroupsRequest(groups=[group])
            answer = await connection.call(request, DescribeGroupsResponse)
            (one,) = answer.groups
            is_unknown = one.error_code == ErrorCode.GROUP_ID_NOT_FOUND or one.group_state == "Dead"
            if not is_unknown:
                self._coordinators.check(group, one.error_code, one.error_message)
                return describe_classic(one, self._coordinators.node_of(group))
            if ConsumerGroupDescribeRequest.API_KEY in connection.exchange.versions:
                newer = await connection.call(
                    ConsumerGroupDescribeRequest(
                        group_ids=[group], include_authorized_operations=False
                    ),
                    ConsumerGroupDescribeResponse,
                )
                (other,) = newer.groups
                if other.error_code == ErrorCode.NONE:
                    return describe_consumer(other, self._coordinators.node_of(group))
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")

        return await self._cluster.retrying(attempt)

    async def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        stable: bool = False,
    ) -> dict[TopicPartition, Committed]:
        """Return a group's committed offsets, of ``partitions`` or (None) all there are.

        Partitions without one are absent. ``stable``: wait while a transaction that commits some of
        them is open.
        """
        request = committed_request(group, partitions, stable=stable)

        async def attempt() -> dict[TopicPartition, Committed]:
            connection = await self.coordinator(group)
            answer = await connection.call(request, OffsetFetchResponse, highest=NAMES_ONLY)
            return read_committed_offsets(group, answer)

        return await self._cluster.retrying(attempt)

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int = NOBODY,
        member_id: str = "",
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Commit offsets; without a generation only a group without members takes them."""
        request = commit_request(
            group, offsets, generation=generation, member_id=member_id, metadata=metadata
        )

        async def attempt() -> None:
            connection = await self.coordinator(group)
            answer = await connection.call(request, OffsetCommitResponse, highest=NAMES_ONLY)
            for topic in answer.topics:
                for one in topic.partitions:
                    self._coordinators.check(group, one.error_code, None)

        await self._cluster.retrying(attempt)

    async def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets."""

        async def attempt() -> None:
            connection = await self.coordinator(group)
            request = DeleteGroupsRequest(groups_names=[group])
            answer = await connection.call(request, DeleteGroupsResponse)
            for one in answer.results:
                self._coordinators.check(group, one.error_code, None)

        await self._cluster.retrying(attempt)

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets. Raises GROUP_SUBSCRIBED_TO_TOPIC if members read the topic."""
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, index in partitions:
            each = OffsetDeleteRequestPartition(partition_index=index)
            by_topic.setdefault(topic, []).append(each)
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=each)
                for name, each in by_topic.items()
            ],
        )

        async def attempt() -> None:
            connection = await self.coordinator(group)
            answer = await connection.call(request, OffsetDeleteResponse)
            self._coordinators.check(group, answer.error_code, None)
            for topic in answer.topics:
                for one in topic.partitions:
                    self._coordinators.check(group, one.error_code, None)

        await self._cluster.retrying(attempt)
