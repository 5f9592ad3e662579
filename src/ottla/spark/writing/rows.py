"""The columns of the sink, found in an Arrow batch, checked and brought to one form each.

The executor's side, first thing on the way of rows to record batches (``write``). The columns are
those of Spark's Kafka connector, and ``timestamp``; others are left alone, so that what was read
from a topic can be written as it is:

    key        binary or string
    value      binary or string        must be there; null is a tombstone
    topic      string                  needed without the option ``topic``
    partition  int                     null, or no such column: by the key, else by turns
    headers    list<struct<key string, value binary>>
    timestamp  timestamp               null, or no such column: the time of writing
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import pyarrow as pa

from ottla.errors import OttlaError
from ottla.records.columnar.layout import Headers, Numbers, Octets
from ottla.records.columnar.writer import ColumnWriter

_Test = Callable[[pa.DataType], bool]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class RowError(OttlaError, ValueError):
    """Rows that cannot be written: a column is missing or of the wrong type, or one row is."""


class Rows(NamedTuple):
    """The columns of one batch; None: there is no such column."""

    value: pa.Array
    """Binary, as is ``key``."""
    key: pa.Array | None
    topic: pa.Array | None
    """String; None also when the option says the topic."""
    partition: pa.Array | None
    """int32."""
    headers: pa.Array | None
    timestamp: pa.Array | None
    """Microseconds since 1970, int64."""

    def take(self, indices: pa.Array) -> "Rows":
        """Return the rows with these numbers."""
        return Rows(*(None if column is None else column.take(indices) for column in self))

    def column_writer(self, now_ms: int) -> ColumnWriter:
        """Return the kernel's view of these rows; ``now_ms`` is the time of those without one."""
        return ColumnWriter(
            len(self.value),
            now_ms=now_ms,
            value=octets(self.value),
            key=None if self.key is None else octets(self.key),
            headers=None if self.headers is None else header_buffers(self.headers),
            timestamp=None if self.timestamp is None else numbers(self.timestamp, "q"),
        )

    def partitions(self) -> Numbers | None:
        """Return the kernel's view of the column partition."""
        return None if self.partition is None else numbers(self.partition, "i")


def find_rows(batch: pa.RecordBatch, *, topic_given: bool, timestamp_ignored: bool = False) -> Rows:
    """Return the columns of ``batch``. Raises RowError, naming the column and its possible types.

    ``topic_given``: the option says where all rows go, and a column ``topic`` is left alone.
    ``timestamp_ignored``: so is a column ``timestamp``.
    """
    columns = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}
    if timestamp_ignored:
        columns.pop("timestamp", None)
    if "value" not in columns:
        names = ", ".join(batch.schema.names)
        raise RowError(f"the column value is missing; there are {names}")
    topic = None if topic_given else columns.get("topic")
    if topic is None and not topic_given:
        raise RowError("no topic: give the option topic, or a column topic")
    if topic is not None and not pa.types.is_string(topic.type):
        topic = _cast("topic", topic, pa.string(), "string", _is_text)
    rows = Rows(
        value=_binary("value", columns["value"]),
        key=_binary("key", columns["key"]) if "key" in columns else None,
        topic=topic,
        partition=_partition(columns["partition"]) if "partition" in columns else None,
        headers=_headers(columns["headers"]) if "headers" in columns else None,
        timestamp=_timestamp(columns["timestamp"]) if "timestamp" in columns else None,
    )
    if topic is not None and topic.null_count:
        raise RowError("a row has a null in the column topic: give the option topic, or a name")
    return rows


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_octets(kind: pa.DataType) -> bool:
    types = pa.types
    return (
        _is_text(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _binary(name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return _cast(name, column, pa.binary(), "binary or string", _is_octets)


def _cast(
    name: str, column: pa.Array, kind: pa.DataType, words: str, fits: _Test | None
) -> pa.Array:
    found = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_null(found) or (fits is not None and fits(found))):
        raise RowError(f"the column {name} must be {words}, it is {found}")
    return column.cast(kind)


def _partition(column: pa.Array) -> pa.Array:
    if pa.types.is_int32(column.type):
        return column
    if pa.types.is_int8(column.type) or pa.types.is_int16(column.type):
        return column.cast(pa.int32())
    return _cast("partition", column, pa.int32(), "int", None)


def _timestamp(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return _cast("timestamp", column, pa.int64(), "timestamp", None)
    if column.type.unit != "us":
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    return column.view(pa.int64())


def _headers(column: pa.Array) -> pa.Array:
    found = column.type
    if found == HEADERS:
        return column
    words = "list<struct<key string, value binary>>"
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
    is_pairs = is_list and pa.types.is_struct(found.value_type)
    names = [found.value_type.field(i).name for i in range(2)] if is_pairs else []
    if not pa.types.is_null(found) and (
        names != ["key", "value"] or found.value_type.num_fields != 2
    ):
        raise RowError(f"the column headers must be {words}, it is {found}")
    try:
        return column.cast(HEADERS)
    except pa.ArrowException as error:
        raise RowError(f"the column headers must be {words}, it is {found}") from error


def octets(column: pa.Array) -> Octets:
    """Return the kernels' view of a column of binary or string."""
    validity, offsets, data = column.buffers()
    return Octets(
        _slice(offsets, column.offset, len(column) + 1, "i"),
        b"" if data is None else memoryview(data).cast("B"),
        _validity(column, validity),
        column.offset,
    )


def numbers(column: pa.Array, kind: Literal["i", "q"]) -> Numbers:
    """Return the kernels' view of a column of int32 or int64."""
    validity, values = column.buffers()
    return Numbers(
        _slice(values, column.offset, len(column), kind),
        _validity(column, validity),
        column.offset,
    )


def header_buffers(column: pa.Array) -> Headers:
    """Return the kernels' view of the column headers. Raises RowError for a header of null."""
    validity, offsets = column.buffers()[:2]
    pairs = column.values
    names, values = pairs.field(0), pairs.field(1)
    if pairs.null_count or names.null_count:
        raise RowError("a row has a header that is null, or whose key is null")
    return Headers(
        _slice(offsets, column.offset, len(column) + 1, "i"),
        octets(names),
        octets(values),
        _validity(column, validity),
        column.offset,
    )


def _validity(column: pa.Array, validity: pa.Buffer | None) -> memoryview | None:
    return memoryview(validity).cast("B") if validity is not None and column.null_count else None


def _slice(buffer: pa.Buffer | None, start: int, count: int, kind: Literal["i", "q"]) -> memoryview:
    """Return numbers of an Arrow buffer; an empty array may have none."""
    if buffer is None:
        return memoryview(bytes(8 * count)).cast("B").cast(kind)[:count]
    size = 4 if kind == "i" else 8
    octets: memoryview = memoryview(buffer).cast("B")
    return octets[start * size : (start + count) * size].cast(kind)
