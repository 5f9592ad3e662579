# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""The loops over the headers of a log file's batches, without an object per batch.

In two forms, as ``ottla.records.kernels``. For recovery ``walk_batches`` takes
``ottla.log.segment.bulk_walk`` from header to header through a file: it passes over the ordinary
batch and leaves every other one to its caller. For a segment that the cleaner writes
``index_batches`` makes the entries of its indexes.
Knows nothing of files or codecs. Layout of a header: see ``ottla.records.batch``.
"""

# ruff: noqa: F821 - the C functions are declared in batch_walk.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

from ottla.records.crc import crc32c

if not cython.compiled:  # else they stand in batch_walk.pxd
    from ottla.records.numbers import int32_at, int64_at, uint32_at

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension or the interpreted form."""

WALK_NEEDS_DATA = 0
"""Of ``walk_batches``: the next batch is not all in the data."""
WALK_UNUSUAL = 1
"""The next batch is not ordinary, or the bytes are no batch: the caller has to judge."""
WALK_OUTPUT_FULL = 2
"""No room in an output array: take what there is and call again."""
WALK_PRODUCERS_FULL = 3
"""More than half of the table of producers is in use: hand in a larger one."""

# The fields of ``state``. Set by the caller; those marked "too" are brought up to date.
POSITION = 0
"""Where the next batch begins in its file; too."""
NEXT_OFFSET = 1
"""The offset that the next batch must have; too."""
BYTES_SINCE_ENTRY = 2
"""Size of the batches since the last index entry; too."""
LATEST_TIMESTAMP = 3
"""The largest timestamp so far; too."""
LATEST_OFFSET = 4
"""The last offset of the first batch with the largest timestamp; too."""
ENTRY_TIMESTAMP = 5
"""The timestamp of the last time index entry, or -1 without one; too."""
PRODUCER_COUNT = 6
"""Slots of the table in use; too."""
OFFSET_WORDS, TIME_WORDS, NOTED_COUNT = 7, 8, 9
"""Result only: how much of each output array is used."""
DATA_POSITION, DATA_END = 10, 11
"""Where in the file the data stands, and ends."""
FILE_END = 12
"""Position that no batch may reach beyond."""
LEADER_EPOCH = 13
"""The epoch that a batch must have."""
BASE_OFFSET = 14
"""The segment's."""
INDEX_INTERVAL = 15
"""More bytes than this since the last one, and the next batch gets an index entry."""
MAY_SKIP = 16
"""1: offsets may be missing between batches (compaction)."""
VERIFY = 17
"""1: check the sums, for which a batch must be whole in the data; 0: its header suffices."""
WALK_STATE_SIZE = 18

_ORDINARY = cython.declare(cython.int, -1)
_NEEDS_DATA = cython.declare(cython.int, WALK_NEEDS_DATA)
_UNUSUAL = cython.declare(cython.int, WALK_UNUSUAL)
_OUTPUT_FULL = cython.declare(cython.int, WALK_OUTPUT_FULL)
_PRODUCERS_FULL = cython.declare(cython.int, WALK_PRODUCERS_FULL)
_POSITION = cython.declare(cython.int, POSITION)
_NEXT_OFFSET = cython.declare(cython.int, NEXT_OFFSET)
_BYTES_SINCE_ENTRY = cython.declare(cython.int, BYTES_SINCE_ENTRY)
_LATEST_TIMESTAMP = cython.declare(cython.int, LATEST_TIMESTAMP)
_LATEST_OFFSET = cython.declare(cython.int, LATEST_OFFSET)
_ENTRY_TIMESTAMP = cython.declare(cython.int, ENTRY_TIMESTAMP)
_PRODUCER_COUNT = cython.declare(cython.int, PRODUCER_COUNT)
_OFFSET_WORDS = cython.declare(cython.int, OFFSET_WORDS)
_TIME_WORDS = cython.declare(cython.int, TIME_WORDS)
_NOTED_COUNT = cython.declare(cython.int, NOTED_COUNT)
_DATA_POSITION = cython.declare(cython.int, DATA_POSITION)
_DATA_END = cython.declare(cython.int, DATA_END)
_FILE_END = cython.declare(cython.int, FILE_END)
_LEADER_EPOCH = cython.declare(cython.int, LEADER_EPOCH)
_BASE_OFFSET = cython.declare(cython.int, BASE_OFFSET)
_INDEX_INTERVAL = cython.declare(cython.int, INDEX_INTERVAL)
_MAY_SKIP = cython.declare(cython.int, MAY_SKIP)
_VERIFY = cython.declare(cython.int, VERIFY)
_HEADER_BYTES = cython.declare(cython.int, 61)
_MAGIC_END = cython.declare(cython.int, 17)
_OFFSET_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
_WORD_MASK = cython.declare(cython.longlong, 0xFFFFFFFF)

