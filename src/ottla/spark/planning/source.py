"""What Spark calls: the data source ``ottla``, found by way of ``pyspark_ottla``.

Imported in every Python process that Spark starts to plan or read, so nothing here imports more
than pyspark's own interface; ``plan``, ``read`` and the others come in where they are used.
Source: Spark's Python Data Source API.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.spark.option_table import COLUMNS, HEADERS, Use

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.options import SourceOptions
    from ottla.spark.planning.stream import OttlaStreamReader
    from ottla.spark.values.value_options import ValueOptions

HEADER = StructType().add("key", StringType()).add("value", BinaryType())
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(HEADER),
}


def schema_of(
    columns: tuple[str, ...] = COLUMNS, value: "ValueOptions | None" = None
) -> StructType:
    """Return the columns as Spark's Kafka connector has them, all of them nullable as there.

    ``value`` is a struct when it is decoded.
    """
    schema = StructType()
    for name in columns:
        schema.add(name, TYPES[name] if name != "value" or value is None else value.schema)
    return schema


class OttlaDataSource(DataSource):
    """``format("ottla")``: topics as rows, and rows to topics, in the Kafka connector's columns."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format(...)``."""
        return "ottla"

    def schema(self) -> StructType:
        """Return the columns. Raises OptionError for any wrong option, before all else."""
        options = self._parsed(Use.BOTH)
        return schema_of(options.columns, options.value)

    def reader(self, schema: StructType) -> "OttlaReader":
        """Return the reader of one query. ``schema`` is ours; another one is refused."""
        options = self._parsed(Use.BATCH)
        check_schema(options, schema)
        return OttlaReader(options)

    def streamReader(self, schema: StructType) -> "OttlaStreamReader":  # noqa: N802 - Spark's name
        """Return the reader of one streaming query. ``schema`` as for ``reader``."""
        from ottla.spark.planning.stream import OttlaStreamReader

        options = self._parsed(Use.STREAM)
        check_schema(options, schema)
        return OttlaStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of one job. Raises OptionError, ColumnError; a topic only grows."""
        from ottla.spark.connection import OptionError
        from ottla.spark.writing.sink import OttlaWriter, sink

        if overwrite:
            message = "a topic cannot be overwritten: use .mode('append')"
            raise OptionError(message)
        return OttlaWriter(sink(self.options, schema))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # output mode complete: each batch's whole result is appended
    ) -> DataSourceStreamWriter:
        """Return the writer of one micro-batch. Raises OptionError, ColumnError."""
        from ottla.spark.writing.sink import OttlaStreamWriter, sink

        return OttlaStreamWriter(sink(self.options, schema))

    def _parsed(self, use: Use) -> "SourceOptions":
        from ottla.spark.options import parse_options

        return parse_options(self.options, use)


def check_schema(options: "SourceOptions", schema: StructType) -> None:
    """Refuse a schema of the user's own. Raises OptionError."""
    from ottla.spark.connection import OptionError

    own = schema_of(options.columns, options.value)
    if schema != own:
        message = f"format 'ottla' has its own columns ({own.simpleString()}): leave out .schema()"
        raise OptionError(message)


class FilterTaker:
    """``pushFilters`` of a reader: notes the filters, and leaves every one to Spark as well.

    Where ``spark.sql.python.filterPushdown.enabled`` is off, Spark refuses readers that have a
    ``pushFilters`` of their own, lest filters that were meant to be applied are not. Nothing here
    depends on being asked, so this passes for the inherited one.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, taken: list[Filter]) -> None:
        self._taken = taken

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Note ``filters``; return those that Spark has to apply, which are all."""
        self._taken[:] = filters
        return filters


class OttlaReader(DataSourceReader):
    """Plans on the driver, reads on the executors; travels there by pickle."""

    def __init__(self, options: "SourceOptions") -> None:
        self._options = options
        self._filters: list[Filter] = []
        self.pushFilters = FilterTaker(self._filters)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        """Return one input partition for each range that holds records. Asks the cluster."""
        from ottla.spark.planning.plan import plan

        return [InputPartition(wanted) for wanted in plan(self._options, self._filters)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one range. Spark gives None when there is nothing to read at all."""
        from ottla.spark.reading.read import read_range

        if partition.value is None:
            return iter(())
        return read_range(self._options, partition.value)
