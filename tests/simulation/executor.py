"""The executor port of one life: jobs end at random times, and die with their life.

A job's work is done in one piece at some moment between its begin and its end, off the loop: asking
for the running loop in it fails as it would in a thread. So each race between a job and the loop
can come about, but for those in the middle of the work.
"""

import asyncio
from collections import deque

LATE_SECONDS = 0.5
"""The mean of a job in a hundred."""
LONGEST_SECONDS = 15.0
"""However slow the disk is: what waits for it goes on soon after it is well again."""


class SimulatedExecutor:
    """``threads`` jobs at a time; the others wait in line."""

    def __init__(self, loop, life, rng, name, *, threads, seconds, pace):
        """``seconds``: the mean of a job. ``pace()``: how many times as slow the disk is now."""
        self._loop = loop
        self._life = life
        self._rng = rng
        self.name = name
        self._threads = threads
        self._seconds = seconds
        self._pace = pace
        self._running = 0
        self._waiting = deque()
        self._is_closed = False
        self._held = 0
        self._due = []

    @property
    def unfinished(self):
        """Jobs that were submitted and whose end was not told."""
        return self._running + len(self._waiting)

    def submit(self, work, done):
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
        """Do what was submitted, at once."""
        self._is_closed = True
        while self._waiting:
            work, done = self._waiting.popleft()
            self._running += 1
            self._tell(done, *self._do(work))

    def _begin(self):
        while self._waiting and self._running < self._threads:
            work, done = self._waiting.popleft()
            self._running += 1
            seconds = self._duration()
            share = self._rng.random()
            self._loop.call_later(seconds * share, self._work, work, done, seconds * (1 - share))

    def _duration(self):
        mean = self._seconds
        if self._rng.random() < 0.01:
            mean = LATE_SECONDS
        return min(self._rng.expovariate(1 / mean) * self._pace(), LONGEST_SECONDS)

    def _work(self, work, done, rest):
        result, error = self._do(work)
        if not self._life.is_dead:
            self._loop.call_later(rest, self._end, done, result, error)

    def _do(self, work):
        asyncio._set_running_loop(None)
        try:
            return work(), None
        except BaseException as error:  # noqa: BLE001 - as in ThreadExecutor
            return None, error
        finally:
            asyncio._set_running_loop(self._loop)

    def _end(self, done, result, error):
        self._tell(done, result, error)
        self._begin()

    def _tell(self, done, result, error):
        self._running -= 1
        done(result, error)
