"""Brings the configs of groups from the metadata to the running groups.

Between the metadata image and ``ConsumerSettingsByGroup``: members hear of a change with the answer
to their next heartbeat. Knows no group.
"""

from collections.abc import Iterable, Mapping

from ottla.config.config import Config
from ottla.config.group import (
    ASSIGNMENT_INTERVAL_MS,
    GROUP_TABLE,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    stored_group_config,
)
from ottla.coordinator.group.consumer.settings import ConsumerSettings, ConsumerSettingsByGroup
from ottla.metadata.image import MetadataImage
from ottla.metadata.keys import ConfigType


class GroupConfigs:
    """The configs of groups."""

    def __init__(self, image: MetadataImage, settings: ConsumerSettingsByGroup) -> None:
        self._image = image
        self._settings = settings

    def take_all(self) -> None:
        """Take all configs of groups, at the start."""
        self.take(self._image.configured(ConfigType.GROUP))

    def take(self, group_ids: Iterable[str]) -> None:
        """Take the present configs of these groups."""
        for group_id in group_ids:
            texts = self._image.config(ConfigType.GROUP, group_id)
            self._settings.take(group_id, _own(texts, self._settings.of_node))


def _own(texts: Mapping[str, str], of_node: ConsumerSettings) -> ConsumerSettings:
    config = stored_group_config(texts, Config(GROUP_TABLE))
    own = of_node
    if config.is_given(SESSION_TIMEOUT_MS):
        own = own._replace(session_timeout_ms=config[SESSION_TIMEOUT_MS])
    if config.is_given(HEARTBEAT_INTERVAL_MS):
        own = own._replace(heartbeat_interval_ms=config[HEARTBEAT_INTERVAL_MS])
    if config.is_given(ASSIGNMENT_INTERVAL_MS):
        own = own._replace(assignment_interval_ms=config[ASSIGNMENT_INTERVAL_MS])
    return own
