"""ApiVersions, key 18: tells which APIs this broker serves. Clients ask it first.

v3 adds the client's software name and version (KIP-511), v4 advertises features whose lowest level
is 0 (KIP-584). The table comes from the router, so nothing is advertised that is not served.
Two features are advertised. ``transaction.version`` 2 tells clients to raise their epoch with every
transaction, and to add partitions by writing to them (KIP-890). ``group.version`` 1 tells them that
there are groups of the consumer protocol (KIP-848).
"""

import re
from collections.abc import Callable, Mapping

from ottla.coordinator.transaction.version import SERVER_VERSION
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.protocol.apis import ApiKey
from ottla.protocol.fields import Versions
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_LEVEL_0_SINCE = 4
"""Before this version a client may fail on a feature whose lowest level is 0."""
_FEATURES_EPOCH = 0
FEATURES: Mapping[str, int] = {"group.version": 1, "transaction.version": SERVER_VERSION}
"""The level of each feature, which is also the highest supported one; the lowest is 0."""


class ApiVersions:
    """Answers from the router's table."""

    def __init__(self, served: Callable[[], Mapping[ApiKey, Versions]]) -> None:
        self._served = served
        self._keys: list[ApiVersion] | None = None

    def handle(self, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
        """Return every served API; INVALID_REQUEST for an unusable software name or version."""
        if call.api_version >= _SOFTWARE_SINCE and not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        if self._keys is None:
            self._keys = [
                ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
                for key, versions in self._served().items()
            ]
        supported = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
        ]
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=self._keys,
            supported_features=supported if call.api_version >= _LEVEL_0_SINCE else [],
            finalized_features_epoch=_FEATURES_EPOCH,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in FEATURES.items()
            ],
        )
