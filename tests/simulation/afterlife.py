"""What would be found if the machine ended now: asked of a copy of its disk, many times an hour.

A node ends once a minute at the most, and seldom at the one call of the disk that a fault in its
storage needs. So at promises, and at calls that change names, a copy of one partition's directory
ends in some way; the broker's own recovery opens its log, and what is found is held against what
clients were promised. Such ends follow each other: what one start has found, and would have served,
has to be there after the next end, too. The world itself does not notice: nothing of it is touched.

    kill     the page cache is there, also what no sync has covered
    power    of what no sync has covered all, some or nothing is there, of bytes and of names
    failed   a sync has failed: some bytes are in the page cache only, and called clean; then a kill
    stop     the log that was opened is closed, as a clean stop does
"""

import random
import uuid
from functools import lru_cache

from ottla.env.faulty_disk import DiskCall
from ottla.env.memory_disk import MemoryDisk
from ottla.env.memory_inode import DurableInode
from ottla.env.memory_names import Directory
from ottla.errors import OttlaError
from ottla.log.directories.recovery import open_log
from ottla.log.files.checkpoints import read_offset_checkpoint
from ottla.log.files.layout import (
    CLEAN_SHUTDOWN,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.log.producers.producers import Producers
from tests.campaigns.administering.judge import Observation, PartitionJudge
from tests.campaigns.administering.records import parse
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import fate_of

LOOKS_PER_SECOND = 1.0
"""Simulated ones, in the mean at the most."""
BYTES_PER_LOOK = 100_000
"""Of a directory; one of more counts as more looks."""
CREDIT_MAX = 10.0
RECORD_BYTES_MAX = 500
"""Of a record that clients send, with its share of a batch's header."""
FORGETS_BELOW_MS = 60_000
"""A log that remembers silent producers for less than this may have forgotten some by now."""
LINKS = ("kill", "power", "failed", "stop")


class Afterlife:
    """Looks at what the node of a world would leave."""

    def __init__(self, world):
        self.world = world
        self.looks = 0
        self._random = random.Random(f"{world.seed}/looks")
        self._ends = random.Random(f"{world.seed}/ends")
        self._clock = SimulatedClock(world.loop)
        """The copies': nobody's work takes time there."""
        self._credit = 0.0
        self._at = 0.0
        self._sizes = {}
        """By partition: where its log began, and by base offset the bytes of its segments then, at
        the first look since it began there, and at the last look before."""

    # -- moments -------------------------------------------------------------------------------

    def promised(self, topic_id, partition):
        """Be told of a promise about a partition: look soon, perhaps, when it was noted."""
        if self._may_look(0.5):
            life = self.world.clients_life
            self.world.loop.call_for(life, 0.0, self._look_at, topic_id, partition)

    def called(self, call, path):
        """Be told of a call of the disk that is about to be made: look now, perhaps."""
        directory, _, name = path.rpartition("/")
        is_segments = call is DiskCall.RENAME and name.endswith(LOG_SUFFIX)
        if directory.count("/") < 2 or not self._can_judge:
            return
        if call is DiskCall.SYNC:
            # Seldom, and the most is there that power may take.
            may_look = self._is_amid_change(directory) and self._credit > -CREDIT_MAX
        else:
            may_look = self._may_look(0.5) or (is_segments and self._credit > -CREDIT_MAX)
        if not (may_look or is_segments):
            return
        for partition in self._partitions():
            if partition.log.directory == directory:
                if is_segments:
                    self._judge_retention(partition, path, int(name.removesuffix(LOG_SUFFIX)))
                if may_look:
                    self._look(partition, f"{call.value} {path}")

    def _is_amid_change(self, directory):
        """Tell whether names in there are not durable: as after a roll, before its flush."""
        found = self.world.node.disk._tree.find(directory)
        return found is not None and bool(found.unsynced)

    def _judge_retention(self, partition, path, base_offset):
        """Judge of a segment that is about to lose its name, if no reader may see it any more.

        What compaction has taken out of it before is not judged here: it need not be old.
        """
        log, topic = partition.log, self._topic_of(partition)
        start_offset = log.log_start_offset
        sizes = self._sizes_at_start(log)
        if topic is None or base_offset >= start_offset or log.is_swapping:
            return
        size_bytes = max(
            sum(size for base, size in each.items() if base > base_offset) for each in sizes
        )
        judge = self._judge_of(topic, log, [], [])
        judge.size_bytes = size_bytes
        there = self._records_in(path)
        taken = [
            (batch.base_offset + len(batch.ids) - 1, batch)
            for batch in judge.state.batches
            if batch.base_offset >= base_offset and not there.isdisjoint(batch.ids)
        ]
        for last_offset, batch in taken:
            if last_offset < start_offset and not judge.may_be_deleted(last_offset, batch):
                self.world.problem(
                    f"{log.topic_partition}: retention takes {last_offset} below {start_offset},"
                    f" {size_bytes} bytes stay behind its segment"
                )
                return

    def _records_in(self, path):
        """Return the ids of the records in a file of the node, unnoticed by its world."""
        content = bytes(self.world.node.disk._tree.find(path).content)
        return {each.record for one in _batches_of(content) for each in one.records}

    def _sizes_at_start(self, log):
        """Return how large the log's segments may have been when retention chose its start.

        Segments go later than that: compaction may have taken most of them, and a move the log.
        """
        sizes = {each.base_offset: each.size_bytes for each in log.segments}
        where = log.topic_partition, log.topic_id
        start_offset, chosen, latest = self._sizes.get(where, (None, {}, {}))
        if start_offset != log.log_start_offset:
            chosen = latest, sizes
        self._sizes[where] = log.log_start_offset, chosen, sizes
        return (*chosen, sizes)

    @property
    def _can_judge(self):
        """Whether what is found says something of the node: not amid rot, which damages files."""
        return self.world.is_working and self.world.rot is None

    def _may_look(self, chance):
        world = self.world
        if not self._can_judge:
            return False
        self._credit += (world.loop.now - self._at) * LOOKS_PER_SECOND
        self._credit = min(self._credit, CREDIT_MAX)
        self._at = world.loop.now
        return self._credit > 0 and self._random.random() < chance

    def _partitions(self):
        node = self.world.node
        if not node.is_up:
            return []
        return node.broker.node.work.replica_manager.hosting.partitions.values()

    def _look_at(self, topic_id, number):
        for partition in self._partitions():
            log = partition.log
            if log.topic_id == topic_id.bytes and log.topic_partition.partition == number:
                self._look(partition, "promise")

    # -- a look --------------------------------------------------------------------------------

    def _look(self, partition, moment):
        log, world = partition.log, self.world
        topic = self._topic_of(partition)
        if (topic is not None and not topic.is_living) or self._is_moving(log):
            return
        self.looks += 1
        disk, size_bytes = _copy(world.node.disk, log.log_dir, log.directory)
        self._credit -= max(1.0, size_bytes / BYTES_PER_LOOK)
        # Before a sync it is power that takes what the sync is for.
        is_sync = moment.startswith(DiskCall.SYNC.value + " ")
        ends = ["power" if is_sync else self._ends.choice(LINKS[:3])]
        ends += self._ends.choices(LINKS, k=self._ends.randrange(3))
        end = _End(disk, log, self._ends, self._clock, world.checked)
        for ordinal, how in enumerate(ends):
            problems = end.by(how)
            if end.log is None and not problems:
                if ordinal or topic is None or end.disk.exists(log.directory):
                    return
                problems = self._judge_of(topic, log, [], [], bounds=(0, 0)).judge()
            elif not ordinal and not problems and topic is not None:
                problems = self._judge(topic, end.log)
            for problem in problems:
                said = ", ".join(ends[: ordinal + 1])
                world.problem(f"{log.topic_partition} after {said} at {moment}, left: {problem}")
            if problems or end.log is None:
                return
        # A compaction may have taken the batch that a producer's epoch was learned from.
        policies = world.history.possible(topic, "cleanup.policy", "delete") if topic else []
        if end.log.config.is_compacted or any("compact" in value for value, _, _ in policies):
            return
        for problem in _judge_producers(end.log, end.disk, self._clock):
            said = ", ".join(ends)
            world.problem(f"{log.topic_partition} after {said} at {moment}, left: {problem}")

    def _is_moving(self, log):
        """Tell whether its directory is on its way, or another one has its name, too."""
        disk, name = self.world.node.disk, log.directory.rpartition("/")[2]
        found = [each for each in self.world.log_dirs if disk.is_directory(f"{each}/{name}")]
        return found != [log.log_dir]

    def _judge(self, topic, log):
        records, controls = [], []
        try:
            for content in _contents(log).values():
                for one in _batches_of(content):
                    records += [each for each in one.records if each.offset >= log.log_start_offset]
                    if one.is_control:
                        controls += range(one.base_offset, one.end_offset)
        except ValueError as error:
            return [str(error)]
        return self._judge_of(topic, log, records, controls).judge()

    def _judge_of(self, topic, log, records, controls, bounds=None):
        clock = self.world.nemesis.clock_bounds
        bounds = bounds or (log.log_start_offset, log.log_end_offset)
        observed = Observation(*bounds, records, controls, None, *clock)
        return _LeftJudge(self.world.history, topic, log.topic_partition.partition, observed)

    def _topic_of(self, partition):
        """Return what is known of the topic; None of one that no client knows."""
        topic_id = partition.log.topic_id
        return topic_id and self.world.history.topics.get(uuid.UUID(bytes=topic_id))


class _LeftJudge(PartitionJudge):
    """Judges what would be left: nothing is learned from it, for it does not come to be."""

    size_bytes = None
    """Of the log behind the segment that is judged; None: nobody has counted."""

    @property
    def state(self):
        return self._state

    def may_be_deleted(self, offset, batch):
        """Tell whether retention, or somebody's request, may have taken this record."""
        return self._may_be_deleted(offset, batch)

    def _bytes_behind(self, offset):
        if self.size_bytes is None:
            return super()._bytes_behind(offset)
        return self.size_bytes + (self._observed.log_start - offset) * RECORD_BYTES_MAX

    def judge(self):
        """Return the problems."""
        self._judge_bounds()
        self._judge_found()
        self._judge_promises()
        if not self._is_compacted:
            self._judge_holes()
        return self.problems


class _End:
    """One copy of a partition's directory, and the ends that it meets."""

    def __init__(self, disk, log, chance, clock, checked):
        self.disk = disk
        self.log = None
        """As it was opened last."""
        self._log_dir, self._directory = log.log_dir, log.directory
        self._where, self._config, self._topic_id = log.topic_partition, log.config, log.topic_id
        self._chance = chance
        self._clock = clock
        self._checked = checked
        self._served = None

    def by(self, how):
        """End, and open the log anew; return what is wrong. ``log`` is None if it is not there."""
        is_clean = False
        points = [
            (read_offset_checkpoint(self.disk, f"{self._log_dir}/{name}") or {}).get(self._where, 0)
            for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT)
        ]
        if how == "stop" and self.log is not None:
            self.log.close()
            points = [self.log.log_end_offset, self.log.log_start_offset]
            is_clean = True
        elif how == "power":
            self.disk = self.disk.crash(*fate_of(self._chance))
        elif how == "failed":
            self._lose_pages()
        self.log = None
        if not self.disk.exists(self._directory):
            return []
        try:
            self.log = open_log(
                self.disk,
                self._clock,
                self._directory,
                self._where,
                self._config,
                recovery_point=points[0],
                log_start_offset=points[1],
                is_clean=is_clean or self.disk.exists(f"{self._log_dir}/{CLEAN_SHUTDOWN}"),
            )
            self._checked.check(self.log, self.disk)
        except (OttlaError, OSError, AssertionError) as error:
            return [f"cannot be opened: {error!r}"]
        if self.log.topic_id not in (self._topic_id, None):
            self.log = None  # A former topic of the name, of which this one's has come.
            return []
        return self._compare()

    def _lose_pages(self):
        """Let the sync of one file have failed, long ago."""
        names = self.disk.list_directory(self._directory)
        files = [self.disk.open(f"{self._directory}/{name}") for name in names]
        pending = [file for file in files if file._inode.pending]
        if pending:
            self._chance.choice(pending).forget_unsynced()

    def _compare(self):
        """Hold what is found against what was found before."""
        before, self._served = self._served, _contents(self.log)
        if before is not None and before != self._served:
            return [f"served before: {_sizes(before)}, found: {_sizes(self._served)}"]
        return []


