"""One flush of a log on its way through an executor: what to sync, and what that will prove.

Made by ``Log.begin_flush`` on the loop, run anywhere, handed back to ``Log.finish_flush`` on the
loop. It holds its files open by itself and carries the generation of the log it was made for, so
that a late sync can never raise the flushed offset of a log that was truncated meanwhile
(reliability rules 1 and 19).
"""

from collections.abc import Callable, Sequence

from ottla.env.disk import Disk, File
from ottla.env.executor import Executor
from ottla.log.checkpoints import EpochStart, write_epoch_checkpoint
from ottla.log.faults import sync, sync_failed
from ottla.log.layout import LEADER_EPOCH_CHECKPOINT
from ottla.log.segment import Segment
from ottla.log.tenancy import Tenancy, TenancyOver

Done = Callable[["FlushJob", BaseException | None], None]


class FlushJob:
    """Everything appended before ``target_offset`` is durable once ``run`` has returned."""

    __slots__ = (
        "_directory",
        "_disk",
        "_done",
        "_epochs",
        "_files",
        "_tenancy",
        "generation",
        "rolled",
        "target_offset",
    )

    def __init__(
        self,
        *,
        target_offset: int,
        generation: int,
        rolled: Sequence[Segment],
        active: File,
        disk: Disk,
        directory: str,
        epochs: list[EpochStart] | None,
        tenancy: Tenancy,
    ) -> None:
        self.target_offset = target_offset
        """Exclusive: the log end offset when the flush began."""
        self.generation = generation
        self.rolled = rolled
        """Segments that are full, and were not durable when the flush began."""
        self._files = [*(segment.file for segment in rolled), active] if rolled else [active]
        self._disk = disk
        self._directory = directory
        self._epochs = epochs
        self._tenancy = tenancy

    @property
    def saves_epochs(self) -> bool:
        """Whether the leader epoch checkpoint is written, too."""
        return self._epochs is not None

    def submit(self, executor: Executor, done: Done) -> None:
        """Have ``run`` done by ``executor``, then ``done``; the usual case the short way.

        Once. One object per flush goes through the queues, for a request may flush very many logs.
        """
        self._done = done
        if self._epochs is not None or len(self._files) > 1:
            executor.submit(self.run, self._ran)
        else:
            executor.submit_sync(self._files[0], self._synced)

    def _ran(self, _: None, error: BaseException | None) -> None:
        self._done(self, error)

    def _synced(self, _: None, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            error = sync_failed(error, self._files[0])
        self._done(self, error)

    def run(self) -> None:
        """Sync. Blocks; on any thread. Raises SyncFailed: the data's fate is unknown then.

        Any other OSError comes before the first sync: nothing has happened. Does nothing when the
        log has given its directory up.
        """
        if self._tenancy.is_over:
            return
        if self._epochs is not None:
            path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
            try:
                with self._tenancy.inside():
                    write_epoch_checkpoint(self._disk, path, self._epochs)
            except TenancyOver:
                return
        for file in self._files:
            sync(file)
