"""The process of a test's broker: ``python -m ottla.testing.child WRITE_FD``.

Takes JSON from standard input, a line for each question, and answers each with a line to the given
descriptor: ``{"value": ...}`` or ``{"error": "..."}``. The first question has the options. When
standard input ends, because the test stopped it or died, the broker stops.
"""

import gc

gc.disable()  # Imports allocate much and drop little: collecting on the way costs a fifth.

import asyncio  # noqa: E402 - see above
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

from ottla.env.clock import SystemClock  # noqa: E402
from ottla.env.collector import Collector  # noqa: E402
from ottla.env.loop_thread import loop_factory  # noqa: E402
from ottla.env.open_files import raise_open_files_limit  # noqa: E402
from ottla.errors import OttlaError  # noqa: E402
from ottla.testing.server import Server  # noqa: E402

LINE_BYTES_MAX = 1 << 20


async def serve(write: int) -> None:
    """Start a broker as the first line says, and do what the others say, to their end."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    given = json.loads(await lines.readline() or b"null")
    if given is None:
        return
    server = Server(given["texts"], data=given["data"])
    try:
        tell(write, value=await server.start())
    except (OttlaError, OSError) as error:
        tell(write, error=str(error))
        return
    Collector(SystemClock()).start()
    try:
        while line := await lines.readline():
            try:
                tell(write, value=await server.do(json.loads(line)))
            except (OttlaError, ValueError) as error:
                tell(write, error=str(error))
    finally:
        await server.stop()


def tell(write: int, **answer: object) -> None:
    """Answer one question. A test that has gone needs none."""
    os.write(write, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    raise_open_files_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(int(sys.argv[1])))
