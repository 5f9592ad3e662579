"""What Spark calls: the data source ``ottla``, found by way of ``pyspark_ottla``.

Imported in every Python process that Spark starts to plan or read, so nothing here imports more
than pyspark's own interface; ``plan`` and ``read`` come in where they are used. Batch reading.
Source: Spark's Python Data Source API.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.spark.options import OptionError, SourceOptions, parse_options

if TYPE_CHECKING:
    import pyarrow as pa

HEADER = StructType().add("key", StringType()).add("value", BinaryType())


def columns(*, include_headers: bool) -> StructType:
    """Return the columns of Spark's Kafka connector, all of them nullable as they are there."""
    schema = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    return schema.add("headers", ArrayType(HEADER)) if include_headers else schema


class OttlaDataSource(DataSource):
    """``spark.read.format("ottla")``: topics as rows, with the Kafka connector's columns."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format(...)``."""
        return "ottla"

    def schema(self) -> StructType:
        """Return the columns. Raises OptionError for any wrong option, before all else."""
        return columns(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> "OttlaReader":
        """Return the reader of one query. ``schema`` is ours; another one is refused."""
        own = self.schema()
        if schema != own:
            message = (
                f"format 'ottla' has its own columns ({own.simpleString()}): leave out .schema()"
            )
            raise OptionError(message)
        return OttlaReader(parse_options(self.options))


class OttlaReader(DataSourceReader):
    """Plans on the driver, reads on the executors; travels there by pickle."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one input partition for each range that holds records. Asks the cluster."""
        from ottla.spark.plan import plan

        return [InputPartition(wanted) for wanted in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one range. Spark gives None when there is nothing to read at all."""
        from ottla.spark.read import read_range

        if partition.value is None:
            return iter(())
        return read_range(self._options, partition.value)
