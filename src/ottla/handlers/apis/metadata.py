"""Metadata, key 3: the brokers, and the leaders of the partitions of some topics.

v1 null means all topics, v4 auto-creation is the client's choice, v5 offline replicas, v7 leader
epochs, v8-v10 authorized operations (KIP-430), v10 topic ids, v12 topics by id, v13 rebootstrap
(KIP-1102). While a topic is being created automatically it is UNKNOWN_TOPIC_OR_PARTITION, as in
Kafka: clients ask again.
"""

from ottla.cluster.controller import Controller
from ottla.cluster.topics import topic_name_error
from ottla.errors import ErrorCode
from ottla.handlers.advertised import Advertised
from ottla.handlers.call import Call
from ottla.handlers.leadership import Leaderships
from ottla.handlers.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.values import PartitionState
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.sliced import STRIDE, Steps, each, each_in_steps, sifted

NULL_MEANS_ALL_SINCE = 1
BY_ID_SINCE = 12


class Metadata:
    """Answers from the metadata image; asks the controller to create missing topics."""

    def __init__(
        self,
        image: MetadataImage,
        controller: Controller,
        advertised: Advertised,
        leaderships: Leaderships,
        *,
        auto_create: bool,
    ) -> None:
        self._image = image
        self._controller = controller
        self._advertised = advertised
        self._leaderships = leaderships
        self._auto_create = auto_create

    def handle(self, request: MetadataRequest, call: Call) -> Steps[MetadataResponse]:
        """Answer without waiting for automatic creation, which goes on after the answer."""
        image = self._image
        refused = _refusal(request, call.api_version)
        if refused is not None:
            return refused
        operations = request.include_topic_authorized_operations
        if self._wants_all(request, call):
            topics = yield from each_in_steps(
                list(image.topics.values()), lambda topic: self._topic(topic, operations)
            )
        else:
            topics = yield from self._named(request, image, call)
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=host, port=port, rack=rack)
                for node, host, port, rack in self._advertised.brokers(image, call.client)
            ],
            cluster_id=image.cluster_id,
            controller_id=image.controller,
            topics=topics,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    @staticmethod
    def _wants_all(request: MetadataRequest, call: Call) -> bool:
        if call.api_version < NULL_MEANS_ALL_SINCE:
            return not request.topics
        return request.topics is None

    def _named(
        self, request: MetadataRequest, image: MetadataImage, call: Call
    ) -> Steps[list[MetadataResponseTopic]]:
        operations = request.include_topic_authorized_operations
        access = call.client.access
        found: list[MetadataResponseTopic] = []
        missing: list[str] = []
        seen: dict[tuple[TopicId, str | None], MetadataRequestTopic] = {}
        yield from each(
            request.topics or [], lambda one: seen.setdefault((one.topic_id, one.name), one)
        )
        for asked in seen.values():  # Repetitions are dropped, the order is kept.
            if len(found) % STRIDE == STRIDE - 1:
                yield None
            if asked.topic_id != NULL_TOPIC_ID:
                topic = image.topic_by_id(asked.topic_id)
                if topic is not None and access is not None:  # It may have come since the guard.
                    topic = topic if access.may_describe(topic.name) else None
                found.append(
                    MetadataResponseTopic(
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                        name=None,
                        topic_id=asked.topic_id,
                        partitions=[],
                    )
                    if topic is None
                    else (yield from self._topic(topic, operations))
                )
                continue
            name = asked.name or ""
            topic = image.topics.get(name)
            if topic is not None:
                found.append((yield from self._topic(topic, operations)))
                continue
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic_name_error(name) is not None:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            else:
                missing.append(name)
            unknown = MetadataResponseTopic(
                error_code=code, name=name, is_internal=is_internal(name), partitions=[]
            )
            if operations:
                unknown.topic_authorized_operations = TOPIC_OPERATIONS
            found.append(unknown)
        if missing and request.allow_auto_topic_creation and self._auto_create:
            if access is not None:  # A topic may be gone since a guard has found it.
                missing, _ = yield from sifted(missing, access.may_create_topic)
            self._controller.auto_create(missing, call.take(strict_since=None))
        return found

    def _topic(self, topic: TopicImage, operations: bool) -> Steps[MetadataResponseTopic]:
        partitions = yield from each(
            enumerate(topic.partitions), lambda one: self._partition(topic.name, *one)
        )
        answer = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=partitions,
        )
        if operations:
            answer.topic_authorized_operations = TOPIC_OPERATIONS
        return answer

    def _partition(
        self, topic: str, index: int, state: PartitionState
    ) -> MetadataResponsePartition:
        code, leader, offline_replicas = self._leaderships.of(topic, index, state)
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=offline_replicas,
        )


def is_internal(name: str) -> bool:
    """Whether a topic holds state of the broker's own (groups, transactions)."""
    return name in ("__consumer_offsets", "__transaction_state", "__share_group_state")


def _refusal(request: MetadataRequest, version: int) -> MetadataResponse | None:
    """Return the answer to a request that names topics in a way its version cannot; else None."""
    code = ErrorCode.NONE
    for topic in request.topics or []:
        if topic.topic_id != NULL_TOPIC_ID and version < BY_ID_SINCE:
            code = ErrorCode.INVALID_REQUEST
        elif topic.topic_id == NULL_TOPIC_ID and topic.name is None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
    if code is ErrorCode.NONE:
        return None
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
            )
            for topic in request.topics or []
        ],
    )
