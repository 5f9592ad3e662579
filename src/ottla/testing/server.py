"""The broker of a test, on the running loop: the real one, with a clock that can jump.

Owns how the broker is put together for tests: its options, its disk, its clock, the faults before
its router; and its lives: it may be killed and started again, on what its disk kept. ``Broker``
runs it in a thread, ``child`` in a process. Knows nothing of either.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.env.clock import SystemClock
from ottla.env.disk import Disk
from ottla.env.executor import ThreadExecutor
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.jumping_clock import JumpingClock, SteadyClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SystemRng
from ottla.env.tasks import begin_task
from ottla.environment import Environment
from ottla.errors import OttlaError
from ottla.handlers.router import Router, Serve
from ottla.ids import TopicId
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import NO_SESSION, Put, in_commits
from ottla.testing.intercept import Intercepted
from ottla.testing.names import CLIENT_ID
from ottla.testing.requests import LastRequests
from ottla.testing.rules import Action, Rule, Rules

OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "ottla.stop.timeout.ms": "500",
    "log.dirs": "/ottla",
}
"""What differs from Kafka's defaults, unless a test says otherwise: no waiting."""
IDLE_TURNS = 20
"""The loop takes so many turns in a row without a job in a thread before its work has settled."""
BUSY_TURNS_MAX = 5_000
"""Of a millisecond each: work that takes longer is not waited for."""
DYING_SECONDS = 5.0
"""How long a killed broker's threads may take to notice."""


