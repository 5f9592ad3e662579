"""One commit on its way through its shard: may it be, what is written, and who is told.

An operation of the shard (``run``), what follows in memory when it is durable (``apply``), and the
end (``done``), in one object: commits are what group coordinators do most, and three closures and a
Pending for each cost as much as the write. Whether a commit may be is decided by its group; what it
becomes, in ``committing``.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable
from typing import NamedTuple

from ottla.coordinator.group.committing import RECORD_BYTES_MIN, CommitRequest, Written, write
from ottla.coordinator.group.registry import check_unknown_commit
from ottla.coordinator.group.shard import GroupsShard
from ottla.errors import ErrorCode, KafkaError


class NewGroups(NamedTuple):
    """What a commit may need that makes a group."""

    check_room: Callable[[str, ErrorCode], None]
    """Raises KafkaError of that code if there may not be one more group."""
    begin: Callable[[str], Callable[[], None]]
    """Count a group that is on its way; what it returns is called when it has arrived."""
    metadata_length_max: int


class OffsetWrite:
    """See the module."""

    __slots__ = ("_arrived", "_new_groups", "_request", "_shard", "_told", "_written", "is_done")

    _written: Written

    def __init__(
        self,
        shard: GroupsShard,
        request: CommitRequest,
        told: Callable[[list[ErrorCode] | KafkaError], None],
        new_groups: NewGroups,
    ) -> None:
        """``told``: called once, with a code per partition, or with why nothing is written."""
        self._shard = shard
        self._request = request
        self._told = told
        self._new_groups = new_groups
        self._arrived: Callable[[], None] | None = None
        self.is_done = False
        """Use: whoever waits has been told."""

    def run(self) -> None:
        """Write, in the commit's turn. Raises KafkaError."""
        shard, request = self._shard, self._request
        machine, group_id = shard.machine, request.group_id
        group = machine.groups.get(group_id)
        if request.check is not None:
            request.check()
        if group is None:
            check_unknown_commit(request)
            self._new_groups.check_room(group_id, ErrorCode.POLICY_VIOLATION)
        else:
            group.check_commit(request)
            if request.member_id:
                machine.requests_to(group_id).heard_of(group_id, request.member_id)
        count = 0
        for topic in request.topics:
            count += len(topic.partitions)
        if count > 1:  # One is as soon made.
            shard.check_room(count, RECORD_BYTES_MIN)
        length_max = self._new_groups.metadata_length_max
        written = self._written = write(request, shard.clock.wall_ms(), length_max)
        if not written.records:
            self.resolve(written.codes)
            return
        if group is None:
            self._arrived = self._new_groups.begin(group_id)
        shard.append(written.records, self.done, apply=self.apply, producer=request.producer)
        if not self.is_done:
            machine.commit_timeouts.watch(self)

    def apply(self, base_offset: int) -> None:
        """Let memory follow: the commit stands in the log from there on."""
        self._shard.machine.take_commit(self._request, self._written, base_offset)

    def done(self, error: KafkaError | None) -> None:
        """Tell who waits: it is durable and in memory, or why it is not."""
        arrived, self._arrived = self._arrived, None
        if arrived is not None:
            arrived()
        if not self.is_done:  # It may have taken too long.
            self.resolve(self._written.codes if error is None else error)

    def resolve(self, outcome: list[ErrorCode] | KafkaError) -> None:
        """Tell who waits, once."""
        self.is_done = True
        self._told(outcome)
