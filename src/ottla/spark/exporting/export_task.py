"""One range of a topic to Parquet files, as a Spark task writes them: no row ever meets the JVM.

The executor's side, between the Arrow batches of ``read`` and files in the staging directory of an
export. Owns how rows are divided into files and how those are written. Knows nothing of commits.
"""

import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from ottla.env.real_disk import RealDisk
from ottla.spark.exporting.export_log import ExportedFile
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions

ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1 << 20
GATHERED_BYTES_MAX = 128 << 20
"""Limit for all open files of a task; above it the file that holds most writes a row group."""
BATCH_BYTES = 2 << 10
"""What a handful of rows takes beside its bytes: objects, and buffers of 64 bytes at least."""
OPEN_FILES_MAX = 64
"""A task with rows for more directories at once closes the file that waited longest."""
KEY_NAME_BYTES_MAX = 240
"""Behind ``key_text=``; a name has 255."""
KEPT_OF_A_KEY = 200
NO_KEY = "__HIVE_DEFAULT_PARTITION__"
US_PER_HOUR = 3_600_000_000
SMALL_NUMBERS = ("offset", "timestamp")
"""Stored as differences: a byte or two each."""
FEW_VALUES = ("key", "topic", "partition", "timestampType")
"""Stored by a dictionary, which Parquet gives up by itself where it does not help."""


class ExportTask(NamedTuple):
    """What every task of a commit is told. Travels to the executors by pickle."""

    options: SourceOptions
    partition_by: tuple[str, ...]
    """Some of ``date``, ``hour``, ``key``; the directories are nested in this order."""
    staging: str
    codec: str


def write_range(task: ExportTask, wanted: OffsetRange, attempt: str) -> list[ExportedFile]:
    """Write the records of ``wanted`` and return the files, which are durable. Blocks.

    ``attempt`` tells this run of the task from any other. Raises what ``read_range`` raises, and
    OSError.
    """
    from ottla.spark.reading.read import read_range

    files = _Files(task, wanted, attempt)
    try:
        for batch in read_range(task.options, wanted):
            for directory, part in divide(batch, task.partition_by):
                files.write(directory, part)
        return files.finish()
    finally:
        files.abort()


