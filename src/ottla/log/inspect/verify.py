"""Whether a partition's files hold what they should: read every byte, change none.

Owns the judgement on each file of a partition directory, by the rules of recovery (``log.recovery``
decides the same at a start, and acts): a bad batch below the recovery point is corruption, one
above it a torn tail; an index is a cache, so a wrong one is a warning. Batches are read in one
pass, and the index entries checked in passing. Used by the command line, on directories that a
broker may be using: what grows meanwhile is no finding. Source: reliability rules 7 to 11.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.log.files.checkpoints import read_epoch_checkpoint, read_partition_metadata
from ottla.log.files.layout import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    parse_snapshot_file,
    segment_file,
)
from ottla.log.inspect.dump import (
    AbortedEntry,
    IndexEntry,
    TimeIndexEntry,
    Unreadable,
    dump_file,
    why_invalid,
)
from ottla.log.inspect.findings import Finding, Severity
from ottla.log.segment.scan import Batch, Walk
from ottla.log.segment.segment import RELATIVE_OFFSET_MAX
from ottla.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    BatchHeader,
    read_header,
)

RESTORE = (
    "restore the file from a copy; until then readers stop there, and a start after a crash takes"
    " the partition offline"
)
REBUILT = "nothing: it is rebuilt from the log when it is needed"


class Claims(NamedTuple):
    """What else is known of a partition, from its data directory's checkpoints."""

    recovery_point: int = 0
    """Exclusive; all below it was made durable."""
    log_start_offset: int = 0
    is_clean: bool = False
    """The last process stopped cleanly: every byte was durable."""
    is_running: bool = False
    """A broker has the directory open: the end of the log may be half written."""


class VerifiedSegment(NamedTuple):
    """What was read of one segment; comes after the findings in it."""

    path: str
    size_bytes: int
    batch_count: int
    record_count: int
    end_offset: int
    """One above its last record; its base offset when it is empty."""


Outcome = Finding | VerifiedSegment


def verify_partition(
    disk: Disk, directory: str, claims: Claims, *, deep: bool = False
) -> Iterator[Outcome]:
    """Verify the partition in ``directory``, segment by segment. Blocks; changes nothing.

    ``deep``: the records in the batches are checked, too. Raises OSError.
    """
    names = disk.list_directory(directory)
    bases = _base_offsets(names)
    if not bases:
        yield from _without_segments(directory, claims)
    end_offset = bases[0] if bases else 0
    epochs = _Epochs()
    for ordinal, base_offset in enumerate(bases):
        path = f"{directory}/{segment_file(base_offset, LOG_SUFFIX)}"
        yield from _order(path, base_offset, end_offset, is_first=ordinal == 0)
        is_last = ordinal == len(bases) - 1
        segment = _Segment(disk, directory, base_offset, claims, epochs, is_last=is_last, deep=deep)
        yield from segment.verify()
        end_offset = max(segment.end_offset, base_offset)
    if bases:
        yield from _ends(directory, bases, end_offset, claims)
    yield from _caches(disk, directory, names, end_offset, epochs)


def _base_offsets(names: list[str]) -> list[int]:
    parsed = (parse_segment_file(name) for name in names)
    return sorted(each[0] for each in parsed if each is not None and each[1] == LOG_SUFFIX)


def _without_segments(directory: str, claims: Claims) -> Iterator[Finding]:
    if claims.recovery_point > claims.log_start_offset:
        what = f"no segments; the recovery point is {claims.recovery_point}"
        yield Finding(Severity.ERROR, directory, what, "its log files are gone", RESTORE)


def _order(path: str, base_offset: int, expected: int, *, is_first: bool) -> Iterator[Finding]:
    if base_offset < expected:
        what = f"begins at offset {base_offset}, its predecessor ends at {expected}"
        yield Finding(Severity.ERROR, path, what, "two segments hold the same offsets", RESTORE)
    elif base_offset > expected and not is_first:
        what = f"offsets {expected} to {base_offset - 1} are in no segment"
        why = "usual in a compacted topic; in another one a segment is missing"
        yield Finding(
            Severity.WARNING, path, what, why, "compare with a copy if it is not compacted"
        )


