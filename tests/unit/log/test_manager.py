import pytest

from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import CorruptFile, ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.log import LogState

TOPIC_ID = TopicId(b"0123456789abcdef")
OTHER_ID = TopicId(b"fedcba9876543210")
TP = TopicPartition("flights", 0)


def append(log, records):
    return log.append(records, leader_epoch=0)


@pytest.fixture
def started(place, make_manager):
    manager = make_manager(*place)
    manager.start()
    return manager


def restart(manager, place, make_manager, **config):
    manager.stop()
    manager = make_manager(*place, **config)
    manager.start()
    return manager


def test_a_created_partition_is_there_after_a_restart(
    started, place, make_manager, batch, read_all
):
    log = started.create(TP, TOPIC_ID)
    append(log, batch(3))
    records = read_all(log)
    manager = restart(started, place, make_manager)
    log = manager.get(TP)
    assert log.topic_id == TOPIC_ID
    assert read_all(log) == records
    assert manager.create(TP, TOPIC_ID) is log
    manager.stop()


def test_an_unknown_partition_is_none(started):
    assert started.get(TopicPartition("nothing", 0)) is None


def test_the_directory_is_laid_out_as_kafkas(started, place, batch):
    disk, directory = place
    append(started.create(TP, TOPIC_ID), batch())
    started.stop()
    assert disk.list_directory(f"{directory}/logs/flights-0") == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert set(disk.list_directory(f"{directory}/logs")) == {
        ".kafka_cleanshutdown",
        ".lock",
        "flights-0",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    checkpoint = disk.open(f"{directory}/logs/recovery-point-offset-checkpoint")
    assert checkpoint.read_at(0, 100) == b"0\n1\nflights 0 1\n"


def test_two_nodes_on_one_directory_are_refused(started, place, make_manager):
    with pytest.raises(LogDirectoryUnusable, match="another process"):
        make_manager(*place).start()
    started.stop()
    second = make_manager(*place)
    second.start()
    second.stop()


@pytest.mark.parametrize("other", [{"cluster_id": "other"}, {"node_id": 2}])
def test_a_directory_of_another_cluster_or_node_is_refused(started, place, make_manager, other):
    started.stop()
    with pytest.raises(LogDirectoryUnusable, match="belongs to node 1 of cluster ottla-test"):
        make_manager(*place, **other).start()
    again = make_manager(*place)  # and nothing is held
    again.start()
    again.stop()


def test_the_mark_of_a_clean_stop_is_gone_while_running(started, place, make_manager):
    disk, directory = place
    mark = f"{directory}/logs/.kafka_cleanshutdown"
    assert not disk.exists(mark)
    started.stop()
    assert disk.exists(mark)
    make_manager(*place).start()
    assert not disk.exists(mark)


def test_a_name_that_is_no_directory_is_refused(started):
    with pytest.raises(KafkaError) as caught:
        started.create(TopicPartition("../x", 0), TOPIC_ID)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_directory_of_an_older_topic_is_not_taken_over(started, batch):
    append(started.create(TP, TOPIC_ID), batch())
    with pytest.raises(KafkaError) as caught:
        started.create(TP, OTHER_ID)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    started.delete(TP)
    assert started.create(TP, OTHER_ID).log_end_offset == 0


def test_a_deleted_partition_is_gone_and_its_space_is_freed_later(
    started, place, make_manager, batch
):
    disk, directory = place
    log = started.create(TP, TOPIC_ID)
    append(log, batch(2))
    region = log.read(0, max_bytes=10**6, upper_offset=2, min_one_message=True).region
    started.delete(TP)
    assert started.get(TP) is None
    assert not disk.exists(f"{directory}/logs/flights-0")
    assert len(started.deleted) == 1
    assert len(region.read()) == region.length_bytes
    manager = restart(started, place, make_manager)
    assert len(manager.deleted) == 1, "known again after a restart"
    manager.remove_deleted()
    assert manager.deleted == []
    names = disk.list_directory(f"{directory}/logs")
    assert not [name for name in names if name.endswith("-delete")]
    started.delete(TP)  # nothing happens


def test_checkpoints_say_what_is_flushed_never_more(started, place, batch):
    disk, directory = place
    log = started.create(TP, TOPIC_ID)
    append(log, batch(3))
    log.flush()
    append(log, batch(3))
    job = started.checkpoint_job()
    log.flush()
    job.run()
    file = disk.open(f"{directory}/logs/recovery-point-offset-checkpoint")
    assert file.read_at(0, 100) == b"0\n1\nflights 0 3\n"


def test_a_corrupt_partition_is_offline_and_the_others_serve(
    started, place, make_manager, batch, read_all
):
    disk, directory = place
    for number in range(3):
        append(started.create(TopicPartition("t", number), TOPIC_ID), batch(3))
    started.stop()
    disk.open(f"{directory}/logs/t-1/{0:020d}.log").truncate(0)
    for _ in range(2):  # also after another stop: it must not become an empty log then
        manager = make_manager(disk, directory)
        manager.start()
        assert isinstance(manager.offline[TopicPartition("t", 1)], CorruptFile)
        assert manager.get(TopicPartition("t", 1)) is None
        with pytest.raises(KafkaError) as caught:
            manager.create(TopicPartition("t", 1), TOPIC_ID)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        for number in (0, 2):
            assert len(read_all(manager.get(TopicPartition("t", number)))) == 3
        manager.checkpoint_job().run()
        manager.stop()
        assert not disk.exists(f"{directory}/logs/.kafka_cleanshutdown")


def test_an_offline_partition_holds_no_file_open(started, place, make_manager, batch):
    """Simulated world r.17 with rot: the fault's traceback held the segment, and so its file."""
    disk, directory = place
    append(started.create(TP, TOPIC_ID), batch(3))
    started.stop()
    log_file = disk.open(f"{directory}/logs/{TP}/{0:020d}.log")
    log_file.write_at(70, b"\xff")
    log_file.close()
    disk.remove(f"{directory}/logs/.kafka_cleanshutdown")
    manager = make_manager(disk, directory)
    manager.start()
    fault = manager.offline[TP]
    assert isinstance(fault, CorruptFile)
    assert fault.__traceback__ is fault.__cause__ is fault.__context__ is None
    manager.stop()


def test_a_stop_that_cannot_flush_is_not_clean(make_manager, batch):
    inner = MemoryDisk()
    inner.make_directory("/d")
    disk = FaultyDisk(inner)
    manager = make_manager(disk, "/d")
    manager.start()
    log = manager.create(TP, TOPIC_ID)
    append(log, batch())
    disk.fail(DiskCall.SYNC)
    manager.stop()
    assert not inner.exists("/d/logs/.kafka_cleanshutdown")


def test_a_failed_log_keeps_the_stop_from_being_clean(make_manager, batch):
    inner = MemoryDisk()
    inner.make_directory("/d")
    manager = make_manager(inner, "/d")
    manager.start()
    log = manager.create(TP, TOPIC_ID)
    append(log, batch())
    job = log.begin_flush()
    log.finish_flush(job, OSError(5, "broken"))
    assert log.state is LogState.FAILED
    manager.stop()
    assert not inner.exists("/d/logs/.kafka_cleanshutdown")


def test_a_partition_directory_dropped_in_from_elsewhere_is_served(
    started, place, make_manager, batch, read_all
):
    disk, directory = place
    append(started.create(TP, TOPIC_ID), batch(3))
    started.stop()
    disk.rename(f"{directory}/logs/flights-0", f"{directory}/logs/moved-5")
    manager = make_manager(disk, directory)
    manager.start()
    assert len(read_all(manager.get(TopicPartition("moved", 5)))) == 3
    manager.stop()


def test_other_directories_and_files_are_left_alone(started, place, make_manager):
    disk, directory = place
    started.stop()
    disk.make_directory(f"{directory}/logs/lost+found")
    disk.open(f"{directory}/logs/notes-1", create=True)
    manager = make_manager(disk, directory)
    manager.start()
    assert manager.logs == {}
    manager.stop()
    assert disk.exists(f"{directory}/logs/lost+found")
    assert disk.exists(f"{directory}/logs/notes-1")


def test_an_unwritable_place_is_one_clear_error(make_manager):
    inner = MemoryDisk()
    inner.make_directory("/d")
    disk = FaultyDisk(inner)
    disk.fail(DiskCall.MAKE_DIRECTORY, errno=13)
    with pytest.raises(LogDirectoryUnusable, match="Permission denied") as caught:
        make_manager(disk, "/d").start()
    assert "may write" in caught.value.fix


def test_a_power_cut_at_any_moment_of_the_first_start_leaves_a_directory_that_starts(
    make_manager, batch, read_all
):
    at = 0
    while True:
        at += 1
        inner = MemoryDisk(durability=True)
        inner.make_directory("/d")
        inner.sync_directory("/")
        disk = FaultyDisk(inner)
        disk.kill_at(at)
        acknowledged = 0
        created = False
        try:
            manager = make_manager(disk, "/d")
            manager.start()
            log = manager.create(TP, TOPIC_ID)
            created = True
            append(log, batch(3))
            log.flush()
            acknowledged = 3
            manager.checkpoint_job().run()
            manager.stop()
        except DiskKilled:
            pass
        else:
            break
        for seed in range(5):
            survivor = inner.crash(SeededRng(at * 10 + seed))
            manager = make_manager(survivor, "/d")
            manager.start()
            assert manager.offline == {}, (at, seed)
            log = manager.get(TP)
            if created:
                assert log.topic_id == TOPIC_ID
            log = manager.create(TP, TOPIC_ID)
            assert len(read_all(log)) >= acknowledged, (at, seed)
            append(log, batch())
            manager.stop()
    assert at > 20


def high_watermarks(place):
    disk, directory = place
    file = disk.open_read_only(f"{directory}/logs/replication-offset-checkpoint")
    return file.read_at(0, 1000)


def test_high_watermarks_are_written_when_they_change_and_read_at_the_start(
    started, place, make_manager, batch
):
    append(started.create(TP, TOPIC_ID), batch(3))
    job = started.high_watermark_job()
    job.run()
    started.checkpointed(job)
    assert high_watermarks(place) == b"0\n1\nflights 0 0\n", "nothing is flushed yet"
    assert started.high_watermark_job().files == {}
    started.stop(high_watermark_of=lambda where: 2 if where == TP else None)
    manager = make_manager(*place)
    manager.start()
    assert high_watermarks(place) == b"0\n1\nflights 0 2\n"
    assert manager.high_watermarks == {TP: 2}
    manager.stop()


@pytest.mark.parametrize("content", [b"", b"0\n7\nflights 0 2\n", b"\xff\xfe", b"1\n0\n"])
def test_a_start_does_without_high_watermarks_it_cannot_read(
    started, place, make_manager, batch, content
):
    disk, directory = place
    append(started.create(TP, TOPIC_ID), batch(3))
    started.stop()
    file = disk.open(f"{directory}/logs/replication-offset-checkpoint")
    file.truncate(0)
    file.write_at(0, content)
    manager = make_manager(*place)
    manager.start()
    assert manager.high_watermarks == {TP: 0}
    assert manager.get(TP).log_end_offset == 3


def test_a_stop_writes_nothing_for_logs_that_nobody_wrote_to(make_manager, batch):
    inner = MemoryDisk()
    inner.make_directory("/d")
    manager = make_manager(inner, "/d")
    manager.start()
    for number in range(3):
        append(manager.create(TopicPartition("t", number), TOPIC_ID), batch(3))
    manager.stop()
    synced = {}
    for written in ([], [1], [0, 1, 2]):
        disk = FaultyDisk(inner)
        manager = make_manager(disk, "/d")
        manager.start()
        for number in written:
            append(manager.get(TopicPartition("t", number)), batch(2))
        before = disk.counts[DiskCall.SYNC] + disk.counts[DiskCall.SYNC_DIRECTORY]
        manager.stop(threads=2)
        after = disk.counts[DiskCall.SYNC] + disk.counts[DiskCall.SYNC_DIRECTORY]
        synced[len(written)] = after - before
        assert inner.exists("/d/logs/.kafka_cleanshutdown")
    assert synced[0] == 2 * 3, "two checkpoints and the mark, each a file and its name"
    own = synced[0] + 2  # The high watermarks are written when one has changed.
    assert synced[3] - own == 3 * (synced[1] - own) > 0
    manager = make_manager(inner, "/d")
    manager.start()
    assert [manager.get(TopicPartition("t", n)).log_end_offset for n in range(3)] == [5, 7, 5]
    manager.stop()


def test_a_start_after_a_crash_syncs_only_what_was_not_durable(make_manager, batch):
    inner = MemoryDisk(durability=True)
    inner.make_directory("/d")
    inner.sync_directory("/")
    manager = make_manager(inner, "/d")
    manager.start()
    where = [TopicPartition("t", number) for number in range(4)]
    for one in where:
        log = manager.create(one, TOPIC_ID)
        append(log, batch(3))
        log.flush()
    manager.checkpoint_job().run()
    append(manager.get(where[1]), batch(2))
    manager._release()
    disk = FaultyDisk(inner)
    manager = make_manager(disk, "/d", recovery_threads=3)
    manager.start()
    assert disk.counts[DiskCall.SYNC] == 1
    assert [manager.get(one).log_end_offset for one in where] == [3, 5, 3, 3]
    manager.stop(threads=3)
