"""Looks into a node, as no client can: do its parts agree with themselves, is anything left over?

What must always hold is looked at now and then, of one partition at a time, so that it stays cheap.
What nobody waits for any more is looked at when all is quiet, and what a process leaves open when
it has stopped.
"""

import gc
import random

from ottla.coordinator.shard import ShardState

LOOK_SECONDS = 5.0
"""The mean time between two looks."""
SETTLED_SECONDS = 2.0
"""After the last answer, until nothing of a request is left."""


class Inspector:
    """Looks at the node of a world."""

    def __init__(self, world):
        self.world = world
        self.looks = 0
        self._random = random.Random(f"{world.seed}/inspector")

    async def run(self):
        """Look now and then, for ever."""
        while True:
            await self.world.sleep(self._random.expovariate(1 / LOOK_SECONDS))
            node = self.world.node
            if node.is_up and not node.life.is_paused:
                self._guarded(self._look, node)

    def _guarded(self, look, node):
        try:
            look(node)
        except AssertionError as error:
            self.world.problem(f"{node.name}: an invariant does not hold: {error}", error)
        except OSError:
            pass  # The disk is in trouble: what it says now is nothing to go by.

    def _look(self, node):
        self.looks += 1
        work = node.broker.node.work
        partitions = list(work.replica_manager.hosting.partitions.values())
        if partitions:
            partition = self._random.choice(partitions)
            if not partition.is_failed:
                partition.check()
                if not node.trouble.errors:
                    partition.log.check()
        groups = work.coordinators.groups
        for shard in groups._runtime.shards:
            if shard.state is ShardState.ACTIVE:
                shard.machine.check()

    async def look_at_rest(self):
        """Find what is left of requests when nobody asks for anything."""
        await self.world.sleep(SETTLED_SECONDS)
        node = self.world.node
        if not node.is_up:
            return
        manager = node.broker.node.work.replica_manager
        left = {"waiting fetches": manager._fetches.purgatory.watched_count}
        left["waiting appends"] = sum(
            len(partition.commits) for partition in manager.hosting.partitions.values()
        )
        for what, count in left.items():
            if count:
                self.world.problem(f"{node.name}: all is quiet, and there are {count} {what}")

    def look_at_end(self, node):
        """Find what a process that has stopped has not let go of."""
        gc.collect()  # What nobody can reach is closed by that, here as there.
        left = {
            "open files": node.descriptors.count,
            "jobs": sum(job.life is node.life for job in self.world.jobs.alive),
        }
        for what, found in left.items():
            if found:
                self.world.problem(f"{node.name} has stopped, and there are {what}: {found}")
