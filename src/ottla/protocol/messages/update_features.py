"""UpdateFeatures, API key 57: changes the feature levels that the cluster finalizes (KIP-584).

v1 adds validate_only and upgrade_type; v2 no longer answers per feature.
"""

from ottla.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0", default=False)
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", default=[])
