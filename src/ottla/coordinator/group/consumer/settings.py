"""What the node's options mean to groups of the consumer protocol: plain values."""

from enum import Enum
from typing import NamedTuple

from ottla.ids import INT32_MAX


class MigrationPolicy(Enum):
    """``group.consumer.migration.policy``: the conversions that are allowed."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerSettings(NamedTuple):
    """The node's options for all KIP-848 groups; see ``group.consumer.*``."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    """The pause between two assignments of a group; changes meanwhile are assigned together."""
    members_max: int
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic_members_max: int = INT32_MAX
    """``group.max.size``: a larger group does not become a classic one."""


class ConsumerSettingsByGroup:
    """The settings of each KIP-848 group: its own configs, else the node's options."""

    def __init__(self, of_node: ConsumerSettings) -> None:
        self._of_node = of_node
        self._own: dict[str, ConsumerSettings] = {}

    def of(self, group_id: str) -> ConsumerSettings:
        """Return a group's present settings. Call it each time: they may change."""
        return self._own.get(group_id, self._of_node)

    @property
    def of_node(self) -> ConsumerSettings:
        """The settings of groups without configs of their own."""
        return self._of_node

    def take(self, group_id: str, own: ConsumerSettings) -> None:
        """Set a group's own settings; those of the node: the group has none of its own."""
        if own == self._of_node:
            self._own.pop(group_id, None)
        else:
            self._own[group_id] = own
