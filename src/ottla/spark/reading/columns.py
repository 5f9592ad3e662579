"""Fetched batches to Arrow, in the columns of the Kafka connector. The one place that knows both.

The executor's side, between the bytes of a fetch and Spark. ``records.columnar.decoder`` fills
buffers, here they become Arrow's without a copy. Knows no network. The columns are those of
``option_table``, exactly as Spark's reader demands them:

    timestamp        null when 64 bits of microseconds cannot say it
    timestampType    0 CreateTime, 1 LogAppendTime, -1 none
    headers          null when a record has none
"""

from collections.abc import Iterator, Sequence
from struct import pack
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.records.columnar import scope as fields
from ottla.records.columnar.buffers import BytesColumn, Columns, HeadersColumn
from ottla.records.columnar.decoder import TARGET_BYTES, ColumnDecoder
from ottla.spark.offsets import OffsetRange
from ottla.spark.option_table import COLUMN_TYPES, HEADER_TYPES, HEADERS
from ottla.spark.reading.decompression import Decompressor

if TYPE_CHECKING:
    from ottla.spark.values.avro_values import AvroValues
    from ottla.spark.values.json_values import JsonValues
    from ottla.spark.values.registry_values import RegistryValues
    from ottla.spark.values.value_options import ValueOptions

