"""How much of a volume the log leaves free, and when it takes batches again. Decides, no I/O.

Two amounts. The reserve is a file that nobody needs: it is given up when the disk is full, so that
checkpoints can be written and deletions go on, and taken again before batches are. The floor is
left to others: the metadata store, the rest of the machine. Both are a share of a small volume and
no more than an absolute amount on a large one: a share alone would stop a node on every disk of
terabytes, or of a laptop, that is merely well used. Source: reliability rule 18; ADR 9.
"""

from typing import NamedTuple

RESERVE_SHARE = 64
"""The reserve is at most this part of the volume."""
FLOOR_SHARE = 20
_MARGIN_SHARE = 4
"""Batches are taken again only this part of the floor above it: a node does not flutter."""
_MARGIN_BYTES_MIN = 1 << 20


class SpaceLimits(NamedTuple):
    """What a log directory keeps free, in bytes; 0: nothing."""

    reserve_bytes: int = 0
    floor_bytes: int = 0

    def on_volume(self, total_bytes: int) -> "SpaceLimits":
        """Return what they amount to on a volume of this size."""
        return SpaceLimits(
            min(self.reserve_bytes, total_bytes // RESERVE_SHARE),
            min(self.floor_bytes, total_bytes // FLOOR_SHARE),
        )

    def is_full(self, free_bytes: int, *, was_full: bool, has_reserve: bool) -> bool:
        """Tell whether batches are refused from now on, with so much free beside the reserve."""
        if not was_full:
            return free_bytes < self.floor_bytes
        missing_bytes = 0 if has_reserve else self.reserve_bytes
        margin_bytes = max(self.floor_bytes // _MARGIN_SHARE, _MARGIN_BYTES_MIN)
        return free_bytes < self.floor_bytes + missing_bytes + margin_bytes

    def may_take_reserve(self, free_bytes: int) -> bool:
        """Tell whether the reserve can be taken without going below the floor."""
        return self.reserve_bytes > 0 and free_bytes >= self.floor_bytes + self.reserve_bytes
