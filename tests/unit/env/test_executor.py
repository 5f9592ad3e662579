"""The executors beyond what every one promises."""

import asyncio
import os
import sys
import threading
from functools import partial

import pytest

from ottla.env.executor import ManualExecutor, ThreadExecutor, run, run_all


def test_threads_start_only_when_there_is_work():
    before = threading.active_count()
    executor = ThreadExecutor(4, "lazy")
    assert threading.active_count() == before

    async def use_one():
        done = asyncio.Event()
        executor.submit(lambda: threading.current_thread().name, lambda *_: done.set())
        await done.wait()

    asyncio.run(use_one())
    assert threading.active_count() == before + 1
    executor.close()
    assert threading.active_count() == before


def test_work_that_outlives_its_loop_is_no_fault():
    executor = ThreadExecutor(1, "late")
    release = threading.Event()
    told = []

    async def leave():
        executor.submit(release.wait, lambda *outcome: told.append(outcome))

    asyncio.run(leave())
    release.set()
    executor.close()
    assert told == []


def test_several_threads_work_at_the_same_time():
    executor = ThreadExecutor(2, "both")
    meeting = threading.Barrier(2, timeout=5)

    async def meet():
        done = []
        for _ in range(2):
            executor.submit(meeting.wait, lambda _, error: done.append(error))
        async with asyncio.timeout(5):
            while len(done) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return done

    assert asyncio.run(meet()) == [None, None]
    executor.close()


def test_a_manual_executor_runs_one_job_at_a_time_when_told():
    executor = ManualExecutor()
    story = []
    for name in ("first", "second"):
        executor.submit(
            lambda name=name: story.append(f"{name} works"),
            lambda _, __, name=name: story.append(f"{name} done"),
        )
    assert (story, executor.waiting) == ([], 2)
    assert executor.run_next()
    assert story == ["first works", "first done"]
    assert executor.run_all() == 1
    assert not executor.run_next()


def test_all_works_run_whatever_the_number_of_threads():
    for threads in (1, 2, 9):
        done = []
        run_all([partial(done.append, number) for number in range(5)], threads=threads)
        assert sorted(done) == [0, 1, 2, 3, 4]
    run_all([], threads=3)


def test_works_run_side_by_side():
    meeting = threading.Barrier(3, timeout=5)
    run_all([meeting.wait] * 3, threads=3)


def test_an_error_of_one_work_is_the_callers():
    for threads in (1, 3):
        done = []
        works = [partial(done.append, 1), partial(int, "x"), *[partial(done.append, 2)] * 50]
        with pytest.raises(ValueError, match="invalid literal"):
            run_all(works, threads=threads)
    assert 1 in done


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own")
def test_a_nice_executor_leaves_the_loops_priority_alone():
    executor = ThreadExecutor(1, "test", niceness=7)

    async def niceness():
        return await run(executor, lambda: os.getpriority(os.PRIO_PROCESS, 0))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        assert asyncio.run(niceness()) == max(before, 7)
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
    finally:
        executor.close()


async def test_threads_that_cannot_be_started_leave_the_work_to_those_that_are_there(monkeypatch):
    executor = ThreadExecutor(4, "few")
    start, started = threading.Thread.start, []

    def refuse(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    try:
        found = await asyncio.gather(*(run(executor, lambda n=n: n) for n in range(20)))
    finally:
        executor.close()
    assert found == list(range(20))
    assert len(started) == 1
