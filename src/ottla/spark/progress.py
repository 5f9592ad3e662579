"""How far a streaming query is behind its topics, from the progress that Spark reports.

Runs in the driver's own Python, beside the query. Spark gives Python sources no metrics of their
own; but a source's progress has the offset of the batch (``endOffset``) and the ends of the logs
(``latestOffset``) in the source's JSON, and their difference is what the Kafka connector
calls ``offsetsBehindLatest``.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.ids import TopicPartition
from ottla.spark.positions import MARKS, read_positions

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


class _Query(Protocol):
    """A ``StreamingQuery``, of Spark or of Spark Connect."""

    @property
    def lastProgress(self) -> Any: ...  # noqa: ANN401, N802 - Spark's own


def lag(query: "_Query | StreamingQueryProgress") -> dict[TopicPartition, int]:
    """Return how many offsets each partition is behind; nothing before the first micro-batch.

    ``query`` is a streaming query, or one progress of it. Sources of other formats are left out; of
    several that read one partition the slowest counts.
    """
    progress: Any = getattr(query, "lastProgress", query)
    behind: dict[TopicPartition, int] = {}
    for source in progress["sources"] if progress is not None else ():
        for each, count in _lag_of(_json(source["endOffset"]), _json(source["latestOffset"])):
            behind[each] = max(count, behind.get(each, 0))
    return behind


def _lag_of(
    end: Mapping[str, object], latest: Mapping[str, object]
) -> Iterable[tuple[TopicPartition, int]]:
    if MARKS not in latest:
        return []
    read = read_positions(end).offsets
    newest = read_positions(latest).offsets
    return [(each, max(at - read.get(each, 0), 0)) for each, at in sorted(newest.items())]


def _json(text: object) -> dict[str, object]:
    """Return an offset as an object; progress has it as text, as an object, or not at all."""
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except ValueError:
            return {}
    return dict(text) if isinstance(text, Mapping) else {}
