"""The process that Spark's Python workers are forked from: ``spark.python.daemon.module``.

There is one for the workers of tasks, and one for each step of planning and writing, whose
processes Spark keeps as long as its queries: ten streams at a time have twenty of them. (Their
daemon comes by the launcher of a session on this machine; Spark has a setting for tasks only.)

Spark puts ``pyspark.zip`` first on the workers' path, which holds no compiled modules: each process
would compile pyspark anew. Where the same pyspark lies unpacked, as pip leaves it, this takes that
one. Then it imports, once for all workers, what each of them needs: it is in memory once.
Spark's own daemon does the rest. Standard library only until the path is right.

A query that needs no more rows (``limit``, ``show``, ``first``) hangs up on its workers. Spark's
daemon prints a stack trace of each (BrokenPipeError); here they end without one.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

Socket = TypeVar("Socket")

ARCHIVE = os.path.join("python", "lib", "pyspark.zip")
JAR = re.compile(r".*/jars/spark-core_[^/]*\.jar").fullmatch
"""Spark puts it on Python's path. Its 6,000 names take 12 MB in each process, and 45 ms: they are
read when a process starts, and once more when it is told where its files are."""
TASKS = "pyspark.worker"
PLAN = "pyspark.sql.worker.plan_data_source_read"
WRITE = "pyspark.sql.worker.write_into_data_source"
CREATE = "pyspark.sql.worker.create_data_source"
COMMIT = "pyspark.sql.worker.python_streaming_sink_runner"
PRELOADED = {
    # The functions that read and write come from the modules that plan.
    TASKS: (
        PLAN,
        WRITE,
        "pyarrow",
        "ottla.spark.planning.stream",
        "ottla.spark.reading.read",
        "ottla.spark.writing.sink_task",
    ),
    PLAN: ("pyarrow", "ottla.spark.planning.stream", "ottla.spark.planning.tracker"),
    WRITE: ("pyarrow", "ottla.spark.planning.source", "ottla.spark.writing.sink"),
    COMMIT: ("ottla.spark.planning.source", "ottla.spark.writing.sink"),
    CREATE: ("ottla.spark.planning.source", "ottla.spark.options"),
}
"""By the module that a worker runs, what it imports sooner or later, beside that module."""
HUNG_UP = 1
"""A worker's exit code; Spark does not look at it."""


def unpacked(path: Sequence[str]) -> list[str]:
    """Return ``path`` without the archives of pyspark and py4j that lie unpacked further on.

    And without Spark's own JAR, in which no module is. They lie unpacked when the archive is inside
    of a pyspark that pip installed, and that one's parent is on the path as well; elsewhere (a
    Spark of its own in ``/opt``) no archive may be dropped.
    """
    archives = [each for each in path if each.endswith(ARCHIVE)]
    library = [os.path.dirname(each) for each in archives if _is_unpacked(each, path)]
    return [
        each
        for each in path
        if not (_is_archive(each) and os.path.dirname(each) in library) and not JAR(each)
    ]


def forget(entries: Sequence[str]) -> None:
    """Give up what Python's imports have noted of these entries of the path."""
    import zipimport

    noted: dict[str, object] = getattr(zipimport, "_zip_directory_cache", {})
    for each in entries:
        sys.path_importer_cache.pop(each, None)
        noted.pop(each, None)


def _is_archive(entry: str) -> bool:
    name = os.path.basename(entry)
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))


def _is_unpacked(archive: str, path: Sequence[str]) -> bool:
    packages = os.path.dirname(archive.removesuffix(os.sep + ARCHIVE))
    has_both = all(
        os.path.exists(os.path.join(packages, name, "__init__.py")) for name in ("pyspark", "py4j")
    )
    return has_both and packages in path


def preload(module: str = TASKS) -> None:
    """Import what workers that run ``module`` need. What is missing is for them to tell.

    Spark's daemon has each worker collect garbage after each task, which looks at all that was
    imported: 25 ms. What is there before the fork is set aside from that (and stays shared).
    """
    import gc
    import importlib

    from ottla.spark.whole_message import read_whole_messages

    for name in (module, *PRELOADED.get(module, ())):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    read_whole_messages()
    gc.collect()
    gc.freeze()


def quiet(work: Callable[[Socket, bool], int]) -> Callable[[Socket, bool], int]:
    """Return ``work``, a worker's task, which ends with a code where Spark has hung up on it."""

    def end_quietly(sock: Socket, authenticated: bool) -> int:
        try:
            return work(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return HUNG_UP

    return end_quietly


if __name__ == "__main__":
    kept = unpacked(sys.path)
    forget([each for each in sys.path if each not in kept])
    sys.path[:] = kept
    preload(*sys.argv[1:2])
    from pyspark import daemon

    daemon.worker = quiet(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
