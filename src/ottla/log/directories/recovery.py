"""Opening a partition directory: trust it after a clean stop, or find out what survived.

Owns the decision what is a torn tail and what is corruption (reliability rules 7 to 9):

    bad batch at or above the recovery point   never acknowledged: cut off, with all behind it
    bad batch below it, or a log that ends     corruption: CorruptFile, and nothing is touched
    before it                                  (bit rot must not be mistaken for a torn tail)
    offsets missing before a whole batch       as compaction leaves them, also in a copy of the log
    and a batch behind it that needs them      corruption: the offset of the one between is damaged
    offsets missing before a segment           corruption: the end of the one before is lost, if
                                               it is not below the recovery point

What is kept was synced again before anyone is served. What a crash cut short (segments being
deleted, cleaned or swapped) is finished or undone first. A second recovery changes nothing.
Called by log.manager; blocks; source: Kafka's LogLoader.
"""

from bisect import bisect_right
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.ids import INT64_MAX, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.contents.leader_epochs import LeaderEpochs
from ottla.log.contents.segments import Segments
from ottla.log.directories.interrupted import finish_interrupted_work
from ottla.log.files.checkpoints import (
    read_epoch_checkpoint,
    read_partition_metadata,
    write_epoch_checkpoint,
)
from ottla.log.files.faults import sync, sync_directory
from ottla.log.files.layout import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    parse_segment_file,
)
from ottla.log.log import Log
from ottla.log.producers.producers import Producers, WalkedProducers
from ottla.log.segment.bulk_walk import BULK_BYTES_MIN, PRODUCER_ID, BulkWalk, beginnings
from ottla.log.segment.rewriting import write_again
from ottla.log.segment.scan import LOOKUP_CHUNK_BYTES, Batch, Walk, are_zeros
from ottla.log.segment.segment import RELATIVE_OFFSET_MAX, Segment, with_ends
from ottla.records.batch import NO_LEADER_EPOCH, NO_PRODUCER_ID


def open_log(
    disk: Disk,
    clock: Clock,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    is_clean: bool,
) -> Log:
    """Open the partition in ``directory`` and make sure that all it will serve is durable.

    ``recovery_point`` (exclusive; 0 when unknown) and ``log_start_offset`` (0 when unknown) are
    those of the checkpoints. ``is_clean``: the last process stopped cleanly. Raises CorruptFile
    (then nothing was changed) or OSError.
    """
    if disk.is_link(directory):
        raise CorruptFile(directory, "a symbolic link; a partition is a directory of its own")
    names = finish_interrupted_work(disk, directory)
    segments = _find_segments(disk, clock, directory, names, config)
    was_empty = not segments
    if was_empty:
        if recovery_point > log_start_offset:
            why = f"no segments; the recovery point is {recovery_point}"
            raise CorruptFile(directory, why)
        segments = [_first_segment(disk, clock, directory, config, log_start_offset)]
    told = _Checkpointed(recovery_point, log_start_offset)
    recovery = _Recovery(disk, directory, config, segments, told)
    if is_clean:
        recovery.open_tail()
    else:
        recovery.scan()
    start_offset = max(log_start_offset, segments[0].base_offset)
    if start_offset > recovery.next_offset:
        why = f"the log ends at {recovery.next_offset}, its log start offset is {start_offset}"
        raise CorruptFile(segments[-1].path, why)
    producers = Producers(disk, clock, directory, names, config.producer_id_expiration_ms)
    producers.restore(segments, recovery.next_offset, recovery.walked)
    for segment in segments[:-1]:
        segment.rest()
    segments[-1].let_go_of_file()
    return Log(
        disk=disk,
        clock=clock,
        directory=directory,
        topic_partition=topic_partition,
        topic_id=read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}"),
        config=config,
        segments=Segments(disk, directory, segments),
        leader_epochs=recovery.epochs,
        log_start_offset=start_offset,
        log_end_offset=recovery.next_offset,
        producers=producers,
        is_sealed=recovery.is_sealed and not was_empty,
    )


def _find_segments(
    disk: Disk, clock: Clock, directory: str, names: list[str], config: LogConfig
) -> list[Segment]:
    """Return the segments among ``names`` by base offset; costs one look at each log file."""
    bases = []
    for name in names:
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1] == LOG_SUFFIX:
            bases.append((parsed[0], disk.size_of(f"{directory}/{name}")))
    now_ms = clock.wall_ms() if bases else 0
    return [
        Segment(
            disk,
            directory,
            base_offset,
            size_bytes=size_bytes,
            index_interval_bytes=config.index_interval_bytes,
            created_ms=now_ms,
        )
        for base_offset, size_bytes in sorted(bases)
    ]


