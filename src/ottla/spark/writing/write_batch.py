"""``ottla.spark.write_batch``: one line in ``foreachBatch`` that writes exactly once.

The driver's side, wherever the function runs: in the driver of a classic session, in a thread that
the user started there, on the server of Spark Connect. The batch is named by what the function is
given, not by what Spark tells tasks, which it does in the first case only.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.spark.option_table import BOOTSTRAP
from ottla.spark.writing.planned import planned
from ottla.spark.writing.sink_options import (
    APP_ID,
    DELIVERY,
    PLANNED_AT,
    TOPIC,
    VERSION,
    Delivery,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASTS = {
    "value": "binary",
    "key": "binary",
    "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
}
"""The columns that are written, and the types in which frames agree."""
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""What Spark sets in the thread that a query's function runs in."""


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
    frame = rows if not isinstance(rows, Mapping) else _together(rows)
    _make_active(frame.sparkSession)
    given = {
        **(options or {}),
        BOOTSTRAP: bootstrap,
        DELIVERY: Delivery.EXACTLY_ONCE.value,
        APP_ID: name,
        VERSION: str(batch_id),
    }
    at_ms = _planned_at_ms(frame.sparkSession, batch_id)
    if at_ms is not None:
        given.setdefault(PLANNED_AT, str(at_ms))
    if topic is not None:
        if isinstance(rows, Mapping):
            message = "frames by topic say the topics: leave out topic="
            raise BatchError(message)
        given[TOPIC] = topic
    frame.write.format("ottla").mode("append").options(**given).save()


def _together(frames: "Mapping[str, DataFrame]") -> "DataFrame":
    """Return the rows of all frames, each with its topic."""
    from pyspark.sql import functions as f

    if not frames:
        message = "no frames: give at least one topic"
        raise BatchError(message)
    parts = []
    for topic, frame in frames.items():
        there = {each.lower(): each for each in frame.columns}
        columns = [
            f.col(f"`{there[column]}`").cast(kind).alias(column)
            for column, kind in CASTS.items()
            if column in there
        ]
        parts.append(frame.select(f.lit(topic).alias("topic"), *columns))
    first, *others = parts
    for each in others:
        first = first.unionByName(each, allowMissingColumns=True)
    return first


def _planned_at_ms(spark: "SparkSession", batch_id: int) -> int | None:
    """Return when the micro-batch of this thread's query was planned; None: nobody says.

    A batch that was planned long ago and has no marker may have lost it. Known in the function's
    own thread of a classic session, with a checkpoint on a file system of this machine.
    """
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is None:
        return None
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    context, java = spark.sparkContext, spark._jvm  # noqa: SLF001
    query_id = context.getLocalProperty(QUERY_ID)
    if java is None or not query_id or context.getLocalProperty(BATCH_ID) != str(batch_id):
        return None
    try:
        active = java_session.sharedState().activeStreamingQueries()
        query = active.get(java.java.util.UUID.fromString(query_id))
        checkpoint = None if query is None else str(query.resolvedCheckpointRoot())
    except Py4JError:  # another Spark, or one that lets nobody ask
        return None
    plan = planned(checkpoint, batch_id)
    return None if plan is None else plan.at_ms


def _make_active(spark: "SparkSession") -> None:
    """Let this thread find the session's sources: Spark looks for those of the active session."""
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is not None:  # a classic one; over Connect there is nothing to do
        java_class = spark._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
        java_class.setActiveSession(java_session)
