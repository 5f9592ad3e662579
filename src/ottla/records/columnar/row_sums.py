# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""What a set of rows holds as one number: a sum of checksums, the same in any order of rows.

Made as ``writer`` is: one file that runs compiled or interpreted, over the columns of ``layout``.
``ottla.spark.writing.content`` uses it to tell whether two runs of a micro-batch want the same rows
written.

Each column of a row adds its checksum, salted by the column's number, to the row's; null adds
nothing. The rows' sums are mixed and added. Not cryptographic: it finds other rows, not forgers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

if not cython.compiled:  # else they stand in row_sums.pxd
    from ottla.records.columnar.layout import ascend, check_validity, is_valid

if TYPE_CHECKING:
    from array import array

    from ottla.records.columnar.layout import Headers, Numbers, Octets

COMPILED: bool = cython.compiled
"""Whether this is the extension (nanoseconds a row) or the interpreted form (microseconds)."""

_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_FACTOR = cython.declare(cython.ulonglong, 0x9FB21C651E98DF25)
_ODD = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)


def add_octets(sums: array[int], column: Octets, salt: int) -> None:
    """Add the checksum of each row's bytes to its sum: ``sums`` is of type "Q", one a row.

    Raises ValueError when sizes do not fit.
    """
    out: cython.ulonglong[::1] = sums
    offsets: cython.const[cython.int][::1] = column.offsets
    data: cython.const[cython.uchar][::1] = column.data
    validity: cython.const[cython.uchar][::1] = b""
    has_nulls: cython.bint = column.validity is not None
    bit: cython.Py_ssize_t = column.bit
    seed: cython.ulonglong = salt
    count: cython.Py_ssize_t = len(out)
    row: cython.Py_ssize_t
    if has_nulls:
        validity = column.validity
        check_validity(len(validity), bit, count)
    _check(offsets, len(data), count)
    for row in range(count):
        if has_nulls and not is_valid(validity, bit + row):
            continue
        out[row] = (out[row] + _checksum(data, offsets[row], offsets[row + 1], seed)) & _MASK


def add_numbers(sums: array[int], column: Numbers, salt: int) -> None:
    """Add the checksum of each row's number, of 64 bits, to its sum. Raises as ``add_octets``."""
    out: cython.ulonglong[::1] = sums
    values: cython.const[cython.longlong][::1] = column.values
    validity: cython.const[cython.uchar][::1] = b""
    has_nulls: cython.bint = column.validity is not None
    bit: cython.Py_ssize_t = column.bit
    seed: cython.ulonglong = salt
    count: cython.Py_ssize_t = len(out)
    number: cython.ulonglong
    row: cython.Py_ssize_t
    if has_nulls:
        validity = column.validity
        check_validity(len(validity), bit, count)
    if len(values) != count:
        raise ValueError("there are not as many numbers as rows")
    for row in range(count):
        if has_nulls and not is_valid(validity, bit + row):
            continue
        number = values[row] & _MASK
        out[row] = (out[row] + _mix(number ^ _mix(seed * _ODD & _MASK))) & _MASK


def add_headers(sums: array[int], column: Headers, salt: int) -> None:
    """Add the checksums of each row's headers, by their places. Raises as ``add_octets``."""
    out: cython.ulonglong[::1] = sums
    offsets: cython.const[cython.int][::1] = column.offsets
    names: cython.const[cython.int][::1] = column.names.offsets
    name_data: cython.const[cython.uchar][::1] = column.names.data
    values: cython.const[cython.int][::1] = column.values.offsets
    value_data: cython.const[cython.uchar][::1] = column.values.data
    value_validity: cython.const[cython.uchar][::1] = b""
    validity: cython.const[cython.uchar][::1] = b""
    has_value_nulls: cython.bint = column.values.validity is not None
    has_nulls: cython.bint = column.validity is not None
    value_bit: cython.Py_ssize_t = column.values.bit
    bit: cython.Py_ssize_t = column.bit
    count: cython.Py_ssize_t = len(out)
    there: cython.Py_ssize_t = min(len(names), len(values)) - 1
    seed: cython.ulonglong
    row: cython.Py_ssize_t
    each: cython.Py_ssize_t
    if has_value_nulls:
        value_validity = column.values.validity
        check_validity(len(value_validity), value_bit, there)
    if has_nulls:
        validity = column.validity
        check_validity(len(validity), bit, count)
    _check(offsets, there, count)
    _check(names, len(name_data), len(names) - 1)
    _check(values, len(value_data), len(values) - 1)
    for row in range(count):
        if has_nulls and not is_valid(validity, bit + row):
            continue
        for each in range(offsets[row], offsets[row + 1]):
            seed = (salt + 2 * (each - offsets[row])) & _MASK
            out[row] = (out[row] + _checksum(name_data, names[each], names[each + 1], seed)) & _MASK
            if has_value_nulls and not is_valid(value_validity, value_bit + each):
                continue
            seed += 1
            out[row] = (
                out[row] + _checksum(value_data, values[each], values[each + 1], seed)
            ) & _MASK


def total(sums: array[int]) -> int:
    """Return the sum over all rows, modulo 2 ** 64; the order of rows has no part in it."""
    rows: cython.const[cython.ulonglong][::1] = sums
    found: cython.ulonglong = 0
    row: cython.Py_ssize_t
    for row in range(len(rows)):
        found = (found + _mix(rows[row])) & _MASK
    return found


@cython.cfunc
def _check(
    offsets: cython.const[cython.int][::1], end: cython.Py_ssize_t, count: cython.Py_ssize_t
) -> None:
    if len(offsets) != count + 1:
        raise ValueError("a column's offsets do not fit its rows")
    if not ascend(offsets, count, end):
        raise ValueError("a column's offsets do not fit its data")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _mix(number: cython.ulonglong) -> cython.ulonglong:
    number = (number ^ (number >> 32)) * _FACTOR & _MASK
    number = (number ^ (number >> 29)) * _FACTOR & _MASK
    return number ^ (number >> 32)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _checksum(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    salt: cython.ulonglong,
) -> cython.ulonglong:
    """Return the checksum of ``data[start:end]``: words of 8 bytes, the lowest byte first."""
    found: cython.ulonglong = _mix((salt * _ODD & _MASK) ^ (end - start))
    position: cython.Py_ssize_t = start
    whole: cython.Py_ssize_t = start + ((end - start) & ~7)
    word: cython.ulonglong
    byte: cython.ulonglong
    shift: cython.int = 0
    while position < whole:
        byte = data[position + 7]
        word = byte << 56
        byte = data[position + 6]
        word |= byte << 48
        byte = data[position + 5]
        word |= byte << 40
        byte = data[position + 4]
        word |= byte << 32
        byte = data[position + 3]
        word |= byte << 24
        byte = data[position + 2]
        word |= byte << 16
        byte = data[position + 1]
        word |= byte << 8
        word |= data[position]
        found = (found ^ word) * _FACTOR & _MASK
        found ^= found >> 29
        position += 8
    word = 0
    while position < end:
        byte = data[position]
        word |= byte << shift
        shift += 8
        position += 1
    return _mix((found ^ word) * _ODD & _MASK)
