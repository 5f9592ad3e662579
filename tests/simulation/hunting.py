"""Hunts mutants: how many simulated hours does it take until the simulation breaks?

    python -m tests.simulation.hunting --hours 2 --seed 1 --seed 2    all of them, by two seeds
    python -m tests.simulation.hunting --mutant "a resent batch is stored again"
    python -m tests.simulation.hunting --results hunt.txt --table     what was found until now
    python -m tests.simulation.hunting --several    the mutants of several nodes, in their worlds
    python -m tests.simulation.hunting --mutant M --theme T     only in worlds of that theme

Each mutant lives in processes of its own. A world that is broken without it, too, proves nothing:
the worlds in which something was found are lived without a mutant, once for all. With ``--results``
each hunt is a line of JSON in a file, as is each such world, and none that came to an end is
hunted again: the file may be of many runs.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from tests.simulation.mutants import MUTANTS, MUTANTS_OF_SEVERAL, plant

MINUTES = 5.0
THEME_WORLDS_MAX = 10_000
"""Of a seed."""
PATIENCE_SECONDS = 1800.0
LONGER_SECONDS = 60.0
"""For how much longer a world has to be whole without the mutant that broke it."""
JUDGES = {
    "the device": r"on the device",
    "what would be left": r", left: ",
    "records: lost, moved, doubled": r"lost:|promised at|doubled|was seen|acknowledged|holes"
    r"|altered|invented|follows|refused, and yet|log start|high watermark|deleted below"
    r"|the dead topic|bad checksum|retention takes",
    "producers: order": r"gap in a producer|out of order",
    "transactions: visible, hidden": r"is visible|is hidden|committed readers|bound is",
    "committed offsets": r"committed offset",
    "group members": r"is given to|that has left",
    "topics and options": r"was deleted, and is there|by nobody|partitions, not|set was|by itself",
    "service: a client waits for ever": r"is stuck|not served|did not come|nothing is left",
    "service: an answer": r"error \d+|CreateTopics|DeleteTopics|Heartbeat: -?\d+",
    "faults that are logged": r"the log has a fault",
    "the node's life": r"gave up|stop failed|goes on|out of service|no member",
    "replicas: not the same": r" differ: | differ in |lead in epoch",
    "invariants": r"an invariant|a callback failed|a protocol failed|exception|AssertionError",
    "the loop": r"the loop waits|a turn of the loop",
    "at rest: nothing is left": r"all is quiet|has stopped, and there",
    "patience of the hunter": r"it never ended",
}
"""By what they look at: how their problems read. The first that fits."""


def judge_of(problem):
    """Return which judge told a problem."""
    return next((who for who, how in JUDGES.items() if re.search(how, problem)), "others")


def names_of(seed, theme, mix_of):
    """Yield a seed's worlds; with a theme only those of it. Raises ValueError: there is none."""
    for number in range(THEME_WORLDS_MAX):
        name = f"{seed}.{number}"
        if not theme or mix_of(name).theme == theme:
            yield name
    raise ValueError(f"few worlds of {seed} have the theme {theme!r}")


def live_until_broken(seed, hours, world, *, theme="", is_several=False):
    """Live worlds one after the other, in this process; tell the first that broke, and when."""
    if is_several:
        from tests.simulation.cluster.mix import cluster_mix_of as mix_of
        from tests.simulation.cluster.running import live
    else:
        from tests.simulation.__main__ import live
        from tests.simulation.mix import mix_of

    lived = 0.0
    count = round(hours * 60 / MINUTES)
    for name in [world] if world else islice(names_of(seed, theme, mix_of), count):
        told = live(name, MINUTES)
        lived += told["seconds"]
        if told["problems"]:
            found = {"world": name, "hours": lived / 3600, "problem": told["problems"][0]}
            return {**found, "at": told["seconds"]}
    return {"world": None, "hours": lived / 3600, "problem": ""}


def child(seeds, *arguments):
    """Do it in another process; return what came of it by each seed."""
    command = [sys.executable, "-m", "tests.simulation.hunting", "--child", *arguments]
    command += [f"--seed={seed}" for seed in seeds]
    patience = PATIENCE_SECONDS * len(seeds)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return [{"world": "?", "hours": 0.0, "problem": "it never ended"}] * len(seeds)
    if done.returncode:
        why = done.stderr[-400:] or f"it ended with {done.returncode}"
        failed = {"world": None, "hours": 0.0, "problem": why, "failed": True}
        return [failed] * len(seeds)
    return [json.loads(line) for line in done.stdout.splitlines()[-len(seeds) :]]


def kind_of(mutant):
    """Return the arguments by which a child lives the worlds that a mutant is hunted in."""
    return ("--several",) if mutant in MUTANTS_OF_SEVERAL else ()


def whole_until(world, wholes, kind):
    """Return until which second a world is whole without a mutant; ``wholes``: what is known."""
    if world not in wholes:
        (told,) = child([world], "--world", world, *kind)
        is_whole = told["world"] is None and not told.get("failed")
        wholes[world] = math.inf if is_whole else told.get("at", 0.0)
    return wholes[world]


