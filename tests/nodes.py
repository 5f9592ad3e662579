"""Several nodes of one cluster in this process, on one metadata store: real brokers, real sockets.

The loop runs in a thread, so that blocking clients can be used beside it. Each node has a disk of
its own, in memory, that keeps what was written when the node is killed. The store lives as long as
the cluster; what a node has of it ends with the node.
"""

import asyncio
from contextlib import suppress

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.env.clock import SystemClock
from ottla.env.faulty_disk import FaultyDisk
from ottla.env.loop_thread import LoopThread
from ottla.env.memory_disk import MemoryDisk
from ottla.environment import Environment
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Unavailable
from ottla.node.interbroker import INTER_BROKER, InterBroker

OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "ottla.stop.timeout.ms": "500",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
}
PATIENCE_SECONDS = 30
SECRET = "what only nodes know"


class StoreOfNode:
    """One life's way to the store of the cluster: it ends, the store goes on."""

    def __init__(self, inner):
        self.inner = inner
        self._sessions = []
        self._closed = asyncio.Event()

    def _check(self):
        if self._closed.is_set():
            raise Unavailable("this node's way to the store is closed")

    async def get(self, key):
        self._check()
        return await self.inner.get(key)

    async def scan(self, prefix):
        self._check()
        return await self.inner.scan(prefix)

    async def commit(self, guards, ops):
        self._check()
        return await self.inner.commit(guards, ops)

    async def watch(self, prefix, from_rev):
        watched = self.inner.watch(prefix, from_rev)
        try:
            while True:
                self._check()
                step = asyncio.ensure_future(anext(watched))
                over = asyncio.ensure_future(self._closed.wait())
                try:
                    await asyncio.wait([step, over], return_when=asyncio.FIRST_COMPLETED)
                    self._check()
                    yield await step
                finally:
                    for one in (step, over):
                        one.cancel()
                    await asyncio.gather(step, over, return_exceptions=True)
        finally:
            await watched.aclose()

    async def session(self, ttl_seconds, on_state):
        self._check()
        session = await self.inner.session(ttl_seconds, on_state)
        self._sessions.append(session)
        return session

    async def close(self):
        self._closed.set()
        await self.end_sessions()

    async def end_sessions(self):
        """Nobody renews them: the process has ended."""
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            await session.close()


class Life:
    """One node from a start to its end."""

    def __init__(self, broker, environment, store):
        self.broker = broker
        self.environment = environment
        self.store = store


