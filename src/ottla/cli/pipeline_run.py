"""The runs of ``ottla pipeline run``: events and progress as lines, again and again with --every.

``pipeline`` declares the options. Each run is defined in Spark anew.
"""

import asyncio
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean
from ottla.cli.output import Format, Row, RowWriter, counted, note
from ottla.config.human import parse_duration_ms, size_text
from ottla.env.blocking import BlockingClock, new_lock
from ottla.env.clock import SystemClock

if TYPE_CHECKING:
    from ottla.spark.pipelines.asking import Asked
    from ottla.spark.pipelines.engine import Engine
    from ottla.spark.pipelines.graph import Graph
    from ottla.spark.pipelines.keeping import KeptTables
    from ottla.spark.pipelines.project import Project
    from ottla.spark.pipelines.recording import Defined
    from ottla.spark.pipelines.running import Event, Progress, Refresh

LAST_PROGRESS_SECONDS = 0.5
"""Progress comes over a connection of its own, that of the last micro-batch after the run's end."""
PARTITIONS = 3
"""Partitions of a topic that --with-broker creates."""


COLUMNS = (
    "type", "time_ms", "flow", "state", "message", "batch", "rows", "rows_per_second", "lag",
    "state_rows", "state_bytes", "run", "seconds",
)  # fmt: skip
"""Of TSV: those of events, progress and ends."""


class Printer:
    """Prints events and progress, for people or as rows. Called from two threads."""

    def __init__(self, writer: RowWriter | None) -> None:
        """``writer``: of rows; None: people read."""
        self._writer = writer
        self._lock = new_lock()
        self.rows = 0
        self._clock = SystemClock()

    def event(self, event: "Event") -> None:
        """Print an event; people see states only."""
        if self._writer is not None:
            self._row(self._writer, {"type": "event", **event._asdict()})
        elif event.flow:
            reason = f"  {event.message}" if event.state == "FAILED" else ""
            self._line(event.time_ms, event.flow, event.state + reason)

    def progress(self, progress: "Progress") -> None:
        """Print what a micro-batch did."""
        self.rows += progress.rows
        if self._writer is not None:
            time_ms = self._clock.wall_ms()
            self._row(self._writer, {"type": "progress", "time_ms": time_ms, **progress._asdict()})
            return
        lag = "" if progress.lag is None else f"  lag {progress.lag:,}"
        state = ""
        if progress.state_rows or progress.state_bytes:
            state = f"  state {progress.state_rows:,} rows {size_text(progress.state_bytes)}"
        text = (
            f"batch {progress.batch}: {counted(progress.rows, 'row')} in {progress.seconds:.1f} s"
            f" ({progress.rows_per_second:,.0f}/s){lag}{state}"
        )
        self._line(self._clock.wall_ms(), progress.flow, text)

    def end(self, name: str, number: int, seconds: float) -> None:
        """Print how a run went."""
        if self._writer is not None:
            took = {"run": number, "rows": self.rows, "seconds": round(seconds, 2)}
            self._row(self._writer, {"type": "end", **took})
        else:
            print(f"{name}: done, {counted(self.rows, 'row')} read in {seconds:.1f} s", flush=True)
        self.rows = 0

    def _row(self, writer: RowWriter, row: Row) -> None:
        with self._lock:
            writer.write(row, COLUMNS)
            sys.stdout.flush()

    def _line(self, time_ms: int, flow: str, text: str) -> None:
        clock = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
        print(f"{clock:%H:%M:%S}  {flow:<20}  {text}", flush=True)


def run_project(
    options: Namespace,
    project: "Project",
    engine: "Engine",
    define: Callable[[], "Defined"],
) -> None:
    """Run the pipeline once, or with --every until it fails or is stopped."""
    if options.output in (None, "text", Format.TABLE):
        _run_again_and_again(options, project, engine, define, Printer(None))
        return
    with RowWriter(Format(options.output), header=not options.no_header) as writer:
        _run_again_and_again(options, project, engine, define, Printer(writer))


def _run_again_and_again(
    options: Namespace,
    project: "Project",
    engine: "Engine",
    define: Callable[[], "Defined"],
    printer: Printer,
) -> None:
    from ottla.spark.pipelines.keeping import Catalog, KeptTables
    from ottla.spark.pipelines.running import watch

    kept = KeptTables(project.directory, project.storage, Catalog(engine.classic))
    for name in kept.recover():
        note(f"{name} is as it was before the run that was killed")
    every_s = _seconds(options.every)
    clock = BlockingClock()
    end_watch = watch(engine.spark, printer.progress)
    number = 0
    try:
        while True:
            begun = clock.monotonic()
            number += 1
            defined = define()
            if options.with_broker and number == 1:
                make_topics(defined.graph, options.bootstrap or project.bootstrap)
            if number == 1:
                ask_cluster(defined.asked)
            refresh = _refresh(options, defined.graph, is_first=number == 1)
            one = _Run(project, engine, defined)
            one.follow(refresh, kept, printer)
            took_s = clock.monotonic() - begun
            clock.sleep(LAST_PROGRESS_SECONDS)
            printer.end(project.name, number, took_s)
            if every_s is None or number == options.runs:
                return
            clock.sleep(max(every_s - took_s, 0))
    finally:
        end_watch()


