"""Who may commit, delete offsets or delete a group, and when. Pure.

Source: Kafka's ClassicGroup (validateOffsetCommit and beside), asked of a live Kafka.
"""

from typing import Protocol

from ottla.coordinator.group.classic.group import ClassicGroup, GroupState
from ottla.errors import ErrorCode, KafkaError


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


def check_commit(group: ClassicGroup | None, commit: Committer) -> None:
    """Raise KafkaError unless the offsets may be written. ``group`` None: it is not known.

    A client that is in no group may commit to a group without members, known or not.
    """
    if group is None:
        if commit.generation >= 0:
            code = ErrorCode.ILLEGAL_GENERATION
            if commit.tells_unknown_group:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            raise KafkaError(code, "there is no such group")
        return
    if commit.generation < 0 and group.state is GroupState.EMPTY:
        return
    if commit.generation >= 0 or commit.member_id or commit.instance_id is not None:
        group.check_member(commit.member_id, commit.instance_id)
        if commit.generation != group.generation:
            why = f"generation {commit.generation}, it is {group.generation} now"
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, why)
    elif not commit.is_transactional:  # Those named no member before v3.
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members")
    if not commit.is_transactional and group.state is GroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "assignments are on their way")


def check_offset_delete(group: ClassicGroup) -> None:
    """Raise KafkaError (NON_EMPTY_GROUP) if members use the group for something of their own."""
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group is {group.state.value}")


def check_delete(group: ClassicGroup) -> None:
    """Raise KafkaError (NON_EMPTY_GROUP) unless the group has no members."""
    if group.state is not GroupState.EMPTY:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group is {group.state.value}")
