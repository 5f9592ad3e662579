"""Room that belongs to the metadata file: when its disk is full, changes go on for a good while.

Three parts. The write-ahead log has its blocks before it needs them. The database has free pages. A
reserve beside it is removed when SQLite finds no space, and made again when there is some: for a
start, whose log is new, and for file systems that write elsewhere what changes. Who fills the disk
to the last byte and goes on trying can take the reserve, but not the log and the pages. Decides
nothing: ``SqliteFile`` does. Blocks; one thread. Source: ADR 5, ADR 11.
"""

import sqlite3
from contextlib import suppress

from ottla.env.disk import Disk

LOG_BYTES = 2 << 20
"""SQLite begins the log anew when it is 4 MB, and earlier when it cannot grow."""
RESERVE_BYTES = 2 << 20
FREE_PAGES = 256
"""Kept in the database, of 4 KiB: about 3000 changes take them, and then the history is as long as
it may be for most clusters, and gives pages back."""
SPACE_TO_TAKE_BYTES = 16 << 20
"""A reserve and free pages are taken only where that much is free: who is short now gets it."""
_STEP_BYTES = 128 << 10


class Room:
    """What is kept for the file ``path``."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._directory = path.rpartition("/")[0] or "."
        self._log = f"{path}-wal"
        self._reserve = f"{path}.reserve"
        self.has_reserve = False
        """Use: whether there is something to give up, as far as this process knows."""

    def take_log(self) -> None:
        """Give the log its blocks, as many as there are.

        SQLite ignores zeros after its last frame. It takes no lock on this file, so it loses none
        when a second descriptor of it is closed.
        """
        with suppress(OSError):
            file = self._disk.open(self._log)
            try:
                for size_bytes in range(_STEP_BYTES, LOG_BYTES + 1, _STEP_BYTES):
                    file.allocate(size_bytes)
            finally:
                file.close()

    def take_reserve(self) -> None:
        """Make the reserve, if it is missing and there is space."""
        disk, path = self._disk, self._reserve
        with suppress(OSError):
            self.has_reserve = disk.exists(path) and disk.size_of(path) >= RESERVE_BYTES
            if self.has_reserve or not self.may_take():
                return
            file = disk.open(path, create=True)
            try:
                file.allocate(RESERVE_BYTES)
                self.has_reserve = True
            finally:
                file.close()

    def may_take(self) -> bool:
        """Tell whether the disk has space to spare."""
        return self.has_space(SPACE_TO_TAKE_BYTES)

    def has_space(self, size_bytes: int = RESERVE_BYTES) -> bool:
        """Tell whether the disk has so much space; False where it does not say."""
        try:
            return self._disk.free_bytes(self._directory) >= size_bytes
        except OSError:
            return False

    def give_up(self) -> bool:
        """Remove the reserve; False when there is none."""
        self.has_reserve = False
        with suppress(OSError):
            self._disk.remove(self._reserve)
            return True
        return False


def add_free_pages(connection: sqlite3.Connection, count: int) -> None:
    """Add pages to the database that are free.

    They are written before they are free: a hole in the file would be no room.
    """
    execute = connection.execute
    (size_bytes,) = execute("PRAGMA page_size").fetchone()
    (usual,) = execute("PRAGMA secure_delete").fetchone()
    execute("PRAGMA secure_delete = ON")  # Else SQLite does not write what is free.
    try:
        execute("CREATE TABLE room (content BLOB)")
        execute("INSERT INTO room VALUES (zeroblob(?))", (count * size_bytes,))
        execute("DROP TABLE room")
    finally:
        execute(f"PRAGMA secure_delete = {usual}")
