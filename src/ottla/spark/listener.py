"""A listener that tells how far streaming queries are behind their topics.

Runs in the driver's own Python, beside the queries: ``progress`` makes the figures.
"""

import logging
from collections.abc import Callable, Mapping

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.ids import TopicPartition
from ottla.spark.progress import lag

LOG = logging.getLogger("ottla.spark")


class ProgressListener(StreamingQueryListener):
    """Reports each micro-batch's lag: ``spark.streams.addListener(ProgressListener())``."""

    def __init__(
        self, report: Callable[[str, Mapping[TopicPartition, int]], object] | None = None
    ) -> None:
        """``report`` is called with the query's name (or id) and its lag; None: it is logged."""
        self._report = report or _log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Report nothing yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report what a micro-batch left to read."""
        progress = event.progress
        behind = lag(progress)
        if behind:
            self._report(progress.name or str(progress.id), behind)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Report nothing: nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Report nothing more."""


def _log(name: str, behind: Mapping[TopicPartition, int]) -> None:
    each = ", ".join(f"{partition} {count}" for partition, count in behind.items())
    LOG.info("query %s is %d offsets behind (%s)", name, sum(behind.values()), each)
