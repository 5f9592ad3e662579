"""A real small file system fills up under a broker: it stays up, serves, and comes back by itself.

Needs the right to mount (root); skipped without.
"""

import subprocess
import time

import pytest

from tools.wire_client import WireClient, batch, values_of

STORAGE_ERROR = 56
MIB = 1 << 20


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.fixture(params=["tmpfs", "ext4"])
def small_volume(request, tmp_path):
    """A directory on a volume of 64 MiB."""
    place = tmp_path / "volume"
    place.mkdir()
    if request.param == "tmpfs":
        mounted = run("mount", "-t", "tmpfs", "-o", "size=64m", "none", place)
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(64 * MIB)
        run("mkfs.ext4", "-q", "-m", "0", image)
        mounted = run("mount", "-o", "loop", image, place)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    yield place
    run("umount", "-l", place)


def produce_until(wire, topic, code, *, seconds=20.0):
    """Produce until the answer is ``code``; return how many batches were acknowledged before."""
    records = batch([b"x" * 400_000])
    deadline = time.monotonic() + seconds
    taken = 0
    while time.monotonic() < deadline:
        found = wire.produce(topic, records)["error_code"]
        if found == code:
            return taken
        assert found in (0, STORAGE_ERROR)
        taken += found == 0
        if found:
            time.sleep(0.05)
    pytest.fail(f"never answered {code}")


def free(place):
    import os

    usage = os.statvfs(place)
    return usage.f_bavail * usage.f_frsize


@pytest.mark.parametrize(
    "floor",
    [pytest.param(64 * MIB, id="floor"), pytest.param(0, id="to the last byte")],
)
def test_a_full_disk_passes_without_a_restart(ottla_server_factory, small_volume, floor):
    options = {
        "ottla.disk.min.free.bytes": floor,
        "log.segment.delete.delay.ms": 0,
        "log.flush.offset.checkpoint.interval.ms": 200,
    }
    server = ottla_server_factory(options, data=small_volume / "data")
    with WireClient(server.bootstrap) as wire:
        configs = {"segment.bytes": str(MIB), "file.delete.delay.ms": "0"}
        wire.create_topic("t", 1, **configs)
        taken = produce_until(wire, "t", STORAGE_ERROR)
        assert taken > 50, "most of the volume was used"
        answer = wire.call("metadata", 9, topics=[{"name": "t"}])
        assert answer["topics"][0]["partitions"][0]["leader_id"] == 1
        for offset in (0, taken - 1):
            fetched = wire.fetch("t", offset)
            assert fetched["error_code"] == 0
            assert values_of(fetched["records"])[0][0] == offset
        time.sleep(0.5)  # checkpoints go on meanwhile
        before = free(small_volume)
        (deleted,) = wire.call(
            "delete_records",
            2,
            topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": taken // 2}]}],
            timeout_ms=5000,
        )["topics"]
        assert deleted["partitions"][0]["error_code"] == 0
        more = batch([b"again"])
        deadline = time.monotonic() + 20
        while (code := wire.produce("t", more)["error_code"]) != 0:
            assert code == STORAGE_ERROR
            assert time.monotonic() < deadline, (free(small_volume), before)
            time.sleep(0.05)
        assert wire.list_offsets("t", [0], -2) == [(0, taken // 2)]
        assert wire.list_offsets("t", [0], -1) == [(0, taken + 1)]
        # Full once more, and this time the topic goes.
        produce_until(wire, "t", STORAGE_ERROR)
        gone = wire.call("delete_topics", 5, topic_names=["t"], timeout_ms=5000)
        assert gone["responses"][0]["error_code"] == 0
        wire.create_topic("u", 1)
        assert produce_until(wire, "u", 0) == 0
    server.kill9()
    server.start()
    with WireClient(server.bootstrap) as wire:
        assert wire.list_offsets("u", [0], -1)[0][1] >= 1
        assert wire.produce("u", more)["error_code"] == 0
