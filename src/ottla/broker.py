"""One node, from start to stop: its data is opened, its work begun, its doors opened; then back.

Owns the order, in which the data's path is walked from the disk up. What each step makes is put
together in ``ottla.node``, the only room that knows every concrete class.
Source: the design's composition root; reliability rules 3 and 16 (first start, clean stop).
"""

import asyncio
import logging
from typing import NamedTuple

from ottla.answer_memory import AnswerMemory
from ottla.config import broker as options
from ottla.config.config import Config
from ottla.env.awake_clock import AwakeClock
from ottla.env.stall_meter import StallMeter
from ottla.environment import Environment
from ottla.errors import InvariantBroken
from ottla.housekeeping.schedule import Schedule
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.directories.manager import LogManager
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import MetadataStore
from ottla.network.frame import ReceiveBudget
from ottla.node.configuration import Configuration
from ottla.node.data import (
    STORE_CLUSTER,
    Data,
    OpenStore,
    agree_on_cluster,
    close_logs,
    follow,
    open_logs,
    open_store,
    watch_logs,
)
from ottla.node.doors import Doors, Memory, bind, join_and_open, make_listener, router_for
from ottla.node.giving_up import GivingUp
from ottla.node.work import Work, begin_work, keep_house
from ottla.turns import Turns

logger = logging.getLogger(__name__)


class Node(NamedTuple):
    """A node that serves, complete."""

    data: Data
    work: Work
    doors: Doors


class Opened:
    """What is open so far, to be closed again. Invariant: each only after those above it."""

    def __init__(self) -> None:
        self.logs: LogManager | None = None
        self.store: MetadataStore | None = None
        self.follower: ImageFollower | None = None
        self.work: Work | None = None
        self.doors: Doors | None = None
        self.is_serving = False


class Broker:
    """A broker on the running loop: ``start``, serve, ``stop``."""

    def __init__(
        self,
        config: Config,
        *,
        memory: bool = False,
        environment: Environment | None = None,
        open_store: OpenStore | None = None,
    ) -> None:
        """``environment``: disk, net, clock and threads; None: the real ones.

        ``open_store``: opens the metadata store; None: the one in the first log directory.
        """
        self._env = environment or Environment.real(memory=memory)
        self.configuration = Configuration(
            config, memory=memory, open_files_max=self._env.open_files_max
        )
        self._giving_up = GivingUp(self.configuration.log_dirs)
        self._open_given_store = open_store
        self._memory = Memory(
            ReceiveBudget(config[options.QUEUED_MAX_REQUEST_BYTES]),
            AnswerMemory(config[options.QUEUED_MAX_ANSWER_BYTES]),
            Turns(self._env.clock, self._env.meter),
        )
        self._awake_clock = AwakeClock(self._env.clock)
        self._schedule = Schedule(self._env.clock)
        self._opened = Opened()
        self._node: Node | None = None
        self.cluster_id = ""
        """The cluster's id, once started."""
        self.data_is_new = False
        """Whether this start made the data directory."""

    @property
    def node(self) -> Node:
        """All parts. Raises InvariantBroken unless it is started."""
        if self._node is None:
            raise InvariantBroken("the broker is not started")
        return self._node

    @property
    def address(self) -> tuple[str, int]:
        """Host and port really bound, while it is started."""
        return self.node.doors.address

    @property
    def failed(self) -> asyncio.Event:
        """Set when this node cannot go on, and should be stopped; then ``failure`` tells why."""
        return self._giving_up.failed

    @property
    def failure(self) -> LogDirectoryUnusable | None:
        """Why this node cannot go on; None while it can."""
        return self._giving_up.failure

    @property
    def stall_meter(self) -> StallMeter:
        """What tells how long the loop was held at a time."""
        return self._memory.turns.meter

    async def start(self) -> Node:
        """Open the data, begin the work, open the doors. Returns when clients are served.

        Raises OSError (a port in use among them), LogDirectoryUnusable, CorruptFile and other
        OttlaError; whatever was opened is closed again.
        """
        try:
            data = await self._open_data()
            work = self._begin_work(data)
            doors = await self._open_doors(data, work)
        except BaseException:
            await self.stop()
            raise
        self._node = node = Node(data, work, doors)
        self._opened.is_serving = True
        self.stall_meter.start()
        keep_house(self._schedule, work.housekeeper, data.logs, self._env, self.configuration)
        return node

    async def stop(self) -> None:
        """Answer what is in flight, then close everything, durably. Harmless when not started."""
        opened, self._opened = self._opened, Opened()
        if opened.is_serving:
            self.stall_meter.stop()
            logger.info("the longest turn of the loop took %s", self.stall_meter.longest)
        self._schedule.stop()
        await self._close_doors(opened)
        self._awake_clock.stop()
        if opened.doors is not None:
            await opened.doors.leave()
        if opened.follower is not None:
            await opened.follower.close()
        if opened.work is not None:
            await opened.work.settle()
        if opened.logs is not None:
            replicas = None if opened.work is None else opened.work.replica_manager
            await close_logs(opened.logs, self._env, replicas)
        if opened.store is not None:
            await opened.store.close()
        self._env.close_executors()
        self._node = None

    # The steps of a start; each notes what it has opened as soon as that is so.

    async def _open_data(self) -> Data:
        env, configuration, opened = self._env, self.configuration, self._opened
        manager, self.cluster_id, self.data_is_new = open_logs(env, configuration, self._giving_up)
        opened.logs = manager
        watch_logs(manager, configuration.log_dirs, self._giving_up)
        if self._open_given_store is not None:
            store = await self._open_given_store()
        else:
            store = await open_store(env, configuration, self._giving_up)
        opened.store = store
        keys = Keys(STORE_CLUSTER)
        self.cluster_id = await agree_on_cluster(store, keys, self.cluster_id)
        opened.follower = follower = ImageFollower(store, keys, env.clock)
        data = Data(manager, keys, store, follower)
        await follow(data, env, configuration, self._giving_up)
        return data

    def _begin_work(self, data: Data) -> Work:
        self._opened.work = work = begin_work(
            data,
            self._env,
            self.configuration,
            turns=self._memory.turns,
            awake_clock=self._awake_clock,
            request_memory=self._memory.requests,
        )
        return work

    async def _open_doors(self, data: Data, work: Work) -> Doors:
        env, configuration, opened = self._env, self.configuration, self._opened
        router = router_for(data, work, env, configuration, self._memory)
        listener = make_listener(router, data, env, configuration, self._memory)
        opened.doors = doors = await bind(listener, data, env, configuration, self._giving_up)
        await join_and_open(doors, data)
        return doors

    async def _close_doors(self, opened: Opened) -> None:
        if opened.doors is not None and opened.work is not None:
            grace_ms = self.configuration.at_start[options.STOP_TIMEOUT_MS]
            await opened.doors.close(opened.work, grace_seconds=grace_ms / 1000)
