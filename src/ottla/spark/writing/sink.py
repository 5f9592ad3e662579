"""Writing as Spark calls it: columns checked, tasks, and the end of a batch on the driver.

Imported on the planner's side: the standard library, pyspark's interface and options only. Spark
makes a writer for each micro-batch and pickles it for the tasks; for ``commit`` it makes another,
so whatever the driver must know travels in the tasks' messages. Source: Spark's Python Data Source
API; the Kafka connector's columns and rules.
"""

import difflib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.errors import OttlaError
from ottla.spark.garbage import set_aside
from ottla.spark.shipped import Shipped
from ottla.spark.telling import telling
from ottla.spark.writing.messages import Staged
from ottla.spark.writing.sink_options import (
    TOPIC,
    SinkOptions,
    parse_sink_options,
    require_streams_own,
)
from ottla.spark.writing.staging_place import Stage
from ottla.spark.writing.staging_place import stage as find_stage

if TYPE_CHECKING:
    import pyarrow as pa

OCTETS = (BinaryType, StringType, NullType)
COLUMNS: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "value": ("binary or string", OCTETS),
    "key": ("binary or string", OCTETS),
    "topic": ("string", (StringType,)),
    "partition": ("int", (IntegerType, ShortType, ByteType, NullType)),
    "headers": ("array<struct<key:string,value:binary>>", (ArrayType, NullType)),
    "timestamp": ("timestamp", (TimestampType, NullType)),
}
OF_THE_SOURCE = ("offset", "timestamptype")
"""What reading adds and writing leaves alone."""


class ColumnError(OttlaError, ValueError):
    """A DataFrame's columns cannot be written."""


def check_columns(
    schema: StructType, *, topic_given: bool, timestamp_ignored: bool = False
) -> None:
    """Raise ColumnError unless rows of ``schema`` can be written.

    ``topic_given``, ``timestamp_ignored``: the options say it, whatever such a column is.

    Columns with other names are left alone, as the Kafka connector does, unless they look like one
    of ours with a slip of the pen.
    """
    types = {each.name.lower(): each.dataType for each in schema.fields}
    there = schema.simpleString()
    left_alone = {"topic"} if topic_given else set()
    left_alone |= {"timestamp"} if timestamp_ignored else set()
    _require_once(schema, set(COLUMNS) - left_alone)
    for name in types:
        near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.8)
        is_needless = topic_given and near == ["topic"]
        if is_needless or name in COLUMNS or name in OF_THE_SOURCE:
            continue
        if near and near[0] not in types:
            message = f"column {name!r}: did you mean {near[0]!r}? The columns are {there}"
            raise ColumnError(message)
    if "value" not in types:
        message = f"the column 'value' (binary or string) is missing; the columns are {there}"
        raise ColumnError(message)
    if not topic_given and "topic" not in types:
        message = f"no topic to write to: give the option {TOPIC}, or a column 'topic' (string)"
        raise ColumnError(message)
    for name, (words, fitting) in COLUMNS.items():
        found = types.get(name)
        if found is None or name in left_alone:
            continue
        if not isinstance(found, fitting) or (name == "headers" and not _are_headers(found)):
            message = f"column {name!r} is {words}, not {found.simpleString()}"
            raise ColumnError(message)


def _require_once(schema: StructType, names: Collection[str]) -> None:
    """Raise ColumnError for one of ``names`` that two columns have, in whatever case."""
    counts = Counter(each.name.lower() for each in schema.fields)
    for name in sorted(names):
        if counts[name] > 1:
            there = schema.simpleString()
            message = f"column {name!r} is there {counts[name]} times, in any case: {there}"
            raise ColumnError(message)


def _are_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType):
        return True  # nulls
    element = found.elementType
    return isinstance(element, StructType) and [
        (each.name.lower(), type(each.dataType)) for each in element.fields
    ] == [("key", StringType), ("value", BinaryType)]


def write_task(
    options: SinkOptions, stage: Stage | None, rows: Iterator["pa.RecordBatch"]
) -> WriterCommitMessage:
    """Write, or stage, the rows of one task."""
    from ottla.spark.writing.message_array import spare_pandas
    from ottla.spark.writing.sink_task import stage_rows, write_rows

    done = write_rows(options, rows) if stage is None else stage_rows(options, stage, rows)
    set_aside("write")
    spare_pandas()
    return done


def commit_batch(
    options: SinkOptions,
    stage: Stage | None,
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int | None = None,
) -> None:
    """End a batch whose tasks have all succeeded. At least once: there is nothing left to do."""
    if stage is not None:
        from ottla.spark.writing.delivery import deliver_staged

        staged = [each for each in messages if isinstance(each, Staged)]
        deliver_staged(options, staged, batch_id, stage.place)
        set_aside("commit")


def abort_batch(messages: Sequence[WriterCommitMessage | None]) -> None:
    """End a batch that failed: some of its tasks, or its commit."""
    staged = [each for each in messages if isinstance(each, Staged) and each.file is not None]
    if staged:
        from ottla.spark.writing.delivery import remove_staged

        remove_staged(staged)


def stage_of(options: SinkOptions) -> Stage | None:
    """Return where tasks stage; None: they write by themselves."""
    if not options.is_exactly_once:
        return None
    return find_stage(options.staging_location, options.checkpoint)


def sink(given: Mapping[str, str], schema: StructType, *, is_stream: bool = False) -> SinkOptions:
    """Return the options, for rows that can be written. Raises OptionError, ColumnError."""
    options = parse_sink_options(given)
    if is_stream:
        require_streams_own(options)
    check_columns(
        schema,
        topic_given=options.topic is not None,
        timestamp_ignored=options.write.ignores_timestamp,
    )
    set_aside("sink")
    return options


class _TaskWriter(Shipped):
    """What writes one task's rows, in a batch job as in a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._stage = stage_of(options)

    @telling
    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return write_task(self._options, self._stage, iterator)


class OttlaWriter(_TaskWriter, DataSourceArrowWriter):
    """``df.write.format("ottla")``."""

    @telling
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the job."""
        commit_batch(self._options, self._stage, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Clear up after a job that failed."""
        abort_batch(messages)


class OttlaStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """``df.writeStream.format("ottla")``; a writer is for one micro-batch."""

    @telling
    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """End the micro-batch."""
        commit_batch(self._options, self._stage, messages, batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's
    ) -> None:
        """Clear up after a micro-batch that failed."""
        abort_batch(messages)
