"""What Spark's Python processes have imported is left out of their search for garbage.

Spark keeps these processes (those that plan, write, commit, and the workers of tasks) and has each
search for garbage after everything that it was asked: 20 to 25 ms of CPU with what pandas, pyarrow
and pyspark consist of, which is several times what a small batch takes. Workers that are forked by
``daemon`` have set aside what was imported before. Most comes later: pyarrow imports pandas with
the first array that is made of a list, as Spark makes one of each task's message. And processes
that plan and commit are not forked by it. Standard library only.
"""

import gc
import os
from collections import Counter

KEPT_PROCESS = "SPARK_REUSE_WORKER"
"""In the environment of a process that Spark keeps, and nowhere else."""
TIMES = 2
"""The first time, Spark itself imports more after we were asked."""
_TIMES: Counter[str] = Counter()


def set_aside(step: str) -> None:
    """Set aside what is there after a ``step`` of ours, the first times it is done in a process.

    What is in use just then, and becomes garbage in a cycle later, is never found: that is once.
    """
    if KEPT_PROCESS not in os.environ or _TIMES[step] >= TIMES:
        return
    _TIMES[step] += 1
    gc.collect()
    gc.freeze()
