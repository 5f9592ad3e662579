"""The executor port: the one way work that may block leaves the event loop's thread.

fdatasync, cold reads, SQLite, decompression of large batches. The result comes back on the loop's
thread by callback, so the callers need neither locks nor tasks (design D1).
"""

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from queue import SimpleQueue
from typing import Protocol, TypeVar

from ottla.env.disk import Volume
from ottla.env.stall_meter import StallMeter
from ottla.env.sync_queue import SyncJob, SyncQueue

Result = TypeVar("Result")


class Worker(Protocol):
    """Runs functions elsewhere: an executor, or a lane of one."""

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], None],
        *,
        place: str = "",
    ) -> None:
        """Run ``work`` off the loop; then ``done(result, None)`` or ``done(None, error)`` on it.

        Never runs ``done`` before ``submit`` has returned. Does not block. ``place``: the log
        directory whose disk alone it may wait for; such work never waits behind another place's,
        however long that takes. Empty: any, or none.
        """


class Executor(Worker, Protocol):
    """Runs blocking functions elsewhere and brings their outcome back to the loop."""

    def submit_sync(self, job: SyncJob) -> None:
        """Sync a file off the loop, then tell on it; never before this returns. Does not block.

        Does not wait behind the syncs of another ``SyncJob.place``.

        Files that are due together and have one ``File.volume`` may be synced by one call, and are
        told of together. An error is an OSError.
        """

    def hold_syncs(self) -> None:
        """Hint that several files are about to be due: they are begun by ``release_syncs``.

        Every call needs one of the other, in the same turn of the loop. Neither blocks.
        """

    def release_syncs(self) -> None:
        """Begin what was submitted since ``hold_syncs``."""

    def close(self) -> None:
        """Finish what was submitted and end the threads. Blocks until that work is done."""


async def run(executor: Worker, work: Callable[[], Result], *, place: str = "") -> Result:
    """Run ``work`` on ``executor`` and return its result or raise its error.

    ``place``: see ``Executor.submit``. A cancelled caller stops waiting; the work itself still runs
    to its end.
    """
    outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def done(result: Result | None, error: BaseException | None) -> None:
        if outcome.cancelled():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            # The pair (None, None) is a success whose result is None: then Result includes None.
            outcome.set_result(result)  # type: ignore[arg-type]

    executor.submit(work, done, place=place)
    return await outcome


def new_lock() -> AbstractContextManager[bool]:
    """Return a lock for work of several threads that must not meet: held in a ``with``.

    For blocking work only. What the loop's thread shares with it must be rare and short.
    """
    return threading.Lock()


_Job = Callable[[], None]


def run_all(works: Iterable[_Job], *, threads: int) -> None:
    """Run all ``works``, ``threads`` of them at a time. Blocks. Raises what the first one raised.

    After an error no further one is begun. With one thread it is the caller's.
    """
    waiting = deque(works)
    errors: list[BaseException] = []

    def drain() -> None:
        while waiting and not errors:
            try:
                work = waiting.popleft()
            except IndexError:
                return
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
                errors.append(error)

    others = [threading.Thread(target=drain) for _ in range(min(threads, len(waiting)) - 1)]
    for other in others:
        other.start()
    drain()
    for other in others:
        other.join()
    if errors:
        raise errors[0]


