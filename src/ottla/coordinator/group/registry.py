"""The groups of one shard by id, and what a group of any kind answers.

A kind of group is a room (``classic``, ``consumer``) whose group answers what stands in ``Group``.
A group that has offsets and never had a member is a classic one. Who has an id asks here once, and
then asks the group; only what concerns one kind (a heartbeat of KIP-848, DescribeGroups) names it.
Source: Kafka's Group interface.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId


class GroupKind(Enum):
    """The value is what ListGroups says."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Committer(Protocol):
    """What is looked at of an OffsetCommit."""

    @property
    def member_id(self) -> str:
        """Empty: it names none."""

    @property
    def instance_id(self) -> str | None:
        """None: no static member."""

    @property
    def generation(self) -> int:
        """Negative: of a client that is in no group."""

    @property
    def tells_unknown_group(self) -> bool:
        """Whether it understands GROUP_ID_NOT_FOUND."""

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""

    def places(self) -> Iterable[tuple[TopicId, int]]:
        """Return the partitions it commits."""


class Group(Protocol):
    """What every kind of group answers. The checks raise KafkaError with Kafka's code."""

    @property
    def group_id(self) -> str:
        """Its id."""

    @property
    def kind(self) -> GroupKind:
        """Its room."""

    @property
    def state(self) -> Enum:
        """The value is what ListGroups and the Describes say."""

    @property
    def protocol_type(self) -> str | None:
        """What its members are; None: nobody ever joined."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member reads ``topic``, as far as that is known."""

    def check_commit(self, commit: Committer) -> None:
        """Raise KafkaError unless the offsets may be written."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless who says to be this member may read offsets.

        None and -1: a client that names no member.
        """

    def check_offset_delete(self) -> None:
        """Raise KafkaError if offsets may not be deleted, whatever their topics."""

    def check_delete(self) -> None:
        """Raise KafkaError (NON_EMPTY_GROUP) unless the group may be deleted."""

    def retained_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """Return from when on the retention of an offset counts; None: the group keeps it."""

    def check(self) -> None:
        """Assert the invariants; for tests."""


def check_unknown_commit(commit: Committer) -> None:
    """Raise KafkaError unless offsets may be written to a group that is not there."""
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
    """One group per id; one of another kind takes the place of the first."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> Group | None:
        """Return a group; None: there is none of that id."""
        return self._groups.get(group_id)

    def known(self, group_id: str) -> Group:
        """Return a group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def of(self, kind: type[AnyGroup], group_id: str) -> AnyGroup | None:
        """Return a group of one kind; None: there is none of that id and kind."""
        group = self._groups.get(group_id)
        return group if isinstance(group, kind) else None

    def all_of(self, kind: type[AnyGroup]) -> list[AnyGroup]:
        """Return the groups of one kind."""
        return [group for group in self._groups.values() if isinstance(group, kind)]

    def put(self, group: Group) -> None:
        """Take a group in, in the place of any other of its id."""
        self._groups[group.group_id] = group

    def remove(self, group: Group) -> None:
        """Forget a group, unless another one has its id by now."""
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    def clear(self) -> None:
        """Forget all of them."""
        self._groups = {}
