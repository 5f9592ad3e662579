"""Segments in the formats of Kafka 0.8 to 0.10 (magic 0 and 1), and brokers that find them."""

import base64
import shutil
import subprocess
from pathlib import Path

SEGMENTS = {
    0: [
        *("0:none:-:40", "0:gzip:-:5", "0:snappy:-:5", "1:none:create:40", "1:gzip:create:30"),
        *("1:snappy:create:10", "1:lz4:create:10", "1:gzip:append:10"),
    ],
    150: ["1:none:create:20", "1:gzip:create:7", "2:none:create:3", "2:zstd:create:20"],
    200: ["2:gzip:create:10", "1:none:append:5", "1:lz4:append:5", "2:none:create:5"],
}
COUNT = 225
SOURCE = Path(__file__).parent / "conformance" / "disk" / "OldFormats.java"


def write_segments(directory, kafka_libs):
    """Have Kafka's own builders write three segments; return every record as Kafka reads it."""
    records = []
    for base_offset, batches in SEGMENTS.items():
        path = directory / f"{base_offset:020d}.log"
        done = subprocess.run(
            ["java", "-cp", f"{kafka_libs}/*", SOURCE, path, str(base_offset), *batches],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            word, offset, timestamp, key, value = line.split()
            assert word == "record"
            records.append((int(offset), int(timestamp), unpacked(key), unpacked(value)))
    assert [record[0] for record in records] == list(range(COUNT))
    return records


def unpacked(text):
    return None if text == "-" else base64.b64decode(text)


def start_with_segments(peer, segments):
    """Start a broker that finds the segments, as those of topic "legacy", in its directory."""
    from tools.wire_client import WireClient

    peer.start()
    with WireClient(peer.bootstrap) as client:
        # The records are of 2017: they would be too old.
        client.create_topic("legacy", 1, **{"retention.ms": "-1"})
    peer.stop()
    (directory,) = peer.data.rglob("legacy-0")
    for path in directory.iterdir():
        if path.suffix in {".log", ".index", ".timeindex", ".snapshot"}:
            path.unlink()
    for path in segments.iterdir():
        shutil.copy(path, directory)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (directory.parent / name).unlink(missing_ok=True)
    (directory.parent / ".kafka_cleanshutdown").unlink()
    peer.start()
