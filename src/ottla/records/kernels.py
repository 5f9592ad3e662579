# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""The loops over records and batches: the only hot code that looks inside, the only place for it.

One file, two forms: Cython's pure-Python mode compiles it to the extension beside it, which wins
at import; without a C compiler this file runs as it stands, about a hundred times slower, with
the same results. Knows nothing of files, codecs or errors: bytes in, numbers out. Two loops:
``validate_records``, called by ``ottla.records.validate`` with the records of one uncompressed (or
decompressed) batch, or to save calls, as ``read_usual_batch``, with the whole batch as a producer
sent it; and ``walk_batches``, which takes recovery (``ottla.log.segment.bulk_walk``) from
header to header through a log file; it takes the ordinary batch and leaves every other one to its
caller. The checksum in C stands in checksum.pxd.

Source: Kafka's documentation, "Record". Grammar (varints are zigzag, little end first):

    records       = record*                        as many as the batch header says, and no more
    record        = length           varint        bytes after this field
                    attributes       int8          no bit is used
                    timestamp_delta  varlong       to the batch's base timestamp
                    offset_delta     varint        0, 1, 2 ... in a batch that a producer sends
                    key              bytes         length varint, -1: null
                    value            bytes         length varint, -1: null
                    header_count     varint
                    header*
    header        = key              bytes         never null
                    value            bytes         length varint, -1: null

A varint has at most 5 bytes and 32 bits, a varlong 10 bytes and 64 bits; more is refused.
"""

# ruff: noqa: F821 - the C functions are declared in checksum.pxd

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

from ottla.records.crc import crc32c

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension (nanoseconds a record) or the interpreted form (microseconds)."""

GIL_RELEASE_SIZE_BYTES = 262_144
"""From this size on the walk lets other threads run: below, handing the lock over costs more."""

_HEADER_BYTES = cython.declare(cython.int, 61)
_TIME_MAX = cython.declare(cython.longlong, 1 << 62)

_TRUNCATED = cython.declare(cython.int, -1)
_VARINT = cython.declare(cython.int, -2)
_LENGTH = cython.declare(cython.int, -3)
_OFFSET = cython.declare(cython.int, -4)
_FIELD = cython.declare(cython.int, -5)
_HEADER_COUNT = cython.declare(cython.int, -6)
_RECORD_END = cython.declare(cython.int, -7)
_RECORDS_END = cython.declare(cython.int, -8)

REASONS: dict[int, str] = {
    _TRUNCATED: "the record ends inside a field",
    _VARINT: "a varint is longer than its type",
    _LENGTH: "the record is longer than the batch",
    _OFFSET: "the offset deltas do not count up from 0",
    _FIELD: "a key, value or header is longer than its record or has a negative length",
    _HEADER_COUNT: "the header count is negative or more than the record can hold",
    _RECORD_END: "the record is longer than its fields",
    _RECORDS_END: "bytes follow the last record",
}
"""What each negative result means, for the log and the client's error message."""


def validate_records(payload: Buffer, count: int) -> tuple[int, int, int, int, int]:
    """Walk ``count`` records that must fill ``payload`` exactly.

    Returns ``(reason, index, first_null_key, timestamp_delta_min, timestamp_delta_max)``: reason 0
    if all is well, else a key of ``REASONS`` and the index of the offending record; the index of
    the first record without a key, or -1; the extremes of the deltas (0, 0 without records). The
    last three mean nothing when the reason is not 0. Reads every byte it needs once, allocates
    nothing, never reads outside of ``payload``; thread-safe. ``count`` fits 32 bits, >= 0.
    """
    view: cython.const[cython.uchar][::1] = payload
    total: cython.int = count
    result: tuple[cython.int, cython.int, cython.int, cython.longlong, cython.longlong]
    if len(view) < GIL_RELEASE_SIZE_BYTES:
        return _walk(view, total)
    with cython.nogil:
        result = _walk(view, total)
    return result


