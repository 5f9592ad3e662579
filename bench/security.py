"""What security and quotas cost, in one go of some eight minutes. ``python bench/security.py``.

Prints, with what is aimed at: what an authorizer and quotas cost a request (``bench/gate.py``); CPU
of requests over TLS beside Apache Kafka's (``bench/tls.py``); how long a client waits for its
answers while others make 200 handshakes a second; whether a connection is lost while certificates
change; and at which rate Java's producer sends under a quota (``tests/campaigns/quota_rate.py``).
``--without-kafka`` leaves out what needs Java. Meant for a quiet machine.
"""

import argparse
import asyncio
import multiprocessing
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import gate
from bench.tls import COUNTS, Client, Side, make_certificate, warm_rounds
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer

HANDSHAKES = 200
"""A second."""
STORM_SECONDS = 8.0
PACE_SECONDS = 0.005
TIMES = 3
"""The storm and the quiet are measured so often, in turn."""
RELOADS = 15


def print_gate(rounds: int) -> None:
    """Print what guards cost."""
    least = asyncio.run(gate.measure(rounds))
    for kind in gate.KINDS:
        none, both = least[kind, "neither"], least[kind, "both"]
        print(f"{kind}: authorizer and quotas {both - none:+.2f} us on {none:.1f} (aim: 1)")


def print_tls(sides: list[Side], rounds: int) -> None:
    """Print CPU over TLS: the median of the rounds, and Ottla's over Kafka's."""
    for what, count in COUNTS.items():
        found = warm_rounds(sides, what, count, rounds)
        ours, *theirs = (statistics.median(each) for each in found)
        beside = f", Kafka {theirs[0]:.0f}: {ours / theirs[0]:.2f} (aim: 0.5)" if theirs else ""
        print(f"TLS, {what}: {ours:.0f} us of CPU{beside}", flush=True)


def storm(where: str, ca: Path, until: float, made: "multiprocessing.Queue[int]") -> None:
    """Make handshakes at a steady rate; tell how many."""
    context, count, next_at = trusting(ca), 0, time.monotonic()
    while time.monotonic() < until:
        Client(where, context).close()
        count, next_at = count + 1, next_at + 2 / HANDSHAKES
        time.sleep(max(next_at - time.monotonic(), 0))
    made.put(count)


def p99_ms(side: Side, seconds: float) -> float:
    """Return the 99th percentile of the time until an answer, of requests at a steady pace."""
    body, waits, end = side.bodies["1 record"], [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        side.client.ask(body)
        waits.append(time.perf_counter() - began)
        time.sleep(PACE_SECONDS)
    return statistics.quantiles(waits, n=100)[98] * 1000


def print_storm(side: Side, ca: Path) -> None:
    """Print p99 in quiet and in a storm of handshakes by two other processes."""
    quiet, loud, rates = [], [], []
    spawn = multiprocessing.get_context("spawn")
    for _ in range(TIMES):
        quiet.append(p99_ms(side, STORM_SECONDS))
        made = spawn.Queue()
        until = time.monotonic() + STORM_SECONDS + 1
        others = [spawn.Process(target=storm, args=(side.where, ca, until, made)) for _ in "ab"]
        for other in others:
            other.start()
        time.sleep(1)  # A Python starts and imports.
        loud.append(p99_ms(side, STORM_SECONDS - 0.5))
        for other in others:
            other.join()
        rates.append(sum(made.get() for _ in others) / STORM_SECONDS)
    before, during = statistics.median(quiet), statistics.median(loud)
    print(
        f"{statistics.median(rates):.0f} handshakes a second: p99 {during:.2f} ms, quiet"
        f" {before:.2f}: {during / before:.2f} (aim: 2)"
    )


def trusting(ca: Path) -> ssl.SSLContext:
    """Return a client's context."""
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    return context


def print_reload(directory: Path) -> None:
    """Print how many requests failed while the broker's certificate changed again and again."""
    live = directory / "live.pem"
    options = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": live,
        "ottla.ssl.reload.interval.ms": 200,
    }
    live.write_bytes(make_certificate(directory).read_bytes())
    with OttlaPeer(directory / "reloaded", options, protocols=("SSL",)) as peer:
        peer.start()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        side = Side(peer, "SSL", context)
        side.prepare()
        stop, counts = threading.Event(), {"asked": 0, "new": 0, "failed": 0}

        def ask() -> None:
            while not stop.is_set():
                try:
                    side.client.ask(side.bodies["16 kB"])
                    counts["asked"] += 1
                    Client(side.where, context).close()
                    counts["new"] += 1
                except OSError:
                    counts["failed"] += 1

        load = threading.Thread(target=ask)
        load.start()
        seen = set()
        for _ in range(RELOADS):
            fresh = directory / "fresh.pem"
            fresh.write_bytes(make_certificate(directory).read_bytes())
            wanted = ssl.PEM_cert_to_DER_cert((directory / "certificate.pem").read_text())
            os.replace(fresh, live)
            end = time.monotonic() + 10
            while time.monotonic() < end:
                client = Client(side.where, context)
                shown = client.socket.getpeercert(binary_form=True)  # type: ignore[attr-defined]
                client.close()
                if shown == wanted:
                    seen.add(shown)
                    break
                time.sleep(0.05)
        stop.set()
        load.join()
    print(
        f"{len(seen)} of {RELOADS} new certificates shown while {counts['asked']} requests and"
        f" {counts['new']} new connections came; {counts['failed']} failed (aim: 0)"
    )


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--rounds", type=int, default=10, help="of requests without a socket")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    print_gate(arguments.rounds)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = make_certificate(directory)
        options = {"ssl.keystore.type": "PEM", "ssl.keystore.location": store}
        peers: list[Peer] = [OttlaPeer(directory / "ottla", options, protocols=("SSL",))]
        if not arguments.without_kafka:
            from tools.kafka_peer import KafkaPeer

            peers.append(KafkaPeer(directory / "kafka", options, protocols=("SSL",)))
        sides = []
        for peer in peers:
            stack.enter_context(peer)
            peer.start()
            sides.append(Side(peer, "SSL", trusting(directory / "certificate.pem")))
            sides[-1].prepare()
        print_tls(sides, rounds=30)
        for peer in peers[1:]:
            peer.stop()
        print_storm(sides[0], directory / "certificate.pem")
    with tempfile.TemporaryDirectory() as scratch:
        print_reload(Path(scratch))
    if not arguments.without_kafka:
        command = [sys.executable, "-m", "tests.campaigns.quota_rate", "--kafka"]
        subprocess.run(command, cwd=Path(__file__).resolve().parent.parent, check=False)


if __name__ == "__main__":
    main()
