"""Several log directories, and one whose disk fails: it goes, the others serve."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SystemRng
from ottla.errors import KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.directories.directory import DuplicatePartition, LogDirectoryUnusable
from ottla.log.directories.duplicates import settle_duplicates
from ottla.log.files.faults import SyncFailed, ends_directory, is_out_of_space
from ottla.log.log import LogState

TOPIC_ID = TopicId(b"0123456789abcdef")
A, B = "/d/a", "/d/b"


class OneBadDisk(FaultyDisk):
    """Fails everything below the path ``bad``."""

    def __init__(self, inner):
        super().__init__(inner)
        self.bad = None

    def enter(self, call, path):
        if self.bad is not None and path.startswith(self.bad):
            raise OSError(errno.EIO, "Input/output error", path)
        return super().enter(call, path)


@pytest.fixture
def disk():
    inner = MemoryDisk(durability=True)
    inner.make_directory("/d")
    return OneBadDisk(inner)


@pytest.fixture
def make(make_manager, disk):
    def make(**options):
        return make_manager(disk, "/d", names=("a", "b"), **options)

    return make


@pytest.fixture
def manager(make, batch):
    """Four partitions with three records each, two in each directory."""
    manager = make()
    manager.start()
    for number in range(4):
        log = manager.create(TopicPartition("t", number), TOPIC_ID)
        log.append(batch(3), leader_epoch=0)
        log.flush()
    return manager


def places(manager):
    return [manager.logs["t", number].directory for number in range(4)]


def online(manager):
    return [path for path, directory in manager.directories.items() if directory.is_online]


def test_new_partitions_go_where_the_fewest_are(manager):
    assert places(manager) == [f"{A}/t-0", f"{B}/t-1", f"{A}/t-2", f"{B}/t-3"]


def test_a_failed_sync_takes_its_directory_and_no_other(manager, batch, read_all):
    told = []
    manager.listeners.append(lambda directory: told.append(directory.path))
    lost, kept = manager.get(TopicPartition("t", 1)), manager.get(TopicPartition("t", 0))
    lost.append(batch(), leader_epoch=0)
    manager._disk.fail(DiskCall.SYNC)
    with pytest.raises(KafkaError):
        lost.flush()
    assert told == [B]
    assert [log.state for log in manager.logs.values()] == [
        LogState.OPEN,
        LogState.FAILED,
        LogState.OPEN,
        LogState.FAILED,
    ]
    neighbour = manager.get(TopicPartition("t", 3))
    assert isinstance(neighbour.failure, SyncFailed)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        neighbour.append(batch(), leader_epoch=0)
    kept.append(batch(), leader_epoch=0)
    assert len(read_all(kept)) == 4
    created = manager.create(TopicPartition("t", 9), TOPIC_ID)
    assert created.directory == f"{A}/t-9", "nothing new is put on the bad disk"


def test_a_write_that_the_device_refuses_does_too_a_full_disk_does_not(manager, batch):
    manager._disk.fail(DiskCall.WRITE, errno=errno.ENOSPC)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        manager.get(TopicPartition("t", 0)).append(batch(), leader_epoch=0)
    assert online(manager) == [A, B]
    manager.space_measured(manager.measure_space())
    manager._disk.fail(DiskCall.WRITE, errno=errno.EIO)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        manager.get(TopicPartition("t", 0)).append(batch(), leader_epoch=0)
    assert online(manager) == [B]


def test_a_directory_that_fails_at_the_start_is_offline_and_the_rest_serves(
    manager, make, disk, read_all
):
    manager.stop()
    disk.bad = B
    manager = make()
    manager.start()
    assert online(manager) == [A]
    assert sorted(manager.logs) == [("t", 0), ("t", 2)]
    assert len(read_all(manager.get(TopicPartition("t", 2)))) == 3
    with pytest.raises(KafkaError, match="offline: /d/b"):
        manager.create(TopicPartition("t", 1), TOPIC_ID, is_new=False)
    assert manager.create(TopicPartition("new", 0), TOPIC_ID).directory == f"{A}/new-0"
    manager.checkpoint_job().run()
    manager.stop()
    disk.bad = None
    manager = make()
    manager.start()
    for number in range(4):
        assert len(read_all(manager.get(TopicPartition("t", number)))) == 3
    manager.stop()


def test_what_a_refused_making_left_does_not_stand_for_a_log_that_may_be_away(
    manager, make, disk, read_all
):
    """World s1129b.413: an empty log was served, and acknowledged records were hidden by others."""
    manager.stop()
    disk.make_directory(f"{A}/t-1")  # Of a former topic of that name, when this disk was refusing.
    disk.bad = B
    manager = make()
    manager.start()
    with pytest.raises(KafkaError, match="offline: /d/b"):
        manager.create(TopicPartition("t", 1), TOPIC_ID, is_new=False)
    assert manager.create(TopicPartition("new", 1), TOPIC_ID).directory == f"{A}/new-1"
    manager.stop()
    disk.bad = None
    manager = make()
    manager.start()
    settle_duplicates(manager, set(), SystemRng())
    assert len(read_all(manager.get(TopicPartition("t", 1)))) == 3
    assert manager.create(TopicPartition("t", 1), TOPIC_ID, is_new=False).directory == f"{B}/t-1"
    manager.stop()


def test_what_a_refused_making_left_becomes_the_log_of_who_is_new(manager, make, disk):
    manager.stop()
    disk.make_directory(f"{A}/u-0")
    disk.bad = B
    manager = make()
    manager.start()
    made = manager.create(TopicPartition("u", 0), TOPIC_ID)
    assert (made.directory, made.topic_id) == (f"{A}/u-0", TOPIC_ID)
    manager.stop()


@pytest.mark.parametrize("call", list(DiskCall))
def test_whatever_fails_first_in_a_directory_at_the_start_costs_the_others_nothing(
    manager, make, disk, read_all, call
):
    manager.stop()
    for nth in range(1, 60):
        manager = make()
        disk.fail(call, nth=nth)
        try:
            manager.start()
        except LogDirectoryUnusable as error:
            pytest.fail(f"{error}")
        disk.heal()
        assert online(manager)
        for where in manager.logs:
            assert len(read_all(manager.get(where))) == 3
        manager.stop()
    manager = make()
    manager.start()
    assert len(manager.logs) == 4
    manager.stop()


def test_a_bad_checkpoint_does_not_keep_the_other_directory_from_its_own(manager, disk, batch):
    for log in manager.logs.values():
        log.append(batch(), leader_epoch=0)
        log.flush()
    job = manager.checkpoint_job()
    disk.bad = A
    job.run()
    disk.bad = None
    assert list(job.failures) == [A]
    file = disk.open_read_only(f"{B}/recovery-point-offset-checkpoint")
    assert file.read_at(0, 100) == b"0\n2\nt 1 4\nt 3 4\n"
    manager.checkpointed(job)
    assert online(manager) == [B]
    manager.stop()
    assert disk.exists(f"{B}/.kafka_cleanshutdown")
    assert not disk.exists(f"{A}/.kafka_cleanshutdown")


def test_a_partition_in_two_directories_is_offline_and_neither_copy_is_touched(
    manager, make, disk, read_all
):
    manager.stop()
    disk.make_directory(f"{B}/t-0")
    name = f"{0:020d}.log"
    disk.open(f"{B}/t-0/{name}", create=True).write_at(0, b"torn")
    for _ in range(2):
        manager = make()
        manager.start()
        found = manager.offline[TopicPartition("t", 0)]
        assert isinstance(found, DuplicatePartition)
        assert "/d/a/t-0 and /d/b/t-0" in str(found)
        assert sorted(manager.logs) == [("t", 1), ("t", 2), ("t", 3)]
        manager.stop()
    assert disk.size_of(f"{B}/t-0/{name}") == 4
    disk.rename(f"{B}/t-0", "/d/aside")
    manager = make()
    manager.start()
    assert len(read_all(manager.get(TopicPartition("t", 0)))) == 3
    manager.stop()


def test_of_two_copies_the_one_whose_directory_fails_amid_the_start_does_not_count(
    manager, make, disk, read_all
):
    where = TopicPartition("t", 0)
    manager.stop()
    disk.make_directory(f"{B}/t-0")
    disk.open(f"{B}/t-0/{0:020d}.log", create=True).write_at(0, b"torn")
    failed_amid_it = 0
    for nth in range(1, 20):
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            if disk.exists(f"{B}/{name}"):  # Then all in it is verified, and synced.
                disk.remove(f"{B}/{name}")
        manager = make()
        disk.fail(DiskCall.SYNC, nth=nth)
        manager.start()
        disk.heal()
        if online(manager) == [A] and where in manager.offline:
            failed_amid_it += 1
            assert where not in manager.logs
            settle_duplicates(manager, set(), SystemRng())
            assert where not in manager.offline
            assert len(read_all(manager.get(where))) == 3
            files = manager.checkpoints.begin("recovery-point-offset-checkpoint")
            assert not any(where in offsets for offsets in files.values()), "it is no leftover"
        manager.stop()
    assert failed_amid_it


def test_without_any_directory_there_is_no_start(manager, make, disk):
    manager.stop()
    disk.bad = "/d"
    with pytest.raises(LogDirectoryUnusable, match="/d/a: cannot be used"):
        make().start()


def test_a_deleted_partition_of_an_offline_directory_is_refused_by_name(manager):
    manager.fail_directory(B, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaError, match="offline"):
        manager.delete(TopicPartition("t", 1))
    assert manager.get(TopicPartition("t", 1)) is None


def test_partitions_deleted_while_others_are_removed_are_removed_later(manager, disk):
    manager.delete(TopicPartition("t", 0))
    remove_directory = disk.remove_directory

    def meanwhile(path):
        disk.remove_directory = remove_directory
        manager.delete(TopicPartition("t", 2))
        remove_directory(path)

    disk.remove_directory = meanwhile
    manager.remove_deleted()
    assert len(manager.deleted) == 1, "what came in the middle is not forgotten"
    manager.remove_deleted()
    assert manager.deleted == []


@pytest.mark.parametrize(
    ("error", "ends", "is_full"),
    [
        (OSError(errno.EIO, ""), True, False),
        (OSError(errno.EROFS, ""), True, False),
        (OSError(errno.ENOSPC, ""), False, True),
        (OSError(errno.EDQUOT, ""), False, True),
        (OSError(errno.EMFILE, ""), False, False),
        (OSError(errno.ENAMETOOLONG, ""), False, False),
        (SyncFailed(errno.ENOSPC, ""), True, False),
    ],
)
def test_what_an_error_means(error, ends, is_full):
    assert (ends_directory(error), is_out_of_space(error)) == (ends, is_full)
