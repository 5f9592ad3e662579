"""What Spark calls: the data source ``ottla``, found by way of ``pyspark_ottla``.

Imported in every Python process that Spark starts to plan or read, so nothing here imports more
than pyspark's own interface; ``plan``, ``read`` and the others come in where they are used.
Source: Spark's Python Data Source API.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
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

from ottla.spark.option_table import (
    COLUMN_TYPES,
    COLUMNS,
    HEADER_TYPES,
    HEADERS,
    TABLE_MARK,
    Use,
    options_of,
)
from ottla.spark.shipped import Shipped
from ottla.spark.telling import telling, telling_each

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.options import SourceOptions
    from ottla.spark.planning.stream import OttlaStreamReader
    from ottla.spark.values.value_options import ValueOptions

STREAMS_SINCE = (4, 2)
"""The version of Spark with ``SupportsTriggerAvailableNow`` and read limits for Python."""
TABLE_OPTIONS = "ottla.options"
"""Metadata of the first column of a table that was made by ``CREATE TABLE ... USING ottla``."""
_TYPES_OF_WORDS: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
}
HEADER = StructType()
for _name, _word in HEADER_TYPES.items():
    HEADER.add(_name, _TYPES_OF_WORDS[_word])
TYPES: dict[str, DataType] = {name: _TYPES_OF_WORDS[word] for name, word in COLUMN_TYPES.items()}
TYPES[HEADERS] = ArrayType(HEADER)


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

    @telling
    def schema(self) -> StructType:
        """Return the columns. Raises OptionError for any wrong option, before all else."""
        options = self._parsed(Use.BOTH)
        own = schema_of(options.columns, options.value)
        if TABLE_MARK in self.options:
            # CREATE TABLE: this is the only thing that Spark keeps for those who read the table.
            own.fields[0].metadata = {TABLE_OPTIONS: json.dumps(options_of(self.options))}
        return own

    @telling
    def reader(self, schema: StructType) -> "OttlaReader":
        """Return the reader of one query. ``schema`` is ours; another one is refused."""
        return OttlaReader(made_for(schema, self._parsed(Use.BATCH, schema)))

    # Not ``telling``: an error here is followed by one of Spark's own in the worker, which has no
    # reader to stop, and that alone would be shown.
    def streamReader(self, schema: StructType) -> "OttlaStreamReader":  # noqa: N802 - Spark's name
        """Return the reader of one streaming query. ``schema`` as for ``reader``."""
        _require_streams()
        from ottla.spark.planning.stream import OttlaStreamReader

        return OttlaStreamReader(made_for(schema, self._parsed(Use.STREAM, schema)))

    @telling
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of one job. Raises OptionError, ColumnError; a topic only grows."""
        from ottla.spark.connection import OptionError
        from ottla.spark.writing.sink import OttlaWriter, sink

        if overwrite:
            message = "a topic cannot be overwritten: use .mode('append')"
            raise OptionError(message)
        return OttlaWriter(sink(self.options, schema))

    @telling
    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # output mode complete: each batch's whole result is appended
    ) -> DataSourceStreamWriter:
        """Return the writer of one micro-batch. Raises OptionError, ColumnError."""
        _require_streams()
        from ottla.spark.writing.sink import OttlaStreamWriter, sink

        return OttlaStreamWriter(sink(self.options, schema, is_stream=True))

    def _parsed(self, use: Use, schema: StructType | None = None) -> "SourceOptions":
        """Return the options; those of a table are in its schema, and those of a query win."""
        from ottla.spark.options import parse_options

        kept = {} if schema is None or not schema.fields else schema.fields[0].metadata or {}
        of_the_table = json.loads(kept.get(TABLE_OPTIONS, "{}"))
        return parse_options({**of_the_table, **options_of(self.options)}, use)


def _require_streams() -> None:
    """Raise OptionError where Spark is older than what streams are made of."""
    import pyspark

    from ottla.spark.connection import OptionError

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < STREAMS_SINCE:
        message = (
            f"streams of format 'ottla' need pyspark 4.2 or newer, this is {pyspark.__version__}"
        )
        raise OptionError(message)


def made_for(schema: StructType, options: "SourceOptions") -> "SourceOptions":
    """Return the options that give rows of ``schema``.

    They are others where a registry has a newer schema than when the frame was made: a frame keeps
    its columns. Raises OptionError for a schema of the user's own.
    """
    from ottla.spark.connection import OptionError
    from ottla.spark.values.value_options import AvroOptions

    own = schema_of(options.columns, options.value)
    if _bare(schema) == _bare(own):
        return options
    if isinstance(options.value, AvroOptions) and "value" in schema.names:
        wanted = schema["value"].dataType
        value = options.value.earlier(lambda kind: kind == wanted)
        if value is not None and _bare(schema) == _bare(schema_of(options.columns, value)):
            return replace(options, value=value)
    message = f"format 'ottla' has its own columns ({own.simpleString()}): leave out .schema()"
    raise OptionError(message)


def _bare(schema: StructType) -> list[tuple[str, DataType]]:
    return [(each.name, each.dataType) for each in schema.fields]


class OttlaReader(Shipped, DataSourceReader):
    """Plans on the driver, reads on the executors; travels there by pickle.

    It takes no filters (``pushFilters`` is the inherited one): Spark 4.2 and 4.3 keep one plan for
    a loaded relation, and a plan that was narrowed by one scan's filters is used by the others.
    """

    def __init__(self, options: "SourceOptions") -> None:
        self._options = options

    @telling
    def partitions(self) -> list[InputPartition]:
        """Return one input partition for each task. Asks the cluster."""
        from ottla.spark.planning.plan import plan
        from ottla.spark.planning.split import tasks_of

        wanted = plan(self._options)
        return [InputPartition(each) for each in tasks_of(wanted, self._options)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one task's ranges. Spark gives None where there is nothing to read."""
        from ottla.spark.garbage import set_aside
        from ottla.spark.reading.read import read_ranges

        if partition.value is None:
            return
        yield from telling_each(read_ranges(self._options, partition.value))
        set_aside("read")
