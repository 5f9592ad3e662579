"""What a crash has cut short in a partition's directory: finished, or undone.

Segments being deleted or cleaned go; a swap that was decided is finished (reliability rules 14 and
15). Done before anything else looks at the directory. Called by log.recovery; blocks.
"""

from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.log.files.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_SUM_SUFFIX,
    parse_segment_file,
)
from ottla.log.segment.scan import Walk

_OF_TRANSACTIONS = (TRANSACTION_INDEX_SUFFIX, TRANSACTION_SUM_SUFFIX)


def finish_interrupted_work(disk: Disk, directory: str) -> list[str]:
    """Remove what a crash left behind and finish swaps that were decided (rules 14 and 15).

    Returns the names of the files that are in the directory then.
    """
    names = disk.list_directory(directory)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    leftovers = [
        name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX))
    ]
    for name in leftovers:
        disk.remove(f"{directory}/{name}")
    for name in swaps:
        parsed = parse_segment_file(name.removesuffix(SWAP_SUFFIX))
        if parsed is not None and parsed[1] == LOG_SUFFIX:
            _finish_swap(disk, directory, name, parsed[0])
    for name in disk.list_directory(directory) if swaps else []:
        path = f"{directory}/{name}"
        if name.removesuffix(SWAP_SUFFIX).endswith(_OF_TRANSACTIONS) and name.endswith(SWAP_SUFFIX):
            disk.rename(path, path.removesuffix(SWAP_SUFFIX))
        elif name.endswith(SWAP_SUFFIX):
            # Sparse indexes of a swapped segment: caches, and of no use without its log.
            disk.remove(path)
    if not (leftovers or swaps):
        return names  # As always but after a crash: one listing less per partition of a start.
    disk.sync_directory(directory)
    return disk.list_directory(directory)


def _finish_swap(disk: Disk, directory: str, name: str, base_offset: int) -> None:
    """Let the swap file ``name`` replace the segments whose offsets it covers."""
    file = disk.open_read_only(f"{directory}/{name}")
    try:
        walk = Walk(file, 0, file.size(), verify_crc=True)
        next_offset = base_offset
        for batch in walk:
            next_offset = batch.last_offset + 1
    finally:
        file.close()
    if walk.stopped_by is not None:
        raise CorruptFile(f"{directory}/{name}", walk.stopped_by, walk.position)
    for other in disk.list_directory(directory):
        parsed = parse_segment_file(other)
        if parsed is None:
            continue
        if parsed[0] == base_offset or base_offset < parsed[0] < next_offset:
            path = f"{directory}/{other}"
            disk.rename(path, path + DELETED_SUFFIX)
    disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    disk.sync_directory(directory)
    for other in disk.list_directory(directory):
        if other.endswith(DELETED_SUFFIX):
            disk.remove(f"{directory}/{other}")
