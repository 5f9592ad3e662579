"""The world of one seed with several nodes: rounds of work and faults, then quiet, then the judge.

When the faults of a round have ended, every partition has to be served with its full ISR within
simulated minutes, and all replicas have to be the same up to the high watermark.
"""

import asyncio
import gc
import random
import time
import traceback
import uuid

from ottla.client.wire.errors import ConnectionFailed
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.metadata.store import Ambiguous
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.campaigns.administering.records import committed, parse
from tests.simulation.cluster.administering import Administrator, Deleter, Maker
from tests.simulation.cluster.again import Again
from tests.simulation.cluster.clients import (
    Client,
    IdempotentProducer,
    Lost,
    PlainProducer,
    TransactionalProducer,
)
from tests.simulation.cluster.faults import JUMP_MS_MAX, RESTART_SECONDS, Nemesis
from tests.simulation.cluster.inspector import Inspector
from tests.simulation.cluster.ledger import Ledger
from tests.simulation.cluster.machine import Machine
from tests.simulation.cluster.members import ClassicMember, Member
from tests.simulation.cluster.mix import cluster_mix_of
from tests.simulation.cluster.nearby import Mover, NearReader, Tuner
from tests.simulation.cluster.reading import Committer, Reader
from tests.simulation.cluster.store import SharedEntries
from tests.simulation.cluster.transforming import Transformer
from tests.simulation.jobs import Jobs, threads_of
from tests.simulation.listening import listening
from tests.simulation.loop import Life, SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.trace import Trace
from tests.simulation.world import COLLECT_SECONDS, Failed, collecting_by_hand

KINDS = (
    PlainProducer,
    IdempotentProducer,
    TransactionalProducer,
    Reader,
    Committer,
    Administrator,
    Maker,
    Deleter,
    Member,
    ClassicMember,
    Transformer,
    NearReader,
    Mover,
    Tuner,
    Again,
)
ROUND_SECONDS = 60.0
"""The mean of the time in which clients work and faults come."""
QUIET_SECONDS_MAX = 240.0
REPLICAS = 3
PATIENT_MS = 30_000
"""For the first topics: jobs may be late before the first fault, too."""
COMPACTED_NUMBER = 1
"""The number of the topic that is compacted, in worlds that have one."""
EPOCH_MS = 1_700_000_000_000


class Topic:
    """As clients know it."""

    def __init__(self, name, topic_id, partition_count, replication_factor, options):
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count
        self.replication_factor = replication_factor
        self.options = options

    @property
    def is_compacted(self):
        return self.options.get("cleanup.policy") == "compact"

    def retained(self, option):
        """Return how much retention leaves; None: all."""
        value = int(self.options.get(option, "-1"))
        return None if self.is_compacted or value < 0 else value


class NoDevice:
    """One node's judge of its device is not for several."""

    def refused(self, path):
        """Hear of a torn write."""


