# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""The log cleaner's loops over batches and records: keys into the offset map, and the filter.

Looks at every record, as ``ottla.records.kernels`` does, and is made the same way: one file that
runs compiled or interpreted. The compiled loops work without the interpreter's lock, a whole chunk
of a log file at a time: cleaning does not hold up the event loop's thread.
Knows nothing of files, codecs or transactions: its caller (``ottla.log.upkeep.cleaner``) handles
every batch that is not plain and uncompressed, by opening it and handing in its records.

The offset map is one array of 64-bit words, three to a slot; open addressing, the next free slot:

    slot = hash low, hash high    of the key, by ``siphash`` with the caller's seed
           offset + 1             the last offset seen of that key; 0: the slot is free

``scope``, an array whose fields stand in ``cleaning_scope``, says what to do and takes the results.
Grammar of what is walked: see ``ottla.records.batch`` and ``ottla.records.kernels``. Source:
Kafka's log cleaner and ``MemoryRecords.filterTo``.
"""

# ruff: noqa: F403, F405 - C functions and the names of cleaning_scope come by cleaning.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

from ottla.records.crc import crc32c

if not cython.compiled:  # else they stand in cleaning.pxd
    from ottla.records.cleaning_scope import *  # the fields and results, in capitals
    from ottla.records.numbers import (
        copy,
        int32_at,
        int64_at,
        put_int32,
        put_int64,
        put_varint,
        uint32_at,
        varint_size,
        varlong_at,
    )
    from ottla.records.siphash import siphash

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension or the interpreted form."""

_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_SPECIAL_BITS = cython.declare(cython.int, 0x37)  # of the attributes: codec, transactional, control
_LOG_APPEND_TIME_BIT = cython.declare(cython.int, 0x08)
_HORIZON_BIT = cython.declare(cython.int, 0x40)
_HEADER_BYTES = cython.declare(cython.int, 61)
_RECORD_BYTES_MIN = cython.declare(cython.int, 7)


# -- the offset map -------------------------------------------------------------------------------


def map_batches(chunk: Buffer, table: Buffer, scope: array[int]) -> int:
    """Enter the keys of plain batches in ``chunk`` into the map; return why it ended.

    From POSITION on, which moves to the first batch that was not handled; so does NEXT_OFFSET.
    Records below FIRST_OFFSET are passed over. At FULL some keys of the batch at POSITION are in
    the map already.
    """
    view: cython.const[cython.uchar][::1] = chunk
    words: cython.ulonglong[::1] = table
    fields: cython.longlong[::1] = scope
    ended: cython.int
    with cython.nogil:
        ended = _map_batches(view, words, fields)
    return ended


def map_records(
    records: Buffer, count: int, base_offset: int, table: Buffer, scope: array[int]
) -> int:
    """Enter the keys of the ``count`` records of one batch into the map; return why it ended."""
    view: cython.const[cython.uchar][::1] = records
    words: cython.ulonglong[::1] = table
    fields: cython.longlong[::1] = scope
    total: cython.longlong = count
    base: cython.longlong = base_offset
    ended: cython.int
    with cython.nogil:
        ended = _map_records(view, 0, len(view), total, base, words, fields)
    return ended