PRODUCER_SLOT_SIZE = 8
"""A slot of the table of producers: id + 1 (0: free), whether a transaction is open, how many
batches were seen, and the positions of the last five, each at its number modulo 5."""

ENTRY_WORDS = 4
"""Of ``index_batches``: how many numbers an entry is."""


def walk_batches(  # noqa: PLR0917 - arrays that are made once, for a loop without any object
    data: Buffer,
    state: array[int],
    offset_entries: array[int],
    time_entries: array[int],
    noted: array[int],
    producers: array[int],
) -> int:
    """Go from batch to batch while each is ordinary; return why not further, a ``WALK_`` number.

    Ordinary: of magic 2, whole, its numbers possible, its offset and leader epoch as ``state``
    expects them and its sum right. Index entries come out as the 32-bit words of the files'
    formats (in the machine's byte order), two or three each. ``noted``: positions of batches with
    a producer id that tell of transactions: every control batch, and the first of a transaction.
    All others of a producer stand in ``producers``, the last five of each: a hash table with a
    power of two of slots. ``state``, ``noted``, ``producers``: 64-bit; the entries: 32-bit.
    """
    view: cython.const[cython.uchar][::1] = data
    fields: cython.longlong[::1] = state
    offsets: cython.uint[::1] = offset_entries
    times: cython.uint[::1] = time_entries
    positions: cython.longlong[::1] = noted
    table: cython.longlong[::1] = producers
    reason: cython.int
    if len(offsets) < 2 or len(times) < 3 or len(positions) < 1 or len(fields) < 18:
        raise ValueError("an array is too small")
    if fields[11] - fields[10] > len(view) or len(table) < 16 or len(table) & (len(table) - 1):
        raise ValueError("the data or the table is smaller than told")
    with cython.nogil:
        reason = _walk_batches(view, fields, offsets, times, positions, table)
    return reason


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_batches(  # noqa: PLR0917 - C arguments
    data: cython.const[cython.uchar][::1],
    state: cython.longlong[::1],
    offset_entries: cython.uint[::1],
    time_entries: cython.uint[::1],
    noted: cython.longlong[::1],
    producers: cython.longlong[::1],
) -> cython.int:
    at: cython.Py_ssize_t
    found: cython.int
    state[_OFFSET_WORDS] = state[_TIME_WORDS] = state[_NOTED_COUNT] = 0
    while True:
        at = state[_POSITION] - state[_DATA_POSITION]
        found = _judge(data, at, state)
        if found != _ORDINARY:
            return found
        # Nothing has changed yet: whoever finds no room stops before the batch.
        if state[_OFFSET_WORDS] + 2 > len(offset_entries) or state[_NOTED_COUNT] >= len(noted):
            return _OUTPUT_FULL
        if state[_TIME_WORDS] + 3 > len(time_entries):
            return _OUTPUT_FULL
        if int64_at(data, at + 43) >= 0 and not _note_producer(data, at, state, noted, producers):
            return _PRODUCERS_FULL
        _pass(data, at, state, offset_entries, time_entries)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _judge(  # noqa: C901, PLR0911 - one fault after the other
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, state: cython.longlong[::1]
) -> cython.int:
    """Tell whether the batch at ``at`` is ordinary, or why the walk ends."""
    position: cython.longlong = state[_POSITION]
    base_offset: cython.longlong
    delta: cython.longlong
    count: cython.longlong
    size: cython.longlong
    crc: cython.longlong
    if at < 0 or position + _HEADER_BYTES > state[_DATA_END]:
        return _NEEDS_DATA
    size = int32_at(data, at + 8) + 12
    if size < _HEADER_BYTES or size > state[_FILE_END] - position or data[at + 16] != 2:
        return _UNUSUAL
    base_offset = int64_at(data, at)
    if base_offset < state[_NEXT_OFFSET]:
        return _UNUSUAL
    if base_offset > state[_NEXT_OFFSET] and not state[_MAY_SKIP]:
        return _UNUSUAL
    delta = int32_at(data, at + 23)
    count = int32_at(data, at + 57)
    if delta < 0 or count < 0 or count > delta + 1:
        return _UNUSUAL
    if base_offset - state[_BASE_OFFSET] > 0x7FFFFFFF - delta:
        return _UNUSUAL
    if int32_at(data, at + 12) != state[_LEADER_EPOCH]:
        return _UNUSUAL
    if state[_VERIFY]:
        if position + size > state[_DATA_END]:
            return _NEEDS_DATA
        if cython.compiled:
            crc = ottla_crc32c(cython.address(data[at + 21]), size - 21)
        else:
            crc = crc32c(data[at + 21 : at + size])
        if crc != uint32_at(data, at + 17):
            return _UNUSUAL
    return _ORDINARY


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _note_producer(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    state: cython.longlong[::1],
    noted: cython.longlong[::1],
    producers: cython.longlong[::1],
) -> cython.bint:
    """Note where a producer's batch stands; False when the table is too full for it."""
    producer_id: cython.longlong = int64_at(data, at + 43)
    slot_mask: cython.longlong = len(producers) // 8 - 1
    slot: cython.longlong = (producer_id ^ (producer_id >> 17)) & slot_mask
    attributes: cython.int = data[at + 22]
    is_noted: cython.bint
    if 2 * state[_PRODUCER_COUNT] > slot_mask:
        return False
    while producers[slot * 8] != 0 and producers[slot * 8] != producer_id + 1:
        slot = (slot + 1) & slot_mask
    slot *= 8
    if producers[slot] == 0:
        producers[slot] = producer_id + 1
        state[_PRODUCER_COUNT] += 1
    if attributes & 0x20:  # A marker: it ends the producer's transaction.
        is_noted = True
        producers[slot + 1] = 0
    else:
        is_noted = (attributes & 0x10) != 0 and producers[slot + 1] == 0
        if is_noted:
            producers[slot + 1] = 1
        producers[slot + 3 + producers[slot + 2] % 5] = state[_POSITION]
        producers[slot + 2] += 1
    if is_noted:
        noted[state[_NOTED_COUNT]] = state[_POSITION]
        state[_NOTED_COUNT] += 1
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _pass(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    state: cython.longlong[::1],
    offset_entries: cython.uint[::1],
    time_entries: cython.uint[::1],
) -> cython.int:
    """Move ``state`` behind the ordinary batch at ``at``, and make its index entries if due."""
    last_offset: cython.longlong = int64_at(data, at) + int32_at(data, at + 23)
    timestamp: cython.longlong = int64_at(data, at + 35)
    size: cython.longlong = int32_at(data, at + 8) + 12
    words: cython.Py_ssize_t
    state[_NEXT_OFFSET] = last_offset + 1
    if timestamp > state[_LATEST_TIMESTAMP]:
        state[_LATEST_TIMESTAMP] = timestamp
        state[_LATEST_OFFSET] = last_offset
    if state[_BYTES_SINCE_ENTRY] > state[_INDEX_INTERVAL]:
        words = state[_OFFSET_WORDS]
        offset_entries[words] = last_offset - state[_BASE_OFFSET]
        offset_entries[words + 1] = state[_POSITION]
        state[_OFFSET_WORDS] = words + 2
        if state[_LATEST_TIMESTAMP] > state[_ENTRY_TIMESTAMP]:
            timestamp = state[_ENTRY_TIMESTAMP] = state[_LATEST_TIMESTAMP]
            words = state[_TIME_WORDS]
            time_entries[words] = timestamp >> 32
            time_entries[words + 1] = timestamp & _WORD_MASK
            time_entries[words + 2] = state[_LATEST_OFFSET] - state[_BASE_OFFSET]
            state[_TIME_WORDS] = words + 3
        state[_BYTES_SINCE_ENTRY] = 0
    state[_BYTES_SINCE_ENTRY] += size
    state[_POSITION] += size
    return 0


