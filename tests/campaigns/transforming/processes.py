"""The application as processes: started, listened to, stopped, continued, killed.

Each slot is one transactional id. At most one process of it is meant to live, but a replacement may
meet the one it replaces: a zombie, which has to be kept out.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from tools.kafka_peer import libraries

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = {
    "confluent": "application",
    "ottla": "ottla_application",
    "ottla-async": "ottla_async_application",
}
"""By client, which module is the application; Java's is compiled."""
STEPS = frozenset(
    ("ready", "idle", "committed", "marked", "aborted", "again", "anew", "assigned", "revoked")
)


class Slot:
    """One place for an application process."""

    def __init__(self, name: str, command: list[str], directory: Path) -> None:
        self.name = name
        self.command = command
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self.steps: Counter[str] = Counter()
        """How often each step was told, over all lives."""
        self.committed = 0
        """Records in transactions that were told to be committed."""
        self.heard_at = 0.0
        """When the living process last said anything."""
        self.faults: list[str] = []
        """What no application should say: a stack trace, an assertion."""
        self._numbers = itertools.count()

    def start(self) -> None:
        """Start another process; it becomes the slot's."""
        log = self.directory / f"{self.name}-{next(self._numbers)}.log"
        errors = log.with_suffix(".err")
        with errors.open("wb") as out:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
            )
        self.heard_at = time.monotonic()
        arguments = (self.process, log)
        threading.Thread(target=self._listen, args=arguments, daemon=True).start()

    def _listen(self, process: subprocess.Popen[bytes], path: Path) -> None:
        with path.open("w") as log:
            for line in process.stdout:
                text = line.decode(errors="replace").rstrip()
                log.write(f"{time.monotonic():.3f} {text}\n")
                log.flush()
                if process is self.process:
                    self.heard_at = time.monotonic()
                step, _, rest = text.partition(" ")
                if step in STEPS:
                    self.steps[step] += 1
                if step == "committed":
                    self.committed += int(rest)
        code = process.wait()
        if code != -signal.SIGKILL:
            errors = path.with_suffix(".err").read_text(errors="replace")[-2000:]
            self.faults.append(f"{path.stem} ended with {code}: {errors}")

    def silent_seconds(self) -> float:
        """Return for how long the living process has said nothing."""
        return time.monotonic() - self.heard_at

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        end(self.process)
        self.process = None

    def explain(self) -> None:
        """Let it write where its threads are: a Python process to .err, a JVM to its output."""
        is_java = self.command[0] == "java"
        self.signal(signal.SIGQUIT if is_java else signal.SIGUSR1)
        time.sleep(3)


def end(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process, also one that is stopped; None is none."""
    if process is not None:
        process.kill()
        process.wait()


def command_of(client: str, directory: Path) -> list[str]:
    """Return the command line of an application, without its arguments; compiles Java's."""
    if client in PROGRAMS:
        return [sys.executable, "-m", f"tests.campaigns.transforming.{PROGRAMS[client]}"]
    classes = directory / "classes"
    if not classes.exists():
        source = Path(__file__).with_name("Transforming.java")
        subprocess.run(
            ["javac", "-cp", f"{libraries()}/*", "-d", str(classes), str(source)], check=True
        )
    quick = ["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", *quick, "-cp", f"{classes}:{libraries()}/*", "Transforming"]
