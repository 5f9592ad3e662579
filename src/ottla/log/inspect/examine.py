"""A data directory seen from outside: whose it is, how it was left, and what is odd about it.

Reads small files and names only: seconds for thousands of partitions, where ``log.verify`` reads
every byte. Changes nothing and takes no lock, so a broker may run meanwhile. Used by the command
line. Source: reliability rules 3, 4, 14 to 16, 18.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.errors import CorruptFile
from ottla.ids import TopicId, TopicPartition, topic_id_text
from ottla.log.files.checkpoints import (
    MetaProperties,
    read_meta_properties,
    read_offset_checkpoint,
    read_partition_metadata,
)
from ottla.log.files.layout import (
    CLEAN_SHUTDOWN,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    SWAP_SUFFIX,
    is_deleted_directory,
    parse_partition_directory,
    parse_segment_file,
    segment_file,
)
from ottla.log.inspect.dump import IndexEntry, dump_file
from ottla.log.inspect.findings import Finding, Severity
from ottla.log.inspect.verify import Claims
from ottla.log.segment.scan import Walk

METADATA_STORE = "metadata.sqlite"
KRAFT_LOG = "__cluster_metadata-0"
FREE_RATIO_MIN = 0.05


class Hosted(NamedTuple):
    """One partition directory, by its names and sizes."""

    topic_partition: TopicPartition
    directory: str
    segment_count: int
    size_bytes: int
    topic_id: TopicId | None
    end_offset: int | None
    """Where the log ends, as far as its last index and batches say; None: unreadable."""


class DataDirectory(NamedTuple):
    """What a data directory is."""

    path: str
    kind: str
    """Who wrote it: ``ottla``, ``kafka``, ``empty`` or ``unknown``."""
    identity: MetaProperties | None
    locked_by: int | None
    """The process that uses it; 0: one that cannot be named; None: nobody."""
    is_clean: bool
    """The last process stopped cleanly, and none has begun since."""
    free_bytes: int
    total_bytes: int
    waiting_for_removal: int
    """Directories of deleted partitions."""
    partitions: tuple[Hosted, ...]
    recovery_points: dict[TopicPartition, int] | None
    log_start_offsets: dict[TopicPartition, int] | None

    @property
    def size_bytes(self) -> int:
        """Bytes in all log files."""
        return sum(partition.size_bytes for partition in self.partitions)

    def claims_of(self, topic_partition: TopicPartition) -> Claims:
        """Return what the checkpoints say of a partition."""
        return Claims(
            (self.recovery_points or {}).get(topic_partition, 0),
            (self.log_start_offsets or {}).get(topic_partition, 0),
            self.is_clean,
            self.locked_by is not None,
        )


def examine(
    disk: Disk, path: str, *, metadata_in: str | None = None, total_bytes_known: int | None = None
) -> tuple[DataDirectory, list[Finding]]:
    """Look at the data directory ``path``. Raises OSError when it cannot be listed.

    ``metadata_in``: the directory that has its metadata; None: ``path`` itself.
    ``total_bytes_known``: the size of a disk whose free space was looked at already.
    """
    names = disk.list_directory(path)
    has_metadata = METADATA_STORE in names
    if metadata_in is not None:
        has_metadata = disk.exists(f"{metadata_in}/{METADATA_STORE}")
    findings: list[Finding] = []
    identity = _identity(disk, path, findings)
    partitions: list[Hosted] = []
    for name in names:
        topic_partition = parse_partition_directory(name)
        if topic_partition is not None and disk.is_directory(f"{path}/{name}"):
            partitions.append(_hosted(disk, f"{path}/{name}", topic_partition, findings))
    directory = DataDirectory(
        path=path,
        kind="ottla" if has_metadata else _kind(names, identity, partitions),
        identity=identity,
        locked_by=disk.locked_by(f"{path}/{LOCK}"),
        is_clean=CLEAN_SHUTDOWN in names,
        free_bytes=disk.free_bytes(path),
        total_bytes=disk.total_bytes(path),
        waiting_for_removal=sum(map(is_deleted_directory, names)),
        partitions=tuple(partitions),
        recovery_points=_points(disk, path, RECOVERY_POINT_CHECKPOINT, names, findings),
        log_start_offsets=_points(disk, path, LOG_START_CHECKPOINT, names, findings),
    )
    _points(disk, path, HIGH_WATERMARK_CHECKPOINT, names, findings)
    findings.extend(_of_directory(directory, names))
    if directory.total_bytes != total_bytes_known:
        findings.extend(_of_disk(directory))
    findings.extend(_of_origin(directory, metadata_in or path, has_metadata=has_metadata))
    findings.extend(_of_partitions(directory))
    return directory, findings


def _kind(names: list[str], identity: MetaProperties | None, partitions: list[Hosted]) -> str:
    if KRAFT_LOG in names:
        return "kafka"
    return "unknown" if identity or partitions else "empty" if not names else "unknown"


def _identity(disk: Disk, path: str, findings: list[Finding]) -> MetaProperties | None:
    file = f"{path}/{META_PROPERTIES}"
    try:
        return read_meta_properties(disk, file)
    except (CorruptFile, OSError) as error:
        why = error.why if isinstance(error, CorruptFile) else str(error)
        fix = "restore it from a copy, or write version=1, cluster.id and node.id anew"
        findings.append(Finding(Severity.ERROR, file, "it cannot be read", why, fix))
        return None


def _points(
    disk: Disk, path: str, name: str, names: list[str], findings: list[Finding]
) -> dict[TopicPartition, int] | None:
    if name not in names:
        return None
    points = read_offset_checkpoint(disk, f"{path}/{name}")
    if points is None and disk.size_of(f"{path}/{name}"):  # Kafka begins with empty ones.
        why = "a checkpoint that is not exactly one counts as absent"
        fix = "nothing: the next start verifies every log from its beginning, and writes a new one"
        findings.append(Finding(Severity.WARNING, f"{path}/{name}", "it cannot be read", why, fix))
    return points


def _hosted(
    disk: Disk, directory: str, topic_partition: TopicPartition, findings: list[Finding]
) -> Hosted:
    sizes: dict[int, int] = {}
    try:
        names = disk.list_directory(directory)
        for name in names:
            parsed = parse_segment_file(name)
            if parsed is not None and parsed[1] == LOG_SUFFIX:
                sizes[parsed[0]] = disk.size_of(f"{directory}/{name}")
    except OSError as error:
        fix = "let the user of the broker read and write it"
        findings.append(Finding(Severity.ERROR, directory, "it cannot be read", str(error), fix))
        return Hosted(topic_partition, directory, 0, 0, None, None)
    findings.extend(_leftovers(directory, names))
    topic_id = read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")
    end_offset = _end_of(disk, directory, sizes)
    return Hosted(topic_partition, directory, len(sizes), sum(sizes.values()), topic_id, end_offset)


def _end_of(disk: Disk, directory: str, sizes: dict[int, int]) -> int | None:
    """Return where the log ends by its last segment, read from its last index entry on."""
    if not sizes:
        return 0
    base_offset = max(sizes)
    path = f"{directory}/{segment_file(base_offset, LOG_SUFFIX)}"
    try:
        file = disk.open_read_only(path)
    except OSError:
        return None
    try:
        return _walk_to_end(disk, path, file, base_offset)
    except OSError:
        return None
    finally:
        file.close()


def _walk_to_end(disk: Disk, path: str, file: File, base_offset: int) -> int | None:
    size_bytes = file.size()
    index = path.removesuffix(LOG_SUFFIX) + OFFSET_INDEX_SUFFIX
    rows = dump_file(disk, index) if disk.exists(index) else None
    entries = [row for row in rows or () if isinstance(row, IndexEntry)]
    for start in (entries[-1].position if entries else 0, 0):
        walk = Walk(file, start, size_bytes, verify_crc=False)
        end_offset = base_offset
        for batch in walk:
            end_offset = batch.last_offset + 1
        if walk.position > start or start == size_bytes:
            return end_offset
    return None if size_bytes else base_offset


def _leftovers(directory: str, names: list[str]) -> Iterator[Finding]:
    for suffix, what in (
        (SWAP_SUFFIX, "a compaction was decided but not finished"),
        (CLEANED_SUFFIX, "a compaction was cut short"),
        (DELETED_SUFFIX, "segments wait for their removal"),
    ):
        count = sum(name.endswith(suffix) for name in names)
        if count:
            fix = "nothing: a running broker, or the next start, finishes it"
            yield Finding(Severity.NOTE, directory, f"{count} {suffix} files: {what}", "", fix)


def _of_directory(directory: DataDirectory, names: list[str]) -> Iterator[Finding]:
    path = directory.path
    if directory.identity is None and META_PROPERTIES not in names and directory.partitions:
        what = f"there are partitions but no {META_PROPERTIES}"
        why = "nothing says which cluster and node they belong to"
        fix = "is this the whole directory? A broker started here makes it its own"
        yield Finding(Severity.WARNING, path, what, why, fix)
    if directory.locked_by is None and not directory.is_clean and directory.partitions:
        what = "the last broker here was killed, or the machine lost power"
        fix = "nothing: the next start verifies every batch above the recovery points"
        yield Finding(Severity.NOTE, path, what, "there is no mark of a clean stop", fix)


def _of_disk(directory: DataDirectory) -> Iterator[Finding]:
    if directory.total_bytes and directory.free_bytes < FREE_RATIO_MIN * directory.total_bytes:
        what = f"{directory.free_bytes} of {directory.total_bytes} bytes are free"
        why = "on a full disk appends are refused with KAFKA_STORAGE_ERROR; reads go on"
        fix = "make room, or lower retention.ms or retention.bytes"
        yield Finding(Severity.WARNING, directory.path, what, why, fix)


def _of_origin(
    directory: DataDirectory, metadata_in: str, *, has_metadata: bool
) -> Iterator[Finding]:
    if directory.kind == "kafka":
        what = "Apache Kafka (KRaft) wrote this directory"
        fix = (
            "a broker started here serves its topics, and keeps all their records: their configs"
            " are in Kafka's own metadata"
        )
        yield Finding(Severity.NOTE, directory.path, what, "", fix)
    elif not has_metadata and directory.partitions:
        what = f"there is no {METADATA_STORE}"
        why = (
            "topics are taken in from their directories, without their configs: all their records"
            " are kept; users and ACLs are lost"
        )
        fix = "nothing if another one of log.dirs has it; else restore it from a copy"
        yield Finding(Severity.WARNING, metadata_in, what, why, fix)


def _of_partitions(directory: DataDirectory) -> Iterator[Finding]:
    known = {partition.topic_partition for partition in directory.partitions}
    for name, points in (
        (RECOVERY_POINT_CHECKPOINT, directory.recovery_points),
        (LOG_START_CHECKPOINT, directory.log_start_offsets),
    ):
        missing = sorted(str(each) for each in points or () if each not in known)
        if missing:
            what = f"it names {len(missing)} partitions without a directory: {_some(missing)}"
            why = "deleted since the last checkpoint, or their directories are lost"
            fix = "nothing if they were deleted; else restore them from a copy"
            yield Finding(Severity.WARNING, f"{directory.path}/{name}", what, why, fix)
    for partition in directory.partitions:
        yield from _of_partition(directory, partition)
    ids: dict[str, set[str]] = defaultdict(set)
    for partition in directory.partitions:
        if partition.topic_id is not None:
            ids[partition.topic_partition.topic].add(topic_id_text(partition.topic_id))
    for topic, found in ids.items():
        if len(found) > 1:
            what = f"the partitions of {topic} have {len(found)} topic ids: {_some(sorted(found))}"
            why = "some belong to an older topic of that name"
            fix = "move the directories of the older one away"
            yield Finding(Severity.ERROR, directory.path, what, why, fix)


def _of_partition(directory: DataDirectory, partition: Hosted) -> Iterator[Finding]:
    claims = directory.claims_of(partition.topic_partition)
    restore = "restore the partition from a copy; it is offline until then, the others serve"
    if not partition.segment_count:
        if claims.recovery_point > claims.log_start_offset:
            what = f"no segments; the recovery point is {claims.recovery_point}"
            yield Finding(Severity.ERROR, partition.directory, what, "files are lost", restore)
        return
    if partition.end_offset is None:
        what = "the end of its last segment cannot be read"
        fix = f"ottla log verify {partition.directory}"
        yield Finding(Severity.WARNING, partition.directory, what, "", fix)
    elif partition.end_offset < claims.recovery_point and not claims.is_running:
        what = (
            f"ends at offset {partition.end_offset}, its recovery point is {claims.recovery_point}"
        )
        why = "records that were durable are missing: a file was cut or replaced"
        yield Finding(Severity.ERROR, partition.directory, what, why, restore)
    if partition.topic_id is None:
        what = f"no topic id in {PARTITION_METADATA}"
        why = "written before topic ids, or its creation was cut short"
        fix = "nothing: it gets its topic's id when a broker hosts it"
        yield Finding(Severity.NOTE, partition.directory, what, why, fix)


def _some(texts: list[str]) -> str:
    return ", ".join(texts[:5]) + (" ..." if len(texts) > 5 else "")
