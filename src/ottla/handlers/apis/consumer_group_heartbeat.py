"""ConsumerGroupHeartbeat, key 68: the one request by which members of KIP-848 groups take part.

In v0 a member may join without an id and is given one; from v1 on it makes its own (KIP-1082).
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
    """Passes the heartbeat to the group coordinator."""

    def __init__(self, groups: GroupCoordinator, rng: Rng, *, names_max: int) -> None:
        self._groups = groups
        self._names_max = names_max
        self._rng = rng

    def handle(
        self, request: ConsumerGroupHeartbeatRequest, call: Call
    ) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
        """Answer when everything that the heartbeat changes is durable."""
        if len(request.subscribed_topic_names or ()) > self._names_max:
            why = f"More than {self._names_max} subscribed topic names."
            return _refused(KafkaError(ErrorCode.INVALID_REQUEST, why))
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
            None if (access := call.client.access) is None else access.may_describe,
        )
        return self._groups.consumer_heartbeat(request.group_id, beat).then(_respond, _refused)


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code, error_message=error.why, member_epoch=0, heartbeat_interval_ms=0
    )


def _respond(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in answer.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )
