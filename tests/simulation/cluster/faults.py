"""What goes wrong among several nodes: at most what the promises bear."""

import asyncio
import errno
import random
from contextlib import contextmanager

from ottla.env.faulty_disk import DiskCall
from tests.simulation.cluster.copies import OfCopies
from tests.simulation.cluster.leaders import OfLeaders
from tests.simulation.node import LOG_DIRS

FAULTS = (
    "kill",
    "kill-at-call",
    "power",
    "power-at-call",
    "power-all",
    "stop",
    "pause",
    "cut",
    "cut-one-way",
    "cut-clients",
    "cut-store",
    "late-watch",
    "ambiguous",
    "slow-store",
    "slow-disk",
    "sync-error",
    "write-error",
    "reset",
    "kill-leader-then-cut",
    "clock",
    "absence",
)
FULL_SECONDS = 15.0
"""Within which others lead what a node without space has led."""
GIVEN_SECONDS = 7
"""Within which others lead what such a node has come to lead since."""
ABSENCE_SECONDS = 20.0
"""Within which the others have seen that a node is away, besides one and a half times
``replica.lag.time.max.ms``."""
JUMP_MS_MAX = 40_000
"""How far a wall clock may be ahead or behind amid a fault."""
JOURNALED = (DiskCall.RENAME, DiskCall.SYNC_DIRECTORY)
"""Calls that change no bytes, and wait for the journal of the file system."""
RESTART_SECONDS = 1.0
"""The mean time until a process that ended is started again."""


