"""Java's producer at a quota: does it send at that rate, over a minute?

    python -m tests.campaigns.quota_rate [--seconds 60] [--bound 1000000] [--kafka]

Runs kafka-producer-perf-test.sh as fast as it can against a broker that bounds its client id by
``producer_byte_rate``, and measures how much the log grows; with ``--kafka`` a live Kafka beside it
at the same time. Ends with 1 if Ottla's rate is not within ``--percent`` of the bound.

A producer that sends what it can is let through in bursts: Kafka's arithmetic allows ten seconds'
worth at once, then lets next to nothing pass until the sample with the burst no longer counts, some
11 s later, and so on for ever. So one minute has five bursts or six, and is up to 8 % below the
bound or 10 % above it, by when it begins, in Kafka as here. What is measured is therefore the rate
between two moments at which the producer is furthest behind its bound, which is where a burst
begins: the first after the first windows, and the first that is ``--seconds`` or more later. There
are always two such moments, however late a busy machine makes the producer. What the arithmetic
alone makes of a client that is never late is printed, too: 0.4 % less than the bound, because the
bytes of a request count and not all of them get into the log. Needs Java and Kafka's jars.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from ottla.quota.meter import Meter
from ottla.quota.rate import Windows
from tools.kafka_peer import KafkaPeer, tool_command
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

RECORD_BYTES = 1000
BURST_SECONDS = 20
"""Ten windows, and time for the producer to start and to settle."""
LOOK_SECONDS = 0.1
PERIOD_SECONDS = 12
"""From one burst to the next: at most."""
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


def furthest_behind(looks, bound, begin):
    """Return the look of a period from ``begin`` on that is furthest behind the bound."""
    period = [one for one in looks if begin <= one[0] <= begin + PERIOD_SECONDS]
    return min(period, key=lambda look: look[1] - bound * look[0])


def grown(looks, bound, seconds):
    """Return (bytes per second, seconds that they were measured over) of times and lengths."""
    first = furthest_behind(looks, bound, looks[0][0])
    last = furthest_behind(looks, bound, first[0] + seconds)
    took = last[0] - first[0]
    return (last[1] - first[1]) / took, took


def of_the_arithmetic(bound, seconds):
    """Return the same of a client that sends at once whenever it may, by Kafka's rules alone."""
    meter, now, size, looks = Meter(bound, Windows()), 1000.0, 0, []
    while now < (BURST_SECONDS + seconds + 3 * PERIOD_SECONDS) * 1000:
        size += BATCH_BYTES
        now += meter.charge(REQUEST_BYTES, int(now)) + SERVE_MS
        if now / 1000 > BURST_SECONDS:
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
            looks, end = [], time.monotonic() + seconds + 2 * PERIOD_SECONDS
            while not looks or looks[-1][0] < end:
                looks.append((time.monotonic(), log_bytes(wire)))
                time.sleep(LOOK_SECONDS)
            assert java.poll() is None, "it sent all before the time was over"
        finally:
            java.kill()
            java.wait()
    return grown(looks, bound, seconds)


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
            found = dict(zip((peer.name for peer in peers), runs, strict=True))
    found["arithmetic"] = of_the_arithmetic(options.bound, options.seconds)
    print(f"load {os.getloadavg()[0]:.1f}")
    off = {name: 100 * (rate / options.bound - 1) for name, (rate, _) in found.items()}
    for name, (_, took) in found.items():
        verdict = "within" if abs(off[name]) <= options.percent else "not within"
        print(
            f"{name}: {off[name]:+.2f} % off the bound over {took:.0f} s: "
            f"{verdict} {options.percent:g} %"
        )
    return 0 if abs(off[peers[0].name]) <= options.percent else 1


if __name__ == "__main__":
    sys.exit(main())
