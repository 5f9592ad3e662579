"""What the node's options mean to the group coordinator: plain values."""

from typing import NamedTuple

from ottla.coordinator.group.classic.events import ClassicSettings
from ottla.coordinator.group.consumer.settings import ConsumerSettings


class GroupSettings(NamedTuple):
    """The options of the group coordinator."""

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
    offset_commit_timeout_ms: int = 5_000
    """``offsets.commit.timeout.ms``"""
