"""The threads of the world: jobs that give the turn away at their calls of the disk.

Each job runs on a stack of its own (a greenlet), one at a time: the loop, or one job. A job that
calls the disk may stop before the call, for a time that the seed draws; meanwhile the loop and
other jobs go on. So work meets itself, and the loop, where it does in a real process: midway.

Locks are the world's too, see ``Threads``: a job waits for one that another holds. The loop that
wants one has the others run until it is free, while time stands still; it is noted.
"""

import asyncio
from collections import deque
from contextlib import contextmanager
from time import perf_counter

from greenlet import getcurrent, greenlet

from ottla.env import executor, gate
from ottla.env.faulty_disk import DiskKilled

INTERRUPTED_CHANCE = 0.7
"""Of a job, that it may be interrupted."""
LATE_CHANCE = 0.01
LATE_SECONDS = 0.5
"""The mean of a pause in a hundred."""
LONGEST_SECONDS = 5.0
LONGEST_SLEEP_SECONDS = 600.0
WAKE_SECONDS = 1e-5
"""Until who waited for a lock goes on."""
THREAD_SECONDS = 0.001
"""The mean of a pause in a thread that no executor owns."""


class Deadlock(Exception):
    """Everybody waits, and nobody is left who could go on."""


class Job:
    """Work on a stack of its own. ``ended(result, error)`` is called when it is over."""

    def __init__(self, jobs, life, number, work, ended, seconds, chance, name):
        self.life = life
        self.name = name
        """Of its executor."""
        self.number = number
        self.seconds = seconds
        self.chance = chance
        """Of a pause before a call of the disk."""
        self.is_waiting = False
        """For a lock; whoever frees it wakes this job."""
        self.is_over = False
        self.has_turn = False
        """It runs, or has let one run that it began."""
        self.call = None
        """The call of the disk, and its path, before which it has stopped."""
        self.turn = 0
        """Which of its turns is to come."""
        self._jobs = jobs
        self._work = work
        self._ended = ended
        self._stack = greenlet(self._run)

    def _run(self):
        try:
            result, error = self._work(), None
        except BaseException as caught:  # noqa: BLE001 - as in ThreadExecutor
            result, error = None, caught
        self.is_over = True
        return result, error

    def go_on(self, turn=None):
        """Have the turn until the next pause. ``turn``: unless it had this one already."""
        if not self.is_over and turn in (None, self.turn):
            self._resume(self._stack.switch)

    def die(self):
        """End where it stands, as its process has ended."""
        self._resume(lambda: self._stack.throw(DiskKilled("the process has ended")))

    def _resume(self, switch):
        jobs = self._jobs
        before, jobs.running = jobs.running, self
        self.turn += 1
        jobs._asleep.pop(self, None)
        self.is_waiting, self.has_turn = False, True
        self._stack.parent = getcurrent()
        # As in a thread: there is none. Each of these calls asks the kernel for the process.
        running = asyncio._get_running_loop() if before is None else None
        if running is not None:
            asyncio._set_running_loop(None)
        began = perf_counter()
        try:
            outcome = switch()
        finally:
            jobs.running, self.has_turn = before, False
            if running is not None:
                asyncio._set_running_loop(running)
            if before is None and jobs.loop.judge is not None:
                jobs.loop.judge.leave_out(perf_counter() - began)
        if self.is_over:
            del jobs.alive[self]
            ended, self._ended, self._work = self._ended, None, None
            if not self.life.is_dead:
                ended(*outcome)

    def stop(self):
        """Give the turn back. Raises DiskKilled when its life has ended meanwhile: see ``die``."""
        self._stack.parent.switch()


