"""The supervisor: starts the nodes of one host, keeps them running, and stops them all.

Owns what they share (``shared``) and the order of starts and stops. No byte of a client passes
through it. When it dies, whatever the cause, its nodes see the end of their link and go.
Source: cluster design, section 2.5.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ottla.cluster.taking_in import TakingIn
from ottla.config import broker as options
from ottla.config.config import Config
from ottla.env.clock import Clock, Timer
from ottla.env.processes import Processes
from ottla.env.tasks import begin_task
from ottla.errors import OttlaError
from ottla.ids import NodeId
from ottla.metadata.keys import Keys
from ottla.metadata.sqlite_store import SqliteStore
from ottla.node.identity import STORE_CLUSTER
from ottla.security.credentials import FirstUser
from ottla.supervision.child import Child
from ottla.supervision.errands import Failed, Welcome
from ottla.supervision.layout import (
    ListenerPorts,
    check_options,
    node_ids,
    node_texts,
    plan_ports,
)
from ottla.supervision.settling import CannotSettle, Settling
from ottla.supervision.shared import Doors, Outside, SharedData, open_data, open_in_memory

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at who is silent."""
STOOD_STILL_SECONDS = 1.0
"""A look that is so much late: this process itself could not listen."""
STOP_SECONDS = 30.0
"""How long a stop may take, beyond the clients' grace, before processes are killed."""


