"""How a flush gets done: by the short way if it is one file, and never with its failure hidden."""

import errno

import pytest

from ottla.env.executor import ManualExecutor, ThreadExecutor, run
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.log.checkpoints import EpochStart
from ottla.log.faults import SyncFailed
from ottla.log.flush import FlushJob
from ottla.log.tenancy import Tenancy


def job_of(disk, path, file, epochs=None):
    return FlushJob(
        target_offset=1,
        generation=0,
        rolled=[],
        active=file,
        disk=disk,
        directory=path,
        epochs=epochs,
        tenancy=Tenancy(),
    )


@pytest.mark.parametrize("is_one_file", [True, False])
def test_a_sync_that_fails_ends_the_directory_whichever_way_it_goes(is_one_file):
    disk = FaultyDisk(MemoryDisk())
    disk.make_directory("/d")
    file = disk.open("/d/0.log", create=True)
    job = job_of(disk, "/d", file, None if is_one_file else [EpochStart(0, 0)])
    outcomes, executor = [], ManualExecutor()
    job.submit(executor, lambda *outcome: outcomes.append(outcome))
    disk.fail(DiskCall.SYNC, nth=1 if is_one_file else 2)  # The checkpoint is synced first.
    executor.run_all()
    ((_, error),) = outcomes
    assert isinstance(error, SyncFailed)
    assert (error.errno, error.filename) == (errno.EIO, "/d/0.log")


async def test_the_kernels_refusal_is_a_failed_sync(tmp_path):
    disk, executor = RealDisk(), ThreadExecutor(1, "test")
    file = disk.open(f"{tmp_path}/0.log", create=True)
    file.close()
    outcomes = []
    job_of(disk, str(tmp_path), file).submit(executor, lambda *one: outcomes.append(one))
    while not outcomes:
        await run(executor, lambda: None)
    ((_, error),) = outcomes
    assert isinstance(error, SyncFailed)
    assert (error.errno, error.filename) == (errno.EBADF, file.path)
    executor.close()
