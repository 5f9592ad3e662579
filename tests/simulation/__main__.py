"""Simulated hours of whole nodes: ``python dev.py simulate --hours 2 --seed 7``.

A seed stands for many worlds: world 7.0, 7.1, ... differ in everything that ``mix`` draws. Each
lives for some simulated minutes. The first world is lived twice, in processes with different hash
seeds, and has to be the same both times. A world that fails is told as one command.
"""

import argparse
import math
import os
import secrets
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext

from tests.simulation.coverage import Coverage
from tests.simulation.mix import mix_of
from tests.simulation.progress import tell_progress
from tests.simulation.world import World

MINUTES = 20.0
CHECKED_MINUTES = 5.0
NIGHTLY_HOURS = 200.0
HUNTED_HOURS = 5.0
"""Until a mutant has to be found."""
LOST_PAGES = "reboot"
"""Without it a process goes on with the page cache of one whose sync failed, in every world."""


def live(name, minutes, trace=None, without=(), *, is_digested=False):
    """Live one world; return what came of it, as plain values."""
    mix = mix_of(name)
    mix.leave_out(without)
    if LOST_PAGES in without:
        mix.keeps_lost_pages = True
    with open(trace, "w") if trace else nullcontext() as sink:
        world = World(name, minutes * 60, mix=mix, sink=sink, is_digested=is_digested)
        world.run()
    return {
        "name": name,
        "problems": world.problems,
        "seconds": world.loop.now,
        "cpu_seconds": world.cpu_seconds,
        "steps": world.loop.steps,
        "events": world.trace.count,
        "pauses": world.jobs.pauses,
        "loop_waits": world.jobs.loop_waits,
        "digest": world.trace.digest(),
        "turns": (
            world.turns.most_calls,
            world.turns.longest_seconds,
            world.turns.longest_in_world,
        ),
        "coverage": world.coverage,
        "counts": dict(world.history.counts),
        "checked": world.observer.checked,
        "last": list(world.trace.last),
        "mix": mix,
    }


def digest_elsewhere(name, minutes, hash_seed):
    """Live a world in another process; return its digest."""
    command = [sys.executable, "-m", "tests.simulation", "--world", name]
    command += ["--minutes", str(minutes), "--digest"]
    environment = dict(os.environ, PYTHONHASHSEED=str(hash_seed))
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.stdout.strip()


def command_of(name, minutes, without=()):
    text = f"python3 dev.py simulate --world {name} --minutes {minutes:g}"
    return text + "".join(f" --without {each}" for each in without)


def shrink(name, minutes, first):
    """Return the shortest world found that still fails: its minutes, and what is left out."""
    without = []
    needed = first["seconds"] / 60
    mix = first["mix"]
    kinds = [kind for kind, count in mix.clients.items() if count]
    for each in [*mix.faults, *kinds, *(["rot"] if mix.rots else [])]:
        tried = live(name, minutes, without=[*without, each])
        if tried["problems"]:
            without.append(each)
            needed = tried["seconds"] / 60
    # The last round of a shorter world is shorter, too: it may be another world.
    shorter = math.ceil(needed * 10 + 1) / 10
    fails = shorter < minutes and live(name, shorter, without=without)["problems"]
    return (shorter if fails else minutes), without


def tell(result, minutes):
    print(f"\nworld {result['name']} failed after {result['seconds']:.1f} s:")
    for problem in result["problems"][:10]:
        print(f"  {problem}")
    print(f"again: {command_of(result['name'], minutes)} --trace trace.txt", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="dev.py simulate", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="simulated hours, of all worlds")
    parser.add_argument("--seed", default=None, help="which worlds; default: new ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="worlds at a time")
    parser.add_argument("--world", help="live this one only, such as 7.3")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="simulated, of each world")
    parser.add_argument("--trace", help="write what happens in the world to this file")
    parser.add_argument(
        "--without", action="append", default=[], help="leave out a fault or a kind of client"
    )
    parser.add_argument("--shrink", action="store_true", help="leave out all that is not needed")
    parser.add_argument(
        "--nightly", action="store_true", help=f"{NIGHTLY_HOURS:g} hours, then hunt all mutants"
    )
    parser.add_argument("--digest", action="store_true", help="print the trace's digest only")
    parser.add_argument("--nodes", type=int, default=1, help="3: worlds of so many nodes")
    given = parser.parse_args(arguments)
    if given.nodes > 1:
        return several(given)
    if given.world:
        return one(given)
    if given.nightly:
        return nightly(given)
    return many(given)


