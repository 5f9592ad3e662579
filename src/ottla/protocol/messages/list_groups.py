"""ListGroups, API key 16: lists the groups that one broker coordinates.

v1 adds throttle_time_ms; v3 is flexible; v4 filters by state (KIP-518); v5 filters by type
(KIP-848).
"""

from ottla.protocol.schema import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(string, "4+", default=[])
    types_filter: list[str] = array(string, "5+", default=[])


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", default="")
    group_type: str = string("5+", default="")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16(default=0)
    groups: list[ListedGroup] = array(ListedGroup)
