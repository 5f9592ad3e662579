"""Syncs without the interpreter: nobody is forgotten, and no file is closed under a sync."""

import asyncio
import errno
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ottla.env import sync_loop, sync_threads
from ottla.env.executor import ThreadExecutor
from ottla.env.real_disk import RealDisk
from ottla.env.sync_loop import OUTCOME, REQUEST
from ottla.env.sync_queue import SyncJob
from ottla.env.sync_threads import WAITING_MAX, SyncThreads
from tests.syncs import told_each

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere fdatasync is not enough")


def job(file, done):
    """Return a job whose end is told as that of work is."""
    return SyncJob(file, told_each(lambda _, error: done(None, error)))


def load_interpreted():
    """Import the loop's source file itself, whether or not the extension lies beside it."""
    path = Path(sync_threads.__file__).parent / "sync_loop.py"
    spec = importlib.util.spec_from_file_location("interpreted_sync_loop", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["compiled", "interpreted"])
def form(request, monkeypatch):
    if request.param == "interpreted":
        module = load_interpreted()
        assert not module.COMPILED
        monkeypatch.setattr(sync_threads, "serve", module.serve)
    elif not sync_loop.COMPILED:
        pytest.skip("the extension is not built: python setup.py build_ext --inplace")


@pytest.fixture
def file(tmp_path):
    return RealDisk().open(str(tmp_path / "file"), create=True)


@pytest.fixture
def held(monkeypatch):
    """Threads that begin when the event is set."""
    gate, serve = threading.Event(), sync_threads.serve

    def wait_and_serve(*pipes):
        gate.wait(20)
        serve(*pipes)

    monkeypatch.setattr(sync_threads, "serve", wait_and_serve)
    yield gate
    gate.set()


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_the_extension_is_built_where_it_must_be():
    if os.environ.get("OTTLA_REQUIRE_COMPILED") != "1":
        pytest.skip("OTTLA_REQUIRE_COMPILED=1 asks for the compiled loop")
    assert sync_loop.COMPILED, "the loop runs interpreted: was there no C compiler?"


def test_without_cython_installed_the_loop_runs_interpreted():
    code = """if True:
        import importlib.util, os, sys
        sys.modules["cython"] = None
        spec = importlib.util.spec_from_file_location("sync_loop", sys.argv[1])
        loop = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loop)
        requests, outcomes = os.pipe(), os.pipe()
        os.write(requests[1], loop.REQUEST.pack(7, loop.ONE_FILE, 2**31 - 1))
        os.close(requests[1])
        loop.serve(requests[0], outcomes[1])
        print(loop.COMPILED, loop.OUTCOME.unpack(os.read(outcomes[0], 100))[:2])
    """
    source = str(Path(sync_threads.__file__).parent / "sync_loop.py")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, source], capture_output=True, text=True, env=env
    )
    assert done.stdout == f"False (7, {errno.EBADF})\n", done.stderr


@LINUX
async def test_an_error_names_the_file(form, file):
    outcomes = []
    file.close()
    executor = ThreadExecutor(1, "test")
    executor.submit_sync(job(file, lambda *one: outcomes.append(one)))
    assert outcomes == []
    await until(lambda: outcomes)
    ((result, error),) = outcomes
    assert result is None
    assert (type(error), error.errno, error.filename) == (OSError, errno.EBADF, file.path)
    executor.close()


@LINUX
async def test_a_file_that_is_closed_meanwhile_stays_open_for_its_sync(form, held, file, tmp_path):
    threads = SyncThreads(1, "test", told=lambda begins: None)
    outcomes = []
    number = file.fileno()
    assert threads.submit(file.sync_descriptor(), lambda code, _: outcomes.append(code))
    file.close()
    os.fstat(number)  # Still there, and no other file has it.
    held.set()
    await until(lambda: outcomes)
    assert outcomes == [0]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    threads.close()


@LINUX
async def test_more_than_fit_are_for_others(form, held, file):
    threads = SyncThreads(3, "test", told=lambda begins: None)
    told = []
    descriptor = file.sync_descriptor()
    taken = [
        threads.submit(descriptor, lambda *_, number=number: told.append(number))
        for number in range(WAITING_MAX + 3)
    ]
    assert taken == [True] * WAITING_MAX + [False] * 3
    held.set()
    await until(lambda: len(told) == WAITING_MAX)
    assert sorted(told) == list(range(WAITING_MAX))
    assert threads.submit(descriptor, lambda *_: told.append("last"))
    await until(lambda: told[-1] == "last")
    threads.close()


