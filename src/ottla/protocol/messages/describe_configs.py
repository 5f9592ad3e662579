"""DescribeConfigs, API key 32: shows configs of topics, brokers and groups, and their sources.

v1 adds synonyms and config_source (KIP-226); v3 documentation and types (KIP-569); v4 is flexible.
"""

from ottla.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(default=False)
    include_documentation: bool = boolean("3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+", default=0)
    documentation: str | None = string("3+", nullable="0+", default=None)


class DescribeConfigsResult(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
