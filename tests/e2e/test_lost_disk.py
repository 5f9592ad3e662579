"""Real disks that die under a broker: what lies on them goes, the rest serves, or the process ends.

Two ext4 volumes on loop devices; a volume is killed with ext4's own shutdown call. Needs the right
to mount (root); skipped without.
"""

import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient, batch

STORAGE_ERROR, LEADER_NOT_AVAILABLE = 56, 5
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.fixture
def volumes(tmp_path):
    """Two directories, each on an ext4 of its own."""
    places = []
    for name in ("one", "two"):
        image, place = tmp_path / f"{name}.image", tmp_path / name
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(64 << 20)
        run("mkfs.ext4", "-q", image)
        mounted = run("mount", "-o", "loop", image, place)
        if mounted.returncode != 0:
            pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
        places.append(place)
    yield places
    for place in places:
        run("umount", "-l", place)


def kill_volume(place):
    """Let every later write and sync of the volume fail."""
    number = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(number, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(number)


def test_a_lost_disk_costs_its_partitions_and_the_one_with_the_metadata_the_process(
    volumes, tmp_path
):
    one, two = (place / "data" for place in volumes)
    peer = OttlaPeer(Path(f"{one},{two}"))
    peer.log_path = tmp_path / "output"
    peer.start()
    try:
        with WireClient(peer.bootstrap) as wire:
            wire.create_topic("t", 2)
            for partition in (0, 1):
                assert wire.produce("t", batch(), partition)["error_code"] == 0
            lost = 0 if (two / "t-0").exists() else 1
            kill_volume(volumes[1])
            assert wire.produce("t", batch(), lost)["error_code"] == STORAGE_ERROR
            assert wire.produce("t", batch(), 1 - lost)["error_code"] == 0
            told = wire.call("metadata", 9, topics=[{"name": "t"}])["topics"][0]["partitions"]
            leaders = {part["partition_index"]: part["leader_id"] for part in told}
            assert leaders == {lost: -1, 1 - lost: 1}
            codes = {
                result["log_dir"]: result["error_code"]
                for result in wire.call("describe_log_dirs", 4, topics=None)["results"]
            }
            assert codes == {str(one): 0, str(two): STORAGE_ERROR}
            kill_volume(volumes[0])
            assert wire.produce("t", batch(), 1 - lost)["error_code"] == STORAGE_ERROR
        assert peer.process.wait(timeout=15) == 1
        deadline = time.monotonic() + 5
        while "it holds the cluster's metadata" not in peer.log_path.read_text():
            assert time.monotonic() < deadline, peer.log_path.read_text()
            time.sleep(0.05)
    finally:
        peer.kill9()
