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
from ottla.log.segment import Segment


class FlushJob:
    """Everything appended before ``target_offset`` is durable once ``run`` has returned."""

    __slots__ = (
        "_disk",
        "_epochs",
        "_epochs_path",
        "_files",
        "generation",
        "is_void",
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
        epochs_path: str,
        epochs: list[EpochStart] | None,
    ) -> None:
        self.target_offset = target_offset
        """Exclusive: the log end offset when the flush began."""
        self.generation = generation
        self.is_void = False
        """Set when the log was abandoned: its directory may belong to another topic by now."""
        self.rolled = rolled
        """Segments that are full, and were not durable when the flush began."""
        self._files = [*(segment.file for segment in rolled), active]
        self._disk = disk
        self._epochs_path = epochs_path
        self._epochs = epochs

    @property
    def saves_epochs(self) -> bool:
        """Whether the leader epoch checkpoint is written, too."""
        return self._epochs is not None

    def submit(
        self, executor: Executor, done: Callable[[None, BaseException | None], None]
    ) -> None:
        """Have ``run`` done by ``executor``, then ``done``; the usual case the short way."""
        if self._epochs is not None or len(self._files) > 1:
            executor.submit(self.run, done)
            return
        (file,) = self._files

        def synced(_: None, error: BaseException | None) -> None:
            done(None, sync_failed(error, file) if isinstance(error, OSError) else error)

        executor.submit_sync(file, synced)

    def run(self) -> None:
        """Sync. Blocks; on any thread. Raises SyncFailed: the data's fate is unknown then.

        Any other OSError comes before the first sync: nothing has happened.
        """
        if self.is_void:
            return
        if self._epochs is not None:
            write_epoch_checkpoint(self._disk, self._epochs_path, self._epochs)
        for file in self._files:
            sync(file)