class Nemesis(OfCopies, OfLeaders):
    """Brings faults about, one or two at a time, and takes them back."""

    def __init__(self, world):
        self.world = world
        self.random = random.Random(f"{world.seed}/nemesis")
        self.lasting = 0
        self._slowed = 0
        """How many faults want names to be slow."""
        self.making = asyncio.Event()
        """A topic is being made."""

    @property
    def is_at_work(self):
        return self.lasting > 0 or any(not one.is_up for one in self.world.machines)

    def happened(self):
        """Hear that a node is up, or its disk in trouble."""

    async def rage(self, seconds):
        """Let faults come for so long."""
        world, end = self.world, self.world.loop.now + seconds
        while True:
            pause = self.random.expovariate(1 / world.mix.fault_seconds)
            if world.loop.now + pause >= end:
                await world.sleep(max(end - world.loop.now, 0.0))
                return
            await world.sleep(pause)
            if self.lasting < (2 if world.mix.faults_overlap else 1):
                name = self.random.choice(world.mix.faults)
                world.loop.start_for(world.life, self._one(name), name)

    async def _one(self, name):
        self.lasting += 1
        machine = self.random.choice(self.world.machines)
        self.world.trace.note("FAULT", name, machine.name)
        self.world.ledger.counts[f"fault {name}"] += 1
        try:
            await getattr(self, "_" + name.replace("-", "_"))(machine)
        finally:
            self.world.trace.note("ENDED", name, machine.name)
            self.lasting -= 1
            self.world.unhindered_since = self.world.loop.now

    async def heal(self):
        """End all faults, and have every node up whose disk is whole."""
        world = self.world
        while self.lasting:
            await world.sleep(0.1)
        for machine in world.machines:
            if machine.is_suspect:
                machine.trouble.heal()
                machine.kill()
        world.trace.note("healed")

    async def _while(self, mean=6.0):
        await self.world.sleep(min(self.random.expovariate(1 / mean), 5 * mean))

    async def _down(self, machine):
        machine.is_held_down = True
        try:
            await self._while(self.random.choice([0.3, 3.0, 20.0]))
        finally:
            machine.is_held_down = False

    async def _kill(self, machine):
        machine.kill()
        await self._down(machine)

    async def _power(self, machine):
        machine.kill(power=True)
        await self._down(machine)

    async def _kill_at_call(self, machine, *, power=False):
        machine.kill_at(self.random.randint(1, 60), power=power)
        await self._while()
        machine.live_on()

    async def _power_at_call(self, machine):
        await self._kill_at_call(machine, power=True)

    async def _absence(self, machine):
        """Let a node be away, or cut off from the others, until they must go on without it."""
        lag_ms = int(self.world.mix.broker_options["replica.lag.time.max.ms"])
        end = self.world.loop.now + 1.5 * lag_ms / 1000 + ABSENCE_SECONDS
        is_cut = self.random.random() < 0.5
        if is_cut:
            for source, target in self._ways_of(machine):
                self.world.network.cut(source, target)
        else:
            machine.is_held_down = True
            machine.kill()
        is_alone = True
        try:
            while self.world.loop.now < end:
                await self.world.sleep(1.0)
                others_are_up = all(one.is_up for one in self._others(machine))
                is_away = is_cut or not machine.is_up  # Else another fault let it begin again.
                is_alone = is_alone and self.lasting == 1 and others_are_up and is_away
            if is_alone:
                self.world.ledger.counts["absences that were looked at"] += 1
                self.world.inspector.look_for_absent(machine)
        finally:
            machine.is_held_down = False
            if is_cut:
                self.world.network.mend()

    async def _power_all(self, _machine):
        for machine in self.world.machines:
            machine.kill(power=True)
        await self._while(1.0)

    async def _stop(self, machine):
        await machine.stop()
        await self._down(machine)

    async def _pause(self, machine):
        life = machine.life
        if life is None:
            return
        self.world.loop.pause(life)
        try:
            await self._while(self.random.choice([2.0, 15.0]))
        finally:
            self.world.loop.resume(life)

    async def _cut_ways(self, ways):
        network = self.world.network
        for source, target in ways:
            network.cut(source, target)
        try:
            await self._while(self.random.choice([1.0, 10.0, 25.0]))
        finally:
            network.mend()

    def _others(self, machine):
        return [one for one in self.world.machines if one is not machine]

    async def _cut(self, machine):
        await self._cut_ways(self._ways_of(machine))

    def _ways_of(self, machine):
        """Return the ways between a node and the others, in both directions."""
        ways = []
        for other in self._others(machine):
            ways += [(machine.name, other.name), (other.name, machine.name)]
        return ways

    async def _cut_one_way(self, machine):
        other = self.random.choice(self._others(machine))
        await self._cut_ways([(machine.name, other.name)])

    async def _cut_clients(self, machine):
        await self._cut_ways([(machine.name, one.name) for one in self.world.clients])

    async def _cut_store(self, machine):
        machine.link.cut()
        try:
            await self._while(self.random.choice([1.0, 12.0]))
        finally:
            machine.link.mend()

    async def _late_watch(self, machine):
        """It is a member, and can change things; it only does not hear of any change."""
        machine.link.is_late = True
        try:
            await self._while(self.random.choice([1.0, 5.0, 20.0]))
        finally:
            machine.link.mend()

    async def _ambiguous(self, machine):
        machine.link.ambiguous_chance = 0.5
        try:
            await self._while()
        finally:
            machine.link.ambiguous_chance = 0.0

    async def _slow_store(self, machine):
        machine.trouble.store_pace = self.random.choice([30.0, 300.0])
        try:
            await self._while()
        finally:
            machine.trouble.store_pace = 1.0

    async def _slow_disk(self, machine):
        machine.trouble.pace = self.random.choice([30.0, 300.0])
        try:
            await self._while()
        finally:
            machine.trouble.pace = 1.0

    @contextmanager
    def _slow_names(self):
        """Let jobs wait for long before they rename a file or sync a directory.

        So it is where the journal of a file system is full. Most of all of the cleaner's thread,
        whose calls are the least urgent ones: what swaps segments has begun, and does not end.
        """
        jobs = self.world.jobs
        names = self.random.choice([["cleaner"], ["cleaner"], ["disk", "cleaner"]])
        self._slowed += 1
        if self._slowed == 1:
            chance = self.random.choice([0.1, 0.5])
            seconds = self.random.choice([0.5, 2.0, 10.0])
            jobs.let_sleep(names, chance, seconds, before=JOURNALED)
        try:
            yield
        finally:
            self._slowed -= 1
            if not self._slowed:
                jobs.wake_all()

    async def _slow_swaps(self, _machine):
        """Let leaders change while segments are being swapped, and logs are cut."""
        with self._slow_names():
            await self._while(3.0)
            for _ in range(self.random.randint(1, 3)):
                await self._elect_twice()

    async def _full_disk(self, machine):
        end = self.world.loop.now + self.random.choice([5.0, FULL_SECONDS, 2 * FULL_SECONDS])
        began, is_alone = self.world.loop.now, True
        looks = []
        with self._full([machine]):
            while self.world.loop.now < end:
                await self.world.sleep(1.0)
                are_up = all(one.is_up for one in self.world.machines)
                is_alone = is_alone and self.lasting == 1 and are_up
                if is_alone:
                    looks.append(self.world.inspector.led_without_space(machine))
            if is_alone and self.world.loop.now - began >= FULL_SECONDS:
                self.world.ledger.counts["full disks that were looked at"] += 1
                *before, found = looks[-GIVEN_SECONDS:]
                for (where, epoch), state in found.items():
                    if all((where, epoch) in one for one in before):
                        self.world.problem(
                            f"{machine.name} has no space, and leads {where}: {state}"
                        )
                        return

    async def _full_disks(self, machine):
        """Several nodes have no space, as where they share a disk."""
        others = self._others(machine)
        self.random.shuffle(others)
        with self._full([machine, *others[: self.random.choice([1, 2])]]):
            await self._while(self.random.choice([3.0, 10.0, 25.0]))

    @contextmanager
    def _full(self, machines):
        """Let others use all space but for less than what is to be kept free; or all, to a byte."""
        used = []
        for machine in machines:
            disk, left_bytes = machine.disk, self.random.choice([50_000, 5_000, 0])
            used_bytes = max(disk.free_bytes("/") - left_bytes, 0)
            disk.take(linked=True, growth_bytes=used_bytes, path="/")
            used.append((disk, used_bytes))
        try:
            yield
        finally:
            for disk, used_bytes in used:
                disk.take(linked=True, growth_bytes=-used_bytes, path="/")

    async def _sync_error(self, machine):
        machine.trouble.fails_once = self.random.choice(LOG_DIRS)
        await self._broken(machine)

    async def _write_error(self, machine):
        below = self.random.choice(LOG_DIRS)
        machine.trouble.errors[DiskCall.WRITE] = (0.3, errno.EIO, below)
        await self._broken(machine)

    async def _broken(self, machine):
        """Let it go on as it can; then its disk is whole, and its process another one."""
        machine.is_suspect = True
        machine.breaking += 1
        try:
            await self._while(self.random.choice([2.0, 15.0]))
        finally:
            machine.breaking -= 1
        machine.trouble.heal()
        machine.kill()

    async def _reset(self, _machine):
        self.world.network.reset(self.random.choice([0.2, 1.0]))

    async def _kill_leader_then_cut(self, machine):
        """Two at once: a power cut, and its successor cut off in one direction."""
        machine.kill(power=True)
        other = self.random.choice(self._others(machine))
        third = next(one for one in self._others(machine) if one is not other)
        await self._cut_ways([(other.name, third.name)])

    async def _clock(self, machine):
        """Let a wall clock jump; it is right again when the fault ends."""
        clock = machine.clock
        jump_ms = self.random.choice([-JUMP_MS_MAX, -3_000, 3_000, JUMP_MS_MAX])
        before, clock.skew_ms = clock.skew_ms, jump_ms
        try:
            await self._while(self.random.choice([1.0, 10.0]))
        finally:
            clock.skew_ms = before
