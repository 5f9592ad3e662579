"""DescribeGroups, API key 15: shows state, protocol and members of classic groups.

v1 adds throttle_time_ms; v3 authorized operations (KIP-430); v4 group_instance_id; v5 is flexible;
v6 answers GROUP_ID_NOT_FOUND with an error_message instead of a "Dead" group (KIP-1043).
"""

from ottla.protocol.schema import Message, Struct, array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string("6+", nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)
