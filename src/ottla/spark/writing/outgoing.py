"""What the driver has to send of one batch: what tasks put into their messages, or into files.

The driver's side, between ``sink``'s messages and ``transaction``, which may go through it several
times. Owns that a file is held at one batch at a time, whatever its size, and that all files are
found to be whole before the first byte is sent.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

from ottla.ids import TopicPartition
from ottla.spark.writing.messages import Staged
from ottla.spark.writing.staged_files import batch_count_max


class Outgoing:
    """The record batches of a micro-batch, by the tasks that made them."""

    def __init__(self, staged: Sequence[Staged]) -> None:
        self._held = [each for one in staged for each in one.batches]
        self.files = [one.file for one in staged if one.file is not None]

    @property
    def size_bytes(self) -> int:
        """The size of all batches, as they go over the wire, or a little more."""
        held = sum(len(batch) for _, batch in self._held)
        return held + sum(file.size_bytes for file in self.files)

    @property
    def batch_count(self) -> int:
        """How many batches there are, or a few more. Looks into no file."""
        return len(self._held) + sum(batch_count_max(file) for file in self.files)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not (self._held or self.files)

    @cached_property
    def partitions(self) -> frozenset[TopicPartition]:
        """Whose batches these are. Looks into each file. Raises StagingError."""
        found = {partition for partition, _ in self._held}
        if self.files:
            from ottla.spark.writing.staging import Location

            for file in self.files:
                found |= Location(file.location).index(file).partitions()
        return frozenset(found)

    def __iter__(self) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Yield each batch, in a buffer that may be changed. Raises StagingError."""
        yield from self._held
        if self.files:
            from ottla.spark.writing.staging import Location

            for file in self.files:
                yield from Location(file.location).batches(file)
