"""Going through a log file at the speed of memory, as long as every batch is an ordinary one.

The companion of ``log.scan``: a ``Walk`` takes one batch at a time and judges it; a ``BulkWalk``
lets the kernel (``ottla.records.batch_walk``) pass over ordinary batches by thousands
and stops before the first one that is not (another leader epoch, a gap, a wrong sum, the end). So
it decides nothing: who goes through a log judges with the ``Walk`` and lets this one help.

On the way it notes what is to be remembered of a stretch: index entries in the format of the
files, the largest timestamp, and which batches tell all about producers: every marker, each
first batch of a transaction, and the last five batches of everybody. Below log.segment,
log.recovery and log.producers; source: reliability rules 7, 10 and 11.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.env.disk import File
from ottla.log.segment.scan import LOOKUP_CHUNK_BYTES, Batch, Walk
from ottla.records import batch_walk as kernel
from ottla.records.batch import (
    HEADER_SIZE_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    read_header,
)
from ottla.records.batch_walk import walk_batches

VERIFY_CHUNK_BYTES = 1024 * 1024
"""Read at a time to sum it: more would not stay in the processor's cache."""

HEADERS_CHUNK_BYTES = 32 * 1024
"""Read at a time where headers are enough: large batches are passed over unread."""

BULK_BYTES_MIN = 64 * 1024
"""With less ahead a BulkWalk passes over nothing: to begin would cost more than it saves."""

_OUTPUT_COUNT = 1024
_PRODUCER_SLOTS_MIN = 64
_PRODUCER_SLOTS_FEW = 4
"""Where each append of a follower pays for them."""
_SLOT = kernel.PRODUCER_SLOT_SIZE

PRODUCER_ID = 9
"""Which field of ``Walk.header`` it is."""


class Stretch(NamedTuple):
    """What a stretch of ordinary batches adds to its segment."""

    end_position: int
    next_offset: int
    offset_entries: bytes
    """Of the offset index, as they stand in the file."""
    time_entries: bytes
    latest_timestamp: int
    latest_offset: int
    bytes_since_entry: int


