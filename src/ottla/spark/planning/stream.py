"""What Spark calls in a streaming query: offsets as JSON, micro-batches, triggers.

The planner's side, in one long-lived process of the driver; ``read`` runs in the executors with a
copy that was pickled. What is decided is decided by ``tracker``. Source: Spark's Python Data
Source API, with admission control as it is since 4.2.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.spark.connection import OptionError
from ottla.spark.options import SourceOptions
from ottla.spark.planning.admission import EVERYTHING, Limits
from ottla.spark.planning.split import tasks_of
from ottla.spark.planning.tracker import StreamTracker
from ottla.spark.positions import Json, Positions, read_positions
from ottla.spark.shipped import Shipped
from ottla.spark.telling import telling, telling_each

if TYPE_CHECKING:
    import pyarrow as pa


class OttlaStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._made: StreamTracker | None = None

    @property
    def _tracker(self) -> StreamTracker:
        """The tracker, made when it is first asked: never in an executor."""
        if self._made is None:
            self._made = StreamTracker(self._options)
        return self._made

    @telling
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name, as are those below
        """Return where a query without a checkpoint begins."""
        return self._tracker.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options; Spark hands it back to ``latestOffset``.

        Spark has no limit that is both lower and upper: the other half is added there.
        """
        trigger = self._options.trigger
        if trigger.max_offsets is not None:
            return ReadMaxRows(trigger.max_offsets)
        if trigger.min_offsets is not None:
            return ReadMinRows(trigger.min_offsets)
        return ReadAllAvailable()

    @telling
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Return where the next micro-batch ends; ``start`` as it is when there is nothing."""
        begun = _read(start)
        end = self._tracker.latest(begun, self._limits(limit))
        return start if end is begun else end.to_json()

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return EVERYTHING
        trigger = self._options.trigger
        return Limits(
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            limit.min_rows if isinstance(limit, ReadMinRows) else trigger.min_offsets,
        )

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Return the ends of the logs when they were looked at last, for the query's progress."""
        newest = self._tracker.newest
        return None if newest is None else newest.to_json()

    @telling
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what there is now: the query reads that and ends."""
        self._tracker.hold_end()

    @telling
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return one input partition for each task: for each range that holds records, mostly."""
        goal = _read(end)
        wanted = self._tracker.plan(_read(start), goal)
        tasks = tasks_of(wanted, self._options, least=goal.shared)
        return [InputPartition(each) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one task's ranges, in an executor."""
        from ottla.spark.garbage import set_aside
        from ottla.spark.reading.read import read_ranges

        yield from telling_each(read_ranges(self._options, partition.value))
        set_aside("read")

    @telling
    def commit(self, end: Json) -> None:
        """Publish that everything before ``end`` is done; ``latestOffset`` mostly did already."""
        there = self._tracker.newest
        if there is not None:
            offsets = _read(end).offsets
            self._tracker.publish({t: o for t, o in offsets.items() if t in there.offsets})

    def stop(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()


def _read(offset: Json) -> Positions:
    try:
        return read_positions(offset)
    except ValueError as error:
        message = f"the checkpoint's offsets cannot be read: {error}: {json.dumps(offset)}"
        raise OptionError(message) from error
