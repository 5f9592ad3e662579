"""Which way files go to be synced, who is told what, and who waits for whom."""

import asyncio
import errno
from functools import partial

import pytest

from ottla.env import sync_queue
from ottla.env.clock import ManualClock
from ottla.env.executor import ManualExecutor, ThreadExecutor
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import BLOCK_BYTES_MIN, RealDisk
from ottla.env.rng import SeededRng
from ottla.env.sync_prices import SyncPrices
from ottla.env.sync_queue import SyncJob, SyncQueue
from tests.syncs import told_each

ALL, ONE = DiskCall.SYNC_VOLUME, DiskCall.SYNC


def job(file, done):
    """Return a job whose end is told as that of work is."""
    return SyncJob(file, told_each(lambda _, error: done(None, error)))


class Bench:
    """A queue whose work waits until the test runs it, on a disk that counts."""

    def __init__(self, monkeypatch):
        self.clock = ManualClock()
        monkeypatch.setattr(sync_queue.time, "monotonic", self.clock.monotonic)
        self.inner = MemoryDisk(durability=True)
        self.inner.make_directory("/d")
        self.disk = FaultyDisk(self.inner)
        self.volume = self.disk.open_volume("/d")
        self.jobs = ManualExecutor()
        self.queue = SyncQueue(4, "test", self.jobs.submit)
        self.files = [self.disk.open(f"/d/{number}", create=True) for number in range(20)]
        self.told = {}

    def submit(self, *numbers):
        for number in numbers:
            self.files[number].write_at(0, b"data")
            self.queue.submit(job(self.files[number], partial(self.done, number)))

    def done(self, number, _, error):
        assert number not in self.told
        self.told[number] = error

    def together(self, *numbers):
        self.queue.hold()
        self.submit(*numbers)
        self.queue.release()

    def learn(self):
        """Let the queue find out that all is as cheap as one."""
        self.together(*range(20))
        self.run()
        self.told.clear()
        self.disk.counts.clear()

    def run(self):
        self.jobs.run_all()

    def counts(self):
        return self.disk.counts[ALL], self.disk.counts[ONE]


@pytest.fixture
async def bench(monkeypatch):
    return Bench(monkeypatch)


@pytest.fixture
async def late(bench, monkeypatch):
    """Say when the patience is over."""
    timers = []

    class Timer:
        def __init__(self, call):
            self.call = call

        def cancel(self):
            timers.remove(self.call)

    monkeypatch.setattr(
        asyncio.get_running_loop(),
        "call_later",
        lambda _, call, *given: timers.append(partial(call, *given)) or Timer(timers[-1]),
    )
    return timers


async def test_the_first_files_that_are_due_together_find_out_the_price(bench, late):
    bench.together(*range(20))
    assert bench.jobs.waiting == 1
    assert len(late) == 1, "and somebody looks after it"
    bench.run()
    assert bench.counts() == (1, 0)
    assert bench.told == dict.fromkeys(range(20))


async def test_a_probe_that_is_dear_holds_nobody_up_and_those_after_it_go_alone(
    bench, late, monkeypatch
):
    sync = bench.volume.sync
    monkeypatch.setattr(bench.volume, "sync", lambda files: (bench.clock.advance(3), sync(files)))
    bench.together(*range(10))
    slow = bench.jobs._jobs.popleft()
    late[0]()
    assert bench.jobs.waiting == 10
    bench.run()
    assert bench.told == dict.fromkeys(range(10))
    slow()
    bench.together(*range(10, 20))
    bench.run()
    assert bench.counts() == (1, 20), "the price is known now"
    assert bench.told == dict.fromkeys(range(20))


async def test_at_steady_load_of_many_syncs_few_are_alone_and_the_others_ride_together(bench):
    """Each that is told comes again, as many connections do, beginning one by one."""
    bench.learn()
    alone = []

    def done(number, turns, _, error):
        assert error is None
        if turns:
            bench.queue.submit(job(bench.files[number], partial(done, number, turns - 1)))

    for number in range(20):
        bench.queue.submit(job(bench.files[number], partial(done, number, 20)))
    while bench.jobs.run_next():
        alone.append(bench.jobs.waiting)
    together, single = bench.counts()
    assert together <= 45, "one for all, turn by turn"
    assert single <= 20 * 21 / 4


