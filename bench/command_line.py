"""The command line beside kcat: ``python bench/command_line.py``.

In turn against one broker (one of this tree, durable, or ``--bootstrap``): produce 300,000 lines
with keys, consume 900,000 as values, by a format and as JSON; then ``--where`` over so many records
more (``--records``, 10 M), with the time until the first match. Then how long each command takes to
do its least, and until its first words. Wall time and CPU of the command's process; medians.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.ottla_peer import OttlaPeer  # noqa: E402 - behind the path to it

LINES = 300_000
OTTLA = [sys.executable, "-m", "ottla"]


class Cost(NamedTuple):
    """Of a command: seconds of the clock, of the processor, and until the first byte."""

    wall: float
    used: float
    first: float


STARTS: dict[str, list[str]] = {
    "ottla": [],
    "ottla --help": ["--help"],
    "ottla version": ["version"],
    "ottla topic list": ["topic", "list"],
    "ottla topic describe": ["topic", "describe", "small"],
    "ottla group list": ["group", "list"],
    "ottla consume (one record)": ["consume", "small"],
    "ottla produce (no record)": ["produce", "small", "-q"],
    "ottla cluster info": ["cluster", "info"],
    "ottla cluster health": ["cluster", "health"],
    "ottla config get": ["config", "get", "topic/small"],
    "ottla txn list": ["txn", "list"],
    "ottla user list": ["user", "list"],
    "ottla quota list": ["quota", "list"],
    "ottla topic size": ["topic", "size"],
    "ottla cat -L": ["cat", "-L"],
}


def measured(
    command: list[str],
    environment: dict[str, str],
    *,
    stdin: BinaryIO | None = None,
    first_bytes: bool = False,
) -> Cost:
    """Return what a command costs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE if first_bytes else subprocess.DEVNULL,
        stderr=subprocess.PIPE if first_bytes else subprocess.DEVNULL,
        env=environment,
    ) as process:
        first = 0.0
        if first_bytes:
            assert process.stdout is not None
            os.read(process.stdout.fileno(), 1)
            first = time.perf_counter() - began
            process.stdout.read()
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, used, first)


def lines_file(directory: str) -> Path:
    """Return a file of lines: a key, a tab, JSON of about 60 bytes."""
    path = Path(directory) / "lines"
    with path.open("w") as file:
        for n in range(LINES):
            value = {"id": n, "total": n % 1000, "user": f"user-{n % 777}", "note": "abcdef"}
            file.write(f"key-{n % 5000}\t{json.dumps(value)}\n")
    return path


class Bench:
    """One broker, and what was measured on it."""

    def __init__(self, bootstrap: str, lines: Path, rounds: int) -> None:
        self.bootstrap = bootstrap
        self.lines = lines
        self.rounds = rounds
        self.environment = {**os.environ, "OTTLA_BOOTSTRAP": bootstrap}
        self.report: dict[str, dict[str, float]] = {}

    def ottla(self, *words: str, stdin: BinaryIO | None = None, first_bytes: bool = False) -> Cost:
        """Run one of our commands; return what ``measured`` does."""
        command = [*OTTLA, *words]
        return measured(command, self.environment, stdin=stdin, first_bytes=first_bytes)

    def kcat(self, *words: str, stdin: BinaryIO | None = None) -> Cost:
        """Run kcat."""
        return measured(["kcat", "-b", self.bootstrap, *words], self.environment, stdin=stdin)

    def fill(self, run: Callable[..., Cost], *words: str) -> Cost:
        """Produce the lines by a command."""
        with self.lines.open("rb") as stdin:
            return run(*words, stdin=stdin)

    def beside(self, name: str, ours: Callable[[], Cost], theirs: Callable[[], Cost]) -> None:
        """Measure both in turn, and print medians and the ratio of walls."""
        found = [(ours(), theirs()) for _ in range(self.rounds)]
        walls = [statistics.median(pair[who].wall for pair in found) for who in (0, 1)]
        used = [statistics.median(pair[who].used for pair in found) for who in (0, 1)]
        ratio = walls[0] / walls[1]
        self.report[name] = {"ottla": walls[0], "kcat": walls[1], "ratio": ratio}
        print(
            f"{name:<34} ottla {walls[0]:6.2f} s ({used[0]:.2f} CPU)"
            f"   kcat {walls[1]:6.2f} s ({used[1]:.2f} CPU)   {ratio:.2f} x",
            flush=True,
        )

    def against_kcat(self) -> None:
        """Produce and consume beside kcat."""
        for topic in ("ours", "theirs", "read", "small"):
            self.ottla("topic", "create", topic, "-p", "3")
        self.beside(
            f"produce {LINES:,} lines with keys",
            lambda: self.fill(self.ottla, "produce", "ours", "-q", "-f", r"%k\t%v"),
            lambda: self.fill(self.kcat, "-P", "-t", "theirs", "-K", r"\t"),
        )
        for _ in range(3):
            self.fill(self.kcat, "-P", "-t", "read", "-K", r"\t")
        ends = ("-C", "-e", "-q", "-t", "read")
        for name, ours, theirs in (
            ("values", [], []),
            ("by a format", ["-f", r"%k\t%v\n"], ["-f", r"%k\t%s\n"]),
            ("as JSON", ["-o", "jsonl"], ["-J"]),
        ):
            self.beside(
                f"consume {3 * LINES:,}, {name}",
                lambda more=tuple(ours): self.ottla("consume", "read", *more),
                lambda more=tuple(theirs): self.kcat(*ends, *more),
            )

    def where(self, records: int) -> None:
        """Search so many records for a value that few have, and for one that none has."""
        self.ottla("topic", "create", "large", "-p", "3")
        times = max(1, records // LINES)
        for _ in range(times):
            self.fill(self.kcat, "-P", "-t", "large", "-K", r"\t")
        count = times * LINES
        for condition in ("value.user = nobody", "value.id = 299999", "value.user = user-5"):
            wall, used, first = self.ottla("consume", "large", "-w", condition, first_bytes=True)
            rate = count / used
            self.report[condition] = {"wall": wall, "cpu": used, "per_cpu_second": rate}
            print(
                f"-w {condition!r:<31} {count:,} records in {wall:.2f} s, {rate / 1e6:.2f} M per s"
                f" of CPU, first words after {first * 1000:.0f} ms",
                flush=True,
            )

    def starts(self) -> None:
        """Time the least that each command does."""
        for name, words in STARTS.items():
            found = [self.ottla(*words, first_bytes=True) for _ in range(9)]
            wall = statistics.median(each.wall for each in found) * 1000
            first = statistics.median(each.first for each in found) * 1000
            self.report[name] = {"wall_ms": wall, "first_ms": first}
            print(f"{name:<34} {wall:5.0f} ms, first words {first:4.0f} ms", flush=True)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="a broker that runs; its topics get in the way")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=10_000_000, help="for --where; 0: without")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not sys.flags.dont_write_bytecode:
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "src")], check=False)
    with tempfile.TemporaryDirectory(prefix="ottla-commands-") as directory:
        peer = None
        if arguments.bootstrap is None:
            peer = OttlaPeer(Path(directory) / "data")
            peer.start()
        try:
            bootstrap = arguments.bootstrap or peer.bootstrap
            bench = Bench(bootstrap, lines_file(directory), arguments.rounds)
            bench.against_kcat()
            bench.starts()
            if arguments.records:
                bench.where(arguments.records)
        finally:
            if peer is not None:
                peer.stop()
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
