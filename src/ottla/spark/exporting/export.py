"""Topics to Parquet and back, without a row in the JVM: ``to_parquet``, ``from_parquet``.

The driver's side. Owns which offsets go into which commit, and the Spark jobs that write them; the
executors run ``export_task`` and ``import_task``, and ``export_log`` says what counts. Where the
files lie, driver and executors must see the same directory.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.ids import NULL_TOPIC_ID
from ottla.spark.connection import OptionError
from ottla.spark.exporting.export_log import (
    RAW,
    Commit,
    ExportedFile,
    ExportError,
    ExportLog,
    Layout,
    joined,
    read_commits,
    waves,
    with_begins,
)
from ottla.spark.offsets import EARLIEST, OffsetRange
from ottla.spark.option_table import Use
from ottla.spark.options import SourceOptions, parse_options
from ottla.spark.planning.split import split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from ottla.spark.exporting.export_task import ExportTask
    from ottla.spark.exporting.import_task import ImportTask

Batches = Iterator["pa.RecordBatch"]

WAYS = ("date", "hour", "key")
"""What ``partition_by`` may name."""
FILES = "staged string, path string, partition int, start long, rows long, size_bytes long"


@dataclass(frozen=True, slots=True)
class Exported:
    """What one call of ``to_parquet`` added. ``commits`` is empty when there was nothing new."""

    directory: str
    commits: tuple[Commit, ...]

    @property
    def rows(self) -> int:
        """Records written."""
        return sum(file.rows for commit in self.commits for file in commit.files)

    @property
    def files(self) -> int:
        """Files written."""
        return sum(len(commit.files) for commit in self.commits)

    @property
    def size_bytes(self) -> int:
        """Their size in all."""
        return sum(file.size_bytes for commit in self.commits for file in commit.files)


def to_parquet(
    topic: str,
    directory: str,
    *,
    bootstrap: str,
    spark: "SparkSession | None" = None,
    partition_by: str | Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    codec: str = "snappy",
    records_per_file: int = 1_000_000,
    records_per_commit: int = 50_000_000,
) -> Exported:
    """Write the records of ``topic`` to Parquet files in ``directory``, from where it stopped.

    The first call writes what ``options`` (those of the source: ``startingOffsets``,
    ``endingOffsets``, ``includeHeaders``, ``kafka.*`` ...) ask for; another one for the same
    directory goes on behind the last offset, up to ``endingOffsets``. ``partition_by`` is of
    ``date`` and ``hour`` (of the timestamp, UTC) and ``key``. ``spark`` None: a session of
    ``ottla.spark.session``, or the one that is there. Blocks.

    Raises ExportError, OptionError, KafkaError, ConnectionFailed; a task's error comes as Spark's.
    After any error, or a kill, the next call goes on, and nothing is lost or there twice.
    """
    from ottla.env.real_disk import RealDisk
    from ottla.spark.exporting.export_task import ExportTask
    from ottla.spark.planning.plan import plan_ranges

    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **(options or {})}
    ways = _ways(partition_by)
    for name, count in (("file", records_per_file), ("commit", records_per_commit)):
        if count < 1:
            message = f"records_per_{name} is {count}: give 1 or more"
            raise ExportError(message)
    log = ExportLog.open(RealDisk(), _local(directory))
    try:
        source, topic_id = _asked(given, topic, log)
        source = _as_before(source, log)
        layout = Layout(topic, topic_id, source.columns, ways, _value_type(source))
        _require_columns(layout)
        if source.value is not None:
            _require_names(source.value.schema)
        _require_same(log, layout)
        ranges = plan_ranges(source)
        _require_topic(ranges, layout)
        parts = split(ranges, min_partitions=0, max_records=records_per_file)
        made: list[Commit] = []
        for wave in waves(parts, records_per_commit):
            number, staging = log.begin()
            task = ExportTask(source, ways, staging, codec)
            frame = _frame(spark, len(wave), _writing(task, tuple(wave)))
            files = tuple(ExportedFile(*row) for row in frame.collect())
            offsets = with_begins(joined(wave), ranges, log.ends())
            commit = Commit(number, layout, offsets, files)
            log.add(commit)
            made.append(commit)
        begins = with_begins((), ranges, log.ends())
        if begins:
            number, _ = log.begin()
            log.add(Commit(number, layout, begins, ()))
        return Exported(log.directory, tuple(made))
    finally:
        log.close()


def from_parquet(
    directory: str,
    topic: str,
    *,
    bootstrap: str,
    spark: "SparkSession | None" = None,
    keep_partitions: bool = True,
    options: Mapping[str, str] | None = None,
) -> int:
    """Write the records that ``to_parquet`` put into ``directory`` to ``topic``; return the count.

    Keys, values, timestamps and headers (where they were exported) are as they were, and so is the
    order within a partition. ``keep_partitions`` False: keys choose the partitions, as in Java's
    producer. ``options`` are a producer's settings as ``kafka.*``. At least once: an error or a
    kill in the middle leaves what was written, and the next call writes all again. Blocks. Raises
    as ``to_parquet`` does.
    """
    from ottla.config.option import InvalidConfig
    from ottla.env.real_disk import RealDisk
    from ottla.spark.exporting.import_task import ImportTask
    from ottla.spark.writing.write_settings import read_write_settings

    commits = read_commits(RealDisk(), _local(directory))
    if not commits:
        message = f"{directory} holds no export of a topic"
        raise ExportError(message)
    _require_an_order(commits, directory)
    texts = {name.removeprefix("kafka."): text for name, text in (options or {}).items()}
    try:
        settings, write = read_write_settings({"bootstrap.servers": bootstrap, **texts}, topic)
    except InvalidConfig as error:
        raise OptionError(str(error)) from error
    task = ImportTask(settings, write, _local(directory), keep_partitions)
    parts = _by_partition(commits)
    if not parts:
        return 0
    rows = _frame(spark, len(parts), _reading(task, parts)).collect()
    return sum(row.rows for row in rows)


def _require_an_order(commits: Sequence[Commit], directory: str) -> None:
    """Raise ExportError when nothing tells the order of rows that lie in several directories."""
    layout = commits[0].layout
    if layout.partition_by and "offset" not in layout.columns:
        message = (
            f"{directory} was exported by {', '.join(layout.partition_by)} and without the column "
            "offset, so the order of its records is not known: they cannot go back to a topic"
        )
        raise ExportError(message)


def _by_partition(commits: Iterable[Commit]) -> tuple[tuple[ExportedFile, ...], ...]:
    """Return the files of each partition, in the order of their offsets."""
    files: dict[int, list[ExportedFile]] = {}
    for commit in commits:
        for each in commit.files:
            files.setdefault(each.partition, []).append(each)
    return tuple(
        tuple(sorted(found, key=lambda file: file.start)) for _, found in sorted(files.items())
    )


def _ways(partition_by: str | Sequence[str]) -> tuple[str, ...]:
    ways = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    for way in ways:
        if way not in WAYS:
            message = f"partition_by: {way!r} is none of {', '.join(WAYS)}"
            raise ExportError(message)
    if len(set(ways)) < len(ways):
        message = f"partition_by: something is named twice in {ways}"
        raise ExportError(message)
    return ways


def _local(directory: str) -> str:
    """Return the absolute path of a directory that this machine has mounted."""
    if "://" in directory and not directory.startswith("file://"):
        message = f"{directory}: only directories of the file system are written (no object stores)"
        raise ExportError(message)
    return os.path.abspath(directory.removeprefix("file://"))


def _asked(given: Mapping[str, str], topic: str, log: ExportLog) -> tuple[SourceOptions, str]:
    """Return the source's options, going on where ``log`` ends, and the topic's id."""
    from ottla.client.blocking.cluster import BlockingClient

    first = parse_options(given, Use.BATCH)
    with BlockingClient(first.settings(retry_timeout_ms=first.first_retry_ms)) as client:
        found = client.refresh([topic]).topic(topic)
    topic_id = "" if found.topic_id == NULL_TOPIC_ID else found.topic_id.hex()
    if not log.commits:
        return first, topic_id
    known = log.commits[-1].layout.topic_id
    if known and topic_id and known != topic_id:
        message = (
            f"{topic} was made anew since the last export: {log.directory} holds records of the "
            f"topic {known}, and there is {topic_id} now; export to another directory"
        )
        raise ExportError(message)
    ends = {str(number): log.ends().get(number, EARLIEST) for number in found.partitions}
    left = {name: text for name, text in given.items() if not name.lower().startswith("starting")}
    given = {**left, "startingOffsets": json.dumps({topic: ends})}
    return parse_options(given, Use.BATCH), topic_id


def _as_before(source: SourceOptions, log: ExportLog) -> SourceOptions:
    """Return the options that give values of the type that is exported already.

    They are others where a registry has a newer schema than at the first call.
    """
    from ottla.spark.values.value_options import AvroOptions

    there = log.commits[-1].layout.value if log.commits else None
    if not isinstance(source.value, AvroOptions) or there in {None, RAW, _value_type(source)}:
        return source
    value = source.value.earlier(lambda kind: kind.simpleString() == there)
    return source if value is None else replace(source, value=value)


def _require_same(log: ExportLog, layout: Layout) -> None:
    """Raise ExportError unless ``layout`` is that of what is there."""
    if not log.commits:
        return
    there = log.commits[-1].layout
    expected, is_raw = layout, layout.value == RAW
    if there.value is None:  # an older version's: its files know whether values are raw
        expected = replace(layout, value=None)
        are_raw = _are_raw(log)
        if are_raw is not None and are_raw != is_raw:
            there = replace(there, value=RAW if are_raw else "typed")
            expected = layout
    for name in ("topic", "columns", "partition_by", "value"):
        if getattr(there, name) != getattr(expected, name):
            message = (
                f"{log.directory} was exported with {name} {getattr(there, name)}, not "
                f"{getattr(expected, name)}: a directory keeps one form"
            )
            raise ExportError(message)


def _require_topic(ranges: Iterable[OffsetRange], layout: Layout) -> None:
    """Raise ExportError when the ranges are of another topic of that name than was looked at."""
    for one in ranges:
        if layout.topic_id and one.topic_id.hex() not in {layout.topic_id, NULL_TOPIC_ID.hex()}:
            message = f"{layout.topic} was made anew just now: start the export again"
            raise ExportError(message)


def _are_raw(log: ExportLog) -> bool | None:
    """Tell whether the values that were exported are bytes; None: nothing was exported."""
    from pyarrow import parquet

    for path in (file.path for commit in log.commits for file in commit.files):
        schema = parquet.read_schema(os.path.join(log.directory, path))
        return None if "value" not in schema.names else not schema.field("value").type.num_fields
    return None


def _value_type(source: SourceOptions) -> str | None:
    """Return the type of the column value, in Spark's words."""
    if source.value is None or "value" not in source.columns:
        return RAW
    return str(source.value.schema.simpleString())


