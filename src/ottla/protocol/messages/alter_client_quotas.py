"""AlterClientQuotas, API key 49: sets and removes quotas (KIP-546).

v1 is flexible.
"""

from ottla.protocol.schema import Message, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class ResponseEntryData(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32(default=0)
    entries: list[ResponseEntryData] = array(ResponseEntryData)
