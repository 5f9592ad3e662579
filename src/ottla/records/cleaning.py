# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""The log cleaner's loops over batches and records: keys into the offset map, and the filter.

Beside ``ottla.records.kernels`` the only code that looks at every record, and made the same way:
one file that runs compiled or interpreted. The compiled loops work without the interpreter's lock,
a whole chunk of a log file at a time: cleaning does not hold up the event loop's thread.
Knows nothing of files, codecs or transactions: what is not a plain uncompressed batch is left to
the caller (``ottla.log.upkeep.cleaner``), which opens it and hands in its records.

The offset map is one array of 64-bit words, three to a slot; open addressing, the next free slot:

    slot = hash low, hash high    SipHash-2-4 of the key, 128 bits, seeded by the caller: who writes
                                  keys cannot make two of them meet
           offset + 1             the last offset seen of that key; 0: the slot is free

``scope``, an array of ``SCOPE_SIZE`` int64, says what to do and takes what came of it.
Grammar of what is walked: see ``ottla.records.batch`` and ``ottla.records.kernels``. Sources:
Kafka's log cleaner and ``MemoryRecords.filterTo``; SipHash (Aumasson, Bernstein), 128-bit form.
"""

# ruff: noqa: F821 - the C functions are declared in cleaning.pxd

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

from ottla.records.crc import crc32c

if not cython.compiled:  # else they stand in cleaning.pxd
    from ottla.records.numbers import (
        copy,
        int32_at,
        int64_at,
        put_varint,
        uint32_at,
        varint_size,
        varlong_at,
    )

if TYPE_CHECKING:
    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension or the interpreted form."""

SLOT_WORDS = 3
SLOT_BYTES = 24
GROWTH_BYTES = 10
"""A record may become so much longer by another base timestamp."""

DONE = 0
"""Nothing is left but, perhaps, the beginning of a batch."""
SPECIAL = 1
"""The next batch is compressed, transactional or a marker: the caller's to handle."""
FULL = 2
"""The map takes no further key, or the output no further batch; that batch was not handled."""
CORRUPT = 3
"""The next bytes are no whole and sound batch, or its records do not fit it."""

_DONE = cython.declare(cython.int, 0)
_SPECIAL = cython.declare(cython.int, 1)
_FULL = cython.declare(cython.int, 2)
_CORRUPT = cython.declare(cython.int, 3)

# Where in ``scope`` stands what. First what the caller sets once.
SEED_LOW = 0
SEED_HIGH = 1
CAPACITY = 2  # keys that the map takes
FIRST_OFFSET = 3  # records below it are not mapped
LATEST_OFFSET = 4  # records above it all stay
NOW_MS = 5  # tombstones of batches with a delete horizon up to it go
HORIZON_MS = 6  # the delete horizon of batches that get one
# What moves on.
USED = 7  # keys in the map
POSITION = 8  # in the chunk: the next batch
OUT_POSITION = 9  # in the output: where it goes
NEXT_OFFSET = 10  # after the last batch that was mapped
# What ``filter_records`` tells of one batch, and is told: the shift, and whether tombstones stay.
KEPT_COUNT = 11
KEPT_TOMBSTONES = 12
DELTA_MAX = 13
SHIFT = 14  # added to every timestamp delta
KEEPS_TOMBSTONES = 15
# What ``index_batches`` is told and goes on with.
INDEX_INTERVAL = 24  # bytes between two index entries, at least
FILE_POSITION = 25  # of the first byte of the output in its file
SINCE_ENTRY = 26  # bytes since the last entry
LATEST_TIMESTAMP = 27  # the largest so far
LATEST_TIMESTAMP_OFFSET = 28  # the last offset of the first batch that has it
SCOPE_SIZE = 29
ENTRY_WORDS = 4

_SEED_LOW = cython.declare(cython.int, 0)
_SEED_HIGH = cython.declare(cython.int, 1)
_CAPACITY = cython.declare(cython.int, 2)
_FIRST = cython.declare(cython.int, 3)
_LATEST = cython.declare(cython.int, 4)
_NOW = cython.declare(cython.int, 5)
_HORIZON = cython.declare(cython.int, 6)
_USED = cython.declare(cython.int, 7)
_POSITION = cython.declare(cython.int, 8)
_OUT = cython.declare(cython.int, 9)
_NEXT = cython.declare(cython.int, 10)
_KEPT = cython.declare(cython.int, 11)
_TOMBSTONES = cython.declare(cython.int, 12)
_DELTA_MAX = cython.declare(cython.int, 13)
_SHIFT = cython.declare(cython.int, 14)
_KEEPS = cython.declare(cython.int, 15)
# The record that ``_record`` found.
_TIMESTAMP = cython.declare(cython.int, 16)  # delta
_OFFSET = cython.declare(cython.int, 17)  # delta
_OFFSET_AT = cython.declare(cython.int, 18)  # where the offset delta stands
_KEY_AT = cython.declare(cython.int, 19)
_KEY_LENGTH = cython.declare(cython.int, 20)  # negative: null
_VALUE_LENGTH = cython.declare(cython.int, 21)  # negative: null
# What ``_hash`` found.
_HASH_LOW = cython.declare(cython.int, 22)
_HASH_HIGH = cython.declare(cython.int, 23)

