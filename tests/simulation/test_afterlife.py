"""What would be left, if the machine ended now: asked of copies, and told when it is too little."""

import random
from types import SimpleNamespace

from ottla.env.memory_disk import MemoryDisk
from tests.simulation import afterlife
from tests.simulation.device import Device
from tests.simulation.disk import fate_of
from tests.simulation.executor import SimulatedExecutor
from tests.simulation.mix import mix_of
from tests.simulation.world import World


def a_busy_world(name):
    """Return a world without faults in which much is written."""
    mix = mix_of(name)
    mix.faults = []
    mix.clients = dict.fromkeys(("transactional", "reader", "landlord", "meddler"), 1)
    mix.clients |= {"idempotent": 3, "plain": 3}
    mix.pause_seconds = 0.5
    mix.rots = False
    return World(name, 40, mix=mix)


def test_who_acknowledges_what_no_sync_has_covered_is_found(monkeypatch):
    world = a_busy_world("test.left")
    monkeypatch.setattr(Device, "_tell", lambda *_: None)  # It would be the first to find it.

    def told(jobs, error):
        while jobs:
            job = jobs.pop()
            job.owner.flush_ended(job, error)

    monkeypatch.setattr(
        SimulatedExecutor,
        "_submit_one",
        lambda self, job: self.submit(lambda: None, lambda _, error: told([job], error)),
    )
    assert not world.run()
    assert ", left: " in world.problems[0]
    assert world.loop.now < 40


def test_a_world_does_not_notice_that_somebody_looks(monkeypatch):
    seen = a_busy_world("test.looked")
    assert seen.run(), seen.problems
    assert seen.afterlife.looks > 10
    monkeypatch.setattr(afterlife._End, "by", lambda *_: [])
    unseen = a_busy_world("test.looked")
    assert unseen.run(), unseen.problems
    assert unseen.trace.digest() == seen.trace.digest()


def test_retention_is_judged_by_what_the_log_had_when_it_chose():
    # World s1126d.53: compaction had taken most of it when the segments went, in another directory.
    looks = World("test.sizes", 1).afterlife

    def sizes_when(start_offset, *sizes):
        segments = [SimpleNamespace(base_offset=base, size_bytes=size) for base, size in sizes]
        log = SimpleNamespace(
            segments=segments, log_start_offset=start_offset, topic_partition="t-0", topic_id=b"1"
        )
        return looks._sizes_at_start(log)

    sizes_when(0, (0, 900), (10, 800), (20, 100))
    sizes_when(0, (0, 900), (10, 800), (20, 700))
    sizes_when(10, (0, 900), (10, 500), (20, 700))
    sizes_when(10, (0, 90), (10, 50), (20, 700))
    told = sizes_when(10, (0, 90), (10, 50), (20, 70))
    assert [each[10] for each in told] == [800, 500, 50]
    assert [each[20] for each in told] == [700, 700, 70]


def test_a_copy_has_what_is_durable_and_what_is_not():
    disk = MemoryDisk(durability=True)
    for path in ("/a", "/a/t-0", "/a/other-0"):
        disk.make_directory(path)
    disk.sync_directory("/")
    disk.sync_directory("/a")
    disk.open("/a/other-0/x", create=True)
    disk.open("/a/checkpoint", create=True)
    file = disk.open("/a/t-0/kept", create=True)
    file.write_at(0, b"kept")
    file.sync()
    disk.sync_directory("/a/t-0")
    file.write_at(4, b" and more")
    disk.rename("/a/t-0/kept", "/a/t-0/renamed")
    copy, size_bytes = afterlife._copy(disk, "/a", "/a/t-0")
    assert size_bytes == 13
    assert copy.list_directory("/a") == ["checkpoint", "t-0"]
    assert copy.open("/a/t-0/renamed").read_at(0, 99) == b"kept and more"
    seen = set()
    chance = random.Random("test.fates")
    for _ in range(200):
        after = copy.crash(*fate_of(chance))
        (name,) = after.list_directory("/a/t-0")
        content = after.open(f"/a/t-0/{name}").read_at(0, 99)
        assert content.startswith(b"kept")
        seen.add((name, content == b"kept", content == b"kept and more"))
    assert {("kept", True, False), ("kept", False, True)} < seen
    assert {("renamed", True, False), ("renamed", False, True)} < seen
    copy.open("/a/t-0/renamed").write_at(0, b"else")
    assert disk.open("/a/t-0/renamed").read_at(0, 4) == b"kept", "a copy is one"
