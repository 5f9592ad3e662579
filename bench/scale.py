"""What many partitions and segments cost: ``python bench/scale.py``.

For each pair of partitions and segments per partition, on a directory that was stopped cleanly:
from spawning the process to the answer to ApiVersions, resident memory then, the CPU spent, open
files, and how long a stop takes, idle and with every partition written to. Memory per partition
is against the row with the fewest partitions.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from ottla.env.clock import SystemClock
from ottla.env.real_disk import RealDisk, RealFile
from ottla.env.rng import SystemRng
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient, batch

TOPIC = "scale"
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"


class HastyFile(RealFile):
    """A file whose sync does nothing: the directories here need not survive a power cut."""

    __slots__ = ()

    def sync(self) -> None:
        """Do nothing."""


class HastyDisk(RealDisk):
    """A disk that makes nothing durable."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> RealFile:
        """Open a file that is not synced."""
        file = super().open(path, create=create, exclusive=exclusive)
        return HastyFile(path, os.dup(file.fileno() or 0))

    def sync_directory(self, path: str) -> None:
        """Do nothing."""


def fill(data: Path, partitions: int, segments: int, segment_bytes: int) -> None:
    """Write a log directory with so many partitions of so many segments, stopped cleanly."""
    data.mkdir(parents=True)
    config = LogConfig()
    manager = LogManager(
        disk=HastyDisk(),
        clock=SystemClock(),
        rng=SystemRng(),
        log_dirs=[str(data)],
        cluster_id=CLUSTER_ID,
        node_id=1,
        config_for=lambda _: config,
    )
    manager.start()
    now_ms = SystemClock().wall_ms()
    one = bytes(
        build_batch([Record(timestamp=now_ms, key=b"k", value=b"v" * 900) for _ in range(5)])
    )
    for number in range(partitions):
        log = manager.create(TopicPartition(TOPIC, number), TopicId(b"scale-of-sixteen"))
        for ordinal in range(segments):
            if ordinal:
                log.roll()
            for _ in range(max(1, segment_bytes // len(one))):
                log.append(memoryview(bytearray(one)), leader_epoch=0)
        log.flush()
    manager.stop()


def write_everywhere(peer: OttlaPeer, partitions: int) -> None:
    """Append one record to every partition."""
    data = batch([b"v"])
    with WireClient(peer.bootstrap, timeout_seconds=120) as client:
        for start in range(0, partitions, 500):
            client.call(
                "produce",
                9,
                transactional_id=None,
                acks=-1,
                timeout_ms=60_000,
                topic_data=[
                    {
                        "name": TOPIC,
                        "partition_data": [
                            {"index": number, "records": data}
                            for number in range(start, min(start + 500, partitions))
                        ],
                    }
                ],
            )


def timed_stop(peer: OttlaPeer) -> float:
    """Stop; return the seconds that took."""
    begin = time.monotonic()
    peer.stop(timeout_seconds=120)
    return time.monotonic() - begin


def measure(
    work: Path, partitions: int, segments: int, *, starts: int, segment_bytes: int
) -> dict[str, float]:
    """Return the figures of one size."""
    data = work / f"{partitions}x{segments}"
    if partitions:
        fill(data, partitions, segments, segment_bytes)
    peer = OttlaPeer(data, {"ottla.max.partitions": 1_000_000})
    peer.start(timeout_seconds=300)  # Takes the partitions in; not measured.
    peer.stop(timeout_seconds=300)
    seconds, cpu, memory, stops, files = [], [], [], [], []
    for _ in range(starts):
        peer.start(timeout_seconds=300)
        seconds.append(peer.started_in_seconds)
        cpu.append(peer.cpu_seconds())
        time.sleep(0.5)
        memory.append(peer.rss_bytes())
        files.append(len(os.listdir(f"/proc/{peer.pid}/fd")))
        stops.append(timed_stop(peer))
    busy = 0.0
    if partitions:
        peer.start(timeout_seconds=300)
        write_everywhere(peer, partitions)
        busy = timed_stop(peer)
    shutil.rmtree(data, ignore_errors=True)
    return {
        "partitions": partitions,
        "segments": segments,
        "start_seconds": round(statistics.median(seconds), 3),
        "start_seconds_min": round(min(seconds), 3),
        "start_cpu_seconds": round(min(cpu), 3),
        "rss_bytes": statistics.median(memory),
        "open_files": max(files),
        "stop_idle_seconds": round(statistics.median(stops), 3),
        "stop_written_seconds": round(busy, 3),
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--sizes", default="0x1,1000x1,1000x10,4000x1")
    parser.add_argument("--segment-bytes", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    machine.add_options(parser)
    arguments = parser.parse_args()
    machine.begin(arguments)
    rows = []
    with tempfile.TemporaryDirectory(prefix="ottla-scale-") as work:
        for size in arguments.sizes.split(","):
            partitions, segments = map(int, size.split("x"))
            row = measure(
                Path(work),
                partitions,
                segments,
                starts=arguments.starts,
                segment_bytes=arguments.segment_bytes,
            )
            rows.append(row)
            more = partitions - rows[0]["partitions"]
            each = (row["rss_bytes"] - rows[0]["rss_bytes"]) / more / 1000 if more else 0
            print(
                f"{partitions:>6} x {segments:<3} start {row['start_seconds']:.2f} s"
                f" (best {row['start_seconds_min']:.2f}, CPU {row['start_cpu_seconds']:.2f}),"
                f" {row['rss_bytes'] / 1e6:.0f} MB, {each:.1f} kB a partition,"
                f" {row['open_files']} files, stop {row['stop_idle_seconds']:.2f} s,"
                f" after a write to each {row['stop_written_seconds']:.2f} s",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
