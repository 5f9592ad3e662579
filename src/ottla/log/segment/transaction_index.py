"""The transaction index: which transactions in a segment were aborted.

Between log.segment and the file ``<base offset>.txnindex``. A reader of committed records is told
of them and leaves their records out. Grammar, big-endian, as Kafka's:

    index = { entry }                    last offsets ascend, last stable offsets do not descend
    entry = version            int16     0
            producer_id        int64
            first_offset       int64     of the transaction; may lie in an earlier segment
            last_offset        int64     of its abort marker, which stands in this segment
            last_stable_offset int64     what it was once the marker was committed

Unlike the sparse indexes it does not follow from the segment's own file: a transaction may begin in
one before. So it is not rebuilt alone but by the replay that finds out what producers did (in
log.producers), and what a snapshot of producers need not replay must be durable here *before* that
snapshot is (reliability rule 12). A segment without aborted transactions has neither file nor
object. Source: Kafka's TransactionIndex, and files that it wrote.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from posixpath import dirname
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ottla.env.disk import Disk, File
from ottla.log.files import faults
from ottla.log.segment.transaction_sum import (
    TransactionSum,
    checksum_of,
    read_sum,
    sum_path,
    write_sum,
)

ENTRY = Struct(">hqqqq")
_LAST_OFFSET = Struct(">18xq8x")
_VERSION = 0
_NONE = -1
_HIGHEST = 2**63 - 1
_FIRST_OFFSET, _LAST_STABLE_OFFSET = 2, 4  # Where they stand in an entry's fields.
_ENTRIES_PER_READ = 512


class AbortedTransaction(NamedTuple):
    """One entry. Both ends of the transaction are inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class KeptEntries(NamedTuple):
    """What an index holds at one moment, for another thread: the index itself is the loop's."""

    file: File | None
    """None: it was not open then."""
    path: str
    written: int
    unwritten: Sequence[AbortedTransaction]

    def read(self, disk: Disk) -> list[AbortedTransaction]:
        """Return all entries. Blocks; on any thread.

        Fewer, when the file has lost some since. Raises FileNotFoundError when it was not open, and
        its name has gone since; OSError.
        """
        found: list[AbortedTransaction] = []
        if self.written:
            file = disk.open_read_only(self.path) if self.file is None else self.file
            try:
                found.extend(entry for _, entry in _entries_in(file, 0, self.written))
            finally:
                if self.file is None:
                    file.close()
        return [*found, *self.unwritten]


