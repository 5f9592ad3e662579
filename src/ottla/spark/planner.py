"""The process that plans one stream: Spark's own runner, without what only other sources need.

Spark starts one for each streaming query, by the launcher of a session on this machine, and keeps
it as long as the query; nothing is shared between them. Spark's runner imports pyarrow, and with it
numpy, for rows that a simple source has read ahead: 11 MB in each process. Here they are imported
when such rows come, which a source of topics never has. Standard library only until then.
"""

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
ROWS = "pyspark.sql.worker.plan_data_source_read"
"""Where the runner has the one function from that wants pyarrow."""
MAKES_BATCHES = "records_to_arrow_batches"


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


def main() -> None:
    """Run it until the query ends."""
    from pyspark.worker_util import get_sock_file_to_executor

    # First of all: Spark waits ten seconds for it, which are few where much else runs.
    with get_sock_file_to_executor(timeout=None) as socket:
        runner().main(socket, socket)


if __name__ == "__main__":
    main()
