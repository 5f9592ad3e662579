# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# mypy: disable-error-code="valid-type, untyped-decorator, no-any-return, name-defined"
"""The loop that finds a record by its time in one batch, without an object per record.

In two forms, as ``ottla.records.kernels``, whose grammar it reads: compiled it takes nanoseconds a
record. Knows nothing of files, codecs or errors. Called by ``ottla.log.segment.time_lookup``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.records import uncompiled as cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

COMPILED: bool = cython.compiled
"""Whether this is the extension (nanoseconds a record) or the interpreted form (microseconds)."""

FOUND = 1
NONE = 0
CORRUPT = -1

_FOUND = cython.declare(cython.int, 1)
_NONE = cython.declare(cython.int, 0)
_CORRUPT = cython.declare(cython.int, -1)


def find_reaching(
    payload: Buffer, count: int, least_time: int, least_offset: int
) -> tuple[int, int, int]:
    """Find the first of ``count`` records whose deltas are both at least those given.

    Returns ``(FOUND, offset delta, timestamp delta)``, or NONE or CORRUPT with zeros: the records
    before the one found do not fit ``payload``. ``least_time`` and ``least_offset`` fit 64 bits.
    Reads no byte outside of ``payload``, lets other threads run; thread-safe.
    """
    view: cython.const[cython.uchar][::1] = payload
    total: cython.int = count
    time: cython.longlong = least_time
    offset: cython.longlong = least_offset
    found: tuple[cython.int, cython.longlong, cython.longlong]
    with cython.nogil:
        found = _find(view, total, time, offset)
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _find(  # noqa: C901 - flat, because a call per field costs more
    payload: cython.const[cython.uchar][::1],
    count: cython.int,
    least_time: cython.longlong,
    least_offset: cython.longlong,
) -> tuple[cython.int, cython.longlong, cython.longlong]:
    position: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(payload)
    stop: cython.Py_ssize_t = 0
    field: cython.int
    shift: cython.int
    byte: cython.ulonglong
    raw: cython.ulonglong
    value: cython.longlong
    time: cython.longlong = 0
    for _ in range(count):
        stop = end
        for field in range(3):  # length, timestamp delta, offset delta
            raw = 0
            shift = 0
            while True:
                if position >= stop or shift > 63:
                    return _CORRUPT, 0, 0
                byte = payload[position]
                position += 1
                if shift == 63 and byte > 1:
                    return _CORRUPT, 0, 0
                raw |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            value = raw >> 1
            if raw & 1:
                value = ~value
            if field == 0:
                if value < 1 or value > end - position:
                    return _CORRUPT, 0, 0
                stop = position + value
                position += 1  # the attributes
            elif field == 1:
                time = value
            elif time >= least_time and value >= least_offset:
                return _FOUND, value, time
        position = stop
    return _NONE, 0, 0
