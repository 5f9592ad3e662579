"""A log directory whose syncs hang holds up its own partitions, and no other directory's."""

import asyncio
import threading

import pytest

from ottla.env.executor import ThreadExecutor
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.errors import ErrorCode
from ottla.pending import outcome_of

SYNCS = {DiskCall.SYNC, DiskCall.SYNC_DIRECTORY}
PARTITIONS = 40
"""Half of them in each directory: many more than there are threads."""


class HangingDisk(FaultyDisk):
    """Two devices: while ``goes_on`` is not set, no sync below /b ends."""

    def __init__(self):
        super().__init__(MemoryDisk(durability=True))
        self.goes_on = threading.Event()
        self.goes_on.set()

    def open_volume(self, path):
        return None

    def enter(self, call, path):
        if call in SYNCS and path.startswith("/b"):
            self.goes_on.wait(60)
        return super().enter(call, path)


@pytest.fixture
async def threads():
    executor = ThreadExecutor(4, "test")
    yield executor
    executor.close()


@pytest.fixture
def hanging(make_node, threads):
    disk = HangingDisk()
    node = make_node(disk=disk, log_dirs=("/a", "/b"), partitions=PARTITIONS)
    for partition in node.replica_manager.partitions:
        partition._executor = threads
    node.replica_manager.appends._executor = threads
    yield node
    disk.goes_on.set()


@pytest.mark.parametrize("is_first", [True, False], ids=["with a checkpoint", "of the file alone"])
async def test_syncs_that_hang_hold_up_no_other_directory(hanging, threads, words, is_first):
    """Each sync of one directory took a thread for 3 s: an append to the other waited for 5.7 s."""
    everywhere = [(index, words.batch()) for index in range(PARTITIONS)]
    if not is_first:  # The leader epochs are saved by the first flush.
        await asyncio.wait_for(outcome_of(hanging.append(*everywhere)), 30)
    hanging.disk.goes_on.clear()
    by_dir = {
        log_dir: [one for one in everywhere if hanging.partition(one[0]).log_dir == log_dir]
        for log_dir in ("/a", "/b")
    }
    assert len(by_dir["/a"]) == len(by_dir["/b"]) == PARTITIONS / 2
    stuck = [hanging.append(one) for one in by_dir["/b"]]
    for _ in range(3):
        outcomes = await asyncio.wait_for(outcome_of(hanging.append(*by_dir["/a"])), 30)
        assert words.codes(outcomes) == [ErrorCode.NONE] * len(by_dir["/a"])
    assert not any(answer.is_done for answer in stuck)
    hanging.disk.goes_on.set()
    for answer in stuck:
        assert words.codes(await asyncio.wait_for(outcome_of(answer), 30)) == [ErrorCode.NONE]