def _contents(log):
    """Return the bytes of each segment, by its base offset, and none from where the log ends.

    An empty segment may come and go, but not the log's end with it.
    """
    found = {each.base_offset: each.file.read_at(0, each.size_bytes) for each in log.segments}
    return {base: content for base, content in found.items() if content} | {log.log_end_offset: b""}


@lru_cache(maxsize=256)
def _batches_of(content):
    """Return the batches of a segment, which mostly are those of the last look."""
    return parse(content)


def _sizes(contents):
    return ", ".join(f"{len(content)} bytes from {base}" for base, content in contents.items())


def _has_open(producers, producer_id):
    """Tell whether a producer is amid a transaction: then it is not forgotten."""
    state = producers.states.get(producer_id)
    return state is not None and state.current_transaction_first_offset >= 0


def _judge_producers(log, disk, clock):
    """What a start makes of snapshots has to be what the batches say. Ends the copy's use."""
    told = _said(log.producers, log)
    anew = Producers(disk, clock, log.directory, [], log.config.producer_id_expiration_ms)
    try:
        anew.restore(list(log.segments), log.log_end_offset)
    except OSError as error:
        return [f"producers cannot be found: {error!r}"]
    forgets = log.config.producer_id_expiration_ms < FORGETS_BELOW_MS
    return [
        f"producer {producer_id}: a start says {told.get(producer_id)}, the batches {found}"
        for producer_id, found in _said(anew, log).items()
        if told.get(producer_id) != found
        and not (forgets and producer_id not in told and not _has_open(anew, producer_id))
    ] + [
        f"producer {producer_id}: a start says {found}, the batches nothing"
        for producer_id, found in told.items()
        if found[1:] and found[1][1] >= log.segments.base_offset and producer_id not in _ids(anew)
    ]


