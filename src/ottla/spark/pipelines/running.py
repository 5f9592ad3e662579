"""One run of a pipeline: started in Spark, followed to its end, told as events.

Between ``ottla pipeline`` and the Connect server. Owns what Spark's messages mean; progress of each
micro-batch comes from a listener. A run is Spark's triggered one: it takes what there is and ends.
Imports pyspark where it is used.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.spark.pipelines.failing import RunFailed, explain, with_places
from ottla.spark.progress import lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.recording import Defined

_FLOW = re.compile(r"Flow '?(?P<flow>[^\s']+)'? (?:is|has) (?P<state>[A-Z]+)")
_RUN = re.compile(r"Run (?:is|has) (?P<state>[A-Z]+)")


class Event(NamedTuple):
    """Something that happened to a flow, or to the run (``flow`` is empty then)."""

    time_ms: int
    flow: str
    state: str
    """Spark's word: QUEUED, RUNNING, COMPLETED, FAILED ...; empty for other messages."""
    message: str


class Progress(NamedTuple):
    """One micro-batch of a flow."""

    flow: str
    batch: int
    rows: int
    rows_per_second: float
    lag: int | None
    """Records that are there and were not read yet; None where the source does not tell."""
    state_rows: int
    state_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a run makes anew. Empty: it goes on with everything."""

    only: tuple[str, ...] = ()
    """These data sets only, going on."""
    full: tuple[str, ...] = ()
    """These from the beginning: what they hold is thrown away."""
    everything: bool = False


def follow(
    spark: "SparkSession", defined: "Defined", storage: str, *, refresh: Refresh, dry: bool
) -> Iterator[Event]:
    """Start a run and yield its events to its end. ``dry``: only check the graph.

    Raises RunFailed, with where what it names is defined.
    """
    from pyspark.errors import PySparkException
    from pyspark.pipelines.spark_connect_pipeline import start_run

    failures: list[str] = []
    try:
        for result in start_run(
            spark,
            defined.graph_id,
            full_refresh=list(refresh.full),
            full_refresh_all=refresh.everything,
            refresh=list(refresh.only),
            dry=dry,
            storage=storage,
        ):
            if "pipeline_event_result" not in result:
                continue
            raw = result["pipeline_event_result"].event
            event = read_event(raw.message, raw.timestamp.ToMilliseconds())
            if event.state in {"FAILED", ""}:
                failures.append(event.message)
            yield event
    except PySparkException as error:
        raise RunFailed(with_places(explain(error, failures), defined.graph)) from error


def read_event(message: str, time_ms: int) -> Event:
    """Return the event that a message of Spark's tells."""
    found = _FLOW.search(message)
    if found:
        flow = found["flow"].rstrip(".").rpartition(".")[2]
        return Event(time_ms, flow, found["state"], message.strip())
    found = _RUN.search(message)
    return Event(time_ms, "", found["state"] if found else "", message.strip())


def watch(spark: "SparkSession", tell: Callable[[Progress], None]) -> Callable[[], None]:
    """Call ``tell`` for each micro-batch of the session, from another thread.

    Returns what ends that.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: ANN401, N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: ANN401, N802
            tell(read_progress(json.loads(event.progress.json)))

        def onQueryIdle(self, event: Any) -> None:  # noqa: ANN401, N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: ANN401, N802
            pass

    listener = Listener()
    spark.streams.addListener(listener)
    return lambda: spark.streams.removeListener(listener)


def read_progress(value: Any) -> Progress:  # noqa: ANN401 - JSON
    """Return what Spark's JSON of a micro-batch tells."""
    behind = lag(value)
    states = value.get("stateOperators", ())
    return Progress(
        flow=str(value.get("name") or value.get("id", "")).rpartition(".")[2],
        batch=int(value.get("batchId", -1)),
        rows=int(value.get("numInputRows") or 0),
        rows_per_second=float(value.get("processedRowsPerSecond") or 0),
        lag=sum(behind.values()) if behind else None,
        state_rows=sum(int(each.get("numRowsTotal", 0)) for each in states),
        state_bytes=sum(int(each.get("memoryUsedBytes", 0)) for each in states),
        seconds=int(value.get("batchDuration") or 0) / 1000,
    )
