"""UnregisterBroker, API key 64: takes a broker that is gone out of the cluster (KIP-500)."""

from ottla.protocol.schema import Message, int16, int32, string


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    broker_id: int = int32()


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
