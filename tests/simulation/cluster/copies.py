"""Old copies of what a node keeps are put back, as an operator does from a snapshot of a disk."""

import asyncio

from ottla.cluster.lineage import read_lineage
from ottla.ids import NodeId
from ottla.log.files.layout import GENERATION
from ottla.metadata.keys import Keys
from ottla.metadata.values import decode_generations, decode_partition
from ottla.node.identity import STORE_CLUSTER
from tests.simulation.disk import fate_of
from tests.simulation.node import LOG_DIRS

KEYS = Keys(STORE_CLUSTER)
PATIENCE_SECONDS = 90.0


class OfCopies:
    """Faults of the nemesis that bring old copies back."""

    async def _old_copy(self, machine):
        """Copy a disk, and put the copy, or one of its directories, back when it is old."""
        if not machine.is_up:
            return
        copy = machine.disk.crash(*fate_of(self.random))
        if not await self._becomes_old(machine, copy):
            return
        machine.is_held_down = True
        try:
            await self._end_some(machine)
            is_old = await self._is_old(machine, copy) and await self._others_have_all(machine)
            # Another fault may have let it begin again meanwhile.
            if is_old and not machine.is_running:
                self._put_back(machine, copy)
        finally:
            machine.is_held_down = False

    async def _becomes_old(self, machine, copy):
        end = self.world.loop.now + PATIENCE_SECONDS
        while not await self._is_old(machine, copy):
            if self.world.loop.now > end:
                return False
            await self.world.sleep(1.0)
        return True

    async def _end_some(self, machine):
        """End a node, alone or with all others at the same moment."""
        if self.random.random() < 0.4:
            try:
                async with asyncio.timeout(10.0):
                    await machine.stop()
            except TimeoutError:
                pass
        machines = self.world.machines if self.random.random() < 0.5 else [machine]
        for one in {machine: None, **dict.fromkeys(machines)}:
            one.kill(power=self.random.random() < 0.5)

    def _put_back(self, machine, copy):
        chosen = self.random.choice([LOG_DIRS, LOG_DIRS, LOG_DIRS[:1], LOG_DIRS[1:]])
        self.world.trace.note("put back", machine.name, *chosen)
        self.world.ledger.counts["old copies that were put back"] += 1
        if len(chosen) == len(LOG_DIRS):
            machine.disk = copy
        else:
            put_directory_back(machine.disk, copy, chosen[0])
        machine.has_lost_power = True

    async def _is_old(self, machine, copy):
        """Tell whether the node knows each directory of the copy for an old one."""
        known = await self._generations(machine)
        found = [read_lineage(copy, f"{path}/{GENERATION}") for path in LOG_DIRS]
        return bool(known) and all(one is None or one.stamp not in known for one in found)

    async def _generations(self, machine):
        entry = await self.world.shared.inner.get(KEYS.generations(NodeId(machine.number)))
        if entry is None:
            return []
        return [one for stamps in decode_generations(entry.value).values() for one in stamps]

    async def _others_have_all(self, machine):
        """Tell whether nothing is lost by the promises when this node's disk is."""
        entries, _ = await self.world.shared.inner.scan(KEYS.partitions)
        for entry in entries:
            state = decode_partition(entry.value)
            if not {*state.isr, *state.elr} - {machine.number}:
                return False
        return True


def put_directory_back(disk, copy, directory):
    """Let ``directory`` of a disk be as it is in the copy, durably."""
    _remove(disk, directory)
    _copy(copy, disk, directory)


def _remove(disk, directory):
    for name in disk.list_directory(directory):
        path = f"{directory}/{name}"
        if disk.is_directory(path):
            _remove(disk, path)
            disk.remove_directory(path)
        else:
            disk.remove(path)
    disk.sync_directory(directory)


def _copy(source, target, directory):
    if not target.exists(directory):
        target.make_directory(directory)
    for name in source.list_directory(directory):
        path = f"{directory}/{name}"
        if source.is_directory(path):
            _copy(source, target, path)
            continue
        old, new = source.open_read_only(path), target.open(path, create=True)
        new.write_at(0, old.read_at(0, old.size()))
        new.sync()
        old.close()
        new.close()
    target.sync_directory(directory)
