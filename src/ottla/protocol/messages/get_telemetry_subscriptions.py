"""GetTelemetrySubscriptions, API key 71: tells which metrics are wanted (KIP-714)."""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    client_instance_id: TopicId = uuid()


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    client_instance_id: TopicId = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
