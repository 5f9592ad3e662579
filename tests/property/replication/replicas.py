"""One of three replicas: a node with disks of its own, and the whole history of its log."""

from collections import deque
from typing import NamedTuple

from ottla.env.executor import ManualExecutor
from ottla.env.faulty_disk import DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, NodeId, TopicPartition
from ottla.log.directories.cutting import LogCuts
from ottla.log.producers import producers
from ottla.metadata.image import PartitionChange
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.records.decode import decode_batches
from ottla.replication.cutting import Cutting
from ottla.replication.following import Fetched, Following
from ottla.replication.isr_changes import IsrChanges
from tests.ended_process import give_locks_back
from tests.unit.replication.conftest import TOPIC_ID, Node

TP = TopicPartition("t", 0)
LOG_DIRS = ("/data", "/b")
REPLICAS = (0, 1, 2)


class Violation(AssertionError):
    """What must never be, with the values that show it."""


class Shuffled(ManualExecutor):
    """Jobs run in their order; the loop hears of each some turns later.

    A job at whose call the disk dies is never told of: its process is gone.
    """

    def __init__(self, random):
        super().__init__()
        self._random = random
        self._ran = deque()

    def submit(self, work, done, *, place=""):
        self._jobs.append((work, done))

    def run_next(self):
        if self._ran and (not self._jobs or self._random.random() < 0.5):
            done, result, error = self._ran.popleft()
            done(result, error)
            return True
        if not self._jobs:
            return False
        work, done = self._jobs.popleft()
        result, error = None, None
        try:
            result = work()
        except DiskKilled:
            raise
        except BaseException as raised:  # noqa: BLE001 - it crosses to the loop, as in the real one
            error = raised
        self._ran.append((done, result, error))
        return True

    @property
    def is_busy(self):
        return bool(self._jobs or self._ran)


class Metadata:
    """What the controllers say of the partition; replicas hear of it late."""

    def __init__(self):
        self.leader = None
        self.leader_epoch = -1
        self.partition_epoch = 0
        self.in_sync = REPLICAS

    @property
    def version(self):
        return self.leader_epoch, self.partition_epoch

    def seen_by(self, viewer):
        """Return it with the names that ``viewer`` knows: each node calls itself 1."""
        leader = NO_LEADER if self.leader is None else name_of(self.leader, viewer)
        return PartitionState(
            tuple(name_of(one, viewer) for one in REPLICAS),
            tuple(name_of(one, viewer) for one in self.in_sync),
            leader,
            LeaderEpoch(self.leader_epoch),
            self.partition_epoch,
        )

    def lose(self, which):
        """Let a replica that died neither lead nor be in sync, unless it is the last of those."""
        others = tuple(one for one in self.in_sync if one != which)
        if which in self.in_sync and others:
            self.in_sync = others
            self.partition_epoch += 1
        if self.leader == which:
            self.leader = None
            self.leader_epoch += 1
            self.partition_epoch += 1


def name_of(one, viewer):
    return NodeId(1 + (one - viewer) % 3)


class Stored(NamedTuple):
    """A batch as it was first seen in a log."""

    summary: tuple
    batch: object


def stored(batch):
    header = batch.header
    return Stored(
        (
            header.partition_leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.is_control,
            header.base_offset,
            header.is_transactional,
        ),
        batch,
    )


def batches_of(log):
    return [
        batch
        for segment in log.segments
        if segment.size_bytes
        for batch in decode_batches(segment.file.read_at(0, segment.size_bytes), 1 << 24)
    ]


class InFlight(NamedTuple):
    """The answer to a follower's fetch, on its way, and what its leader had by then."""

    follower: Following
    asked: object
    fetched: Fetched
    history: dict


