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

if not cython.compiled:  # else it stands in time_search.pxd
    from ottla.records.numbers import varlong_at

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
def _find(
    payload: cython.const[cython.uchar][::1],
    count: cython.int,
    least_time: cython.longlong,
    least_offset: cython.longlong,
) -> tuple[cython.int, cython.longlong, cython.longlong]:
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(payload)
    stop: cython.Py_ssize_t
    length: cython.longlong
    time: cython.longlong
    offset: cython.longlong
    for _ in range(count):
        length, at = varlong_at(payload, at, end)
        if at < 0 or length < 1 or length > end - at:
            return _CORRUPT, 0, 0
        stop = at + length
        time, at = varlong_at(payload, at + 1, stop)  # behind the attributes
        if at < 0:
            return _CORRUPT, 0, 0
        offset, at = varlong_at(payload, at, stop)
        if at < 0:
            return _CORRUPT, 0, 0
        if time >= least_time and offset >= least_offset:
            return _FOUND, offset, time
        at = stop
    return _NONE, 0, 0
