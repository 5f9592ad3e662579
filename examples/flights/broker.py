"""The broker of the story: an ``ottla serve`` of our own, that can be killed and started again."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

START_S_MAX = 20


class Broker:
    """One broker process over one data directory. Its log is kept beside the data."""

    def __init__(self, data: Path, log: Path) -> None:
        self.bootstrap = ""
        self.start_s = 0.0
        self._data = data
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait for its ready line, which names the port; later at the same one."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        port = self.bootstrap.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "ottla", "serve", "--data", str(self._data)]
        command += ["--port", port]
        with self._log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )
        assert self._process.stdout is not None
        self.bootstrap = self._wait_for_address(self._process.stdout)
        self.start_s = time.monotonic() - started

    def _wait_for_address(self, output: IO[str]) -> str:
        for line in output:
            found = re.search(r"Kafka\s+(\S+:\d+)", line)
            if found:
                return found.group(1)
        raise SystemExit(f"error: the broker did not start\n{self._log.read_text()}")

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL, nothing is flushed or closed."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def stop(self) -> None:
        """End it in good order. Harmless when it has ended."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(START_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
