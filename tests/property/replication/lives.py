"""Random lives of three replicas of one partition, each of which follows from its seed.

Partitions, followers, leaders' answers, cleaner, retention and sweeps are the broker's. A life
draws what the replicas are asked to do, when, and what their disks and machines do to them; what
stands for the controllers elects only replicas that are in sync. Now and then all faults end, the
replicas catch up, and ``judge`` looks at them.

    operate   one thing more is begun: a batch, a marker, a fetch, a chore, an election, a fault
    work      jobs of the executors run, and whoever died meanwhile is taken away
    settle    all begin again and agree
"""

import asyncio
import random
from unittest.mock import patch

from ottla.env.faulty_disk import DiskKilled
from ottla.errors import ErrorCode, KafkaError
from ottla.log.producers import producers
from ottla.log.upkeep import snapshot_job
from ottla.pending import Pending
from ottla.replication.followers import answer_follower
from ottla.replication.following import Fetched
from ottla.replication.isr_changes import Outcome
from tests.property.replication.acts import (
    ACTS,
    MACHINES_ACTS,
    WRITERS_ACTS,
    die_at_a_call,
    heal,
    refuse_calls,
)
from tests.property.replication.judge import judge
from tests.property.replication.replicas import (
    REPLICAS,
    InFlight,
    Metadata,
    Replica,
    Violation,
    name_of,
)
from tests.property.replication.writers import Writer

SETTLING_TURNS_MAX = 4000
SNAPSHOT_RECORDS_MIN = 3


