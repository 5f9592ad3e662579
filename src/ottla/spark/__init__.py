"""Topics of any Kafka-compatible cluster as DataFrames: ``spark.read.format("ottla")``, no JAR.

    source   what Spark calls           options   its options        offsets   options to ranges
    plan     ranges to read, asked of the cluster (planner's side)
    stream   what Spark calls in a stream    tracker   what it does
    lookup   questions to the cluster        loss      what became of offsets noted earlier
    positions  offsets as JSON               progress, listener   how far a stream is behind
    read     the records of one range (executor's side)              columns   records to Arrow
    sink     writing as Spark calls it       sink_options, write_settings   its options
    write    rows to record batches (executor's side; sink_task calls it, rows finds the columns)
    delivery a batch exactly once, by the driver                     marker    which batch is there
    local    a session on this machine       daemon   where Spark's Python workers come from
    export   to_parquet, from_parquet: the driver's side; export_log what counts, export_task and
             import_task what executors do
    java     a Java to run Spark on          made_files   launchers and the like, on disk

It speaks the wire protocol through ``ottla.client`` and knows no broker. Modules of the planner's
side import the standard library only, because Spark starts a Python process for every step.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.export import Exported, from_parquet, to_parquet
    from ottla.spark.export_log import ExportError
    from ottla.spark.local import session
    from ottla.spark.progress import lag
    from ottla.spark.registration import register

__all__ = ["session", "register", "to_parquet", "from_parquet", "lag", "Exported", "ExportError"]

_PLACES = {
    "session": "local",
    "register": "registration",
    "to_parquet": "export",
    "from_parquet": "export",
    "lag": "progress",
    "Exported": "export",
    "ExportError": "export_log",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: Spark's processes import this package and use none of it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
