"""The executor port of one life: jobs begin and end at random times, and die with their life.

In between a job may stop before each of its calls of the disk (see ``jobs``), so that each race
between jobs and the loop can come about. Asking for the running loop in it fails as in a thread.
"""

from collections import deque

from ottla.env.faulty_disk import DiskKilled
from tests.simulation.jobs import LATE_CHANCE, LATE_SECONDS

LONGEST_SECONDS = 15.0
"""However slow the disk is: what waits for it goes on soon after it is well again."""


class SimulatedExecutor:
    """``threads`` jobs at a time; the others wait in line."""

    def __init__(self, jobs, life, rng, name, *, threads, seconds, pace):
        """``seconds``: the mean of a job. ``pace()``: how many times as slow the disk is now."""
        self._jobs = jobs
        self._loop = jobs.loop
        self._life = life
        self._rng = rng
        self.name = name
        self._threads = threads
        self._seconds = seconds
        self._pace = pace
        self._running = 0
        """Jobs that a thread was free for, and whose end was not told."""
        self._to_come = {}
        """By such a job that has not begun: the handle that begins it."""
        self._busy = 0
        """Jobs that are at work."""
        self._untold = {}
        """What to tell of those that have ended, by the handle that will."""
        self._waiting = deque()
        self._is_closed = False
        self._held = 0
        self._due = []

    @property
    def unfinished(self):
        """Jobs that were submitted and whose end was not told."""
        return self._running + len(self._waiting)

    def submit(self, work, done, *, place=""):
        if self._is_closed:
            raise RuntimeError(f"executor {self.name} is closed")
        self._waiting.append((work, done))
        self._begin()

    def submit_sync(self, job):
        if self._held:
            self._due.append(job)
        else:
            self._submit_one(job)

    def _submit_one(self, job):
        self.submit(job.file.sync, lambda _, error: job.told(deque((job,)), error))

    def hold_syncs(self):
        self._held += 1

    def release_syncs(self):
        self._held -= 1
        if self._held:
            return
        due, self._due = self._due, []
        by_volume = {}
        for job in due:
            by_volume.setdefault(job.file.volume(), []).append(job)
        for volume, jobs in by_volume.items():
            if volume is None or len(jobs) < 3 or self._rng.random() < 0.3:
                for job in jobs:
                    self._submit_one(job)
            else:
                self._submit_together(volume, jobs)

    def _submit_together(self, volume, jobs):
        def ended(_, error):
            if error is not None:
                volume.distrust()
            by_told = {}
            for job in jobs:
                by_told.setdefault(job.told, deque()).append(job)
            for told, some in by_told.items():
                told(some, error)

        self.submit(lambda: volume.sync([job.file for job in jobs]), ended)

    def close(self):
        """Do what was submitted; return when all of it is done. All ends are told soon then."""
        self._is_closed = True
        for handle, told in list(self._untold.items()):
            handle.cancel()
            self._loop.call_for(self._life, 0.0, self._end, *told)
        self._untold.clear()
        for one, handle in list(self._to_come.items()):
            handle.cancel()
            self._work(one)
        while self._waiting:
            self._hurry(lambda: self._busy < self._threads)
            self._running += 1
            self._work(_Submitted(*self._waiting.popleft(), 0.0))
        self._hurry(lambda: not self._busy)

    def _hurry(self, is_over):
        """Have jobs run until ``is_over()``. Raises DiskKilled when one of them ends the process.

        Its other jobs have ended with it, and are told of to nobody.
        """
        self._jobs.hurry(lambda: is_over() or self._life.is_dead)
        if self._life.is_dead:
            raise DiskKilled

    def _begin(self):
        while self._waiting and self._running < self._threads:
            self._running += 1
            seconds = self._duration()
            share = self._rng.random()
            one = _Submitted(*self._waiting.popleft(), seconds * (1 - share))
            begins = seconds * share + self._jobs.late_seconds(self.name)
            self._to_come[one] = self._loop.call_later(begins, self._work, one)

    def _duration(self):
        mean = self._seconds
        if self._rng.random() < LATE_CHANCE:
            mean = LATE_SECONDS
        return min(self._rng.expovariate(1 / mean) * self._pace(), LONGEST_SECONDS)

    def _pause_seconds(self):
        return self._seconds * self._pace() / 4

    def _work(self, one):
        def ended(result, error):
            self._busy -= 1
            told = (one.done, result, error)
            if self._is_closed:
                self._loop.call_for(self._life, 0.0, self._end, *told)
                return
            handle = self._loop.call_for(self._life, one.rest, lambda: tell(handle))
            self._untold[handle] = told

        def tell(handle):
            self._end(*self._untold.pop(handle))

        self._to_come.pop(one, None)
        self._busy += 1
        self._jobs.begin(self._life, one.work, ended, seconds=self._pause_seconds, name=self.name)

    def _end(self, done, result, error):
        self._running -= 1
        done(result, error)
        self._begin()


class _Submitted:
    """Work that a thread is free for. ``rest``: seconds from its end until that is told."""

    __slots__ = ("done", "rest", "work")

    def __init__(self, work, done, rest):
        self.work = work
        self.done = done
        self.rest = rest