_TYPES_OF_WORDS = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
HEADER = pa.struct([(name, _TYPES_OF_WORDS[word]) for name, word in HEADER_TYPES.items()])
TYPES = {name: _TYPES_OF_WORDS[word] for name, word in COLUMN_TYPES.items()}
TYPES[HEADERS] = pa.list_(HEADER)
"""Every column there is; all but the last are those of a query that does not ask for headers."""
_FLAGS = {
    "key": fields.KEY,
    "value": fields.VALUE,
    "offset": fields.OFFSET,
    "timestamp": fields.TIMESTAMP,
    "timestampType": fields.TIMESTAMP_TYPE,
    "headers": fields.HEADERS,
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns, in their order. Raises KeyError for another name."""
    return pa.schema([(name, TYPES[name]) for name in columns])


class ArrowDecoder:
    """Makes Arrow batches of fetched ones, with ``columns`` only (one at least), in their order.

    ``value`` says what becomes of that column; None: it stays binary.

    Rows of one partition gather until there are a few MiB of them: call ``rest`` before another
    partition, and at the end. Batches that somebody keeps stay as they are; the memory of those
    that nobody keeps is used again.
    """

    def __init__(
        self,
        columns: Sequence[str],
        value: "ValueOptions | None" = None,
        *,
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self.schema = arrow_schema(columns)
        wanted = sum(_FLAGS.get(name, 0) for name in set(columns))
        self._values = None if value is None or "value" not in columns else _values(value)
        if self._values is not None:
            at = self.schema.get_field_index("value")
            self.schema = self.schema.set(at, pa.field("value", self._values.type))
            wanted |= fields.OFFSET  # to say where a malformed value is
        self._decoder = ColumnDecoder(wanted, target_bytes=target_bytes, decompress=Decompressor())
        self._columns = tuple(columns)
        self._topic = ""
        self._topics: pa.Array = pa.nulls(0)
        self._partition = -1
        self._partitions: pa.Array = pa.nulls(0)

    @property
    def next_offset(self) -> int:
        """Where to read on: behind the last batch decoded, or the start where there was none."""
        return self._decoder.next_offset

    @property
    def has_grown(self) -> bool:
        """Whether a record was larger than the buffers, so that these are larger now."""
        return self._decoder.has_grown

    def decode(
        self,
        records: memoryview,
        wanted: OffsetRange,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``wanted`` in ``records``, as far as they fill batches. Exhaust it.

        ``records`` are whole batches, perhaps the last cut short, perhaps with records before and
        after ``wanted``. ``aborted``: (producer id, first offset) of the transactions to leave
        out. Markers are no rows. Raises KafkaError as ``ColumnDecoder.decode``.
        """
        self._set_partition(wanted)
        for filled in self._decoder.decode(records, wanted.start, wanted.end, aborted):
            yield self._wrap(filled)

    def rest(self) -> pa.RecordBatch | None:
        """Return the rows that gathered since the last batch; None without any."""
        filled = self._decoder.rest()
        return None if filled is None else self._wrap(filled)

    def _set_partition(self, wanted: OffsetRange) -> None:
        if (self._topic, self._partition) != (wanted.topic, wanted.partition):
            self._topic, self._partition = wanted.topic, wanted.partition
            self._topics = self._partitions = pa.nulls(0)

    def _wrap(self, filled: Columns) -> pa.RecordBatch:
        arrays = [self._array(name, filled) for name in self._columns]
        if self._values is None:
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        at = self._columns.index("value")
        where = f"{self._topic}-{self._partition}"
        arrays[at], stays = self._values.decode(arrays[at], filled.offset, where)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return batch if stays is None else batch.filter(stays)

    def _array(self, name: str, filled: Columns) -> pa.Array:
        rows = filled.rows
        match name:
            case "key":
                return _bytes_array(TYPES[name], rows, filled.key)
            case "value":
                return _bytes_array(TYPES[name], rows, filled.value)
            case "topic":
                if len(self._topics) < rows:
                    self._topics = pa.repeat(_text(self._topic), rows)
                return self._topics.slice(0, rows)
            case "partition":
                if len(self._partitions) < rows:
                    self._partitions = pa.repeat(_number(self._partition), rows)
                return self._partitions.slice(0, rows)
            case "offset":
                return _number_array(TYPES[name], rows, filled.offset)
            case "timestamp":
                numbers, bits = filled.timestamp, filled.timestamp_bits
                return _number_array(TYPES[name], rows, numbers, bits, filled.timestamp_nulls)
            case "timestampType":
                return _number_array(TYPES[name], rows, filled.timestamp_type)
            case _:
                assert filled.headers is not None, "the decoder was made to read headers"
                return _headers_array(rows, filled.headers)


def _values(options: "ValueOptions") -> "JsonValues | AvroValues | RegistryValues":
    from ottla.spark.values.value_options import JsonOptions

    if isinstance(options, JsonOptions):
        from ottla.spark.values.json_values import (
            JsonValues,  # which imports more than a task needs otherwise
        )

        return JsonValues(options)
    if options.registry:
        from ottla.spark.values.registry_values import RegistryValues

        return RegistryValues(options)
    from ottla.spark.values.avro_values import AvroValues

    return AvroValues(options)


# ``pa.scalar`` would do, and import pandas: a third of a CPU second in every worker.
def _text(value: str) -> pa.Scalar:
    data = value.encode()
    buffers = [None, pa.py_buffer(pack("=ii", 0, len(data))), pa.py_buffer(data)]
    return pa.Array.from_buffers(TYPES["topic"], 1, buffers)[0]


def _number(value: int) -> pa.Scalar:
    buffers = [None, pa.py_buffer(pack("=i", value))]
    return pa.Array.from_buffers(TYPES["partition"], 1, buffers)[0]


def _number_array(
    kind: pa.DataType,
    rows: int,
    numbers: memoryview,
    bits: memoryview | None = None,
    nulls: int = 0,
) -> pa.Array:
    validity = None if bits is None else pa.py_buffer(bits)
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(numbers)], nulls)


def _bytes_array(kind: pa.DataType, rows: int, column: BytesColumn) -> pa.Array:
    bits = None if column.bits is None else pa.py_buffer(column.bits)
    buffers = [bits, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)


def _headers_array(rows: int, headers: HeadersColumn) -> pa.Array:
    names = _bytes_array(pa.binary(), headers.total, headers.names)
    # Kafka's are Java strings: bytes that are no UTF-8 become U+FFFD there, too.
    names = (
        names.cast(pa.string())
        if headers.names_plain
        else pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    )
    contents = _bytes_array(pa.binary(), headers.total, headers.contents)
    each = pa.Array.from_buffers(HEADER, headers.total, [None], 0, children=[names, contents])
    bits = None if headers.bits is None else pa.py_buffer(headers.bits)
    buffers = [bits, pa.py_buffer(headers.ends)]
    return pa.Array.from_buffers(TYPES["headers"], rows, buffers, headers.nulls, children=[each])