class Replica:
    """A machine: its disk, and what was ever in its log, outlive its lives.

    ``propose`` takes what this one, leading, wants the replicas in sync to be.
    """

    def __init__(self, which, *, random, metadata, propose, config):
        self.which = which
        self.random = random
        self.metadata = metadata
        self.config = config
        self.memory = MemoryDisk(durability=True)
        self.registered = which + 1
        self.history = {}
        """By its last offset, each batch that stood in the log and was not cut off."""
        self.end_offset = 0
        self.is_cut_off = False
        self._propose = propose
        self._gone()

    def _gone(self):
        self.node = self.changes = self.heard = self.follower = None
        self.answer = self.taking = None
        self.chores = []

    @property
    def is_alive(self):
        return self.node is not None

    @property
    def partition(self):
        """The partition; None while it is not there: the machine is down, or it begins anew."""
        return None if self.node is None else self.node.partition()

    @property
    def is_leading(self):
        partition = self.partition
        return partition is not None and partition.is_leader and not partition.is_failed

    @property
    def can_append(self):
        log = self.partition.log
        return not self.partition.is_held and log.is_in_service and not log.is_swapping

    # -- its lives ----------------------------------------------------------------------------

    def start(self, now):
        producers.PRODUCERS_PER_ROLL_MAX = self.random.choice([0, 1, 2000])
        executor = Shuffled(self.random)
        disk = FaultyDisk(self.memory)
        self.node = Node(
            disk=disk, executor=executor, partitions=0, log_dirs=LOG_DIRS, **self.config
        )
        self.node.clock.advance(now + 1)
        self.node.log_manager._rng = SeededRng(self.random.randrange(10**9))
        self.changes = IsrChanges(
            self.node.clock,
            lambda _where, _topic_id, before, wanted: self._propose(self, before, wanted),
            lambda: 10_000,
        )
        self.hear()
        partition = self.partition
        if partition is None or partition.is_failed:
            raise Violation(f"replica {self.which} is offline after its start")
        partition.log.check(are_indexes_sure=False)
        self.look()

    def die(self, how):
        """End as a process by ``kill``, or as a machine by a power ``cut``."""
        self.node.disk.kill()
        for task in [*self.chores, *filter(None, [self.taking])]:
            task._log_destroy_pending = False
            task.cancel()
        if how == "cut":
            self.memory = self.memory.crash(SeededRng(self.random.randrange(10**9)))
        else:
            give_locks_back(self.memory, *LOG_DIRS)
        self._gone()

    def hear(self):
        """Learn what the metadata says by now."""
        if self.heard == self.metadata.version:
            return
        is_new = self.heard is None
        if not is_new and self.partition is None:
            return
        before = None if is_new else self.partition.state
        self.heard = self.metadata.version
        state = self.metadata.seen_by(self.which)
        self.node.change(PartitionChange("t", TOPIC_ID, 0, before, state))
        if self.partition is None:
            raise Violation(f"replica {self.which} does not host what it was told of")
        if self.partition.is_leader:
            self.changes.watch(self.partition)
        self.follow()

    def follow(self):
        """Follow by the partition that is there now; one that began anew is another."""
        node, partition = self.node, self.partition
        if partition is None or (self.follower and self.follower.partition is partition):
            return
        cutting = Cutting(LogCuts(node.log_manager, node.clock), node.executor, node.clock)
        make_anew = node.replica_manager.hosting.make_anew
        self.follower = Following(partition, cutting, lambda: self.registered, make_anew)
        self.answer = None

    # -- following ----------------------------------------------------------------------------

    def is_taking(self):
        """Tell whether the last answer is still being taken, or just was. Raises what it raised."""
        if self.taking is None:
            return False
        if not self.taking.done():
            return True
        task, self.taking = self.taking, None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, KafkaError):
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise Violation(f"replica {self.which} does not take its leader's answer: {error}")
        elif error is not None:
            raise error
        return True

    async def take(self, answer):
        if self.partition is not answer.follower.partition:
            return
        asked, fetched = answer.asked, answer.fetched
        is_taken = await answer.follower.take(asked, fetched)
        partition = self.partition
        if partition is None:
            return
        is_copied = (
            is_taken
            and len(fetched.records)
            and not partition.is_leader
            and partition.log.log_end_offset > asked.fetch_offset
            and partition.log.latest_epoch <= asked.leader_epoch
        )
        self.look(answer.history if is_copied else None)

    # -- what stands in the log -----------------------------------------------------------------

    def look(self, leaders=None):
        """Note what the log has by now; ``leaders``: the history that it was copied from."""
        partition = self.partition
        if partition is None or partition.is_failed:
            return
        try:
            self._note(partition.log, leaders)
        except OSError:  # The disk refused the look, not the broker's own call.
            self.node.disk.heal()
            self._note(partition.log, leaders)

    def _note(self, log, leaders):
        end = log.log_end_offset
        if end < self.end_offset:
            self.history = {at: one for at, one in self.history.items() if at < end}
        if leaders is not None:
            self.history = {at: one for at, one in leaders.items() if at < end}
        if end != self.end_offset or leaders is not None:
            for batch in batches_of(log):
                self._note_batch(stored(batch), is_copied=leaders is not None)
        self.end_offset = end

    def _note_batch(self, found, *, is_copied):
        at = found.batch.header.last_offset
        known = self.history.get(at)
        if known is None:
            if is_copied:
                raise Violation(f"{self.which} has {found.summary} that its leader never had")
            self.history[at] = found
        elif known.summary != found.summary:
            raise Violation(f"{self.which} has {found.summary} in the place of {known.summary}")
