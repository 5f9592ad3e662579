"""What every executor promises. ``settle`` lets the work happen."""

import asyncio
import threading
from functools import partial

import pytest

from ottla.env.executor import Lane, ManualExecutor, ThreadExecutor, run
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.env.sync_queue import SyncJob
from tests.syncs import told_each


def job(file, done):
    """Return a job whose end is told as that of work is."""
    return SyncJob(file, told_each(lambda _, error: done(None, error)))


@pytest.fixture(params=["one thread", "three threads", "nice thread", "manual"])
def executor(request):
    executor = {
        "one thread": lambda: ThreadExecutor(1, "test"),
        "three threads": lambda: ThreadExecutor(3, "test"),
        "nice thread": lambda: ThreadExecutor(1, "test", niceness=5),
        "manual": ManualExecutor,
    }[request.param]()
    yield executor
    executor.close()


@pytest.fixture
def settle(executor):
    async def settle(condition):
        if isinstance(executor, ManualExecutor):
            executor.run_all()
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    return settle


async def test_the_result_comes_back_on_the_loops_thread(executor, settle):
    outcomes = []
    executor.submit(
        lambda: 6 * 7, lambda *outcome: outcomes.append((*outcome, threading.get_ident()))
    )
    assert outcomes == []
    await settle(lambda: outcomes)
    assert outcomes == [(42, None, threading.get_ident())]


async def test_an_error_comes_back_as_it_was_raised(executor, settle):
    fault = OSError(5, "the disk")

    def work():
        raise fault

    outcomes = []
    executor.submit(work, lambda *outcome: outcomes.append(outcome))
    await settle(lambda: outcomes)
    assert outcomes == [(None, fault)]


async def test_everything_submitted_is_done_once(executor, settle):
    outcomes = []
    for number in range(50):
        executor.submit(lambda number=number: number, lambda result, _: outcomes.append(result))
    await settle(lambda: len(outcomes) == 50)
    assert sorted(outcomes) == list(range(50))
    if not (isinstance(executor, ThreadExecutor) and executor._limit > 1):
        assert outcomes == list(range(50)), "one thread keeps the order"


@pytest.mark.parametrize("make_disk", [RealDisk, MemoryDisk])
async def test_a_sync_is_work_like_any_other(executor, settle, make_disk, tmp_path):
    disk = make_disk()
    if make_disk is MemoryDisk:
        disk.make_directory("/d")
    file = disk.open("/d/file" if make_disk is MemoryDisk else f"{tmp_path}/file", create=True)
    file.write_at(0, b"data")
    outcomes = []

    def done(*outcome):
        outcomes.append((*outcome, threading.get_ident()))

    for _ in range(20):
        executor.submit_sync(job(file, done))
    assert outcomes == []
    await settle(lambda: len(outcomes) == 20)
    assert outcomes == [(None, None, threading.get_ident())] * 20
    file.close()
    executor.submit_sync(job(file, done))
    await settle(lambda: len(outcomes) == 21)
    assert isinstance(outcomes[-1][1], OSError)
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit_sync(job(file, done))


@pytest.mark.parametrize("make_disk", [RealDisk, MemoryDisk])
async def test_syncs_that_are_held_are_done_together(executor, settle, make_disk, tmp_path):
    disk = make_disk()
    home = str(tmp_path)
    if make_disk is MemoryDisk:
        home = "/d"
        disk.make_directory(home)
    disk.open_volume(home)
    files = [disk.open(f"{home}/{number}", create=True) for number in range(9)]
    told = []

    def done(number, *outcome):
        told.append((number, *outcome))
        if number < 9:  # What is due when others end goes on, too.
            executor.submit_sync(job(files[number], partial(done, number + 9)))

    for turn in range(5):
        told.clear()
        executor.hold_syncs()
        for number, file in enumerate(files):
            file.write_at(turn, b"x")
            executor.submit_sync(job(file, partial(done, number)))
        executor.release_syncs()
        assert told == []
        await settle(lambda: len(told) == 18)
        assert sorted(told) == [(number, None, None) for number in range(18)]


async def test_done_may_submit_more(executor, settle):
    outcomes = []

    def first_done(result, _):
        executor.submit(lambda: result + 1, lambda result, _: outcomes.append(result))

    executor.submit(lambda: 1, first_done)
    await settle(lambda: isinstance(executor, ThreadExecutor) or outcomes)
    await settle(lambda: outcomes)
    assert outcomes == [2]


async def test_the_awaiting_form_returns_and_raises(executor):
    async def drive(awaitable):
        task = asyncio.ensure_future(awaitable)
        await asyncio.sleep(0)
        if isinstance(executor, ManualExecutor):
            executor.run_all()
        return await task

    assert await drive(run(executor, lambda: "done")) == "done"
    assert await drive(run(executor, lambda: None)) is None
    with pytest.raises(ZeroDivisionError):
        await drive(run(executor, lambda: 1 // 0))


async def test_a_cancelled_waiter_does_not_stop_the_work(executor, settle):
    ran = []
    task = asyncio.ensure_future(run(executor, lambda: ran.append(1)))
    await asyncio.sleep(0)
    task.cancel()
    await settle(lambda: ran)
    await asyncio.sleep(0.005)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ran == [1]


async def test_close_finishes_what_was_submitted_and_takes_no_more(executor):
    ran = []
    for number in range(5):
        executor.submit(lambda number=number: ran.append(number), lambda *_: None)
    executor.close()
    assert sorted(ran) == list(range(5))
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(lambda: 1, lambda *_: None)
    executor.close()


def test_a_lane_leaves_the_rest_of_the_executor_to_others():
    executor = ManualExecutor()
    lane = Lane(executor, 2)
    ran = []
    for number in range(5):
        lane.submit(lambda number=number: ran.append(number), lambda *_: None)
    executor.submit(lambda: ran.append("other"), lambda *_: None)
    assert executor.waiting == 3
    executor.run_all()
    assert ran == [0, 1, "other", 2, 3, 4]


async def test_a_lane_that_settles_drops_what_waits_and_hears_of_what_runs():
    executor = ManualExecutor()
    lane = Lane(executor, 1)
    told = []
    lane.submit(lambda: "running", lambda result, _: told.append(result))
    lane.submit(lambda: "waiting", lambda result, _: told.append(result))
    settling = asyncio.ensure_future(lane.settle())
    await asyncio.sleep(0)
    assert not settling.done()
    assert executor.run_all() == 1
    executor.close()
    await settling
    assert told == ["running"]
    with pytest.raises(RuntimeError, match="closed"):
        lane.submit(lambda: 1, lambda *_: None)


async def test_a_lane_in_which_nothing_runs_is_settled_at_once():
    await Lane(ManualExecutor(), 1).settle()


def test_a_lane_goes_on_after_a_failure_and_with_what_done_submits():
    executor = ManualExecutor()
    lane = Lane(executor, 1)
    outcomes = []

    def fail():
        raise OSError(5, "the disk")

    def done(result, error):
        outcomes.append((result, type(error)))
        if len(outcomes) == 1:
            lane.submit(lambda: "last", done)

    lane.submit(fail, done)
    lane.submit(lambda: "next", done)
    assert executor.run_all() == 3
    assert outcomes == [(None, OSError), ("next", type(None)), ("last", type(None))]
