"""The groups of one shard by id, and the questions that a group of any kind answers.

A kind of group is a room (``classic``, ``consumer``) whose group fulfils ``Group``; ``kinds`` has
the table of kinds. A group that has offsets and never had a member is a classic one. A caller looks
an id up here once, and then asks the group; only requests of one kind (a heartbeat of KIP-848,
DescribeGroups) name the kind. Source: Kafka's Group interface.
"""

from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import NewType, Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId

GroupKind = NewType("GroupKind", str)
"""The name of a kind of group in ListGroups. Each room defines its own."""


class OffsetCommitter(Protocol):
    """The part of an OffsetCommit that a group checks."""

    @property
    def member_id(self) -> str:
        """The member that commits; empty: none."""

    @property
    def instance_id(self) -> str | None:
        """The name of the static member; None: no static member."""

    @property
    def generation(self) -> int:
        """The generation or epoch; negative: the client is in no group."""

    @property
    def tells_unknown_group(self) -> bool:
        """Whether the client's version knows GROUP_ID_NOT_FOUND."""

    @property
    def is_transactional(self) -> bool:
        """Whether the commit is part of a transaction."""

    def places(self) -> Iterable[tuple[TopicId, int]]:
        """Return the partitions that are committed."""


class Group(Protocol):
    """What a group of any kind answers. The checks raise KafkaError with Kafka's code."""

    @property
    def group_id(self) -> str:
        """The group's id."""

    @property
    def kind(self) -> GroupKind:
        """The group's kind."""

    @property
    def state(self) -> Enum:
        """The group's state; its value is the text in ListGroups and the Describe APIs."""

    @property
    def protocol_type(self) -> str | None:
        """What the members are, such as "consumer"; None: nobody ever joined."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member reads ``topic``, as far as that is known."""

    def check_offset_commit(self, commit: OffsetCommitter) -> None:
        """Raise KafkaError unless the offsets may be written."""

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless a client that names this member may read offsets.

        None and -1: the client names no member.
        """

    def check_offset_delete(self) -> None:
        """Raise KafkaError if offsets may not be deleted, whatever their topics."""

    def check_delete(self) -> None:
        """Raise KafkaError (NON_EMPTY_GROUP) unless the group may be deleted."""

    def retained_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """Return when the retention of an offset begins; None: the group keeps the offset."""

    def topics_changed(self, names: Collection[str]) -> None:
        """Hear that these topics were made, deleted or resized."""

    def check(self) -> None:
        """Assert the invariants; for tests."""


def check_commit_without_group(commit: OffsetCommitter) -> None:
    """Raise KafkaError unless offsets may be written for a group that does not exist."""
    if commit.generation >= 0:
        code = ErrorCode.ILLEGAL_GENERATION
        if commit.tells_unknown_group:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        raise KafkaError(code, "there is no such group")


def check_is_empty(group: Group) -> None:
    """Raise KafkaError (NON_EMPTY_GROUP) if the group has members."""
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group is {group.state.value}")


AnyGroup = TypeVar("AnyGroup")


class Registry:
    """The groups by id: one group per id, of whatever kind."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> Group | None:
        """Return a group; None: no group has that id."""
        return self._groups.get(group_id)

    def known(self, group_id: str) -> Group:
        """Return a group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def of(self, kind: type[AnyGroup], group_id: str) -> AnyGroup | None:
        """Return a group of one kind; None: no group of that kind has that id."""
        group = self._groups.get(group_id)
        return group if isinstance(group, kind) else None

    def all_of(self, kind: type[AnyGroup]) -> list[AnyGroup]:
        """Return the groups of one kind."""
        return [group for group in self._groups.values() if isinstance(group, kind)]

    def put(self, group: Group) -> None:
        """Add a group; it replaces any other group of its id."""
        self._groups[group.group_id] = group

    def remove(self, group: Group) -> None:
        """Remove a group, unless another group has its id by now."""
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    def clear(self) -> None:
        """Remove all groups."""
        self._groups = {}