class Server:
    """One broker and its lives, from ``start`` to ``stop``."""

    def __init__(self, texts: Mapping[str, str], *, data: str | None) -> None:
        """``texts``: options by key. ``data``: the directory; None: in memory."""
        self._texts = {**OPTIONS, **texts}
        if data is not None:
            self._texts["log.dirs"] = data
        self._in_memory = data is None
        self.clock = JumpingClock(SystemClock(), self._settled)
        self.requests = LastRequests(SystemClock())
        self.rules = Rules(SystemRng())
        self._store = MemoryStore(self.clock)
        """Use: only in memory; a new one for each life."""
        self._kept: list[Put] = []
        """Use: what the store held at the end of the last life."""
        self.disk = FaultyDisk(self._kept_disk())
        self._disk_faults: dict[int, DiskFault] = {}
        self._life: tuple[Broker, Environment] | None = None
        self._lives = asyncio.Lock()
        """Use: held by who ends a life or begins one."""
        self._trouble = ""
        """Use: why there is no life, after a restart that nobody waited for."""

    async def start(self) -> tuple[str, int]:
        """Start; return the host and port that clients connect to. Raises as ``Broker.start``."""
        intercepted: list[Intercepted] = []
        environment = Environment.real(memory=self._in_memory)._replace(
            clock=self.clock, disk=self.disk
        )
        steady = SteadyClock(SystemClock(), self.clock)
        environment = environment._replace(steady_clock=steady)

        def intercept(router: Router) -> Serve:
            made = Intercepted(router, self.rules, self.requests, steady, CLIENT_ID)
            intercepted.append(made)
            return made

        broker = Broker(
            broker_config(self._texts),
            memory=self._in_memory,
            environment=environment,
            open_store=self._open_store if self._in_memory else None,
            intercept=intercept,
        )
        await broker.start()
        image = broker.node.data.follower.image

        def name_of(topic_id: TopicId) -> str | None:
            topic = image.topic_by_id(topic_id)
            return None if topic is None else topic.name

        intercepted[0].name_of = name_of
        intercepted[0].restart = self._restart_soon
        self._life = broker, environment
        return broker.address

    async def stop(self) -> None:
        """Stop in good order. Harmless when stopped."""
        async with self._lives:
            life, self._life = self._life, None
            if life is not None:
                await life[0].stop()

    def _restart_soon(self, rule: Rule) -> None:
        """Have the broker restart as a rule says, behind what happens now."""

        async def restart() -> None:
            async with self._lives:
                if self._life is None:  # Stopped meanwhile.
                    return
                await self.end(kill=rule.kill, power_loss=False)
                await asyncio.sleep(rule.seconds)
                await self.start()

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                self._trouble = f"it did not start again: {task.exception()}"

        begin_task(restart(), name="ottla-test-restart", ended=ended)

    async def end(self, *, kill: bool, power_loss: bool) -> None:
        """End this life, so that ``start`` begins the next one at the same address.

        ``kill``: nothing more reaches the disk, and no client gets an answer. ``power_loss``: what
        was not synced is lost, as far as a disk may lose it; raises ValueError for a real one.
        """
        life, self._life = self._life, None
        assert life is not None, "it runs"
        if power_loss and not self._in_memory:
            self._life = life
            raise ValueError("only a disk in memory can lose power")
        broker = life[0]
        host, port = broker.address
        entries, _ = await self._store.scan("") if self._in_memory else ([], 0)
        if kill:
            self.disk.end_process()
            store, listener = broker.node.data.store, broker.node.doors.listener
            listener.cut_off()
            with suppress(Exception):
                await asyncio.wait_for(broker.stop(grace_seconds=0, tells=False), DYING_SECONDS)
            with suppress(OttlaError):
                await store.close()
            life[1].close_executors()
            self.clock.drop_timers()  # Nobody of this life is there to hear them.
            inner = self.disk.inner
            if power_loss:
                assert isinstance(inner, MemoryDisk), "in memory"
                inner = inner.crash(SystemRng())
            before, self.disk = self.disk, FaultyDisk(inner)
            self.disk.counts.update(before.counts)
            self._fail_again()
        else:
            await broker.stop()
        self._kept = [Put(each.key, each.value) for each in entries if each.session == NO_SESSION]
        await self._fill_store()
        self._texts["listeners"] = f"PLAINTEXT://{host}:{port}"

    async def do(self, question: Mapping[str, Any]) -> object:
        """Answer a question of the other side: a word, and what belongs to it.

        Raises ValueError for a word that nobody knows.
        """
        details = dict(question)
        word = details.pop("do")
        if word == "restart":
            return await self._restart(**details)
        if self._trouble:
            raise ServerTrouble(self._trouble)
        known: dict[str, Callable[..., object]] = {
            "wall_ms": self.clock.wall_ms,
            "requests": self.requests.lines,
            "fault": self._plan,
            "disk_full": self._fill_disk,
            "fsync_error": self._fail_sync,
            "struck": self._struck,
            "slow_disk": self._slow_disk,
            "heal": self._heal,
        }
        if word == "jump":
            async with self._lives:
                await self.clock.jump(details["seconds"])
            return None
        if word not in known:
            raise ValueError(f"unknown question {word}")
        return known[word](**details)

    async def _restart(self, *, kill: bool, power_loss: bool) -> list[str | int]:
        """End this life, if there is one, and begin the next. Raises ServerTrouble."""
        async with self._lives:
            if self._life is not None:
                await self.end(kill=kill, power_loss=power_loss)
            else:  # A start that failed has closed the store.
                await self._fill_store()
            try:
                address = await self.start()
            except OSError as error:  # The port is somebody else's by now.
                self._trouble = f"it did not start again: {error}"
                raise ServerTrouble(self._trouble) from error
            self._trouble = ""
            return list(address)

    async def _fill_store(self) -> None:
        """Make the store of the next life, with what is kept."""
        self._store = MemoryStore(self.clock)
        for ops in in_commits(self._kept):
            await self._store.commit([], ops)

    async def _open_store(self) -> MemoryStore:
        return self._store

    def _kept_disk(self) -> Disk:
        return MemoryDisk(clock=self.clock, durability=True) if self._in_memory else RealDisk()

    # Faults. Those of requests have numbers from 0 on, those of the disk from -1 downwards.

    def _plan(self, rule: Mapping[str, Any]) -> int:
        return self.rules.add(Rule(**{**rule, "action": Action(rule["action"])}))

    def _fill_disk(self) -> int:
        fault = DiskFault(DiskCall.WRITE, self._calls(DiskCall.WRITE), 1)
        return self._note_disk_fault(fault)

    def _fail_sync(self, nth: int) -> int:
        return self._note_disk_fault(DiskFault(DiskCall.SYNC, self._calls(DiskCall.SYNC), nth))

    def _slow_disk(self, pauses: list[float]) -> int:
        fault = DiskFault(DiskCall.SYNC, self._calls(DiskCall.SYNC), 1, tuple(pauses))
        return self._note_disk_fault(fault)

    def _note_disk_fault(self, fault: "DiskFault") -> int:
        number = -1 - len(self._disk_faults)
        self._disk_faults[number] = fault
        fault.plan(self.disk, fault.nth)
        return number

    def _calls(self, call: DiskCall) -> int:
        """Return how often the disk was asked; a sync of the volume is a sync."""
        counts = self.disk.counts
        return counts[call] + (counts[DiskCall.SYNC_VOLUME] if call is DiskCall.SYNC else 0)

    def _struck(self, number: int) -> int:
        if number >= 0:
            return self.rules.struck(number)
        fault = self._disk_faults[number]
        if fault.struck is not None:
            return fault.struck
        calls = self._calls(fault.call) - fault.calls_before
        return calls if fault.is_lasting else int(calls >= fault.nth)

    def _heal(self, number: int) -> int:
        struck = self._struck(number)
        if number >= 0:
            self.rules.remove(number)
            return struck
        self._disk_faults[number] = self._disk_faults[number]._replace(struck=struck)
        self.disk.heal()
        self._fail_again()  # What else is in force stays so.
        return struck

    def _fail_again(self) -> None:
        """Plan what is in force at a disk that has no plan."""
        for fault in self._disk_faults.values():
            left = fault.nth - self._calls(fault.call) + fault.calls_before
            if fault.struck is None and (left > 0 or fault.is_lasting):
                fault.plan(self.disk, max(left, 1))

    async def _settled(self) -> None:
        """Return when the loop has had some turns, and no thread has a job for it."""
        assert self._life is not None, "a clock that nobody uses is not moved"
        environment = self._life[1]
        executors = [
            each
            for each in (
                environment.executor,
                environment.store_executor,
                environment.read_executor,
                environment.cleaner_executor,
            )
            if isinstance(each, ThreadExecutor)
        ]
        idle_turns = 0
        for _ in range(BUSY_TURNS_MAX):
            if all(each.is_idle for each in executors):
                idle_turns += 1
                await asyncio.sleep(0)
                if idle_turns >= IDLE_TURNS:
                    return
            else:
                idle_turns = 0
                await asyncio.sleep(0.001)


class DiskFault(NamedTuple):
    """A fault of the disk."""

    call: DiskCall
    calls_before: int
    """How many calls of this kind there were when it was planned."""
    nth: int
    pauses: tuple[float, ...] = ()
    """How many seconds longer the calls take, in turn; empty: they fail."""
    struck: int | None = None
    """How often it struck, once it is healed."""

    @property
    def is_lasting(self) -> bool:
        """Whether it strikes every call."""
        return self.call is DiskCall.WRITE or bool(self.pauses)

    def plan(self, disk: FaultyDisk, nth: int) -> None:
        """Put it in force; a single one strikes the ``nth`` call from now."""
        if self.pauses:
            disk.slow_syncs(self.pauses)
        elif self.call is DiskCall.WRITE:
            disk.fail(DiskCall.WRITE, errno=errno.ENOSPC, lasting=True)
        else:
            disk.fail(DiskCall.SYNC, or_call=DiskCall.SYNC_VOLUME, nth=nth)


class ServerTrouble(OttlaError):
    """The broker of a test has ended, and did not start again."""
