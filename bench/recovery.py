"""How long a start takes after a kill with much unflushed: ``python bench/recovery.py``.

One partition with one segment of 1 GiB, its recovery point 0 and no mark of a clean stop: the same
bytes for every broker, without indexes and snapshots, so that all of it has to be read and summed.
From spawning the process to the answer to ApiVersions and to ListOffsets with the log's end, and
the CPU spent. The file is in the page cache, and on the disk unless ``--dirty``. Every batch is of
an idempotent producer.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.run import make_peers
from ottla.records.batch import patch_offsets
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tools.peer import Peer
from tools.wire_client import WireClient

TOPIC = "recovery"
SEGMENT = "00000000000000000000.log"
KEPT = ("partition.metadata",)
FORGOTTEN = (".clean_shutdown", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint")


def write_segment(path: Path, batch_bytes: int, total_bytes: int) -> int:
    """Write batches of about ``batch_bytes``, one record each; return how many."""
    batch = build_batch(
        [Record(timestamp=int(time.time() * 1000), key=None, value=b"v" * (batch_bytes - 75))],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    count = total_bytes // len(batch)
    with path.open("wb") as file:
        gathered = bytearray()
        for offset in range(count):
            patch_offsets(batch, offset, 0)
            gathered += batch
            if len(gathered) > 4_000_000:
                file.write(gathered)
                gathered.clear()
        file.write(gathered)
    return count


def prepare(peer: Peer, segment: Path, *, is_dirty: bool) -> None:
    """Make the directory of ``peer``, which is stopped, what a kill leaves behind."""
    for name in FORGOTTEN:
        (peer.data / name).unlink(missing_ok=True)
    directory = peer.data / f"{TOPIC}-0"
    for path in directory.iterdir():
        if path.name not in KEPT:
            path.unlink()
    shutil.copyfile(segment, directory / SEGMENT)
    if not is_dirty:
        with (directory / SEGMENT).open("rb+") as file:
            os.fsync(file.fileno())
    with (directory / SEGMENT).open("rb") as file:
        while file.read(1 << 22):
            pass


def end_offset(peer: Peer) -> int:
    """Wait until the partition tells its end."""
    with WireClient(peer.bootstrap, timeout_seconds=60) as client:
        while True:
            code, offset = client.list_offsets(TOPIC, [0])[0]
            if code == 0:
                return offset
            time.sleep(0.01)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--targets", default="ottla durable,kafka")
    parser.add_argument("--batches", default="150,16384", help="their sizes, in bytes")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--dirty", action="store_true", help="leave the file unsynced")
    parser.add_argument("--json", type=Path)
    machine.add_options(parser)
    arguments = parser.parse_args()
    machine.begin(arguments)
    report = []
    with tempfile.TemporaryDirectory(prefix="ottla-recovery-") as work:
        peers = make_peers(arguments.targets.split(","), Path(work))
        for peer in peers.values():
            with peer.start(timeout_seconds=120), WireClient(peer.bootstrap) as client:
                client.create_topic(TOPIC)
        for batch_bytes in map(int, arguments.batches.split(",")):
            segment = Path(work, "segment")
            count = write_segment(segment, batch_bytes, arguments.mebibytes << 20)
            for name, peer in peers.items():
                rows = [
                    measure(peer, segment, count, is_dirty=arguments.dirty)
                    for _ in range(arguments.starts)
                ]
                first, ready, cpu = min(rows)
                report.append(
                    {
                        "target": name,
                        "batch_bytes": batch_bytes,
                        "api_versions_seconds": round(first, 3),
                        "end_offset_seconds": round(ready, 3),
                        "cpu_seconds": round(cpu, 3),
                    }
                )
                print(
                    f"{batch_bytes:>7}-byte batches  {name:<10} ApiVersions {first:6.2f} s,"
                    f" log end {ready:6.2f} s, CPU {cpu:6.2f} s  (best of {arguments.starts})",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def measure(peer: Peer, segment: Path, count: int, *, is_dirty: bool) -> tuple[float, float, float]:
    """Return seconds to ApiVersions and to the log's end, and the CPU spent until then."""
    prepare(peer, segment, is_dirty=is_dirty)
    begin = time.monotonic()
    peer.start(timeout_seconds=300)
    found = end_offset(peer)
    ready = time.monotonic() - begin
    cpu = peer.cpu_seconds()
    peer.stop()
    if found != count:
        raise SystemExit(f"{peer.name} ends at {found}, not at {count}")
    return peer.started_in_seconds, ready, cpu


if __name__ == "__main__":
    sys.exit(main())
