"""What a micro-batch pays for its checkpoint on a local disk, by Spark's two ways to write it.

    python -m bench.spark.checkpoint [--rounds 3] [--batches 15]

Hadoop's local file system without its native library, which pip's pyspark does not have, starts
processes for what the JVM could do itself: ``chmod`` for each file that is made and, by way of its
FileContext, which Spark's streams use by default, ``readlink`` for each path that is looked at.
``spark.sql.streaming.checkpointFileManagerClass`` names another way. One session
(``ottla.spark.session``), one stream of Spark's ``rate`` to nowhere, with no pause between its
batches, by each way in turn. Times are Spark's own; CPU is the JVM's and, apart from it, that of
the processes that it has started and waited for (Python's are not among them).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"
WAYS = {
    "FileContext (default)": f"{PACKAGE}.FileContextBasedCheckpointFileManager",
    "FileSystem": f"{PACKAGE}.FileSystemBasedCheckpointFileManager",
}
WARM_BATCHES = 3
PARTS = ("walCommit", "commitOffsets", "triggerExecution")


def used_ms(pid: int) -> tuple[float, float]:
    """Return the CPU of a process, and that of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    return own * tick_ms, children * tick_ms


def run(spark: Any, way: str, batches: int, work: str) -> dict[str, float]:
    """Run so many micro-batches, and return what one of them took."""
    spark.conf.set(SETTING, WAYS[way])
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001
    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 1)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", tempfile.mkdtemp(dir=work))
        .trigger(processingTime="0 seconds")
        .start()
    )

    def done() -> int:
        progress = query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    while done() < WARM_BATCHES:
        time.sleep(0.05)
    first, before = done(), used_ms(jvm)
    while done() < first + batches:
        time.sleep(0.05)
    after, count = used_ms(jvm), done() - first
    taken = [each["durationMs"] for each in query.recentProgress if each["batchId"] > first]
    query.stop()
    parts = {part: median(each[part] for each in taken if part in each) for part in PARTS}
    own, children = (end - begin for begin, end in zip(before, after, strict=True))
    return {**parts, "JVM's CPU": own / count, "its children's": children / count}


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=15)
    options = parser.parse_args(arguments)

    from ottla.spark.local import session

    spark = session(master="local[2]")
    with tempfile.TemporaryDirectory() as work:
        for number in range(options.rounds + 1):  # the first warms the JVM up
            for way in WAYS:
                figures = run(spark, way, options.batches, work)
                told = "  ".join(f"{name} {value:.0f} ms" for name, value in figures.items())
                print(f"{way:22} {told}", "" if number else "(warms up)", flush=True)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
