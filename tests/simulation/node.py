"""One node of the world: what outlives its process, and its lives one after the other."""

import random

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.env.memory_disk import MemoryDisk
from ottla.env.tasks import forget_tasks
from ottla.environment import Environment
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import Chance, Descriptors, SimulatedDisk, Trouble, fate_of
from tests.simulation.executor import SimulatedExecutor
from tests.simulation.loop import Life
from tests.simulation.network import SimulatedNet
from tests.simulation.store import SimulatedStore, new_store

LOG_DIRS = ("/a", "/b")
PORT = 9092


class Node:
    """A machine with a disk. ``start`` gives it a process, ``kill`` and ``stop`` take that away."""

    def __init__(self, world, name, options):
        self.world = world
        self.name = name
        self.options = options
        self.trouble = Trouble()
        self.clock = SimulatedClock(
            world.loop, work_seconds=world.mix.work_seconds, is_at_work=self._is_at_work
        )
        self._store = new_store(self.clock)
        self.disk = MemoryDisk(
            durability=True, clock=self.clock, capacity_bytes=world.mix.disk_bytes
        )
        for directory in LOG_DIRS:
            self.disk.make_directory(directory)
        self.disk.sync_directory("/")
        self.has_lost_power = False
        """Ever: a part of what index files had may be gone."""
        self.lives = 0
        self.life = None
        self.broker = None
        self.environment = None
        self.is_up = False
        """It serves: its doors are open."""
        self.up_since = 0.0
        self.descriptors = None
        self.spare_descriptors = None
        """How many more files a process that is up may open; None: there are enough."""
        self._connection = None
        self._files = None

    def _is_at_work(self):
        """Tell whether it is this node's loop that does something now, and none of its jobs."""
        return self.world.loop.life is self.life and self.world.jobs.running is None

    @property
    def is_running(self):
        return self.life is not None

    @property
    def address(self):
        return self.name, PORT

    def start(self):
        """Begin a new life."""
        world = self.world
        assert self.life is None, "one process at a time"
        self.lives += 1
        world.trace.note("start", self.name, self.lives)
        self.life = life = Life(f"{self.name}.{self.lives}")
        life.is_judged = True
        self.descriptors = Descriptors(world.mix.open_files_max)
        self._files = SimulatedDisk(
            self.disk,
            jobs=world.jobs,
            life=life,
            rng=self._stream("disk"),
            trace=world.trace,
            trouble=self.trouble,
            descriptors=self.descriptors,
            dies=self._died_at_call,
            looks=world.called,
            refused=world.device.refused,
        )
        world.loop.start_for(life, self._live(life), "life")

    async def _live(self, life):
        world = self.world
        environment = self.environment = self._environment(life)
        self.broker = broker = Broker(
            broker_config(self.options), environment=environment, open_store=self._open_store
        )
        try:
            await broker.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, it did not start
            if life.is_dead:
                return
            world.trace.note("refused", type(error).__name__)
            self.world.node_gave_up(self, error, is_starting=True)
            self._end(life)
            return
        world.trace.note("up", self.name)
        self.is_up, self.up_since = True, world.loop.now
        world.nemesis.happened()
        self.lack_descriptors(self.spare_descriptors)
        await broker.failed.wait()
        world.trace.note("failed", self.name)
        self.is_up = False
        world.node_gave_up(self, broker.failure)
        await broker.stop()
        self._end(life)

    def _stream(self, name):
        return random.Random(f"{self.world.seed}/{self.name}/{self.lives}/{name}")

    def _environment(self, life):
        world = self.world

        def executor(name, threads, seconds):
            return SimulatedExecutor(
                world.jobs,
                life,
                self._stream(name),
                name,
                threads=threads,
                seconds=seconds,
                pace=lambda: self.trouble.pace,
            )

        return Environment(
            disk=self._files,
            net=SimulatedNet(world.network, life, self.name, descriptors=self.descriptors),
            clock=self.clock,
            rng=Chance(self._stream("broker")),
            executor=executor("disk", 4, world.mix.job_seconds),
            store_executor=executor("metadata", 1, world.mix.job_seconds),
            read_executor=executor("read", 4, world.mix.job_seconds),
            cleaner_executor=executor("cleaner", 1, world.mix.job_seconds),
            recovery_threads=2,
            stop_threads=2,
            making_threads=2,
            open_files_max=world.mix.open_files_max,
        )

    async def _open_store(self):
        if self._connection is not None:
            await self._connection.end_sessions()
        world = self.world
        self._connection = SimulatedStore(
            self._store,
            loop=world.loop,
            rng=self._stream("store"),
            trace=world.trace,
            trouble=self.trouble,
            seconds=world.mix.commit_seconds,
        )
        self._connection.on_broken = self.broker._giving_up.store_broke
        return self._connection

    @property
    def has_broken_store(self):
        """The store failed in this life: it has to end."""
        return self.is_running and self._connection is not None and self._connection.is_broken

    def unseen(self):
        """Let judges look at the disk of a process within: see ``SimulatedDisk.unseen``."""
        return self._files.unseen()

    def lack_descriptors(self, spare):
        """Let a process that is up have so many descriptors to spare, None: enough of them."""
        self.spare_descriptors = spare
        if self.is_up:
            limit = self.world.mix.open_files_max
            self.descriptors.limit = limit if spare is None else self.descriptors.count + spare

    # -- ends ----------------------------------------------------------------------------------

    def kill(self, *, power=False):
        """End the process now; with ``power`` what was not synced is gone or not."""
        life = self.life
        if life is None:
            return
        self.world.trace.note("kill", self.name, "power" if power else "process")
        self._end(life, power=power)

    def kill_at(self, calls, *, power=False):
        """End the process at the n-th change of its disk from now."""
        if self.life is not None:
            self._dies_by_power = power
            self._files.kill_at(calls)

    def live_on(self):
        """Take back an end at a call that has not come."""
        if self.life is not None:
            self._files.heal()

    def _died_at_call(self):
        self.kill(power=self._dies_by_power)

    async def stop(self):
        """Stop as an administrator would. Returns when the process has ended."""
        life, broker = self.life, self.broker
        if life is None or not self.is_up:
            return
        self.is_up = False
        self.world.trace.note("stop", self.name)
        task = self.world.loop.start_for(life, broker.stop(), "stop")
        while not task.done() and not life.is_dead:
            await self.world.sleep(0.05)
        if not life.is_dead:
            if task.exception() is not None:
                self.world.problem(f"{self.name}: stop failed: {task.exception()!r}")
            elif self.world.has_no_fault:
                self.world.inspector.look_at_end(self)
            self._end(life)

    def _end(self, life, *, power=False):
        if life.is_dead:
            return
        if self.trouble.has_lost_pages and not self.world.mix.keeps_lost_pages:
            power = True
        world = self.world
        self.is_up = False
        life.is_dead = True
        self._files.died()
        forget_tasks(life.tasks)
        world.jobs.bury(life)
        world.loop.bury(life)
        world.network.ended(life)
        self.life = self.broker = self.environment = None
        if power:
            self.disk = self.disk.crash(*fate_of(self._stream("power")))
            self.trouble.has_lost_pages = False
            self.has_lost_power = True
        world.node_ended(self)
