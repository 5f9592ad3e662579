"""What the files of a log directory say, one row after the other: for people and their tools.

Owns the reading of each file format for display. Reads only, changes nothing, repairs nothing, and
goes on behind a batch whose sum is wrong. What a row means for the log is ``log.verify``'s. Used by
the command line. Source: Kafka's DumpLogSegments, whose facts these are.
"""

from collections.abc import Callable, Iterator
from posixpath import basename
from struct import Struct
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.errors import CorruptFile, KafkaError
from ottla.ids import topic_id_text
from ottla.log.files.checkpoints import (
    read_epoch_checkpoint,
    read_meta_properties,
    read_offset_checkpoint,
    read_partition_metadata,
)
from ottla.log.files.layout import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    parse_snapshot_file,
)
from ottla.log.producers.snapshot import decode_snapshot
from ottla.log.segment import offset_index, time_index, transaction_index
from ottla.log.segment.scan import Walk
from ottla.records.batch import MAGIC_V2, BatchHeader, TimestampType, batch_crc
from ottla.records.compression import Codec
from ottla.records.decode import decode_batches
from ottla.records.record import Record
from ottla.records.validate import check_batch_records, decompressed_bytes_limit

_NO_EXPIRY_MS = 0


class Unreadable(NamedTuple):
    """Where and why a file cannot be read any further."""

    position: int
    size_bytes: int
    """How much of the file that leaves unread."""
    why: str


class DumpedBatch(NamedTuple):
    """One batch as it stands in its file."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    record_count: int
    magic: int
    codec: str
    crc: int
    is_valid: bool
    why_invalid: str | None
    timestamp_type: str
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None


class IndexEntry(NamedTuple):
    """One entry of a ``.index`` file."""

    offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """One entry of a ``.timeindex`` file."""

    timestamp: int
    offset: int


class AbortedEntry(NamedTuple):
    """One entry of a ``.txnindex`` file."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class DumpedProducer(NamedTuple):
    """One producer of a ``.snapshot`` file, with the last of its batches."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_transaction_first_offset: int
    last_timestamp: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    batch_count: int


class DumpedEpoch(NamedTuple):
    """One line of a leader epoch checkpoint."""

    leader_epoch: int
    start_offset: int


class DumpedOffset(NamedTuple):
    """One line of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


class Identity(NamedTuple):
    """Whose directory it is; fields that the file does not have are None."""

    topic_id: str | None = None
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None


Row = (
    DumpedBatch
    | IndexEntry
    | TimeIndexEntry
    | AbortedEntry
    | DumpedProducer
    | DumpedEpoch
    | DumpedOffset
    | Identity
    | Unreadable
)


def dump_file(disk: Disk, path: str) -> Iterator[Row] | None:
    """Return the rows of the file ``path``, read as they are asked for; None for a foreign name.

    What cannot be read ends as ``Unreadable``. Raises OSError.
    """
    name = basename(path)
    parsed = parse_segment_file(name)
    if parsed is not None:
        base_offset, suffix = parsed
        match suffix:
            case _ if suffix == LOG_SUFFIX:
                return dump_log(disk, path)
            case _ if suffix == OFFSET_INDEX_SUFFIX:
                return _dump_index(disk, path, offset_index.ENTRY, _index_entry_of(base_offset))
            case _ if suffix == TIME_INDEX_SUFFIX:
                return _dump_index(disk, path, time_index.ENTRY, _time_entry_of(base_offset))
            case _ if suffix == TRANSACTION_INDEX_SUFFIX:
                return _dump_index(disk, path, transaction_index.ENTRY, AbortedEntry)
            case _:
                return None  # The checksum of one: nothing to show.
    if parse_snapshot_file(name) is not None:
        return _dump_snapshot(disk, path)
    reader = _SMALL_FILES.get(name)
    return None if reader is None else reader(disk, path)


def dump_log(disk: Disk, path: str, *, deep: bool = False) -> Iterator[DumpedBatch | Unreadable]:
    """Yield every batch of a log file. ``deep``: the records in it are checked as well."""
    file = disk.open_read_only(path)
    try:
        size_bytes = file.size()
        walk = Walk(file, 0, size_bytes, verify_crc=False)
        for batch in walk:
            view = memoryview(file.read_at(batch.position, batch.size_bytes))
            yield _dumped(batch.position, BatchHeader(*walk.header), view, deep=deep)
        if walk.stopped_by is not None:
            yield Unreadable(walk.position, size_bytes - walk.position, walk.stopped_by)
    finally:
        file.close()


def records_of(disk: Disk, path: str, batch: DumpedBatch) -> list[Record] | Unreadable:
    """Return the records of ``batch``, which stands in the log file ``path``."""
    file = disk.open_read_only(path)
    try:
        view = memoryview(file.read_at(batch.position, batch.size_bytes))
    finally:
        file.close()
    try:
        limit = decompressed_bytes_limit(batch.size_bytes)
        (decoded,) = decode_batches(view, limit, check_crc=False)
    except (KafkaError, ValueError) as error:
        return Unreadable(batch.position, batch.size_bytes, str(error))
    return decoded.records


def why_invalid(header: BatchHeader, view: memoryview, *, deep: bool) -> str | None:
    """Return what is wrong with the batch that fills ``view``; None: nothing.

    With ``deep`` its records are walked, decompressed if need be. Batches of the formats before 2
    were checked when they were read.
    """
    if header.magic != MAGIC_V2:
        return None
    crc = batch_crc(view)
    if crc != header.crc:
        return f"CRC32C {crc:08x}, expected {header.crc:08x}"
    # The walk expects offset deltas without gaps: compaction leaves some.
    if deep and header.record_count == header.last_offset_delta + 1:
        try:
            check_batch_records(view, header, decompressed_bytes_limit(header.size_bytes))
        except KafkaError as error:
            return error.why
    return None


