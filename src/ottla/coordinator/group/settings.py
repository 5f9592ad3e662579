"""What the node's options mean to the group coordinator: plain values."""

from typing import NamedTuple

from ottla.coordinator.group.classic.events import ClassicSettings
from ottla.coordinator.group.consumer.settings import ConsumerSettings


class ConsumerSettingsByGroup:
    """What holds for each KIP-848 group: the node's options, or its own configs above them."""

    def __init__(self, of_node: ConsumerSettings) -> None:
        self._of_node = of_node
        self._own: dict[str, ConsumerSettings] = {}

    def of(self, group_id: str) -> ConsumerSettings:
        """Return what holds now; asked anew each time, since it may change."""
        return self._own.get(group_id, self._of_node)

    @property
    def of_node(self) -> ConsumerSettings:
        """What holds for groups without configs of their own."""
        return self._of_node

    def take(self, group_id: str, own: ConsumerSettings) -> None:
        """Let a group have settings of its own; the node's: it has none."""
        if own == self._of_node:
            self._own.pop(group_id, None)
        else:
            self._own[group_id] = own


class GroupSettings(NamedTuple):
    """See the options of these names."""

    classic: ClassicSettings
    consumer: ConsumerSettings
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    metadata_length_max: int
    """``offset.metadata.max.bytes``; Kafka counts UTF-16 code units."""
    offsets_retention_ms: int
    offsets_retention_check_interval_ms: int
    groups_max: int = 100_000
    """``ottla.groups.max``"""
    commit_timeout_ms: int = 5_000
    """``offsets.commit.timeout.ms``"""