def _ends(directory: str, bases: list[int], end_offset: int, claims: Claims) -> Iterator[Finding]:
    path = f"{directory}/{segment_file(bases[-1], LOG_SUFFIX)}"
    if end_offset < claims.recovery_point:
        what = f"the log ends at offset {end_offset}, its recovery point is {claims.recovery_point}"
        why = "records that were durable are missing: the file was cut or replaced"
        yield Finding(Severity.ERROR, path, what, why, RESTORE)
    if claims.log_start_offset > end_offset:
        what = f"the log starts at {claims.log_start_offset} and ends at {end_offset}"
        why = "the log start offset checkpoint and the log are not of one time"
        yield Finding(Severity.ERROR, path, what, why, RESTORE)


class _Epochs:
    """The leader epochs as the batches tell them: (epoch, first offset), ascending."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def falls(self, epoch: int) -> bool:
        return epoch != NO_LEADER_EPOCH and bool(self.entries) and epoch < self.entries[-1][0]

    def note(self, epoch: int, offset: int) -> None:
        if epoch != NO_LEADER_EPOCH and (not self.entries or epoch > self.entries[-1][0]):
            self.entries.append((epoch, offset))


class _Segment:
    """One pass over a log file and, beside it, its indexes. ``end_offset`` is a result."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        claims: Claims,
        epochs: _Epochs,
        *,
        is_last: bool,
        deep: bool,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._claims = claims
        self._epochs = epochs
        self._is_last = is_last
        self._deep = deep
        self._path = f"{directory}/{segment_file(base_offset, LOG_SUFFIX)}"
        self.end_offset = base_offset

    def verify(self) -> Iterator[Outcome]:
        offsets = _OffsetIndexCheck(self._disk, self._path_of(OFFSET_INDEX_SUFFIX))
        times = _TimeIndexCheck(self._disk, self._path_of(TIME_INDEX_SUFFIX))
        batch_count = record_count = 0
        file = self._disk.open_read_only(self._path)
        try:
            size_bytes = file.size()
            for found in self._batches(file, size_bytes):
                if isinstance(found, Finding):
                    yield found
                    continue
                batch, header = found
                yield from self._judge(batch, header)
                offsets.see(batch)
                times.see(batch)
                batch_count += 1
                record_count += header.record_count
        finally:
            file.close()
        yield from offsets.finish(size_bytes)
        yield from times.finish(size_bytes)
        yield from self._transactions()
        yield VerifiedSegment(self._path, size_bytes, batch_count, record_count, self.end_offset)

    def _transactions(self) -> Iterator[Finding]:
        """Check the segment's transaction index, if it has one."""
        path = self._path_of(TRANSACTION_INDEX_SUFFIX)
        rows = dump_file(self._disk, path) if self._disk.exists(path) else None
        lowest = self._base_offset
        for row in rows or ():
            what = row.why if isinstance(row, Unreadable) else None
            if isinstance(row, AbortedEntry):
                if row.version or not lowest <= row.last_offset < self.end_offset:
                    what = f"an abort at offset {row.last_offset}, out of order or place"
                elif row.first_offset > row.last_offset:
                    what = f"a transaction of offsets {row.first_offset} to {row.last_offset}"
                lowest = row.last_offset + 1
            if what is not None:
                fix = "nothing: it is made anew when the partition is opened"
                yield Finding(Severity.WARNING, path, what, "an index is a cache", fix)
                return

    def _path_of(self, suffix: str) -> str:
        return f"{self._directory}/{segment_file(self._base_offset, suffix)}"

    def _batches(
        self, file: File, size_bytes: int
    ) -> Iterator[tuple[Batch, BatchHeader] | Finding]:
        """Yield what can be read; behind a batch of which only the contents are wrong, go on."""
        position = 0
        while position < size_bytes:
            walk = Walk(file, position, size_bytes, verify_crc=True)
            for batch in walk:
                header = BatchHeader(*walk.header)
                if self._deep:
                    view = memoryview(file.read_at(batch.position, batch.size_bytes))
                    why = why_invalid(header, view, deep=True)
                    if why is not None:
                        yield self._bad(batch.position, why, "its records cannot be read")
                yield batch, header
            if walk.stopped_by is None:
                return
            position = walk.position
            after = _resume(file, position, size_bytes, self.end_offset)
            if after is None:
                yield self._stopped(position, size_bytes, walk.stopped_by)
                return
            yield self._damaged(position, walk.stopped_by)
            self.end_offset = read_header(file.read_at(position, HEADER_SIZE_BYTES)).next_offset
            position = after

    def _judge(self, batch: Batch, header: BatchHeader) -> Iterator[Finding]:
        if batch.base_offset < self.end_offset:
            what = f"batch at offset {batch.base_offset} after offset {self.end_offset - 1}"
            yield self._bad(batch.position, what, "offsets do not rise")
        if batch.last_offset - self._base_offset > RELATIVE_OFFSET_MAX:
            what = f"offset {batch.last_offset} is too far from the segment's base"
            yield self._bad(batch.position, what, "no index entry can name it")
        if self._epochs.falls(batch.leader_epoch):
            what = f"leader epoch {batch.leader_epoch} after {self._epochs.entries[-1][0]}"
            yield self._bad(batch.position, what, "leader epochs do not fall")
        self._epochs.note(batch.leader_epoch, batch.base_offset)
        self.end_offset = max(self.end_offset, batch.last_offset + 1)

    def _bad(self, position: int, what: str, why: str) -> Finding:
        return Finding(Severity.ERROR, self._path, what, why, RESTORE, position)

    def _stopped(self, position: int, size_bytes: int, why: str) -> Finding:
        """Judge bytes at the end that are no batches: a torn tail, or a hole."""
        left = size_bytes - position
        is_durable = self.end_offset < self._claims.recovery_point or self._claims.is_clean
        if is_durable or not self._is_last:
            what = f"{left} bytes after offset {self.end_offset - 1} are no batches: {why}"
            return self._bad(position, what, "what stood there was durable")
        if self._claims.is_running:
            what = f"{left} bytes at the end are no whole batch yet: {why}"
            fix = "nothing: the broker that runs here is writing"
            return Finding(Severity.NOTE, self._path, what, "", fix, position)
        what = f"{left} bytes at the end are no whole batch: {why}"
        told = "a write that was cut short; it lies above the recovery point"
        fix = "nothing: the next start cuts it off"
        return Finding(Severity.WARNING, self._path, what, told, fix, position)

    def _damaged(self, position: int, why: str) -> Finding:
        """Judge a batch that is there in full size, but is not what it was."""
        if self.end_offset >= self._claims.recovery_point and not self._claims.is_clean:
            told = "it lies above the recovery point: the next start cuts the log here"
            fix = "copy the file first if the batches behind it matter"
            return Finding(Severity.WARNING, self._path, why, told, fix, position)
        return self._bad(position, why, "it has changed since it was durable")


