"""Random requests under random ACLs, to Ottla and to a live Kafka, for minutes: the same answers?

    python -m tests.campaigns.authorization [--minutes 10] [--seed 1] [--rounds 6] [--requests 80]

Each seed is a script of some rounds: a new set of ACLs, then requests of every served API by two
users. The script is played on both brokers, and each pair of answers compared. Prints a line per
seed, each difference as it comes, and how often each API and each error code was met; ends with 1
if there was a difference. A seed that differs is played again by ``--seed N --minutes 0``. Needs
Java and Kafka's jars (docs of tools/kafka_peer.py).
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.authorizing import OPTIONS, SecuredPlay, random_play
from tools.kafka_peer import KafkaPeer
from tools.ottla_peer import OttlaPeer


def played(script, addresses):
    """Return the steps of a script on one broker."""
    with SecuredPlay(addresses) as play:
        script(play)
        return play.steps


def codes(answer):
    """Yield each error code of an answer."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key.endswith("error_code"):
                yield value
            else:
                yield from codes(value)
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from codes(value)


def campaign(addresses, options):
    """Play seed after seed; return how many answers were compared and how many differed."""
    compared, differed, apis, told = 0, 0, Counter(), Counter()
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    while True:
        script = random_play(seed, options.rounds, options.requests)
        mine, theirs = (played(script, where) for where in addresses)
        assert len(mine) == len(theirs)
        different = [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]]
        for one, other in different:
            print(f"seed {seed}: {one.label} {one.request}\n  {one.answer}\n  {other.answer}")
        for step in mine:
            apis[step.request.partition(" ")[0]] += 1
            told.update(codes(step.answer))
        compared, differed = compared + len(mine), differed + len(different)
        print(f"seed {seed}: {len(mine)} answers, {len(different)} differ", flush=True)
        if time.monotonic() >= end:
            break
        seed += 1
    print("APIs:", dict(apis.most_common()))
    print("codes:", dict(sorted(told.items(), key=str)))
    return compared, differed


def main():
    """Start both brokers, play, and say how many answers differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=80)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        peers = [
            made(Path(directory) / made.name, OPTIONS, protocols=("SASL_PLAINTEXT",))
            for made in (OttlaPeer, KafkaPeer)
        ]
        try:
            for peer in peers:
                peer.start()
            addresses = [f"{one.bootstrap} {one.secured['SASL_PLAINTEXT']}" for one in peers]
            compared, differed = campaign(addresses, options)
        finally:
            for peer in peers:
                peer.kill9()
    print(f"{compared:,} answers compared, {differed} differ")
    return 1 if differed else 0


if __name__ == "__main__":
    sys.exit(main())