def last_offset_of(key: bytes, table: Buffer, scope: array[int]) -> int:
    """Return the offset that the map has for ``key``, or -1. For tests."""
    view: cython.const[cython.uchar][::1] = key
    words: cython.ulonglong[::1] = table
    fields: cython.longlong[::1] = scope
    found: cython.longlong = words[_slot_of(view, 0, len(view), words, fields)[0] + 2]
    return found - 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _map_batches(
    view: cython.const[cython.uchar][::1],
    words: cython.ulonglong[::1],
    scope: cython.longlong[::1],
) -> cython.int:
    position: cython.Py_ssize_t
    size: cython.longlong
    count: cython.longlong
    base_offset: cython.longlong
    last_offset: cython.longlong
    ended: cython.int
    while True:
        position = scope[POSITION]
        size = _batch_size(view, position)
        if size == 0:
            return DONE
        if size < 0 or _sum(view, position + 21, position + size) != uint32_at(view, position + 17):
            return CORRUPT
        if view[position + 22] & _SPECIAL_BITS:
            return SPECIAL
        base_offset = int64_at(view, position)
        last_offset = base_offset + int32_at(view, position + 23)
        if last_offset >= scope[FIRST_OFFSET]:
            count = int32_at(view, position + 57)
            ended = _map_records(
                view, position + _HEADER_BYTES, position + size, count, base_offset, words, scope
            )
            if ended != DONE:
                return ended
            scope[NEXT_OFFSET] = last_offset + 1
        scope[POSITION] = position + size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _map_records(  # noqa: PLR0917 - C arguments
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_offset: cython.longlong,
    words: cython.ulonglong[::1],
    scope: cython.longlong[::1],
) -> cython.int:
    offset: cython.longlong
    key: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    low: cython.ulonglong
    high: cython.ulonglong
    while count > 0:
        count -= 1
        position = _record(view, position, end, scope)
        if position < 0:
            return CORRUPT
        offset = base_offset + scope[OFFSET_DELTA]
        if scope[KEY_LENGTH] >= 0 and offset >= scope[FIRST_OFFSET]:
            key = scope[KEY_AT]
            slot, low, high = _slot_of(view, key, key + scope[KEY_LENGTH], words, scope)
            if words[slot + 2] == 0:
                if scope[USED] >= scope[CAPACITY]:
                    return FULL
                scope[USED] += 1
                words[slot] = low
                words[slot + 1] = high
            words[slot + 2] = offset + 1
    return DONE if position == end else CORRUPT


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _slot_of(
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    words: cython.ulonglong[::1],
    scope: cython.longlong[::1],
) -> tuple[cython.Py_ssize_t, cython.ulonglong, cython.ulonglong]:
    """Return the first word of the key's slot, or of the free one for it, and the key's hash."""
    low: cython.ulonglong
    high: cython.ulonglong
    end_word: cython.Py_ssize_t = len(words)
    slots: cython.ulonglong = end_word // 3
    word: cython.Py_ssize_t
    low, high = siphash(view, start, end, scope[SEED_LOW] & _MASK, scope[SEED_HIGH] & _MASK)
    word = low % slots * 3
    while words[word + 2] != 0 and (words[word] != low or words[word + 1] != high):
        word += 3
        if word == end_word:
            word = 0
    return word, low, high


# -- the filter -----------------------------------------------------------------------------------


def filter_batches(
    chunk: Buffer, out: bytearray, table: Buffer, scope: array[int], retained: array[int]
) -> int:
    """Copy what stays of plain batches in ``chunk`` to ``out``; return why it ended.

    From POSITION on, and to OUT_POSITION on; both move. Stays: records above LATEST_OFFSET, and of
    the others those with a key that the map has at no later offset, unless they have no value and
    their batch has a delete horizon that is not after NOW_MS. A batch of which tombstones stay gets
    HORIZON_MS as its delete horizon if it has none. Batches keep their offsets and those of their
    records whatever goes. A batch of which nothing stays goes, or stays empty when its last offset
    is in ``retained``: int64, ascending. FULL: ``out`` lacks room for a batch's size, and
    GROWTH_BYTES for each of its records.
    """
    view: cython.const[cython.uchar][::1] = chunk
    target: cython.uchar[::1] = out
    words: cython.ulonglong[::1] = table
    fields: cython.longlong[::1] = scope
    ends: cython.const[cython.longlong][::1] = retained
    ended: cython.int
    with cython.nogil:
        ended = _filter_batches(view, target, words, fields, ends)
    return ended