def _first_segment(
    disk: Disk, clock: Clock, directory: str, config: LogConfig, base_offset: int
) -> Segment:
    segment = Segment(
        disk,
        directory,
        base_offset,
        size_bytes=0,
        index_interval_bytes=config.index_interval_bytes,
        created_ms=clock.wall_ms(),
    )
    segment.create(preallocated_bytes=config.preallocated_bytes)
    disk.sync_directory(directory)
    return segment


class _Checkpointed(NamedTuple):
    """What the checkpoint files say of a log."""

    recovery_point: int
    log_start_offset: int


class _Gap(NamedTuple):
    """A whole batch with a later offset than expected: compaction took some, or it is damaged."""

    position: int
    expected: int
    base_offset: int


class _Recovery:
    """One pass over a partition's segments. ``next_offset`` and ``epochs`` are its result."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        told: _Checkpointed,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._segments = segments
        self._recovery_point, self._log_start_offset = told
        self.next_offset = self._base_offset = segments[-1].base_offset
        self._leader_epoch = NO_LEADER_EPOCH
        self._gap: _Gap | None = None
        """The gap right before the batch that was noted last, in the segment looked at; None: there
        is none, or it is not known (see ``_stretch``)."""
        self._stretch: tuple[int, int] | None = None
        """Where the stretch begins that was noted last, and the offset that was due there; None: a
        single batch was noted last."""
        stored = read_epoch_checkpoint(disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self.epochs = LeaderEpochs(stored)
        self._stored_epochs = stored
        self._durable_epochs = LeaderEpochs(stored)
        self._saw_all_epochs = False
        self.is_sealed = False
        """Whether the files are as a clean stop leaves them."""
        self.walked: dict[int, WalkedProducers] = {}
        """What was seen of producers, by base offset of the segment."""

    def open_tail(self) -> None:
        """After a clean stop: only find the end of the last segment."""
        segment = self._segments[-1]
        size_bytes = segment.size_bytes
        walk = self._recover_segment(segment, INT64_MAX, trusted=True)
        if walk.stopped_by is not None or segment.size_bytes != size_bytes:
            if self.next_offset != self._recovery_point:
                # Everything was whole and synced when the process stopped.
                why = f"after a clean stop: {walk.stopped_by}"
                raise CorruptFile(segment.path, why, walk.position)
            # A refused write left it, and no sync came after its cut: see ``Log.write_refused``.
            size_bytes = segment.size_bytes
            segment.cut_to_size()
            sync(segment.file)
        self._check_end()
        self._settle_epochs()
        # Else an index is missing or useless: the next stop writes what this walk made of it.
        self.is_sealed = self._has_index_files(segment) and (
            size_bytes - self.walked[segment.base_offset][0] < BULK_BYTES_MIN
        )

    def _has_index_files(self, segment: Segment) -> bool:
        suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        return all(self._disk.exists(segment.path_of(suffix)) for suffix in suffixes)

    def scan(self) -> None:
        """After a crash: verify every batch from the recovery point on, and cut a torn tail."""
        bases = [segment.base_offset for segment in self._segments]
        # What lies below the log start is being deleted, in whatever order that became durable.
        lowest = max(bisect_right(bases, self._log_start_offset) - 1, 0)
        first = max(bisect_right(bases, self._recovery_point) - 1, lowest)
        while first > lowest and (
            # An empty segment proves nothing about where its predecessor ends. And who rolled it
            # at the recovery point may not have lived to make the ends of its indexes durable.
            self._segments[first].size_bytes == 0
            or self._segments[first].base_offset == self._recovery_point
        ):
            first -= 1
        torn_at: int | None = None
        sizes = [segment.size_bytes for segment in self._segments]
        for ordinal in range(first, len(self._segments)):
            segment = self._segments[ordinal]
            if ordinal > first and not self._continues(segment):
                torn_at = ordinal - 1
                break
            walk = self._recover_segment(segment, self._recovery_point, trusted=False)
            if walk.stopped_by is not None and self._is_only_longer(ordinal, sizes[ordinal]):
                segment.cut_to_size()
            elif walk.stopped_by is not None:
                torn_at = ordinal
                self._ensure_not_below_recovery_point(segment, walk)
                break
        self._check_end()
        if torn_at is not None:
            self._cut_behind(torn_at, sizes[torn_at])
        is_as_it_was = torn_at is None and self.next_offset == self._recovery_point
        self._make_durable(first, is_as_it_was=is_as_it_was, is_cut=torn_at is not None)
        self._settle_epochs()
        # A name that is found may never have been synced. Where nothing was in doubt but that, the
        # first flush sees to it, with the epochs: idle partitions cost the start no sync.
        self.epochs.is_dirty = is_as_it_was

    def _make_durable(self, first: int, *, is_as_it_was: bool, is_cut: bool) -> None:
        """Make what is kept of the segments from ordinal ``first`` on durable, names and bytes.

        What lies above the recovery point may be in memory only, and clean: it is written again.
        ``is_as_it_was``: nothing lies there, and nothing was cut. ``is_cut``: of the last one.
        """
        for segment, end in with_ends(self._segments[first:], self.next_offset):
            if end > self._recovery_point:
                write_again(segment, max(self._recovery_point, segment.base_offset))
        for segment in self._segments[first:-1]:
            segment.seal()
        if not is_as_it_was:  # Else all there is was durable before (rule 5).
            sync(self._segments[-1].file)
            sync_directory(self._disk, self._directory)
        # Other batches will stand where the tail was: no entry of it may come back by a power cut.
        self._segments[-1].save_indexes(sync=is_cut)

    def _is_only_longer(self, ordinal: int, file_bytes: int) -> bool:
        """Tell whether a full segment has but zeros too much, and the next one goes on behind it.

        It was preallocated, and a power cut came before its right length was durable.
        """
        if ordinal + 1 == len(self._segments):
            return False
        segment = self._segments[ordinal]
        if self._segments[ordinal + 1].base_offset != self.next_offset:
            return False
        return are_zeros(segment.file, segment.size_bytes, file_bytes)

    def _continues(self, successor: Segment) -> bool:
        """Tell whether ``successor`` goes on where the segments so far end (rule 9).

        One that begins earlier and is empty, or only preallocated, is left over from a roll that
        failed. What was copied from another node continues, too: see ``log.replicated``.
        """
        if successor.base_offset < self.next_offset:
            if not are_zeros(successor.file, 0, successor.size_bytes):
                why = f"begins before offset {self.next_offset}, where its predecessor ends"
                raise CorruptFile(successor.path, why)
            return False
        return (
            successor.base_offset == self.next_offset
            or self._config.is_compacted
            # Not any more, perhaps: compaction saves the recovery point before it takes anything.
            or successor.base_offset <= self._recovery_point
            # Too far for any end of the one before: it was synced before that roll.
            or successor.base_offset > self._base_offset + RELATIVE_OFFSET_MAX + 1
        )

    def _recover_segment(self, segment: Segment, keep_below: int, *, trusted: bool) -> Walk:
        """Note the batches of ``segment`` again, from a point its indexes agree on to the end.

        Verifies checksums unless ``trusted``. The walk returned tells where and why it stopped
        (None: at the end of the file); ``segment.size_bytes`` ends there.
        """
        file_bytes = segment.size_bytes
        resume = segment.rewind(keep_below, trusted=trusted)
        walk = Walk(segment.file, resume, file_bytes, verify_crc=not trusted)
        bulk = BulkWalk(
            segment.file,
            file_bytes,
            base_offset=segment.base_offset,
            verify_crc=not trusted,
            may_skip=self._config.is_compacted,
            index_interval_bytes=segment.index_interval_bytes,
        )
        expected: int | None = segment.base_offset if resume == 0 else None
        self.next_offset = self._base_offset = segment.base_offset
        self._gap = self._stretch = None
        is_first = True
        for batch in walk:
            why = self._contradiction(segment, batch, expected)
            # Formats 0 and 1 know no epochs, and may follow a batch that does.
            epoch = (
                self._leader_epoch if batch.leader_epoch == NO_LEADER_EPOCH else batch.leader_epoch
            )
            if why is None and epoch < self._leader_epoch:
                why = f"leader epoch {batch.leader_epoch} after {self._leader_epoch}"
            if why is not None:
                walk.stopped_by, walk.position = why, batch.position
                break
            self._ensure_epoch_as_stored(segment, batch, trusted=trusted)
            if not trusted:
                if is_first:
                    # What the batches say counts from here on, not what the checkpoint says.
                    self.epochs.truncate_from_end(batch.base_offset)
                    is_first = False
                    if batch.position == 0 and segment is self._segments[0]:
                        self._saw_all_epochs = True
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
            self._leader_epoch = epoch
            segment.note(batch)
            if walk.header[PRODUCER_ID] > NO_PRODUCER_ID:
                bulk.note_producer(batch.position)
            expected = self.next_offset = batch.last_offset + 1
            behind = (segment.size_bytes, expected)
            stretch = segment.note_ahead(
                bulk, next_offset=expected, leader_epoch=batch.leader_epoch
            )
            if stretch is not None:
                expected = self.next_offset = stretch.next_offset
                self._stretch = behind
            walk.position = segment.size_bytes
        self.walked[segment.base_offset] = WalkedProducers(resume, bulk.producer_positions())
        return walk

    def _contradiction(self, segment: Segment, batch: Batch, expected: int | None) -> str | None:
        """Return why ``batch`` cannot stand where it does; None: it can.

        No checksum covers its offset: see durability.md, rule 9.
        """
        base_offset, last_offset = batch.base_offset, batch.last_offset
        lowest = segment.base_offset if expected is None else expected
        if self._stretch is not None:
            is_below = base_offset < lowest
            self._gap = self._gap_at_end(segment, batch.position) if is_below else None
            self._stretch = None
        gap = self._gap
        if gap is not None and gap.expected <= base_offset < lowest:
            why = (
                f"a whole batch has offset {gap.base_offset}, expected {gap.expected}; "
                f"the next one has {base_offset}"
            )
            raise CorruptFile(segment.path, why, gap.position)
        if base_offset < lowest or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return f"offsets {base_offset} to {last_offset}, expected {lowest}"
        is_gap = expected is not None and base_offset > expected
        self._gap = _Gap(batch.position, lowest, base_offset) if is_gap else None
        return None

    def _gap_at_end(self, segment: Segment, end: int) -> _Gap | None:
        """Return the gap before the last batch of the stretch that ends at ``end``."""
        assert self._stretch is not None, "asked behind a stretch"
        position, expected = self._stretch
        gap = None
        for batch in Walk(segment.file, position, end, verify_crc=False):
            is_gap = batch.base_offset > expected
            gap = _Gap(batch.position, expected, batch.base_offset) if is_gap else None
            expected = batch.last_offset + 1
        return gap

    def _ensure_epoch_as_stored(self, segment: Segment, batch: Batch, *, trusted: bool) -> None:
        """Of what is durable the epochs are, too: a batch that says otherwise is damaged.

        No checksum covers its epoch. Believed, a larger one would end the log at the next batch.
        """
        if not trusted and batch.base_offset >= self._recovery_point:
            return
        stored = self._durable_epochs.epoch_for_offset(batch.base_offset)
        if NO_LEADER_EPOCH not in {stored, batch.leader_epoch} and stored != batch.leader_epoch:
            why = (
                f"leader epoch {batch.leader_epoch} at offset {batch.base_offset}, "
                f"{LEADER_EPOCH_CHECKPOINT} says {stored}"
            )
            raise CorruptFile(segment.path, why, batch.position)

    def _ensure_not_below_recovery_point(self, segment: Segment, walk: Walk) -> None:
        if self.next_offset < self._recovery_point:
            why = (
                f"bad batch after offset {self.next_offset - 1}, below the recovery point "
                f"{self._recovery_point}: {walk.stopped_by}"
            )
            raise CorruptFile(segment.path, why, walk.position)

    def _check_end(self) -> None:
        if self.next_offset < self._recovery_point:
            why = (
                f"the log ends at {self.next_offset}, its recovery point is {self._recovery_point}"
            )
            raise CorruptFile(self._segments[-1].path, why)

    def _cut_behind(self, ordinal: int, file_bytes: int) -> None:
        """Make segment ``ordinal`` end where its whole batches do, and the log with it."""
        later = self._segments[ordinal + 1 :]
        for segment in later:
            self._disk.rename(segment.path, segment.path + DELETED_SUFFIX)
        if later:
            self._disk.sync_directory(self._directory)
            for segment in later:
                self._disk.remove(segment.path + DELETED_SUFFIX)
                segment.let_go()
        del self._segments[ordinal + 1 :]
        segment = self._segments[ordinal]
        if file_bytes > segment.size_bytes:
            segment.cut_to_size()

    def _settle_epochs(self) -> None:
        """Drop epochs behind the end; find those that no checkpoint told (slow, and rare)."""
        if self._stored_epochs is None and not self._saw_all_epochs:
            self.epochs = LeaderEpochs()
            for segment in self._segments:
                self._find_epochs(segment)
        start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        # A log without records ends with the epoch of what was deleted. With records, an epoch that
        # starts at the end may not have been durable: it goes, in every recovery alike.
        self.epochs.truncate_from_end(max(self.next_offset, start_offset + 1))
        self.epochs.truncate_from_start(start_offset)
        if self.epochs.to_save != (self._stored_epochs or []):
            # The log counts as flushed from here on: so must its epochs.
            path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
            write_epoch_checkpoint(self._disk, path, self.epochs.entries)
        self.epochs = LeaderEpochs(self.epochs.entries)  # The log start offset is durable.

    def _find_epochs(self, segment: Segment) -> None:
        end = segment.size_bytes
        walk = Walk(segment.file, 0, end, verify_crc=False, chunk_bytes=LOOKUP_CHUNK_BYTES)
        bulk = BulkWalk(
            segment.file, end, base_offset=segment.base_offset, verify_crc=False, may_skip=True
        )
        for batch in beginnings(walk, bulk):
            if batch.leader_epoch > self.epochs.latest:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