_INTERVAL = cython.declare(cython.int, 24)
_FILE_POSITION = cython.declare(cython.int, 25)
_SINCE = cython.declare(cython.int, 26)
_LATEST_TIMESTAMP = cython.declare(cython.int, 27)
_LATEST_TIMESTAMP_OFFSET = cython.declare(cython.int, 28)

_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_HASH_A = cython.declare(cython.ulonglong, 0x736F6D6570736575)  # "somepseu", and so on
_HASH_B = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
_HASH_C = cython.declare(cython.ulonglong, 0x6C7967656E657261)
_HASH_D = cython.declare(cython.ulonglong, 0x7465646279746573)

_SPECIAL_BITS = cython.declare(cython.int, 0x37)  # of the attributes: codec, transactional, control
_LOG_APPEND_TIME_BIT = cython.declare(cython.int, 0x08)
_HORIZON_BIT = cython.declare(cython.int, 0x40)
_HEADER_BYTES = cython.declare(cython.int, 61)
_GROWTH_BYTES = cython.declare(cython.int, 10)
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
    found: cython.longlong = words[_slot_of(view, 0, len(view), words, fields) + 2]
    return found - 1


def hash_of(key: bytes, scope: array[int]) -> tuple[int, int]:
    """Return the two halves of the hash of ``key``, signed. For tests."""
    view: cython.const[cython.uchar][::1] = key
    fields: cython.longlong[::1] = scope
    _hash(view, 0, len(view), fields)
    return scope[_HASH_LOW], scope[_HASH_HIGH]


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
        position = scope[_POSITION]
        size = _batch_size(view, position)
        if size == 0:
            return _DONE
        if size < 0 or not _is_sound(view, position, size):
            return _CORRUPT
        if view[position + 22] & _SPECIAL_BITS:
            return _SPECIAL
        base_offset = int64_at(view, position)
        last_offset = base_offset + int32_at(view, position + 23)
        if last_offset >= scope[_FIRST]:
            count = int32_at(view, position + 57)
            ended = _map_records(
                view, position + _HEADER_BYTES, position + size, count, base_offset, words, scope
            )
            if ended != _DONE:
                return ended
            scope[_NEXT] = last_offset + 1
        scope[_POSITION] = position + size


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
    while count > 0:
        count -= 1
        position = _record(view, position, end, scope)
        if position < 0:
            return _CORRUPT
        offset = base_offset + scope[_OFFSET]
        if scope[_KEY_LENGTH] >= 0 and offset >= scope[_FIRST]:
            key = scope[_KEY_AT]
            slot = _slot_of(view, key, key + scope[_KEY_LENGTH], words, scope)
            if words[slot + 2] == 0:
                if scope[_USED] >= scope[_CAPACITY]:
                    return _FULL
                scope[_USED] += 1
                words[slot] = scope[_HASH_LOW] & _MASK
                words[slot + 1] = scope[_HASH_HIGH] & _MASK
            words[slot + 2] = offset + 1
    return _DONE if position == end else _CORRUPT


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _slot_of(
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    words: cython.ulonglong[::1],
    scope: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Return the first word of the key's slot, or of the free one where it would go."""
    low: cython.ulonglong
    high: cython.ulonglong
    end_word: cython.Py_ssize_t = len(words)
    slots: cython.ulonglong = end_word // 3
    word: cython.Py_ssize_t
    _hash(view, start, end, scope)
    low = scope[_HASH_LOW] & _MASK
    high = scope[_HASH_HIGH] & _MASK
    word = low % slots * 3
    while words[word + 2] != 0 and (words[word] != low or words[word + 1] != high):
        word += 3
        if word == end_word:
            word = 0
    return word


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hash(  # noqa: PLR0915 - the sixteen steps of a round
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    scope: cython.longlong[::1],
) -> cython.int:
    seed_low: cython.ulonglong = scope[_SEED_LOW] & _MASK
    seed_high: cython.ulonglong = scope[_SEED_HIGH] & _MASK
    a: cython.ulonglong = seed_low ^ _HASH_A
    b: cython.ulonglong = seed_high ^ _HASH_B ^ 0xEE
    c: cython.ulonglong = seed_low ^ _HASH_C
    d: cython.ulonglong = seed_high ^ _HASH_D
    word: cython.ulonglong
    byte: cython.ulonglong
    length: cython.Py_ssize_t = end - start
    words: cython.Py_ssize_t = length >> 3
    at: cython.Py_ssize_t = start
    step: cython.Py_ssize_t
    index: cython.Py_ssize_t
    for step in range(words + 5):
        word = 0
        if step < words:
            for index in range(8):
                byte = view[at + index]
                word |= byte << (8 * index)
            at += 8
        elif step == words:
            for index in range(length & 7):
                byte = view[at + index]
                word |= byte << (8 * index)
            byte = length & 0xFF
            word |= byte << 56
        elif step == words + 1:
            c ^= 0xEE
        elif step == words + 3:
            scope[_HASH_LOW] = _signed(a ^ b ^ c ^ d)
            b ^= 0xDD
        d ^= word
        for index in range(2):  # noqa: B007 - two rounds
            a = (a + b) & _MASK
            b = ((b << 13) | (b >> 51)) & _MASK
            b ^= a
            a = ((a << 32) | (a >> 32)) & _MASK
            c = (c + d) & _MASK
            d = ((d << 16) | (d >> 48)) & _MASK
            d ^= c
            a = (a + d) & _MASK
            d = ((d << 21) | (d >> 43)) & _MASK
            d ^= a
            c = (c + b) & _MASK
            b = ((b << 17) | (b >> 47)) & _MASK
            b ^= c
            c = ((c << 32) | (c >> 32)) & _MASK
        a ^= word
    scope[_HASH_HIGH] = _signed(a ^ b ^ c ^ d)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _signed(number: cython.ulonglong) -> cython.longlong:
    value: cython.longlong
    if number >> 63:
        value = _MASK - number
        return -1 - value
    value = number
    return value


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
    while True:
        position = scope[_POSITION]
        to = scope[_OUT]
        size = _batch_size(view, position)
        if size == 0:
            return _DONE
        if size < 0 or not _is_sound(view, position, size):
            return _CORRUPT
        if view[position + 22] & _SPECIAL_BITS:
            return _SPECIAL
        count = int32_at(view, position + 57)
        if size + count * _GROWTH_BYTES > len(out) - to:
            return _FULL
        start = position + _HEADER_BYTES
        stop = position + size
        base_offset = int64_at(view, position)
        last_offset = base_offset + int32_at(view, position + 23)
        base_timestamp = int64_at(view, position + 27)
        has_horizon = view[position + 22] & _HORIZON_BIT
        scope[_KEEPS] = has_horizon == 0 or scope[_NOW] < base_timestamp
        scope[_SHIFT] = 0
        copy(view, position, out, to, _HEADER_BYTES)
        to += _HEADER_BYTES
        end = _filter_records(view, start, stop, count, base_offset, out, to, words, scope)
        if end >= 0 and scope[_TOMBSTONES] > 0 and has_horizon == 0:
            scope[_SHIFT] = base_timestamp - scope[_HORIZON]
            base_timestamp = scope[_HORIZON]
            end = _filter_records(view, start, stop, count, base_offset, out, to, words, scope)
        if end < 0:
            return _CORRUPT
        to = scope[_OUT]
        scope[_POSITION] = stop
        if scope[_KEPT] == count and count > 0 and (scope[_TOMBSTONES] == 0 or has_horizon != 0):
            scope[_OUT] = end  # The very bytes that were there.
            continue
        if scope[_KEPT] == 0:
            if not _contains(retained, last_offset):
                continue
            out[to + 22] = out[to + 22] & ~_HORIZON_BIT
            _put(out, to + 27, 8, -1)
        else:
            if scope[_TOMBSTONES] > 0:
                out[to + 22] = out[to + 22] | _HORIZON_BIT
            _put(out, to + 27, 8, base_timestamp)
            if not out[to + 22] & _LOG_APPEND_TIME_BIT:  # With it all have the largest timestamp.
                _put(out, to + 35, 8, base_timestamp + scope[_DELTA_MAX])
        _put(out, to + 8, 4, end - to - 12)
        _put(out, to + 57, 4, scope[_KEPT])
        _put(out, to + 17, 4, _crc(out, to + 21, end))
        scope[_OUT] = end


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
    scope[_KEPT] = 0
    scope[_TOMBSTONES] = 0
    scope[_DELTA_MAX] = 0
    while count > 0:
        count -= 1
        start = position
        position = _record(view, position, end, scope)
        if position < 0:
            return -1
        if not _stays(view, base_offset + scope[_OFFSET], words, scope):
            continue
        delta = scope[_TIMESTAMP] + scope[_SHIFT]
        if scope[_KEPT] == 0 or delta > scope[_DELTA_MAX]:
            scope[_DELTA_MAX] = delta
        scope[_KEPT] += 1
        if scope[_VALUE_LENGTH] < 0:
            scope[_TOMBSTONES] += 1
        same_at = start
        if scope[_SHIFT] != 0:
            # From the offset delta on the record stays as it is.
            same_at = scope[_OFFSET_AT]
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
    key: cython.Py_ssize_t = scope[_KEY_AT]
    found: cython.longlong
    if offset > scope[_LATEST]:
        return True
    if scope[_KEY_LENGTH] < 0 or (scope[_VALUE_LENGTH] < 0 and scope[_KEEPS] == 0):
        return False
    found = words[_slot_of(view, key, key + scope[_KEY_LENGTH], words, scope) + 2]
    return found <= offset + 1


# -- the indexes of what was written --------------------------------------------------------------


def index_batches(out: bytearray, scope: array[int], entries: array[int]) -> int:
    """Tell of the batches in ``out`` before OUT_POSITION what belongs in a segment's indexes.

    Returns how many entries were made. Each is four numbers in ``entries``: the position of a
    batch in its file, its last offset, the largest timestamp in the segment up to and with it, and
    the last offset of the batch that has that. ``entries``, int64, has room for one per batch.
    """
    view: cython.const[cython.uchar][::1] = out
    fields: cython.longlong[::1] = scope
    found: cython.longlong[::1] = entries
    count: cython.longlong
    with cython.nogil:
        count = _index_batches(view, fields, found)
    return count


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _index_batches(
    view: cython.const[cython.uchar][::1],
    scope: cython.longlong[::1],
    entries: cython.longlong[::1],
) -> cython.longlong:
    position: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    size: cython.longlong
    last_offset: cython.longlong
    timestamp: cython.longlong
    while position < scope[_OUT]:
        size = int32_at(view, position + 8) + 12
        last_offset = int64_at(view, position) + int32_at(view, position + 23)
        timestamp = int64_at(view, position + 35)
        if timestamp > scope[_LATEST_TIMESTAMP]:
            scope[_LATEST_TIMESTAMP] = timestamp
            scope[_LATEST_TIMESTAMP_OFFSET] = last_offset
        if scope[_SINCE] > scope[_INTERVAL]:
            entries[at] = scope[_FILE_POSITION] + position
            entries[at + 1] = last_offset
            entries[at + 2] = scope[_LATEST_TIMESTAMP]
            entries[at + 3] = scope[_LATEST_TIMESTAMP_OFFSET]
            at += 4
            scope[_SINCE] = 0
        scope[_SINCE] += size
        position += size
    return at // 4


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
def _is_sound(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    size: cython.longlong,
) -> cython.bint:
    crc: cython.longlong = uint32_at(view, position + 17)
    return _crc(view, position + 21, position + size) == crc


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
    scope[_TIMESTAMP], position = varlong_at(view, position + 1, stop)
    if position < 0:
        return -1
    scope[_OFFSET_AT] = position
    scope[_OFFSET], position = varlong_at(view, position, stop)
    if position < 0:
        return -1
    length, position = varlong_at(view, position, stop)
    if position < 0 or length > stop - position:
        return -1
    scope[_KEY_LENGTH] = length
    scope[_KEY_AT] = position
    if length > 0:
        position += length
    length, position = varlong_at(view, position, stop)
    if position < 0 or length > stop - position:
        return -1
    scope[_VALUE_LENGTH] = length
    return stop


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put(
    out: cython.uchar[::1], position: cython.Py_ssize_t, size: cython.int, value: cython.longlong
) -> cython.int:
    index: cython.int
    for index in range(size):
        out[position + index] = (value >> (8 * (size - 1 - index))) & 0xFF
    return 0


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
def _crc(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.longlong:
    if cython.compiled:
        return ottla_crc32c(cython.address(view[position]), end - position)
    return crc32c(view[position:end])


if cython.compiled:
    ottla_crc32c_choose()
