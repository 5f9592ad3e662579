"""A broker in a process of its own, whoever wrote it: started, watched, killed, started again.

Owns what OttlaPeer and KafkaPeer share: readiness (ApiVersions answered), /proc figures, the log.
Linux only (/proc).
"""

import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 1, -1)
"""A whole ApiVersions v0 request: key, version, correlation id, no client id."""
CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLOCK_OF_A_PROCESS = 2
"""CPUCLOCK_SCHED: with a process's number, what clock_getcpuclockid(3) returns."""


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, in seconds, to the microsecond."""
    return time.clock_gettime(~pid << 3 | _CLOCK_OF_A_PROCESS)


class PeerFailed(RuntimeError):
    """The broker did not start, or stopped by itself. The message carries the end of its log."""


class Peer:
    """One broker process. Subclasses give ``command`` and learn the address. Not thread-safe."""

    name = "peer"

    def __init__(self, data: Path) -> None:
        self.data = data
        self.host = "127.0.0.1"
        self.port = 0
        self.started_in_seconds = 0.0
        """From spawning the process to the answer to ApiVersions, of the last start."""
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = data.with_name(data.name + ".out")
        self._ready = threading.Event()
        self._reader: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the listener."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; raises PeerFailed when it does not run."""
        if self.process is None:
            raise PeerFailed(f"{self.name} is not running")
        return self.process.pid

    def command(self) -> Sequence[str]:
        """Return the command line that serves."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        return dict(os.environ)

    def read_line(self, line: str) -> bool:
        """Look at a line of output; True when it says that the broker listens."""
        raise NotImplementedError

    def start(self, *, timeout_seconds: float = 60.0) -> "Peer":
        """Start the process and return when ApiVersions is answered. Raises PeerFailed."""
        self._ready.clear()
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        self.process = subprocess.Popen(
            list(self.command()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(),
        )
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        deadline = begin + timeout_seconds
        try:
            self.wait_until_listening(deadline)
            self.ask_api_versions(deadline)
        except BaseException:
            self.kill9()
            raise
        self.started_in_seconds = time.monotonic() - begin
        return self

    def wait_until_listening(self, deadline: float) -> None:
        """Block until ``read_line`` said so, or the process ended."""
        while not self._ready.wait(0.02):
            self._raise_if_over(deadline)

    def ask_api_versions(self, deadline: float) -> None:
        """Block until ApiVersions is answered."""
        while True:
            try:
                with socket.create_connection((self.host, self.port), timeout=5) as connection:
                    connection.sendall(struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0)
                    if len(connection.recv(10)) == 10:
                        return
            except OSError:
                pass
            self._raise_if_over(deadline)
            time.sleep(0.01)

    def _raise_if_over(self, deadline: float) -> None:
        process = self.process
        if process is None or process.poll() is not None:
            code = None if process is None else process.returncode
            raise PeerFailed(f"{self.name} exited with {code}:\n{self.log_text()[-4000:]}")
        if time.monotonic() > deadline:
            raise PeerFailed(f"{self.name} did not answer in time:\n{self.log_text()[-4000:]}")

    def _read_output(self) -> None:
        process = self.process
        if process is None or process.stdout is None:
            return
        with process.stdout as output, self.log_path.open("ab") as log:
            for line in output:
                log.write(line)
                log.flush()
                if not self._ready.is_set() and self.read_line(line.decode(errors="replace")):
                    self._ready.set()

    def log_text(self) -> str:
        """Return what the process has printed, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def is_running(self) -> bool:
        """Tell whether the process is alive."""
        return self.process is not None and self.process.poll() is None

    def stop(self, *, timeout_seconds: float = 30.0) -> int | None:
        """Send SIGTERM, wait for the end and return the exit code; None when it did not run."""
        return self._end(signal.SIGTERM, timeout_seconds)

    def kill9(self) -> None:
        """Kill the process at once (SIGKILL) and wait for its end."""
        self._end(signal.SIGKILL, 30.0)

    def _end(self, number: signal.Signals, timeout_seconds: float) -> int | None:
        process, self.process = self.process, None
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if self._reader is not None:
                self._reader.join(5)
        return code

    def restart(self) -> "Peer":
        """Stop cleanly and start again, on the same data."""
        self.stop()
        return self.start()

    def cpu_seconds(self) -> float:
        """Return user and system time of the process, in seconds, to the microsecond."""
        return cpu_seconds(self.pid)

    def user_and_system_seconds(self) -> tuple[float, float]:
        """Return both apart, at the kernel's tick: what the program does, and the kernel for it."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) / CLOCK_TICKS_PER_SECOND, int(fields[12]) / CLOCK_TICKS_PER_SECOND

    def rss_bytes(self) -> int:
        """Return the resident set size."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise PeerFailed(f"{self.name} has no VmRSS")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
