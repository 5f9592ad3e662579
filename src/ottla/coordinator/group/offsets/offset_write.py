"""Takes one offset commit through its shard: checks it, writes it, and tells the client.

The operation of the shard (``run``), the change of memory (``apply``) and the end (``done`` or
``refuse``) are one object: group coordinators do nothing as often as commits, and four closures and
a Pending for each would cost as much as the write. The group decides whether a commit is allowed;
``committing`` makes its records.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ottla.coordinator.group.offsets.commit_timeouts import CommitTimeouts
from ottla.coordinator.group.offsets.committing import (
    RECORD_BYTES_MIN,
    CommitRequest,
    Written,
    write,
)
from ottla.coordinator.group.registry import Registry, check_commit_without_group
from ottla.coordinator.operations import Refuse
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode, KafkaError


class GroupMemory(Protocol):
    """The part of the shard's memory that a commit reads and changes."""

    @property
    def groups(self) -> Registry:
        """The groups of the shard."""

    @property
    def commit_timeouts(self) -> CommitTimeouts:
        """The commits that wait for the disk."""

    def heard_of(self, group_id: str, member_id: str) -> None:
        """Hear that a member of the group commits."""

    def take_commit(self, request: CommitRequest, written: Written, base_offset: int) -> None:
        """Take a durable commit whose records begin at ``base_offset``."""


class NewGroups(NamedTuple):
    """What a commit needs that makes a group."""

    check_room: Callable[[str, ErrorCode], None]
    """Raises KafkaError with that code if there may not be one more group."""
    begin: Callable[[str], Callable[[], None]]
    """Counts a group that is being written; its result is called when the write has ended."""
    metadata_length_max: int


class OffsetWrite:
    """One offset commit."""

    __slots__ = (
        "_arrived",
        "_new_groups",
        "_refused",
        "_request",
        "_shard",
        "_told",
        "_written",
        "is_done",
    )

    _written: Written

    def __init__(
        self,
        shard: Shard[Any],
        request: CommitRequest,
        told: Callable[[list[ErrorCode]], None],
        refused: Refuse,
        new_groups: NewGroups,
    ) -> None:
        """One callback is called, once: ``told`` with a code per partition, or ``refused``."""
        self._shard = shard
        self._request = request
        self._told = told
        self._refused = refused
        self._new_groups = new_groups
        self._arrived: Callable[[], None] | None = None
        self.is_done = False
        """Use: the client has its answer."""

    def run(self) -> None:
        """Write, in the commit's turn. Raises KafkaError."""
        shard, request = self._shard, self._request
        machine: GroupMemory = shard.machine
        group_id = request.group_id
        group = machine.groups.get(group_id)
        if request.check is not None:
            request.check()
        if group is None:
            check_commit_without_group(request)
            self._new_groups.check_room(group_id, ErrorCode.POLICY_VIOLATION)
        else:
            group.check_offset_commit(request)
            if request.member_id:
                machine.heard_of(group_id, request.member_id)
        count = 0
        for topic in request.topics:
            count += len(topic.partitions)
        if count > 1:  # The record of one is made as fast.
            shard.check_room(count, RECORD_BYTES_MIN)
        length_max = self._new_groups.metadata_length_max
        written = self._written = write(request, shard.clock.wall_ms(), length_max)
        if not written.records:
            self.done()
            return
        if group is None:
            self._arrived = self._new_groups.begin(group_id)
        shard.append(
            written.records, self.done, self.refuse, apply=self.apply, producer=request.producer
        )
        if not self.is_done:
            machine.commit_timeouts.watch(self)

    def apply(self, base_offset: int) -> None:
        """Let memory follow: the commit's records begin at ``base_offset`` in the log."""
        self._shard.machine.take_commit(self._request, self._written, base_offset)

    def done(self) -> None:
        """Tell the client: the commit is durable and in memory."""
        self._arrive()
        if not self.is_done:  # It may have timed out.
            self.is_done = True
            self._told(self._written.codes)

    def refuse(self, error: KafkaError) -> None:
        """Tell the client why the commit is not written."""
        self._arrive()
        self.give_up(error)

    def give_up(self, error: KafkaError) -> None:
        """Refuse the commit to its client, though it may still become durable."""
        if not self.is_done:
            self.is_done = True
            self._refused(error)

    def _arrive(self) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is not None:
            arrived()
