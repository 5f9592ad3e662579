"""Compares the replicas of a partition, batch by batch, as their files have them.

Reads the segments of each replica with a parser of its own; what was found equal is not read again.
A replica may lack what is on its way to it, so what is compared is what all have.
"""

import hashlib
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

HEAD = struct.Struct(">qi")
LAST_OFFSET_DELTA = struct.Struct(">i")
LAST_OFFSET_DELTA_AT = 23
SMALLEST = 49
"""Of the bytes that a batch says it has behind its length."""


class Batch(NamedTuple):
    """One batch of a file."""

    base_offset: int
    end_offset: int
    digest: bytes
    segment: str
    end: int
    """The position behind it."""


class Copy:
    """One replica's files of one partition."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segment = ""
        self._position = 0

    def fresh(self) -> list[Batch]:
        """Return the batches behind the last one that was equal."""
        found: list[Batch] = []
        for path in sorted(self._directory.glob("*.log")):
            if path.name < self._segment:
                continue
            position = self._position if path.name == self._segment else 0
            with path.open("rb") as file:
                file.seek(position)
                data = file.read()
            found += _batches(data, path.name, position)
        return found

    def accept(self, batch: Batch) -> None:
        """Go on behind a batch."""
        self._segment, self._position = batch.segment, batch.end


def _batches(data: bytes, segment: str, position: int) -> list[Batch]:
    found, at = [], 0
    while at + HEAD.size + SMALLEST <= len(data):
        base_offset, length = HEAD.unpack_from(data, at)
        end = at + HEAD.size + length
        if length < SMALLEST or end > len(data):
            break  # Space that is kept free, or a batch that is being written.
        (delta,) = LAST_OFFSET_DELTA.unpack_from(data, at + LAST_OFFSET_DELTA_AT)
        digest = hashlib.blake2b(data[at:end], digest_size=16).digest()
        found.append(Batch(base_offset, base_offset + delta + 1, digest, segment, position + end))
        at = end
    return found


class Copies:
    """All replicas of one partition."""

    def __init__(self, name: str, directories: Sequence[Path]) -> None:
        self._name = name
        self._directories = directories
        self._copies = [Copy(directory) for directory in directories]
        self._end = 0

    def compare(self, *, is_over: bool = False) -> list[str]:
        """Return in what they differ. ``is_over``: nothing is on its way; all must end alike."""
        fresh = [copy.fresh() for copy in self._copies]
        problems = []
        for replicas in zip(*fresh, strict=False):
            first = replicas[0]
            if len({(each.digest, each.end_offset) for each in replicas}) > 1:
                places = ", ".join(f"{one.base_offset}-{one.end_offset}" for one in replicas)
                return [*problems, f"{self._name}: the replicas differ at {self._end}: {places}"]
            if first.base_offset != self._end:
                problems.append(f"{self._name}: {first.base_offset} follows on {self._end}")
            self._end = first.end_offset
            for copy, each in zip(self._copies, replicas, strict=True):
                copy.accept(each)
        counts = [len(each) for each in fresh]
        if is_over and any(one != other for one, other in pairwise(counts)):
            problems.append(f"{self._name}: behind {self._end} there are {counts} batches")
        return problems

    @property
    def end_offset(self) -> int:
        """How far they are equal."""
        return self._end

    def begin_again(self) -> None:
        """Compare all from the first byte on the next time."""
        self._copies = [Copy(directory) for directory in self._directories]
        self._end = 0
