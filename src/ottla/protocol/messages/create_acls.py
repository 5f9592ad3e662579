"""CreateAcls, API key 30: adds ACLs.

v1 adds the pattern type (KIP-290); v2 is flexible; v3 knows the user resource (KIP-373).
"""

from ottla.protocol.schema import Message, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array(AclCreationResult)
