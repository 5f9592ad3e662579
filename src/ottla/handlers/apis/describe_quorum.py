"""DescribeQuorum, key 55: who decides on the metadata, and how far it is (KIP-595, KIP-836).

There is no log of metadata here, but a store that counts its commits. So the leader, and only
voter, is the controller; its epoch is the commit by which it became that; the high watermark is the
newest commit that this node has heard of. How far other nodes are nobody knows: they are no
observers.
"""

from ottla.env.clock import Clock
from ottla.errors import ErrorCode
from ottla.handlers.advertised import Advertised
from ottla.handlers.call import Call
from ottla.ids import INT32_MAX
from ottla.metadata.image import MetadataImage
from ottla.metadata.values import NO_LEADER
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)
from ottla.sliced import Steps, each, each_in_steps

METADATA_TOPIC = "__cluster_metadata"
_MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class DescribeQuorum:
    """Answers from the image."""

    def __init__(self, image: MetadataImage, advertised: Advertised, clock: Clock) -> None:
        self._image = image
        self._advertised = advertised
        self._clock = clock

    def handle(self, request: DescribeQuorumRequest, call: Call) -> Steps[DescribeQuorumResponse]:
        """Describe the one partition of metadata; a request for anything else has nothing (3)."""
        named = [
            (topic.topic_name, part.partition_index)
            for topic in request.topics[:2]
            for part in topic.partitions[:2]
        ]
        if named != [(METADATA_TOPIC, 0)]:
            topics = yield from each_in_steps(request.topics, _nothing_of)
            return DescribeQuorumResponse(error_message="", topics=topics)
        image = self._image
        now_ms = self._clock.wall_ms()
        leader = image.controller
        voters = [
            ReplicaState(
                replica_id=leader,
                log_end_offset=image.revision,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ]
        has_leader = leader != NO_LEADER
        partition = ResponsePartitionData(
            partition_index=0,
            error_message="",
            leader_id=leader,
            leader_epoch=min(image.controller_since, INT32_MAX),
            high_watermark=image.revision,
            current_voters=voters if has_leader else [],
            observers=[],
        )
        nodes = [
            Node(
                node_id=node,
                listeners=[Listener(name=call.client.listener, host=host, port=port)],
            )
            for node, host, port, _ in self._advertised.brokers(image, call.client)
            if node == leader
        ]
        topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return DescribeQuorumResponse(error_message="", topics=[topic], nodes=nodes)


def _nothing_of(topic: TopicData) -> Steps[ResponseTopicData]:
    partitions = yield from each(
        topic.partitions,
        lambda part: ResponsePartitionData(
            partition_index=part.partition_index,
            error_code=_MISSING,
            error_message=_MISSING.text,
            leader_id=0,
            leader_epoch=0,
            high_watermark=0,
            current_voters=[],
            observers=[],
        ),
    )
    return ResponseTopicData(topic_name=topic.topic_name, partitions=partitions)