def index_batches(data: Buffer, size_bytes: int, state: array[int], entries: array[int]) -> int:
    """Make the index entries of the batches in the first bytes of ``data``; return how many.

    The batches are whole and sound, and are at POSITION in their file. Each entry is ENTRY_WORDS
    numbers in ``entries``: the position of a batch in its file, its last offset, the largest
    timestamp in the segment up to and with it, and the last offset of the batch that has that.
    ``entries``, int64, has room for one per batch. Of ``state`` it reads INDEX_INTERVAL, and
    brings POSITION, BYTES_SINCE_ENTRY, LATEST_TIMESTAMP and LATEST_OFFSET up to date.
    """
    view: cython.const[cython.uchar][::1] = data
    end: cython.Py_ssize_t = size_bytes
    fields: cython.longlong[::1] = state
    found: cython.longlong[::1] = entries
    count: cython.longlong
    with cython.nogil:
        count = _index_batches(view, end, fields, found)
    return count


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _index_batches(
    data: cython.const[cython.uchar][::1],
    end: cython.Py_ssize_t,
    state: cython.longlong[::1],
    entries: cython.longlong[::1],
) -> cython.longlong:
    at: cython.Py_ssize_t = 0
    word: cython.Py_ssize_t = 0
    size: cython.longlong
    last_offset: cython.longlong
    timestamp: cython.longlong
    while at < end:
        size = int32_at(data, at + 8) + 12
        last_offset = int64_at(data, at) + int32_at(data, at + 23)
        timestamp = int64_at(data, at + 35)
        if timestamp > state[_LATEST_TIMESTAMP]:
            state[_LATEST_TIMESTAMP] = timestamp
            state[_LATEST_OFFSET] = last_offset
        if state[_BYTES_SINCE_ENTRY] > state[_INDEX_INTERVAL]:
            entries[word] = state[_POSITION]
            entries[word + 1] = last_offset
            entries[word + 2] = state[_LATEST_TIMESTAMP]
            entries[word + 3] = state[_LATEST_OFFSET]
            word += 4
            state[_BYTES_SINCE_ENTRY] = 0
        state[_BYTES_SINCE_ENTRY] += size
        state[_POSITION] += size
        at += size
    return word // 4


def next_offset(data: Buffer, offset: int) -> int:
    """Return the offset behind the whole batches in ``data``; ``offset`` if there is none.

    Only headers are looked at, of any format, and nothing is checked but where they stand.
    """
    view: cython.const[cython.uchar][::1] = data
    found: cython.longlong = offset
    position: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(view)
    size: cython.longlong
    last: cython.longlong
    delta: cython.longlong
    while end - position >= _MAGIC_END:
        size = int32_at(view, position + 8) + 12
        if size < _MAGIC_END or size > end - position:
            break
        last = int64_at(view, position)  # which formats 0 and 1 begin with
        if view[position + 16] >= 2:
            if size < _HEADER_BYTES:
                break
            delta = int32_at(view, position + 23)
            last = -1 if last < 0 or delta < 0 or last > _OFFSET_MAX - delta else last + delta
        if found <= last < _OFFSET_MAX:
            found = last + 1
        position += size
    return found


if cython.compiled:
    ottla_crc32c_choose()
