"""The idempotent producers of one log: asked at every write, kept across restarts.

Puts the decider (log.producer_state) and its files (log.producer_snapshot) together. At start and
after a truncation: the newest snapshot that fits, then the headers of the batches behind it;
without a snapshot all of them, which is slow and right. After a clean stop there is a snapshot at
the log's end and no log file is read. Below log.log and log.recovery. Source: Kafka's LogLoader and
``UnifiedLog.rebuildProducerState``; reliability rule 11.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.errors import KafkaError
from ottla.log.bulk_walk import headers_at, producer_positions
from ottla.log.producer_snapshot import ProducerSnapshots
from ottla.log.producer_state import BatchMetadata, ProducerStates
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader


class Producers:
    """What one log knows of its producers. Its owner tells it of every batch with a producer id."""

    __slots__ = ("_clock", "_directory", "_disk", "_snapshots", "states")

    def __init__(
        self, disk: Disk, clock: Clock, directory: str, names: Sequence[str], expiration_ms: int
    ) -> None:
        """``names``: the files in ``directory``. Knows nobody until ``restore``."""
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._snapshots = ProducerSnapshots(disk, directory, names)
        self.states = ProducerStates(expiration_ms)
        """Invariant: tells of all batches that are in the log."""

    def check(self, header: BatchHeader, expiration_ms: int) -> BatchMetadata | None:
        """Decide on a batch: None to append it, or the one that it repeats. Raises KafkaError.

        ``expiration_ms``: after how long a producer is forgotten, from now on.
        """
        self.states.expiration_ms = expiration_ms
        return self.states.check(header, self._clock.wall_ms())

    def note(self, header: BatchHeader, last_offset: int, max_timestamp: int) -> None:
        """Note a batch that was written with this last offset and largest timestamp."""
        self.states.update(header, last_offset, max_timestamp, self._clock.wall_ms())

    def restore(
        self,
        segments: Sequence[Segment],
        log_end_offset: int,
        walked: Mapping[int, "WalkedProducers"] | None = None,
    ) -> None:
        """Know what a log of ``segments`` that ends at ``log_end_offset`` says, and only that.

        ``walked``: what recovery saw on its way, by base offset of the segment; saves reading those
        again. All count as heard of now. Snapshots of what lies above that end go, durably: the log
        may pass their offset again with other batches. Blocks. Raises OSError.
        """
        now_ms = self._clock.wall_ms()
        self._snapshots.remove_above(log_end_offset)
        self.states = ProducerStates(self.states.expiration_ms)
        offset = segments[0].base_offset
        newest = self._snapshots.load_newest(now_ms)
        if newest is not None:
            offset, loaded = newest
            self.states.load(loaded)
        if offset < log_end_offset:
            bases = [segment.base_offset for segment in segments]
            for segment in segments[max(bisect_right(bases, offset) - 1, 0) :]:
                seen = walked.get(segment.base_offset) if walked else None
                _replay(segment, offset, seen, self.states, now_ms)

    def take_snapshot(self, log_end_offset: int, *, sync: bool) -> None:
        """Write a snapshot; see ``ProducerSnapshots.take``. Blocks. Does not raise."""
        self._snapshots.take(self.states, log_end_offset, sync=sync)

    def save_for_stop(self, base_offset: int, log_end_offset: int) -> None:
        """Spare the next start of a log ``[base_offset, log_end_offset)`` its replay. Blocks.

        Writes nothing when nothing was appended since. Raises OSError.
        """
        taken = self._snapshots.offsets
        if log_end_offset > (taken[-1] if taken else base_offset):
            self.take_snapshot(log_end_offset, sync=True)
            self._disk.sync_directory(self._directory)


class WalkedProducers(NamedTuple):
    """The batches of one segment that tell of producers, as a walk saw it.

    It began at ``from_position``. Who takes those at ``positions`` (ascending) in order, knows as
    much as who takes all.
    """

    from_position: int
    positions: list[int]


def _replay(
    segment: Segment,
    from_offset: int,
    walked: WalkedProducers | None,
    states: ProducerStates,
    now_ms: int,
) -> None:
    """Note the producers' batches of ``segment`` at or above ``from_offset``.

    Reads headers only. What is unreadable below the recovery point is found by whoever reads it;
    until then the rest is served, and so is what the other segments say of producers.
    """
    position = 0
    if from_offset > segment.base_offset:
        try:
            position = segment.position_of(from_offset)
        except KafkaError:
            position = 0
    file, end = segment.file, segment.size_bytes
    if walked is not None and walked.from_position <= position:
        positions = walked.positions
    else:
        positions = producer_positions(file, position, end, segment.base_offset)
    for header in headers_at(file, positions):
        if header.base_offset >= from_offset:
            states.update(header, header.last_offset, header.max_timestamp, now_ms)
