"""One snapshot of a log's producers that is taken beside the appends, not by one of them.

A roll takes its snapshot at once; between rolls this one bounds what a start after a crash has to
replay (reliability rule 11). In steps, so that a hundred thousand producers never hold up the loop:

    begin      on the loop: what holds now is kept as it is while appends go on
    encode     on the loop, some producers at a time
    run        in an executor: write and sync, the transaction index first (rule 12)
    publish    on the loop: the file gets its name, unless the log was cut or closed meanwhile
    clean_up   in an executor: make the name durable, then remove older ones
    end        on the loop: the log knows that no power cut can take it

Driven by housekeeping.snapshot_sweep. Between it and log.producer_snapshot.
"""

from contextlib import suppress
from posixpath import dirname

from ottla.env.disk import Disk
from ottla.log.files import faults
from ottla.log.files.layout import TEMPORARY_SUFFIX
from ottla.log.files.tenancy import TenancyOver
from ottla.log.log import Log
from ottla.log.producers.snapshot import SnapshotEncoder
from ottla.log.segment.transaction_sum import NOTHING, write_sum

RECORDS_MAX = 100_000
"""A log that grew by so many records since its last snapshot is due for one."""
RECORDS_MIN = 1_000
"""One that grew by fewer is not: their replay costs less than the files."""
AGE_MS_MAX = 60_000
"""One that grew by a number in between is due when its last snapshot is so old."""


def is_due(log: Log, now_ms: int) -> bool:
    """Tell whether ``log`` should have a snapshot taken. ``now_ms`` is monotonic."""
    producers = log.producers
    grown = log.log_end_offset - producers.snapshot_offset(log.segments.base_offset)
    if grown < RECORDS_MIN or not len(producers.states) or not log.is_in_service:
        return False
    return grown >= RECORDS_MAX or now_ms - producers.snapshot_ms >= AGE_MS_MAX


class SnapshotJob:
    """What was known of a log's producers at one moment, on its way to the disk."""

    __slots__ = (
        "_content",
        "_disk",
        "_encoder",
        "_generation",
        "_index_path",
        "_index_proof",
        "_log",
        "_old",
        "_path",
        "_temporary_path",
        "offset",
    )

    def __init__(self, log: Log, disk: Disk) -> None:
        """Keep what holds now. On the loop. Raises OSError when the disk is full."""
        self._log = log
        self._disk = disk
        self.offset = log.log_end_offset
        """The log ended there."""
        producers = log.producers
        self._generation = producers.generation
        self._path = producers.snapshots.path_of(self.offset)
        self._temporary_path = f"{self._path}.job{TEMPORARY_SUFFIX}"
        """Another one than a roll's, which may come at the same offset meanwhile."""
        index = log.segments.active.transaction_index
        self._index_path: str | None = None
        self._index_proof = NOTHING
        if index is not None and not index.is_synced:
            index.write()
            self._index_path, self._index_proof = index.path, index.proof
        self._encoder = SnapshotEncoder(producers.states.freeze())
        self._content = b""
        self._old: list[str] = []

    def encode(self, count: int) -> bool:
        """Encode up to ``count`` more producers; True when there are none left."""
        return self._encoder.advance(count)

    def run(self) -> None:
        """Write the file under another name and sync it. In an executor.

        Raises OSError; TenancyOver when the log has given its directory up.
        """
        with self._log.tenancy.inside():
            self._write()

    def _write(self) -> None:
        if self._index_path is not None:
            # Older segments' indexes were synced when they were rolled, or at the start.
            file = self._disk.open(self._index_path)
            try:
                faults.sync(file)
            finally:
                file.close()
            write_sum(self._disk, self._index_path, self._index_proof)
            faults.sync_directory(self._disk, dirname(self._index_path))
        self._content = self._encoder.content()
        file = self._disk.open(self._temporary_path, create=True)
        try:
            file.truncate(0)
            file.write_at(0, self._content)
            faults.sync(file)
        finally:
            file.close()

    def publish(self, now_ms: int) -> bool:
        """Give the file its name. On the loop.

        False when it tells of a history that is no more, or segments are being swapped, or the
        log held: then it is to be discarded. Raises OSError.
        """
        log, producers = self._log, self._log.producers
        if producers.generation != self._generation or not log.is_in_service or log.is_swapping:
            return False
        self._disk.rename(self._temporary_path, self._path)
        self._old = producers.snapshots.add(self.offset, self._log.sure_offset)
        producers.snapshot_ms = now_ms
        return True

    def discard(self) -> None:
        """Remove what was written without getting its name. In an executor. Does not raise."""
        with suppress(OSError, TenancyOver), self._log.tenancy.inside():
            self._disk.remove(self._temporary_path)

    def clean_up(self) -> None:
        """Make the name durable, then remove older snapshots. In an executor. Raises as ``run``."""
        with self._log.tenancy.inside():
            faults.sync_directory(self._disk, dirname(self._path))
            for path in self._old:
                self._disk.remove(path)

    def end(self) -> None:
        """Note that it is durable, after ``clean_up``. On the loop."""
        producers = self._log.producers
        if producers.generation == self._generation:
            producers.snapshots.note_durable(self.offset)
