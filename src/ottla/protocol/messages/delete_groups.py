"""DeleteGroups, API key 42: deletes empty groups and their offsets (KIP-229).

v2 is flexible.
"""

from ottla.protocol.schema import Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16(default=0)


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
