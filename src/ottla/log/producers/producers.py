"""Knows the producers of one log and their transactions: checks every append, survives restarts.

Combines the decider (``states``) with its files (``snapshot``). At a start and after a truncation
it loads the newest snapshot that fits and replays the headers of the batches after it; without a
snapshot it replays all of them, which is slow but right. The same replay finds out which
transactions were aborted; the transaction indexes keep what is before it, and no more. After a
clean stop there is a snapshot at the log's end, and no log file is read. Below log.log and
log.directories.recovery. Source: Kafka's LogLoader and ``UnifiedLog.rebuildProducerState``; rules
11 and 12 of docs/durability.md.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from posixpath import basename
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.disk import Buffer, Disk
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT64_MAX
from ottla.log.append import AnalysedBatch
from ottla.log.files.layout import (
    TEMPORARY_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    parse_snapshot_file,
    segment_file,
)
from ottla.log.producers.snapshot import ProducerSnapshots
from ottla.log.producers.states import BatchMetadata, ProducerStates
from ottla.log.segment.bulk_walk import headers_at, producer_positions
from ottla.log.segment.scan import Batch
from ottla.log.segment.segment import Segment, with_ends
from ottla.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from ottla.log.segment.transaction_proof import is_confirmed, read_marker
from ottla.log.segment.transaction_sum import sum_path
from ottla.records.batch import BatchHeader, read_header

PRODUCERS_PER_ROLL_MAX = 2_000
"""Known by a log whose roll takes a snapshot itself: some milliseconds."""


class LastRecords(NamedTuple):
    """Where the last of each producer stands."""

    data_offsets: list[int]
    """The last offset of each producer's last batch of data."""
    marker_epochs: dict[int, int]
    """The epoch of each producer of which no batch of data is known, by producer id."""


