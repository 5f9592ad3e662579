"""Long walks through the model: ``python -m tests.model walk 60000 --seed 5``.

``everywhere N`` visits N states breadth first. ``hunt NAME`` looks for a mutant anew, at random,
and prints the shortest way it found, for ways.txt.
"""

import argparse
import sys
import time

from tests.model.mutants import MUTANTS, planted
from tests.model.walks import Broken, everywhere, shortened, walk


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    does = parser.add_subparsers(dest="does", required=True)
    walking = does.add_parser("walk")
    walking.add_argument("walks", type=int)
    walking.add_argument("--seed", default="1")
    does.add_parser("everywhere").add_argument("states", type=int)
    hunting = does.add_parser("hunt")
    hunting.add_argument("mutant", choices=MUTANTS)
    hunting.add_argument("--walks", type=int, default=100_000)
    hunting.add_argument("--found", type=int, default=5, help="of so many the shortest is taken")
    arguments = parser.parse_args()
    began = time.process_time()
    try:
        if arguments.does == "walk":
            _walk(arguments.walks, arguments.seed)
        elif arguments.does == "everywhere":
            count, depth = everywhere(arguments.states)
            print(f"{count} states, to depth {depth}: all hold")
        else:
            _hunt(arguments)
    except Broken as broken:
        sys.exit(f"{broken.what}, by:\n" + "\n".join(shortened(broken.names)))
    print(f"{time.process_time() - began:.0f} s of CPU time")


def _walk(walks, seed):
    acknowledged = steps = 0
    for number in range(walks):
        count, names = walk(f"{seed}.{number}")
        acknowledged += count
        steps += len(names)
    per_walk = acknowledged / walks
    print(f"{walks} walks, {steps} steps, {per_walk:.1f} records acknowledged in each: all hold")


def _hunt(arguments):
    ways = []
    with planted(arguments.mutant):
        for number in range(arguments.walks):
            try:
                walk(f"{arguments.mutant}.{number}")
            except Broken as broken:
                ways.append(shortened(broken.names))
                print(f"walk {number}: {broken.what}", file=sys.stderr)
                if len(ways) == arguments.found:
                    break
    if not ways:
        sys.exit(f"not found in {arguments.walks} walks")
    print(f"= {arguments.mutant}", *min(ways, key=len), sep="\n")


if __name__ == "__main__":
    main()
