"""A data source that does nothing but yield: the most that Spark takes of any Python source."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

BATCH_BYTES = 4 << 20
TASKS = 2


class CeilingSource(DataSource):
    """``format("ceiling")`` with ``kind`` (bigint or binary), ``size`` of a value and ``total``."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format(...)``."""
        return "ceiling"

    def schema(self) -> str:
        """Return the one column."""
        return f"v {self.options['kind']}"

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader of one query."""
        return CeilingReader(dict(self.options.items()))


class CeilingReader(DataSourceReader):
    """Two tasks, each with half of the rows."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the two tasks."""
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the same batch until the rows are complete."""
        import pyarrow as pa

        size, left = int(self._options["size"]), int(self._options["total"]) // TASKS
        rows = BATCH_BYTES // size
        if self._options["kind"] == "bigint":
            values = pa.repeat(pa.scalar(7, pa.int64()), rows)
        else:
            values = pa.repeat(pa.scalar(b"x" * size, pa.binary()), rows)
        batch = pa.record_batch([values], names=["v"])
        while left > 0:
            yield batch.slice(0, min(rows, left))
            left -= rows
