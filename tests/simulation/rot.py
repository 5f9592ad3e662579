"""Bit rot, when all has been judged: bits of some files turn over, and what is read is judged.

Expected is detection: an error for the partition, a log directory out of service, a start that is
refused with a reason. Never wrong records, never a fault of ours, and what is told without an error
is all there. Checkpoints in a log directory have no checksum (they are Kafka's), and above the
recovery point rot cannot be told from a torn tail: there, records may be missing, not be wrong. A
log that ends below it is none to serve (rule 8).
What docs/durability.md says is not covered is left alone: a batch's base offset, and, while the
node runs, a transaction index, whose checksum a start looks at.
"""

import random
import struct

from ottla.client.wire.errors import ConnectionFailed
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.log.files.layout import RECOVERY_POINT_CHECKPOINT, partition_directory
from tests.campaigns.administering.judge import Observation, PartitionJudge
from tests.simulation.clients.readers import EARLIEST, LATEST, list_offset
from tests.simulation.observation import NotServed, Observer

START_SECONDS = 60.0
LENGTH_AT = 8
"""Of a batch: behind its base offset."""
KEPT_SECONDS = 5.0
"""How long the node lives on when its files are turned over under its feet."""
WRONG = ("doubled", "invented", "altered", "follows", "dead topic", "is visible", "is there")
"""In what the judge says of records that must not be told, whatever else is missing."""


class Rot(Observer):
    """Turns bits over, then reads everything."""

    kind = "rot"

    def __init__(self, world):
        super().__init__(world, 0)
        self._chance = random.Random(f"{world.seed}/rot")
        self._is_strict = True
        """What is told without an error has to be complete."""
        self._points = {}
        """Below which nothing may be missing from what a process that was killed has left."""
        self.refusal = None
        """Why the node did not go on, if it did not."""

    async def run(self):
        """Do it once. The node may be down afterwards."""
        world, node = self.world, self.world.node
        how = self._chance.choice(["running", "stopped", "killed"])
        world.trace.note("ROT", how)
        world.coverage.fault("rot", [how])
        self.hang_up()
        if how == "stopped":
            await node.stop()
        elif how == "killed":
            node.kill()
            self._is_strict = False
            self._points = self._points_left()
        for _ in range(self._chance.choice([1, 1, 3, 20])):
            self._turn_over(spares=".txnindex" if how == "running" else "nothing")
        if how == "running":
            await world.sleep(KEPT_SECONDS)
        begin = world.loop.now
        while not node.is_up:  # The nemesis starts it, as ever.
            if self.refusal is not None or world.loop.now - begin > START_SECONDS:
                break
            await world.sleep(0.1)
        if self.refusal is not None:
            world.coverage.fault("rot", ["the node refuses"])
            return
        if not node.is_up:
            world.problem("after rot the node neither starts nor says why not")
            return
        for topic in self.history.living():
            for partition in range(topic.partition_count):
                if node.is_up:
                    await self._look(topic, partition)

    def _points_left(self):
        """Return the recovery points of the logs that are there.

        A directory may tell of a log that is elsewhere since: of one that was deleted, or moved.
        """
        points, disk = {}, self.world.node.disk
        for log_dir in self.world.log_dirs:
            told = self.world.device.says(log_dir, RECOVERY_POINT_CHECKPOINT)
            for where, point in told.items():
                if disk.is_directory(f"{log_dir}/{partition_directory(where)}"):
                    points[where] = min(point, points.get(where, point))
        return points

    def gave_up(self, why):
        """Be told of a node that does not go on; return whether that is well."""
        self.refusal = why
        return isinstance(why, (OttlaError, OSError))

    def _turn_over(self, *, spares):
        disk = self.world.node.disk
        found = self._files(disk, self._chance.choice(self.world.log_dirs))
        files = sorted(path for path in found if not path.endswith(spares))
        if not files:
            return
        path = self._chance.choice(files)
        file = disk.open(path)
        at = self._chance.randrange(file.size())
        if path.endswith(".log") and _is_in_base_offset(file.read_at(0, file.size()), at):
            file.close()
            return
        (was,) = file.read_at(at, 1)
        file.write_at(at, bytes([was ^ 1 << self._chance.randrange(8)]))
        file.sync()
        file.close()
        self.world.trace.note("rot", path, at)
        self.world.coverage.fault("rot", [f"of *.{path.rpartition('.')[2]}"[-24:]])
        if path.count("/") == 2:
            self._is_strict = False
            self._points = {}

    def _files(self, disk, directory):
        for name in disk.list_directory(directory):
            path = f"{directory}/{name}"
            if disk.is_directory(path):
                yield from self._files(disk, path)
            elif disk.size_of(path):
                yield path

    async def _look(self, topic, partition):
        try:
            end = await self._told(topic, partition, LATEST)
            visible, _ = await self._read(topic, partition, end, isolation=1)
            records, controls = await self._read(topic, partition, end, isolation=0)
            start = await self._told(topic, partition, EARLIEST)
        except (NotServed, ConnectionFailed, OSError, ValueError) as error:
            self.world.trace.note("rot is told", topic.name, partition, type(error).__name__)
            self.world.coverage.fault("rot", ["is told"])
            self.hang_up()
            return
        point = self._points.get(TopicPartition(topic.name, partition), 0)
        if end < point:
            where = f"{topic.name}-{partition}"
            self.world.problem(f"after rot: {where} ends at {end}, its recovery point was {point}")
        there = {one.offset for one in records}
        seen = {one.offset for one in visible if one.offset in there}
        clock = self.world.nemesis.clock_bounds
        judge = PartitionJudge(
            self.history,
            topic,
            partition,
            Observation(start, end, records, controls, seen, *clock),
        )
        for problem in judge.judge():
            if self._is_strict or any(word in problem for word in WRONG):
                self.world.problem(f"after rot: {problem}")

    async def _told(self, topic, partition, timestamp):
        code, offset = await list_offset(self, topic, partition, timestamp)
        if code:
            raise NotServed(f"ListOffsets: error {code}")
        return offset

    async def _offset(self, topic, partition, timestamp, *, isolation=0):
        return await self._told(topic, partition, timestamp)


def _is_in_base_offset(content, at):
    """Tell whether byte ``at`` of a segment is one of those that no checksum covers."""
    position = 0
    while position + LENGTH_AT + 4 <= at:
        (length,) = struct.unpack_from(">i", content, position + LENGTH_AT)
        if length <= 0 or position + LENGTH_AT + 4 + length > at:
            break
        position += LENGTH_AT + 4 + length
    return position <= at < position + LENGTH_AT
