"""PushTelemetry, API key 72: a client hands in its metrics (KIP-714)."""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    client_instance_id: TopicId = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