def read_usual_batch(batch: Buffer) -> tuple[int, ...] | None:
    """Read header and records of what most producers send, in one go; None if it is anything else.

    That is: exactly one uncompressed batch of format 2 with base offset 0, no attribute set and
    times that any arithmetic takes, whose records are as they should be. Returns the 13 numbers of
    the header in their order, the smallest and largest timestamp of the records (-1 at least) and
    the index of the first record without a key, or -1. Neither sum nor sizes are held against
    anything: that, and why another batch is refused, is ``ottla.records.validate``'s to say.
    """
    view: cython.const[cython.uchar][::1] = batch
    size: cython.Py_ssize_t = len(view)
    if size < _HEADER_BYTES or view[16] != 2 or view[21] != 0 or view[22] != 0:
        return None
    base_offset: cython.longlong = _signed_long(view, 0)
    batch_length: cython.longlong = _signed(view, 8)
    last_offset_delta: cython.longlong = _signed(view, 23)
    base_timestamp: cython.longlong = _signed_long(view, 27)
    producer_id: cython.longlong = _signed_long(view, 43)
    producer_epoch: cython.longlong = _short(view, 51)
    if producer_epoch > 0x7FFF:
        producer_epoch -= 0x10000
    base_sequence: cython.longlong = _signed(view, 53)
    count: cython.longlong = _signed(view, 57)
    if base_offset != 0 or batch_length != size - 12:
        return None
    if count <= 0 or last_offset_delta != count - 1:
        return None
    if producer_id > -1 and base_sequence < 0:
        return None
    if base_timestamp < -1 or base_timestamp > _TIME_MAX:
        return None
    total: cython.int = count
    found: tuple[cython.int, cython.int, cython.int, cython.longlong, cython.longlong]
    if size < GIL_RELEASE_SIZE_BYTES:
        found = _walk(view[_HEADER_BYTES:], total)
    else:
        with cython.nogil:
            found = _walk(view[_HEADER_BYTES:], total)
    delta_min: cython.longlong = found[3]
    delta_max: cython.longlong = found[4]
    if found[0] != 0 or delta_min < -_TIME_MAX or delta_max > _TIME_MAX:
        return None
    max_timestamp: cython.longlong = base_timestamp + delta_max
    max_timestamp = max(max_timestamp, -1)
    return (
        base_offset,
        batch_length,
        _signed(view, 12),
        2,
        _unsigned(view, 17),
        0,
        last_offset_delta,
        base_timestamp,
        _signed_long(view, 35),
        producer_id,
        producer_epoch,
        base_sequence,
        count,
        base_timestamp + delta_min,
        max_timestamp,
        found[2],
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(  # noqa: C901, PLR0911, PLR0912, PLR0915 - flat, because a call per field costs more
    payload: cython.const[cython.uchar][::1], count: cython.int
) -> tuple[cython.int, cython.int, cython.int, cython.longlong, cython.longlong]:
    position: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(payload)
    stop: cython.Py_ssize_t
    index: cython.int
    field: cython.int
    shift: cython.int
    byte: cython.ulonglong
    raw: cython.ulonglong
    value: cython.longlong
    headers_left: cython.longlong
    first_null_key: cython.int = -1
    delta_min: cython.longlong = 0
    delta_max: cython.longlong = 0

    for index in range(count):
        stop = end
        headers_left = 0
        field = 0
        while True:
            if position >= stop:
                return _TRUNCATED, index, -1, 0, 0
            raw = payload[position]
            position += 1
            if raw > 0x7F:
                raw &= 0x7F
                shift = 7
                while True:
                    if position >= stop:
                        return _TRUNCATED, index, -1, 0, 0
                    byte = payload[position]
                    position += 1
                    if shift == 63 and byte > 1:
                        return _VARINT, index, -1, 0, 0
                    raw |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                if field != 1 and raw >> 32:
                    return _VARINT, index, -1, 0, 0
            value = raw >> 1
            if raw & 1:
                value = ~value

            if field == 0:  # record length, and the unused attributes behind it
                if value < 0 or value > end - position:
                    return _LENGTH, index, -1, 0, 0
                stop = position + value
                position += 1
            elif field == 1:  # timestamp delta
                if index == 0:
                    delta_min = value
                    delta_max = value
                elif value > delta_max:
                    delta_max = value
                elif value < delta_min:
                    delta_min = value
            elif field == 2:  # offset delta
                if value != index:
                    return _OFFSET, index, -1, 0, 0
            elif field == 5:  # header count; a header has two bytes at least
                if value < 0 or value > (stop - position) // 2:
                    return _HEADER_COUNT, index, -1, 0, 0
                headers_left = value
                if headers_left == 0:
                    break
            else:  # key, value, header key, header value: a length, and as many bytes
                if value >= 0:
                    if value > stop - position:
                        return _FIELD, index, -1, 0, 0
                    position += value
                elif value != -1 or field == 6:
                    return _FIELD, index, -1, 0, 0
                elif field == 3 and first_null_key < 0:
                    first_null_key = index
                if field == 7:
                    headers_left -= 1
                    if headers_left == 0:
                        break
                    field = 5
            field += 1
        if position != stop:
            return _RECORD_END, index, -1, 0, 0
    if position != end:
        return _RECORDS_END, count, -1, 0, 0
    return 0, count, first_null_key, delta_min, delta_max


# -- batches -----------------------------------------------------------------------------------

WALK_NEEDS_DATA = 0
"""Of ``walk_batches``: the next batch is not all in the data."""
WALK_UNUSUAL = 1
"""The next batch is not ordinary, or none: somebody else has to judge it."""
WALK_OUTPUT_FULL = 2
"""No room in an output array: take what there is and call again."""
WALK_PRODUCERS_FULL = 3
"""More than half of the table of producers is in use: hand in a larger one."""

# The fields of ``state``. Set by the caller; those marked "too" are brought up to date.
POSITION = 0
"""Of the next batch in its file; too."""
NEXT_OFFSET = 1
"""The offset that the next batch must have; too."""
BYTES_SINCE_ENTRY = 2
"""Size of the batches since the last index entry; too."""
LATEST_TIMESTAMP = 3
"""The largest timestamp so far; too."""
LATEST_OFFSET = 4
"""The last offset of the first batch with the largest timestamp; too."""
ENTRY_TIMESTAMP = 5
"""Timestamp of the last time index entry, -1: there is none; too."""
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
"""Of the segment."""
INDEX_INTERVAL = 15
"""More bytes than this since the last one, and the next batch gets an index entry."""
MAY_SKIP = 16
"""1: offsets may be missing between batches (compaction)."""
VERIFY = 17
"""1: check the sums, for which a batch must be whole in the data; 0: its header suffices."""
WALK_STATE_SIZE = 18


def split_records(  # noqa: C901 - flat, because a call per field costs more
    payload: bytes, count: int, base_offset: int
) -> list[tuple[int, bytes | None, bytes | None]] | None:
    """Return offset, key and value of each of ``count`` records, which must fill ``payload``.

    Offsets may have gaps, as compaction leaves them. None if a record has headers or is not as it
    should be: to read it all the same, or to say what is wrong, is ``ottla.records.decode``'s.
    """
    view: cython.const[cython.uchar][::1] = payload
    size: cython.Py_ssize_t = len(view)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    number: cython.longlong
    offset: cython.longlong
    found = []
    if count < 0:
        return None
    for _ in range(count):
        number, at = _varlong(view, at, size)
        if at < 0 or number < 1 or number > size - at:
            return None
        end = at + number
        number, at = _varlong(view, at + 1, end)
        if at < 0:
            return None
        offset, at = _varlong(view, at, end)
        if at < 0:
            return None
        number, at = _varlong(view, at, end)
        if at < 0 or number > end - at:
            return None
        key = None
        if number >= 0:
            key = payload[at : at + number]
            at += number
        number, at = _varlong(view, at, end)
        if at < 0 or number > end - at:
            return None
        value = None
        if number >= 0:
            value = payload[at : at + number]
            at += number
        number, at = _varlong(view, at, end)
        if at != end or number != 0:
            return None
        found.append((base_offset + offset, key, value))
    return found if at == size else None


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _varlong(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """Return the number at ``at`` and where it ends; -1 if that is not below ``end``."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.ulonglong
    number: cython.longlong
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            number = raw >> 1
            return (-number - 1 if raw & 1 else number), at
        shift += 7
    return 0, -1


PRODUCER_SLOT_SIZE = 8
"""A slot of the table of producers: id + 1 (0: free), whether a transaction is open, how many
batches were seen, and the positions of the last five, each at its number modulo 5."""


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
def _short(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return (data[at] << 8) | data[at + 1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _unsigned(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return _short(data, at) * 0x10000 + _short(data, at + 2)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _signed(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    high: cython.longlong = _short(data, at)
    if high > 0x7FFF:
        high -= 0x10000
    return high * 0x10000 + _short(data, at + 2)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _signed_long(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return _signed(data, at) * 0x10000 * 0x10000 + _unsigned(data, at + 4)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_batches(  # noqa: C901, PLR0912, PLR0915, PLR0917 - flat, as above
    data: cython.const[cython.uchar][::1],
    state: cython.longlong[::1],
    offset_entries: cython.uint[::1],
    time_entries: cython.uint[::1],
    noted: cython.longlong[::1],
    producers: cython.longlong[::1],
) -> cython.int:
    # By number: a name of the module would be a Python object, here where none may be touched.
    position: cython.longlong = state[0]
    next_offset: cython.longlong = state[1]
    bytes_since_entry: cython.longlong = state[2]
    latest_timestamp: cython.longlong = state[3]
    latest_offset: cython.longlong = state[4]
    entry_timestamp: cython.longlong = state[5]
    producer_count: cython.longlong = state[6]
    data_position: cython.longlong = state[10]
    data_end: cython.longlong = state[11]
    file_end: cython.longlong = state[12]
    leader_epoch: cython.longlong = state[13]
    segment_offset: cython.longlong = state[14]
    index_interval: cython.longlong = state[15]
    may_skip: cython.bint = state[16] != 0
    verify: cython.bint = state[17] != 0
    offset_words: cython.Py_ssize_t = 0
    time_words: cython.Py_ssize_t = 0
    noted_count: cython.Py_ssize_t = 0
    slot_mask: cython.longlong = len(producers) // 8 - 1
    at: cython.Py_ssize_t
    base_offset: cython.longlong
    delta: cython.longlong
    count: cython.longlong
    size: cython.longlong
    timestamp: cython.longlong
    producer_id: cython.longlong
    slot: cython.longlong
    attributes: cython.int
    crc: cython.longlong
    reason: cython.int

    while True:
        reason = 0  # WALK_NEEDS_DATA
        if position < data_position or position + 61 > data_end:
            break
        reason = 1  # WALK_UNUSUAL
        at = position - data_position
        size = _signed(data, at + 8) + 12
        if size < 61 or size > file_end - position or data[at + 16] != 2:
            break
        base_offset = _signed_long(data, at)
        if base_offset != next_offset and not (may_skip and base_offset > next_offset):
            break
        delta = _signed(data, at + 23)
        count = _signed(data, at + 57)
        if delta < 0 or count < 0 or count > delta + 1:
            break
        if base_offset - segment_offset > 0x7FFFFFFF - delta:
            break
        if _signed(data, at + 12) != leader_epoch:
            break
        if verify:
            if position + size > data_end:
                reason = 0
                break
            if cython.compiled:
                crc = ottla_crc32c(cython.address(data[at + 21]), size - 21)
            else:
                crc = crc32c(data[at + 21 : at + size])
            if crc != _unsigned(data, at + 17):
                break

        # It is ordinary. Nothing has changed yet: whoever finds no room stops before it.
        reason = 2  # WALK_OUTPUT_FULL
        if offset_words + 2 > len(offset_entries) or time_words + 3 > len(time_entries):
            break
        if noted_count >= len(noted):
            break
        producer_id = _signed_long(data, at + 43)
        if producer_id >= 0:
            if 2 * producer_count > slot_mask:
                reason = 3  # WALK_PRODUCERS_FULL
                break
            slot = (producer_id ^ (producer_id >> 17)) & slot_mask
            while producers[slot * 8] != 0 and producers[slot * 8] != producer_id + 1:
                slot = (slot + 1) & slot_mask
            slot *= 8
            if producers[slot] == 0:
                producers[slot] = producer_id + 1
                producer_count += 1
            attributes = data[at + 22]
            if attributes & 0x20:  # A marker: it ends the producer's transaction.
                producers[slot + 1] = 0
                noted[noted_count] = position
                noted_count += 1
            else:
                if attributes & 0x10 and producers[slot + 1] == 0:
                    producers[slot + 1] = 1
                    noted[noted_count] = position
                    noted_count += 1
                producers[slot + 3 + producers[slot + 2] % 5] = position
                producers[slot + 2] += 1

        timestamp = _signed_long(data, at + 35)
        next_offset = base_offset + delta + 1
        if timestamp > latest_timestamp:
            latest_timestamp = timestamp
            latest_offset = next_offset - 1
        if bytes_since_entry > index_interval:
            offset_entries[offset_words] = next_offset - 1 - segment_offset
            offset_entries[offset_words + 1] = position
            offset_words += 2
            if latest_timestamp > entry_timestamp:
                entry_timestamp = latest_timestamp
                time_entries[time_words] = entry_timestamp // 0x10000 // 0x10000
                time_entries[time_words + 1] = entry_timestamp - (
                    entry_timestamp // 0x10000 // 0x10000 * 0x10000 * 0x10000
                )
                time_entries[time_words + 2] = latest_offset - segment_offset
                time_words += 3
            bytes_since_entry = 0
        bytes_since_entry += size
        position += size

    state[0] = position
    state[1] = next_offset
    state[2] = bytes_since_entry
    state[3] = latest_timestamp
    state[4] = latest_offset
    state[5] = entry_timestamp
    state[6] = producer_count
    state[7] = offset_words
    state[8] = time_words
    state[9] = noted_count
    return reason


def checksum(data: Buffer, *, portable: bool = False) -> int:
    """Return the CRC32C of ``data`` as the walk does; ``portable``: without a CPU's instruction."""
    view: cython.const[cython.uchar][::1] = data
    if cython.compiled:
        if len(view) == 0:
            return 0
        if portable:
            return ottla_crc32c_portable(cython.address(view[0]), len(view))
        return ottla_crc32c(cython.address(view[0]), len(view))
    return crc32c(view)


if cython.compiled:
    ottla_crc32c_choose()
