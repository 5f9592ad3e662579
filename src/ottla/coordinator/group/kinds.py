"""The table of the kinds of groups, and the port that the room of each kind fulfils.

A kind of group is a room with one class that fulfils ``GroupsOfKind``, and a line in ``kinds_of``:
then its groups are loaded, listed, described, expired and deleted as all others. What only one kind
is asked (a heartbeat of KIP-848) is a method of that class, beside the port.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.classic.requests import ClassicRequests
from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.group.consumer.settings import ConsumerSettingsByGroup
from ottla.coordinator.group.group_line import GroupLine
from ottla.coordinator.group.migration.conversions import Conversions
from ottla.coordinator.group.migration.members import ClassicMembers
from ottla.coordinator.group.registry import Group, GroupKind, Registry
from ottla.coordinator.group.settings import GroupSettings
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.coordinator.shard import Shard
from ottla.errors import KafkaError


class GroupsOfKind(Protocol):
    """What the room of a kind of group does for the shard."""

    @property
    def kind(self) -> GroupKind:
        """The kind of these groups."""

    @property
    def key_types(self) -> Collection[int]:
        """The types of key that its records in ``__consumer_offsets`` have."""

    def replay(self, key_type: int, stored: StoredRecord) -> None:
        """Take a durable record of one of those types. Raises KafkaError (CORRUPT_MESSAGE)."""

    def loaded(self) -> Iterator[None]:
        """Give the members of every group a new session, in steps: all records are replayed."""

    def unloaded(self, error: KafkaError) -> None:
        """Answer every member that waits with ``error``: the shard has ended."""

    def topics_changed(self, names: Collection[str]) -> None:
        """Let groups hear of topics that were made, deleted or resized."""

    def group(self, group_id: str) -> Group:
        """Return a group of this kind. Raises KafkaError (GROUP_ID_NOT_FOUND)."""

    def tombstones(self, group: Group) -> list[CoordinatorRecord]:
        """Return the records that delete a group of this kind, without its offsets."""


class Kind(NamedTuple):
    """One kind of group."""

    groups: GroupsOfKind
    requests_to: Callable[[Group], ClassicRequests]
    """Returns who serves requests of the classic protocol to a group of this kind."""


class Common(NamedTuple):
    """The collaborators of the rooms of one shard."""

    shard: Shard[Any]
    settings: GroupSettings
    by_group: ConsumerSettingsByGroup
    """The settings of KIP-848 groups."""
    topics: Topics
    groups: Registry
    line: GroupLine
    """One line for all kinds: a group may be about to become one of another kind."""
    tombstones_of: Callable[[Group], list[CoordinatorRecord]]
    """Returns what deletes a group of any kind, without its offsets."""


MakeKinds = Callable[[Common], Sequence[Kind]]


def kinds_of(common: Common) -> Sequence[Kind]:
    """Return the table of all kinds, in the order in which ``loaded`` is called."""
    shard, settings, by_group, topics, groups, line, tombstones_of = common
    classic = ClassicGroups(shard, settings.classic, groups, line, tombstones_of)
    conversions = Conversions(shard, by_group, topics, classic)
    consumer = ConsumerGroups(
        shard, by_group, topics, groups=groups, conversions=conversions, line=line
    )
    members = ClassicMembers(shard, by_group, topics, consumer, conversions)
    return (
        Kind(classic, lambda _: classic),
        # A KIP-848 group without members becomes a classic one when a classic member joins.
        Kind(consumer, lambda group: classic if group.is_empty else members),
    )
