"""Java's producer at a quota: does it send at that rate, over a minute?

    python -m tests.campaigns.quota_rate [--seconds 60] [--bound 1000000] [--kafka]

Runs kafka-producer-perf-test.sh as fast as it can against a broker that bounds its client id by
``producer_byte_rate``, and measures how much the log grows; with ``--kafka`` a live Kafka beside it
at the same time. Ends with 1 if Ottla's rate is not within ``--percent`` of the bound.

A producer that sends what it can is let through in bursts: Kafka's arithmetic allows ten seconds'
worth at once, then lets next to nothing pass until the sample with the burst no longer counts, some
11 s later, and so on for ever. So one minute has five bursts or six, and is up to 8 % below the
bound or 10 % above it, by when it begins, in Kafka as here. What is measured is therefore the rate
from the begin of one burst to the begin of another, as many as make ``--seconds`` or more, after
the first windows. What the arithmetic alone makes of a client that is never late is printed, too:
0.5 to 1 % more than the bound. Needs Java and Kafka's jars.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from ottla.quota.rate import Meter, Windows
from tools.kafka_peer import KafkaPeer, tool_command
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

RECORD_BYTES = 1000
BURST_SECONDS = 20
"""Ten windows, and time for the producer to start and to settle."""
LOOK_SECONDS = 0.1
PERIOD_SECONDS = (9, 14)
"""From one burst to the next: at least, at most."""
BURST_SHARE = 3
"""A second in which the log grows by so many times the bound is of a burst."""
REQUEST_BYTES, BATCH_BYTES = 16_450, 16_384
"""Of Java's producer with its default batches: what counts, and what gets into the log."""
SERVE_MS = 1
TOPIC, CLIENT = "perf", "perf"


def log_bytes(wire):
    """Return the size of the topic's log."""
    answer = wire.call("describe_log_dirs", 4, topics=[{"topic": TOPIC, "partitions": [0]}])
    (directory,) = answer["results"]
    return sum(
        part["partition_size"] for topic in directory["topics"] for part in topic["partitions"]
    )


class Busy(Exception):
    """The producer came to no bursts, so there are no periods."""


def bursts(looks, bound):
    """Return the times at which bursts begin. ``looks``: times and lengths."""
    begins = []
    times = [at for at, _ in looks]
    for at, had in looks:
        after = looks[min(bisect(times, at + 1), len(looks) - 1)]
        is_burst = after[1] - had >= BURST_SHARE * bound * (after[0] - at) > 0
        if is_burst and (not begins or at - begins[-1] >= PERIOD_SECONDS[0]):
            begins.append(at)
    return begins


def grown(looks, bound, seconds):
    """Return (bytes per second, number of periods, their mean length) of whole periods.

    The first burst may have begun before the first look, so it is left out.
    """
    begins = bursts(looks, bound)[1:]
    lengths = dict(looks)
    whole = [last for last in begins if last - begins[0] >= seconds]
    if not whole:
        raise Busy(f"bursts began at {begins}, which make no {seconds} s: is the machine too busy?")
    first, last = begins[0], whole[0]
    count = begins.index(last)
    return (lengths[last] - lengths[first]) / (last - first), count, (last - first) / count


def of_the_arithmetic(bound, seconds):
    """Return the same of a client that sends at once whenever it may, by Kafka's rules alone."""
    meter, now, size, looks = Meter(bound, Windows()), 1000.0, 0, []
    while now < (seconds + 5 * PERIOD_SECONDS[1]) * 1000:
        size += BATCH_BYTES
        now += meter.charge(REQUEST_BYTES, int(now)) + SERVE_MS
        if not looks or now / 1000 - looks[-1][0] >= LOOK_SECONDS:
            looks.append((now / 1000, size))
    return grown(looks, bound, seconds)


def measured(peer, bound, seconds):
    """Return what ``grown`` does of a log to which Java's producer sends what it can."""
    with WireClient(peer.bootstrap) as wire:
        wire.create_topic(TOPIC)
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": CLIENT}],
            "ops": [{"key": "producer_byte_rate", "value": float(bound), "remove": False}],
        }
        answer = wire.call("alter_client_quotas", 1, entries=[entry], validate_only=False)
        assert answer["entries"][0]["error_code"] == 0
        count = bound * (seconds + 6 * BURST_SECONDS) // RECORD_BYTES
        command = tool_command(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", TOPIC, "--num-records", str(count), "--record-size", str(RECORD_BYTES)),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={peer.bootstrap}"),
            *(f"client.id={CLIENT}", "acks=1", "delivery.timeout.ms=600000"),
        )
        java = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(BURST_SECONDS)
            looks, end = [], time.monotonic() + seconds + 4 * PERIOD_SECONDS[1]
            while not looks or looks[-1][0] < end:
                looks.append((time.monotonic(), log_bytes(wire)))
                time.sleep(LOOK_SECONDS)
            assert java.poll() is None, "it sent all before the time was over"
        finally:
            java.kill()
            java.wait()
    try:
        return grown(looks, bound, seconds)
    except Busy as error:
        rate = (looks[-1][1] - looks[0][1]) / (looks[-1][0] - looks[0][0])
        raise Busy(f"{peer.name}: {error} ({rate / bound:.2f} of the bound in all)") from error


def main():
    """Measure, and say how far it is off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--bound", type=int, default=1_000_000)
    parser.add_argument("--percent", type=float, default=2.0)
    parser.add_argument("--kafka", action="store_true", help="a live Kafka beside it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        peers = [OttlaPeer(Path(directory) / "ottla")]
        if options.kafka:
            peers.append(KafkaPeer(Path(directory) / "kafka"))
        for peer in peers:
            stack.enter_context(peer)
            peer.start()
        with ThreadPoolExecutor() as pool:
            runs = pool.map(lambda peer: measured(peer, options.bound, options.seconds), peers)
            try:
                found = dict(zip((peer.name for peer in peers), runs, strict=True))
            except Busy as error:
                print(error)
                return 1
    found["arithmetic"] = of_the_arithmetic(options.bound, options.seconds)
    for name, (rate, count, period) in found.items():
        off = 100 * (rate / options.bound - 1)
        print(f"{name}: {off:+.2f} % off the bound over {count} periods of {period:.2f} s")
    off = 100 * (found[peers[0].name][0] / options.bound - 1)
    return 0 if abs(off) <= options.percent else 1


if __name__ == "__main__":
    sys.exit(main())
