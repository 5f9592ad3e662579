"""One node, from start to stop.

A start opens the data, begins the work (replication, coordinators, housekeeping) and then opens the
doors (the listener); a stop goes the other way. This file owns that order. ``ottla.node``, the only
room that knows every concrete class, builds the parts of each step.
Source: the design's composition root; reliability rules 3 and 16 (first start, clean stop).
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.answer_memory import AnswerMemory
from ottla.config import broker as options
from ottla.config import tls as tls_options
from ottla.config.config import Config
from ottla.env.awake_clock import AwakeClock
from ottla.env.stall_meter import StallMeter
from ottla.env.tasks import begin_task
from ottla.environment import Environment
from ottla.errors import InvariantBroken
from ottla.handlers.router import Intercept
from ottla.housekeeping.schedule import Schedule
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.directories.manager import LogManager
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import MetadataStore
from ottla.network.frame import ReceiveBudget
from ottla.node.configuration import Configuration
from ottla.node.data import (
    Data,
    OpenStore,
    agree_on_own_store,
    close_logs,
    do_without_others,
    follow,
    known_cluster,
    open_logs,
    open_store,
    refuse_older_metadata,
    watch_logs,
    without_clean_stop,
)
from ottla.node.doors import (
    Doors,
    Memory,
    Reception,
    bind,
    join_and_open,
    make_listener,
    router_for,
)
from ottla.node.giving_up import METADATA_FILE, GivingUp
from ottla.node.identity import STORE_CLUSTER, agree_on_cluster, new_cluster_id
from ottla.node.interbroker import InterBroker
from ottla.node.links import NodeLinks
from ottla.node.logins import begin_with
from ottla.node.work import Work, begin_work, keep_house
from ottla.security.credentials import FirstUser
from ottla.turns import Turns

if TYPE_CHECKING:
    from ottla.cluster.taking_in import TakeIn
    from ottla.node.generations import Generations
    from ottla.node.hosts import Host
    from ottla.node.lineage import Lineage

logger = logging.getLogger(__name__)


class Node(NamedTuple):
    """All parts of a node that serves clients."""

    data: Data
    work: Work
    doors: Doors


class Opened:
    """What a start has opened so far, for a stop to close.

    Invariant: a field is set only after all fields above it.
    """

    def __init__(self) -> None:
        self.logs: LogManager | None = None
        self.store: MetadataStore | None = None
        self.lineage: Lineage | None = None
        """None: the store is beside the data."""
        self.generations: Generations | None = None
        """None: nobody shares this node's metadata."""
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
        first_users: tuple[FirstUser, ...] = (),
        shared_doors: Mapping[str, tuple[str, int]] | None = None,
        inter_broker: InterBroker | None = None,
        intercept: Intercept | None = None,
        host: "Host | None" = None,
        take_in: "TakeIn | None" = None,
    ) -> None:
        """Build a broker; nothing is opened before ``start``.

        ``memory``: keep all files in memory. ``environment``: disk, net, clock and threads; None
        means the operating system's. ``open_store``: opens the metadata store that the cluster's
        nodes share; None means this node's own, in the first log directory. ``first_users``: may
        log in to a cluster that has no SCRAM credentials yet. ``shared_doors``: by listener, host
        and port that several nodes accept connections from; None: there are none.
        ``inter_broker``: where nodes let each other in, and their secret; None: they come and go by
        the first listener, without a login. ``intercept``: stands between the connections and the
        router; for tests. ``host``: this node is one of several hosts; None: of one.
        ``take_in``: takes in directories that the metadata does not know, of all nodes together;
        None: this node does so by itself.
        """
        self._env = environment or Environment.real(memory=memory)
        self.configuration = Configuration(
            config, memory=memory, open_files_max=self._env.open_files_max
        )
        self._host = host
        self._take_in = take_in
        has_metadata = open_store is None and host is None
        self._giving_up = GivingUp(self.configuration.log_dirs, has_metadata=has_metadata)
        self._shared_doors = shared_doors or {}
        self._inter_broker = inter_broker
        self._open_given_store = open_store
        self._first_users = first_users
        self._intercept = intercept
        self._memory = Memory(
            ReceiveBudget(config[options.QUEUED_MAX_REQUEST_BYTES]),
            AnswerMemory(config[options.QUEUED_MAX_ANSWER_BYTES]),
            Turns(self._env.waits_clock, self._env.meter),
        )
        self._awake_clock = AwakeClock(self._env.clock, self._env.waits_clock)
        self._schedule = Schedule(self._env.clock)
        self._opened = Opened()
        self._has_begun = False
        self._stopping: asyncio.Task[None] | None = None
        """Use: the one stop, for which every caller of ``stop`` waits; None: not stopping."""
        self._node: Node | None = None
        self.cluster_id = ""
        """The cluster's id, once started."""
        self.data_is_new = False
        """True when this start created the data directory."""

    @property
    def node(self) -> Node:
        """The parts of the started broker. Raises InvariantBroken unless it is started."""
        if self._node is None:
            raise InvariantBroken("the broker is not started")
        return self._node

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that are bound. Raises InvariantBroken unless it is started."""
        return self.node.doors.address

    @property
    def failed(self) -> asyncio.Event:
        """Set when this node cannot go on and should be stopped; ``failure`` then tells why."""
        return self._giving_up.failed

    @property
    def failure(self) -> LogDirectoryUnusable | None:
        """Why this node cannot go on; None while it can."""
        return self._giving_up.failure

    @property
    def stall_meter(self) -> StallMeter:
        """Measures how long single turns of the loop take."""
        return self._memory.turns.meter

    async def start(self) -> Node:
        """Open the data, begin the work, open the doors. Returns when clients are served.

        Raises OSError (for example when the port is in use), LogDirectoryUnusable, CorruptFile and
        other OttlaErrors; InvariantBroken when it is called a second time. It closes everything
        that it has opened before it raises.
        """
        if self._has_begun or self._stopping is not None:
            raise InvariantBroken("a broker is started once")
        self._has_begun = True
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
        keep_house(self._schedule, work, data.logs, self._env, self.configuration)
        if self._opened.lineage is not None:
            self._opened.lineage.keep(self._schedule)
        if self._opened.generations is not None:
            self._opened.generations.keep(self._schedule)
        interval_ms = self.configuration.at_start[tls_options.RELOAD_INTERVAL_MS]
        if doors.certificates is not None and interval_ms:
            self._schedule.every(interval_ms, doors.certificates.renew)
        return node

    async def stop(
        self, *, grace_seconds: float | None = None, hands_over: bool = True, tells: bool = True
    ) -> None:
        """Answer what is in flight, then close everything, durably. Harmless when not started.

        ``grace_seconds``: how long clients may take for their answers; None: as the options say.
        ``hands_over``: other nodes go on, and lead what this one has led before it goes. Else
        leaders stay as they are. ``tells``: what keeps the stop from its end is logged, too.
        The stop is completed even if a caller is cancelled; further callers wait for its end.
        """
        if grace_seconds is None:
            grace_seconds = self.configuration.at_start[options.STOP_TIMEOUT_MS] / 1000
        if self._stopping is None:
            self._stopping = begin_task(
                self._stop(grace_seconds, hands_over=hands_over),
                name="stop",
                ended=_stop_ended if tells else _nothing_to_tell,
            )
        await asyncio.shield(self._stopping)

    async def _stop(self, grace_seconds: float, *, hands_over: bool) -> None:
        opened = self._opened
        if opened.is_serving:
            self.stall_meter.stop()
            logger.info("the longest turn of the loop took %s", self.stall_meter.longest)
        self._schedule.stop()
        if opened.is_serving:
            if hands_over:
                await self._hand_over(self.node)
            else:  # Nobody is to be elected: all go.
                self.node.work.elections.stop()
        await self._close_doors(opened, grace_seconds)
        self._awake_clock.stop()
        if opened.doors is not None:
            await opened.doors.leave()
        await self._close_data(opened)
        self._env.close_executors()
        self._node = None

    async def _close_data(self, opened: Opened) -> None:
        if opened.lineage is not None:
            opened.lineage.stop()
        if opened.follower is not None:
            await opened.follower.close()
        if opened.work is not None:
            await opened.work.settle()
        if opened.generations is not None:
            await opened.generations.go_on()
        if opened.logs is not None:
            replicas = None if opened.work is None else opened.work.replica_manager
            await close_logs(opened.logs, self._env, replicas)
        if opened.store is not None:
            await opened.store.close()

    # The steps of a start. Each notes in ``_opened`` what it has opened, at once.

    async def _open_data(self) -> Data:
        env, configuration, opened = self._env, self.configuration, self._opened
        keys, store, cluster_id = Keys(STORE_CLUSTER), None, None
        if self._host is not None:
            keys = self._host.keys
            opened.store = store = await self._open_hosts_store(self._host)
            await self._host.wait_for_place(store, env, configuration)
            found = known_cluster(env, configuration, self._giving_up)
            first = configuration.log_dirs[0]
            cluster_id = await self._host.agree_on_cluster(store, env, found, first)
            self._inter_broker = await self._host.inter_broker(store, env)
        elif self._open_given_store is not None:  # A new directory is made for its cluster.
            opened.store = store = await self._open_given_store()
            found = known_cluster(env, configuration, self._giving_up)
            cluster_id = await agree_on_cluster(store, keys, found or new_cluster_id(env.rng))
        unclean = without_clean_stop(env, configuration)
        logs = open_logs(env, configuration, self._giving_up, cluster_id=cluster_id)
        manager, self.cluster_id, self.data_is_new = logs
        opened.logs = manager
        watch_logs(manager, configuration.log_dirs, self._giving_up)
        if store is None:
            opened.store = store = await open_store(env, configuration, self._giving_up)
            self.cluster_id = await agree_on_own_store(store, keys, logs, configuration)
        if self._host is not None:
            opened.lineage = lineage = self._host.lineage(
                store, env, configuration, manager, self._giving_up.give_up
            )
            await lineage.look_first()
        opened.follower = follower = ImageFollower(store, keys, env.clock)
        if opened.lineage is not None:
            follower.add_listener(opened.lineage.apply)
        data = Data(manager, keys, store, follower, unclean=unclean)
        data = await follow(
            await self._with_old_copies(data),
            env,
            configuration,
            self._giving_up,
            may_adopt=self._host is None,
            is_alone=self._inter_broker is None,
            take_in=self._take_in,
        )
        if self._host is not None:
            fix = "put a newer backup of etcd back"
            refuse_older_metadata(data, str(self._host.address), fix)
            if opened.lineage is not None:
                await opened.lineage.begin()
        elif self._open_given_store is not None:
            refuse_older_metadata(data, METADATA_FILE, f"put a newer copy of {METADATA_FILE} back")
        else:
            await do_without_others(data, env, configuration)
        return data

    async def _with_old_copies(self, data: Data) -> Data:
        """Return ``data`` with the directories that are old copies, if others share its store."""
        if self._open_given_store is None and self._host is None:
            return data
        from ottla.node.generations import Generations  # noqa: PLC0415 - one node needs none

        self._opened.generations = generations = Generations(
            data.store, data.keys, self.configuration.node_id, data.logs, self._env
        )
        return data._replace(old_copies=await generations.look())

    async def _open_hosts_store(self, host: "Host") -> MetadataStore:
        where = str(host.address)
        return await host.open_store(
            self._env, lambda why: self._giving_up.cluster_broke(where, why)
        )

    def _begin_work(self, data: Data) -> Work:
        self._opened.work = work = begin_work(
            data,
            self._env,
            self.configuration,
            turns=self._memory.turns,
            awake_clock=self._awake_clock,
            request_memory=self._memory.requests,
            links=NodeLinks(
                data.follower.image, self._env.net, self.configuration.node_id, self._inter_broker
            ),
        )
        return work

    async def _open_doors(self, data: Data, work: Work) -> Doors:
        env, configuration, opened = self._env, self.configuration, self._opened
        router = router_for(data, work, env, configuration, self._memory)
        serve = router.dispatch if self._intercept is None else self._intercept(router)
        reception = Reception(serve, router.known)
        listener = make_listener(reception, data, env, configuration, self._memory)
        await begin_with(self._first_users, data, env, configuration)
        opened.doors = doors = await bind(
            listener,
            reception,
            data,
            env,
            configuration,
            giving_up=self._giving_up,
            shared=self._shared_doors,
            inter_broker=self._inter_broker,
        )
        work.replica_manager.certain_until = doors.membership.certain_until
        work.replica_manager.tell_full = doors.membership.tell_full
        if opened.lineage is not None:
            doors.membership.before = opened.lineage.look
        await work.withdraw(data, configuration)
        if opened.generations is not None:
            await opened.generations.begin()
        await join_and_open(doors, data)
        return doors

    async def _hand_over(self, node: Node) -> None:
        if node.work.replica_manager.replicas is not None:
            from ottla.node.leaving import hand_over_and_leave  # noqa: PLC0415 - one node needs none

            await hand_over_and_leave(node.work, node.doors, self._env)

    async def _close_doors(self, opened: Opened, grace_seconds: float) -> None:
        if opened.work is None:
            return
        if opened.doors is None:  # They could not be opened. What has begun ends all the same.
            opened.work.answer_waiting()
        else:
            await opened.doors.close(opened.work, grace_seconds=grace_seconds)


def _stop_ended(stop: asyncio.Task[None]) -> None:
    if not stop.cancelled() and (error := stop.exception()) is not None:
        logger.error("the stop did not come to its end: %r", error)


def _nothing_to_tell(_: asyncio.Task[None]) -> None:
    """Leave it to who waits."""
