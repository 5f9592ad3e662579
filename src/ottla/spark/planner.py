"""The process that plans one stream: Spark's own runner, without what only other sources need.

Spark starts one for each streaming query, by the launcher of a session on this machine, and keeps
it as long as the query. The first of a session imports what all of them need, then forks: itself
for its query, and others for the starts that come later, which hand over what Spark gave them and
end (``ottla.env.fork_server``). Ten planners hold one copy of what they have imported, and a later
one is there in a tenth of the time. Any start that finds no other plans by itself.

Spark's runner imports pyarrow, and with it numpy, for rows that a simple source has read ahead: 11
MB in each process. Here they are imported when such rows come, which a source of topics never has.
Standard library only until then.
"""

import gc
import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from struct import Struct
from types import ModuleType

from ottla.env.fork_server import ForkServer, hand_over
from ottla.env.local_stream import connect, opened

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
ROWS = "pyspark.sql.worker.plan_data_source_read"
"""Where the runner has the one function from that wants pyarrow."""
MAKES_BATCHES = "records_to_arrow_batches"
SOCKET = "PYTHON_WORKER_FACTORY_SOCK_PATH"
SECRET = "PYTHON_WORKER_FACTORY_SECRET"  # noqa: S105 - its name
"""In the environment of a process that Spark starts: where the JVM waits for it, by what means."""
BUFFER = "SPARK_BUFFER_SIZE"
PID = Struct(">i")
"""What such a process says first: its number."""
PRELOADED = (
    "ottla.spark.planning.source",
    "ottla.spark.planning.stream",
    "ottla.spark.planning.tracker",
)
"""What the planner of a stream of topics imports sooner or later, beside the runner."""
GRACE_SECONDS = 1.0
"""What a planner has for its end when the query has ended."""


def put_off(name: str, function: str) -> None:
    """Let ``function`` of the module ``name`` import that module when it is called, not before."""

    def call(*given: object) -> Iterable[object]:
        sys.modules.pop(name, None)
        found: Iterable[object] = getattr(importlib.import_module(name), function)(*given)
        return found

    later = ModuleType(name)
    setattr(later, function, call)
    sys.modules[name] = later


def runner() -> ModuleType:
    """Return Spark's runner, imported without what wants pyarrow."""
    put_off(ROWS, MAKES_BATCHES)
    try:
        return importlib.import_module(RUNNER)
    except ImportError:  # another Spark's, which wants more of that module
        sys.modules.pop(ROWS, None)
        return importlib.import_module(RUNNER)


def name_of(environment: Mapping[str, str]) -> str | None:
    """Return the name at which starts with this environment meet; None: nowhere.

    It stands for all that a planner has from its start: the JVM, its directory of sockets, which
    nobody else has, settings, where modules are found, and where it is.
    """
    if sys.platform != "linux" or SOCKET not in environment or SECRET in environment:
        return None
    settings = {**environment, SOCKET: os.path.dirname(environment[SOCKET])}
    told = json.dumps([os.getppid(), os.getcwd(), sys.path, sorted(settings.items())])
    return f"ottla-planners-{blake2b(told.encode(errors='surrogateescape')).hexdigest()[:32]}"


def preload() -> None:
    """Import what every planner needs, and leave it out of searches for garbage."""
    runner()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def plan(descriptor: int) -> None:
    """Plan for the JVM at the other end, until the query ends: until that end is closed."""
    size = int(os.environ.get(BUFFER, "65536"))
    with (
        # Spark's runner says last of all that nobody asks any more, to whom has closed.
        suppress(BrokenPipeError, ConnectionResetError),
        opened(descriptor, buffer_bytes=size, grace_seconds=GRACE_SECONDS) as file,
    ):
        file.write(PID.pack(os.getpid()))
        file.flush()
        runner().main(file, file)


def main() -> None:
    """Plan one stream, or have a process plan it that was forked for it."""
    name = name_of(os.environ)
    if name is None:
        return plan_alone()
    # First of all: Spark waits ten seconds for it, which are few where much else runs.
    descriptor = connect(os.environ[SOCKET])
    if hand_over(name, [descriptor]):
        return None
    server = ForkServer.claim(name)
    if server is None:  # one that began just now
        if hand_over(name, [descriptor]):
            return None
    else:
        preload()
        (descriptor,) = server.serve([descriptor])
    return plan(descriptor)


def plan_alone() -> None:
    """Plan as Spark's own process does: without a socket that has a path, say."""
    from pyspark.worker_util import get_sock_file_to_executor

    with get_sock_file_to_executor(timeout=None) as stream:
        runner().main(stream, stream)


if __name__ == "__main__":
    main()
