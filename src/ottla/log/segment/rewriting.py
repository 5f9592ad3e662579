"""Writing again what a log file reads back, so that the next sync has to make it durable.

After a sync has failed the kernel may keep the pages, call them clean, and never write them: they
read back, with right checksums, until the power goes. A process that begins on such memory cannot
tell them from others; only bytes that are written once more are the next sync's to answer for.
Below log.recovery, which knows from where on nothing is proven durable. Source: reliability rules
2 and 7.
"""

import errno

from ottla.env.disk import File
from ottla.log.files.faults import SyncFailed
from ottla.log.segment.bulk_walk import BulkWalk, beginnings
from ottla.log.segment.scan import Walk
from ottla.log.segment.segment import Segment

CHUNK_BYTES = 1024 * 1024
"""Read and written at a time."""


def write_again(segment: Segment, from_offset: int) -> None:
    """Write the batches of ``segment`` from that of ``from_offset`` on to where they stand.

    They were verified; they are verified once more, now that the kernel has to keep them: memory
    that a sync has failed for may be dropped at any moment, and then the device's bytes read back.
    Nothing is synced. Blocks. Raises OSError; SyncFailed when other bytes read back by now.
    """
    start, end = segment.position_of(from_offset), segment.size_bytes
    file = segment.file
    _copy_in_place(file, start, end)
    walk = Walk(file, start, end, verify_crc=True)
    bulk = BulkWalk(file, end, base_offset=segment.base_offset, verify_crc=True, may_skip=True)
    for _ in beginnings(walk, bulk):
        pass
    if walk.stopped_by is not None:
        why = f"read back otherwise at byte {walk.position} ({walk.stopped_by})"
        raise SyncFailed(errno.EIO, why, file.path)


def _copy_in_place(file: File, start: int, end: int) -> None:
    if start == end:
        return
    buffer = memoryview(bytearray(min(CHUNK_BYTES, end - start)))
    position = start
    while position < end:
        read = file.read_into(position, buffer[: end - position])
        if not read:
            raise SyncFailed(errno.EIO, f"ends at byte {position}, expected {end}", file.path)
        file.write_at(position, buffer[:read])
        position += read
