"""``ottla.spark.write_batch``: one line in ``foreachBatch`` that writes exactly once.

The driver's side, wherever the function runs: in the driver of a classic session, in a thread that
the user started there, on the server of Spark Connect. The batch is named by what the function is
given, not by what Spark tells tasks, which it does in the first case only.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.spark.active import make_active
from ottla.spark.option_table import BOOTSTRAP, options_of
from ottla.spark.writing.sink_options import (
    APP_ID,
    DELIVERY,
    IGNORE_TIMESTAMP,
    TOPIC,
    VERSION,
    Delivery,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CASTS = {
    "value": "binary",
    "key": "binary",
    "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
}
"""The columns that are written, and the types in which frames agree."""


class BatchError(OttlaError, ValueError):
    """What is to be written is no micro-batch's rows."""


def write_batch(
    rows: "DataFrame | Mapping[str, DataFrame]",
    batch_id: int,
    *,
    name: str,
    bootstrap: str,
    topic: str | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write one micro-batch in ``foreachBatch``, all of it exactly once or nothing. Blocks.

    ``rows`` is a frame, whose rows go to ``topic`` or (None) where its column ``topic`` says; or
    frames by the topics they go to: rejects may be among them, it is one transaction. A frame that
    is used in several of them is computed several times unless it is persisted.
    ``batch_id`` is what ``foreachBatch`` was given. ``name`` stands for the query and this sink: it
    stays the same at each start, no other query or sink has it, and a query that begins with a new
    checkpoint takes a new one. ``options`` are those of writing (``kafka.*`` ...).

    A batch that Spark repeats is found by name, number and rows, and left out. Raises what Spark
    raises for a failed write; its text says what to do.
    """
    ignores_timestamp = _check_options(options or {}, by_topic=isinstance(rows, Mapping))
    frame = rows if not isinstance(rows, Mapping) else _together(rows, ignores_timestamp)
    make_active(frame.sparkSession)
    given = {
        **(options or {}),
        BOOTSTRAP: bootstrap,
        DELIVERY: Delivery.EXACTLY_ONCE.value,
        APP_ID: name,
        VERSION: str(batch_id),
    }
    if topic is not None:
        if isinstance(rows, Mapping):
            message = "frames by topic say the topics: leave out topic="
            raise BatchError(message)
        given[TOPIC] = topic
    frame.write.format("ottla").mode("append").options(**given).save()


def _check_options(options: Mapping[str, str], *, by_topic: bool) -> bool:
    """Return whether they say to leave the column timestamp alone.

    Raises BatchError for one that the arguments say already: which of the two counts?
    """
    said = {APP_ID, VERSION, DELIVERY} | ({TOPIC} if by_topic else set())
    values = options_of(options)
    for name in sorted(said):
        if name.lower() in values:
            message = f"options: {name} is said by the arguments of write_batch: leave it out"
            raise BatchError(message)
    return values.get(IGNORE_TIMESTAMP.lower(), "").strip().lower() == "true"


def _together(frames: "Mapping[str, DataFrame]", ignores_timestamp: bool) -> "DataFrame":
    """Return the rows of all frames, each with its topic.

    Raises ColumnError for a frame that could not be written alone: among others, a value that is
    missing would be null, and null is a tombstone.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import TimestampType

    from ottla.spark.writing.sink import check_columns

    if not frames:
        message = "no frames: give at least one topic"
        raise BatchError(message)
    parts = []
    for topic, frame in frames.items():
        check_columns(frame.schema, topic_given=True, timestamp_ignored=ignores_timestamp)
        there = {each.lower(): each for each in frame.columns}
        columns = [
            # The word "timestamp" means another type where the session says so.
            f.col(f"`{there[column]}`")
            .cast(TimestampType() if kind == "timestamp" else kind)
            .alias(column)
            for column, kind in CASTS.items()
            if column in there and not (ignores_timestamp and column == "timestamp")
        ]
        parts.append(frame.select(f.lit(topic).alias("topic"), *columns))
    first, *others = parts
    for each in others:
        first = first.unionByName(each, allowMissingColumns=True)
    return first
