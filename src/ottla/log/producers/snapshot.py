"""The ``.snapshot`` files: what a partition knew of its producers when the log ended at an offset.

Owns Kafka's file format and which of the files are kept. A snapshot is a cache: whatever is wrong
with one, the log's batches say the same, only slower; so writing one never fails an append, and
one that is not exactly right counts as absent (reliability rule 11). Batches that are removed say
nothing any more: before they go, a snapshot must be durable (rule 14). Grammar, big-endian:

    snapshot = version int16 (1), crc uint32 (CRC32C of all behind it), entries, [ older ]
    entries  = count int32, count times:
               producer_id int64, epoch int16, last_sequence int32, last_offset int64,
               offset_delta int32, timestamp int64, coordinator_epoch int32,
               current_transaction_first_offset int64
    older    = for each entry in the same order: count int8 (0 to 4), count times, oldest first:
               last_sequence int32, last_offset int64, offset_delta int32, timestamp int64

``older`` is ours: Kafka's format keeps only the last of a producer's batches, so that a Kafka
broker refuses a resend of the ones before it after a restart. Kafka reads its count of entries and
passes over the rest. Without anything to tell the part is left out, and the file is Kafka's own to
the byte. Source: Kafka 4.3's ProducerStateManager, and files that it wrote.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from struct import Struct, error

from ottla.env.disk import Disk
from ottla.log.files.layout import (
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    parse_snapshot_file,
    segment_file,
)
from ottla.log.producers.states import (
    BATCHES_REMEMBERED,
    BatchMetadata,
    ProducerState,
    ProducerStates,
)
from ottla.records.batch import NO_SEQUENCE
from ottla.records.crc import crc32c

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_OLDER = Struct(">iqiq")
_NO_BATCH = BatchMetadata(NO_SEQUENCE, -1, 0, -1)
_REMOVED_AT_ONCE_MAX = 2
"""On the loop: each costs up to milliseconds. More than come by one roll."""
_SNAPSHOT_BYTES_MAX = 64 * 1024 * 1024


class SnapshotEncoder:
    """Makes the content of a snapshot file of frozen states, some producers at a time."""

    __slots__ = ("_at", "_entries", "_has_older", "_ids", "_older", "_states")

    def __init__(self, frozen: tuple[list[int], list[ProducerState]]) -> None:
        """``frozen``: as ``ProducerStates.freeze`` returns it."""
        self._ids, self._states = frozen
        self._at = 0
        self._entries = bytearray(_COUNT.pack(len(self._ids)))
        self._older = bytearray()
        self._has_older = False

    def advance(self, count: int) -> bool:
        """Encode up to ``count`` more; True when none is left."""
        entries, older = self._entries, self._older
        end = min(self._at + count, len(self._ids))
        for at in range(self._at, end):
            state = self._states[at]
            batches = state.batches
            sequence, offset, delta, _ = batches[-1] if batches else _NO_BATCH
            entries += _ENTRY.pack(
                self._ids[at],
                state.epoch,
                sequence,
                offset,
                delta,
                state.last_timestamp,
                state.coordinator_epoch,
                state.current_transaction_first_offset,
            )
            older_count = max(len(batches) - 1, 0)
            older.append(older_count)
            for batch in batches[:older_count]:
                older += _OLDER.pack(*batch)
                self._has_older = True
        self._at = end
        return end == len(self._ids)

    def content(self) -> bytes:
        """Return the file's content, once all are encoded."""
        entries = self._entries
        if self._has_older:
            entries = entries + self._older
        return _HEAD.pack(_VERSION, crc32c(entries)) + entries


def encode_snapshot(states: ProducerStates) -> bytes:
    """Return the content of a snapshot file, wholly and at once."""
    encoder = SnapshotEncoder(states.freeze())
    encoder.advance(len(states))
    return encoder.content()


def decode_snapshot(data: bytes, now_ms: int) -> list[tuple[int, ProducerState]] | None:
    """Return (producer id, state) as ``encode_snapshot`` wrote them; None for anything else.

    All producers count as heard of at ``now_ms``.
    """
    try:
        version, crc = _HEAD.unpack_from(data, 0)
        if version != _VERSION or crc != crc32c(memoryview(data)[_HEAD.size :]):
            return None
        return _decode(data, now_ms)
    except error:
        return None


def _decode(data: bytes, now_ms: int) -> list[tuple[int, ProducerState]] | None:
    """Read what stands behind the checksum. Raises struct.error when it ends too early."""
    position = _HEAD.size + _COUNT.size
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if not 0 <= count * _ENTRY.size <= len(data) - position:
        return None
    found: list[tuple[int, ProducerState]] = []
    for _ in range(count):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset = (
            _ENTRY.unpack_from(data, position)
        )
        position += _ENTRY.size
        state = ProducerState(epoch, now_ms)
        if offset >= 0:
            state.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        state.last_timestamp = timestamp
        state.coordinator_epoch = coordinator_epoch
        state.current_transaction_first_offset = first_offset
        found.append((producer_id, state))
    if position == len(data):
        return found
    for _, state in found:
        older_count = data[position] if position < len(data) else BATCHES_REMEMBERED
        position += 1
        if older_count >= BATCHES_REMEMBERED:
            return None
        for at in range(older_count):
            state.batches.insert(at, BatchMetadata(*_OLDER.unpack_from(data, position)))
            position += _OLDER.size
    return found if position == len(data) else None