def _resume(file: File, position: int, end: int, expected: int) -> int | None:
    """Return where the batch behind a damaged one starts; None unless that is plain."""
    head = file.read_at(position, HEADER_SIZE_BYTES)
    if len(head) < HEADER_SIZE_BYTES:
        return None
    header = read_header(head)
    after = position + header.size_bytes
    if header.magic != MAGIC_V2 or header.batch_length < BATCH_LENGTH_MIN or after > end:
        return None
    if header.base_offset < expected or header.last_offset_delta < 0:
        return None
    if after == end:
        return after
    following = file.read_at(after, HEADER_SIZE_BYTES)
    if len(following) < HEADER_SIZE_BYTES:
        return None
    return after if read_header(following).base_offset > header.last_offset else None


# indexes ------------------------------------------------------------------------------------------


class _OffsetIndexCheck:
    """Follows the batches and says which entries of a ``.index`` file lead astray."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._path = path
        self._rows = dump_file(disk, path) if disk.exists(path) else iter(())
        self._entry: IndexEntry | None = None
        self._wrong: str | None = None
        self._next()

    def _next(self) -> None:
        row = next(self._rows, None) if self._rows is not None else None
        if isinstance(row, Unreadable):
            self._wrong = self._wrong or row.why
            row = None
        before, self._entry = self._entry, row if isinstance(row, IndexEntry) else None
        if before is not None and self._entry is not None and self._entry.offset <= before.offset:
            self._wrong = self._wrong or f"offset {self._entry.offset} after {before.offset}"

    def see(self, batch: Batch) -> None:
        """Compare with a batch; they come in the file's order."""
        while (entry := self._entry) is not None and entry.position <= batch.position:
            if entry.position < batch.position or not (
                batch.base_offset <= entry.offset <= batch.last_offset
            ):
                self._wrong = self._wrong or (
                    f"offset {entry.offset} at byte {entry.position} is no batch of the log"
                )
            self._next()

    def finish(self, log_size_bytes: int) -> Iterator[Finding]:
        """Tell what was wrong."""
        if self._entry is not None and self._entry.position >= log_size_bytes:
            self._wrong = self._wrong or (
                f"byte {self._entry.position} in a log of {log_size_bytes} bytes"
            )
        if self._wrong is not None:
            yield Finding(Severity.WARNING, self._path, self._wrong, "an index is a cache", REBUILT)


