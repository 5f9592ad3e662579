"""Exported Parquet files back to a topic, as a Spark task writes them: one partition, in order.

The executor's side, between the files of an export and a ``RowsWriter``. Knows nothing of commits.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet as pq

from ottla.client.wire.settings import ClientSettings
from ottla.spark.exporting.export_log import ExportedFile
from ottla.spark.writing.write import RowsWriter
from ottla.spark.writing.write_settings import WriteOptions

BATCH_ROWS = 1 << 16
KEPT = ("key", "value", "timestamp", "headers")


class ImportTask(NamedTuple):
    """What every task is told. Travels to the executors by pickle."""

    settings: ClientSettings
    options: WriteOptions
    directory: str
    keep_partitions: bool


def write_files(task: ImportTask, files: Sequence[ExportedFile]) -> int:
    """Write the records of ``files``, one partition's in the order of their ranges; count them.

    Blocks. Raises RowError, KafkaError, ConnectionFailed, OSError.
    """
    writer = RowsWriter(task.settings, task.options)
    count = 0
    try:
        for _, together in groupby(files, key=lambda file: file.start):
            in_order = list(together)
            partition = in_order[0].partition if task.keep_partitions else None
            for batch in _in_order(task.directory, in_order):
                writer.write(_kept(batch, partition))
                count += batch.num_rows
        writer.finish()
    finally:
        writer.abort()
    return count


def _in_order(directory: str, files: Sequence[ExportedFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one range by offset: its directories hold some of them each."""
    paths = [os.path.join(directory, file.path) for file in files]
    if len(paths) == 1:
        with pq.ParquetFile(paths[0]) as file:
            yield from file.iter_batches(BATCH_ROWS)
        return
    tables = [pq.ParquetFile(path).read() for path in paths]
    yield from pa.concat_tables(tables).sort_by("offset").to_batches(BATCH_ROWS)


def _kept(batch: pa.RecordBatch, partition: int | None) -> pa.RecordBatch:
    """Return what is written of rows, and where to: an export may lack the column partition."""
    kept = batch.select([name for name in KEPT if name in batch.schema.names])
    if partition is None:
        return kept
    numbers = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
    return kept.append_column("partition", numbers)