class Nodes:
    """A cluster. ``start`` and ``kill`` block; they are for the test's thread."""

    def __init__(self, options=None, scheme="PLAINTEXT"):
        """``scheme``: the name of the listener."""
        self._scheme = scheme
        self._thread = LoopThread("nodes of a test")
        self._options = OPTIONS | {"listeners": f"{scheme}://127.0.0.1:0"} | (options or {})
        self._disks = {}
        self._ports = {}
        self._lives = {}
        self._store = None

    def __enter__(self):
        self._thread.start()
        self._store = self.run(self._make_store)
        return self

    def __exit__(self, *_):
        self.run(self._close)
        self._thread.stop()

    def run(self, work, *arguments):
        """Run a coroutine function on the loop of the nodes; return what it returns."""
        return self._thread.run(lambda: work(*arguments), timeout_seconds=PATIENCE_SECONDS)

    def call(self, function, *arguments):
        """Call a function on the loop of the nodes; return what it returns."""

        async def work():
            return function(*arguments)

        return self.run(work)

    def start(self, *node_ids, **options):
        """Start nodes, one after the other."""
        for node_id in node_ids:
            self.run(self._start, node_id, {k.replace("_", "."): v for k, v in options.items()})

    def start_together(self, *node_ids):
        """Start nodes at the same time."""

        async def start():
            await asyncio.gather(*(self._start(node_id, {}) for node_id in node_ids))

        self.run(start)

    def stop(self, node_id):
        """Stop a node in good order."""
        self.run(self._stop, node_id)

    def stop_together(self, *node_ids):
        """Stop nodes in good order as their supervisor does when all are to stop."""

        async def stop():
            brokers = [self._lives.pop(node_id).broker for node_id in node_ids]
            await asyncio.gather(*(broker.stop(hands_over=False) for broker in brokers))

        self.run(stop)

    def kill(self, node_id, *, lasts=False):
        """End a node at once. ``lasts``: nobody has noticed yet; its session goes on."""
        self.run(self._kill, node_id, lasts)

    def kill_together(self, *node_ids):
        """End nodes at the same moment: none of them sees another one go."""
        for node_id in node_ids:
            self.call(self.broker(node_id).node.work.elections.stop)
        for node_id in node_ids:
            self.kill(node_id)

    def forget_disk(self, node_id):
        """Let a node that does not run begin with an empty disk."""
        del self._disks[node_id]

    def take_disk(self, node_id, disk):
        """Give a node that does not run the disk of another one."""
        self._disks[node_id] = disk

    def forget_store(self):
        """Let the cluster begin with an empty store; no node runs."""
        self.run(self._store.close)
        self._store = self.run(self._make_store)

    def disk(self, node_id):
        """Return what a node keeps."""
        return self._disks[node_id]

    def broker(self, node_id):
        """Return a node that runs; to be touched on the loop only."""
        return self._lives[node_id].broker

    @property
    def store(self):
        """The store of the cluster; to be touched on the loop only."""
        return self._store

    @property
    def running(self):
        """The ids of the nodes that run."""
        return sorted(self._lives)

    def address(self, node_id):
        """Return host:port of a node."""
        return f"127.0.0.1:{self._ports[node_id]}"

    def address_for_nodes(self, node_id):
        """Return host:port where other nodes ask a node."""
        found = self.call(lambda: self.image(node_id).brokers[node_id].registration.listeners)
        return next(f"{host}:{port}" for name, host, port in found if name == INTER_BROKER)

    @property
    def bootstrap(self):
        """The addresses of all nodes that run."""
        return ",".join(map(self.address, self.running))

    def image(self, node_id):
        """Return what a node knows of the cluster."""
        return self.broker(node_id).node.data.follower.image

    def leaders(self, topic):
        """Return who leads each partition, by the first node that runs."""

        def read():
            found = self.image(self.running[0]).topic(topic)
            return [] if found is None else [state.leader for state in found.partitions]

        return self.call(read)

    async def _make_store(self):
        return MemoryStore(SystemClock())

    async def _start(self, node_id, options):
        memory = self._disks.setdefault(node_id, MemoryDisk(durability=True))
        environment = Environment.real(memory=True)._replace(disk=FaultyDisk(memory))
        texts = self._options | {"node.id": str(node_id)}
        if node_id in self._ports:
            texts["listeners"] = f"{self._scheme}://{self.address(node_id)}"
        texts |= options
        store = StoreOfNode(self._store)

        async def open_store():
            return store

        broker = Broker(
            broker_config(texts),
            memory="log.dirs" not in self._options,  # Of memory there is one directory.
            environment=environment,
            open_store=open_store,
            inter_broker=InterBroker("127.0.0.1", 0, SECRET),
        )
        await broker.start()
        self._ports[node_id] = broker.address[1]
        self._lives[node_id] = Life(broker, environment, store)

    async def _stop(self, node_id):
        await self._lives.pop(node_id).broker.stop()

    async def _kill(self, node_id, lasts):
        life = self._lives.pop(node_id)
        life.environment.disk.end_process()
        life.broker.node.doors.listener.cut_off()
        if not lasts:
            await life.store.close()
        with suppress(Exception):
            await asyncio.wait_for(life.broker.stop(hands_over=False), PATIENCE_SECONDS)
        life.environment.close_executors()

    async def _close(self):
        for node_id in self.running:
            await self._stop(node_id)
        await self._store.close()