def several(given):
    """Live worlds of several nodes."""
    from tests.simulation.cluster import running

    return running.one(given) if given.world else running.many(given)


def nightly(given):
    """Live many worlds; then plant each mutant, whether or not something broke."""
    given.hours = NIGHTLY_HOURS
    broken = many(given)
    seed = given.seed or str(secrets.randbelow(1 << 32))
    command = [sys.executable, "-m", "tests.simulation.hunting", "--seed", seed]
    command += ["--hours", str(HUNTED_HOURS), "--jobs", str(given.jobs)]
    return broken or subprocess.run(command, check=False).returncode


def one(given):
    result = live(given.world, given.minutes, given.trace, given.without, is_digested=given.digest)
    if given.digest:
        print(result["digest"])
        return 0
    print(result["mix"])
    print("\n".join(result["last"][-40:]))
    if result["problems"]:
        tell(result, given.minutes)
        if given.shrink:
            needed, without = shrink(given.world, given.minutes, result)
            print(f"the least that fails: {command_of(given.world, needed, without)}")
    report([result], result["cpu_seconds"])
    return 1 if result["problems"] else 0


def many(given):
    seed = given.seed or str(secrets.randbelow(1 << 32))
    count = max(1, round(given.hours * 60 / given.minutes))
    print(f"seed {seed}: {count} worlds of {given.minutes:g} simulated minutes", flush=True)
    began = time.monotonic()
    results = []
    with ProcessPoolExecutor(given.jobs) as pool:
        checks = [
            pool.submit(digest_elsewhere, f"{seed}.0", CHECKED_MINUTES, hash_seed)
            for hash_seed in (1, 2)
        ]
        waiting = [
            pool.submit(live, f"{seed}.{number}", given.minutes, None, given.without)
            for number in range(count)
        ]
        for done in as_completed(waiting):
            results.append(done.result())
            if results[-1]["problems"]:
                tell(results[-1], given.minutes)
            tell_progress(results)
        digests = [check.result() for check in checks]
    if digests[0] != digests[1]:
        print(f"\nworld {seed}.0 is not the same twice: {digests}")
        print("compare the traces of two runs with PYTHONHASHSEED=1 and 2")
    report(results, time.monotonic() - began)
    failed = [result["name"] for result in results if result["problems"]]
    print(f"failed: {', '.join(sorted(failed))}" if failed else "nothing was broken")
    return 1 if failed or digests[0] != digests[1] else 0


def report(results, seconds):
    coverage, counts = Coverage(), {}
    for result in results:
        coverage.add(result["coverage"])
        for what, count in result["counts"].items():
            counts[what] = counts.get(what, 0) + count
    hours = sum(result["seconds"] for result in results) / 3600
    cpu_hours = sum(result["cpu_seconds"] for result in results) / 3600
    steps, pauses, waits = (
        sum(result[what] for result in results) for what in ("steps", "pauses", "loop_waits")
    )
    print()
    for line in coverage.report():
        print(line)
    print(f"done: {', '.join(f'{what} {count}' for what, count in sorted(counts.items()))}")
    checked = sum(result["checked"] for result in results)
    print(f"{checked} promised records looked at, {steps} steps of the loop")
    print(f"{pauses} pauses of jobs; the loop stood still for a lock {waits} times")
    costs = zip(*(one["turns"] for one in results), strict=True)
    calls, longest, in_world = (max(each) for each in costs)
    print(
        f"the costliest turns of a loop: {calls} calls of the disk, "
        f"{longest * 1000:.0f} ms of the processor, {in_world * 1000:.0f} ms of the world"
    )
    print(
        f"{hours:.2f} simulated hours in {seconds:.0f} s, "
        f"{hours / max(cpu_hours, 1e-9):.0f} simulated hours per CPU hour"
    )


if __name__ == "__main__":
    sys.exit(main())