class ClusterWorld:
    """``run`` returns when so many simulated seconds are over, or something was broken."""

    def __init__(self, seed, seconds, *, count=3, mix=None, sink=None, is_digested=True):
        self.seed = seed
        self.mix = mix or cluster_mix_of(seed)
        self.limit_seconds = seconds
        self.loop = SimulatedLoop()
        self.life = Life("world")
        self.clients_life = Life("clients")
        self.random = random.Random(f"{seed}/world")
        self.jobs = Jobs(self.loop, random.Random(f"{seed}/jobs"), chance=self.mix.pause_chance)
        self.jobs.held_up = self._held_up
        self.trace = Trace(self.loop, sink=sink, is_digested=is_digested)
        self.network = SimulatedNetwork(self.loop, random.Random(f"{seed}/network"), self.trace)
        self.network.latency_seconds = self.mix.latency_seconds
        self.network.fragment_chance = self.mix.fragment_chance
        self.problems = []
        self.ledger = Ledger(self.problem)
        self.device = NoDevice()
        self.nemesis = None
        self.work = asyncio.Event()
        self.topics = []
        self.members = []
        """Of the two groups that have members."""
        self.numbers = list(range(1, count + 1))
        self.shared = SharedEntries(self.loop)
        self.machines = [Machine(self, number, self.mix.broker_options) for number in self.numbers]
        self.nemesis = Nemesis(self)
        self.inspector = Inspector(self)
        self._writers = 0
        self.unhindered_since = 0.0
        self.rounds = 0
        self.checked = 0
        self.clients = [
            kind(self, number)
            for kind in KINDS
            for number in range(self.mix.clients.get(kind.kind, 0))
        ]
        self._asker = Client(self, 0)
        """The judge's own connections."""
        self._asker.timeout_ms = PATIENT_MS

    # -- what inhabitants ask ------------------------------------------------------------------

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    async def within(self, seconds, future, connection):
        """Wait for an answer, and give the connection up when it does not come."""
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            connection.close()
            raise ConnectionResetError("no answer in time") from None

    def next_writer(self):
        self._writers += 1
        return self._writers

    @property
    def now_ms(self):
        """The time of a wall clock that is right."""
        return int(self.loop.now * 1000) + EPOCH_MS

    @property
    def has_no_fault(self):
        return self.nemesis.lasting == 0

    @property
    def is_unhindered(self):
        return not self.nemesis.is_at_work

    def problem(self, text, error=None):
        """Take note of a broken promise."""
        self.trace.note("PROBLEM", text)
        if error is not None:
            text += "\n" + "".join(traceback.format_exception(error))
        self.problems.append(f"at {self.loop.now:.3f} s: {text}")

    def called(self, call, path):
        """Hear of a call of a disk."""

    def node_ended(self, machine):
        self.unhindered_since = self.loop.now
        machine.news.set()

    def node_gave_up(self, machine, why, *, is_starting=False):
        """A node ended itself, or did not start: that is well while its disk refuses calls."""
        if machine.is_suspect or machine.trouble.errors:
            return
        if is_starting and isinstance(why, Ambiguous):
            return
        if is_starting and isinstance(why, OttlaError) and machine.link.ambiguous_chance:
            return
        self.problem(f"{machine.name} gave up: {why!r}", why)

    def _held_up(self):
        stack = "".join(traceback.format_stack(limit=10))
        self.problem(f"the loop waits for a lock that a job holds at its disk\n{stack}")

    def _heard(self, said, error):
        self.problem(f"the log has a fault: {said}: {error!r}", error)

    # -- running -------------------------------------------------------------------------------

    def run(self):
        """Live. Returns whether nothing was broken."""
        self.began = time.process_time()
        with listening(self._heard), threads_of(self.jobs), collecting_by_hand():
            task = self.loop.start_for(self.life, self._live(), "world")
            self._collect()
            self.loop.run_until(lambda: task.done() or self.problems or self.loop.errors)
            is_over = task.done()
            for life in (self.life, self.clients_life, self.shared.life):
                self.loop.bury(life)
            if not is_over and not self.problems and not self.loop.errors:
                self.problem("nothing is left to do, and the world is not over")
            elif is_over and task.exception() is not None:
                error = task.exception()
                if not isinstance(error, Failed):
                    self.problem(f"the world broke: {error!r}", error)
        for life, message, error in self.loop.errors:
            self.problem(f"{life}: {message}: {error!r}", error)
        self.cpu_seconds = time.process_time() - self.began
        return not self.problems

    def _collect(self):
        gc.collect()
        self.loop.call_later(COLLECT_SECONDS, self._collect)

    async def _live(self):
        for machine in self.machines:
            machine.start()
        for machine in self.machines:
            self.loop.start_for(self.life, self._supervise(machine), "supervisor")
        await self._until(self._are_up, 60.0, "the first start")
        await self._make_topics()
        for client in self.clients:
            self.loop.start_for(self.clients_life, client.run(), client.name)
        self.loop.start_for(self.clients_life, self.inspector.run(), "inspector")
        while self.loop.now < self.limit_seconds:
            await self._round()
        for machine in self.machines:
            machine.is_held_down = True
            await machine.stop()

    async def _supervise(self, machine):
        """Start a node whose process has ended."""
        chance = random.Random(f"{self.seed}/{machine.name}/supervisor")
        while True:
            machine.news.clear()
            if machine.is_running or machine.is_held_down:
                await machine.news.wait()
            else:
                await self.sleep(chance.expovariate(1 / RESTART_SECONDS))
                if not machine.is_running and not machine.is_held_down:
                    machine.start()

    def _are_up(self):
        return all(machine.is_up for machine in self.machines)

    async def _make_topics(self):
        for number in range(3):
            replication_factor = 1 if number == 2 else REPLICAS
            options = self.mix.topic_options
            if number == COMPACTED_NUMBER:
                options = {**options, **self.mix.compacted_options}
            await self._make_topic(f"topic-{number}", replication_factor, options)

    async def _make_topic(self, name, replication_factor, options):
        partition_count = self.random.randint(1, 2)
        told = await self.ask_for_topic(
            self._asker, name, replication_factor, partition_count, options
        )
        if told.error_code:
            self.problem(f"CreateTopics of {name}: error {told.error_code}: {told.error_message}")
            raise Failed
        self.add_topic(name, told.topic_id, partition_count, replication_factor, options)

    async def ask_for_topic(self, client, name, replication_factor, partition_count, options):
        """Ask a node for a new topic; return what it says."""
        configs = [
            CreatableTopicConfig(name=option, value=value) for option, value in options.items()
        ]
        wanted = CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            assignments=[],
            configs=configs,
        )
        answer = await client.ask_anyone(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
        return answer.topics[0]

    def add_topic(self, name, topic_id, partition_count, replication_factor, options):
        """Let clients know of a topic."""
        topic_id = uuid.UUID(bytes=topic_id)
        topic = Topic(name, topic_id, partition_count, replication_factor, options)
        self.topics.append(topic)
        retained_ms = topic.retained("retention.ms")
        for number in range(partition_count):
            place = self.ledger.place((name, number))
            place.is_compacted = topic.is_compacted
            place.retained_bytes = topic.retained("retention.bytes")
            if retained_ms is not None:  # A clock that is ahead takes records earlier.
                place.retained_ms = retained_ms - max(*self.mix.skews_ms, JUMP_MS_MAX)

    async def _round(self):
        self.rounds += 1
        self.work.set()
        rest = self.limit_seconds - self.loop.now
        await self.nemesis.rage(min(self.random.uniform(0.2, 1.8) * ROUND_SECONDS, rest))
        await self.nemesis.heal()
        self.unhindered_since = self.loop.now
        self.work.clear()
        await self._until(self._is_quiet, QUIET_SECONDS_MAX, "quiet")
        await self._until(self.inspector.is_whole, QUIET_SECONDS_MAX, "the full ISR")
        self.trace.note("judging", self.rounds)
        await self._judge()

    def _is_quiet(self):
        return self._are_up() and all(client.is_idle for client in self.clients)

    async def _until(self, holds, seconds, what):
        begin = self.loop.now
        while not holds():
            if self.problems or self.loop.errors:
                raise Failed
            if self.loop.now - begin > seconds:
                busy = [client.name for client in self.clients if not client.is_idle]
                why = self.inspector.what_is_missing()
                self.problem(f"{what} did not come within {seconds:.0f} s; busy: {busy}; {why}")
                raise Failed
            await self.sleep(0.1)

    async def _judge(self):
        visible = set()
        for topic in self.topics:
            for partition in range(topic.partition_count):
                visible |= self._judge_partition(topic, partition)
        self.ledger.judge_transactions(visible)
        by_group = {
            one.group: one for one in self.clients if isinstance(one, Committer | Transformer)
        }
        for client in by_group.values():
            await self._look_at_commits(client)

    def _judge_partition(self, topic, partition):
        """Judge what is committed; return what readers of committed records are given."""
        where = TopicPartition(topic.name, partition)
        start, replicas = self.inspector.committed_of(where, is_compacted=topic.is_compacted)
        left_bytes = min(len(data) for data, _ in replicas)
        self.ledger.began((topic.name, partition), start, left_bytes, self.now_ms)
        visible = None
        for data, aborted in replicas:
            read = parse(data)
            found = [one for each in read for one in each.records if one.offset >= start]
            kept = [one for one in committed(read, aborted) if one.offset >= start]
            self.checked += len(found)
            self.ledger.judge((topic.name, partition), found, kept)
            shown = {one.record for one in kept}
            visible = shown if visible is None else visible & shown
        return visible

    async def _look_at_commits(self, client):
        for topic in self.topics:
            for partition in range(topic.partition_count):
                begin = self.loop.now
                while True:
                    try:
                        if await client.look(topic, partition):
                            break
                    except (ConnectionFailed, OSError, Lost):
                        client.hang_up()
                    if self.loop.now - begin > QUIET_SECONDS_MAX:
                        self.problem(f"{client.name}: offsets cannot be read")
                        raise Failed
                    await self.sleep(0.2)