async def test_many_files_that_are_due_at_once_are_one_sync(bench):
    bench.learn()
    bench.together(*range(20))
    assert bench.told == {}
    assert bench.jobs.waiting == 1
    bench.run()
    assert bench.counts() == (1, 0)
    assert bench.told == dict.fromkeys(range(20))


async def test_what_was_acknowledged_survives_a_power_cut(bench):
    bench.learn()
    for number, file in enumerate(bench.files):
        file.sync()
        bench.disk.sync_directory("/d")
        file.write_at(4, b"%04d" % number)
    bench.queue.hold()
    for number in range(10):
        bench.queue.submit(job(bench.files[number], partial(bench.done, number)))
    bench.queue.release()
    bench.run()
    assert bench.told == dict.fromkeys(range(10))
    survivor = bench.inner.crash(SeededRng(1))
    for number in range(10):
        assert survivor.open(f"/d/{number}").read_at(4, 9) == b"%04d" % number


async def test_a_single_file_waits_for_nobody(bench):
    bench.learn()
    bench.submit(0)
    bench.submit(1)
    assert bench.jobs.waiting == 2
    bench.run()
    assert bench.counts() == (0, 2)


async def test_what_becomes_due_meanwhile_goes_together(bench):
    bench.learn()
    bench.submit(*range(12))
    assert bench.jobs.waiting == 4, "as many as there are threads, as ever"
    bench.jobs.run_next()
    assert bench.jobs.waiting == 4, "three, and one sync of the other eight"
    bench.submit(12, 13, 14)
    assert bench.jobs.waiting == 4, "they wait for the end of that one"
    bench.run()
    assert bench.told == dict.fromkeys(range(15))
    assert bench.counts() == (2, 4)


async def test_an_error_is_everybodys_who_waited_and_the_volume_is_believed_no_more(bench):
    bench.learn()
    bench.disk.fail(ALL)
    bench.together(*range(10))
    bench.submit(10, 11, 12)
    bench.run()
    assert {number: error.errno for number, error in bench.told.items() if error} == dict.fromkeys(
        range(10), errno.EIO
    )
    assert [bench.told[number] for number in (10, 11, 12)] == [None] * 3, "by syncs of their own"
    assert bench.counts() == (1, 3)
    bench.together(*range(13, 20))
    bench.run()
    assert bench.counts() == (1, 10)


async def test_a_probe_that_fails_is_the_last_sync_of_all(bench):
    bench.disk.fail(ALL)
    bench.together(*range(10))
    bench.run()
    assert [bench.told[number].errno for number in range(10)] == [errno.EIO] * 10
    bench.together(*range(10, 20))
    bench.run()
    assert bench.counts() == (1, 10)


async def test_where_all_is_dear_the_threads_are_kept_busy_and_the_others_gather(bench):
    bench.learn()
    (lane,) = bench.queue._lanes.values()
    lane.prices.saw_probe(10**9, bench.clock.monotonic())
    bench.together(*range(20))
    assert bench.jobs.waiting == 8, "two for each of four threads"
    lane.prices.saw_probe(1, bench.clock.monotonic())
    bench.jobs.run_next()
    assert bench.jobs.waiting == 8, "seven, and all the others at once, as it is cheap again"
    bench.run()
    assert bench.told == dict.fromkeys(range(20))
    assert bench.counts() == (1, 8)


async def test_nobody_waits_long_for_what_another_program_has_written(bench, late):
    bench.learn()
    bench.together(*range(10))
    (patience,) = late
    slow = bench.jobs._jobs.popleft()
    patience()
    assert bench.jobs.waiting == 10
    bench.submit(10)
    assert bench.jobs.waiting == 10, "as many as there are threads are under way"
    for _ in range(3):
        bench.jobs.run_next()
    assert bench.jobs.waiting == 8, "it does not wait for the slow one, only for a place"
    bench.run()
    assert bench.told == dict.fromkeys(range(11))
    bench.clock.advance(3)
    slow()
    assert bench.told == dict.fromkeys(range(11)), "told once"
    assert late == []


async def test_a_late_success_is_not_taken_for_that_of_the_sync_of_its_own(bench, late):
    bench.learn()
    bench.together(*range(10))
    slow = bench.jobs._jobs.popleft()
    late[0]()
    slow()
    assert bench.told == {}, "the file's own sync may have found its error"
    bench.disk.fail(ONE)
    bench.run()
    assert [number for number, error in bench.told.items() if error] == [0]