def _said(producers, log):
    """Return what is known of each producer that has a batch in the log: epoch, last batch."""
    del log
    return {
        producer_id: (state.epoch, *state.batches[-1:]) for producer_id, state in producers.states
    }


def _ids(producers):
    return {producer_id for producer_id, _ in producers.states}


# -- copies -----------------------------------------------------------------------------------


def _copy(disk, log_dir, directory):
    """Return a copy of the files in ``log_dir`` and below ``directory``, and its size in bytes.

    With what is not durable, and with the steps on names that are not.
    """
    copier = _Copier(directory.rpartition("/")[2])
    tree = copier.tree_of(disk, log_dir.strip("/"))
    copy = MemoryDisk(durability=True, clock=disk._clock)
    copy._tree.root.names.update(tree.names)
    copy._tree.root.durable_names.update(tree.durable_names)
    copy._journal = copier.journal_of(disk._journal, copy._journal)
    return copy, copier.size_bytes


class _Copier:
    """Copies nodes of a tree, each once."""

    def __init__(self, name):
        self._name = name
        """Of the one directory in the log directory."""
        self._copies = {}
        self._log_dir = None
        self.size_bytes = 0

    def tree_of(self, disk, log_dir):
        """Return a root with nothing but the log directory in it."""
        root = Directory()
        source = self._log_dir = disk._tree.root.names[log_dir]
        root.names[log_dir] = root.durable_names[log_dir] = self._of(source)
        return root

    def journal_of(self, source, target):
        """Fill ``target`` with the steps that touch what was copied."""
        for number, step in source._steps.items():
            touched = tuple(
                (self._copies[id(directory)], name, None if node is None else self._of(node))
                for directory, name, node in step
                if id(directory) in self._copies and self._has(directory, name, node)
            )
            if touched:
                target._steps[number] = touched
                for directory, _, _ in touched:
                    directory.unsynced.append(number)
        target._count = source._count
        return target

    def _has(self, directory, name, node):
        is_other = directory is self._log_dir and isinstance(node, Directory)
        return name == self._name or not is_other

    def _of(self, node):
        copy = self._copies.get(id(node))
        if copy is not None:
            return copy
        if isinstance(node, Directory):
            copy = self._copies[id(node)] = Directory()
            for source, target in (
                (node.names, copy.names),
                (node.durable_names, copy.durable_names),
            ):
                target.update(
                    (name, self._of(one))
                    for name, one in source.items()
                    if self._has(node, name, one)
                )
            return copy
        copy = DurableInode(bytearray(node.content), bytearray(node.durable), node.modified_ms)
        copy.pending = list(node.pending)
        self.size_bytes += len(node.content)
        self._copies[id(node)] = copy
        return copy