def hunt(mutant, seeds, hours, wholes, theme):
    """Return what came of a mutant's hunts by each seed, in one process; see ``judged``."""
    where = ("--theme", theme, *kind_of(mutant))
    found = child(seeds, "--mutant", mutant, "--hours", str(hours), *where)
    hunts = [judged(mutant, seed, told, wholes) for seed, told in zip(seeds, found, strict=True)]
    return [one | {"theme": theme} for one in hunts]


def judged(mutant, seed, told, wholes):
    """Return what came of a hunt: ``how`` is found, not found, unclear or BROKEN."""
    how = "found"
    if told.get("failed"):
        how = "BROKEN"
    elif told["world"] is None:
        how = "not found"
    elif (
        # Until the mutant has done something both worlds are one.
        told["world"] != "?"
        and whole_until(told["world"], wholes, kind_of(mutant)) < told["at"] + LONGER_SECONDS
    ):
        how = "unclear"  # It breaks without the mutant, too.
    problem = told["problem"].strip().splitlines() or [""]
    said = problem[-1 if how == "BROKEN" else 0][:160]
    return {
        "how": how,
        "mutant": mutant,
        "seed": seed,
        "hours": round(told["hours"], 2),
        "world": told["world"],
        "problem": said,
    }


def line_of(told):
    return "{how:9} {mutant}: {hours:.2f} h, {world}: {problem}".format(**told)


SURE = ("found", "not found")
"""Hunts that say something of their mutant."""


def table_of(results):
    """Return what is known of each mutant, as a table for people."""
    lines = ["| mutant | found | median hours | in a theme | told by |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for mutant in (*MUTANTS, *MUTANTS_OF_SEVERAL):
        known = [one for one in results if one["mutant"] == mutant and one["how"] in SURE]
        mine = [one for one in known if not one.get("theme")]
        themed = [one for one in known if one.get("theme")]
        hits = [one for one in mine if one["how"] == "found"]
        judges = sorted({judge_of(one["problem"]) for one in known if one["how"] == "found"})
        in_theme = "; ".join(
            f"{one['hours']:.2f} ({one['theme']})"
            if one["how"] == "found"
            else f"not within {one['hours']:.1f} ({one['theme']})"
            for one in themed
        )
        # One that was not found within its budget takes longer than any that was.
        hours = [one["hours"] if one in hits else float("inf") for one in mine]
        median = statistics.median_low(hours) if hours else float("inf")
        longest = max((one["hours"] for one in mine), default=0.0)
        said = f"{median:.2f}" if median < float("inf") else f"more than {longest:.1f}"
        found = f"{len(hits)} of {len(mine)}" if mine else ""
        lines.append(
            f"| {mutant} | {found} | {said if mine else ''} | {in_theme} | {'; '.join(judges)} |"
        )
    return "\n".join(lines)


def read_results(path):
    """Return what came of hunts, and until when worlds are whole without a mutant."""
    if path is None or not path.exists():
        return [], {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    wholes = {one["whole"]: float(one["until"]) for one in lines if "whole" in one}
    return [one for one in lines if "whole" not in one], wholes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutant", action="append", default=[])
    parser.add_argument("--seed", action="append", default=[])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--world")
    parser.add_argument("--theme", default="", help="live worlds of this theme only")
    parser.add_argument("--several", action="store_true", help="mutants of several nodes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, help="append to this file what came of each hunt")
    parser.add_argument("--table", action="store_true", help="print what is in the results, only")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    seeds = given.seed or ["1"]
    if given.child:
        if given.mutant:
            plant(given.mutant[0])  # Before anything of it is imported.
        for seed in seeds:
            told = live_until_broken(
                seed, given.hours, given.world, theme=given.theme, is_several=given.several
            )
            print(json.dumps(told), flush=True)
        return 0
    results, wholes = read_results(given.results)
    kept = set(wholes)
    if given.table:
        print(table_of(results))
        return 0
    names = given.mutant or list(MUTANTS_OF_SEVERAL if given.several else MUTANTS)
    known = {
        (one["mutant"], one["seed"])
        for one in results
        if one["how"] != "BROKEN" and one.get("theme", "") == given.theme
    }
    to_come = [(name, [seed for seed in seeds if (name, seed) not in known]) for name in names]
    hunts = [(name, left) for name, left in to_come if left]
    with ThreadPoolExecutor(given.jobs) as pool:
        for found in pool.map(lambda one: hunt(*one, given.hours, wholes, given.theme), hunts):
            for told in found:
                print(line_of(told), flush=True)
            results += found
            if given.results is not None:
                lines = list(found)
                lines += [{"whole": one, "until": str(wholes[one])} for one in set(wholes) - kept]
                kept |= set(wholes)
                with given.results.open("a") as file:
                    file.writelines(json.dumps(one) + "\n" for one in lines)
    found = {one["mutant"] for one in results if one["how"] == "found"} & set(names)
    print(f"{len(found)} of {len(names)} mutants found, by seeds {', '.join(seeds)}")
    return 0 if len(found) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
