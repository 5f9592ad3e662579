"""What the device has is held against what was promised: each kind of lack is found."""

import uuid
from types import SimpleNamespace

from ottla.env.faulty_disk import DiskCall
from ottla.ids import TopicPartition
from ottla.log.files.layout import LOG_START_CHECKPOINT
from tests.simulation.disk import SimulatedDisk
from tests.simulation.rot import Rot
from tests.simulation.test_afterlife import a_busy_world

LIVED_SECONDS = 8.0


def problems_of(tamper):
    """Live a world for some seconds, let ``tamper(world)`` do something there; return what broke.

    ``tamper`` gets a partition of some records, too.
    """
    world = a_busy_world("test.device")

    def act():
        partitions = world.device._partitions().values()
        suitable = (
            one
            for one in partitions
            if one.log.segments.active.size_bytes
            and one.log.flushed_offset == one.log.log_end_offset
            and not one.log.config.is_compacted
            and one.log.topic_partition.topic.startswith("t")
        )
        partition = next(suitable, None)
        if partition is None:  # Not in this very moment.
            world.loop.call_later(1e-3, act)
            return
        tamper(world, partition.log)
        world.loop.call_later(1e-3, world.problem, "over")

    world.loop.call_for(world.clients_life, LIVED_SECONDS, act)
    assert not world.run()
    assert world.device.looks > 10
    return [problem.split(": ", 2)[-1] for problem in world.problems if "device" in problem]


def topic_of(world, log):
    return next(
        topic
        for topic in world.history.topics.values()
        if topic.topic_id.bytes == log.topic_id and topic.is_living
    )


def appended(world, log):
    topic = topic_of(world, log)
    world.device.appended(topic.topic_id, log.topic_partition.partition)


def test_nothing_is_told_of_a_sound_log():
    def look(world, log):
        topic, number = topic_of(world, log), log.topic_partition.partition
        appended(world, log)
        world.device.refused(log.segments.active.path)
        world.device.records_deleted(topic.topic_id, number, log.log_start_offset and 0)
        world.device.called(DiskCall.RENAME, log.directory)
        world.device.called(DiskCall.MAKE_DIRECTORY, "/a/never-0")

    assert problems_of(look) == []


def test_an_acknowledged_batch_that_no_sync_has_covered_is_found():
    def forget(world, log):
        path = log.segments.active.path
        inode = world.node.disk._tree.find(path)
        inode.pending.append((0, bytes(inode.content)))
        appended(world, log)

    (problem,) = problems_of(forget)
    assert "is not synced from byte 0 to" in problem


def test_bytes_that_a_failed_sync_has_lost_are_found():
    def lose(world, log):
        world.node.disk._tree.find(log.segments.active.path).durable[-1] ^= 1
        appended(world, log)

    (problem,) = problems_of(lose)
    assert "is not what was synced" in problem


def test_what_a_refused_write_has_left_is_found():
    def leave(world, log):
        path = log.segments.active.path
        world.node.disk._tree.find(path).content.append(0)
        world.device.refused(path)

    (problem,) = problems_of(leave)
    assert "bytes, the log" in problem


def test_a_segment_whose_name_is_not_durable_is_found():
    def forget(world, log):
        names = world.node.disk._tree.find(log.directory).durable_names
        del names[log.segments.active.path.rpartition("/")[2]]
        appended(world, log)

    (problem,) = problems_of(forget)
    assert "the name of /" in problem


def test_a_snapshot_above_the_end_of_a_log_is_found():
    def leave(world, log):
        names = world.node.disk._tree.find(log.directory).durable_names
        names[f"{log.log_end_offset + 1:020}.snapshot"] = object()
        appended(world, log)

    (problem,) = problems_of(leave)
    assert f"the log ends at {problem.rpartition(' ')[2]}" in problem


def test_deleted_records_that_would_come_back_are_found():
    def promise(world, log):
        topic, number = topic_of(world, log), log.topic_partition.partition
        world.device.records_deleted(topic.topic_id, number, log.log_end_offset + 1)

    (problem,) = problems_of(promise)
    assert "asked was" in problem


