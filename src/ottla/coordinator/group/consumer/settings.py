"""What the node's options mean to groups of the consumer protocol: plain values."""

from enum import Enum
from typing import NamedTuple

from ottla.config.bounds import INT32_MAX


class MigrationPolicy(Enum):
    """``group.consumer.migration.policy``: which ways are open."""

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
    """What the node's options say to all KIP-848 groups; see ``group.consumer.*``."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    """Between two assignments of a group: what changes meanwhile is assigned at once."""
    members_max: int
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic_members_max: int = INT32_MAX
    """``group.max.size``: a larger group does not become a classic one."""
