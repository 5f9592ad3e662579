"""A loop beside the program's own."""

import asyncio
import threading

import pytest

from ottla.env.loop_thread import LoopThread


@pytest.fixture
def thread():
    made = LoopThread("beside")
    made.start()
    yield made
    made.stop()


def test_work_runs_there_and_its_value_comes_back(thread):
    async def where():
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert thread.run(where) == "beside"


def test_errors_come_back(thread):
    async def fail():
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        thread.run(fail)


def test_a_wait_that_is_too_long_ends(thread):
    with pytest.raises(TimeoutError):
        thread.run(asyncio.Event().wait, timeout_seconds=0.01)


def test_stop_ends_what_is_left_and_the_thread(thread):
    begun, ended = threading.Event(), threading.Event()

    async def wait():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def begin():
        thread.kept = asyncio.create_task(wait())

    thread.run(begin)
    assert begun.wait(10)
    thread.stop()
    assert ended.is_set()
    assert not thread.is_running
    assert "beside" not in [each.name for each in threading.enumerate()]
    thread.stop()


def test_the_thread_of_the_caller_gets_no_loop(thread):
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
