"""ListConfigResources, API key 74: lists the resources that have configs.

v0 lists client metrics resources only (KIP-714); v1 any of the asked types, all when none is asked
(KIP-1142).
"""

from ottla.protocol.schema import Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = array(int8, "1+", default=[])


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    config_resources: list[ConfigResource] = array(ConfigResource)