async def test_a_late_error_is_told_to_who_still_waits(bench, late):
    bench.learn()
    bench.disk.fail(ALL)
    bench.together(*range(10))
    slow = bench.jobs._jobs.popleft()
    late[0]()
    bench.jobs.run_next()
    slow()
    assert {number: error is None for number, error in bench.told.items()} == {
        0: True,
        **dict.fromkeys(range(1, 10), False),
    }
    bench.run()
    assert len(bench.told) == 10


async def test_who_fails_when_told_keeps_nobody_from_being_told(bench):
    bench.learn()

    def fail(*_):
        raise ZeroDivisionError

    bench.queue.hold()
    bench.submit(*range(5))
    bench.queue.submit(job(bench.files[5], fail))
    bench.submit(*range(6, 10))
    bench.queue.release()
    with pytest.raises(ZeroDivisionError):
        bench.run()
    await asyncio.sleep(0)
    assert sorted(bench.told) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    bench.submit(10)
    assert bench.jobs.waiting == 1, "nothing is held any more"
    bench.run()


async def test_close_leaves_nothing_undone(bench):
    bench.learn()
    bench.queue.hold()
    bench.submit(*range(5))
    bench.queue.close()
    await asyncio.sleep(0)
    assert bench.told == dict.fromkeys(range(5))
    assert bench.counts() == (0, 5)


async def test_two_file_systems_do_not_wait_for_each_other(bench):
    bench.learn()
    other = MemoryDisk()
    other.make_directory("/e")
    other.open_volume("/e")
    file = other.open("/e/file", create=True)
    bench.together(*range(10))
    bench.queue.submit(job(file, partial(bench.done, "other")))
    assert bench.jobs.waiting == 2


async def test_the_kernels_files_are_synced_by_threads_without_the_interpreter(
    tmp_path, monkeypatch
):
    known = SyncPrices.prefers_all
    monkeypatch.setattr(  # However busy this machine's disk is.
        SyncPrices, "prefers_all", lambda self, count, now: known(self, count * 100_000, now)
    )
    monkeypatch.setattr(SyncPrices, "patience_seconds", lambda *_, **__: 60.0)
    disk = RealDisk()
    if disk.open_volume(str(tmp_path)) is None:
        pytest.skip("not on this file system, or not by this kernel")
    executor = ThreadExecutor(2, "test")
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(50)]
    taken = []
    for turn in range(10_000):
        told = []
        executor.hold_syncs()
        for file in files:
            file.write_at(turn, b"x")
            executor.submit_sync(job(file, lambda *one, told=told: told.append(one)))
        executor.release_syncs()
        (lane,) = executor._syncs._lanes.values()
        taken.append(lane.together is not None and not lane.is_late)
        async with asyncio.timeout(20):
            while len(told) < 50:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert told == [(None, None)] * 50
        if sum(taken) > 5:
            break
    assert sum(taken) > 5
    assert not executor._threads
    executor.close()


async def test_only_files_that_take_blocks_are_written_one_by_one(tmp_path):
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/one", create=True)

    def takes_blocks(position, length):
        file.write_at(position, bytes(length))
        return file.takes_blocks()

    assert file.takes_blocks(), "what others have written is not known"
    assert not file.takes_blocks()
    block = BLOCK_BYTES_MIN
    assert takes_blocks(0, 10)
    assert takes_blocks(10, 10), "the first block may begin in the inode"
    assert takes_blocks(20, block)
    assert not file.takes_blocks(), "until more is written"
    assert not takes_blocks(20 + block, 10)
    assert not takes_blocks(2 * block - 10, 10), "up to its very end"
    assert takes_blocks(2 * block, 1)
    assert not takes_blocks(2 * block + 1, 1)
    assert takes_blocks(2 * block - 10, 5), "an earlier block may be a hole"
    assert takes_blocks(2 * block + 2, 1), "one block is remembered"
    file.truncate(2 * block + 1)
    assert takes_blocks(2 * block + 1, 1), "it may have been cut off"
    assert takes_blocks(9 * block, 10)
    file.allocate(20 * block)
    assert takes_blocks(9 * block + 10, 1), "what is preallocated is turned into data"
    assert file.takes_blocks()
    file.close()
