"""Several Ottla nodes on this host, as their user starts them: ``ottla serve --nodes N``."""

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tools.ottla_peer import OttlaPeer

CHILDREN = "/proc/{pid}/task/{pid}/children"
ENDS_SECONDS = 20.0
WORKER = "ottla.supervision.worker"


class NodesPeer(OttlaPeer):
    """One ``ottla serve --nodes`` on free ports of the loopback."""

    name = "ottla nodes"

    def __init__(self, data: Path, nodes: int, options: Mapping[str, object] | None = None) -> None:
        super().__init__(data, options)
        self.nodes = nodes
        self._paused: set[int] = set()
        """Processes that are stopped: they would outlive their supervisor."""

    def command(self) -> Sequence[str]:
        """Return the command line that serves."""
        return [*super().command(), "--nodes", str(self.nodes)]

    @property
    def supervisor(self) -> int:
        """The number of the supervisor's process."""
        assert self.process is not None, "it is started"
        return self.process.pid

    def workers(self) -> dict[int, int]:
        """Return the numbers of the nodes' processes, by node. Needs Linux."""
        try:
            children = Path(CHILDREN.format(pid=self.supervisor)).read_text(encoding="ascii")
        except FileNotFoundError:
            return {}
        found = {}
        for pid in map(int, children.split()):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except FileNotFoundError:
                continue
            if WORKER in words:
                found[int(words[words.index(WORKER) + 1])] = pid
        return found

    def kill_worker(self, node: int) -> int:
        """Kill a node's process with SIGKILL; return its number."""
        pid = self.workers()[node]
        os.kill(pid, signal.SIGKILL)
        return pid

    def pause_worker(self, node: int, seconds: float) -> None:
        """Stop a node's process with SIGSTOP; it goes on after ``seconds``, if it lives then."""
        pid = self.workers()[node]
        os.kill(pid, signal.SIGSTOP)
        self._paused.add(pid)
        timer = threading.Timer(seconds, self._go_on, [pid])
        timer.daemon = True
        timer.start()

    def kill_supervisor(self) -> None:
        """Kill the supervisor (SIGKILL) and wait for its end; its nodes end by themselves."""
        super().kill9()

    def kill9(self) -> None:
        """Kill the supervisor, and wait for the ends of its nodes, too."""
        workers = [] if self.process is None else list(self.workers().values())
        self.kill_supervisor()
        wait_for_ends(workers, ENDS_SECONDS)

    def _end(self, number: signal.Signals, timeout_seconds: float) -> int | None:
        for pid in list(self._paused):
            self._go_on(pid)
        return super()._end(number, timeout_seconds)

    def _go_on(self, pid: int) -> None:
        if pid in self._paused:
            self._paused.discard(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def has_ended(pid: int) -> bool:
    """Whether a process has ended; one that nobody has reaped yet has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def wait_for_ends(pids: Sequence[int], timeout_seconds: float) -> float:
    """Return after how many seconds all processes had ended. Raises TimeoutError."""
    begun = time.monotonic()
    while not all(map(has_ended, pids)):
        if time.monotonic() - begun > timeout_seconds:
            raise TimeoutError(f"{[pid for pid in pids if not has_ended(pid)]} live on")
        time.sleep(0.01)
    return time.monotonic() - begun
