"""Hunts mutants: how many simulated hours does it take until the simulation breaks?

    python -m tests.simulation.hunting --hours 2 --seed 1             all of them
    python -m tests.simulation.hunting --mutant "a resent batch is stored again"

Each mutant lives in processes of its own. A world that is broken without it, too, proves nothing.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.simulation.mutants import MUTANTS, plant

MINUTES = 10.0
PATIENCE_SECONDS = 1800.0


def live_until_broken(mutant, seed, hours, world):
    """Live worlds one after the other, in this process; tell the first that broke."""
    if mutant:
        plant(mutant)
    from tests.simulation.__main__ import live

    lived = 0.0
    names = [world] if world else [f"{seed}.{n}" for n in range(round(hours * 60 / MINUTES))]
    for name in names:
        told = live(name, MINUTES)
        lived += told["seconds"]
        if told["problems"]:
            return {"world": name, "hours": lived / 3600, "problem": told["problems"][0]}
    return {"world": None, "hours": lived / 3600, "problem": ""}


def child(*arguments):
    """Do it in another process; return what came of it."""
    command = [sys.executable, "-m", "tests.simulation.hunting", "--child", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"world": "?", "hours": 0.0, "problem": "it never ended"}
    if done.returncode:
        return {"world": None, "hours": 0.0, "problem": done.stderr[-400:], "failed": True}
    return json.loads(done.stdout.splitlines()[-1])


def hunt(mutant, seed, hours):
    """Return one line about a mutant, and whether it was found."""
    told = child("--mutant", mutant, "--seed", seed, "--hours", str(hours))
    if told.get("failed"):
        return f"BROKEN    {mutant}: {told['problem']}", False
    if told["world"] is None:
        return f"not found {mutant}: in {told['hours']:.2f} h", False
    if told["world"] != "?" and child("--world", told["world"])["world"] is not None:
        return f"unclear   {mutant}: world {told['world']} breaks without it, too", False
    problem = told["problem"].splitlines()[0][:110]
    return f"found     {mutant}: {told['hours']:.2f} h, {told['world']}: {problem}", True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutant", action="append", default=[])
    parser.add_argument("--seed", default="1")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--world")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        mutant = given.mutant[0] if given.mutant else None
        print(json.dumps(live_until_broken(mutant, given.seed, given.hours, given.world)))
        return 0
    found = 0
    names = given.mutant or list(MUTANTS)
    with ThreadPoolExecutor(given.jobs) as pool:
        for line, is_found in pool.map(lambda name: hunt(name, given.seed, given.hours), names):
            print(line, flush=True)
            found += is_found
    print(f"{found} of {len(names)} mutants found, each in at most {given.hours:g} simulated hours")
    return 0 if found == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