class Life:
    """Three replicas, those who write to them, and what was promised. ``live`` it once."""

    def __init__(self, seed):
        self.random = draw = random.Random(seed)
        self.is_compacted = draw.random() < 0.75
        self.is_deleted = not self.is_compacted or draw.random() < 0.5
        self.pipelined = draw.choice([1, 4, 4])
        self.keys = [b"a", b"b", b"c", b"d"][: draw.choice([1, 2, 4])]
        self.metadata = Metadata()
        config = self._draw_config()
        self.replicas = [self._new_replica(which, config) for which in REPLICAS]
        self.writers_seen = 0
        self.writers = [self._new_writer() for _ in range(draw.choice([1, 2, 4]))]
        self.committed = {}
        """By its value, the offset of each record that was acknowledged outside of transactions,
        or in one whose marker is committed."""
        self.is_closing = False
        self.registered = len(REPLICAS)
        self.records = 0
        self.now = 0
        self.turn = 0
        self.story = []
        """What happened, in order."""

    def _draw_config(self):
        draw = self.random
        return {
            "index_interval_bytes": draw.choice([0, 100, 4096]),
            "delete_retention_ms": draw.choice([0, 0, 1000]),
            "file_delete_delay_ms": 0,
            "min_cleanable_dirty_ratio": 0.0,
            "is_compacted": self.is_compacted,
            "is_deleted": self.is_deleted,
        }

    def _new_replica(self, which, config):
        draw = self.random
        own = {
            "segment_bytes": draw.choice([250, 250, 400, 900]),
            "retention_bytes": draw.choice([-1, -1, 1500]) if self.is_deleted else -1,
        }
        return Replica(
            which,
            random=draw,
            metadata=self.metadata,
            propose=self._propose,
            config={**config, **own},
        )

    def _new_writer(self):
        self.writers_seen += 1
        is_transactional = self.random.random() < 0.5
        return Writer(self, 99 + self.writers_seen, is_transactional=is_transactional)

    def replace(self, writer):
        """Let another producer go on for one whose state is lost."""
        self.writers[self.writers.index(writer)] = self._new_writer()

    def note(self, *what):
        self.story.append((self.turn, *what))

    def live(self):
        """Raise Violation when something happens that must not."""
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: self.note("loop", context.get("message")))
        with (
            patch.object(snapshot_job, "RECORDS_MIN", SNAPSHOT_RECORDS_MIN),
            patch.object(producers, "PRODUCERS_PER_ROLL_MAX", 0),
        ):
            try:
                loop.run_until_complete(self._live())
            finally:
                for task in asyncio.all_tasks(loop):
                    task._log_destroy_pending = False
                    task.cancel()
                loop.run_until_complete(turns_of_the_loop(3))
                loop.close()

    async def _live(self):
        self.metadata.leader, self.metadata.leader_epoch = 0, 0
        for replica in self.replicas:
            self.start(replica)
        for _ in range(self.random.choice([1, 2, 3])):
            for _ in range(self.random.choice([60, 150, 300])):
                await self._take_a_turn()
            await self._settle_and_judge()
            if self.random.random() < 0.7:  # Can another one lead with what it has by now?
                self.elect()
                await self._settle()
                for writer in list(self.writers):
                    writer.send()
                await self._settle_and_judge()

    async def _take_a_turn(self):
        self.turn += 1
        self.now += 0.001
        try:
            self._operate()
        except DiskKilled:
            self._bury()
        await turns_of_the_loop(self.random.choice([1, 2, 5]))
        await self._work()
        self._hear()
        for replica in self._living():
            replica.node.clock.advance(0.001)

    # -- what the controllers do --------------------------------------------------------------

    def _propose(self, replica, before, wanted):
        pending = Pending()
        decide = self._decide
        asyncio.get_running_loop().call_soon(decide, replica, before, wanted, pending)
        return pending

    def _decide(self, replica, before, wanted, pending):
        metadata = self.metadata
        known = before.leader_epoch, before.partition_epoch
        if metadata.leader != replica.which or known != metadata.version or not replica.is_alive:
            pending.resolve(Outcome.KEY_CHANGED)
            return
        names = {name_of(one.which, replica.which): one for one in self.replicas}
        joining = names.get(wanted.joining)
        if joining and not (joining.is_alive and joining.registered == wanted.broker_epoch):
            pending.resolve(Outcome.REGISTRATION_GONE)
            return
        in_sync = [one.which for name, one in names.items() if name in wanted.state.isr]
        metadata.in_sync = tuple(sorted(in_sync))
        metadata.partition_epoch += 1
        self.note("in sync", metadata.in_sync)
        pending.resolve(Outcome.COMMITTED)

    def elect(self):
        """Let one that lives and is in sync lead; none if there is no such one."""
        metadata = self.metadata
        can_lead = [one for one in metadata.in_sync if self.replicas[one].is_alive]
        chosen = self.random.choice(can_lead) if can_lead else metadata.leader
        if chosen != metadata.leader:
            metadata.leader = chosen
            metadata.leader_epoch += 1
            metadata.partition_epoch += 1
            self.note("elected", chosen, "epoch", metadata.leader_epoch, metadata.in_sync)

    def leading(self):
        """Return the replica that leads, and knows it; None if there is none."""
        which = self.metadata.leader
        replica = None if which is None else self.replicas[which]
        return replica if replica is not None and replica.is_leading else None

    # -- what happens to machines -------------------------------------------------------------

    def _living(self):
        return [replica for replica in self.replicas if replica.is_alive]

    def start(self, replica):
        replica.start(self.now)
        log = replica.partition.log
        epochs = [tuple(entry) for entry in log.leader_epochs.entries]
        self.note("start", replica.which, log.log_start_offset, log.log_end_offset, epochs)

    def die(self, replica):
        how = self.random.choice(["kill", "cut"])
        self.note(how, replica.which)
        replica.die(how)
        self.registered += 1
        replica.registered = self.registered
        self.metadata.lose(replica.which)
        for writer in self.writers:
            writer.disconnect(replica)

    def _bury(self):
        """Take away whose disk has died under it."""
        for replica in self._living():
            if replica.node.disk.killed:
                self.die(replica)

    async def _work(self):
        """Run some jobs of each executor, and see what became of chores and logs."""
        for replica in self.replicas:
            for _ in range(self.random.choice([0, 1, 1, 2, 4, 20])):
                if not replica.is_alive:
                    break
                await self._run_job(replica)
        self._bury()
        for replica in self._living():
            self._look_after(replica)

    async def _run_job(self, replica):
        try:
            replica.node.executor.run_next()
        except DiskKilled:
            self.die(replica)
        else:
            await turns_of_the_loop(2)

    def _look_after(self, replica):
        try:
            for task in [task for task in replica.chores if task.done()]:
                replica.chores.remove(task)
                if not task.cancelled():
                    task.result()
            replica.look()
        except DiskKilled:
            self.die(replica)
            return
        partition = replica.partition
        if partition is not None and partition.is_failed:
            self.note("offline", replica.which, repr(partition.log.failure))
            self.die(replica)

    # -- one turn -----------------------------------------------------------------------------

    def _operate(self):
        draw = self.random
        replica, writer = draw.choice(self.replicas), draw.choice(self.writers)
        (act,) = draw.choices(list(ACTS), list(ACTS.values()))
        if act in WRITERS_ACTS:
            act(writer)
        elif act in MACHINES_ACTS or replica.partition is not None:
            act(self, replica)
        if self.metadata.leader is None and draw.random() < 0.3:
            self.elect()

    def fetch(self, replica):
        """Let it ask its leader, or take what it was answered, one of both at a time."""
        replica.follow()
        if replica.partition is None or replica.partition.is_failed or replica.is_taking():
            return
        if replica.answer is None and not self._ask(replica):
            return
        if replica.answer is not None:
            answer, replica.answer = replica.answer, None
            loop = asyncio.get_running_loop()
            replica.taking = loop.create_task(replica.take(answer))

    def _ask(self, replica):
        """Send its next request; tell whether its answer, if any, is there at once."""
        if replica.is_cut_off:
            return False
        asked = replica.follower.next_request()
        partition = replica.partition
        if asked is None:
            if partition.log.is_in_service and not partition.is_held and not partition.is_leader:
                partition.flush()  # What it wrote while it led.
            return False
        names = {name_of(one.which, replica.which): one for one in self.replicas}
        leader = names[asked.leader]
        if leader.partition is None or leader.partition.is_failed:
            return False
        fetched = self._answer(leader, replica, asked)
        if fetched is None:
            return False
        replica.answer = InFlight(replica.follower, asked, fetched, dict(leader.history))
        return self.random.random() >= 0.3

    def _answer(self, leader, replica, asked):
        who = name_of(replica.which, leader.which)
        max_bytes = self.random.choice([0, 1, 200, 500, 2000])
        try:
            found = answer_follower(
                leader.partition, leader.changes, who, asked, max_bytes=max_bytes
            )
            data = b"" if found.region is None else found.region.read()
        except OSError:
            return None
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self.note("out of range", replica.which, asked, str(error))
            return None
        if found.diverging or found.begins_at is not None:
            self.note("behind", replica.which, asked, found.diverging, found.begins_at)
            self._hinder(replica)
        return Fetched(
            found.high_watermark,
            found.log_start_offset,
            memoryview(bytearray(data)),
            found.diverging,
            found.begins_at,
        )

    def _hinder(self, replica):
        """Let many a log be cut on a disk that refuses a call of that, or dies at it."""
        (act,) = self.random.choices([die_at_a_call, refuse_calls, None], [4, 2, 4])
        if act is not None:
            act(self, replica)

    def new_record(self, writer):
        """Return a key and a value that no other record has."""
        self.records += 1
        value = b"%d:%d:%d" % (writer.producer_id, writer.next_sequence, self.records)
        return self.random.choice(self.keys), value

    def _hear(self):
        for writer in list(self.writers):
            writer.hear()

    # -- quiet --------------------------------------------------------------------------------

    async def _settle_and_judge(self):
        await self._settle()
        judge(self)

    async def _settle(self):
        """Let all faults end, and wait until everybody has what they asked for."""
        self.is_closing = True
        for replica in self.replicas:
            replica.is_cut_off = False
            if replica.is_alive:
                heal(self, replica)
            else:
                self.start(replica)
        for turn in range(SETTLING_TURNS_MAX):
            await self._settle_a_little(turn)
            if self._is_settled():
                self.is_closing = False
                return
        ends = [one.partition and one.partition.log.log_end_offset for one in self.replicas]
        raise Violation(f"it never settles: {vars(self.metadata)}, log ends {ends}")

    def _measure_space(self):
        """Let brokers find that their disks are full no longer."""
        for replica in self._living():
            try:
                replica.node.measure_space()
            except DiskKilled:
                self.die(replica)

    async def _settle_a_little(self, turn):
        if turn % 20 == 0:
            self._measure_space()
        for replica in self._living():
            replica.hear()
            self.fetch(replica)
        await turns_of_the_loop(4)
        await self._work()
        for replica in self.replicas:
            while replica.is_alive and replica.node.executor.is_busy:
                await self._run_job(replica)
            if not replica.is_alive:
                self.start(replica)
            replica.node.clock.advance(0.05 if turn % 20 else 11)
        self._hear()
        if self.metadata.leader is None:
            self.elect()
            return
        for writer in list(self.writers):
            writer.send()
            writer.end_transaction()

    def _is_settled(self):
        leader = self.leading()
        if leader is None or self.metadata.in_sync != REPLICAS:
            return False
        end = leader.partition.log.log_end_offset
        return all(writer.is_quiet for writer in self.writers) and all(
            replica.partition is not None
            and replica.partition.log.log_end_offset == replica.partition.high_watermark == end
            and not replica.chores
            for replica in self.replicas
        )


async def turns_of_the_loop(count):
    for _ in range(count):
        await asyncio.sleep(0)