class _TimeIndexCheck:
    """The same for a ``.timeindex``: each entry is the largest time up to its batch."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._path = path
        self._rows = dump_file(disk, path) if disk.exists(path) else iter(())
        self._latest = -1
        self._entry: TimeIndexEntry | None = None
        self._wrong: str | None = None
        self._next()

    def _next(self) -> None:
        row = next(self._rows, None) if self._rows is not None else None
        if isinstance(row, Unreadable):
            self._wrong = self._wrong or row.why
            row = None
        before, self._entry = self._entry, row if isinstance(row, TimeIndexEntry) else None
        if before and self._entry and self._entry.timestamp < before.timestamp:
            self._wrong = self._wrong or f"time {self._entry.timestamp} after {before.timestamp}"

    def see(self, batch: Batch) -> None:
        """Compare with a batch; they come in the file's order."""
        self._latest = max(self._latest, batch.max_timestamp)
        while (entry := self._entry) is not None and entry.offset <= batch.last_offset:
            if entry.timestamp != self._latest:
                self._wrong = self._wrong or (
                    f"time {entry.timestamp} up to offset {entry.offset}; it is {self._latest}"
                )
            self._next()

    def finish(self, log_size_bytes: int) -> Iterator[Finding]:
        """Tell what was wrong. An entry beyond the end belongs to nothing."""
        if self._entry is not None and log_size_bytes and self._entry.timestamp >= 0:
            self._wrong = self._wrong or f"offset {self._entry.offset} lies beyond the log's end"
        if self._wrong is not None:
            yield Finding(Severity.WARNING, self._path, self._wrong, "an index is a cache", REBUILT)


# the other files ----------------------------------------------------------------------------------


def _caches(
    disk: Disk, directory: str, names: list[str], end_offset: int, epochs: _Epochs
) -> Iterator[Finding]:
    for name in names:
        offset = parse_snapshot_file(name)
        if offset is not None:
            yield from _snapshot(disk, f"{directory}/{name}", offset, end_offset)
    if LEADER_EPOCH_CHECKPOINT in names:
        yield from _epoch_checkpoint(disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}", epochs)
    path = f"{directory}/{PARTITION_METADATA}"
    if PARTITION_METADATA in names and read_partition_metadata(disk, path) is None:
        what = "it does not hold a topic id"
        why = "a creation that was cut short, or damage"
        fix = "nothing: the topic's id is written anew when the broker hosts the partition"
        yield Finding(Severity.WARNING, path, what, why, fix)


def _snapshot(disk: Disk, path: str, offset: int, end_offset: int) -> Iterator[Finding]:
    rows = dump_file(disk, path)
    fix = "nothing: what it says of producers is read from the log"
    if rows is not None and any(isinstance(row, Unreadable) for row in rows):
        what = "not a snapshot, or its sum is wrong"
        yield Finding(Severity.WARNING, path, what, "a snapshot is a cache", fix)
    elif offset > end_offset:
        what = f"taken at offset {offset}; the log ends at {end_offset}"
        yield Finding(Severity.WARNING, path, what, "of a history that was cut off", fix)


def _epoch_checkpoint(disk: Disk, path: str, epochs: _Epochs) -> Iterator[Finding]:
    entries = read_epoch_checkpoint(disk, path)
    fix = "nothing: a start after a crash reads them from the batches"
    if entries is None:
        what = "not exactly a leader epoch checkpoint"
        yield Finding(Severity.WARNING, path, what, "", fix)
        return
    told = {entry.epoch: entry.start_offset for entry in entries}
    first_epoch = entries[0].epoch if entries else 0
    for epoch, offset in epochs.entries:
        if epoch > first_epoch and told.get(epoch) != offset:
            what = f"epoch {epoch} begins at {told.get(epoch, 'no offset')}; the log says {offset}"
            yield Finding(Severity.WARNING, path, what, "", fix)
