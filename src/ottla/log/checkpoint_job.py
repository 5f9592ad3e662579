"""The offset checkpoints of all log directories, on their way to the disk.

What is to be written is copied on the loop; the writing is done in an executor. A directory that
refuses does not keep the others from theirs, and a full one gives its reserve up. Between
log.manager and log.checkpoints. Source: reliability rules 4, 5 and 18.
"""

from collections.abc import Mapping
from posixpath import dirname

from ottla.env.disk import Disk
from ottla.ids import TopicPartition
from ottla.log.checkpoints import write_offset_checkpoint
from ottla.log.directory import LogDirectory
from ottla.log.faults import is_out_of_space


class CheckpointJob:
    """Recovery points and log start offsets as of one moment, on their way to the disk."""

    __slots__ = ("_directories", "_disk", "failures", "files", "filled")

    def __init__(
        self,
        disk: Disk,
        directories: Mapping[str, LogDirectory],
        files: dict[str, dict[TopicPartition, int]],
    ) -> None:
        self._disk = disk
        self._directories = directories
        self.files = files
        self.failures: dict[str, OSError] = {}
        """By log directory: why its checkpoints are not what they should be."""
        self.filled: set[str] = set()
        """Log directories that were full, whether the reserve helped or not."""

    def run(self) -> None:
        """Write the checkpoints. Blocks; on any thread, one job at a time.

        A directory that refuses does not stop the others: see ``failures``.
        """
        for path, offsets in self.files.items():
            log_dir = dirname(path)
            try:
                try:
                    write_offset_checkpoint(self._disk, path, offsets)
                except OSError as error:
                    if not is_out_of_space(error):
                        raise
                    self.filled.add(log_dir)
                    self._directories[log_dir].free_reserve()
                    write_offset_checkpoint(self._disk, path, offsets)
            except OSError as error:
                self.failures[log_dir] = error