class ThreadExecutor:
    """A few threads of one name, started as work arrives. With one thread, work runs in order.

    Each place that work is submitted for has as many threads of its own: a disk that hangs holds up
    nobody else's work.
    The threads are daemons: a process that ends without ``close`` is not held up by a slow disk.
    ``niceness``, 0 to 19: how readily they leave the processor to others (Linux; else nothing).
    With a ``meter`` it measures how long each ``done`` holds the loop.
    """

    def __init__(
        self, threads: int, name: str, *, niceness: int = 0, meter: StallMeter | None = None
    ) -> None:
        self._limit = threads
        self._tell = _call if meter is None else meter.run
        self._niceness = niceness
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._unfinished_lock = threading.Lock()
        self._closed = False
        self._syncs: SyncQueue | None = None
        self._meter = meter
        self._places: dict[str, ThreadExecutor] = {}
        """By place: the threads for its work."""

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], None],
        *,
        place: str = "",
    ) -> None:
        """Run ``work`` on a thread, then ``done`` on the loop that is running now.

        Raises RuntimeError after ``close``. ``done`` is dropped when that loop is closed by then.
        """
        if self._closed:
            raise RuntimeError(f"executor {self._name} is closed")
        if place:
            self._at(place).submit(work, done)
            return
        loop = asyncio.get_running_loop()

        def job() -> None:
            result: Result | None = None
            error: BaseException | None = None
            try:
                result = work()
            # The outcome crosses to the loop whatever it is; a thread must not die of its work.
            except BaseException as raised:  # noqa: BLE001
                error = raised
            with self._unfinished_lock:
                self._unfinished -= 1
            try:
                loop.call_soon_threadsafe(self._tell, done, result, error)
            except RuntimeError:
                # Only a closed loop refuses: nobody is left to be told.
                if not loop.is_closed():
                    raise

        with self._unfinished_lock:
            self._unfinished += 1
            unfinished = self._unfinished
        self._jobs.put(job)
        if len(self._threads) < min(unfinished, self._limit):
            self._start_thread()

    def _at(self, place: str) -> "ThreadExecutor":
        found = self._places.get(place)
        if found is None:
            name = f"{self._name}-{len(self._places)}"
            found = ThreadExecutor(self._limit, name, niceness=self._niceness, meter=self._meter)
            self._places[place] = found
        return found

    @property
    def is_idle(self) -> bool:
        """Whether all that was submitted is done, but for syncs of files; on the loop's thread."""
        return not self._unfinished and all(each.is_idle for each in self._places.values())

    def submit_sync(self, job: SyncJob) -> None:
        """Sync on a thread that needs no interpreter, where there is one; else on any.

        Raises RuntimeError after ``close``.
        """
        if self._closed:
            raise RuntimeError(f"executor {self._name} is closed")
        syncs = self._syncs or self._queue()
        syncs.submit(job)

    def hold_syncs(self) -> None:
        """Hold the syncs that are to come."""
        self._queue().hold()

    def release_syncs(self) -> None:
        """Begin them."""
        self._queue().release()

    def _queue(self) -> SyncQueue:
        if self._syncs is None:
            self._syncs = SyncQueue(self._limit, f"{self._name}-sync", self.submit, call=self._tell)
        return self._syncs

    def close(self) -> None:
        """Finish what was submitted and end the threads. Blocks until then. Harmless twice."""
        if self._syncs is not None:
            self._syncs.close()
        self._closed = True
        for at_place in self._places.values():
            at_place.close()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The machine has no room for one more just now: those that are there do it.
            if not self._threads:
                raise
            return
        self._threads.append(thread)

    def _work(self) -> None:
        if self._niceness and sys.platform == "linux":  # Only there threads have one of their own.
            thread = threading.get_native_id()
            niceness = max(os.getpriority(os.PRIO_PROCESS, thread), self._niceness)
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, niceness)
        while (job := self._jobs.get()) is not None:
            job()
            del job  # A job holds its result: do not keep it while waiting for the next one.


def _call(work: Callable[..., object], *arguments: object) -> None:
    work(*arguments)


