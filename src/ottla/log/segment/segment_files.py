"""The files of one segment: its log file, its transaction index, and their names.

The part of a Segment that owns how its files are opened, created, cut and closed, between
log.segment.segment (where batches are) and env.disk. A base class, not an object of its own,
because every append and read passes here. Opens a file when it is first needed, so that a segment
that nobody reads costs only its name and size.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ottla.env.disk import Disk, File
from ottla.errors import CorruptFile, ErrorCode, KafkaError
from ottla.log.files.layout import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from ottla.log.segment.mapped import MappedEnd
from ottla.log.segment.scan import LOOKUP_CHUNK_BYTES, Batch, Walk
from ottla.log.segment.transaction_index import AbortedTransaction, TransactionIndex


class SegmentFiles:
    """The log file and the transaction index of one segment."""

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_mapped",
        "base_offset",
        "is_cut",
        "is_named",
        "opened",
        "size_bytes",
        "transaction_index",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, size_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        """Invariant: not above any offset in the segment; names the files."""
        self.size_bytes = size_bytes
        """Use: where the next batch goes. Invariant: the log file holds whole batches up to it."""
        self.transaction_index: TransactionIndex | None = None
        """None: no transaction was aborted in this segment. Filled at start by log.producers."""
        self.is_named = True
        """Whether its files bear its names. Else it has to keep them open: others bear them."""
        self.is_cut = False
        """Whether the log file was cut since it was synced last. Use: what was cut off may be there
        again after a power cut, so a clean stop has to sync it. May be True in vain."""
        self.opened: Callable[[Any], None] | None = None
        """Use: told that a file or an index was opened that was not; it is let go of some time."""
        self._file: File | None = None
        self._mapped: MappedEnd | None = None
        """Use: takes the appends. Invariant: None once the segment is full, cut or let go."""

    @property
    def disk(self) -> Disk:
        """The disk that the segment is on."""
        return self._disk

    @property
    def path(self) -> str:
        """Path of the log file."""
        return self.path_of(LOG_SUFFIX)

    def path_of(self, suffix: str) -> str:
        """Path of the segment's file with ``suffix``."""
        return f"{self._directory}/{segment_file(self.base_offset, suffix)}"

    # -- the log file -------------------------------------------------------------------------

    @property
    def file(self) -> File:
        """The log file, opened when first asked for."""
        if self._file is None:
            self._file = self._disk.open(self.path)
            if self.opened is not None:
                self.opened(self)
        return self._file

    @property
    def is_file_open(self) -> bool:
        """Tell whether the log file is open: as long as it is not, no append can have begun."""
        return self._file is not None

    def _create_file(self, preallocated_bytes: int) -> None:
        """Make the empty log file, or take over an empty one that is there already.

        Raises CorruptFile when it holds something; OSError.
        """
        self._file = self._disk.open(self.path, create=True)
        if self._file.size():
            raise CorruptFile(self.path, f"expected a new segment, found {self._file.size()} bytes")
        if preallocated_bytes:
            self._allocate(self._file, preallocated_bytes)
            self._mapped = MappedEnd(preallocated_bytes)

    @staticmethod
    def _allocate(file: File, size_bytes: int) -> None:
        try:
            file.allocate(size_bytes)
        except OSError:
            with suppress(OSError):  # Part of it may be there; a segment without batches is empty.
                file.truncate(0)
            raise

    def cut_to_size(self) -> None:
        """Make the file end at ``size_bytes``. Raises OSError.

        Behind it stands what a failed append left there, or what was preallocated.
        """
        self._mapped = None  # First: memory behind a file's end must not be touched.
        self.is_cut = True
        self.file.truncate(self.size_bytes)

    def next_batch(self, position: int) -> Batch | None:
        """Return the batch that starts at ``position``; None at the end of the segment.

        Raises KafkaError CORRUPT_MESSAGE when there are bytes that are no batch.
        """
        walk = self._walk_near(position)
        for batch in walk:
            return batch
        if walk.stopped_by is not None:
            raise self._unreadable(walk)
        return None

    def _walk(self, position: int) -> Walk:
        """Walk over the batches from ``position`` to the end."""
        return Walk(self.file, position, self.size_bytes, verify_crc=False)

    def _walk_near(self, position: int) -> Walk:
        """Walk likewise, to end soon: reads little at a time."""
        return Walk(
            self.file,
            position,
            self.size_bytes,
            verify_crc=False,
            chunk_bytes=LOOKUP_CHUNK_BYTES,
        )

    def _unreadable(self, walk: Walk) -> KafkaError:
        why = f"{self.path} at byte {walk.position}: {walk.stopped_by}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)

    # -- the transaction index ----------------------------------------------------------------

    def begin_transaction_index(self) -> TransactionIndex:
        """Give the segment a transaction index without entries."""
        path = self.path_of(TRANSACTION_INDEX_SUFFIX)
        self.transaction_index = index = TransactionIndex(self._disk, path)
        return index

    def remove_transaction_index(self) -> None:
        """Remove its file, if there is one: a segment of the same name to come must not find it.

        Durable when the directory was synced. Raises OSError.
        """
        if self.transaction_index is not None:
            self.transaction_index.remove()
            self.transaction_index = None

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Enter a transaction whose abort marker was appended."""
        index = self.transaction_index or self.begin_transaction_index()
        index.append(aborted)
        # When the disk is full the entry stays in memory; what needs it on disk comes back to it.
        index.write_quietly()

    def let_go_of_file(self) -> None:
        """Close the log file until it is needed; regions and syncs in use keep it open."""
        if self.is_named:
            self._file = None
            if self.transaction_index is not None:
                self.transaction_index.let_go()
