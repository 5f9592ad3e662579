"""The world of one seed: a node, its clients, what goes wrong, and who judges it.

Time goes in rounds: clients work while faults come; then all faults end, the node is up, the
clients bring to an end what they have begun, and everything is looked at. What is promised in one
round holds in all later ones.
"""

import asyncio
import errno
import gc
import random
import time
import traceback
from collections import Counter
from contextlib import contextmanager

from ottla.errors import OttlaError
from tests.campaigns.administering.history import History, seconds_of
from tests.simulation import node as nodes
from tests.simulation.afterlife import Afterlife
from tests.simulation.checked import CheckedSegments
from tests.simulation.clients.administrators import Landlord, Meddler
from tests.simulation.clients.auditors import Auditor
from tests.simulation.clients.bulk import BulkClient
from tests.simulation.clients.classic import ClassicMember
from tests.simulation.clients.consumers import ConsumerMember
from tests.simulation.clients.hostile import Flooder, HostileClient
from tests.simulation.clients.producers import IdempotentProducer, PlainProducer
from tests.simulation.clients.readers import Reader
from tests.simulation.clients.sessions import SessionReader
from tests.simulation.clients.transactions import TransactionalProducer
from tests.simulation.clients.waiting import Waiter
from tests.simulation.clock import WALL_MS
from tests.simulation.coverage import Coverage
from tests.simulation.device import Device
from tests.simulation.faults import Nemesis
from tests.simulation.inspector import Inspector
from tests.simulation.jobs import Jobs, threads_of
from tests.simulation.listening import listening
from tests.simulation.loop import Life, SimulatedLoop
from tests.simulation.mix import mix_of
from tests.simulation.network import SimulatedNetwork
from tests.simulation.observation import Observer
from tests.simulation.rot import Rot
from tests.simulation.trace import Trace
from tests.simulation.turns import TurnJudge

CLIENTS = (
    PlainProducer,
    IdempotentProducer,
    TransactionalProducer,
    Reader,
    SessionReader,
    Landlord,
    Meddler,
    ClassicMember,
    ConsumerMember,
    HostileClient,
    Flooder,
    BulkClient,
    Waiter,
    Auditor,
)
ROUND_SECONDS = 120.0
"""The mean of the time in which clients work and faults come."""
COLLECT_SECONDS = 30.0
QUIET_SECONDS_MAX = 300.0
"""Until a node without faults is up and no client has anything to bring to an end."""


class Failed(Exception):
    """The simulation cannot go on: see the problems."""


