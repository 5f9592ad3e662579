"""Segments that were found to be well: what has the same bytes need not be looked at again.

Most segments are as they were at the last look, whether at a node's log or at what its machine
would leave, which is opened up to three times. What ``check_segment`` says follows from the bytes
of a segment's files and from what the segment has in memory. A digest of all that is kept, if the
check has left the files as they were. A segment that compaction swaps in has not got its names yet,
and reads what the names do not lead to: it is looked at each time.
"""

import hashlib

from ottla.log.contents.invariants import check_log, check_segment
from ottla.log.files.layout import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX

SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)


class CheckedSegments:
    """Of one world."""

    def __init__(self):
        self._last_offsets = {}
        """By digest."""

    def check(self, log, disk, *, are_indexes_sure=False):
        """Do as ``check_log`` of a log that is on a memory disk. Raises AssertionError."""
        check_log(log, last_of=lambda one: self._last_of(one, disk, are_indexes_sure))

    def _last_of(self, segment, disk, are_indexes_sure):
        """Check a segment; return its last offset, None without one."""
        inodes = [disk._tree.find(segment.path_of(suffix)) for suffix in SUFFIXES]
        if not segment.is_named or inodes[0] is None:  # Those are not the bytes that it reads.
            return _last_offset_of(check_segment(segment, are_indexes_sure=are_indexes_sure))
        digest = _digest_of(segment, inodes, are_indexes_sure)
        if digest in self._last_offsets:
            return self._last_offsets[digest]
        pending = [_pending_of(inode) for inode in inodes]
        last = _last_offset_of(check_segment(segment, are_indexes_sure=are_indexes_sure))
        after = [disk._tree.find(segment.path_of(suffix)) for suffix in SUFFIXES]
        # One that was made anew is another file, or has been written to.
        if after == inodes and [_pending_of(inode) for inode in after] == pending:
            self._last_offsets[digest] = last
        return last


def _last_offset_of(batches):
    return batches[-1].last_offset if batches else None


def _pending_of(inode):
    return None if inode is None else len(inode.pending)


def _digest_of(segment, inodes, are_indexes_sure):
    """Return a digest of all that a check of a segment looks at."""
    digest = hashlib.blake2b(digest_size=16)
    indexes = segment._indexes
    parts = [b"" if inode is None else inode.content for inode in inodes]
    parts += [segment._tail_last_offsets, segment._tail_positions]
    parts += [] if indexes is None else [indexes.offsets.entries, indexes.times.entries]
    state = (
        are_indexes_sure,
        segment.base_offset,
        segment.size_bytes,
        segment.latest,
        [inode is None for inode in inodes],
        [len(part) for part in parts],
    )
    digest.update(repr(state).encode())
    for part in parts:
        digest.update(part)
    return digest.digest()
