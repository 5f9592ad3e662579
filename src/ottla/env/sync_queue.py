"""Queues files that have to be synced, and decides whether each is synced alone or with others.

A file that is due while few others are is synced at once, alone. Files that become due while some
are being synced, or all together (``hold``), gather in the lane of their volume. Whenever a sync
ends, the cheaper way for all files in the lane is chosen (``sync_prices``): one sync of the whole
file system, one at a time, while the next files gather; or a sync for each file, only as many as
keep the threads busy, while the others gather. Owned by a ``ThreadExecutor``; on the loop's thread
only. Threads of C do the work if the files are the kernel's (``sync_threads``), the executor's
threads for other files. Each place, a log directory, has threads of its own: when its disk hangs,
syncs of other places do not wait.

    due -> alone, fewer than ``threads`` of them under way
        -> the lane of its volume -> together -> late? each by itself
                                  -> each by itself, some of them

Jobs that end together are told together, by one call of what they have in common, so that a request
over very many files costs a few steps per file.

Errors are as strict as those of single syncs (reliability rule 2). When a sync of the file system
fails, every file that waits for it fails, and this volume is not synced that way again: the kernel
reports its own errors for each opened file, so later files learn of theirs. When such a sync is
late, each file is also synced alone, and only that proves that the file is durable.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ottla.env.disk import File, SyncDescriptor, Volume
from ottla.env.sync_prices import SyncPrices
from ottla.env.sync_threads import SyncThreads

TOGETHER_MAX = 4096
"""Files that one sync of everything is for."""
AHEAD = 2
"""How many single syncs are under way for each thread, so that no thread waits for the loop."""
TOLD_MAX = 256
"""How many jobs of one sync are told in one turn of the loop."""


class Submit(Protocol):
    """Runs work off the loop, then tells its result or error on it: ``Executor.submit``."""

    def __call__(
        self,
        work: Callable[[], float],
        done: Callable[[float | None, BaseException | None], None],
        *,
        place: str = "",
    ) -> None:
        """See ``Executor.submit``."""


class SyncJob:
    """A file that is to be synced, and who is told. One object goes all the way, once."""

    __slots__ = ("descriptor", "file", "is_told", "place", "told")

    def __init__(self, file: File, told: "Told", place: str = "") -> None:
        self.file = file
        self.place = place
        """The log directory that the file is in; see ``Executor.submit``."""
        self.descriptor: SyncDescriptor | None = None
        """Use: the queue's; keeps the file open meanwhile."""
        self.told = told
        self.is_told = False


Told = Callable[[deque[Any], BaseException | None], None]
"""Takes those that have ended, all of its own kind, from the left; None: they are durable, else the
same has happened to all. What it leaves, when it raises, it is called with again."""


class _Lane:
    """The syncs that are due on one volume."""

    __slots__ = (
        "alone_count",
        "due",
        "is_late",
        "is_probe",
        "prices",
        "timer",
        "together",
        "volume",
    )

    def __init__(self, volume: Volume, now: float) -> None:
        self.volume = volume
        self.due: deque[SyncJob] = deque()
        """Invariant: empty unless held, or some are under way whose end is the time to go on."""
        self.prices = SyncPrices(now)
        self.alone_count = 0
        """Files under way by themselves."""
        self.together: deque[SyncJob] | None = None
        """The jobs that wait for the sync of everything under way. None: none is under way."""
        self.is_late = False
        """Whether that one takes too long to be waited for."""
        self.is_probe = False
        """Whether it is to find out the price."""
        self.timer: asyncio.TimerHandle | None = None


