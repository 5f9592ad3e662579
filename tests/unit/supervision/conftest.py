"""A supervisor whose nodes are scripted: processes of this very process, on a clock by hand."""

import asyncio
import os
import socket

import pytest

from ottla.config.files import broker_config
from ottla.env.channel import open_channel
from ottla.env.clock import ManualClock
from ottla.metadata.remote.store import RemoteStore
from ottla.supervision.errands import FAILED, READY, Failed, Ready, read_welcome, write
from ottla.supervision.shared import Outside
from ottla.supervision.supervisor import Supervisor


class ScriptedProcess:
    """What a node does is said by the test; a signal ends it, unless it is to be deaf."""

    def __init__(self, pid, command, descriptor, on_line, on_end):
        self.pid = pid
        self.node = int(command[-2])
        self.heard = []
        """The signals that came."""
        self.is_deaf = False
        """It is stopped, or hangs: only a kill ends it."""
        self.has_ended = False
        self.welcome = None
        self.write_line = on_line
        self._on_end = on_end
        self._end = socket.socket(fileno=os.dup(descriptor))
        self._store = RemoteStore(ManualClock(), keeps_link=True)
        self._store.on_other = self._hear

    async def open(self):
        await open_channel(lambda: self._store.link, self._end)

    def _hear(self, kind, body):
        self.welcome = read_welcome(body)

    def is_ready(self):
        self._store.tell(READY, write(Ready(data_is_new=True)))

    def has_failed(self, **words):
        self._store.tell(FAILED, write(Failed(**words)))

    def says_something(self):
        """Renew a session that there is not: any frame is a sign of life."""
        from ottla.metadata.remote.messages import Kind, Number

        self._store.tell(Kind.RENEW_SESSION, Number(number=99))

    def terminate(self):
        self.heard.append("terminate")
        if not self.is_deaf:
            self.end(0)

    def kill(self):
        self.heard.append("kill")
        self.end(-9)

    def end(self, code, *, last_words_first=True):
        """``last_words_first``: what it said arrives before its end is known."""
        if self.has_ended:
            return
        self.has_ended = True
        if last_words_first:
            self._store.link.close()
            asyncio.get_running_loop().call_soon(self._on_end, code)
        else:
            self._on_end(code)
            asyncio.get_running_loop().call_soon(self._store.link.close)


class ScriptedProcesses:
    def __init__(self):
        self.started = []
        self.refuses = None
        """What the next start raises."""

    async def start(self, command, descriptors, on_line, on_end):
        if self.refuses is not None:
            raise self.refuses
        pid = 1000 + len(self.started)
        process = ScriptedProcess(pid, command, descriptors[0], on_line, on_end)
        self.started.append(process)
        await process.open()
        return process

    def newest(self, node):
        return [each for each in self.started if each.node == node][-1]

    def count(self, node):
        return sum(each.node == node for each in self.started)


class Host:
    """A supervisor of scripted nodes."""

    def __init__(self, directory):
        self.clock = ManualClock()
        self.processes = ScriptedProcesses()
        self.lines = []
        self.directory = directory

    def supervise(self, count, *, memory=False, **texts):
        texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(self.directory)} | texts
        outside = Outside.real()._replace(clock=self.clock)
        self.supervisor = Supervisor(
            broker_config(texts),
            count,
            outside=outside,
            processes=self.processes,
            write_line=self.lines.append,
            memory=memory,
        )
        return self.supervisor

    async def started(self, count, **options):
        """Return a supervisor all of whose nodes serve."""
        supervisor = self.supervise(count, **options)
        starting = asyncio.ensure_future(supervisor.start())
        for node in range(1, count + 1):
            await self.welcomed(node)
            self.processes.newest(node).is_ready()
        await starting
        return supervisor

    async def welcomed(self, node, times=1):
        """Wait until the node's ``times``-th process has been told who it is."""
        await self.until(lambda: self.processes.count(node) == times)
        await self.until(lambda: self.processes.newest(node).welcome is not None)
        return self.processes.newest(node)

    async def until(self, is_so):
        """Wait for what the loop or a thread of the store is about to do."""
        async with asyncio.timeout(20):
            while not is_so():  # noqa: ASYNC110 - threads set no event
                await asyncio.sleep(0.001)

    async def settle(self):
        """Let the loop do what is due."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_seconds(self, count, *talking):
        """Let seconds pass, one by one; those who talk say something in each."""
        for _ in range(count):
            for node in talking:
                self.processes.newest(node).says_something()
            await self.settle()
            self.clock.advance(1.0)
            await self.settle()


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / "data")