@contextmanager
def collecting_by_hand():
    """Keep Python's garbage collector from choosing its moments."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class World:
    """One seed, for so many simulated seconds. ``run`` returns when that is over, or sooner."""

    def __init__(self, seed, seconds, *, mix=None, sink=None, is_digested=True):
        self.seed = seed
        self.mix = mix or mix_of(seed)
        self.limit_seconds = seconds
        self.loop = SimulatedLoop()
        self.jobs = Jobs(self.loop, random.Random(f"{seed}/jobs"), chance=self.mix.pause_chance)
        self.jobs.held_up = self._held_up
        self.trace = Trace(self.loop, sink=sink, is_digested=is_digested)
        self.random = random.Random(f"{seed}/world")
        self.network = SimulatedNetwork(self.loop, random.Random(f"{seed}/network"), self.trace)
        self.network.latency_seconds = self.mix.latency_seconds
        self.network.fragment_chance = self.mix.fragment_chance
        self.coverage = Coverage()
        self.history = History()
        self.problems = []
        self.members = {}
        """By group."""
        self.shown = {}
        """When each member said something last, by its group and by its id, or by its name."""
        self.lively = {}
        """By group: since when it has had members all the time, and when one was heard last."""
        self.generations = {}
        """Of classic groups: the last one that was handed out, and when."""
        self.deletions = Counter()
        """By group: how many are under way, or were never answered."""
        self.clients_life = Life("clients")
        self.log_dirs = nodes.LOG_DIRS
        self.work = asyncio.Event()
        """Set while clients work."""
        self.is_over = False
        self.rounds = 0
        self.unhindered_since = 0.0
        self._writers = 0
        self._is_judging = False
        self.rot = None
        """What turns bits over in the end, when it has begun."""
        self.checked = CheckedSegments()
        self.afterlife = Afterlife(self)
        self.device = Device(self)
        self.node = nodes.Node(self, "node-1", self.mix.broker_options)
        self.nemesis = Nemesis(self)
        self.clients = [
            kind(self, number)
            for kind in CLIENTS
            for number in range(self.mix.clients.get(kind.kind, 0))
        ]
        self.observer = Observer(self, 0)
        self.inspector = Inspector(self)
        self.turns = self.loop.judge = TurnJudge(self)

    # -- what inhabitants ask ------------------------------------------------------------------

    def seconds(self):
        """Return the wall clock of the model and of the clients, which never jumps."""
        return WALL_MS / 1000 + self.loop.now

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
    def is_working(self):
        """Clients work; else they bring to an end what they have begun."""
        return self.work.is_set()

    @property
    def is_unhindered(self):
        """Nothing goes wrong now, and the node is up."""
        return self.node.is_up and self.has_no_fault

    @property
    def has_no_fault(self):
        """Nothing goes wrong now, though the node may be down."""
        return not self.nemesis.is_at_work and not self.nemesis.may_give_up

    def hindered(self):
        """Begin everybody's patience anew."""
        self.unhindered_since = self.loop.now

    def problem(self, text, error=None):
        """Take note of a broken promise."""
        self.trace.note("PROBLEM", text)
        if error is not None:
            text += "\n" + "".join(traceback.format_exception(error))
        self.problems.append(f"at {self.loop.now:.3f} s: {text}")

    def _held_up(self):
        stack = "".join(traceback.format_stack(limit=10))
        if self.node.is_up:
            self.problem(f"the loop waits for a lock that a job holds at its disk\n{stack}")

    def _heard(self, said, error):
        """A node has logged a fault of its own. What bits that turned over do is another matter."""
        if self.rot is None:
            self.problem(f"the log has a fault: {said}: {error!r}", error)

    def node_ended(self, node):
        """Nobody works any more on what was asked of it."""
        self.history.settle()
        self.hindered()
        self.nemesis.node_ended(node)

    def node_gave_up(self, node, why, *, is_starting=False):
        """A node ended itself, or did not start: that is well while its disk refuses calls."""
        if is_starting and isinstance(why, (OSError, OttlaError)) and node.trouble.errors:
            return
        cause = getattr(why, "__cause__", None)
        if is_starting and isinstance(cause, OSError) and cause.errno == errno.ENFILE:
            return  # Only a fault says so; it may be over by now.
        if self.nemesis.may_give_up or (self.rot is not None and self.rot.gave_up(why)):
            return
        self.problem(f"{node.name} gave up: {why!r}", why if isinstance(why, Exception) else None)

    def called(self, call, path):
        """Be told of a call of the node's disk that is about to change names."""
        began = time.perf_counter()
        self.device.called(call, path)
        self.afterlife.called(call, path)
        if self.jobs.running is None:  # A job's turn is left out as a whole.
            self.turns.leave_out(time.perf_counter() - began)

    # -- running -------------------------------------------------------------------------------

    def run(self):
        """Live. Returns whether nothing was broken."""
        self.began = time.process_time()
        with (
            listening(self._heard),
            seconds_of(self.seconds),
            threads_of(self.jobs),
            collecting_by_hand(),
        ):
            world = Life("world")
            task = self.loop.start_for(world, self._live(), "world")
            self._collect()
            self.loop.run_until(lambda: task.done() or self.problems or self.loop.errors)
            is_over = task.done()
            self.loop.bury(world)
            self.loop.bury(self.clients_life)
            if self.problems or self.loop.errors:
                pass
            elif not is_over:
                self.problem("nothing is left to do, and the world is not over")
            elif task.exception() is not None:
                error = task.exception()
                if not isinstance(error, Failed):
                    self.problem(f"the world broke: {error!r}", error)
        for life, message, error in self.loop.errors:
            self.problem(f"{life}: {message}: {error!r}", error)
        self.cpu_seconds = time.process_time() - self.began
        return not self.problems

    def _collect(self):
        """Look for garbage at the same moments in each run: files are closed by that."""
        gc.collect()
        self.loop.call_later(COLLECT_SECONDS, self._collect)

    async def _live(self):
        self.node.start()
        await self._until(lambda: self.node.is_up, 60.0, "the first start")
        for client in self.clients:
            self.loop.start_for(self.clients_life, client.run(), client.name)
        self.loop.start_for(self.clients_life, self.inspector.run(), "inspector")
        while self.loop.now < self.limit_seconds:
            await self._round()
            if self.problems or self.loop.errors:
                return
        if self.mix.rots:
            self.rot = Rot(self)
            await self.rot.run()
        await self.node.stop()
        self.is_over = True

    async def _round(self):
        self.rounds += 1
        self.work.set()
        self.hindered()
        rest = self.limit_seconds - self.loop.now
        length = min(self.random.uniform(0.2, 1.8) * ROUND_SECONDS, rest)
        await self.nemesis.rage(length)
        await self.nemesis.heal()
        self.hindered()
        self.work.clear()
        await self._until(self._is_quiet, QUIET_SECONDS_MAX, "quiet")
        self.history.settle()
        await self.inspector.look_at_rest()
        self.trace.note("judging", self.rounds)
        task = self.loop.start_for(self.clients_life, self.observer.look_at_all(), "observer")
        await self._until(task.done, 3600.0, "the judge")
        if task.exception() is not None:
            error = task.exception()
            self.problem(f"the observer broke: {error!r}", error)
        await self.inspector.look_at_rest()  # Once more: all has been read by now.
        self.history.forget_dead()

    def _is_quiet(self):
        return self.node.is_up and all(client.is_idle for client in self.clients)

    async def _until(self, holds, seconds, what):
        begin = self.loop.now
        while not holds():
            if self.problems or self.loop.errors:
                raise Failed
            if self.loop.now - begin > seconds:
                busy = [client.name for client in self.clients if not client.is_idle]
                self.problem(f"{what} did not come within {seconds:.0f} s; busy: {busy}")
                raise Failed
            await self.sleep(0.1)
