"""Topics of any Kafka-compatible cluster as DataFrames: ``spark.read.format("ottla")``, no JAR.

    planning   the source as Spark calls it: options to ranges of offsets, batch and streaming
    reading    tasks that read ranges: fetched, decompressed, made Arrow columns
    values     typed columns of values that hold JSON or Avro
    writing    the sink: rows to record batches, in tasks or, exactly once, by the driver
    exporting  to_parquet, from_parquet          pipelines   for ``ottla pipeline``

    option_table, options, connection   what a query may say
    offsets, positions   where reading stands    lookup, loss   what the cluster says to that
    progress, listener   how far a stream is behind   keeping_on   one that is started again
    fresh_plans   each query of a frame sees what the topics hold then
    active   a thread's session, where Spark has lost it
    local    a session on this machine           daemon   where Spark's Python workers come from
    garbage  what their processes need not search   telling   what Spark shows of an error
    java     a Java to run Spark on              made_files   launchers and the like, on disk

It speaks the wire protocol through ``ottla.client`` and knows no broker. Modules of the planner's
side import the standard library only, because Spark starts a Python process for every step.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.exporting.export import Exported, from_parquet, to_parquet
    from ottla.spark.exporting.export_log import ExportError
    from ottla.spark.keeping_on import keep_running
    from ottla.spark.local import session
    from ottla.spark.progress import lag
    from ottla.spark.registration import register
    from ottla.spark.writing.write_batch import write_batch

__all__ = [
    "session",
    "register",
    "to_parquet",
    "from_parquet",
    "lag",
    "keep_running",
    "write_batch",
    "Exported",
    "ExportError",
]

_PLACES = {
    "session": "local",
    "register": "registration",
    "to_parquet": "exporting.export",
    "from_parquet": "exporting.export",
    "lag": "progress",
    "keep_running": "keeping_on",
    "write_batch": "writing.write_batch",
    "Exported": "exporting.export",
    "ExportError": "exporting.export_log",
}


if not TYPE_CHECKING:  # else a name that is not there would be one of type object

    def __getattr__(name: str) -> object:
        """Import what is asked for: Spark's processes import this package and use none of it."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