class Jobs:
    """All jobs of a world, of all lives."""

    def __init__(self, loop, rng, *, chance):
        """``chance``: of a pause before a call of the disk, 0: each job runs in one piece."""
        self.loop = loop
        self.running = None
        """The job that has the turn; None: the loop has it."""
        self.alive = {}
        """Those that have begun and are not over; a dict, for its order."""
        self.pauses = 0
        self.loop_waits = 0
        """How often the loop stood still for others."""
        self.held_up = None
        """Called, without arguments, when the loop needs a lock that a job holds."""
        self._rng = rng
        self._chance = chance
        self._begun = 0
        self._sleepy = ()
        """The names of executors whose jobs may sleep."""
        self._sleep_chance = self._sleep_seconds = 0.0
        self._sleeps_before = ()
        """The calls of the disk before which they sleep; (): before all."""
        self._asleep = {}
        """Jobs; a dict, for its order."""

    def begin(self, life, work, ended, *, seconds, name=""):
        """Begin ``work``, which stops at its first pause; return its job.

        ``seconds``: a function of no argument, the mean length of a pause now.
        """
        self._begun += 1
        # Some jobs are not interrupted at all, so that what waits for them is not always late.
        chance = self._chance if self._rng.random() < INTERRUPTED_CHANCE else 0.0
        job = Job(self, life, self._begun, work, ended, seconds, chance, name)
        self.alive[job] = None
        job.go_on()
        return job

    def pause(self):
        """Be told of a call of the disk: the job that makes it may stop here."""
        job = self.running
        if job is None or job.life.is_dead:
            return
        if self._is_sleepy(job) and self._rng.random() < self._sleep_chance:
            seconds = self._rng.expovariate(1 / self._sleep_seconds)
            self._asleep[job] = None
            self._wake(job, min(seconds, LONGEST_SLEEP_SECONDS))
            job.stop()
            return
        if not job.chance or self._rng.random() >= job.chance:
            return
        self.pauses += 1
        mean = LATE_SECONDS if self._rng.random() < LATE_CHANCE else job.seconds()
        self._wake(job, min(self._rng.expovariate(1 / mean), LONGEST_SECONDS))
        job.stop()

    def _wake(self, job, seconds):
        self.loop.call_for(job.life, seconds, job.go_on, job.turn)

    def let_sleep(self, names, chance, seconds, *, before=()):
        """Let jobs of these executors sleep: before they begin, and before calls of the disk.

        ``chance``: of each of those moments. For so long in the mean. ``before``: only before these
        calls.
        """
        self._sleepy, self._sleep_chance, self._sleep_seconds = names, chance, seconds
        self._sleeps_before = before

    def _is_sleepy(self, job):
        if job.name not in self._sleepy:
            return False
        before = self._sleeps_before
        return not before or (job.call is not None and job.call[0] in before)

    def late_seconds(self, name):
        """Return for how much longer a job of this executor waits until it begins."""
        if (
            name not in self._sleepy
            or self._sleeps_before
            or self._rng.random() >= self._sleep_chance
        ):
            return 0.0
        return min(self._rng.expovariate(1 / self._sleep_seconds), LONGEST_SECONDS)

    def wake_all(self):
        """Let nobody sleep any more."""
        self._sleepy = ()
        asleep, self._asleep = self._asleep, {}
        for job in asleep:
            if job in self.alive:
                self._wake(job, self._rng.random() * LATE_SECONDS)

    def hurry(self, is_over):
        """Have jobs run, here and now, until ``is_over()``. Raises Deadlock."""
        while not is_over():
            ready = [job for job in self.alive if not (job.is_waiting or job.has_turn)]
            if not ready:
                raise Deadlock(f"{len(self.alive)} jobs, each waits for another")
            for job in ready:
                if not job.is_waiting and not is_over():
                    job.go_on()

    def bury(self, life):
        """End the jobs of a life that has ended; those that have the turn do so by themselves."""
        for job in [job for job in self.alive if job.life is life and not job.has_turn]:
            job.die()

    def wait(self, line):
        """Stand in ``line`` until woken. While the loop waits, others run at once."""
        job = self.running
        if (self.loop if job is None else job).life.is_dead:
            raise DiskKilled("the process has ended")  # Nobody would wake it.
        if job is None:
            self.loop_waits += 1
            mark = object()
            line.append(mark)
            self.hurry(lambda: mark not in line)
        else:
            line.append(job)
            job.is_waiting = True
            job.stop()

    def wake(self, line, count):
        """Let the first ``count`` in ``line`` go on, soon."""
        for _ in range(min(count, len(line))):
            one = line.popleft()
            if isinstance(one, Job) and not one.is_over:
                one.is_waiting = False
                self._wake(one, WAKE_SECONDS)


class Lock:
    """As threading's, for jobs and the loop."""

    def __init__(self, jobs):
        self._jobs = jobs
        self._line = deque()
        self._is_held = False

    def acquire(self):
        jobs = self._jobs
        while self._is_held:
            if jobs.running is None and jobs.held_up is not None:
                jobs.held_up()
            jobs.wait(self._line)
        self._is_held = True
        return True

    def release(self):
        self._is_held = False
        self._jobs.wake(self._line, 1)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()


class Condition:
    """As threading's, for jobs and the loop."""

    def __init__(self, jobs, lock):
        self._jobs = jobs
        self._lock = lock
        self._line = deque()

    def wait(self):
        self._lock.release()
        self._jobs.wait(self._line)
        self._lock.acquire()

    def notify_all(self):
        self._jobs.wake(self._line, len(self._line))

    def __enter__(self):
        return self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


class Thread:
    """As threading's: one more job of whoever starts it."""

    def __init__(self, jobs, target):
        self._jobs = jobs
        self._target = target
        self._line = deque()
        self._is_over = False

    def start(self):
        jobs = self._jobs
        running = jobs.running
        life, name = (jobs.loop.life, "") if running is None else (running.life, running.name)
        jobs.begin(life, self._target, self._ended, seconds=lambda: THREAD_SECONDS, name=name)

    def _ended(self, _result, error):
        self._is_over = True
        self._jobs.wake(self._line, len(self._line))
        if error is not None:
            raise error

    def join(self):
        while not self._is_over:
            self._jobs.wait(self._line)


class Threads:
    """What stands in the place of the module ``threading`` in the ports that use it."""

    def __init__(self, jobs):
        self._jobs = jobs

    def Lock(self):  # noqa: N802 - its name there
        return Lock(self._jobs)

    def Condition(self, lock):  # noqa: N802 - its name there
        return Condition(self._jobs, lock)

    def Thread(self, *, target):  # noqa: N802 - its name there
        return Thread(self._jobs, target)

    def get_ident(self):
        job = self._jobs.running
        return 0 if job is None else job.number


@contextmanager
def threads_of(jobs):
    """Let the ports of threads be the world's during a ``with`` block."""
    ports = (gate, executor)
    before = [port.threading for port in ports]
    try:
        for port in ports:
            port.threading = Threads(jobs)
        yield
    finally:
        for port, threading in zip(ports, before, strict=True):
            port.threading = threading