def filter_records(  # noqa: PLR0917 - as the compiled loop takes them
    records: Buffer,
    count: int,
    base_offset: int,
    out: bytearray,
    table: Buffer,
    scope: array[int],
) -> int:
    """Copy what stays of one batch's records to ``out``; return how many bytes, -1 at CORRUPT.

    By the rule of ``filter_batches``. SHIFT and KEEPS_TOMBSTONES must be set; KEPT_COUNT,
    KEPT_TOMBSTONES and DELTA_MAX (shifted) are. ``out`` has room for the records and GROWTH_BYTES
    more for each.
    """
    view: cython.const[cython.uchar][::1] = records
    target: cython.uchar[::1] = out
    words: cython.ulonglong[::1] = table
    fields: cython.longlong[::1] = scope
    total: cython.longlong = count
    base: cython.longlong = base_offset
    end: cython.Py_ssize_t
    with cython.nogil:
        end = _filter_records(view, 0, len(view), total, base, target, 0, words, fields)
    return end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _filter_batches(  # noqa: C901, PLR0912, PLR0915 - flat, and C arguments
    view: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    words: cython.ulonglong[::1],
    scope: cython.longlong[::1],
    retained: cython.const[cython.longlong][::1],
) -> cython.int:
    position: cython.Py_ssize_t
    start: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    to: cython.Py_ssize_t
    end: cython.Py_ssize_t
    size: cython.longlong
    count: cython.longlong
    base_offset: cython.longlong
    last_offset: cython.longlong
    base_timestamp: cython.longlong
    has_horizon: cython.int
    all_stay: cython.bint
    while True:
        position = scope[POSITION]
        to = scope[OUT_POSITION]
        size = _batch_size(view, position)
        if size == 0:
            return DONE
        if size < 0 or _sum(view, position + 21, position + size) != uint32_at(view, position + 17):
            return CORRUPT
        if view[position + 22] & _SPECIAL_BITS:
            return SPECIAL
        count = int32_at(view, position + 57)
        if size + count * GROWTH_BYTES > len(out) - to:
            return FULL
        start = position + _HEADER_BYTES
        stop = position + size
        base_offset = int64_at(view, position)
        last_offset = base_offset + int32_at(view, position + 23)
        base_timestamp = int64_at(view, position + 27)
        has_horizon = view[position + 22] & _HORIZON_BIT
        scope[KEEPS_TOMBSTONES] = has_horizon == 0 or scope[NOW_MS] < base_timestamp
        scope[SHIFT] = 0
        copy(view, position, out, to, _HEADER_BYTES)
        to += _HEADER_BYTES
        end = _filter_records(view, start, stop, count, base_offset, out, to, words, scope)
        if end >= 0 and scope[KEPT_TOMBSTONES] > 0 and has_horizon == 0:
            scope[SHIFT] = base_timestamp - scope[HORIZON_MS]
            base_timestamp = scope[HORIZON_MS]
            end = _filter_records(view, start, stop, count, base_offset, out, to, words, scope)
        if end < 0:
            return CORRUPT
        to = scope[OUT_POSITION]
        scope[POSITION] = stop
        all_stay = scope[KEPT_COUNT] == count and count > 0
        if all_stay and (scope[KEPT_TOMBSTONES] == 0 or has_horizon != 0):
            scope[OUT_POSITION] = end  # The very bytes that were there.
            continue
        if scope[KEPT_COUNT] == 0:
            if not _contains(retained, last_offset):
                continue
            out[to + 22] = out[to + 22] & ~_HORIZON_BIT
            put_int64(out, to + 27, -1)
        else:
            if scope[KEPT_TOMBSTONES] > 0:
                out[to + 22] = out[to + 22] | _HORIZON_BIT
            put_int64(out, to + 27, base_timestamp)
            if not out[to + 22] & _LOG_APPEND_TIME_BIT:  # With it all have the largest timestamp.
                put_int64(out, to + 35, base_timestamp + scope[DELTA_MAX])
        put_int32(out, to + 8, end - to - 12)
        put_int32(out, to + 57, scope[KEPT_COUNT])
        put_int32(out, to + 17, _sum(out, to + 21, end))
        scope[OUT_POSITION] = end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _filter_records(  # noqa: PLR0917 - C arguments
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_offset: cython.longlong,
    out: cython.uchar[::1],
    to: cython.Py_ssize_t,
    words: cython.ulonglong[::1],
    scope: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Copy what stays to ``out`` from ``to`` on; return where it ends there, -1: CORRUPT."""
    delta: cython.longlong
    start: cython.Py_ssize_t
    same_at: cython.Py_ssize_t
    scope[KEPT_COUNT] = 0
    scope[KEPT_TOMBSTONES] = 0
    scope[DELTA_MAX] = 0
    while count > 0:
        count -= 1
        start = position
        position = _record(view, position, end, scope)
        if position < 0:
            return -1
        if not _stays(view, base_offset + scope[OFFSET_DELTA], words, scope):
            continue
        delta = scope[TIMESTAMP_DELTA] + scope[SHIFT]
        if scope[KEPT_COUNT] == 0 or delta > scope[DELTA_MAX]:
            scope[DELTA_MAX] = delta
        scope[KEPT_COUNT] += 1
        if scope[VALUE_LENGTH] < 0:
            scope[KEPT_TOMBSTONES] += 1
        same_at = start
        if scope[SHIFT] != 0:
            # From the offset delta on the record stays as it is.
            same_at = scope[OFFSET_AT]
            to = put_varint(out, to, 1 + varint_size(delta) + position - same_at)
            out[to] = 0
            to = put_varint(out, to + 1, delta)
        copy(view, same_at, out, to, position - same_at)
        to += position - same_at
    return to if position == end else -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _stays(
    view: cython.const[cython.uchar][::1],
    offset: cython.longlong,
    words: cython.ulonglong[::1],
    scope: cython.longlong[::1],
) -> cython.bint:
    """Decide on the record that ``_record`` found."""
    key: cython.Py_ssize_t = scope[KEY_AT]
    found: cython.longlong
    if offset > scope[LATEST_OFFSET]:
        return True
    if scope[KEY_LENGTH] < 0 or (scope[VALUE_LENGTH] < 0 and scope[KEEPS_TOMBSTONES] == 0):
        return False
    found = words[_slot_of(view, key, key + scope[KEY_LENGTH], words, scope)[0] + 2]
    return found <= offset + 1


# -- what all read ------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _batch_size(
    view: cython.const[cython.uchar][::1], position: cython.Py_ssize_t
) -> cython.longlong:
    """Return the size of the batch at ``position``; 0: it is not all there; -1: it is none."""
    left: cython.longlong = len(view) - position
    size: cython.longlong
    delta: cython.longlong
    count: cython.longlong
    if left < _HEADER_BYTES:
        return 0
    size = int32_at(view, position + 8) + 12
    if size < _HEADER_BYTES or view[position + 16] != 2:
        return -1
    if size > left:
        return 0
    delta = int32_at(view, position + 23)
    count = int32_at(view, position + 57)
    if int64_at(view, position) < 0 or delta < 0 or count < 0 or count > delta + 1:
        return -1
    if not view[position + 22] & 7 and count > (size - _HEADER_BYTES) // _RECORD_BYTES_MIN:
        return -1
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _record(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    scope: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Note what the record at ``position`` holds in ``scope``; return its end, -1: it is none."""
    stop: cython.Py_ssize_t
    length: cython.longlong
    length, position = varlong_at(view, position, end)
    if position < 0 or length < 1 or length > end - position:
        return -1
    stop = position + length
    scope[TIMESTAMP_DELTA], position = varlong_at(view, position + 1, stop)
    if position < 0:
        return -1
    scope[OFFSET_AT] = position
    scope[OFFSET_DELTA], position = varlong_at(view, position, stop)
    if position < 0:
        return -1
    length, position = varlong_at(view, position, stop)
    if position < 0 or length > stop - position:
        return -1
    scope[KEY_LENGTH] = length
    scope[KEY_AT] = position
    if length > 0:
        position += length
    length, position = varlong_at(view, position, stop)
    if position < 0 or length > stop - position:
        return -1
    scope[VALUE_LENGTH] = length
    return stop


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _contains(offsets: cython.const[cython.longlong][::1], offset: cython.longlong) -> cython.bint:
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(offsets)
    middle: cython.Py_ssize_t
    while low < high:
        middle = (low + high) // 2
        if offsets[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low < len(offsets) and offsets[low] == offset


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _sum(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.longlong:
    if cython.compiled:
        return ottla_crc32c(cython.address(view[position]), end - position)
    return crc32c(view[position:end])


if cython.compiled:
    ottla_crc32c_choose()
