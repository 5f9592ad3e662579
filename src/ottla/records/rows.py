# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""Records as plain tuples: packed for a batch, taken out of one, and the hash of their keys.

For clients of very many small records: a few hundred nanoseconds a record where this is compiled,
see ``setup.py``; the same results, slower, where it is not. Knows no batch header; ``builder`` and
``decode`` do. The layout of a record stands in ``ottla.records.kernels``. Source of the hash:
murmur2 by Austin Appleby (public domain), with the seed that Kafka's clients use.
"""

from __future__ import annotations

from typing import NamedTuple

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

if not cython.compiled:  # else they stand in rows.pxd
    from ottla.records.numbers import varint_size, varlong_at

_CARRIAGE_RETURN = cython.declare(cython.int, 13)

COMPILED: bool = cython.compiled
"""Whether this is the extension or the interpreted form."""

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A record on its way to a broker. ``pack_rows`` takes plain tuples of the same four, too."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


PlainRow = tuple[int, bytes | None, bytes | None, Headers]
FoundRow = tuple[int, int, bytes | None, bytes | None, Headers]
"""Offset, time in ms since 1970, key, value, headers."""


def pack_rows(rows: list[PlainRow]) -> bytearray:
    """Return the records one behind the other, as they stand behind a batch's header.

    Offsets count from 0, times from the first record's. At least one row.
    """
    out = bytearray()
    base: cython.longlong = rows[0][0]
    index: cython.longlong
    delta: cython.longlong
    size: cython.longlong
    for index, row in enumerate(rows):
        timestamp, key, value, headers = row
        delta = timestamp - base
        tail = _pack_headers(headers) if headers else b"\0"
        size = 1 + varint_size(delta) + varint_size(index) + len(tail)
        size += _size(key) + _size(value)
        _append(out, size)
        out.append(0)
        _append(out, delta)
        _append(out, index)
        _append_bytes(out, key)
        _append_bytes(out, value)
        out += tail
    return out


def _pack_headers(headers: Headers) -> bytes:
    out = bytearray()
    _append(out, len(headers))
    for name, data in headers:
        _append_bytes(out, name.encode())
        _append_bytes(out, data)
    return bytes(out)


@cython.cfunc
def _size(data: bytes | None) -> cython.longlong:
    if data is None:
        return 1
    return varint_size(len(data)) + len(data)


@cython.cfunc
def _append_bytes(out: bytearray, data: bytes | None) -> cython.int:
    if data is None:
        out.append(1)
        return 0
    _append(out, len(data))
    out += data
    return 0


@cython.cfunc
def _append(out: bytearray, number: cython.longlong) -> cython.int:
    raw: cython.ulonglong = (number << 1) ^ (number >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return 0


def unpack_rows(  # noqa: C901, PLR0911, PLR0912 - flat, because a call per field costs more
    payload: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int
) -> list[FoundRow] | None:
    """Return the ``count`` records that must fill ``payload``.

    ``append_time``: the time of all of them, where the log gave it; -1: each has its own. None if a
    record is not as it should be: ``ottla.records.decode`` says what is wrong.
    """
    view: cython.const[cython.uchar][::1] = payload
    size: cython.Py_ssize_t = len(view)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    number: cython.longlong
    timestamp: cython.longlong
    offset: cython.longlong
    found: list[FoundRow] = []
    if not 0 <= count <= size:
        return None
    for _ in range(count):
        number, at = varlong_at(view, at, size)
        if at < 0 or number < 1 or number > size - at:
            return None
        end = at + number
        timestamp, at = varlong_at(view, at + 1, end)
        if at < 0:
            return None
        offset, at = varlong_at(view, at, end)
        if at < 0:
            return None
        number, at = varlong_at(view, at, end)
        if at < 0 or number > end - at:
            return None
        key = None
        if number >= 0:
            key = payload[at : at + number]
            at += number
        number, at = varlong_at(view, at, end)
        if at < 0 or number > end - at:
            return None
        value = None
        if number >= 0:
            value = payload[at : at + number]
            at += number
        headers: Headers = ()
        if at < end and view[at] == 0:
            at += 1
        else:
            read = _headers(payload, at, end)
            if read is None:
                return None
            headers, at = read
        if at != end:
            return None
        moment = append_time if append_time >= 0 else base_timestamp + timestamp
        found.append((base_offset + offset, moment, key, value, headers))
    return found if at == size else None


def _headers(payload: bytes, start: int, stop: int) -> tuple[Headers, int] | None:
    view: cython.const[cython.uchar][::1] = payload
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = stop
    count: cython.longlong
    number: cython.longlong
    count, at = varlong_at(view, at, end)
    if at < 0 or count < 0 or count > end - at:
        return None
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        number, at = varlong_at(view, at, end)
        if at < 0 or number < 0 or number > end - at:
            return None
        name = payload[at : at + number].decode("utf-8", "replace")
        at += number
        number, at = varlong_at(view, at, end)
        if at < 0 or number > end - at:
            return None
        data = None
        if number >= 0:
            data = payload[at : at + number]
            at += number
        found.append((name, data))
    return tuple(found), at


def keyed_rows(  # noqa: C901, PLR0915, PLR0917 - flat, as above; called once for many lines
    lines: list[bytes],
    separator: bytes,
    timestamp_ms: int,
    headers: Headers,
    partition_count: int,
    empty: tuple[bytes | None, int] | None,
) -> tuple[list[list[PlainRow]], list[int], int]:
    r"""Return lines of a key, the separator and a value as records by the partition of the key.

    ``empty``: the key in place of an empty one, and its partition; empty values are then null.
    Beside the records are the bytes of keys and values in each partition, and how many lines were
    taken: up to the first without a separator. A ``\r`` at the end of a line is no part of it.
    """
    found: list[list[PlainRow]] = [[] for _ in range(partition_count)]
    sizes = [0] * partition_count
    default: bytes | None = None
    default_index: cython.Py_ssize_t = 0
    if empty is not None:
        default, default_index = empty
    count: cython.longlong = partition_count
    index: cython.Py_ssize_t = 0
    taken: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    width: cython.Py_ssize_t = len(separator)
    first: cython.int = separator[0]
    at: cython.Py_ssize_t
    line: bytes
    key: bytes | None
    value: bytes | None
    for line in lines:
        size = len(line)
        if size and line[size - 1] == _CARRIAGE_RETURN:
            size -= 1
        if width == 1:
            at = 0
            while at < size and line[at] != first:
                at += 1
            if at == size:
                break
        else:
            at = line.find(separator, 0, size)
            if at < 0:
                break
        taken += 1
        key = line[:at]
        value = line[at + width : size]
        index = 0
        size -= width
        if empty is not None:
            value = value or None
        if empty is not None and at == 0:
            key, index = default, default_index
            size += len(default) if default is not None else 0
        elif count > 1:
            index = (_murmur2(key) & 0x7FFFFFFF) % count
        found[index].append((timestamp_ms, key, value, headers))
        sizes[index] += size
    return found, sizes, taken


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of ``data``, unsigned."""
    return _murmur2(data)


@cython.cfunc
def _murmur2(view: bytes) -> cython.ulonglong:
    # Its bytes are taken as they are: a view of them would cost as much as the hash of a short key.
    length: cython.Py_ssize_t = len(view)
    whole: cython.Py_ssize_t = length & ~3
    at: cython.Py_ssize_t = 0
    word: cython.ulonglong
    byte: cython.ulonglong
    mask: cython.ulonglong = 0xFFFFFFFF
    multiplier: cython.ulonglong = 0x5BD1E995
    value: cython.ulonglong = (0x9747B28C ^ length) & 0xFFFFFFFF
    while at < whole:
        word = view[at] | (view[at + 1] << 8) | (view[at + 2] << 16)
        byte = view[at + 3]
        word = (word | (byte << 24)) * multiplier & mask
        word = (word ^ (word >> 24)) * multiplier & mask
        value = ((value * multiplier) & mask) ^ word
        at += 4
    if whole < length:
        word = 0
        while at < length:
            byte = view[at]
            word |= byte << (8 * (at - whole))
            at += 1
        value = (value ^ word) * multiplier & mask
    value = ((value ^ (value >> 13)) * multiplier) & mask
    return value ^ (value >> 15)