def _require_names(kind: "DataType") -> None:
    """Raise ExportError for fields whose names differ in case only: Spark reads no such file."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        _require_names(kind.elementType)
    elif isinstance(kind, MapType):
        _require_names(kind.valueType)
    elif isinstance(kind, StructType):
        if len({name.lower() for name in kind.names}) < len(kind.names):
            message = f"two names in {kind.simpleString()} differ in their case only"
            raise ExportError(message)
        for each in kind.fields:
            _require_names(each.dataType)


def _require_columns(layout: Layout) -> None:
    """Raise ExportError when a column is left out that the directories are named by."""
    for way in layout.partition_by:
        needed = "key" if way == "key" else "timestamp"
        if needed not in layout.columns:
            message = f"partition_by {way!r} needs the column {needed}; columns= leaves it out"
            raise ExportError(message)


# ------------------------------------------------------------------------------- the jobs


def _frame(
    spark: "SparkSession | None", count: int, work: Callable[[Batches], Batches]
) -> "DataFrame":
    """Return a frame of what ``work`` yields in ``count`` tasks, each given its own number."""
    from ottla.spark.local import session

    started = spark or session()
    numbers = started.range(0, count, 1, count)
    return numbers.mapInArrow(work, FILES)


def _writing(task: "ExportTask", parts: tuple[OffsetRange, ...]) -> Callable[[Batches], Batches]:
    def write(batches: Batches) -> Batches:
        import pyarrow as pa
        from pyspark import TaskContext

        from ottla.spark.exporting.export_task import write_range

        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        for batch in batches:
            for number in batch.column(0).to_pylist():
                files = write_range(task, parts[number], str(context.taskAttemptId()))
                columns = [[file[index] for file in files] for index in range(len(_schema()))]
                yield pa.record_batch(columns, schema=_schema())

    return write


def _reading(
    task: "ImportTask", parts: tuple[tuple[ExportedFile, ...], ...]
) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        import pyarrow as pa

        from ottla.spark.exporting.import_task import write_files

        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = write_files(task, parts[number])
                yield pa.record_batch([[""], [""], [0], [0], [rows], [0]], schema=_schema())

    return read


def _schema() -> "pa.Schema":
    """Return what tasks tell, in Arrow's words. ``FILES`` says the same in Spark's."""
    import pyarrow as pa

    names = (("staged", pa.string()), ("path", pa.string()), ("partition", pa.int32()))
    return pa.schema([*names, *((name, pa.int64()) for name in ("start", "rows", "size_bytes"))])