class _Run(NamedTuple):
    """One run of a graph that is defined in Spark."""

    project: "Project"
    engine: "Engine"
    defined: "Defined"

    def follow(self, refresh: "Refresh", kept: "KeptTables", printer: Printer) -> None:
        """Run to the end. Tables that it does not make anew as it should are put back."""
        from ottla.spark.pipelines.failing import RunFailed
        from ottla.spark.pipelines.keeping import made_anew, place_of, unfinished
        from ottla.spark.pipelines.running import follow

        tables = made_anew(self.defined.graph, refresh.full, everything=refresh.everything)
        places = {name: place_of(name, self.project.database) for name in tables}
        kept.keep(places.values())
        completed: set[str] = set()
        failed: set[str] = set()
        events = follow(
            self.engine.spark, self.defined, self.project.storage, refresh=refresh, dry=False
        )
        try:
            for event in events:
                printer.event(event)
                if event.state == "COMPLETED":
                    completed.add(event.flow)
                elif event.state == "FAILED":
                    failed.add(event.flow)
        except RunFailed:  # one that has failed is told as COMPLETED, too, when the run ends
            lost = unfinished(self.defined.graph, tables, completed - failed)
            for name in kept.put_back([places[name][1] for name in lost]):
                note(f"{name} is as it was before the run")
            raise
        kept.forget()


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise Failure(f"--every {text}: {error}", fix="30s, 5m", code=Exit.USAGE) from error


def _refresh(options: Namespace, graph: "Graph", *, is_first: bool) -> "Refresh":
    """Return what is asked for; a later run of the same command makes nothing anew."""
    from ottla.spark.pipelines.graph import TABLES
    from ottla.spark.pipelines.running import Refresh

    def names(text: str | None) -> tuple[str, ...]:
        return tuple(name.strip() for name in (text or "").split(",") if name.strip())

    full, only = names(options.full_refresh), names(options.refresh)
    if options.full_refresh_all and (full or only):
        raise Failure("--full-refresh-all says everything: leave the others out", code=Exit.USAGE)
    tables = [name for name, node in graph.nodes.items() if node.kind in TABLES]
    for name in (*full, *only):
        if graph.find(name) not in tables:
            fix = did_you_mean(name, tables) or f"there are {', '.join(tables) or 'none'}"
            raise Failure(f"the pipeline has no table {name}", fix=fix, code=Exit.USAGE)
    if not is_first:
        return Refresh(only=only)
    return Refresh(only=only, full=full, everything=options.full_refresh_all)


def ask_cluster(asked: "Iterable[Asked]") -> None:
    """Check what sources and sinks name against the cluster. Raises RunFailed, Failure."""
    from ottla.spark.pipelines.asking import ask
    from ottla.spark.pipelines.failing import RunFailed

    errors, notes, is_unreachable = ask(asked)
    for text in notes:
        note(text)
    if is_unreachable:
        why, fix = "\n       ".join(errors), "start it, check -b, or --with-broker"
        raise Failure("the cluster does not answer", why=why, fix=fix, code=Exit.UNREACHABLE)
    if errors:
        raise RunFailed("\n".join(errors))


def make_topics(graph: "Graph", bootstrap: str) -> None:
    """Make the topics of the graph that the cluster does not have."""
    from ottla.client.asyncio.admin import Admin
    from ottla.client.asyncio.cluster import Cluster
    from ottla.client.wire.settings import ClientSettings, parse_bootstrap

    wanted = [
        name.removeprefix("topic ")
        for name, node in graph.nodes.items()
        if node.kind.value == "topic" and node.detail in ("", bootstrap)
    ]

    async def make() -> None:
        async with Cluster(ClientSettings(bootstrap=parse_bootstrap(bootstrap))) as cluster:
            admin = Admin(cluster)
            there = {topic.name for topic in await admin.list_topics()}
            for name in wanted:
                if name not in there:
                    await admin.create_topic(name, partition_count=PARTITIONS)
                    note(f"created topic {name}, {PARTITIONS} partitions")

    asyncio.run(make())
