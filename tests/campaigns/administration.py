"""Administer a broker under load, strike it, and prove that no promise breaks.

    python tests/campaigns/administration.py [--rounds 200] [--lanes 3] [--seed 1]

Producers (plain, idempotent, transactional), consumers and committing groups work while topics are
made, deleted and made anew under the same names, records are deleted, options altered, partitions
added and replicas moved, and retention and compaction run all the time. Each round the broker is
killed, stopped, stalled for 11 s, or the power of its file system is cut (root and loop devices are
needed for that; without them those rounds are kills). Then it comes back, and everything that was
acknowledged or seen is looked for, by topic id (``administering/judge.py`` has the rules).

Some rounds in a row are one life, on one directory; lives run beside each other in lanes. A seed
repeats what is asked of whom, not the moments. Prints a JSON report; exit code 1 when a promise was
broken.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.campaigns.administering.life import Life

RUNNING: set["subprocess.Popen[str]"] = set()
"""The lives under way: they end with this process."""
ROUND_SECONDS_MAX = 240.0
"""A life that takes longer hangs."""


def run_life(arguments: argparse.Namespace) -> int:
    """Run one life in this process and print its report."""
    root = Path(tempfile.mkdtemp(prefix="life-", dir=arguments.scratch))
    numbers = rounds_of(arguments.life, arguments)
    keep = None if arguments.keep is None else arguments.keep / f"life-{arguments.life}"
    life = Life(
        root,
        f"{arguments.seed}-{arguments.life}",
        has_power=arguments.life % 2 == 1 and not arguments.without_power,
        load_seconds=arguments.load_seconds,
        keep=keep,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # By way of the unmounting.
    try:
        report = life.run(numbers, arguments.nemesis)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps(report.plain()))
    return 0


def rounds_of(life: int, arguments: argparse.Namespace) -> range:
    """Return the numbers of a life's rounds; with ``--only`` those up to that one."""
    first = life * arguments.rounds_per_life
    end = min(first + arguments.rounds_per_life, arguments.rounds)
    if arguments.only is not None:
        end = arguments.only + 1
    return range(first, end)


def start_life(life: int, scratch: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one life in a process of its own; return its report."""
    command = [sys.executable, __file__, "--life", str(life), "--scratch", str(scratch)]
    command += ["--seed", str(arguments.seed), "--rounds", str(arguments.rounds)]
    command += ["--rounds-per-life", str(arguments.rounds_per_life)]
    command += ["--load-seconds", str(arguments.load_seconds)]
    if arguments.only is not None:
        command += ["--only", str(arguments.only)]
    if arguments.keep is not None:
        command += ["--keep", str(arguments.keep)]
    if arguments.without_power:
        command += ["--without-power"]
    for name in arguments.nemesis:
        command += ["--nemesis", name]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    RUNNING.add(process)
    limit = ROUND_SECONDS_MAX * max(1, len(rounds_of(life, arguments)))
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            output, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
        errors += f"\nlife {life} did not end in {limit:.0f} s"
    RUNNING.discard(process)
    if not output.strip():
        return {"problems": [f"life {life} broke: {errors[-3000:]}"]}
    report = dict(json.loads(output.splitlines()[-1]))
    for problem in report["problems"]:
        print(f"life {life}: {problem}", file=sys.stderr, flush=True)
    if errors.strip():
        print(f"life {life}: {errors[-2000:]}", file=sys.stderr, flush=True)
    return report


def end_early(*_: object) -> None:
    """End the lives, which unmount and kill what is theirs, then this process."""
    for process in tuple(RUNNING):
        process.terminate()
    for process in tuple(RUNNING):
        process.wait()
    os._exit(3)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run all lives in lanes; return the report."""
    begin = time.monotonic()
    count = -(-arguments.rounds // arguments.rounds_per_life)
    lives = list(range(count))
    if arguments.only is not None:
        lives = [arguments.only // arguments.rounds_per_life]
    with (
        tempfile.TemporaryDirectory(prefix="ottla-administration-") as scratch,
        ThreadPoolExecutor(arguments.lanes) as lanes,
    ):
        reports = list(lanes.map(lambda life: start_life(life, Path(scratch), arguments), lives))
    nemeses: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for one in reports:
        nemeses.update(one.get("nemeses", {}))
        counts.update(one.get("counts", {}))
    starts = sorted(each for one in reports for each in one.get("start_seconds", ()))
    service = sorted(each for one in reports for each in one.get("service_seconds", ()))
    problems = [problem for one in reports for problem in one["problems"]]
    return {
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - begin, 1),
        "rounds": sum(one.get("rounds", 0) for one in reports),
        "lives": len(lives),
        "lives_with_problems": sum(1 for one in reports if one["problems"]),
        "nemeses": dict(sorted(nemeses.items())),
        "counts": dict(sorted(counts.items())),
        "records_checked": sum(one.get("checked", 0) for one in reports),
        "start_seconds": _figures(starts),
        "service_seconds": _figures(service),
        "round_seconds": _figures(
            sorted(each for one in reports for each in one.get("round_seconds", ()))
        ),
        "without_power": next(
            (one["without_power"] for one in reports if one.get("without_power")), ""
        ),
        "problem_count": len(problems),
        "problems": problems[:100],
        "verdict": "broken" if problems else "ok",
    }


def _figures(ordered: list[float]) -> dict[str, float]:
    ordered = ordered or [0.0]
    return {"median": round(ordered[len(ordered) // 2], 3), "max": round(ordered[-1], 3)}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rounds-per-life", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=3, help="brokers at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load-seconds", type=float, default=4.0, help="before it is struck")
    parser.add_argument("--only", type=int, metavar="ROUND", help="the life up to this round")
    parser.add_argument("--nemesis", action="append", default=[], help="only these")
    parser.add_argument("--without-power", action="store_true", help="cut no power")
    parser.add_argument("--keep", type=Path, help="where data and logs of broken lives go")
    parser.add_argument("-o", "--output", type=Path, help="the report; else to standard output")
    parser.add_argument("--life", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.life is not None:
        return run_life(arguments)
    signal.signal(signal.SIGTERM, end_early)
    report = run(arguments)
    text = json.dumps(report, indent=2)
    if arguments.output is None:
        print(text)
    else:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0 if report["verdict"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
