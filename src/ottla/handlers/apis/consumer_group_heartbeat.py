"""ConsumerGroupHeartbeat, key 68: all that a member of a KIP-848 group says, and is told.

Before v1 a member may come without an id and gets one; from then on it brings its own (KIP-1082).
"""

from base64 import urlsafe_b64encode

from ottla.coordinator.group.consumer.machine import Heartbeat, HeartbeatAnswer
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.env.rng import Rng
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

OWN_IDS_SINCE = 1


class ConsumerGroupHeartbeat:
    """Hands the request to the group."""

    def __init__(self, groups: GroupCoordinator, rng: Rng, *, names_max: int) -> None:
        self._groups = groups
        self._names_max = names_max
        self._rng = rng

    def handle(
        self, request: ConsumerGroupHeartbeatRequest, call: Call
    ) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
        """Answer when what the heartbeat changes is durable."""
        if len(request.subscribed_topic_names or ()) > self._names_max:
            why = f"More than {self._names_max} subscribed topic names."
            return _respond(KafkaError(ErrorCode.INVALID_REQUEST, why))
        member_id = request.member_id
        if not member_id and request.member_epoch == 0 and call.api_version < OWN_IDS_SINCE:
            member_id = urlsafe_b64encode(self._rng.random_bytes(16)).decode().rstrip("=")
        owned = None
        if request.topic_partitions is not None:
            owned = {one.topic_id: one.partitions for one in request.topic_partitions}
        beat = Heartbeat(
            member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            request.subscribed_topic_names,
            request.subscribed_topic_regex,
            request.server_assignor,
            owned,
            call.client_id or "",
            f"/{call.client.host}",
        )
        return self._groups.consumer_heartbeat(request.group_id, beat).then(_respond)


def _respond(outcome: HeartbeatAnswer | KafkaError) -> ConsumerGroupHeartbeatResponse:
    if isinstance(outcome, KafkaError):
        return ConsumerGroupHeartbeatResponse(
            error_code=outcome.code,
            error_message=outcome.why,
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
    assignment = None
    if outcome.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in outcome.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=outcome.member_id,
        member_epoch=outcome.epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
        assignment=assignment,
    )
