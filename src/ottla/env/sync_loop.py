# mypy: disable-error-code="name-defined,valid-type,no-any-return"
"""What a thread that only syncs files does: take what is asked, do it, say how that went.

One file, two forms, as ``ottla.records.kernels``: compiled, the thread never needs the
interpreter's lock, so the loop neither waits for it nor makes it wait; interpreted, it does the
same with some system calls more, and only for one file at a time. What is said in C stands in
sync_loop.pxd. Knows numbers only: whose they are, and that they stay open, is known to
``ottla.env.sync_threads``.

    request = token int32, count int32, what int64       in the machine's byte order
              count -1: fdatasync of the descriptor ``what``
              count >= 0: ``what`` is where in memory count + 1 descriptors (int32) stand, of a
              directory and of files; all is synced that its file system holds
    outcome = token int32, errno int32, microseconds int32     errno 0: it is durable

Many files at once: ``sync_file_range`` begins to write each of them, one ``syncfs`` waits for all
and for the journal, and an fdatasync of the first asks what the file system thinks of itself by
now. ``syncfs`` alone is not enough: it keeps quiet when there was no place for a file's bytes
(its writeback failed before it came to the device), and where the file system has turned itself
read-only (docs/adr/0024-many-files-are-synced-at-once.md).
"""

# ruff: noqa: F821 - the C functions are declared in sync_loop.pxd

from __future__ import annotations

import errno
import os
import time
from struct import Struct
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.env import interpreted as cython

if TYPE_CHECKING:
    from array import array

COMPILED: bool = cython.compiled
REQUEST = Struct("=iiq")
OUTCOME = Struct("=iii")
ONE_FILE = -1
"""A request's count that asks for a single file."""
SYNCS_TOGETHER: bool = bool(OTTLA_SYNCS_TOGETHER) if cython.compiled else False
"""Whether this form, and this system, can sync many files at once."""


def serve(requests: int, outcomes: int) -> None:
    """Take requests from one pipe and write outcomes to the other, until the first ends. Blocks."""
    if cython.compiled:
        reading: cython.int = requests
        writing: cython.int = outcomes
        with cython.nogil:
            ottla_serve_syncs(reading, writing)
        return
    while message := os.read(requests, REQUEST.size):
        token, count, what = REQUEST.unpack(message)
        began = time.monotonic()
        error = _sync(what) if count == ONE_FILE else errno.ENOSYS
        microseconds = min(int((time.monotonic() - began) * 1e6), 2**31 - 1)
        os.write(outcomes, OUTCOME.pack(token, error, microseconds))


def sync_together(numbers: array[int]) -> int:
    """Sync all that the file system holds whose directory comes first; the files follow. Blocks.

    Returns 0 or an errno: then nothing is known of any of the files.
    """
    if cython.compiled:
        address: cython.size_t = numbers.buffer_info()[0]
        count: cython.int = len(numbers) - 1
        error: cython.int
        with cython.nogil:
            error = ottla_sync_together(
                cython.cast(cython.pointer(cython.int), cython.cast(cython.p_void, address)), count
            )
        return error
    return errno.ENOSYS


def file_system_of(number: int) -> int:
    """Return which kind of file system a descriptor is on (statfs's ``f_type``); 0: not known."""
    if cython.compiled:
        asked: cython.int = number
        return ottla_file_system(asked)
    return 0


def _sync(descriptor: int) -> int:
    """Return 0, or the error's number."""
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