class ProducerSnapshots:
    """The snapshot files of one partition directory. Everything here blocks, for little."""

    __slots__ = ("_directory", "_disk", "_durable", "_written", "offsets")

    def __init__(self, disk: Disk, directory: str, names: Sequence[str]) -> None:
        """``names``: the files in the directory."""
        self._disk = disk
        self._directory = directory
        parsed = (parse_snapshot_file(name) for name in names)
        self.offsets = sorted(offset for offset in parsed if offset is not None)
        """The log ended there when they were written. Invariant: ascending."""
        self._durable: set[int] = set()
        """Of those, the ones that no power cut can take. A start knows of none."""
        self._written: set[int] = set()
        """Of ``offsets``, those that were written since the start."""

    def path_of(self, offset: int) -> str:
        """Return the path of the snapshot of a log that ends at ``offset``."""
        return f"{self._directory}/{segment_file(offset, SNAPSHOT_SUFFIX)}"

    def load_newest(self, now_ms: int) -> tuple[int, list[tuple[int, ProducerState]]] | None:
        """Return the newest snapshot that can be read and its offset; None when there is none.

        Those that cannot be read are removed. Raises OSError.
        """
        while self.offsets:
            offset = self.offsets[-1]
            file = self._disk.open_read_only(self.path_of(offset))
            try:
                size_bytes = file.size()
                data = b"" if size_bytes > _SNAPSHOT_BYTES_MAX else file.read_at(0, size_bytes)
            finally:
                file.close()
            states = decode_snapshot(data, now_ms)
            if states is not None:
                return offset, states
            self._remove(offset)
        return None

    def take(self, states: ProducerStates, offset: int, *, sync: bool) -> None:
        """Write the snapshot of a log that ends at ``offset``, unless there is one, or a later one.

        Durable with ``sync`` once the caller has synced the directory; without, a power cut may
        cost the file, and the next start a longer replay. Does nothing when the disk refuses.
        """
        if self.offsets and self.offsets[-1] >= offset:
            return
        with suppress(OSError):
            self.write(states, offset, sync=sync)
            self.offsets.append(offset)
            self._written.add(offset)

    def write(self, states: ProducerStates, offset: int, *, sync: bool) -> None:
        """Write the file of a snapshot, as ``take`` does. Raises OSError."""
        path = self.path_of(offset)
        try:
            self._write(path + TEMPORARY_SUFFIX, encode_snapshot(states), sync=sync)
            self._disk.rename(path + TEMPORARY_SUFFIX, path)
        except OSError:
            with suppress(OSError):
                self._disk.remove(path + TEMPORARY_SUFFIX)
            raise

    def add(self, offset: int, sure_offset: int) -> list[str]:
        """Note a snapshot that others have written; return the paths of those to remove.

        They may be removed once the new one is durable: see ``note_durable``.
        """
        if offset not in self.offsets:
            insort(self.offsets, offset)
        self._written.add(offset)
        gone = self._superseded({*self._durable, offset}, sure_offset)
        for known in gone:
            self._forget(known)
        return [self.path_of(known) for known in gone]

    def note_durable(self, offset: int) -> None:
        """Note that a snapshot was synced with its name, unless it was removed meanwhile.

        One of an earlier life does not count: a sync that failed then may have left pages that
        read back, and that no later sync writes.
        """
        if offset in self._written:
            self._durable.add(offset)

    def remove_superseded(self, sure_offset: int) -> None:
        """Remove some of those that nobody needs: see ``_superseded``. Blocks, for little.

        What the disk keeps stays known. At each roll, too: so many rolls may pile up behind one
        flush.
        """
        with suppress(OSError):
            for known in self._superseded(self._durable, sure_offset)[:_REMOVED_AT_ONCE_MAX]:
                self._remove(known)

    def durable_to(self, sure_offset: int) -> int:
        """Return the offset of the newest snapshot that a power cut leaves to the next start.

        -1: there may be none. One above ``sure_offset`` is of no use: the log may end below it.
        """
        return _newest_of(self._durable, sure_offset)

    def _superseded(self, durable: AbstractSet[int], sure_offset: int) -> list[int]:
        """Return the offsets of those that nobody needs, ``durable`` ones given.

        The newest that is sure to outlive a power cut stays, with all after it, and the one before
        it, should it be unreadable one day.
        """
        newest = _newest_of(durable, sure_offset)
        return [known for known in self.offsets if known < newest][:-1]

    def _forget(self, offset: int) -> None:
        self.offsets.remove(offset)
        self._written.discard(offset)
        self._durable.discard(offset)

    def _write(self, path: str, data: bytes, *, sync: bool) -> None:
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write_at(0, data)
            if sync:
                file.sync()
        finally:
            file.close()

    def remove_above(self, offset: int) -> None:
        """Remove, durably, what was taken of a history that is cut off. Raises OSError."""
        if not self.offsets or self.offsets[-1] <= offset:
            return
        while self.offsets and self.offsets[-1] > offset:
            self._remove(self.offsets[-1])
        self._disk.sync_directory(self._directory)

    def remove_below(self, offset: int) -> None:
        """Remove what was taken before a log began at ``offset``. Raises OSError.

        It tells of producers as they were before batches that are gone.
        """
        while self.offsets and self.offsets[0] < offset:
            self._remove(self.offsets[0])

    def _remove(self, offset: int) -> None:
        self._disk.remove(self.path_of(offset))
        self._forget(offset)


def _newest_of(offsets: Iterable[int], upper_offset: int) -> int:
    """Return the largest offset that is not above ``upper_offset``; -1: there is none."""
    return max((offset for offset in offsets if offset <= upper_offset), default=-1)
