"""ApiVersions, API key 18: tells which APIs and versions are served. A client's first request.

v1 adds throttle_time_ms; v3 is flexible, names the client's software (KIP-511) and answers features
as tagged fields (KIP-584); v4 allows features whose minimum version is 0. The response *header* is
never flexible, and a version from the future is answered in v0 with UNSUPPORTED_VERSION: a client
must be able to read the answer before it knows anything.
"""

from ottla.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: str = string("3+", default="")
    client_software_version: str = string("3+", default="")


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: int = int16(default=0)
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", default=0)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", default=[], tag=0
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", default=[], tag=2
    )
    zk_migration_ready: bool = boolean("3+", default=False, tag=3)
