"""Looks into a node, as no client can: do its parts agree with themselves, is anything left over?

What must always hold is looked at now and then, of one partition at a time, so that it stays cheap.
What nobody waits for any more is looked at when all is quiet, and what a process leaves open when
it has stopped.
"""

import gc
import random
from collections import Counter

from ottla.coordinator.shard import ShardState
from ottla.log.segment.full_files import FULL_SEGMENTS_OPEN_MAX

LOOK_SECONDS = 5.0
"""The mean time between two looks."""
ABSENT_SECONDS = 30.0
"""For how long a node that runs may be in nobody's Metadata: until it has joined again."""
SETTLED_SECONDS = 20.0
"""After the last answer, until nothing of a request is left: a job that began on a slow disk may
last for fifteen."""
TASKS_AT_REST = 16
"""Of a node that nobody asks: its life, its metadata, each chore that is under way."""
TIMERS_AT_REST = 24
"""Likewise, besides one for each partition, member and transactional id."""
FILES_AT_REST = 32
"""Open files of a node that nobody asks, besides those of logs and connections."""
BUFFER_BYTES = 256 * 1024
"""What a connection may hold to receive with."""


class Inspector:
    """Looks at the node of a world."""

    def __init__(self, world):
        self.world = world
        self.looks = 0
        self._random = random.Random(f"{world.seed}/inspector")
        self._present = (None, 0.0)
        """In which life, and when, the node was a member of its cluster last."""

    async def run(self):
        """Look now and then, for ever."""
        while True:
            await self.world.sleep(self._random.expovariate(1 / LOOK_SECONDS))
            node = self.world.node
            if not node.is_up or node.life.is_paused:
                self._present = (None, 0.0)
            elif self.world.rot is None:
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
        self._look_for_member(node)
        work = node.broker.node.work
        partitions = list(work.replica_manager.hosting.partitions.values())
        if partitions:
            partition = self._random.choice(partitions)
            if not partition.is_failed:
                partition.check()
                if not node.trouble.errors:
                    with node.unseen():
                        self.world.checked.check(
                            partition.log, node.disk, are_indexes_sure=not node.has_lost_power
                        )
        self._look_for_failed(node, work.replica_manager.hosting)
        made = work.coordinators.made
        for shard in () if made is None else made.groups._runtime.shards:
            if shard.state is ShardState.ACTIVE:
                shard.machine.check()

    def _look_for_member(self, node):
        """Find a node that runs on although it lost its membership: no client finds it then."""
        now, image = self.world.loop.now, node.broker.node.data.follower.image
        life, since = self._present
        is_member = bool(image.brokers) and image.controller >= 0
        if is_member or life is not node.life or self.world.nemesis.keeps_from_joining:
            self._present = (node.life, now)
        elif now - since > ABSENT_SECONDS:
            self.world.problem(f"{node.name} is no member of its cluster since {since:.0f} s")

    def _look_for_failed(self, node, hosting):
        """Find partitions that are out of service for good though their disk was never broken."""
        if self.world.nemesis.may_give_up:
            return
        for where, partition in hosting.partitions.items():
            if partition.log.failure is not None and where not in hosting.unopened:
                why = f"no disk was broken ({partition.log.failure!r})"
                self.world.problem(f"{node.name}: {where} is out of service, and {why}")
                return

    async def look_at_rest(self):
        """Find what is left of requests when nobody asks for anything."""
        node, begin = self.world.node, self.world.loop.now
        while node.is_up and (left := self._left(node)):
            if self.world.loop.now - begin > SETTLED_SECONDS:
                self.world.problem(f"{node.name}: all is quiet, and there are {', '.join(left)}")
                return
            await self.world.sleep(0.5)

    def _left(self, node):
        manager = node.broker.node.work.replica_manager
        memory = node.broker._memory
        memory.answers.recount()  # As the broker does when it needs room.
        partitions = list(manager.hosting.partitions.values())
        timers = self.world.loop.timers_of(node.life)
        timers_max = TIMERS_AT_REST + len(partitions) + 2 * len(self.world.clients)
        counts = [
            ("waiting fetches", manager._fetches.purgatory.watched_count, 0),
            ("partitions with former settings", _count_outdated(manager.hosting), 0),
            ("waiting appends", sum(len(partition.commits) for partition in partitions), 0),
            ("logs whose segments are being replaced", _count_swapping(partitions), 0),
            ("partitions that could not be opened", len(manager.hosting.unopened), 0),
            ("bytes of answers", memory.answers.used_bytes, 0),
            (
                "bytes of requests",
                memory.requests.used_bytes,
                BUFFER_BYTES * len(self.world.network.ends),
            ),
            ("tasks", len(node.life.tasks), TASKS_AT_REST),
            ("open files", node.descriptors.count, self._files_at_rest(partitions)),
            (
                "full segments that are open though others were read later",
                _open_late(partitions),
                0,
            ),
            ("timers", len(timers), timers_max),
        ]
        left = [f"{count} {what}" for what, count, most in counts if count > most]
        if any(one.endswith(("tasks", "timers")) for one in left):
            left.append(str(self._most(node, timers)))
        return left

    def _files_at_rest(self, partitions):
        """Return how many files may be open: the records and aborted transactions of a log's end,
        and of some full segments."""
        of_logs = 2 * (1 + FULL_SEGMENTS_OPEN_MAX) * len(partitions)
        return FILES_AT_REST + of_logs + len(self.world.network.ends)

    def _most(self, node, timers):
        """Return which tasks and timers there are most of."""
        names = Counter(task.get_coro().__qualname__ for task in node.life.tasks)
        names.update(getattr(one.callback, "__qualname__", "?") for one in timers)
        return names.most_common(5)

    def look_at_end(self, node):
        """Find what a process that has stopped has not let go of."""
        gc.collect()  # What nobody can reach is closed by that, here as there.
        left = {
            "open files": node.descriptors.count_kept(),
            "jobs": sum(job.life is node.life for job in self.world.jobs.alive),
        }
        for what, found in left.items():
            if found:
                paths = ", ".join(sorted(node.descriptors.paths.values()))
                self.world.problem(
                    f"{node.name} has stopped, and there are {what}: {found} {paths}".rstrip()
                )


def _count_outdated(hosting):
    """Return how many partitions have other settings than the metadata says."""
    settings = {}
    for where in hosting.partitions:
        if where.topic not in settings:
            settings[where.topic] = hosting._settings(where.topic)
    return sum(
        each.log.config != settings[where.topic].log
        or each.min_insync_replicas != settings[where.topic].min_insync_replicas
        for where, each in hosting.partitions.items()
    )


def _open_late(partitions):
    """Return how many full segments are open besides those that may be, of all logs."""
    counts = [sum(each.is_file_open for each in one.log.segments[:-1]) for one in partitions]
    return sum(max(count - FULL_SEGMENTS_OPEN_MAX, 0) for count in counts)


def _count_swapping(partitions):
    """Return how many logs are in service, and amid a step of compaction that has to end."""
    return sum(each.log.is_swapping and each.log.is_in_service for each in partitions)