class NodesFailed(OttlaError):
    """The nodes cannot go on. ``what``, ``why`` and ``fix`` are for people."""

    def __init__(self, what: str, why: str = "", fix: str = "", *, is_usage: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.is_usage = is_usage


class Supervisor:
    """Several nodes on the running loop: ``start``, then ``failed`` or ``stop``."""

    def __init__(
        self,
        config: Config,
        count: int,
        *,
        outside: Outside,
        processes: Processes,
        write_line: Callable[[str], None],
        memory: bool = False,
        first_node_port: int | None = None,
        first_users: Sequence[FirstUser] = (),
    ) -> None:
        """Plan ``count`` nodes; nothing is opened before ``start``. Raises InvalidConfig.

        ``write_line``: takes each line that a node's process writes. ``first_node_port``: see
        ``plan_ports``. ``first_users``: see ``Broker``.
        """
        check_options(config, count)
        self._planned = plan_ports(config[options.LISTENERS], count, first_node_port)
        self._config = config
        self._count = count
        self._outside = outside
        self._processes = processes
        self._write_line = write_line
        self._is_memory = memory
        self._first_users = tuple(first_users)
        self._doors = Doors()
        self._data: SharedData | None = None
        self._settling: Settling | None = None
        """Use: set when the data is open."""
        self._children: dict[NodeId, Child] = {}
        self._looking: Timer | None = None
        self._look_due = 0.0
        self._listening_since = 0.0
        self._changed = asyncio.Event()
        """Use: set when a node became ready or its last process ended."""
        self._is_stopping = False
        self._opening = asyncio.Lock()
        """Use: held while something is opened or started; a stop waits for that, and then closes
        all that there is."""
        self.failed = asyncio.Event()
        """Set when the nodes cannot go on and should be stopped; ``failure`` then tells why."""
        self.failure: NodesFailed | None = None

    @property
    def clock(self) -> Clock:
        """The clock that everything here is timed by."""
        return self._outside.clock

    @property
    def ports(self) -> tuple[ListenerPorts, ...]:
        """The ports that are bound, once started."""
        return self._doors.bound

    @property
    def cluster_id(self) -> str:
        """The cluster's id, once started."""
        assert self._data is not None, "it is started"
        return self._data.cluster_id

    @property
    def data_is_new(self) -> bool:
        """Whether this start made the data, once started."""
        return self._data is not None and self._data.is_new

    def pids(self) -> dict[NodeId, int | None]:
        """Return the number of each node's process; None: it has none now."""
        return {node: child.pid for node, child in self._children.items()}

    async def start(self) -> None:
        """Start all nodes; returns when all of them serve, or when ``stop`` is called.

        Raises OSError, NodesFailed, InvalidConfig and other OttlaErrors; then nothing is left open.
        """
        try:
            async with self._opening:
                await self._open()
            await self._until(lambda: all(each.is_serving for each in self._children.values()))
            if self.failure is not None:
                raise self.failure
        except BaseException:
            await self.stop()
            raise
        self._listening_since = self.clock.monotonic()
        if not self._is_stopping:
            self._look_again()

    async def stop(self) -> None:
        """Stop all nodes at once; close what they share when the last has ended."""
        self._is_stopping = True
        self._changed.set()
        async with self._opening:
            pass  # From now on nothing is opened or started.
        if self._looking is not None:
            self._looking.cancel()
        if self._settling is not None:
            self._settling.stop()
        for child in self._children.values():
            child.stop()
        grace_seconds = self._config[options.STOP_TIMEOUT_MS] / 1000 + STOP_SECONDS
        timer = self.clock.call_later(grace_seconds, self.kill)
        while any(child.is_running for child in self._children.values()):
            self._changed.clear()
            await self._changed.wait()
        timer.cancel()
        self._doors.close()
        if self._data is not None:
            await self._data.store.close()
        self._outside.store_executor.close()

    def kill(self) -> None:
        """End all processes of nodes at once."""
        for child in self._children.values():
            child.kill()

    async def _open(self) -> None:
        """Open what the nodes share, and start them; no further step when all are to stop."""
        backlog = self._config[options.SOCKET_LISTEN_BACKLOG_SIZE]
        if not self._is_stopping:
            await self._doors.open(self._planned, backlog)
        if not self._is_stopping and self._count > 1:
            await self._doors.open_to_nodes(self._count, self._outside.rng, backlog)
        if not self._is_stopping:
            self._data = data = await self._open_data()
            self._settling = Settling(
                TakingIn(
                    data.store, Keys(STORE_CLUSTER), self._outside.rng, self._internal_configs
                ),
                node_ids(self._count),
                self.clock,
                is_unsettled=data.is_unsettled,
                is_lost=data.is_unsettled and not data.is_new,
                on_failed=self._cannot_settle,
            )
            self._children = {node: self._child(node) for node in node_ids(self._count)}
        for child in self._children.values():
            if not self._is_stopping:
                await child.start()

    def _internal_configs(self, topic: str) -> Mapping[str, str] | None:
        """Return with which configs an internal topic is made; None: it is no such topic."""
        from ottla.settings import internal_configs_of  # noqa: PLC0415 - few starts need it

        return internal_configs_of(self._config, topic)

    async def _open_data(self) -> SharedData:
        if self._is_memory:
            return await open_in_memory(self._outside)
        data = await open_data(self._config, self._count, self._outside)
        if isinstance(data.store, SqliteStore):
            data.store.on_broken = self._store_broke
        return data

    def _child(self, node: NodeId) -> Child:
        assert self._data is not None, "it is opened"
        assert self._settling is not None, "so is this"
        bound = self._doors.bound
        welcome = Welcome(
            node=node,
            texts=node_texts(self._config, node, bound),
            is_memory=self._is_memory,
            sockets=self._doors.of(node),
            doors=self._doors.addresses(),
            inter_broker=self._doors.inter_broker(node),
            first_users=self._first_users if node == 1 else (),
        )
        child = Child(
            welcome,
            store=self._data.store,
            clock=self.clock,
            processes=self._processes,
            write_line=self._write_line,
            may_restart=not self._is_memory,
        )
        child.on_ready = self._changed.set
        child.on_held = self._settling.hear
        child.on_over = self._over
        child.on_again = self._start_again
        return child

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait until ``is_so``, or until nothing more is to be waited for."""
        while not is_so() and not self._is_stopping and self.failure is None:
            self._changed.clear()
            await self._changed.wait()

    def _over(self, child: Child, code: int) -> None:
        if not self._is_stopping:
            self._fail(self._why(child, code))
        self._changed.set()

    def _why(self, child: Child, code: int) -> NodesFailed:
        told = child.failed
        if told is not None:
            return _failure(child.node, told)
        if child.ready is not None:
            what = f"node {child.node} ended (exit code {code})"
            return NodesFailed(what, "its data was in memory: it cannot come back")
        what = f"node {child.node} ended before it served (exit code {code})"
        return NodesFailed(what, "see what it wrote above" if child.last_words() else "")

    def _cannot_settle(self, error: BaseException) -> None:
        if self._is_stopping:
            return
        what = "the nodes cannot serve what they have"
        if isinstance(error, CannotSettle):
            self._fail(NodesFailed(what, error.why, error.fix))
        else:
            self._fail(NodesFailed(what, str(error) or repr(error)))

    def _store_broke(self, why: str) -> None:
        fix = "see what is wrong with the disk, then start again; ottla doctor looks at the rest"
        self._fail(NodesFailed(f"the metadata is out of use ({why})", fix=fix))

    def _fail(self, failure: NodesFailed) -> None:
        if self.failure is None:
            self.failure = failure
            self.failed.set()
            self._changed.set()

    def _start_again(self, child: Child) -> None:
        start = self._start_unless_stopping(child)
        begin_task(start, name="start again", ended=partial(self._started, child))

    async def _start_unless_stopping(self, child: Child) -> None:
        async with self._opening:
            if not self._is_stopping:
                await child.start()

    def _started(self, child: Child, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        what = f"node {child.node} cannot be started again"
        logger.error("%s: %r", what, error)
        if isinstance(error, OSError):  # No process, descriptor or memory is to be had just now.
            child.start_failed()
        else:
            self._fail(NodesFailed(what, str(error)))

    def _look_again(self) -> None:
        self._look_due = self.clock.monotonic() + LOOK_SECONDS
        self._looking = self.clock.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        now = self.clock.monotonic()
        if now - self._look_due > STOOD_STILL_SECONDS:
            self._listening_since = now
        for child in self._children.values():
            child.look(now, self._listening_since)
        self._look_again()


def _failure(node: NodeId, told: Failed) -> NodesFailed:
    return NodesFailed(f"node {node}: {told.what}", told.why, told.fix, is_usage=told.is_usage)