def test_a_log_start_that_no_checkpoint_tells_of_yet_is_none_that_a_start_would_find():
    told = []

    def hide(world, log):
        topic, number = topic_of(world, log), log.topic_partition.partition
        log.log_start_offset = log.log_end_offset
        told.append(log.log_start_offset)
        told.append(world.device.start_offset(topic.topic_id, number))
        told.append(world.device.start_offset(uuid.uuid4(), number))

    assert problems_of(hide) == []
    hidden, durable, unknown = told
    assert durable < hidden
    assert unknown is None


def test_a_recovery_point_of_a_log_that_is_elsewhere_since_promises_nothing_amid_rot():
    told = []

    def look(world, log):
        where, gone = log.topic_partition, TopicPartition("gone", 0)
        says = {each: {where: 9, gone: 4} for each in world.log_dirs} | {log.log_dir: {where: 3}}
        world.device.says = lambda log_dir, _name: says[log_dir]
        told.append((Rot(world)._points_left(), {where: 3}))

    assert problems_of(look) == []
    ((points, expected),) = told
    assert points == expected


def test_a_segment_that_goes_before_a_checkpoint_says_so_is_found():
    def take(world, log):
        log.log_start_offset = log.log_end_offset
        world.node.disk._tree.find(log.log_dir).durable_names.pop(LOG_START_CHECKPOINT, None)
        world.device.called(DiskCall.RENAME, log.segments[0].path)

    (problem,) = problems_of(take)
    assert "the log start is 0 in its checkpoint" in problem


def test_a_job_in_a_directory_that_loses_its_name_is_found():
    def take(world, log):
        def work():
            world.jobs.running.call = DiskCall.OPEN, f"{log.directory}/x"
            world.jobs.running.stop()

        job = world.jobs.begin(
            world.node.life, work, lambda *_: None, seconds=lambda: 1.0, name="disk"
        )
        world.device.called(DiskCall.RENAME, log.directory)
        job.die()

    (problem,) = problems_of(take)
    assert "loses its name while a job is at open" in problem


def test_a_directory_of_which_a_checkpoint_still_tells_is_found(monkeypatch):
    where = TopicPartition("former", 0)

    def make(world, log):
        monkeypatch.setattr(world.device, "says", lambda log_dir, name: {where: 7})
        world.device.called(DiskCall.MAKE_DIRECTORY, "/a/former-0")

    found = problems_of(make)
    assert found
    assert all("tells of a former one" in problem for problem in found)


def test_a_new_topic_whose_name_is_not_durable_is_found(monkeypatch):
    sync = SimulatedDisk.sync_directory
    world = a_busy_world("test.device")

    def sync_unless_log_dir(disk, path):
        if not (path in world.log_dirs and world.node.is_up):
            sync(disk, path)

    monkeypatch.setattr(SimulatedDisk, "sync_directory", sync_unless_log_dir)
    assert not world.run()
    assert "after a new topic: the name of /" in world.problems[0]


def test_a_deleted_topic_whose_name_would_come_back_is_found():
    def delete(world, log):
        topic = SimpleNamespace(name="gone", topic_id=uuid.uuid4(), partition_count=1)
        names = world.node.disk._tree.find(log.log_dir).durable_names
        names["gone-0"] = object()
        world.device.deleted(topic)
        del names["gone-0"]

    (problem,) = problems_of(delete)
    assert "has its name in /" in problem


def test_nothing_is_told_of_a_full_segment_whose_end_is_promised_to_nobody():
    """A roll may come while a flush is in flight: world h2.0 at e232602."""

    def roll(world, log):
        segment = log.segments.active
        inode = world.node.disk._tree.find(segment.path)
        at = segment.size_bytes
        data = log.log_end_offset.to_bytes(8) + b"unsynced"
        inode.content += data
        inode.pending.append((at, data))
        segment.size_bytes += len(data)
        log.log_end_offset += 1
        log.roll()
        assert inode.pending, "it is no compacted log, whose rolls sync"
        appended(world, log)

    assert problems_of(roll) == []
