"""What the rows of a task hold, as a count and a sum that tell them from other rows.

The executor's side, beside ``write``. Only what the user gave counts: the time of writing, the
partition that a row without key got and the division into batches differ from run to run.
"""

from array import array

import pyarrow as pa

from ottla.records.columnar.row_sums import add_headers, add_numbers, add_octets, total
from ottla.spark.writing.identity import Content
from ottla.spark.writing.rows import Rows, header_buffers, numbers, octets

SUMS = 1 << 64
VALUE, KEY, TOPIC, PARTITION, TIMESTAMP, HEADERS = range(1, 7)


class ContentSum:
    """Counts rows and adds their checksums up."""

    def __init__(self) -> None:
        self._rows = 0
        self._sum = 0

    @property
    def content(self) -> Content:
        """What was added so far."""
        return Content(self._rows, self._sum)

    def add(self, rows: Rows) -> None:
        """Count these rows. A column that is not there is as one of nulls."""
        count = len(rows.value)
        sums = array("Q", bytes(8 * count))
        add_octets(sums, octets(rows.value), VALUE)
        if rows.key is not None:
            add_octets(sums, octets(rows.key), KEY)
        if rows.topic is not None:
            add_octets(sums, octets(rows.topic), TOPIC)
        if rows.partition is not None:
            add_numbers(sums, numbers(rows.partition.cast(pa.int64()), "q"), PARTITION)
        if rows.timestamp is not None:
            add_numbers(sums, numbers(rows.timestamp, "q"), TIMESTAMP)
        if rows.headers is not None:
            add_headers(sums, header_buffers(rows.headers), HEADERS)
        self._rows += count
        self._sum = (self._sum + total(sums)) % SUMS
