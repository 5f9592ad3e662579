"""Which leader wrote which part of a log: the leader epoch cache and its checkpoint.

Owns the (epoch, start offset) pairs of one partition. A follower and a consumer find with it where
two histories part (KIP-101, KIP-279, KIP-320). Kept in memory; the file
``leader-epoch-checkpoint`` becomes durable with the flush that covers the first batch of a new
epoch, so below the recovery point it is never behind the log. Above, recovery fills it from the
batches themselves.
"""

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.log.files.checkpoints import EpochStart, write_epoch_checkpoint
from ottla.log.files.layout import LEADER_EPOCH_CHECKPOINT
from ottla.records.batch import NO_LEADER_EPOCH

NO_OFFSET = -1
_epoch_of = itemgetter(0)
_start_of = itemgetter(1)


class EpochEnd(NamedTuple):
    """``end_offset`` is exclusive. Both -1: the log knows no answer."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one log, ascending in epoch and in start offset."""

    __slots__ = ("_front", "entries", "is_dirty", "latest")

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self.entries = list(entries or ())
        """Invariant: epochs strictly ascend, start offsets do not descend."""
        self.latest = self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH
        """Use: compared at every append. Invariant: the last entry's epoch, -1 without entries."""
        self._front: list[EpochStart] = []
        """Use: what ``truncate_from_start`` cut or took, as it was. See ``to_save``."""
        self.is_dirty = False
        """True while the checkpoint file is behind ``to_save``."""

    @property
    def to_save(self) -> list[EpochStart]:
        """What the checkpoint says, until the next start.

        With the epochs before the log start offset: that may not be durable, and after a crash the
        log may start where it did before.
        """
        last = self._front[-1].epoch if self._front else NO_LEADER_EPOCH
        return [*self._front, *(entry for entry in self.entries if entry.epoch > last)]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that ``epoch`` starts at ``start_offset``. Does nothing when it is known already.

        Entries that contradict it (from a history that was cut off) go.
        """
        if epoch == self.latest or epoch < 0:
            return
        while self.entries and (
            self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset
        ):
            self.entries.pop()
        self.entries.append(EpochStart(epoch, start_offset))
        self._changed()

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after ``end_offset``: the log ends there now."""
        keep = bisect_left(self.entries, end_offset, key=_start_of)
        if keep < len(self.entries):
            del self.entries[keep:]
            self._changed()
            del self._front[bisect_left(self._front, end_offset, key=_start_of) :]

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what lies before ``start_offset``; the epoch that spans it starts there now.

        The checkpoint keeps it, see ``to_save``.
        """
        entries = self.entries
        after = bisect_right(entries, start_offset, key=_start_of)
        if after and entries[0].start_offset < start_offset:
            known = self.to_save
            self._front = known[: bisect_right(known, start_offset, key=_start_of)]
            entries[:after] = [EpochStart(entries[after - 1].epoch, start_offset)]

    def knows(self, epoch: int) -> bool:
        """Tell whether records of ``epoch``, or of an older one, are in the log."""
        return bool(self.entries) and self.entries[0].epoch <= epoch

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the leader that wrote ``offset``, or -1 when unknown."""
        after = bisect_right(self.entries, offset, key=_start_of)
        return self.entries[after - 1].epoch if after else NO_LEADER_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest known epoch <= ``epoch`` and where it ends, as Kafka answers it."""
        if epoch == self.latest and epoch != NO_LEADER_EPOCH:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self.entries, epoch, key=_epoch_of)
        if epoch < 0 or after == len(self.entries):
            return EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)
        end_offset = self.entries[after].start_offset
        return EpochEnd(self.entries[after - 1].epoch if after else epoch, end_offset)

    def _changed(self) -> None:
        self.latest = self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH
        self.is_dirty = True

    def save(self, disk: Disk, directory: str) -> None:
        """Bring the checkpoint in ``directory`` up to date. Blocks. Raises OSError."""
        path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        if self.is_dirty or not disk.exists(path):
            write_epoch_checkpoint(disk, path, self.to_save)
            self.is_dirty = False
