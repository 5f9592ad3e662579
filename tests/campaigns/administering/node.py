"""The broker as a process, and what befalls it. Owns the process, its directories, its volume.

Each nemesis ends with a broker that serves, or with a problem. The power is cut only of a file
system of our own (``powercuts/volume.py``).
"""

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.campaigns.administering.clients import Service
from tests.campaigns.administering.history import History
from tests.campaigns.powercuts.volume import LOGFLUSH, NOLOGFLUSH, Volume, cut_power
from tools.ottla_peer import OttlaPeer
from tools.peer import PeerFailed

STALL_SECONDS = 11.0
"""Longer than a node's session, whatever its phase."""
WRONG = re.compile(r"Traceback|CRITICAL|\bERROR\b|offline|out of service|Error:|Exception")
LASTING = re.compile(r"Traceback|CRITICAL|until a restart|fault of ours|two directories")
AWAY = "is not among those this node is started with"
HEALING_SECONDS = 2.5
"""A broker looks every second whether it can do again what was refused."""
START_SECONDS_MAX = 60.0


class Node:
    """One broker with two log directories."""

    def __init__(
        self,
        root: Path,
        options: Mapping[str, object],
        service: Service,
        history: History,
        *,
        seed: str,
        volume: Volume | None,
    ) -> None:
        place = root if volume is None else volume.path
        self.log_dirs = [str(place / "a"), str(place / "b")]
        self._peer = OttlaPeer(Path(",".join(self.log_dirs)), options)
        self._peer.log_path = root / "broker.log"
        self._service = service
        self._history = history
        self._random = random.Random(seed)
        self._volume = volume
        self._log_read = 0
        self.start_seconds: list[float] = []
        self.nemeses: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "terminate": self._terminate,
            "stall": self._stall,
            "stall, kill": self._stall_and_kill,
            "kill in start": self._kill_in_start,
            "kill in stop": self._kill_in_stop,
            "kill twice": self._kill_twice,
            "directory away": self._directory_away,
            "shortage": self._shortage,
        }
        if volume is not None:
            self.nemeses |= {
                "power": self._power,
                "power, kill in start": self._power_and_kill_in_start,
                "power in start": self._power_in_start,
            }
        self.usual_nemeses = set(self.nemeses)
        """Those that come unless others are asked for."""
        self.nemeses["shortage, kill"] = self._shortage_and_kill

    def start(self) -> None:
        """Start it; the clients hear of it. Raises PeerFailed."""
        self._peer.start(timeout_seconds=START_SECONDS_MAX)
        self.start_seconds.append(self._peer.started_in_seconds)
        self._service.came_up(self._peer.bootstrap)

    def end(self) -> None:
        """Kill it for good."""
        self._service.went_down()
        self._peer.kill9()

    def say_if_ended(self) -> None:
        """It must not have ended by itself."""
        process = self._peer.process
        if process is not None and process.poll() is not None:
            self._history.problem(f"the broker ended by itself with {process.returncode}")

    def read_log(self) -> None:
        """Look for what must not stand in its log."""
        text = self._peer.log_text()[self._log_read :]
        self._log_read += len(text)
        found = [line for line in text.splitlines() if WRONG.search(line)]
        if found:
            self._history.problem(f"the broker's log: {found[:6]}")

    # -- what befalls it ----------------------------------------------------------------------

    def _end_by(self, kind: str, *, is_cut: bool = False) -> None:
        """``kind``: kill or power. Nobody works on a request afterwards.

        What it says of a disk without power is not looked at. ``is_cut``: the power is off already.
        """
        self._service.went_down()
        if kind == "power" and not is_cut:
            self.read_log()
            self._cut_power()
        self._peer.kill9()
        self._history.settle()
        if kind == "power" and self._volume is not None:
            self._log_read = len(self._peer.log_text())
            self._volume.power_on_again()

    def _cut_power(self) -> None:
        assert self._volume is not None, "a power cut needs a volume"
        flag = self._random.choice([LOGFLUSH, NOLOGFLUSH])
        process = self._peer.process
        with contextlib.suppress(ProcessLookupError):
            if process is not None:
                cut_power(str(self._volume.path), flag, process.pid)

    def _kill(self) -> None:
        self._end_by("kill")
        self.start()

    def _kill_twice(self) -> None:
        for _ in range(2):
            self._end_by("kill")
            self.start()
            time.sleep(self._random.uniform(0.0, 0.4))

    def _directory_away(self) -> None:
        """Start it without the second log directory for a while, as with a disk not mounted.

        Nobody is served then: what lies in the directory must be as it was when it is back.
        """
        self._end_by("kill")
        self.read_log()
        self._peer.data = Path(self.log_dirs[0])
        try:
            self._peer.start(timeout_seconds=START_SECONDS_MAX)
            time.sleep(self._random.uniform(0.0, 2.0))
            text = self._peer.log_text()[self._log_read :]
            if AWAY not in text:
                self._history.problem("a log directory is away, and the log does not say so")
            self._pass_over_refusals()
            self._end_by("kill")
        finally:
            self._peer.data = Path(",".join(self.log_dirs))
        self.start()

    def _power(self) -> None:
        self._end_by("power")
        self.start()

    def _terminate(self) -> None:
        self._service.went_down()
        try:
            code = self._peer.stop()
        except subprocess.TimeoutExpired:
            self._history.problem("the broker did not stop in 30 s")
            code = 0
        if code:
            self._history.problem(f"the broker stopped with {code}")
        self._history.settle()
        self.start()

    def _kill_in_stop(self) -> None:
        self._service.went_down()
        process = self._peer.process
        assert process is not None, "it runs"
        process.send_signal(signal.SIGTERM)
        time.sleep(self._random.uniform(0.0, 0.3))
        self._end_by("kill")
        self.start()

    def _stall(self) -> None:
        process = self._peer.process
        assert process is not None, "it runs"
        self._service.went_down()
        process.send_signal(signal.SIGSTOP)
        time.sleep(STALL_SECONDS)
        process.send_signal(signal.SIGCONT)
        self._service.came_up(self._peer.bootstrap)

    def _stall_and_kill(self) -> None:
        process = self._peer.process
        assert process is not None, "it runs"
        self._service.went_down()
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(0.1, STALL_SECONDS))
        if self._random.random() < 0.5:
            process.send_signal(signal.SIGCONT)
            time.sleep(self._random.uniform(0.0, 0.3))
        self._kill()

    def _shortage(self) -> None:
        """Leave it few descriptors or none, for moments, under load: it must heal by itself."""
        self._squeeze()
        time.sleep(HEALING_SECONDS)
        self._pass_over_refusals()

    def _shortage_and_kill(self) -> None:
        self._squeeze()
        self._pass_over_refusals()
        self._kill()

    def _squeeze(self) -> None:
        process = self._peer.process
        assert process is not None, "it runs"
        self.read_log()
        limit = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        for _ in range(self._random.randint(2, 12)):
            files = len(os.listdir(f"/proc/{process.pid}/fd"))
            few = max(files + self._random.randint(-3, 12), 1)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (few, limit[1]))
            time.sleep(self._random.uniform(0.0, 0.5))
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limit)
            time.sleep(self._random.uniform(0.0, 0.3))

    def _pass_over_refusals(self) -> None:
        """Look at what the log says of a shortage: refusals may, faults and losses may not."""
        text = self._peer.log_text()[self._log_read :]
        self._log_read += len(text)
        found = [line for line in text.splitlines() if LASTING.search(line)]
        if found:
            self._history.problem(f"the broker's log in a shortage: {found[:6]}")

    def _kill_in_start(self) -> None:
        self._end_by("kill")
        self._start_and_end("kill")

    def _power_and_kill_in_start(self) -> None:
        self._end_by("power")
        self._start_and_end("kill")

    def _power_in_start(self) -> None:
        self._end_by("kill")
        self._start_and_end("power")

    def _start_and_end(self, kind: str) -> None:
        """Let starts be cut short, once or twice, then start."""
        for _ in range(self._random.randint(1, 2)):
            self.read_log()
            time_up = threading.Timer(self._random.uniform(0.2, 1.2), self._cut_short, (kind,))
            time_up.start()
            try:
                self._peer.start(timeout_seconds=START_SECONDS_MAX)
            except PeerFailed:
                if time_up.is_alive():
                    time_up.cancel()
                    raise
            time_up.join()
            self._end_by(kind, is_cut=True)
        self.start()

    def _cut_short(self, kind: str) -> None:
        process = self._peer.process
        if kind == "power":
            self._cut_power()
        if process is not None:
            process.kill()
