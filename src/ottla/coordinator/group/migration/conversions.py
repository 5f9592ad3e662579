"""Carries out conversions between classic and KIP-848 groups.

Between the pure ``conversion`` and the rooms of both kinds, which know nothing of each other.
Source: Kafka's GroupMetadataManager in its effect.
"""

import logging
from collections.abc import Collection
from functools import partial
from typing import Any

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.classic.records import group_tombstone
from ottla.coordinator.group.consumer.group import ConsumerGroup, no_consumer_group
from ottla.coordinator.group.consumer.groups import Departure, Opening
from ottla.coordinator.group.consumer.settings import ConsumerSettingsByGroup
from ottla.coordinator.group.migration.conversion import (
    Downgrade,
    check_upgrade,
    downgraded,
    may_downgrade,
    upgraded,
)
from ottla.coordinator.group.registry import Group
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.shard import Shard
from ottla.sliced import Steps

logger = logging.getLogger(__name__)


class Conversions:
    """The conversions of a shard's groups."""

    def __init__(
        self,
        shard: Shard[Any],
        settings: ConsumerSettingsByGroup,
        topics: Topics,
        classic: ClassicGroups,
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._topics = topics
        self._classic = classic

    def settled(self, group: Group) -> Steps[None]:
        """Wait until no record of a classic group is on its way.

        A SyncGroup that waits for its record is answered then: a conversion that went ahead of it
        would give the partitions in that answer to others.
        """
        write = self._classic.written(group.group_id)
        if write is not None:
            yield write

    def from_other(self, group: Group) -> Steps[Opening]:
        """Return the KIP-848 group that ``group`` becomes. Raises KafkaError if it may not."""
        if not isinstance(group, ClassicGroup):
            raise no_consumer_group(group.group_id)
        group_id = group.group_id
        if group.is_empty:
            return Opening(ConsumerGroup(group_id), [group_tombstone(group_id)])
        settings = self._settings.of(group_id)
        check_upgrade(group, settings.migration_policy, members_max=settings.members_max)
        upgrade = yield from upgraded(group, self._topics)
        return Opening(upgrade.group, upgrade.records, partial(self._dismiss, group))

    def _dismiss(self, group: ClassicGroup) -> None:
        logger.info("group %.249r uses the consumer protocol from now on", group.group_id)
        self._classic.dismiss(group)

    def to_other(self, group: ConsumerGroup, gone: Collection[str]) -> Steps[Departure | None]:
        """Return what makes ``group`` a classic one when these members are ``gone``.

        None: it stays a KIP-848 group.
        """
        settings = self._settings.of(group.group_id)
        policy, members_max = settings.migration_policy, settings.classic_members_max
        if not may_downgrade(group, gone, policy, members_max=members_max):
            return None
        now_ms = self._shard.clock.wall_ms()
        downgrade = yield from downgraded(group, gone, None, self._topics, now_ms)
        if downgrade is None:
            return None
        return Departure(downgrade.records, partial(self.adopt, downgrade))

    def adopt(self, downgrade: Downgrade) -> None:
        """Give a group, whose records are durable, to the room of classic groups."""
        logger.info("group %.249r uses the classic protocol from now on", downgrade.group.group_id)
        self._classic.adopt(downgrade.group, rejoin=not downgrade.is_settled)

    def left_behind(self, group_id: str) -> None:
        """Hear that the log deletes a KIP-848 group; the record of a classic one may follow."""
        self._classic.left_behind(group_id)
