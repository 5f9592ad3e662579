"""Where a test's broker runs: in a thread of the test's process, or in a process of its own.

Both offer the same calls, which block. Nothing is read from lines that a person would read: the
child process answers with JSON through a pipe of its own, and ends when its other pipe does, so it
never outlives the test.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any, Protocol

from ottla.env.blocking import new_lock
from ottla.env.loop_thread import LoopThread
from ottla.errors import OttlaError

STOP_SECONDS = 30.0
"""How long a stop may take before the process is killed, or the thread left alone."""
START_SECONDS = 30.0
LOG_BYTES = 64 * 1024
"""How much of a child's log is shown."""


class BrokerFailed(OttlaError):
    """The broker did not start, or a process of its own ended."""


_OF_A_FORK = "the broker runs in the process of which this one is a fork"


class Host(Protocol):
    """Runs one broker."""

    def start(self) -> tuple[str, int]:
        """Start; return the address when clients are served."""

    def stop(self) -> None:
        """Stop in good order. Harmless when stopped."""

    def ask(self, do: str, **details: object) -> Any:  # noqa: ANN401 - as JSON
        """Have the broker do something, as ``Server.do``; return its answer. Blocks."""

    def log(self) -> str:
        """Return what the broker logged, if it has a log of its own; else nothing."""


class InThread:
    """A broker in a thread of this process. Changes nothing else in the process."""

    def __init__(self, texts: Mapping[str, str], data: str | None) -> None:
        from ottla.testing.server import Server

        self._thread = LoopThread("ottla-broker")
        self._server: Server | None = None
        self._make: Callable[[], Server] = lambda: Server(texts, data=data)

    def start(self) -> tuple[str, int]:
        """Start the thread and the broker. Raises what its start raises."""
        self._thread.start()
        try:
            self._server = server = self._make()
            return self._thread.run(server.start, timeout_seconds=START_SECONDS)
        except BaseException:
            self._server = None
            self._thread.stop()
            raise

    def stop(self) -> None:
        """Stop broker and thread."""
        server, self._server = self._server, None
        if server is not None and not self._thread.is_elsewhere:
            self._thread.run(server.stop, timeout_seconds=STOP_SECONDS)
            self._thread.stop()

    def ask(self, do: str, **details: object) -> Any:  # noqa: ANN401 - as JSON
        """See ``Host.ask``."""
        server = self._server
        if server is None:
            raise BrokerFailed("the broker is not running")
        if self._thread.is_elsewhere:
            raise BrokerFailed(_OF_A_FORK)
        return self._thread.run(lambda: server.do({"do": do, **details}))

    def log(self) -> str:
        """Return nothing: it goes to this process's loggers."""
        return ""


class InProcess:
    """A broker in a process of its own."""

    def __init__(self, texts: Mapping[str, str], data: str | None) -> None:
        self._given = {"texts": dict(texts), "data": data}
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: IO[bytes] | None = None
        self._lock = new_lock()
        """Use: the test asks, and so may its control endpoint."""
        self._owner = os.getpid()
        """Use: a fork of this process has the same pipes, and no broker."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with this object

    def start(self) -> tuple[str, int]:
        """Start the process. Raises BrokerFailed with what it said."""
        read, write = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-m", "ottla.testing.child", str(write)],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(write,),
                start_new_session=True,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._answers = os.fdopen(read, "rb")
        host, port = self._ask(**self._given)
        return str(host), int(port)

    def stop(self) -> None:
        """End the process's input, at which it stops in good order; kill it if it does not."""
        process, self._process = self._process, None
        if self._owner != os.getpid():
            return
        if process is not None and process.stdin is not None:
            with suppress(BrokenPipeError):  # It has ended already.
                process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._answers is not None:
            self._answers.close()
        self._log.close()

    def ask(self, do: str, **details: object) -> Any:  # noqa: ANN401 - JSON
        """See ``Host.ask``."""
        return self._ask(do=do, **details)

    def log(self) -> str:
        """Return the end of what the process wrote."""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(end - LOG_BYTES, 0))
        return self._log.read().decode(errors="replace")

    def _ask(self, **question: object) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to a question. Raises BrokerFailed."""
        process, answers = self._process, self._answers
        if self._owner != os.getpid():
            raise BrokerFailed(_OF_A_FORK)
        if process is None or process.stdin is None or answers is None:
            raise BrokerFailed("the broker is not running")
        try:
            with self._lock:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
                line = answers.readline()
        except BrokenPipeError:
            line = b""
        answer = json.loads(line) if line else {"error": f"it ended:\n{self.log()}"}
        if "error" in answer:
            raise BrokerFailed(f"the broker's process: {answer['error']}")
        return answer["value"]
