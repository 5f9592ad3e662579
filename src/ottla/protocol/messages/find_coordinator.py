"""FindCoordinator, API key 10: tells which broker coordinates a group, transaction or share key.

key_type: 0 group, 1 transaction, 2 share ("group:topicId:partition"). v1 adds key_type,
error_message and throttle_time_ms; v3 is flexible; v4 asks for many keys at once (KIP-699); v5 may
answer TRANSACTION_ABORTABLE; v6 knows key type 2 (KIP-932).
"""

from ottla.protocol.schema import Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array(string, "4+", default=[])


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="0+", default=None)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", default=[])
