"""What the node's options mean to the group coordinator: plain values."""

from typing import NamedTuple

from ottla.coordinator.group.classic_events import ClassicSettings
from ottla.coordinator.group.consumer_machine import ConsumerSettings


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
