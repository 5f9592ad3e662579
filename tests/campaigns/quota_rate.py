"""Java's producer at a quota: does it send at that rate, over a minute?

    python -m tests.campaigns.quota_rate [--seconds 60] [--bound 1000000] [--kafka]

Runs kafka-producer-perf-test.sh as fast as it can against a broker that bounds its client id by
``producer_byte_rate``, and measures how much the log grows; with ``--kafka`` a live Kafka beside it
at the same time. Ends with 1 if Ottla's rate is not within ``--percent`` of the bound.

A producer that sends what it can is let through in bursts: Kafka's arithmetic allows ten seconds'
worth at once, then lets next to nothing pass until the sample with the burst no longer counts, some
11 s later, and so on for ever. So one minute has five bursts or six, and is up to 8 % below the
bound or 7 % above it, by when it begins, in Kafka as here. What is measured is therefore the mean
of all minutes that begin within one such period. Needs Java and Kafka's jars.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from tools.kafka_peer import KafkaPeer, tool_command
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

RECORD_BYTES = 1000
BURST_SECONDS = 20
"""Ten windows, and time for the producer to start and to settle."""
LOOK_SECONDS = 0.1
PERIOD_SECONDS_MAX = 13
TOPIC, CLIENT = "perf", "perf"


def log_bytes(wire):
    """Return the size of the topic's log."""
    answer = wire.call("describe_log_dirs", 4, topics=[{"topic": TOPIC, "partitions": [0]}])
    (directory,) = answer["results"]
    return sum(
        part["partition_size"] for topic in directory["topics"] for part in topic["partitions"]
    )


def grown(looks, seconds):
    """Return the bytes per second of each minute (or ``seconds``) that begins in one period.

    ``looks``: times and lengths. The period is what most resembles itself that much later.
    """

    def length_at(when):
        index = bisect([at for at, _ in looks], when)
        (at, had), (then, has) = looks[index - 1], looks[min(index, len(looks) - 1)]
        return had if then <= at else had + (has - had) * (when - at) / (then - at)

    first, last = looks[0][0], looks[-1][0]
    steps = [length_at(first + number / 10) for number in range(int((last - first) * 10))]
    rises = [after - before for before, after in pairwise(steps)]

    def likeness(shift):
        return sum(one * other for one, other in zip(rises, rises[shift:], strict=False)) / (
            len(rises) - shift
        )

    period = max(range(100, 131), key=likeness)
    begins = [first + number / 10 for number in range(period)]
    return [(length_at(at + seconds) - length_at(at)) / seconds for at in begins]


def measured(peer, bound, seconds):
    """Return the rates of all minutes in one period while Java's producer sends what it can."""
    with WireClient(peer.bootstrap) as wire:
        wire.create_topic(TOPIC)
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": CLIENT}],
            "ops": [{"key": "producer_byte_rate", "value": float(bound), "remove": False}],
        }
        answer = wire.call("alter_client_quotas", 1, entries=[entry], validate_only=False)
        assert answer["entries"][0]["error_code"] == 0
        count = bound * (seconds + 3 * BURST_SECONDS) // RECORD_BYTES
        command = tool_command(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", TOPIC, "--num-records", str(count), "--record-size", str(RECORD_BYTES)),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={peer.bootstrap}"),
            *(f"client.id={CLIENT}", "acks=1", "delivery.timeout.ms=600000"),
        )
        java = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(BURST_SECONDS)
            looks, end = [], time.monotonic() + seconds + PERIOD_SECONDS_MAX
            while not looks or looks[-1][0] < end:
                looks.append((time.monotonic(), log_bytes(wire)))
                time.sleep(LOOK_SECONDS)
            assert java.poll() is None, "it sent all before the time was over"
        finally:
            java.kill()
            java.wait()
    return grown(looks, seconds)


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
    off = {}
    for name, rates in found.items():
        mean, *ends = (
            100 * (rate / options.bound - 1)
            for rate in (statistics.mean(rates), min(rates), max(rates))
        )
        off[name] = mean
        print(
            f"{name}: {mean:+.2f} % off the bound in the mean of {options.seconds} s"
            f" ({ends[0]:+.2f} to {ends[1]:+.2f} by when they begin; period {len(rates) / 10} s)"
        )
    return 0 if abs(off[peers[0].name]) <= options.percent else 1


if __name__ == "__main__":
    sys.exit(main())
