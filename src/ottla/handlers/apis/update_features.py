"""UpdateFeatures, key 57: the levels of features (KIP-584, KIP-1022).

Ottla has each feature at one level, which cannot be changed: an update to that level is done, any
other fails (INVALID_UPDATE_VERSION), all or nothing, as in Kafka 4.3.
"""

from collections.abc import Mapping

from ottla.errors import ErrorCode
from ottla.handlers.apis.api_versions import FEATURES
from ottla.handlers.call import Call
from ottla.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.sliced import STRIDE, Steps, each

_FAILED = "The update failed for all features since the following feature had an error: "
UPGRADE_TYPES = (1, 2, 3)
"""Upgrade, safe downgrade, unsafe downgrade."""


class UpdateFeatures:
    """Says why levels stay as they are."""

    def __init__(self, features: Mapping[str, int] = FEATURES) -> None:
        self._features = features

    def handle(self, request: UpdateFeaturesRequest, call: Call) -> Steps[UpdateFeaturesResponse]:
        """Succeed if all that is asked for is so already."""
        del call
        for count, update in enumerate(request.feature_updates, 1):
            if not count % STRIDE:
                yield None
            why = self._why_not(update)
            if why is not None:
                return UpdateFeaturesResponse(
                    error_code=ErrorCode.INVALID_UPDATE_VERSION,
                    error_message=f"{_FAILED}Invalid update version {update.max_version_level} "
                    f"for feature {update.feature}. {why}",
                )
        results = yield from each(
            request.feature_updates,
            lambda one: UpdatableFeatureResult(feature=one.feature, error_message="NONE"),
        )
        return UpdateFeaturesResponse(results=results)

    def _why_not(self, update: FeatureUpdateKey) -> str | None:
        level = update.max_version_level
        present = self._features.get(update.feature)
        if level < 0:
            return "A feature version cannot be less than 0."
        if update.upgrade_type not in UPGRADE_TYPES:
            return "The controller does not support the given upgrade type."
        if present is None:
            if not level:
                return f"Feature {update.feature} not found."
            return "This broker does not support this feature."
        if level > present:
            return f"This broker only supports versions 0-{present}"
        if level < present:
            return f"Its version is {present} and cannot be changed."
        return None
