"""Lives worlds of several nodes: ``python3 dev.py simulate --nodes 3 --hours 1``.

As for one node, a seed stands for many worlds, and the first one is lived twice in processes with
other hash seeds.
"""

import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext

from tests.simulation.cluster.mix import cluster_mix_of
from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.progress import tell_progress

CHECKED_MINUTES = 1.0
PROBLEMS_TOLD = 10


def live(name, minutes, *, count=3, trace=None, without=(), is_digested=False):
    """Live one world; return what came of it, as plain values."""
    mix = cluster_mix_of(name)
    mix.leave_out(without)
    with open(trace, "w") if trace else nullcontext() as sink:
        world = ClusterWorld(
            name, minutes * 60, count=count, mix=mix, sink=sink, is_digested=is_digested
        )
        world.run()
    return {
        "name": name,
        "problems": world.problems,
        "seconds": world.loop.now,
        "cpu_seconds": world.cpu_seconds,
        "digest": world.trace.digest(),
        "counts": world.ledger.counts,
        "checked": world.checked,
        "rounds": world.rounds,
        "mix": mix,
        "last": list(world.trace.last),
    }


def digest_elsewhere(name, minutes, count, hash_seed):
    """Live a world in another process; return its digest."""
    command = [sys.executable, "-m", "tests.simulation", "--nodes", str(count), "--world", name]
    command += ["--minutes", str(minutes), "--digest"]
    environment = dict(os.environ, PYTHONHASHSEED=str(hash_seed))
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.stdout.strip()


def command_of(name, minutes, count):
    return f"python3 dev.py simulate --nodes {count} --world {name} --minutes {minutes:g}"


def tell(told, minutes, count):
    print(f"\nworld {told['name']} failed after {told['seconds']:.1f} s:")
    for problem in told["problems"][:PROBLEMS_TOLD]:
        print(f"  {problem}")
    print(f"again: {command_of(told['name'], minutes, count)} --trace trace.txt", flush=True)


def one(given):
    told = live(
        given.world,
        given.minutes,
        count=given.nodes,
        trace=given.trace,
        without=given.without,
        is_digested=given.digest,
    )
    if given.digest:
        print(told["digest"])
        return 0
    print(told["mix"])
    print("\n".join(told["last"][-40:]))
    if told["problems"]:
        tell(told, given.minutes, given.nodes)
    report([told], told["cpu_seconds"])
    return 1 if told["problems"] else 0


def many(given):
    seed = given.seed or str(secrets.randbelow(1 << 32))
    total = max(1, round(given.hours * 60 / given.minutes))
    print(f"seed {seed}: {total} worlds of {given.minutes:g} simulated minutes", flush=True)
    began, results = time.monotonic(), []
    with ProcessPoolExecutor(given.jobs) as pool:
        checks = [
            pool.submit(digest_elsewhere, f"{seed}.0", CHECKED_MINUTES, given.nodes, hash_seed)
            for hash_seed in (1, 2)
        ]
        waiting = [
            pool.submit(
                live, f"{seed}.{number}", given.minutes, count=given.nodes, without=given.without
            )
            for number in range(total)
        ]
        for done in as_completed(waiting):
            results.append(done.result())
            if results[-1]["problems"]:
                tell(results[-1], given.minutes, given.nodes)
            tell_progress(results)
        digests = [check.result() for check in checks]
    if digests[0] != digests[1]:
        print(f"\nworld {seed}.0 is not the same twice: {digests}")
    report(results, time.monotonic() - began)
    failed = sorted(told["name"] for told in results if told["problems"])
    print(f"failed: {', '.join(failed)}" if failed else "nothing was broken")
    return 1 if failed or digests[0] != digests[1] else 0


def report(results, seconds):
    counts = Counter()
    for told in results:
        counts.update(told["counts"])
    print(f"\n{', '.join(f'{what} {number}' for what, number in sorted(counts.items()))}")
    checked, rounds = (sum(told[what] for told in results) for what in ("checked", "rounds"))
    print(f"{checked} records looked at after {rounds} rounds")
    hours, cpu_hours = (
        sum(told[what] for told in results) / 3600 for what in ("seconds", "cpu_seconds")
    )
    print(
        f"{hours:.2f} simulated hours in {seconds:.0f} s, "
        f"{hours / max(cpu_hours, 1e-9):.0f} simulated hours per CPU hour"
    )
