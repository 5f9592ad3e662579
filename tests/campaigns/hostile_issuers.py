"""What others wait for while tokens are a nuisance: ``python -m tests.campaigns.hostile_issuers``.

The broker asks a key endpoint every 50 ms that does, in turn, each of the attacks of
tests/e2e/test_hostile_issuer.py; then clients log in, as fast as they can, by tokens each of which
names another key that nobody has. A client that logged in before writes single records, as fast as
in quiet times before and behind each attack. Prints p99 of its answers in ms, in quiet and amid the
attack, and the ratio. Exit code 1 if a ratio is above 2, or a token of nobody's let anybody in.
"""

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.campaigns.quota_figures import p99_ms, waits
from tests.e2e.test_hostile_issuer import ATTACKS, Endpoint, log_in, options_with
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

FLOOD = "logins that name unknown keys"
FLOODING = 8
"""Threads that log in: a refusal takes a tenth of a second."""
TOKENS = 2_000
"""More than are used in one go: each names another key."""
RATIO_MAX = 2.0


@contextmanager
def under(broker, endpoint, name, work, let_in):
    """Attack while the block runs."""
    if name != FLOOD:
        endpoint.attack = ATTACKS[name]
        try:
            yield
        finally:
            endpoint.attack = None
        return
    spawn, strangers = multiprocessing.get_context("spawn"), endpoint.stranger
    tokens = [strangers.token(headers={"kid": uuid.uuid4().hex}) for _ in range(TOKENS)]
    stop, found = spawn.Event(), spawn.Queue()
    process = spawn.Process(target=flood, args=(broker.secured, tokens, work, stop, found))
    process.start()
    try:
        found.get()  # It has begun.
        yield
    finally:
        stop.set()
        let_in += found.get()
        process.join()


class Broker(NamedTuple):
    """What ``log_in`` has to know of one."""

    secured: dict


def flood(secured, tokens, work, stop, found):
    """In a process of its own: log in by each token in turn, from some threads."""
    let_in, left = [], itertools.cycle(tokens)

    def log_in_all():
        while not stop.is_set():
            let_in.append(log_in(Broker(secured), next(left), work))
            if len(let_in) == FLOODING:
                found.put([])

    threads = [
        threading.Thread(target=log_in_all) for _ in range(FLOODING)
    ]  # A refusal takes 0.1 s.
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.put(let_in)


def main():
    """Measure each attack."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="of each half of a turn")
    parser.add_argument("--turns", type=int, default=2, help="quiet, attack")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    worst, let_in = 0.0, []
    with tempfile.TemporaryDirectory() as directory, Endpoint() as endpoint:
        work = Path(directory)
        with OttlaPeer(
            work / "data", options_with(endpoint), protocols=("SASL_PLAINTEXT",)
        ) as broker:
            broker.start()
            with WireClient(broker.bootstrap, client_id="other") as wire:
                wire.create_topic("other")
                waits(wire, options.seconds)
                for name in (*ATTACKS, FLOOD):
                    quiet, loud = [], []
                    for _ in range(options.turns):
                        quiet += waits(wire, options.seconds)
                        with under(broker, endpoint, name, work, let_in):
                            loud += waits(wire, options.seconds)
                    ratio = p99_ms(loud) / p99_ms(quiet)
                    worst = max(worst, ratio)
                    figures = f"quiet {p99_ms(quiet):6.2f}  amid it {p99_ms(loud):6.2f}"
                    print(f"{name:32}{figures}  {ratio:5.2f} x", flush=True)
    print(f"worst {worst:.2f} x; {len(let_in)} logins by unknown keys, {sum(let_in)} let in")
    return 1 if worst > RATIO_MAX or any(let_in) else 0


if __name__ == "__main__":
    sys.exit(main())