def divide(
    batch: pa.RecordBatch, partition_by: tuple[str, ...]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each directory, in order. The name is empty or ends in ``/``."""
    parts = [("", batch)]
    for name in partition_by:
        parts = [
            (directory + more, rows) for directory, part in parts for more, rows in _by(part, name)
        ]
    yield from parts


def _by(batch: pa.RecordBatch, name: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    column = batch.column("key" if name == "key" else "timestamp")
    if name == "key":
        encoded = column.dictionary_encode(null_encoding="encode")
        names = [f"key_text={_escaped(each)}/" for each in encoded.dictionary.to_pylist()]
    else:
        unit = US_PER_HOUR * (24 if name == "date" else 1)
        encoded = _units(column.cast(pa.int64()), unit).dictionary_encode(null_encoding="encode")
        numbers = encoded.dictionary.to_pylist()
        names = [_date(each) if name == "date" else _hour(each) for each in numbers]
    if len(names) == 1:
        yield names[0], batch
        return
    for code, text in enumerate(names):
        yield text, batch.filter(pc.equal(encoded.indices, code))


def _units(times: pa.Array, unit: int) -> pa.Array:
    """Return in which day or hour times are; also those before 1970, where division is upwards."""
    found = pc.divide(times, unit)
    is_above = pc.less(times, pc.multiply(found, unit))
    return pc.subtract(found, is_above.cast(pa.int64()))


def _hour(hours: int | None) -> str:
    return f"hour={NO_KEY}/" if hours is None else f"hour={hours % 24:02}/"


def _date(days: int | None) -> str:
    """Return a day's directory; one that no calendar has (a time in the wrong unit) is null."""
    from datetime import date, timedelta

    if days is None:
        return f"date={NO_KEY}/"
    try:
        return f"date={date(1970, 1, 1) + timedelta(days=days)}/"
    except OverflowError:
        return f"date={NO_KEY}/"


def _escaped(key: bytes | None) -> str:
    """Return a key as a directory's name, in the manner of Hive, which Spark reads back.

    A long key is cut, and its hash says which it is: no file system takes longer names. The column
    ``key`` in the files has it whole.
    """
    if not key:
        return NO_KEY
    name = quote(key, safe=" !$&()+,;@~").replace(".", "%2E")
    if len(name) <= KEY_NAME_BYTES_MAX:
        return name
    kept = name[:KEPT_OF_A_KEY]
    kept = kept[: kept.rindex("%")] if "%" in kept[-2:] else kept  # no half of an escape
    return f"{kept}~{hashlib.blake2b(key, digest_size=8).hexdigest()}"


class _Files:
    """The files of one task: those that are open, and those that are done."""

    def __init__(self, task: ExportTask, wanted: OffsetRange, attempt: str) -> None:
        self._task = task
        self._wanted = wanted
        self._attempt = attempt
        self._disk = RealDisk()
        self._open: dict[str, _File] = {}
        self._done: list[ExportedFile] = []
        self._count = 0
        self._gathered_bytes = 0

    def write(self, directory: str, rows: pa.RecordBatch) -> None:
        file = self._open.pop(directory, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            file = self._new(directory, rows.schema)
        self._open[directory] = file  # the newest of the open ones
        self._gathered_bytes += file.write(rows)
        while self._gathered_bytes > GATHERED_BYTES_MAX:
            largest = max(self._open.values(), key=lambda each: each.gathered_bytes)
            self._gathered_bytes -= largest.flush()

    def finish(self) -> list[ExportedFile]:
        for directory in list(self._open):
            self._close(directory)
        if self._done:
            self._disk.sync_directory(self._task.staging)
        return self._done

    def abort(self) -> None:
        for file in self._open.values():
            file.abort()
        self._open.clear()

    def _new(self, directory: str, schema: pa.Schema) -> "_File":
        more = "" if self._count == 0 else f"-{self._count}"
        name = f"part-{self._wanted.partition}-{self._wanted.start:020}{more}.parquet"
        staged = f"{self._wanted.partition}-{self._wanted.start}-{self._attempt}-{self._count}"
        self._count += 1
        path = os.path.join(self._task.staging, staged)
        return _File(path, staged, directory + name, schema, self._task.codec)

    def _close(self, directory: str) -> None:
        file = self._open.pop(directory)
        self._gathered_bytes -= file.close()
        written = self._disk.open(file.path)
        try:
            written.sync()
            size = written.size()
        finally:
            written.close()
        self._done.append(
            ExportedFile(
                file.staged,
                file.target,
                self._wanted.partition,
                self._wanted.start,
                file.rows,
                size,
            )
        )


class _File:
    """One Parquet file; rows gather until they make a row group."""

    def __init__(self, path: str, staged: str, target: str, schema: pa.Schema, codec: str) -> None:
        self.path = path
        self.staged = staged
        self.target = target
        self.rows = 0
        names = set(schema.names)
        numbers = [name for name in SMALL_NUMBERS if name in names]
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression=codec,
            use_dictionary=[name for name in FEW_VALUES if name in names],
            column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
            write_statistics=[*numbers, *(each for each in FEW_VALUES if each in names)],
            store_schema=False,
        )
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self.gathered_bytes = 0
        """In memory, not in the file yet."""

    def write(self, rows: pa.RecordBatch) -> int:
        """Take rows; return by how much there is more in memory now, or less."""
        before = self.gathered_bytes
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        self.gathered_bytes += rows.nbytes + BATCH_BYTES
        if self.gathered_bytes >= ROW_GROUP_BYTES or self._gathered_rows >= ROW_GROUP_ROWS:
            self.flush()
        return self.gathered_bytes - before

    def close(self) -> int:
        """End the file; return as ``flush`` does."""
        written = self.flush()
        self._writer.close()
        return written

    def abort(self) -> None:
        """End without a usable file; what lies in staging is swept away."""
        self._gathered.clear()
        self._writer.close()

    def flush(self) -> int:
        """Write what gathered as a row group; return how many bytes that frees."""
        freed = self.gathered_bytes
        if self._gathered:
            self._writer.write_table(pa.Table.from_batches(self._gathered), ROW_GROUP_ROWS)
            self.rows += self._gathered_rows
            self._gathered, self._gathered_rows, self.gathered_bytes = [], 0, 0
        return freed
