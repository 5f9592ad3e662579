"""Java's producer at a quota: does it send at that rate, over a minute?

    python -m tests.campaigns.quota_rate [--seconds 60] [--bound 1000000] [--target kafka]

Runs kafka-producer-perf-test.sh as fast as it can against a broker that bounds its client id by
``producer_byte_rate``, waits until the burst that a quota allows at first is over, and measures how
much the log grows. Ends with 1 if that is not within ``--percent`` of the bound. Needs Java and
Kafka's jars (docs of tools/kafka_peer.py). Both brokers stay below the bound: on two
cores at load 6 to 8, one run each, a live Kafka 4.3 was 6.3 % below it and Ottla 7.7 %.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.kafka_peer import KafkaPeer, tool_command
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

RECORD_BYTES = 1000
BURST_SECONDS = 20
"""Ten windows, and time for the producer to start and to settle."""
TOPIC, CLIENT = "perf", "perf"


def log_bytes(wire):
    """Return the size of the topic's log."""
    answer = wire.call("describe_log_dirs", 4, topics=[{"topic": TOPIC, "partitions": [0]}])
    (directory,) = answer["results"]
    return sum(
        part["partition_size"] for topic in directory["topics"] for part in topic["partitions"]
    )


def measured(peer, bound, seconds):
    """Return how many bytes per second the log grew while Java's producer sent what it could."""
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
            begin, before = time.monotonic(), log_bytes(wire)
            time.sleep(seconds)
            spent, after = time.monotonic() - begin, log_bytes(wire)
            assert java.poll() is None, "it sent all before the time was over"
        finally:
            java.kill()
            java.wait()
    return (after - before) / spent


def main():
    """Measure, and say how far it is off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--bound", type=int, default=1_000_000)
    parser.add_argument("--percent", type=float, default=10.0)
    parser.add_argument("--target", choices=("ottla", "kafka"), default="ottla")
    options = parser.parse_args()
    made = {"ottla": OttlaPeer, "kafka": KafkaPeer}[options.target]
    with tempfile.TemporaryDirectory() as directory, made(Path(directory) / "data") as peer:
        peer.start()
        rate = measured(peer, options.bound, options.seconds)
    off = 100 * (rate / options.bound - 1)
    print(f"{options.target}: {rate:,.0f} bytes/s of {options.bound:,}: {off:+.2f} %")
    return 0 if abs(off) <= options.percent else 1


if __name__ == "__main__":
    sys.exit(main())
