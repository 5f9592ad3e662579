"""What goes wrong: the faults that a seed has drawn come at random times, some of them together."""

import errno
import random

from ottla.env.faulty_disk import DiskCall

RESTART_SECONDS = 1.0
"""The mean time until a process that ended is started again."""
GIVES_UP_SECONDS = 30.0
"""Until a node that cannot go on has ended itself."""
READ_ONLY_REFUSES = (
    DiskCall.WRITE,
    DiskCall.TRUNCATE,
    DiskCall.MAKE_DIRECTORY,
    DiskCall.RENAME,
    DiskCall.REMOVE,
    DiskCall.LOCK,
)


class Nemesis:
    """Brings faults about, and takes all of them back."""

    def __init__(self, world):
        self.world = world
        self.random = random.Random(f"{world.seed}/nemesis")
        self.is_at_work = False
        """A fault lasts."""
        self.may_give_up = False
        """The disk was broken in this life of the node: it may end itself, or have partitions
        offline until it ends."""
        self.ahead_ms = 0
        """How far the node's wall clock has been ahead at most."""
        self._is_healing = True
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
            "descriptors": self._descriptors,
            "read-only": self._read_only,
            "clock": self._clock,
            "slow-store": self._slow_store,
            "store-error": self._store_error,
        }

    @property
    def node(self):
        return self.world.node

    async def rage(self, seconds):
        """Let faults come for so long."""
        world = self.world
        self._is_healing = False
        end = world.loop.now + seconds
        mean = world.mix.fault_seconds
        while True:
            pause = self.random.expovariate(1 / mean)
            if world.loop.now + pause >= end or not world.mix.faults:
                await world.sleep(max(end - world.loop.now, 0.0))
                return
            await world.sleep(pause)
            name = self.random.choice(world.mix.faults)
            world.trace.note("FAULT", name)
            world.coverage.fault(name, self._states())
            world.hindered()
            await self._faults[name]()
            if world.problems:
                return

    async def heal(self):
        """End all faults and see to it that the node runs."""
        self._is_healing = True
        self._soothe()
        node = self.node
        if node.life is not None:
            self.world.loop.resume(node.life)
        if self.may_give_up and node.life is not None:
            # What a broken disk has taken offline comes back with a new process only.
            if node.is_up and self.random.random() < 0.5:
                await node.stop()
            else:
                node.kill()
        self._start_soon()

    def node_ended(self, node):
        """Start it again after a while."""
        self.may_give_up = self.may_give_up and self.is_at_work
        self.world.loop.call_for(
            self._life(), self.random.expovariate(1 / RESTART_SECONDS), self._start_soon
        )

    def _life(self):
        return self.world.clients_life

    def _start_soon(self):
        if self.node.life is None:
            if not self.is_at_work:
                self.may_give_up = False
            self.node.start()

    def _states(self):
        """Return what the node is busy with, as far as can be seen from outside."""
        node = self.node
        if not node.is_running:
            return ["down"]
        if not node.is_up:
            return ["starting"]
        states = ["up"]
        executors = (node.environment.executor, node.environment.cleaner_executor)
        return states + [f"jobs of {one.name}" for one in executors if one.unfinished]

    def _soothe(self):
        self.world.network.mend()
        self.node.trouble.heal()
        self.is_at_work = False
        self.world.hindered()

    async def _last(self, seconds):
        """Let a fault last; then all faults end."""
        self.is_at_work = True
        await self.world.sleep(self.random.expovariate(1 / seconds))
        self._soothe()

    # -- the process ---------------------------------------------------------------------------

    async def _kill(self):
        self.node.kill()

    async def _power(self):
        self.node.kill(power=True)

    async def _kill_at_call(self):
        self.node.kill_at(1 + int(self.random.expovariate(1 / 30)))

    async def _power_at_call(self):
        self.node.kill_at(1 + int(self.random.expovariate(1 / 30)), power=True)

    async def _stop(self):
        await self.node.stop()

    async def _pause(self):
        life = self.node.life
        if life is not None:
            self.world.loop.pause(life)
            await self._last(5.0)
            self.world.loop.resume(life)

    # -- the network ---------------------------------------------------------------------------

    def _clients(self):
        names = [client.name for client in self.world.clients]
        return [name for name in names if self.random.random() < 0.6]

    async def _cut(self):
        for name in self._clients():
            self.world.network.cut(name, self.node.name)
            self.world.network.cut(self.node.name, name)
        await self._last(10.0)

    async def _cut_one_way(self):
        for name in self._clients():
            pair = (name, self.node.name)
            self.world.network.cut(*(pair if self.random.random() < 0.5 else pair[::-1]))
        await self._last(10.0)

    async def _reset(self):
        self.world.network.reset(0.7)

    # -- the disk ------------------------------------------------------------------------------

    async def _slow_disk(self):
        self.node.trouble.pace = self.random.choice([10.0, 100.0, 500.0])
        await self._last(10.0)

    def _errors(self, calls, number, chance):
        below = self.random.choice(["", *self.world.log_dirs])
        for call in calls:
            self.node.trouble.errors[call] = (chance, number, below)

    async def _sync_error(self):
        self.may_give_up = True
        self._errors([DiskCall.SYNC, DiskCall.SYNC_VOLUME], errno.EIO, 0.3)
        await self._last(1.0)

    async def _write_error(self):
        self.may_give_up = True
        self._errors([DiskCall.WRITE, DiskCall.TRUNCATE], errno.EIO, 0.3)
        await self._last(1.0)

    async def _other_disk_error(self):
        self.may_give_up = True
        calls = [DiskCall.OPEN, DiskCall.RENAME, DiskCall.REMOVE, DiskCall.SYNC_DIRECTORY]
        calls += [DiskCall.MAKE_DIRECTORY, DiskCall.READ]
        self._errors(self.random.sample(calls, 2), errno.EIO, 0.3)
        await self._last(1.0)

    async def _read_only(self):
        """A log directory is mounted read-only, as kernels do with a file system in doubt."""
        self.may_give_up = True
        below = self.random.choice(self.world.log_dirs)
        for call in READ_ONLY_REFUSES:
            self.node.trouble.errors[call] = (1.0, errno.EROFS, below)
        await self._last(2.0)

    async def _full(self):
        self._errors([DiskCall.WRITE, DiskCall.MAKE_DIRECTORY], errno.ENOSPC, 0.8)
        await self._last(5.0)

    async def _descriptors(self):
        descriptors = self.node.descriptors
        if descriptors is not None:
            descriptors.limit, limit = (
                descriptors.count + self.random.randrange(3),
                descriptors.limit,
            )
            await self._last(5.0)
            descriptors.limit = limit

    # -- the clock and the store ---------------------------------------------------------------

    async def _clock(self):
        """Let the wall clock jump; it is right again when faults end."""
        clock = self.node.clock
        clock.skew_ms = self.random.choice([-1, 1]) * self.random.choice([50, 3_000, 40_000])
        self.ahead_ms = max(self.ahead_ms, clock.skew_ms)
        await self._last(20.0)
        clock.skew_ms = 0

    async def _slow_store(self):
        self.node.trouble.store_pace = self.random.choice([10.0, 100.0, 1000.0])
        await self._last(5.0)

    async def _store_error(self):
        """One commit fails: nobody knows whether it holds. The node has to end itself."""
        self.may_give_up = True
        self.node.trouble.store_fails = True
        await self._last(2.0)
        life = self.node.life
        if self.node.has_broken_store:
            await self.world.sleep(GIVES_UP_SECONDS)
            if self.node.life is life:
                self.world.problem("the metadata store is out of use, and its node goes on")
