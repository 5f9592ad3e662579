"""What is in a file of the memory disk: now, and on the device it stands for.

Owns bytes; names, space and descriptors are the disk's (``ottla.env.memory_disk``).
"""

import threading

from ottla.env.disk import Buffer
from ottla.env.rng import Rng

SECTOR_BYTES = 512
"""What a device writes whole or not at all."""


class Inode:
    """A file's content, whatever its names."""

    __slots__ = ("content", "guard", "linked", "locked", "modified_ms")

    def __init__(self, content: bytearray, modified_ms: int) -> None:
        self.content = content
        self.modified_ms = modified_ms
        self.guard = threading.Lock()
        self.linked = True
        self.locked = False

    def written(self, position: int, data: Buffer) -> None:
        """Learn of a write that was applied to ``content``."""

    def truncated(self, size_bytes: int) -> None:
        """Learn of a new length."""

    def synced(self) -> None:
        """Learn of a sync."""


class DurableInode(Inode):
    """Also knows what the device has (``durable``) and what happened since (``pending``)."""

    __slots__ = ("durable", "pending")

    def __init__(self, content: bytearray, durable: bytearray, modified_ms: int) -> None:
        super().__init__(content, modified_ms)
        self.durable = durable
        # (position, bytes) of a write; (size, None) of a truncation. In the order they happened.
        self.pending: list[tuple[int, bytes | None]] = []

    def written(self, position: int, data: Buffer) -> None:
        """Note a write that the device has not got."""
        self.pending.append((position, bytes(data)))

    def truncated(self, size_bytes: int) -> None:
        """Note a length that the device has not got."""
        self.pending.append((size_bytes, None))

    def synced(self) -> None:
        """Let the device have all that happened so far."""
        # Counted first: a writer may append to the list while this runs in an executor's thread.
        pending_count = len(self.pending)
        for position, data in self.pending[:pending_count]:
            if data is None:
                resize(self.durable, position)
            else:
                write(self.durable, position, data)
        del self.pending[:pending_count]

    def forget_unsynced(self) -> None:
        """Do as a kernel whose fsync failed: the pages are clean, the device has none of it."""
        self.pending.clear()

    def after_crash(self, rng: Rng) -> bytearray:
        """Return what the device may hold: synced bytes, and a torn prefix of the others."""
        survivor = bytearray(self.durable)
        kept = rng.random_below(len(self.pending) + 1)
        for index, (position, data) in enumerate(self.pending[: kept + 1]):
            last = index == kept
            if data is None:
                if not last or rng.random_below(2):
                    resize(survivor, position)
                continue
            arrived = rng.random_below(len(data) + 1) if last else len(data)
            self._write_by_sectors(survivor, position, data[:arrived], rng)
        return survivor

    def _write_by_sectors(self, survivor: bytearray, position: int, data: bytes, rng: Rng) -> None:
        """Write ``data``, each sector with a chance not to have reached the device.

        The file's new length may be there all the same: the sector then reads as it was, or zero.
        """
        start = position
        end = position + len(data)
        while start < end:
            stop = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, end)
            if rng.random_below(8):
                write(survivor, start, data[start - position : stop - position])
            elif len(survivor) < stop:
                resize(survivor, stop)
            start = stop


def write(content: bytearray, position: int, data: Buffer) -> None:
    """Put ``data`` at ``position``; zeros fill what is between it and the end."""
    size = len(content)
    if position == size:
        content += data
        return
    if position > size:
        content.extend(bytes(position - size))
    content[position : position + len(data)] = data


def resize(content: bytearray, size_bytes: int) -> None:
    """Cut or zero-extend ``content``."""
    growth = size_bytes - len(content)
    if growth > 0:
        content.extend(bytes(growth))
    else:
        del content[size_bytes:]