@LINUX
async def test_who_fails_when_told_keeps_nobody_from_being_told(form, held, file):
    threads = SyncThreads(1, "test", told=lambda begins: None)
    told, faults = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: faults.append(said))

    def fail(*_):
        raise ZeroDivisionError

    for done in (fail, told.append, fail, told.append):
        taken = threads.submit(file.sync_descriptor(), lambda *_, done=done: done("told"))
        assert taken
    held.set()
    await until(lambda: len(told) == 2)
    assert len(faults) == 2
    threads.close()


@LINUX
async def test_close_waits_and_tells(form, held, file):
    threads = SyncThreads(2, "test", told=lambda begins: None)
    told = []
    for _ in range(5):
        threads.submit(file.sync_descriptor(), lambda code, _: told.append(code))
    threading.Timer(0.05, held.set).start()
    threads.close()
    assert told == []
    await asyncio.sleep(0)
    assert told == [0] * 5
    threads.close()
    assert not any(thread.name.startswith("test-") for thread in threading.enumerate())


@LINUX
def test_another_loop_goes_the_ordinary_way(form, file):
    executor = ThreadExecutor(1, "test")

    async def sync():
        outcomes = []
        executor.submit_sync(job(file, lambda *one: outcomes.append(one)))
        await until(lambda: outcomes)
        return outcomes

    assert asyncio.run(sync()) == [(None, None)]
    assert not executor._threads
    assert asyncio.run(sync()) == [(None, None)]
    assert executor._threads, "the loop of the first sync is gone"
    executor.close()


@LINUX
@pytest.mark.parametrize("fits", [0, 1])
async def test_without_descriptors_for_pipes_it_goes_the_ordinary_way(file, monkeypatch, fits):
    executor = ThreadExecutor(1, "test")
    outcomes, pipe, made = [], os.pipe, []

    def refuse():
        if len(made) == fits:
            raise OSError(errno.EMFILE, "too many open files")
        made.append(pipe())
        return made[-1]

    with monkeypatch.context() as context:
        context.setattr(os, "pipe", refuse)
        executor.submit_sync(job(file, lambda *one: outcomes.append(one)))
    await until(lambda: outcomes)
    assert executor._threads
    for descriptor in (one for both in made for one in both):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    executor.submit_sync(job(file, lambda *one: outcomes.append(one)))
    await until(lambda: len(outcomes) == 2)
    assert outcomes == [(None, None)] * 2
    executor.close()


async def test_without_room_for_a_thread_it_goes_the_ordinary_way(file, monkeypatch):
    """The sync was never begun, and its log was never flushed again; nor did a stop end."""
    start, refused = threading.Thread.start, []

    def refuse(thread):
        if "-sync-" in thread.name and len(refused) < 2:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    executor = ThreadExecutor(2, "disk")
    ended = []
    for _ in range(4):
        executor.submit_sync(job(file, lambda _, error: ended.append(error)))
    await until(lambda: len(ended) == 4)
    assert ended == [None] * 4
    assert len(refused) == 2
    executor.close()


async def test_a_thread_that_cannot_be_started_leaves_the_work_to_those_that_are_there(monkeypatch):
    start, started = threading.Thread.start, []

    def refuse(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    executor = ThreadExecutor(4, "few")
    ended = []
    for number in range(10):
        executor.submit(lambda number=number: number, lambda result, _: ended.append(result))
    await until(lambda: len(ended) == 10)
    assert sorted(ended) == list(range(10))
    executor.close()


async def test_a_place_whose_syncs_hang_has_threads_of_its_own(tmp_path, monkeypatch):
    """They were one pool: four syncs of a disk that hangs, and no other disk's ended."""
    goes_on, hanging = threading.Event(), set()

    def serve(requests, outcomes):
        while message := os.read(requests, REQUEST.size):
            token, _, number = REQUEST.unpack(message)
            if number in hanging:
                goes_on.wait(60)
            os.write(outcomes, OUTCOME.pack(token, 0, 1))

    monkeypatch.setattr(sync_threads, "serve", serve)
    disk, executor = RealDisk(), ThreadExecutor(4, "test")
    loop, kept = asyncio.get_running_loop(), []

    def sync(place):
        file = disk.open(str(tmp_path / f"{place}-{len(kept)}"), create=True)
        kept.append(file)
        if place == "b":
            hanging.add(file.sync_descriptor().number)
        ended = loop.create_future()
        told = told_each(lambda _, error: ended.set_result(error))
        executor.submit_sync(SyncJob(file, told, place))
        return ended

    try:
        stuck = [sync("b") for _ in range(20)]
        for _ in range(3):
            assert await asyncio.wait_for(sync("a"), 30) is None
        assert not any(one.done() for one in stuck)
        goes_on.set()
        assert await asyncio.wait_for(asyncio.gather(*stuck), 30) == [None] * 20
    finally:
        goes_on.set()
        executor.close()
