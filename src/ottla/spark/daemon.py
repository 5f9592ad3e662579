"""The process that Spark's Python workers are forked from: ``spark.python.daemon.module``.

Spark puts ``pyspark.zip`` first on the workers' path, which holds no compiled modules: each process
would compile pyspark anew. Where the same pyspark lies unpacked, as pip leaves it, this takes that
one. Then it imports, once for all workers, what every reading and writing task needs.
Spark's own daemon does the rest. Standard library only until the path is right.

A query that needs no more rows (``limit``, ``show``, ``first``) hangs up on its workers. Spark's
daemon prints a stack trace of each (BrokenPipeError); here they end without one.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

Socket = TypeVar("Socket")

ARCHIVE = os.path.join("python", "lib", "pyspark.zip")
PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",  # where the function that reads comes from
    "pyspark.sql.worker.write_into_data_source",  # and the one that writes
    "pyarrow",
    "ottla.spark.reading.read",
)
HUNG_UP = 1
"""A worker's exit code; Spark does not look at it."""


def unpacked(path: Sequence[str]) -> list[str]:
    """Return ``path`` without the archives of pyspark and py4j that lie unpacked further on.

    They do when the archive is inside of a pyspark that pip installed, and that one's parent is on
    the path as well; elsewhere (a Spark of its own in ``/opt``) nothing may be dropped.
    """
    archives = [each for each in path if each.endswith(ARCHIVE)]
    library = [os.path.dirname(each) for each in archives if _is_unpacked(each, path)]
    return [each for each in path if not (_is_archive(each) and os.path.dirname(each) in library)]


def _is_archive(entry: str) -> bool:
    name = os.path.basename(entry)
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))


def _is_unpacked(archive: str, path: Sequence[str]) -> bool:
    packages = os.path.dirname(archive.removesuffix(os.sep + ARCHIVE))
    has_both = all(
        os.path.exists(os.path.join(packages, name, "__init__.py")) for name in ("pyspark", "py4j")
    )
    return has_both and packages in path


def preload() -> None:
    """Import what tasks need. What is missing is for the task that needs it to tell.

    Spark's daemon has each worker collect garbage after each task, which looks at all that was
    imported: 25 ms. What is there before the fork is set aside from that (and stays shared).
    """
    import gc
    import importlib

    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
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
    sys.path[:] = unpacked(sys.path)
    preload()
    from pyspark import daemon

    daemon.worker = quiet(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
