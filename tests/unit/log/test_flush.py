"""How a flush gets done: by the short way if it is one file, and never with its failure hidden."""

import errno

import pytest

from ottla.env.executor import ManualExecutor, ThreadExecutor, run
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.log.files.checkpoints import EpochStart
from ottla.log.files.faults import SyncFailed
from ottla.log.files.tenancy import Tenancy
from ottla.log.flush import Before, FlushJob
from tests.syncs import told_each


def job_of(disk, path, file, epochs=None):
    before = None if epochs is None else Before((), (), (), [], epochs, disk, path, Tenancy())
    return FlushJob(file, 1, 0, before)


def note(outcomes):
    """Return who takes what becomes of jobs, as the log would understand it."""
    return told_each(lambda job, error: outcomes.append(job.sync_error(error)))


@pytest.mark.parametrize("is_one_file", [True, False])
def test_a_sync_that_fails_ends_the_directory_whichever_way_it_goes(is_one_file):
    disk = FaultyDisk(MemoryDisk())
    disk.make_directory("/d")
    file = disk.open("/d/0.log", create=True)
    job = job_of(disk, "/d", file, None if is_one_file else [EpochStart(0, 0)])
    outcomes, executor = [], ManualExecutor()
    job.submit(executor, note(outcomes))
    disk.fail(DiskCall.SYNC, nth=1 if is_one_file else 2)  # The checkpoint is synced first.
    executor.run_all()
    (error,) = outcomes
    assert isinstance(error, SyncFailed)
    assert (error.errno, error.filename) == (errno.EIO, "/d/0.log")


async def test_the_kernels_refusal_is_a_failed_sync(tmp_path):
    disk, executor = RealDisk(), ThreadExecutor(1, "test")
    file = disk.open(f"{tmp_path}/0.log", create=True)
    file.close()
    outcomes = []
    job_of(disk, str(tmp_path), file).submit(executor, note(outcomes))
    while not outcomes:
        await run(executor, lambda: None)
    (error,) = outcomes
    assert isinstance(error, SyncFailed)
    assert (error.errno, error.filename) == (errno.EBADF, file.path)
    executor.close()