def _dumped(position: int, header: BatchHeader, view: memoryview, *, deep: bool) -> DumpedBatch:
    why = why_invalid(header, view, deep=deep)
    timestamp_type = TimestampType(header.timestamp_type)
    return DumpedBatch(
        position=position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        magic=header.magic,
        codec=_codec_name(header.codec),
        crc=header.crc,
        is_valid=why is None,
        why_invalid=why,
        timestamp_type=_TIMESTAMP_TYPES[timestamp_type] if header.magic else "NoTimestampType",
        max_timestamp=header.max_timestamp,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        is_transactional=header.magic == MAGIC_V2 and header.is_transactional,
        is_control=header.magic == MAGIC_V2 and header.is_control,
        delete_horizon_ms=header.base_timestamp
        if header.magic == MAGIC_V2 and header.has_delete_horizon
        else None,
    )


_TIMESTAMP_TYPES = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def _codec_name(codec: int) -> str:
    return Codec(codec).name.lower() if codec <= max(Codec) else f"unknown {codec}"


# indexes ------------------------------------------------------------------------------------------


def _index_entry_of(base_offset: int) -> Callable[[int, int], IndexEntry]:
    return lambda relative, position: IndexEntry(base_offset + relative, position)


def _time_entry_of(base_offset: int) -> Callable[[int, int], TimeIndexEntry]:
    return lambda timestamp, relative: TimeIndexEntry(timestamp, base_offset + relative)


def _dump_index(
    disk: Disk,
    path: str,
    entry: Struct,
    make: Callable[..., Row],
) -> Iterator[Row]:
    data = _read(disk, path)
    used = len(data.rstrip(b"\0"))  # A preallocated one ends in zeros.
    whole = min(used + -used % entry.size, len(data)) // entry.size * entry.size
    for fields in entry.iter_unpack(data[:whole]):
        yield make(*fields)
    if len(data) % entry.size:
        why = f"{len(data)} bytes are not a multiple of {entry.size}"
        yield Unreadable(whole, len(data) - whole, why)


# small files --------------------------------------------------------------------------------------


def _dump_snapshot(disk: Disk, path: str) -> Iterator[Row]:
    data = _read(disk, path)
    states = decode_snapshot(data, _NO_EXPIRY_MS)
    if states is None:
        yield Unreadable(0, len(data), "not a snapshot, or its sum is wrong")
        return
    for producer_id, state in states:
        last = state.batches[-1] if state.batches else None
        yield DumpedProducer(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            coordinator_epoch=state.coordinator_epoch,
            current_transaction_first_offset=state.current_transaction_first_offset,
            last_timestamp=state.last_timestamp,
            first_sequence=-1 if last is None else last.first_sequence,
            last_sequence=-1 if last is None else last.last_sequence,
            first_offset=-1 if last is None else last.first_offset,
            last_offset=-1 if last is None else last.last_offset,
            batch_count=len(state.batches),
        )


def _dump_epochs(disk: Disk, path: str) -> Iterator[Row]:
    entries = read_epoch_checkpoint(disk, path)
    if entries is None:
        yield Unreadable(0, disk.size_of(path), "not exactly a leader epoch checkpoint")
        return
    for entry in entries:
        yield DumpedEpoch(*entry)


def _dump_offsets(disk: Disk, path: str) -> Iterator[Row]:
    offsets = read_offset_checkpoint(disk, path)
    if offsets is None:
        yield Unreadable(0, disk.size_of(path), "not exactly an offset checkpoint")
        return
    for (topic, partition), offset in offsets.items():
        yield DumpedOffset(topic, partition, offset)


def _dump_partition_metadata(disk: Disk, path: str) -> Iterator[Row]:
    topic_id = read_partition_metadata(disk, path)
    if topic_id is None:
        yield Unreadable(0, disk.size_of(path), "not exactly a partition's metadata")
        return
    yield Identity(topic_id=topic_id_text(topic_id))


def _dump_meta_properties(disk: Disk, path: str) -> Iterator[Row]:
    try:
        meta = read_meta_properties(disk, path)
    except CorruptFile as error:
        yield Unreadable(0, disk.size_of(path), str(error))
        return
    if meta is None:
        yield Unreadable(0, 0, "the file is empty")
        return
    yield Identity(None, meta.cluster_id, meta.node_id, meta.directory_id)


_SMALL_FILES: dict[str, Callable[[Disk, str], Iterator[Row]]] = {
    LEADER_EPOCH_CHECKPOINT: _dump_epochs,
    RECOVERY_POINT_CHECKPOINT: _dump_offsets,
    LOG_START_CHECKPOINT: _dump_offsets,
    HIGH_WATERMARK_CHECKPOINT: _dump_offsets,
    PARTITION_METADATA: _dump_partition_metadata,
    META_PROPERTIES: _dump_meta_properties,
}


def _read(disk: Disk, path: str) -> bytes:
    file: File = disk.open_read_only(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def files_of_partition(disk: Disk, directory: str) -> list[str]:
    """Return the paths of the log files in ``directory``, oldest first."""
    names = [name for name in disk.list_directory(directory) if name.endswith(LOG_SUFFIX)]
    return [f"{directory}/{name}" for name in names if parse_segment_file(name) is not None]
