"""The end of a preallocated segment as memory: small appends are copied there, not written.

Kaska's way (design D6), behind log.segment: only a stretch of the file is mapped at a time, with
its pages made ahead, and moves along with the appends. What that brings, and why no more of it,
stands in ADR 11. The file is allocated as far as it is mapped (File.map_at), so a full
device is an error when the segment is made and never a signal. Source: the seed on Kaska.
"""

from ottla.env.disk import MAP_UNIT_BYTES, Buffer, File

STRETCH_BYTES = 2 * MAP_UNIT_BYTES
"""What is mapped at a time: little, for the kernel makes every page of it."""

SMALL_BYTES_MAX = 4096
"""A larger batch is written: by then the pages cost more than the call that is saved."""


class MappedEnd:
    """Where the next batch of a segment goes. Whoever cuts the file lets this go before."""

    __slots__ = ("_limit_bytes", "_start", "_view")

    def __init__(self, limit_bytes: int) -> None:
        """``limit_bytes``: the allocated length of the file."""
        self._limit_bytes = limit_bytes
        self._start = 0
        self._view: memoryview | None = None
        """Invariant: the file's bytes from ``_start`` on."""

    def put(self, file: File, position: int, data: Buffer) -> bool:
        """Copy ``data`` to ``position`` of ``file``; False when it has to be written instead.

        Raises OSError when the memory cannot be had: nothing was copied.
        """
        if len(data) > SMALL_BYTES_MAX:
            return False
        begin = position - self._start
        view = self._view
        if view is None or begin + len(data) > len(view) or begin < 0:
            view = self._move(file, position, len(data))
            if view is None:
                return False
            begin = position - self._start
        view[begin : begin + len(data)] = data
        return True

    def _move(self, file: File, position: int, length: int) -> memoryview | None:
        start = position - position % MAP_UNIT_BYTES
        size_bytes = min(STRETCH_BYTES, self._limit_bytes - start)
        if size_bytes < position + length - start:
            return None
        self._view = None
        self._view = file.map_at(start, size_bytes)
        self._start = start
        return self._view
