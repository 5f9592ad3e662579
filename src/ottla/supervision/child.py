"""One node, as its supervisor has it: its process, the link to it, and when it comes back.

Owns the process's life. Decides nothing: ``restarts`` does. Knows no other node.
"""

import logging
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import ottla
from ottla.cluster.copies import Held
from ottla.env.channel import channel, open_channel
from ottla.env.clock import Clock, Timer
from ottla.env.processes import Process, Processes
from ottla.errors import MalformedMessage
from ottla.ids import NodeId
from ottla.metadata.remote.server import StoreServer
from ottla.metadata.store import MetadataStore
from ottla.supervision.errands import (
    ALL_STOP,
    FAILED,
    HELD,
    READY,
    SETTLED,
    WELCOME,
    Errand,
    Failed,
    Ready,
    Settled,
    Welcome,
    read_failed,
    read_held,
    read_ready,
    write,
)
from ottla.supervision.restarts import Restarts, is_silent

logger = logging.getLogger(__name__)

LINES_KEPT = 20
"""Of what a process wrote, for one that ends without saying why."""


class Child:
    """A node and its process, from ``start`` to ``over``."""

    def __init__(
        self,
        welcome: Welcome,
        *,
        store: MetadataStore,
        clock: Clock,
        processes: Processes,
        write_line: Callable[[str], None],
        may_restart: bool,
    ) -> None:
        """``write_line``: takes each line that the process writes, with the node's name."""
        self.node: NodeId = welcome.node
        self._welcome = welcome
        self._store = store
        self._clock = clock
        self._processes = processes
        self._write_line = write_line
        self._restarts = Restarts(may_restart=may_restart)
        self._process: Process | None = None
        self._server: StoreServer | None = None
        self._exit_code: int | None = None
        """Use: set when the process has ended, before the end of its link is heard: its last words
        are read first."""
        self._timer: Timer | None = None
        self._is_stopping = False
        self._last_lines: list[str] = []
        self.failed: Failed | None = None
        """What the process said of its end, the last time that it ended."""
        self._told: Failed | None = None
        """Use: the reason that the log has already, since the node served last."""
        self.ready: Ready | None = None
        """What the process said when it became ready, the last time that it did."""
        self.on_ready: Callable[[], None] = _nothing
        """Use: called each time that the node serves."""
        self.on_over: Callable[[Child, int], None] = _no_end
        """Use: called with the exit code when the process has ended and none will follow."""
        self.on_held: Callable[[NodeId, Held, Callable[[int], None]], None] = _no_copies
        """Use: called with what the node has, and what lets it go on."""
        self.on_again: Callable[[Child], None] = _no_start
        """Use: called when the process is to be started again."""

    @property
    def pid(self) -> int | None:
        """The process's number; None: there is none now."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    @property
    def is_serving(self) -> bool:
        """Whether the node is ready."""
        return self._restarts.is_serving

    async def start(self) -> None:
        """Start a process for the node. Raises OSError."""
        self.failed = None
        self._last_lines.clear()
        ours, theirs = channel()
        try:
            sockets = [one for each in self._welcome.sockets for one in each.descriptors]
            self._process = await self._processes.start(
                [*_python(), str(self.node), str(theirs.fileno())],
                [theirs.fileno(), *sockets],
                self._line,
                self._ended,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._server = server = StoreServer(self._store, self._clock)
        server.on_other = self._hear
        server.on_lost = self._link_lost
        await open_channel(lambda: server.link, ours)
        server.tell(WELCOME, write(self._welcome))
        if self._is_stopping:
            self.stop()

    def start_failed(self) -> None:
        """Try again, as after a process that has ended: the others serve meanwhile."""
        if self._process is not None:  # It has begun, and cannot be talked to.
            self._process.kill()
        elif not self._is_stopping:
            self._come_back_after(self._restarts.ended(self._clock.monotonic()) or 0.0)

    def stop(self) -> None:
        """Ask the process to end; it is not started again. Harmless when it has ended."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._process is not None:
            if self._server is not None:
                self._server.tell(ALL_STOP, Errand(json=b"{}"))
            self._process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()

    def look(self, now: float, listening_since: float) -> None:
        """Kill the process if it serves and is silent."""
        server = self._server
        if server is None or self._process is None or not self._restarts.is_serving:
            return
        if is_silent(now, server.heard_at, listening_since):
            silent_seconds = now - server.heard_at
            logger.error("node %d is silent for %.0f s: it is killed", self.node, silent_seconds)
            self._process.kill()

    def last_words(self) -> str:
        """Return the last lines that the process wrote."""
        return "\n".join(self._last_lines)

    def _hear(self, kind: int, body: memoryview) -> None:
        if kind == READY:
            self.ready = read_ready(body)
            self._told = None
            self._restarts.ready(self._clock.monotonic())
            self.on_ready()
        elif kind == FAILED:
            self.failed = read_failed(body)
        elif kind == HELD and self._server is not None:
            self.on_held(self.node, read_held(body), partial(_tell_settled, self._server))
        else:
            raise MalformedMessage("a node says what it has, that it serves, or why not")

    def _line(self, line: str) -> None:
        self._last_lines.append(line)
        del self._last_lines[:-LINES_KEPT]
        self._write_line(f"[node {self.node}] {line}")

    def _ended(self, code: int) -> None:
        self._exit_code = code
        if self._server is not None and not self._server.link.is_open:
            self._gone(code)

    def _link_lost(self) -> None:
        if self._exit_code is not None:
            self._gone(self._exit_code)

    def _gone(self, code: int) -> None:
        """Go on when the process has ended and all that it said was heard."""
        was_serving = self._restarts.is_serving
        self._process = self._server = self._exit_code = None
        pause_seconds = self._restarts.ended(self._clock.monotonic())
        if self._is_stopping or pause_seconds is None:
            self.on_over(self, code)
            return
        how = _how(code) if was_serving else f"{_how(code)} before it served"
        if self.failed is not None and self.failed == self._told:
            how += " for the same reason"
        elif self.failed is not None:
            self._told = self.failed
            logger.error("node %d: %s", self.node, _words(self.failed))
        logger.error("node %d %s; it starts again in %.2f s", self.node, how, pause_seconds)
        self._come_back_after(pause_seconds)

    def _come_back_after(self, pause_seconds: float) -> None:
        self._timer = self._clock.call_later(pause_seconds, lambda: self.on_again(self))


def _how(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _words(failed: Failed) -> str:
    why = f": {failed.why}" if failed.why else ""
    fix = f"; to mend it: {failed.fix}" if failed.fix else ""
    return f"{failed.what}{why}{fix}"


@cache
def _python() -> list[str]:
    """Return the command that runs a node with this very installation."""
    root = str(Path(ottla.__file__).resolve().parent.parent)
    # The directory that one happens to be in is no place for modules, unless Ottla is there.
    safe = [] if root == os.getcwd() else ["-P"]
    return [sys.executable, *safe, "-m", "ottla.supervision.worker"]


def _tell_settled(server: StoreServer, revision: int) -> None:
    server.tell(SETTLED, write(Settled(revision)))


def _nothing() -> None:
    """Hear that a node serves."""


def _no_end(child: Child, code: int) -> None:
    """Hear that a node's last process has ended."""


def _no_copies(node: NodeId, held: Held, answer: Callable[[int], None]) -> None:
    """Hear what a node has."""


def _no_start(child: Child) -> None:
    """Hear that a node is to be started again."""
