"""The disk with the metadata of several nodes is full to the last byte: the others go on.

Needs the right to mount (root); skipped without.
"""

import json
import time

import pytest

from tests.commands import ottla
from tests.small_volume import small_volume
from tools.nodes_peer import NodesPeer

pytestmark = pytest.mark.timeout(240)
PATIENCE_SECONDS = 60
OPTIONS = {
    "replica.lag.time.max.ms": 2000,
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 3,
}


@pytest.fixture
def data(tmp_path):
    """The data directory on a volume of 96 MiB; those of nodes 2 and 3 are elsewhere."""
    with small_volume(tmp_path / "data", "96m") as place:
        (place / "nodes").mkdir()
        for node in ("2", "3"):
            (tmp_path / node).mkdir()
            (place / "nodes" / node).symlink_to(tmp_path / node)
        yield place


def in_sync(peer):
    described = json.loads(ottla(peer, "topic", "describe", "t", "-o", "json"))
    return [sorted(each["isr"]) for each in described["partitions"]]


def wait_for(peer, isr):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while in_sync(peer) != [isr] * 3:
        assert time.monotonic() < deadline, (in_sync(peer), peer.log_text())
        time.sleep(0.1)


def produce(peer, values):
    """Spread values over three partitions; return when all are acknowledged by who is in sync."""
    for number in range(3):
        lines = "".join(f"{one}\n" for one in values if one % 3 == number)
        ottla(peer, "produce", "t", "-p", str(number), "--acks", "all", text=lines)


def fill(file):
    """Fill the disk to the last byte."""
    for size_bytes in (1 << 16, 4096, 1):
        try:
            while file.write(b"x" * size_bytes):
                pass
        except OSError:
            pass


def test_leaders_and_isrs_change_while_the_disk_of_the_metadata_is_full(data):
    with NodesPeer(data, 3, OPTIONS) as peer:
        peer.start()
        ottla(peer, "topic", "create", "t", "-p", "3", "-r", "3", "-c", "min.insync.replicas=2")
        produce(peer, range(100))
        with (data / "filler").open("wb", buffering=0) as filler:
            fill(filler)
            time.sleep(2)  # what a full node gives up, somebody else takes
            fill(filler)
            produce(peer, range(100, 200))
            wait_for(peer, [2, 3])
            fill(filler)
            peer.kill_worker(2)
            produce(peer, range(200, 300))
            wait_for(peer, [2, 3])
            ottla(peer, "topic", "create", "u", "-p", "3", "-r", "2")
        (data / "filler").unlink()
        wait_for(peer, [1, 2, 3])
        read = ottla(peer, "consume", "t", "--from", "earliest", "-f", "%v\\n").split()
        assert sorted(set(map(int, read))) == list(range(300))