class Producers:
    """What one log knows of its producers. Its owner tells it of every batch with a producer id."""

    __slots__ = (
        "_clock",
        "_directory",
        "_disk",
        "_found_indexes",
        "generation",
        "snapshot_ms",
        "snapshots",
        "states",
        "transactions",
    )

    def __init__(
        self, disk: Disk, clock: Clock, directory: str, names: Sequence[str], expiration_ms: int
    ) -> None:
        """``names``: the files in ``directory``. Knows nobody until ``restore``."""
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self.snapshots = ProducerSnapshots(disk, directory, names)
        self.snapshot_ms = int(clock.monotonic() * 1000)
        """Use: when the next one is due. When one was taken last, or there was no need of one."""
        self.generation = 0
        """Use: a snapshot begun in another one is of no use. Rises with each ``restore``."""
        self.states = ProducerStates(expiration_ms)
        """Invariant: tells of all batches that are in the log."""
        self.transactions = self.states.transactions
        """Use: how far readers of committed records may see. Invariant: those of ``states``."""
        self._found_indexes: list[int] | None = [
            parsed[0]
            for parsed in map(parse_segment_file, names)
            if parsed is not None and parsed[1] == TRANSACTION_INDEX_SUFFIX
        ]
        """Base offsets of the transaction index files found; None once they have an owner."""

    def _now_ms(self) -> int:
        """Return the time by which producers are forgotten: that of a clock that never jumps.

        It counts within one process only, as ``ProducerState.last_seen_ms`` does.
        """
        return int(self._clock.monotonic() * 1000)

    def check(self, header: BatchHeader, expiration_ms: int) -> BatchMetadata | None:
        """Decide on a batch: None to append it, or the one that it repeats. Raises KafkaError.

        ``expiration_ms``: after how long a producer is forgotten, from now on.
        """
        self.states.expiration_ms = expiration_ms
        return self.states.check(header, self._now_ms())

    def note(self, header: BatchHeader, last_offset: int, max_timestamp: int) -> None:
        """Note a batch, no marker, that was written with this last offset and largest timestamp."""
        self.states.update(header, last_offset, max_timestamp, self._now_ms())

    def check_own(
        self, records: memoryview, batches: Sequence[AnalysedBatch], transaction_version: int
    ) -> None:
        """Check what a coordinator of this node wants to write. Raises KafkaError.

        See ``ProducerStates.check`` and ``check_marker``; INVALID_RECORD for a marker that is none.
        """
        now_ms = self._now_ms()
        for position, header in batches:
            if not header.has_producer_id:
                continue
            if not header.is_control:
                self.states.check(header, now_ms)
                continue
            marker = read_marker(records[position : position + header.size_bytes])
            if marker is None:
                why = f"a control batch of producer id {header.producer_id} is no marker"
                raise KafkaError(ErrorCode.INVALID_RECORD, why)
            self.states.check_marker(header, marker, transaction_version)

    def note_all(
        self,
        records: memoryview,
        batches: Sequence[AnalysedBatch],
        placed: Sequence[Batch],
        segment: Segment,
    ) -> None:
        """Note batches and markers that were written to ``segment``, as ``placed`` says."""
        now_ms = self._now_ms()
        for (position, header), batch in zip(batches, placed, strict=True):
            if not header.has_producer_id:
                continue
            offset, timestamp = batch.last_offset, batch.max_timestamp
            if not header.is_control:
                self.states.update(header, offset, timestamp, now_ms)
                continue
            data = records[position : position + batch.size_bytes]
            aborted = _note_marker(self.states, header, data, offset, timestamp, now_ms)
            if aborted is not None:
                segment.note_aborted(aborted)

    def note_replicated(
        self, records: memoryview, positions: Sequence[int], segment: Segment
    ) -> None:
        """Note the batches at ``positions``, which another node wrote, one after the other.

        They are written to ``segment`` already. Each end of a transaction is judged by what was
        open at its marker, as the leader did, and not by what is open behind the last batch.
        """
        now_ms = self._now_ms()
        for position in positions:
            header = read_header(records, position)
            aborted = _note(self.states, header, records, position, now_ms)
            if aborted is not None:
                segment.note_aborted(aborted)

    def last_records(self, bound: int) -> LastRecords:
        """Return what compaction below ``bound`` must leave, so that each state can be replayed.

        Also if the log is cut at ``bound``, or above: what lies there may not be committed.
        """
        data_offsets, marker_epochs = [], {}
        for producer_id, state in self.states:
            if state.batches:
                data_offsets.append(state.batches[-1].last_offset)
                below = [one.last_offset for one in state.batches if one.last_offset < bound]
                data_offsets += below[-1:]
            else:
                marker_epochs[producer_id] = state.epoch
        return LastRecords(data_offsets, marker_epochs)

    def restore(
        self,
        segments: Sequence[Segment],
        log_end_offset: int,
        walked: Mapping[int, "WalkedProducers"] | None = None,
    ) -> None:
        """Know what a log of ``segments`` that ends at ``log_end_offset`` says, and only that.

        ``walked``: what recovery saw on its way, by base offset of the segment; saves reading those
        again. All count as heard of now. Snapshots of what lies above that end go, durably: the log
        may pass their offset again with other batches. Those of what lies below the first segment
        go, too: batches that were between are gone. Blocks. Raises OSError.
        """
        now_ms = self._now_ms()
        self.snapshots.remove_above(log_end_offset)
        self.snapshots.remove_below(segments[0].base_offset)
        self.generation += 1
        self.states = states = ProducerStates(self.states.expiration_ms)
        self.transactions = states.transactions
        offset = segments[0].base_offset
        damaged = self._attach_indexes(segments)
        newest = self.snapshots.load_newest(now_ms)
        if newest is not None and any(_misses(segment, newest[0]) for segment in damaged):
            # Entries are gone that only a replay of everything finds again.
            expiration_ms = self.states.expiration_ms
            _make_indexes(self._disk, segments, newest[0], expiration_ms, now_ms)
            self._disk.sync_directory(self._directory)
        elif damaged:
            for segment in damaged:
                assert segment.transaction_index is not None
                segment.transaction_index.cut()
        if newest is not None:
            offset, loaded = newest
            states.load(loaded)
        bases = [segment.base_offset for segment in segments]
        first = max(bisect_right(bases, offset) - 1, 0)
        _vouch(segments[:first])
        # Up to where the next one begins: below the log start more of it may have come back.
        for segment, end in with_ends(segments[first:], log_end_offset):
            index = segment.transaction_index
            if index is not None:
                index.keep_below(offset)
            if offset < log_end_offset:
                seen = walked.get(segment.base_offset) if walked else None
                _replay(segment, offset, seen, states, now_ms, partial(_enter, segment), end)
            if segment.transaction_index is not None:
                # The next snapshot spares later starts this replay.
                segment.transaction_index.sync()

    def _attach_indexes(self, segments: Sequence[Segment]) -> list[Segment]:
        """Give each segment the transaction index found for it; remove those of none.

        Returns the segments whose index holds more than good entries.
        """
        found, self._found_indexes = self._found_indexes, None
        by_base = {segment.base_offset: segment for segment in segments} if found else {}
        damaged = []
        for base_offset in found or ():
            segment = by_base.get(base_offset)
            if segment is not None:
                index = segment.begin_transaction_index()
                is_whole = index.load(base_offset)
                if not is_confirmed(index, segments) or not is_whole:
                    damaged.append(segment)
                continue
            # Before a segment of that name is made: its creation syncs the directory.
            path = f"{self._directory}/{segment_file(base_offset, TRANSACTION_INDEX_SUFFIX)}"
            TransactionIndex(self._disk, path).remove()
        return damaged

    def snapshot_offset(self, base_offset: int) -> int:
        """Return up to where a start need not replay a log that begins at ``base_offset``."""
        offsets = self.snapshots.offsets
        return max(offsets[-1], base_offset) if offsets else base_offset

    def knows_durably(self, sure_offset: int) -> int | None:
        """Return up to where (exclusive) batches may go, and a start still know the producers.

        After a power cut, too. ``sure_offset``: the log will not end below it. None: they all may.
        """
        return self.snapshots.durable_to(sure_offset) if len(self.states) else None

    def note_synced(self, paths: Sequence[str], sure_offset: int) -> None:
        """Note those of ``paths`` that are snapshots as durable; remove older ones. Blocks."""
        for path in paths:
            offset = parse_snapshot_file(basename(path))
            if offset is not None:
                self.snapshots.note_durable(offset)
        self.snapshots.remove_superseded(sure_offset)

    def snapshot_at_roll(self, log_end_offset: int, sure_offset: int) -> None:
        """Write a snapshot, unless that would take long: then the next sweep does.

        Nothing is synced. See ``ProducerSnapshots.take``. Blocks. Does not raise.
        """
        if len(self.states) <= PRODUCERS_PER_ROLL_MAX:
            self._take_snapshot(log_end_offset, sync=False)
            self.snapshots.remove_superseded(sure_offset)

    def _take_snapshot(self, log_end_offset: int, *, sync: bool) -> None:
        """Write a snapshot; see ``ProducerSnapshots.take``. Blocks. Does not raise."""
        self.snapshot_ms = int(self._clock.monotonic() * 1000)
        self.snapshots.take(self.states, log_end_offset, sync=sync)

    def save_to(self, directory: str, log_end_offset: int) -> None:
        """Write a snapshot for a copy of the log in ``directory``, durable with that. Blocks.

        Raises OSError: the copy's segments may not be all that tells of producers.
        """
        ProducerSnapshots(self._disk, directory, []).write(self.states, log_end_offset, sync=True)

    def save_for_stop(self, base_offset: int, log_end_offset: int, committed_offset: int) -> None:
        """Spare the next start of a log ``[base_offset, log_end_offset)`` its replay. Blocks.

        What is above ``committed_offset`` may be cut off later. Writes nothing when nothing was
        appended since. Raises OSError.
        """
        taken = self.snapshots.offsets
        if log_end_offset > (taken[-1] if taken else base_offset):
            self._take_snapshot(log_end_offset, sync=True)
            self._disk.sync_directory(self._directory)
            self.snapshots.note_durable(log_end_offset)
            self.snapshots.remove_superseded(min(log_end_offset, committed_offset))


