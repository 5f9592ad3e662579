"""A stretch of a file on its way to a socket.

The read path hands a Region up instead of bytes; only the connection decides how it leaves
(sendfile, or read and write). Stands between log.segment and network.connection.
"""

from typing import NamedTuple

from ottla.env.disk import File


class Region(NamedTuple):
    """Bytes ``[position, position + length)`` of ``file``; it stays open meanwhile."""

    file: File
    position: int
    length_bytes: int

    def read(self) -> bytes:
        """Return the bytes; fewer than ``length_bytes`` only if the file shrank. Blocks on disk."""
        return self.file.read_at(self.position, self.length_bytes)
