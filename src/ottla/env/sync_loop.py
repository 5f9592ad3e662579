# mypy: disable-error-code="name-defined"
"""What a thread that only syncs files does: take a descriptor, sync it, say how that went.

One file, two forms, as ``ottla.records.kernels``: compiled, the thread never needs the
interpreter's lock, so the loop neither waits for it nor makes it wait; interpreted, it does the
same with some system calls more. What is said in C stands in sync_loop.pxd. Knows numbers only:
whose they are, and that they stay open, is known to ``ottla.env.sync_threads``.

    request = token int32, descriptor int32     in the machine's byte order
    outcome = token int32, errno int32          0: it is durable
"""

# ruff: noqa: F821 - the C function is declared in sync_loop.pxd

import errno
import os
from struct import Struct

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.env import interpreted as cython

COMPILED: bool = cython.compiled
MESSAGE = Struct("=ii")


def serve(requests: int, outcomes: int) -> None:
    """Take requests from one pipe and write outcomes to the other, until the first ends. Blocks."""
    if cython.compiled:
        reading: cython.int = requests
        writing: cython.int = outcomes
        with cython.nogil:
            ottla_serve_syncs(reading, writing)
        return
    while message := os.read(requests, MESSAGE.size):
        token, descriptor = MESSAGE.unpack(message)
        os.write(outcomes, MESSAGE.pack(token, _sync(descriptor)))


def _sync(descriptor: int) -> int:
    """Return 0, or the error's number."""
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
