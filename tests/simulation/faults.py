"""What goes wrong: the faults that a seed has drawn come at random times, some of them together.

One that lasts takes back by itself what it brought about; ``heal`` ends all of them at once.
"""

import asyncio
import errno
import random
from contextlib import contextmanager, suppress

from ottla.env.faulty_disk import DiskCall
from tests.simulation.asked import MAKES_PARTITIONS, PROMISES
from tests.simulation.disk import READ_ONLY_REFUSES

RESTART_SECONDS = 1.0
"""The mean time until a process that ended is started again."""
SERVES_ON_SECONDS = 1.0
"""Until a node that cannot go on has shut its doors."""
GIVES_UP_SECONDS = 30.0
"""Until it has ended itself."""
LONG = 10.0
"""By how much some faults last longer than others of their kind."""
REACTION_SECONDS = 0.002
"""From what a fault has waited for to what it does then, at the most."""
BURST_SECONDS = 1.0
"""The mean time between two faults that come together."""


class Nemesis:
    """Brings faults about, and takes all of them back."""

    def __init__(self, world):
        self.world = world
        self.random = random.Random(f"{world.seed}/nemesis")
        self._lasting = {}
        """The tasks of faults that last; a dict, for its order."""
        self._breaking = 0
        """How many of them break a disk, or the store."""
        self.may_give_up = False
        """The disk was broken in this life of the node: it may end itself, or have partitions
        offline until it ends."""
        self._ahead_ms = self._behind_ms = 0
        """How far the node's wall clock has been ahead, and behind, at the most."""
        self._calm = None
        """Set when faults that last have to end; made when it is first needed."""
        self._news = asyncio.Event()
        self.node.trouble.happened = self.happened
        self._faults = {
            "kill": self._kill,
            "kill-at-call": self._kill_at_call,
            "power": self._power,
            "power-at-call": self._power_at_call,
            "stop": self._stop,
            "pause": self._pause,
            "cut": self._cut,
            "cut-one-way": self._cut_one_way,
            "reset": self._reset,
            "slow-disk": self._slow_disk,
            "sync-error": self._sync_error,
            "write-error": self._write_error,
            "other-disk-error": self._other_disk_error,
            "full": self._full,
            "full-then-stop": self._full_then_stop,
            "full-and-broken": self._full_and_broken,
            "descriptors": self._descriptors,
            "read-only": self._read_only,
            "clock": self._clock,
            "slow-store": self._slow_store,
            "store-error": self._store_error,
            "sleepers": self._sleepers,
            "half-open": self._half_open,
            "kill-at-answer": self._kill_at_answer,
            "power-at-answer": self._power_at_answer,
            "sync-error-at-request": self._sync_error_at_request,
            "descriptors-at-answer": self._descriptors_at_answer,
        }
        self._after = None
        """The node ends with an answer: to which request, after how many, and by power or not."""
        self._awaited = None
        """The request with which a fault begins."""
        self._answers = 0
        """How many have come after which there may be new partitions."""

    @property
    def node(self):
        return self.world.node

    @property
    def is_at_work(self):
        """A fault lasts; a stop is none, once it is asked for."""
        return any(name != "stop" for name in self._lasting.values())

    @property
    def keeps_from_joining(self):
        """Something lasts by which a node cannot register itself: it stands, or its store does."""
        return bool({"pause", "slow-store", "store-error"} & set(self._lasting.values()))

    async def rage(self, seconds):
        """Let faults come for so long."""
        world, mix = self.world, self.world.mix
        self._calm = self._calm or asyncio.Event()
        end = world.loop.now + seconds
        mean = mix.fault_seconds
        while True:
            pause = self.random.expovariate(1 / mean)
            if world.loop.now + pause >= end or not mix.faults:
                await world.sleep(max(end - world.loop.now, 0.0))
                return
            await world.sleep(pause)
            task = self._begin(self.random.choice(mix.faults))
            while not (mix.faults_overlap or task.done()):
                await self._something()
            is_burst = self.random.random() < mix.burst_chance
            mean = BURST_SECONDS if is_burst else mix.fault_seconds
            if world.problems:
                return

    def _begin(self, name):
        world = self.world
        world.trace.note("FAULT", name)
        world.coverage.fault(name, self._states())
        world.hindered()
        task = world.loop.start_for(self._life(), self._faults[name](), name)
        self._lasting[task] = name
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task):
        self._lasting.pop(task, None)
        self.happened()
        self.world.hindered()
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            self.world.problem(f"a fault broke: {error!r}", error)

    async def heal(self):
        """End all faults and see to it that the node runs."""
        self._calm.set()
        self.happened()
        self._after = None
        while self._lasting:
            await self._something()
        self._calm.clear()
        node = self.node
        node.live_on()
        if self.may_give_up and node.life is not None:
            # What a broken disk has taken offline comes back with a new process only.
            if node.is_up and self.random.random() < 0.5:
                await node.stop()
            else:
                node.kill()
        self._start_soon()

    def node_ended(self, node):
        """Start it again after a while."""
        self.may_give_up = self._breaking > 0
        self.world.loop.call_for(
            self._life(), self.random.expovariate(1 / RESTART_SECONDS), self._start_soon
        )

    def _life(self):
        return self.world.clients_life

    def _start_soon(self):
        if self.node.life is None:
            if not self._breaking:
                self.may_give_up = False
            self.node.start()

    def _states(self):
        """Return what the node is busy with, as far as can be seen from outside."""
        node = self.node
        if not node.is_running:
            return ["down"]
        if not node.is_up:
            return ["starting"]
        states = ["paused" if node.life.is_paused else "up"]
        executors = (node.environment.executor, node.environment.cleaner_executor)
        states += [f"jobs of {one.name}" for one in executors if one.unfinished]
        return states + sorted(f"during {name}" for name in set(self._lasting.values()))

    async def _last(self, seconds):
        """Let a fault last, until ``heal`` at the most."""
        if self.random.random() < self.world.mix.long_chance:
            seconds *= LONG
        with suppress(TimeoutError):
            async with asyncio.timeout(self.random.expovariate(1 / seconds)):
                await self._calm.wait()

    async def _last_while(self, seconds, holds):
        """Let a fault last while it has not met what it waits for; see ``_last``.

        Whatever ends ``holds()`` has to tell of it by ``happened``.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self.random.expovariate(1 / seconds)):
                while holds() and not self._calm.is_set():
                    await self._something()
        await self.world.sleep(self.random.random() * REACTION_SECONDS)

    def happened(self):
        """Be told of something that a fault may wait for."""
        self._news.set()

    async def _something(self):
        """Wait until something has happened."""
        self._news.clear()
        await self._news.wait()

    @contextmanager
    def _breaks(self):
        """Something may be out of use from now on, until the node has another life."""
        self.may_give_up = True
        self._breaking += 1
        try:
            yield
        finally:
            self._breaking -= 1

    # -- the process ---------------------------------------------------------------------------

    async def _kill(self):
        self.node.kill()

    async def _power(self):
        self.node.kill(power=True)

    async def _kill_at_call(self):
        self.node.kill_at(1 + int(self.random.expovariate(1 / 30)))

    async def _power_at_call(self):
        self.node.kill_at(1 + int(self.random.expovariate(1 / 30)), power=True)

    async def _kill_at_answer(self):
        self._await_answer(power=False)

    async def _power_at_answer(self):
        self._await_answer(power=True)

    def asked(self, request):
        """Be told of a request that is about to be sent."""
        if request == self._awaited:
            self._awaited = None
            self.happened()

    def _await_answer(self, *, power):
        """Let the node end as soon as it has promised something."""
        self._after = (self.random.choice(PROMISES), self.random.choice([1, 1, 3, 10]), power)

    def told(self, request):
        """Be told of an answer that a client got."""
        if request in MAKES_PARTITIONS:
            self._answers += 1
            self.happened()
        if self._after is None or self._after[0] not in ("", request):
            return
        of, count, power = self._after
        self._after = (of, count - 1, power) if count > 1 else None
        if self._after is None:
            self.world.trace.note("FAULT", "at answer", request)
            self.world.coverage.fault("at answer", [request])
            # Not within the client's own turn: its life goes on, the node's ends.
            self.world.loop.call_for(self._life(), 0.0, lambda: self.node.kill(power=power))

    async def _stop(self):
        await self.node.stop()

    async def _pause(self):
        life = self.node.life
        if life is None or life.is_paused:
            return
        self.world.loop.pause(life)
        try:
            await self._last(5.0)
        finally:
            self.world.loop.resume(life)

    async def _sleepers(self):
        """Threads of some executors get no turn, for seconds or minutes."""
        jobs = self.world.jobs
        names = self.random.choice([["cleaner"], ["disk"], ["disk", "cleaner"], ["read", "disk"]])
        chance = self.random.choice([0.01, 0.1, 0.5])
        jobs.let_sleep(names, chance, self.random.choice([0.5, 5.0, 60.0]))
        try:
            await self._last(20.0)
        finally:
            jobs.wake_all()

    # -- the network ---------------------------------------------------------------------------

    def _clients(self):
        names = [client.name for client in self.world.clients]
        return [name for name in names if self.random.random() < 0.6]

    async def _cut(self):
        for name in self._clients():
            self.world.network.cut(name, self.node.name)
            self.world.network.cut(self.node.name, name)
        try:
            await self._last(10.0)
        finally:
            self.world.network.mend()

    async def _cut_one_way(self):
        for name in self._clients():
            pair = (name, self.node.name)
            self.world.network.cut(*(pair if self.random.random() < 0.5 else pair[::-1]))
        try:
            await self._last(10.0)
        finally:
            self.world.network.mend()

    async def _reset(self):
        self.world.network.reset(0.7)

    async def _half_open(self):
        """Machines of clients lose power: nobody tells the node."""
        self.world.network.reset(0.5, tells_node=False)

    # -- the disk ------------------------------------------------------------------------------

    async def _slow_disk(self):
        self.node.trouble.pace = self.random.choice([10.0, 100.0, 500.0])
        try:
            await self._last(10.0)
        finally:
            self.node.trouble.pace = 1.0

    async def _fail(self, calls, number, chance, seconds, below=None):
        """Let calls of the disk below a directory fail by chance for a while."""
        if below is None:
            below = self.random.choice(["", *self.world.log_dirs])
        errors = self.node.trouble.errors
        mine = (chance, number, below)
        errors.update(dict.fromkeys(calls, mine))
        try:
            await self._last(seconds)
        finally:
            for call in calls:
                if errors.get(call) is mine:
                    del errors[call]

    async def _sync_error(self):
        with self._breaks():
            await self._fail([DiskCall.SYNC, DiskCall.SYNC_VOLUME], errno.EIO, 0.3, 1.0)

    async def _sync_error_at_request(self):
        """The next sync of a log directory fails, and no other, as somebody asks for a change.

        The disk is slow until then, or some jobs are late, so that what is asked for waits for its
        turn meanwhile. Mostly
        it is not the first directory: without that one there is no node.
        """
        below = self.random.choice([*self.world.log_dirs, *self.world.log_dirs[1:]])
        self._awaited = request = self.random.choice(["CreateTopicsRequest", *PROMISES[1:6]])
        with self._breaks():
            await self._last_while(30.0, lambda: self._awaited == request)
            if self._awaited is not None:
                return
            trouble, jobs = self.node.trouble, self.world.jobs
            if self.random.random() < 0.5:  # Some jobs are late, and find another disk.
                jobs.let_sleep(["disk"], 0.5, self.random.choice([0.1, 1.0]))
                await self.world.sleep(self.random.choice([0.0, 0.01, 0.05, 0.2]))
            trouble.fails_once, trouble.pace = below, self.random.choice([1.0, 10.0, 100.0])
            try:
                await self._last_while(5.0, lambda: trouble.fails_once)
            finally:
                trouble.fails_once, trouble.pace = "", 1.0
                jobs.wake_all()

    async def _write_error(self):
        with self._breaks():
            await self._fail([DiskCall.WRITE, DiskCall.TRUNCATE], errno.EIO, 0.3, 1.0)

    async def _other_disk_error(self):
        calls = [DiskCall.OPEN, DiskCall.RENAME, DiskCall.REMOVE, DiskCall.SYNC_DIRECTORY]
        calls += [DiskCall.MAKE_DIRECTORY, DiskCall.READ]
        with self._breaks():
            await self._fail(self.random.sample(calls, 2), errno.EIO, 0.3, 1.0)

    async def _read_only(self):
        """A log directory is mounted read-only, as kernels do with a file system in doubt."""
        below = self.random.choice(self.world.log_dirs)
        with self._breaks():
            await self._fail(READ_ONLY_REFUSES, errno.EROFS, 1.0, 2.0, below)

    async def _full(self):
        chance = self.random.choice([0.1, 0.3, 0.8])
        await self._fail([DiskCall.WRITE, DiskCall.MAKE_DIRECTORY], errno.ENOSPC, chance, 5.0)

    async def _full_then_stop(self):
        """A disk is full; once it has cut a log's write short, somebody makes room and restarts.

        What such a write left must not be in the log when the node says that all is clean.
        """
        trouble = self.node.trouble
        before, mine = trouble.torn_writes, (0.3, errno.ENOSPC, "")
        trouble.errors[DiskCall.WRITE] = mine
        try:
            await self._last_while(10.0, lambda: trouble.torn_writes == before)
        finally:
            if trouble.errors.get(DiskCall.WRITE) is mine:
                del trouble.errors[DiskCall.WRITE]
        if trouble.torn_writes != before:
            await self.node.stop()

    async def _full_and_broken(self):
        """A disk is full, and does not cut off either what a write has left."""
        trouble = self.node.trouble
        mine = {DiskCall.WRITE: (0.3, errno.ENOSPC, ""), DiskCall.TRUNCATE: (0.7, errno.EIO, "")}
        with self._breaks():
            trouble.errors.update(mine)
            try:
                await self._last(5.0)
            finally:
                for call, chances in mine.items():
                    if trouble.errors.get(call) is chances:
                        del trouble.errors[call]

    async def _descriptors(self):
        """Hardly any descriptor is left, to this process and to those that follow it.

        Or none of the machine's, now and then: then it is files that cannot be opened. That counts
        most for a process that has just begun, and has none of its logs open.
        """
        node = self.node
        if self.random.random() < 0.5:
            if self.random.random() < 0.6:
                node.kill()
                await self._last_while(20.0, lambda: not node.is_up)
            await self._fail([DiskCall.OPEN], errno.ENFILE, self.random.choice([0.1, 0.7]), 5.0)
            return
        if node.descriptors is None or node.spare_descriptors is not None:
            return
        node.lack_descriptors(self.random.randrange(3))
        try:
            await self._last(5.0)
        finally:
            node.lack_descriptors(None)

    async def _descriptors_at_answer(self):
        """No file can be opened just when partitions were made: nobody has written to them yet."""
        before = self._answers
        await self._last_while(60.0, lambda: self._answers == before)
        if self._answers != before:
            chance = self.random.choice([0.5, 1.0])
            await self._fail([DiskCall.OPEN], errno.ENFILE, chance, 5.0)

    # -- the clock and the store ---------------------------------------------------------------

    @property
    def clock_bounds(self):
        """What a judge needs to know of time: now, how far the node's clock was ahead, and behind.

        At the most, in seconds.
        """
        return self.world.seconds(), self._ahead_ms / 1000, self._behind_ms / 1000

    async def _clock(self):
        """Let the wall clock jump; it is right again when the fault ends."""
        clock = self.node.clock
        clock.skew_ms = self.random.choice([-1, 1]) * self.random.choice([50, 3_000, 40_000])
        self._ahead_ms = max(self._ahead_ms, clock.skew_ms)
        self._behind_ms = max(self._behind_ms, -clock.skew_ms)
        try:
            await self._last(20.0)
        finally:
            clock.skew_ms = 0

    async def _slow_store(self):
        self.node.trouble.store_pace = self.random.choice([10.0, 100.0, 1000.0])
        try:
            await self._last(5.0)
        finally:
            self.node.trouble.store_pace = 1.0

    async def _store_error(self):
        """One commit fails: nobody knows whether it holds. The node has to end itself."""
        with self._breaks():
            trouble = self.node.trouble
            trouble.store_fails = True
            try:
                await self._last_while(20.0, lambda: trouble.store_fails)
            finally:
                self.node.trouble.store_fails = False
            life = self.node.life
            if self.node.has_broken_store:
                for seconds in (SERVES_ON_SECONDS, SERVES_ON_SECONDS, GIVES_UP_SECONDS):
                    was_up = self.node.is_up and not life.is_paused
                    await self.world.sleep(seconds)
                    if self.node.life is not life or life.is_paused:
                        return
                    is_slow = len(self._lasting) > 1  # Its jobs may sleep, or its disk.
                    is_over = seconds == GIVES_UP_SECONDS and not is_slow
                    if is_over or (was_up and self.node.is_up):
                        text = "the metadata store is out of use, and its node goes on"
                        self.world.problem(text)
                        return
