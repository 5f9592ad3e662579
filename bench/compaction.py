"""Compaction: its speed, and what it costs producers: ``python bench/compaction.py``.

Fills a compacted topic that may not be cleaned yet, then measures produce requests of one record
to another topic, one at a time: alone, while the cleaner works (its ratio is altered), and alone
again. Each kind of data gets a broker of its own. The rate is that of the log before, once.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.load import Measure, run
from bench.scenarios import produce_frame, records_of
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.record import Record
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

FILLED, MEASURED = "filled", "measured"
FRAME_COUNT = 200
BATCH_BYTES = 64 * 1024
KEYS = 100_000


def frames_of(client: WireClient, size_bytes: int, codec: Codec) -> tuple[list[bytes], int]:
    """Return Produce frames of keyed records, about 64 KiB each before compression."""
    dice = random.Random(7)
    frames, error_at = [], 0
    count = max(BATCH_BYTES // size_bytes, 1)
    words = [dice.randbytes(8).hex().encode() for _ in range(2000)]
    for _ in range(FRAME_COUNT):
        records = []
        for _ in range(count):
            key = b"key-%07d" % dice.randrange(KEYS)
            value = b"".join(dice.choices(words, k=size_bytes // 16 + 1))[: size_bytes - len(key)]
            records.append(Record(timestamp=int(time.time() * 1000), key=key, value=value))
        frame, error_at = produce_frame(client, FILLED, bytes(build_batch(records, codec=codec)))
        frames.append(frame)
    return frames, error_at


def log_bytes(directory: Path) -> int:
    """Return the size of the log files."""
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def measure(data: Path, size_bytes: int, codec: Codec, fill_bytes: int, seconds: float) -> Any:
    """Fill, then measure the three phases."""
    with OttlaPeer(data, {"log.cleaner.backoff.ms": 20}) as peer:
        peer.start()
        client = WireClient(peer.bootstrap)
        client.create_topic(
            FILLED,
            **{
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "1.0",
                "segment.bytes": str(128 << 20),
            },
        )
        client.create_topic(MEASURED)
        frames, error_at = frames_of(client, size_bytes, codec)
        directory = next(Path(peer.data).rglob(f"{FILLED}-0"))
        while log_bytes(directory) < fill_bytes:
            run(peer, frames, connections=2, depth=4, seconds=1.0, error_at=error_at)
        frame, error_at = produce_frame(client, MEASURED, records_of(1))

        def produce(for_seconds: float) -> Measure:
            return run(
                peer, [frame], connections=1, depth=1, seconds=for_seconds, error_at=error_at
            )

        produce(1.0)
        alone = [produce(seconds)]
        filled = log_bytes(directory)
        allow(client)
        begun, cpu = time.perf_counter(), peer.user_and_system_seconds()
        during: list[Measure] = []
        checkpoint = directory.parent / "cleaner-offset-checkpoint"
        while not checkpoint.exists():
            during.append(produce(0.25))
        took = time.perf_counter() - begun
        cpu_seconds = sum(peer.user_and_system_seconds()) - sum(cpu)
        alone.append(produce(seconds))
        client.close()
        return {
            "record_bytes": size_bytes,
            "codec": codec.name.lower(),
            "filled_megabytes": round(filled / 1e6),
            "left_megabytes": round(log_bytes(directory) / 1e6),
            "seconds": round(took, 2),
            "megabytes_per_second": round(filled / 1e6 / took, 1),
            "broker_cpu_seconds": round(cpu_seconds, 2),
            "alone": latencies(alone),
            "during": latencies(during),
        }


def allow(client: WireClient) -> None:
    """Let the filled topic be cleaned."""
    config = {
        "name": "min.cleanable.dirty.ratio",
        "config_operation": 0,
        "value": "0.01",
    }
    client.call(
        "incremental_alter_configs",
        0,
        resources=[{"resource_type": 2, "resource_name": FILLED, "configs": [config]}],
        validate_only=False,
    )


def latencies(measures: list[Measure]) -> dict[str, float]:
    """Return quantiles in ms over all requests of ``measures``."""
    found = sorted(one for each in measures for one in each.latencies)
    return {
        "requests_per_second": round(len(found) / sum(each.seconds for each in measures)),
        **{
            name: round(found[min(int(len(found) * share), len(found) - 1)] * 1000, 3)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
        },
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--codecs", default="none,lz4,zstd")
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--json", type=Path)
    machine.add_options(parser)
    arguments = parser.parse_args()
    machine.begin(arguments)
    report = []
    for size in map(int, arguments.sizes.split(",")):
        for codec in arguments.codecs.split(","):
            with tempfile.TemporaryDirectory(prefix="ottla-compaction-") as directory:
                row = measure(
                    Path(directory) / "data",
                    size,
                    Codec[codec.upper()],
                    arguments.megabytes * 1_000_000,
                    arguments.seconds,
                )
            report.append(row)
            alone, during = row["alone"], row["during"]
            print(
                f"{size:>5} B {codec:<5} {row['megabytes_per_second']:>6} MB/s"
                f" ({row['filled_megabytes']} MB to {row['left_megabytes']} MB"
                f" in {row['seconds']} s, {row['broker_cpu_seconds']} s of CPU);"
                f" produce p50 {alone['p50']} -> {during['p50']} ms,"
                f" p99 {alone['p99']} -> {during['p99']} ms",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