class BulkWalk:
    """Passes over the ordinary batches of one log file ``[0, end)``."""

    __slots__ = (
        "_buffer",
        "_bytes_min",
        "_chunk_bytes",
        "_end",
        "_file",
        "_noted",
        "_noted_output",
        "_offset_output",
        "_producers",
        "_state",
        "_time_output",
    )

    def __init__(
        self,
        file: File | None,
        end: int,
        *,
        base_offset: int,
        verify_crc: bool,
        may_skip: bool,
        index_interval_bytes: int = sys.maxsize,
    ) -> None:
        """``may_skip``: offsets may be missing between batches, as compaction leaves them.

        ``file`` is None only in ``over``.
        """
        self._file = file
        self._end = end
        self._bytes_min = BULK_BYTES_MIN
        self._chunk_bytes = VERIFY_CHUNK_BYTES if verify_crc else HEADERS_CHUNK_BYTES
        self._state = state = array("q", bytes(8 * kernel.WALK_STATE_SIZE))
        state[kernel.FILE_END] = end
        state[kernel.BASE_OFFSET] = base_offset
        state[kernel.INDEX_INTERVAL] = index_interval_bytes
        state[kernel.MAY_SKIP] = may_skip
        state[kernel.VERIFY] = verify_crc
        self._noted: list[int] = []
        # Made when there is enough to walk over; most logs of a start need none of these.
        self._buffer = memoryview(b"")
        self._producers = array("q")
        self._offset_output = self._time_output = array("I")
        self._noted_output = array("q")

    @classmethod
    def over(
        cls,
        data: memoryview,
        position: int,
        *,
        end: int,
        base_offset: int,
        verify_crc: bool,
        index_interval_bytes: int = sys.maxsize,
    ) -> "BulkWalk":
        """Return one over ``data``, as if it stood at ``position`` of a file that ends at ``end``.

        Offsets may be missing between its batches. Reads no file.
        """
        bulk = cls(
            None,
            end,
            base_offset=base_offset,
            verify_crc=verify_crc,
            may_skip=True,
            index_interval_bytes=index_interval_bytes,
        )
        bulk._bytes_min = 0
        bulk._state[kernel.DATA_POSITION] = position
        bulk._state[kernel.DATA_END] = position + len(data)
        bulk._buffer = data
        count = min(len(data) // HEADER_SIZE_BYTES + 1, _OUTPUT_COUNT)
        bulk._allocate_outputs(count, slots=_PRODUCER_SLOTS_FEW)
        return bulk

    def advance(
        self,
        position: int,
        *,
        next_offset: int,
        leader_epoch: int,
        latest_timestamp: int = -1,
        latest_offset: int = -1,
        entry_timestamp: int = -1,
        bytes_since_entry: int = 0,
    ) -> Stretch | None:
        """Pass over the ordinary batches from ``position`` on; None when the first one is none.

        ``position`` is not below that of an earlier call. ``next_offset`` and ``leader_epoch`` are
        what the batch there must have; the rest is what is known of the segment up to there.
        Blocks. Raises OSError.
        """
        if self._end - position < self._bytes_min:
            return None
        if not self._buffer:
            self._allocate()
        state = self._state
        state[kernel.POSITION] = position
        state[kernel.NEXT_OFFSET] = next_offset
        state[kernel.LEADER_EPOCH] = leader_epoch
        state[kernel.LATEST_TIMESTAMP] = latest_timestamp
        state[kernel.LATEST_OFFSET] = latest_offset
        state[kernel.ENTRY_TIMESTAMP] = entry_timestamp
        state[kernel.BYTES_SINCE_ENTRY] = bytes_since_entry
        offsets, times = array("I"), array("I")
        while True:
            reason = walk_batches(
                self._buffer,
                state,
                self._offset_output,
                self._time_output,
                self._noted_output,
                self._producers,
            )
            offsets += self._offset_output[: state[kernel.OFFSET_WORDS]]
            times += self._time_output[: state[kernel.TIME_WORDS]]
            self._noted += self._noted_output[: state[kernel.NOTED_COUNT]]
            if reason == kernel.WALK_PRODUCERS_FULL:
                self._grow_producers()
            elif reason == kernel.WALK_UNUSUAL or (
                reason == kernel.WALK_NEEDS_DATA and not self._read_on()
            ):
                break
        if state[kernel.POSITION] == position:
            return None
        if sys.byteorder == "little":
            offsets.byteswap()
            times.byteswap()
        return Stretch(
            end_position=state[kernel.POSITION],
            next_offset=state[kernel.NEXT_OFFSET],
            offset_entries=offsets.tobytes(),
            time_entries=times.tobytes(),
            latest_timestamp=state[kernel.LATEST_TIMESTAMP],
            latest_offset=state[kernel.LATEST_OFFSET],
            bytes_since_entry=state[kernel.BYTES_SINCE_ENTRY],
        )

    def _allocate(self) -> None:
        # One buffer for all: a fresh one per read would be cleared by the kernel, page by page.
        self._buffer = memoryview(bytearray(min(self._chunk_bytes, self._end)))
        self._allocate_outputs(_OUTPUT_COUNT, slots=_PRODUCER_SLOTS_MIN)

    def _allocate_outputs(self, count: int, *, slots: int) -> None:
        self._offset_output = array("I", bytes(4 * 2 * count))
        self._time_output = array("I", bytes(4 * 3 * count))
        self._noted_output = array("q", bytes(8 * count))
        self._producers = array("q", bytes(8 * _SLOT * slots))

    def _read_on(self) -> bool:
        """Have the data begin at the next batch; False when that brings no byte more of it."""
        file, state, buffer = self._file, self._state, self._buffer
        position, end = state[kernel.POSITION], state[kernel.DATA_END]
        if file is None:
            return False
        begin = state[kernel.DATA_POSITION]
        length = min(len(buffer), state[kernel.FILE_END] - position)
        if (begin == position and end > begin) or length < HEADER_SIZE_BYTES:
            return False
        read = file.read_into(position, buffer[:length])
        state[kernel.DATA_POSITION] = position
        state[kernel.DATA_END] = position + read
        return read >= HEADER_SIZE_BYTES

    # -- producers ------------------------------------------------------------------------------

    def note_producer(self, position: int) -> None:
        """Take the batch at ``position``, which has a producer id and was passed over by itself."""
        self._noted.append(position)
        # It may have ended any transaction: the next batch of each counts as a first one again.
        if self._producers:
            count = len(self._producers) // _SLOT
            self._producers[1::_SLOT] = array("q", bytes(8 * count))

    def producer_positions(self) -> list[int]:
        """Return where the batches stand that say all there is to know of the producers so far.

        Ascending. Who takes just these in order, knows as much as who takes all.
        """
        found = set(self._noted)
        table = self._producers if self._state[kernel.PRODUCER_COUNT] else ()
        for start in range(0, len(table), _SLOT):
            seen = min(table[start + 2], 5)
            found.update(table[start + 3 : start + 3 + seen])
        return sorted(found)

    def _grow_producers(self) -> None:
        old, slots = self._producers, len(self._producers) // _SLOT * 4
        table = array("q", bytes(8 * _SLOT * slots))
        for start in range(0, len(old), _SLOT):
            if old[start]:
                producer_id = old[start] - 1
                slot = (producer_id ^ (producer_id >> 17)) & (slots - 1)
                while table[slot * _SLOT]:
                    slot = (slot + 1) & (slots - 1)
                table[slot * _SLOT : (slot + 1) * _SLOT] = old[start : start + _SLOT]
        self._producers = table


def beginnings(walk: Walk, bulk: BulkWalk) -> Iterator[Batch]:
    """Take ``walk`` to its end, ``bulk`` ahead: yield the batches that a stretch does not hold.

    Those are the first one and each of another leader epoch than the one before it, at least.
    """
    for batch in walk:
        yield batch
        stretch = bulk.advance(
            walk.position, next_offset=batch.last_offset + 1, leader_epoch=batch.leader_epoch
        )
        if stretch is not None:
            walk.position = stretch.end_position


def producer_positions(file: File, position: int, end: int, base_offset: int) -> list[int]:
    """Return ``BulkWalk.producer_positions`` of what stands in ``[position, end)``. Blocks.

    Reads headers only, and ends at what cannot be read.
    """
    walk = Walk(file, position, end, verify_crc=False, chunk_bytes=LOOKUP_CHUNK_BYTES)
    bulk = BulkWalk(file, end, base_offset=base_offset, verify_crc=False, may_skip=True)
    for batch in beginnings(walk, bulk):
        if walk.header[PRODUCER_ID] > NO_PRODUCER_ID:
            bulk.note_producer(batch.position)
    return bulk.producer_positions()


def headers_at(file: File, positions: Iterable[int]) -> Iterator[BatchHeader]:
    """Yield the headers of the batches at ``positions``, which ascend. Blocks.

    Ends at the end of the file.
    """
    chunk, begin = b"", 0
    for position in positions:
        at = position - begin
        if at + HEADER_SIZE_BYTES > len(chunk):
            chunk, begin, at = file.read_at(position, LOOKUP_CHUNK_BYTES), position, 0
            if len(chunk) < HEADER_SIZE_BYTES:
                return
        yield read_header(chunk, at)
