"""A streaming query that is started again when something killed it: ``ottla.spark.keep_running``.

Spark ends a query when one of the Python processes that plan it is killed (the system was short of
memory, an operator was quick), when a task has failed too often, or when the cluster was away for
longer than the query waits; its checkpoint lets the next start go on. What a person has to decide
(an option, data that is lost, a batch of which nobody knows whether it was written) ends it for
good. The driver's own Python, beside the query. Blocks.
"""

import logging
import re
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.env.blocking import BlockingClock

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOG = logging.getLogger("ottla.spark")
FOR_A_PERSON = re.compile(
    r"\b(?:OptionError|ColumnError|RowError|DeliveryError|MalformedValue|"
    r"TopicRecreated|DataAgedOut|LogRewound|PartitionGone|"
    r"[A-Z]+_AUTHORIZATION_FAILED|SASL_AUTHENTICATION_FAILED|"
    r"STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY)\b"  # see docs/spark.md, Streams
)
KILLED = re.compile(
    r"EOFException|crashed|exited unexpectedly|Broken pipe|Connection reset|"
    r"terminated with exception:\s+SQLSTATE"  # all that Spark 4.3 says of a planner
)
PAUSE_SECONDS_MAX = 60.0


def keep_running(
    start: "Callable[[], StreamingQuery]",
    *,
    restarts_max: int = 10,
    within_seconds: float = 3600.0,
    pause_seconds: float = 1.0,
    clock: BlockingClock | None = None,
) -> None:
    """Call ``start``, wait for the query's end, and start it again when that was an accident.

    ``start`` starts one query with a checkpoint and returns it. Returns when the query was stopped
    or has read all it was to read. Raises its error when that is for a person to judge, or after
    ``restarts_max`` restarts ``within_seconds``. Between two starts it waits ``pause_seconds``, and
    twice as long each time, up to a minute, until the query has run that long again.
    """
    from pyspark.errors import PySparkException

    clock = clock or BlockingClock()
    restarts: deque[float] = deque()
    pause = pause_seconds
    while True:
        begun = clock.monotonic()
        try:
            start().awaitTermination()
        except PySparkException as error:
            now = clock.monotonic()
            while restarts and now - restarts[0] > within_seconds:
                restarts.popleft()
            if FOR_A_PERSON.search(str(error)) or len(restarts) >= restarts_max:
                raise
            if now - begun > PAUSE_SECONDS_MAX:
                pause = pause_seconds
            restarts.append(now)
            LOG.warning("the query is started again in %g s: %s", pause, cause(error))
        else:
            return
        clock.sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)


def cause(error: Exception) -> str:
    """Return in one line what ended a query, as far as Spark says it."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("ottla.")]
    if ours:
        return ours[-1]
    if KILLED.search(text):
        return (
            "a Python process of Spark's has ended without a word: it was killed, by the system "
            f"for want of memory perhaps ({lines[0] if lines else type(error).__name__})"
        )
    return lines[0] if lines else type(error).__name__