class WalkedProducers(NamedTuple):
    """The batches of one segment that tell of producers, as a walk saw it.

    It began at ``from_position``. Who takes those at ``positions`` (ascending) in order, knows as
    much as who takes all.
    """

    from_position: int
    positions: list[int]


def _vouch(segments: Sequence[Segment]) -> None:
    """Let a checksum vouch for what was found good. Raises OSError."""
    for segment in segments:
        if segment.transaction_index is not None:
            segment.transaction_index.sync()


def _make_indexes(
    disk: Disk, segments: Sequence[Segment], end_offset: int, expiration_ms: int, now_ms: int
) -> None:
    """Make the transaction indexes anew, of the markers below ``end_offset``: a snapshot's.

    What else the batches say is let go of: the snapshot says more, for it outlives batches that
    retention and compaction have taken. A kill in between leaves a damaged index to the next start,
    never none: nothing would tell that there should be one. Raises OSError.
    """
    states = ProducerStates(expiration_ms)
    for segment, after in with_ends(segments, end_offset):
        aborted: list[AbortedTransaction] = []
        base_offset, end = segment.base_offset, min(after, end_offset)
        if base_offset < end:
            _replay(segment, base_offset, None, states, now_ms, aborted.append, end)
        if not aborted:
            segment.remove_transaction_index()
            continue
        path = segment.path_of(TRANSACTION_INDEX_SUFFIX)
        segment.transaction_index = index = TransactionIndex(disk, path + TEMPORARY_SUFFIX)
        for entry in aborted:
            index.append(entry)
        index.sync()
        # The index first: with the checksum of the former one it counts as damaged.
        disk.rename(index.path, path)
        disk.rename(sum_path(index.path), sum_path(path))
        index.path = path