class TransactionIndex:
    """The entries of one ``.txnindex`` file. They stay on the disk, but for those to be written."""

    __slots__ = (
        "_checksum",
        "_disk",
        "_file",
        "_is_named",
        "_unwritten",
        "_written",
        "is_synced",
        "last_offset",
        "last_stable_offset",
        "least_first_offset",
        "path",
        "vouched_count",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        """Begin without entries; no file is touched."""
        self._disk = disk
        self.path = path
        self._file: File | None = None
        """Use: keeps what was begun readable while names change. None until needed."""
        self._written = 0
        """Use: where the next write begins. Invariant: so many entries of the file are good."""
        self._checksum = 0
        """Use: vouches for the file, see ``log.transaction_sum``. Invariant: of those written."""
        self.vouched_count = 0
        """So many of the first entries are proven by the checksum beside the file."""
        self._unwritten: list[AbortedTransaction] = []
        """Use: a full disk refuses a write, not an append. Invariant: behind those written."""
        self.is_synced = True
        """Whether all that was written is durable."""
        self._is_named = False
        """Whether the file's name is known to be durable."""
        self.last_offset = _NONE
        """Use: most readers are past it. Invariant: of the last entry; -1 without entries."""
        self.last_stable_offset = _NONE
        """Use: most readers end before it. Invariant: as ``last_offset``."""
        self.least_first_offset = _HIGHEST
        """Use: most readers end before it. Invariant: no entry has a lower first offset."""

    @property
    def is_open(self) -> bool:
        """Tell whether its file is open."""
        return self._file is not None

    @property
    def count(self) -> int:
        """Number of entries."""
        return self._written + len(self._unwritten)

    def load(self, base_offset: int) -> bool:
        """Take over the file of the segment at ``base_offset``, looking at every entry.

        False when there is more in it than good entries: those before are taken over, and the file
        is left as it is until ``cut``. Where its checksum covers other entries none is good; what
        it does not cover is for the caller to hold against the log. Raises FileNotFoundError.
        """
        size_bytes = self._disk.size_of(self.path)
        self._written = size_bytes // ENTRY.size
        self._is_named = True
        known = read_sum(self._disk, self.path)
        if known.entry_count > self._written or known.checksum != self._sum_of(known.entry_count):
            self._written, self.is_synced = 0, False
            self.let_go()
            return False
        self.vouched_count = known.entry_count
        before = AbortedTransaction(_NONE, _NONE, base_offset - 1, _NONE)
        self.is_synced = size_bytes % ENTRY.size == 0
        least_first_offset = _HIGHEST
        for ordinal, (version, entry) in enumerate(self._read(0)):
            if version != _VERSION or not _can_follow(entry, before):
                self._written = ordinal
                self.is_synced = False
                break
            least_first_offset = min(least_first_offset, entry.first_offset)
            before = entry
        if self._written:
            self._note(before)
            self.least_first_offset = least_first_offset
        self._checksum = self._sum_of(self._written)
        is_whole = self.is_synced
        if self.vouched_count != self._written:
            self.is_synced = False  # The next sync vouches for it.
        self.let_go()
        return is_whole

    def _sum_of(self, count: int) -> int:
        if not count:
            return 0
        return checksum_of(self._open().read_at, count * ENTRY.size, _ENTRIES_PER_READ * ENTRY.size)

    @property
    def proof(self) -> TransactionSum:
        """What vouches for the entries that are written."""
        return TransactionSum(self._written, self._checksum)

    def cut(self) -> None:
        """Remove what ``load`` found behind the good entries. Raises OSError."""
        self._open().truncate(self._written * ENTRY.size)

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry in memory; its last offset lies above the last one's."""
        assert entry.last_offset > self.last_offset, (self.path, entry, self.last_offset)
        self._unwritten.append(entry)
        self._note(entry)

    def _note(self, entry: AbortedTransaction) -> None:
        """Remember of ``entry``, which is the last one now, what spares a reader the file."""
        self.last_offset = entry.last_offset
        self.last_stable_offset = entry.last_stable_offset
        self.least_first_offset = min(self.least_first_offset, entry.first_offset)

    def write(self) -> None:
        """Bring the file up to date, creating it. Raises OSError: then the entries stay here."""
        if not self._unwritten:
            return
        data = b"".join(ENTRY.pack(_VERSION, *entry) for entry in self._unwritten)
        file = self._open(create=True)
        start = self._written * ENTRY.size
        file.write_at(start, data)
        if file.size() > start + len(data):
            file.truncate(start + len(data))
        self._written += len(self._unwritten)
        self._checksum = crc32(data, self._checksum)
        self._unwritten = []
        self.is_synced = False

    def sync(self) -> None:
        """Make entries and name durable. Blocks, if there is something to do.

        Raises OSError when the entries could not be written, SyncFailed.
        """
        self.write()
        if self.is_synced:
            return
        faults.sync(self._open(create=True))
        is_new = not self.vouched_count
        write_sum(self._disk, self.path, self.proof)
        self.vouched_count = self._written
        if is_new or not self._is_named:
            faults.sync_directory(self._disk, dirname(self.path))
            self._is_named = True
        self.is_synced = True

    def collect(
        self, start_offset: int, upper_offset: int, found: list[AbortedTransaction]
    ) -> bool:
        """Add to ``found`` what was aborted with offsets in ``[start_offset, upper_offset)``.

        True when no later segment can hold more of it. Reads the file only if some of it may be
        here: a reader may have thousands of indexes before it. Raises OSError.
        """
        if self.last_offset < start_offset:
            return False
        if self.least_first_offset >= upper_offset:
            return self.last_stable_offset >= upper_offset
        for fields in self._reaching(start_offset):
            if fields[_FIRST_OFFSET] < upper_offset:
                found.append(AbortedTransaction(*fields[1:]))
            if fields[_LAST_STABLE_OFFSET] >= upper_offset:
                return True
        return False

    def entries(self) -> Iterator[AbortedTransaction]:
        """Yield all entries, in the order of their markers. Reads the file. Raises OSError."""
        for _, entry in self._read(0):
            yield entry

    def keep(self) -> KeptEntries:
        """Return all entries as they are now, in the order of their markers. Opens nothing."""
        return KeptEntries(self._file, self.path, self._written, tuple(self._unwritten))

    def keep_below(self, offset: int) -> None:
        """Drop the entries whose marker stands at or above ``offset``, in the file, too.

        Raises OSError.
        """
        if self.last_offset < offset:
            return
        while self._unwritten and self._unwritten[-1].last_offset >= offset:
            self._unwritten.pop()
        keep = min(self._first_reaching(offset), self._written)
        if keep < self._written:
            self._open().truncate(keep * ENTRY.size)
            self._written = keep
            self._checksum = self._sum_of(keep)
            self.is_synced = False
        self._note_last()

    def _note_last(self) -> None:
        """Remember the last entry, behind which others were dropped."""
        self.last_offset = self.last_stable_offset = _NONE
        for _, entry in self._read(max(self.count - 1, 0)):
            self._note(entry)

    def remove(self) -> None:
        """Remove the file and what vouches for it. Durable when the directory was synced.

        Raises OSError.
        """
        self.let_go()
        for path in (sum_path(self.path), self.path):
            with suppress(FileNotFoundError):
                self._disk.remove(path)

    def distrust_from(self, offset: int) -> None:
        """Know only the entries whose marker stands below ``offset``; the file stays as it is."""
        self._written = self._first_reaching(offset)
        self._checksum = self._sum_of(self._written)
        self.vouched_count = min(self.vouched_count, self._written)
        self.is_synced = False
        self._note_last()
        self.let_go()

    def let_go(self) -> None:
        """Close the file until it is needed; what is not written yet stays."""
        self._file = None

    def _open(self, *, create: bool = False) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, create=create)
        return self._file

    def _reaching(self, offset: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the bare fields of the entries whose last offset is >= ``offset``.

        A short index is read at once, because a reader of many partitions asks for one of each, in
        one turn of the loop. In a long one it searches: after a long transaction's end a hundred
        thousand entries may be none of a reader's.
        """
        if self._written > _ENTRIES_PER_READ:
            yield from self._fields(self._first_reaching(offset))
            return
        if self._written:
            data = self._open().read_at(0, self._written * ENTRY.size)
            starts = range(0, len(data) - ENTRY.size + 1, ENTRY.size)
            at = bisect_left(starts, (offset,), key=partial(_LAST_OFFSET.unpack_from, data))
            yield from ENTRY.iter_unpack(data[at * ENTRY.size : len(starts) * ENTRY.size])
        at = bisect_left(self._unwritten, offset, key=_end_of)
        for entry in self._unwritten[at:]:
            yield _VERSION, *entry

    def _first_reaching(self, offset: int) -> int:
        """Return the ordinal of the first entry whose last offset is >= ``offset``."""
        if not self._written:
            return 0 if not self._unwritten else bisect_left(self._unwritten, offset, key=_end_of)
        file = self._open()

        def last_offset(ordinal: int) -> int:
            data = file.read_at(ordinal * ENTRY.size, ENTRY.size)
            found: int = _LAST_OFFSET.unpack(data)[0]
            return found

        at = bisect_left(range(self._written), offset, key=last_offset)
        if at < self._written:
            return at
        return at + bisect_left(self._unwritten, offset, key=_end_of)

    def _read(self, ordinal: int) -> Iterator[tuple[int, AbortedTransaction]]:
        """Yield (version, entry) from entry number ``ordinal`` on."""
        for version, *fields in self._fields(ordinal):
            yield version, AbortedTransaction(*fields)

    def _fields(self, ordinal: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the bare fields from entry number ``ordinal`` on, which costs a quarter."""
        if ordinal < self._written:
            yield from _fields_in(self._open(), ordinal, self._written)
            ordinal = self._written
        for entry in self._unwritten[ordinal - self._written :]:
            yield _VERSION, *entry

    def write_quietly(self) -> None:
        """Write as ``write`` does, but leave it to the next time when the disk refuses."""
        with suppress(OSError):
            self.write()


def _entries_in(file: File, ordinal: int, end: int) -> Iterator[tuple[int, AbortedTransaction]]:
    """Yield (version, entry) of the entries ``[ordinal, end)``; fewer where the file is shorter."""
    for version, *fields in _fields_in(file, ordinal, end):
        yield version, AbortedTransaction(*fields)


def _fields_in(file: File, ordinal: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the same as the file's bare fields."""
    while ordinal < end:
        count = min(end - ordinal, _ENTRIES_PER_READ)
        yield from ENTRY.iter_unpack(file.read_at(ordinal * ENTRY.size, count * ENTRY.size))
        ordinal += count


def _can_follow(entry: AbortedTransaction, before: AbortedTransaction) -> bool:
    """Tell whether a transaction can have ended so after ``before``. All zeros cannot."""
    return (
        entry.producer_id >= 0
        and 0 <= entry.first_offset < entry.last_offset
        and before.last_offset < entry.last_offset
        and before.last_stable_offset <= entry.last_stable_offset <= entry.last_offset + 1
    )


def _end_of(entry: AbortedTransaction) -> int:
    return entry.last_offset