class Lane:
    """A share of another executor: so many of its jobs run there at a time, the others wait here.

    For work that anybody can ask for at length, so that it never takes every thread.
    """

    def __init__(self, executor: Executor, width: int, *, place: str = "") -> None:
        """``width``: jobs at a time, at least one. ``place``: of work that names none."""
        self._executor = executor
        self._place = place
        self._width = width
        self._running = 0
        self._waiting: deque[_Job] = deque()
        """Invariant: empty unless ``width`` jobs are running."""
        self._is_closed = False
        self._idle: asyncio.Future[None] | None = None
        """What ``settle`` waits for."""

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], None],
        *,
        place: str = "",
    ) -> None:
        """Run ``work`` when its turn comes: in the order of submission, on the loop's word.

        Raises RuntimeError once the lane settles.
        """
        if self._is_closed:
            raise RuntimeError("the lane is closed")

        def finish(result: Result | None, error: BaseException | None) -> None:
            self._running -= 1
            if self._waiting:
                self._running += 1
                self._waiting.popleft()()
            try:
                done(result, error)
            finally:
                if self._idle is not None and not self._running and not self._idle.done():
                    self._idle.set_result(None)

        def start() -> None:
            self._executor.submit(work, finish, place=place or self._place)

        if self._running < self._width:
            self._running += 1
            start()
        else:
            self._waiting.append(start)

    async def settle(self) -> None:
        """Take no more, drop what waits, and return when nothing runs. For a stop.

        Nobody is told of what is dropped. Without it, the end of a running job submits the next one
        to an executor that may be closed by then.
        """
        self._is_closed = True
        self._waiting.clear()
        if self._running:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def close(self) -> None:
        """Do nothing: the owner of the executor behind closes it."""


class ManualExecutor:
    """Work waits until a test runs it: the test decides when, say, an fsync finishes.

    Everything runs on the caller's thread, ``done`` included; no loop is needed.
    """

    def __init__(self) -> None:
        self._jobs: deque[_Job] = deque()
        self._closed = False
        self._held = 0
        self._due: list[SyncJob] = []

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], None],
        *,
        place: str = "",
    ) -> None:
        """Queue ``work``. Raises RuntimeError after ``close``."""
        if self._closed:
            raise RuntimeError("executor is closed")

        def job() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - as in ThreadExecutor.
                done(None, error)
                return
            done(result, None)

        self._jobs.append(job)

    def submit_sync(self, job: SyncJob) -> None:
        """Queue the file's sync."""
        if self._held:
            self._due.append(job)
        else:
            self._submit_one(job)

    def _submit_one(self, job: SyncJob) -> None:
        self.submit(job.file.sync, lambda _, error: job.told(deque((job,)), error), place=job.place)

    def hold_syncs(self) -> None:
        """Gather syncs."""
        self._held += 1

    def release_syncs(self) -> None:
        """Queue them: those of one volume as one job, unless it is a single one."""
        self._held -= 1
        if self._held:
            return
        due, self._due = self._due, []
        by_volume: dict[Volume | None, list[SyncJob]] = {}
        for job in due:
            by_volume.setdefault(job.file.volume(), []).append(job)
        for volume, jobs in by_volume.items():
            if volume is None or len(jobs) == 1:
                for job in jobs:
                    self._submit_one(job)
            else:
                self._submit_together(volume, jobs)

    def _submit_together(self, volume: Volume, jobs: list[SyncJob]) -> None:
        def ended(_: None, error: BaseException | None) -> None:
            if error is not None:
                volume.distrust()
            for job in jobs:
                job.told(deque((job,)), error)

        self.submit(lambda: volume.sync([job.file for job in jobs]), ended)

    @property
    def waiting(self) -> int:
        """The count of jobs submitted and not run."""
        return len(self._jobs)

    def run_next(self) -> bool:
        """Run the oldest job and its ``done``. Returns False when there is none."""
        if not self._jobs:
            return False
        self._jobs.popleft()()
        return True

    def run_all(self) -> int:
        """Run jobs until none is left, those submitted meanwhile included; return their count."""
        ran = 0
        while self.run_next():
            ran += 1
        return ran

    def close(self) -> None:
        """Run what was submitted and take no more."""
        self._closed = True
        self.run_all()