def _enter(segment: Segment, aborted: AbortedTransaction) -> None:
    index = segment.transaction_index or segment.begin_transaction_index()
    index.append(aborted)


def _replay(  # noqa: PLR0917 - what is known of one segment
    segment: Segment,
    from_offset: int,
    walked: WalkedProducers | None,
    states: ProducerStates,
    now_ms: int,
    note_aborted: Callable[[AbortedTransaction], None],
    end_offset: int = INT64_MAX,
) -> None:
    """Note the producers' batches of ``segment`` in ``[from_offset, end_offset)``.

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
    for header, position in zip(headers_at(file, positions), positions, strict=False):
        if header.base_offset < from_offset:
            continue
        if header.base_offset >= end_offset:
            break
        offset, timestamp = header.last_offset, header.max_timestamp
        if not header.is_control:
            states.update(header, offset, timestamp, now_ms)
            continue
        data = file.read_at(position, header.size_bytes)
        aborted = _note_marker(states, header, data, offset, timestamp, now_ms)
        if aborted is not None:
            note_aborted(aborted)


def _misses(segment: Segment, offset: int) -> bool:
    """Tell whether the good part of a damaged index may lack entries below ``offset``.

    A power cut damages only what was not synced, and that is above the newest snapshot: then there
    is no marker between the last good entry and ``offset`` that could have an entry.
    """
    index = segment.transaction_index
    assert index is not None
    begin = max(index.last_offset + 1, segment.base_offset)
    if begin >= offset:
        return False
    try:
        position = segment.position_of(begin)
    except KafkaError:
        return True
    file, end = segment.file, segment.size_bytes
    positions = producer_positions(file, position, end, segment.base_offset)
    return any(
        header.is_control and begin <= header.base_offset < offset
        for header in headers_at(file, positions)
    )


def _note(
    states: ProducerStates, header: BatchHeader, records: memoryview, position: int, now_ms: int
) -> AbortedTransaction | None:
    offset, timestamp = header.last_offset, header.max_timestamp
    if not header.is_control:
        states.update(header, offset, timestamp, now_ms)
        return None
    data = records[position : position + header.size_bytes]
    return _note_marker(states, header, data, offset, timestamp, now_ms)


def _note_marker(  # noqa: PLR0917 - what is known of one batch
    states: ProducerStates,
    header: BatchHeader,
    data: Buffer,
    offset: int,
    timestamp: int,
    now_ms: int,
) -> AbortedTransaction | None:
    marker = read_marker(data)
    if marker is None:
        return None
    completed = states.complete(header, marker, offset, timestamp, now_ms)
    if completed is None:
        return None
    last_stable_offset = states.transactions.complete(completed)
    if not completed.is_aborted:
        return None
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, offset, last_stable_offset
    )