class SyncQueue:
    """All syncs of one executor."""

    def __init__(
        self, threads: int, name: str, submit: Submit, *, call: Callable[..., None] | None = None
    ) -> None:
        """``submit``: for the files that the kernel does not know. ``call``: as ``SyncThreads``."""
        self._at_once = threads
        self._submit = submit
        self._name = name
        self._call_in = call
        self._threads: dict[str, SyncThreads] = {}
        """By place."""
        self._lanes: dict[Volume, _Lane] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held = 0
        self._gathered: list[SyncJob] = []
        """Invariant: empty unless held: what came since, not asked for its volume yet."""

    def submit(self, job: SyncJob) -> None:
        """Sync, then tell on the loop, never before this returns. Does not block."""
        if self._held:  # It is of the loop; to ask which one runs is a system call.
            self._gathered.append(job)
            return
        file = job.file
        job.descriptor = file.sync_descriptor()
        volume = file.volume()
        if volume is None or not self._is_ours():
            self._start(None, job)
            return
        lane = self._lane_of(volume)
        if (
            lane.due
            or (lane.together is not None and not lane.is_late)
            or lane.alone_count >= self._at_once
        ):
            lane.due.append(job)
        else:
            self._start(lane, job)

    def hold(self) -> None:
        """Begin nothing until ``release``: more comes in the same breath."""
        if self._held or self._is_ours():
            self._held += 1

    def release(self) -> None:
        """Undo one ``hold``; begin what is due with the last."""
        if not self._held:
            return  # Another loop's.
        self._held -= 1
        if not self._held:
            if self._gathered:
                self._sort()
            for lane in self._lanes.values():
                if lane.due:
                    self._begin(lane)

    def _sort(self) -> None:
        """Put what has gathered into the lanes."""
        gathered, self._gathered = self._gathered, []
        lane: _Lane | None = None
        for job in gathered:
            file = job.file
            job.descriptor = file.sync_descriptor()
            volume = file.volume()
            if volume is None:
                self._start(None, job)
                continue
            if lane is None or lane.volume is not volume:
                lane = self._lane_of(volume)
            lane.due.append(job)

    def _lane_of(self, volume: Volume) -> _Lane:
        lane = self._lanes.get(volume)
        if lane is None:
            lane = self._lanes[volume] = _Lane(volume, time.monotonic())
        return lane

    def close(self) -> None:
        """Finish what was submitted. Blocks; what runs on the executor's threads is theirs."""
        self._sort()
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
                lane.timer = None
            while lane.due:
                self._sync_here(lane.due.popleft())
        for threads in self._threads.values():
            threads.close()

    def _threads_of(self, place: str) -> SyncThreads:
        threads = self._threads.get(place)
        if threads is None:
            name = f"{self._name}-{len(self._threads)}"
            threads = SyncThreads(self._at_once, name, told=self._telling, call=self._call_in)
            self._threads[place] = threads
        return threads

    def _sync_here(self, job: SyncJob) -> None:
        """Sync one file on this thread; tell in a later turn, if there is one."""
        error = None
        try:
            job.file.sync()
        except OSError as raised:
            error = raised
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon(self._tell, deque((job,)), error)

    def _is_ours(self) -> bool:
        """Tell whether this is the loop that the lanes are of: the first one that came."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        return self._loop is loop

    def _telling(self, begins: bool) -> None:
        """Gather what becomes due while some are told that they are durable."""
        if begins:
            self.hold()
        else:
            self.release()

    def _begin(self, lane: _Lane) -> None:
        """Let what is due go, unless its time is the end of what is under way."""
        if lane.together is not None and not lane.is_late:
            return
        count, now = len(lane.due), time.monotonic()
        if lane.together is None and lane.volume.is_trusted:
            prefers = lane.prices.prefers_all(count, now)
            if prefers or lane.prices.wants_probe(count, now):
                self._start_together(lane, now, is_probe=not prefers)
                return
        while lane.due and lane.alone_count < self._at_once * AHEAD:
            self._start(lane, lane.due.popleft())

    # One file.

    def _start(self, lane: _Lane | None, job: SyncJob) -> None:
        """Sync one file by itself."""
        if lane is not None:
            lane.alone_count += 1
        descriptor = job.descriptor

        def ended(code: int, microseconds: int) -> None:
            error = OSError(code, os.strerror(code), job.file.path) if code else None
            self._end(lane, job, microseconds, error)

        if descriptor is None or not self._threads_of(job.place).submit(descriptor, ended):
            self._submit_work(job.file.sync, partial(self._end, lane, job), job.place)

    def _end(
        self, lane: _Lane | None, job: SyncJob, us: float, error: BaseException | None
    ) -> None:
        if lane is not None:
            lane.alone_count -= 1
            if error is None:
                lane.prices.saw_one(us, time.monotonic())
        if not job.is_told:
            job.is_told = True
            job.told(deque((job,)), error)

    # All of a volume.

    def _start_together(self, lane: _Lane, now: float, *, is_probe: bool) -> None:
        """Sync what is due by one call; look after it when that takes too long."""
        jobs = lane.due
        lane.due = deque()
        while len(jobs) > TOGETHER_MAX:
            lane.due.appendleft(jobs.pop())
        lane.together = jobs
        lane.is_late, lane.is_probe = False, is_probe
        patience = lane.prices.patience_seconds(len(jobs), now, is_probe=is_probe)
        lane.timer = asyncio.get_running_loop().call_later(patience, self._be_late, lane)
        self._call(lane, list(jobs))

    def _call(self, lane: _Lane, jobs: Sequence[SyncJob]) -> None:
        volume, place = lane.volume, jobs[0].place
        descriptor = volume.sync_descriptor()
        known = [job.descriptor for job in jobs if job.descriptor is not None]

        def ended(code: int, microseconds: int) -> None:
            self._end_together(
                lane, microseconds, OSError(code, os.strerror(code)) if code else None
            )

        if (
            descriptor is None
            or len(known) < len(jobs)
            or not self._threads_of(place).submit_together(
                descriptor, to_write(jobs) or known[:1], ended
            )
        ):
            files = [job.file for job in jobs]
            self._submit_work(lambda: volume.sync(files), partial(self._end_together, lane), place)

    def _submit_work(
        self,
        work: Callable[[], None],
        end: Callable[[float, BaseException | None], None],
        place: str,
    ) -> None:
        """Have a thread of the executor's do it, and tell how long it took."""

        def timed() -> float:
            began = time.monotonic()
            work()
            return (time.monotonic() - began) * 1e6

        def ended(us: float | None, error: BaseException | None) -> None:
            self.hold()
            try:
                end(us or 0.0, error)
            finally:
                self.release()

        self._submit(timed, ended, place=place)

    def _be_late(self, lane: _Lane) -> None:
        """Serve those who wait another way: it may be a gibibyte of somebody else's."""
        assert lane.together is not None, "the timer ends with the call"
        lane.is_late = True
        for job in lane.together:
            self._start(lane, job)
        self._begin(lane)

    def _end_together(self, lane: _Lane, us: float, error: BaseException | None) -> None:
        jobs, is_late = lane.together, lane.is_late
        assert jobs is not None, "it was under way"
        lane.together, lane.is_late = None, False
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if error is not None:
            lane.volume.distrust()
        else:
            learn = lane.prices.saw_probe if lane.is_probe else lane.prices.saw_all
            learn(us, time.monotonic())
            if is_late:
                return  # Each is told by the sync of its own: that may have found an error.
        self._tell(jobs, error)

    def _tell(self, jobs: deque[SyncJob], error: BaseException | None) -> None:
        """Tell all, some per turn: neighbours of one kind by one call.

        What is left when one of them fails is told in a later turn.
        """
        kind: deque[SyncJob] = deque()
        self.hold()
        try:
            for _ in range(min(len(jobs), TOLD_MAX)):
                job = jobs[0]
                if kind and kind[0].told is not job.told:
                    kind[0].told(kind, error)
                jobs.popleft()
                if not job.is_told:
                    job.is_told = True
                    kind.append(job)
            if kind:
                kind[0].told(kind, error)
        finally:
            for job in reversed(kind):  # One of them has raised.
                job.is_told = False
                jobs.appendleft(job)
            if jobs:
                asyncio.get_running_loop().call_soon(self._tell, jobs, error)
            self.release()


def to_write(jobs: Sequence[SyncJob]) -> list[SyncDescriptor]:
    """Return the files whose writeback may fail before it comes to the device (docs/adr/0024)."""
    return [
        job.descriptor for job in jobs if job.file.takes_blocks() and job.descriptor is not None
    ]
