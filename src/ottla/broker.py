"""One node, put together: the only place that knows every concrete class.

Starts in the order of the data's path, from the disk up, and stops the other way round. Source: the
design's composition root; reliability rules 3 and 16 (first start, clean stop).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from os.path import abspath

from ottla.answer_memory import AnswerMemory
from ottla.cluster.adoption import adopt
from ottla.cluster.configs import Configs, broker_config_in_force
from ottla.cluster.controller import Controller, Hosted
from ottla.cluster.known_directories import look_for_known
from ottla.cluster.membership import Membership
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.topics import Placement
from ottla.config import broker as options
from ottla.config import coordinator as coordinator_options
from ottla.config.config import Config
from ottla.config.topic import stored_topic_config, topic_config
from ottla.coordinator.internal_topics import InternalTopicMaker
from ottla.coordinator.making import Coordinators, coordinators_of
from ottla.coordinator.shard import Context
from ottla.env.awake_clock import AwakeClock
from ottla.env.executor import run
from ottla.env.rng import Rng
from ottla.env.stall_meter import StallMeter
from ottla.environment import Environment
from ottla.handlers.advertised import Advertised
from ottla.handlers.apis.describe_log_dirs import MeasuredDirectory
from ottla.handlers.client import Client
from ottla.handlers.routes import Services, router_of
from ottla.housekeeping.flush_sweep import FlushSweep
from ottla.housekeeping.housekeeper import Housekeeper
from ottla.housekeeping.schedule import Schedule
from ottla.housekeeping.snapshot_sweep import SWEEP_INTERVAL_MS
from ottla.ids import NodeId, TopicId, topic_id_text
from ottla.log.directories.directory import LogDirectory, LogDirectoryUnusable
from ottla.log.directories.manager import LogManager
from ottla.log.directories.space import SpaceLimits
from ottla.log.files.checkpoints import read_meta_properties
from ottla.log.files.layout import META_PROPERTIES
from ottla.metadata.image import ImageFollower, MetadataDelta, MetadataImage
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.store import (
    ABSENT,
    Guard,
    GuardFailed,
    MetadataError,
    MetadataStore,
    Put,
)
from ottla.metadata.values import BrokerValue, MetaValue, decode_meta, encode_meta
from ottla.network.connection import Dispatch, Keep, Peer
from ottla.network.frame import ReceiveBudget
from ottla.network.limits import Limits
from ottla.network.listener import Listener
from ottla.pending import Pending, pending_of
from ottla.replication.partition import PartitionSettings
from ottla.replication.replica_manager import ReplicaManager
from ottla.settings import (
    cleaner_settings_of,
    connections_room_of,
    coordinator_settings_of,
    group_topic_of,
    limits_of,
    partition_settings_of,
    space_limits_of,
    transaction_topic_of,
)
from ottla.turns import Turns

logger = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"
STORE_CLUSTER = "local"
"""The name of the one cluster in the embedded store's keys."""
MEMORY_LOG_DIR = "/data"
SPACE_CHECK_INTERVAL_MS = 1000
"""How soon a node notices that its disk is nearly full, or has space again."""
OpenStore = Callable[[], Awaitable[MetadataStore]]
"""What opens a store that others share, or that a simulation keeps."""


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
        """``open_store``: opens the metadata store; None: the one in the first log directory."""
        self._config = config
        self._open_given_store = open_store
        self._is_memory = memory
        self._env = environment or Environment.real(memory=memory)
        self._turns = Turns(self._env.clock, self._env.meter)
        topic_config({}, config)  # Raises InvalidConfig for what no topic could follow.
        self._take_config(config)
        self._awake_clock = AwakeClock(self._env.clock)
        self._node_id = NodeId(config[options.NODE_ID])
        self._keys = Keys(STORE_CLUSTER)
        self._budget = ReceiveBudget(config[options.QUEUED_MAX_REQUEST_BYTES])
        self._answers = AnswerMemory(config[options.QUEUED_MAX_ANSWER_BYTES])
        self._log_manager: LogManager | None = None
        self._store: MetadataStore | None = None
        self._follower: ImageFollower | None = None
        self._replica_manager: ReplicaManager | None = None
        self._housekeeper: Housekeeper | None = None
        self._coordinators: Coordinators | None = None
        self._membership: Membership | None = None
        self._listener: Listener | None = None
        self._schedule = Schedule(self._env.clock)
        self._is_running = False
        self.address: tuple[str, int] = ("", 0)
        """Host and port really bound, once started."""
        self.cluster_id = ""
        """The cluster's id, once started."""
        self.data_is_new = False
        """Whether this start made the data directory."""
        self.failed = asyncio.Event()
        """Set when this node cannot go on, and should be stopped; then ``failure`` tells why."""
        self.failure: LogDirectoryUnusable | None = None

    def _take_config(self, config: Config) -> None:
        """Let ``config``, which is the static one plus what was altered, be in force."""
        self._config_in_force = config
        # Made once: a start asks for them twice per partition.
        self._topic_defaults = stored_topic_config({}, config)
        self._default_settings = partition_settings_of(self._topic_defaults, config)

    @property
    def stall_meter(self) -> StallMeter:
        """What tells how long the loop was held at a time."""
        return self._turns.meter

    async def start(self) -> None:
        """Open the data, then the doors. Returns when clients are served.

        Raises OSError (a port in use among them), LogDirectoryUnusable, CorruptFile and other
        OttlaError; whatever was opened is closed again.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._open_log_dirs()
        await self._open_store()
        assert self._store is not None, "the store is open"
        self._follower = ImageFollower(self._store, self._keys, self._env.clock)
        self._follower.add_listener(self._follow_configs)
        self._follower.mirror.on_failed = self._mirror_ended
        await self._follower.start()
        await self._adopt()
        assert self._log_manager is not None, "the log directories are open"
        flush_interval_ms = self._config[options.LOG_FLUSH_SCHEDULER_INTERVAL_MS]
        flush_sweep = FlushSweep(self._env.clock, flush_interval_ms, self._turns)
        self._replica_manager = ReplicaManager(
            node_id=self._node_id,
            log_manager=self._log_manager,
            clock=self._env.clock,
            executor=self._env.executor,
            settings=self._settings_of,
            waiting_fetches_max=self._config[options.FETCH_MAX_WAITING],
            watcher=flush_sweep,
            read_executor=self._env.read_executor,
            request_memory=self._budget,
            turns=self._turns,
        )
        self._housekeeper = Housekeeper(
            self._replica_manager,
            self._log_manager,
            flush_sweep,
            clock=self._env.clock,
            rng=self._env.rng,
            executor=self._env.executor,
            cleaner_executor=self._env.cleaner_executor or self._env.executor,
            cleaner_settings=lambda: cleaner_settings_of(self._config_in_force),
        )
        self._replica_manager.host_all(self._follower.image)
        self._follower.add_listener(self._replica_manager.apply)
        self._coordinators = self._coordinators_of(self._replica_manager)
        self._follower.add_listener(self._coordinators.apply)
        self._replica_manager.hosting.listeners.append(self._coordinators.hosted)
        self._awake_clock.start()
        self._coordinators.start()
        await self._listen()
        self._is_running = True
        self._turns.meter.start()
        every, config = self._schedule.every, self._config_in_force
        keeper, deletion = self._housekeeper, self._housekeeper.deletion
        every(SPACE_CHECK_INTERVAL_MS, self._check_space)
        every(config[options.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS], deletion.checkpoint)
        every(SWEEP_INTERVAL_MS, keeper.snapshot_producers)
        every(config[options.LOG_RETENTION_CHECK_INTERVAL_MS], deletion.delete_old_segments)
        every(
            config[options.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
            deletion.checkpoint_high_watermarks,
        )
        every(config[options.LOG_CLEANER_BACKOFF_MS], keeper.cleaner.clean)
        every(config[options.LOG_SEGMENT_DELETE_DELAY_MS], self._free_deleted)

    async def stop(self) -> None:
        """Answer what is in flight, then close everything, durably. Harmless when not started."""
        if self._is_running:
            self._turns.meter.stop()
            logger.info("the longest turn of the loop took %s", self._turns.meter.longest)
        self._is_running = False
        self._schedule.stop()
        if self._listener is not None:
            await self._close_doors(self._listener)
        self._awake_clock.stop()
        if self._membership is not None:
            with suppress(MetadataError):  # It ends with this process at the latest.
                await self._membership.leave()
        if self._follower is not None:
            await self._follower.close()
        if self._housekeeper is not None:
            await self._housekeeper.settle()
        if self._replica_manager is not None:
            await self._replica_manager.settle()
        if self._log_manager is not None:
            stop = partial(self._log_manager.stop, threads=self._env.stop_threads)
            if self._replica_manager is not None:
                hosting = self._replica_manager.hosting
                stop = partial(stop, high_watermark_of=hosting.high_watermark_of)
            await run(self._env.executor, stop)
        if self._store is not None:
            await self._store.close()
        self._env.close_executors()
        self._listener = self._membership = self._follower = self._replica_manager = None
        self._log_manager = self._store = self._housekeeper = self._coordinators = None

    async def _close_doors(self, listener: Listener) -> None:
        await listener.drain()
        if self._replica_manager is not None:
            self._replica_manager.answer_waiting_fetches()
        if self._coordinators is not None:
            self._coordinators.stop()
        await listener.stop(grace_seconds=self._config[options.STOP_TIMEOUT_MS] / 1000)

    # Opening.

    @property
    def _log_dirs(self) -> tuple[str, ...]:
        if self._is_memory:
            return (MEMORY_LOG_DIR,)
        return tuple(map(abspath, self._config[options.LOG_DIRS]))

    def _measure_log_dirs(self) -> Pending[list[MeasuredDirectory]]:
        assert self._log_manager is not None, "the log directories are open"
        disk, directories = self._env.disk, list(self._log_manager.directories.values())

        def measured(directory: LogDirectory) -> MeasuredDirectory:
            path = directory.path
            if directory.failure is not None:
                return MeasuredDirectory(path, -1, -1, directory.failure)
            try:
                return MeasuredDirectory(path, disk.total_bytes(path), disk.free_bytes(path))
            except OSError as error:
                return MeasuredDirectory(path, -1, -1, error)

        return pending_of(
            run(self._env.executor, lambda: [measured(directory) for directory in directories])
        )

    def _open_log_dirs(self) -> None:
        """Take the directories and open the logs in them; makes a cluster id if there is none."""
        try:
            path = f"{self._log_dirs[0]}/{META_PROPERTIES}"
            known = read_meta_properties(self._env.disk, path)
        except OSError as error:
            why = f"its {META_PROPERTIES} cannot be read ({error.strerror})"
            raise self._without_metadata(self._log_dirs[0], why) from error
        self._look_for_metadata_elsewhere()
        self.data_is_new = known is None
        self.cluster_id = _new_cluster_id(self._env.rng) if known is None else known.cluster_id
        manager = LogManager(
            disk=self._env.disk,
            clock=self._env.clock,
            rng=self._env.rng,
            log_dirs=self._log_dirs,
            cluster_id=self.cluster_id,
            node_id=self._node_id,
            config_for=lambda topic: self._settings_of(topic).log,
            space=SpaceLimits() if self._is_memory else space_limits_of(self._config),
            recovery_threads=self._env.recovery_threads,
            making_threads=self._env.making_threads,
        )
        manager.start()
        self._log_manager = manager
        first = manager.directories[self._log_dirs[0]]
        if first.failure is not None:
            raise self._without_metadata(first.path, str(first.failure)) from first.failure
        manager.listeners.append(self._directory_changed)
        for where, fault in manager.offline.items():
            logger.error("%s is offline: %s", where, fault)

    def _look_for_metadata_elsewhere(self) -> None:
        """Refuse to begin without the metadata when another log directory has it.

        Topics would be taken in again, without their configs: retention takes what is to stay.
        """
        disk, (first, *others) = self._env.disk, self._log_dirs
        if not others or disk.exists(f"{first}/{METADATA_FILE}"):
            return
        for other in others:
            with suppress(OSError):
                if disk.exists(f"{other}/{METADATA_FILE}"):
                    why = f"the cluster's metadata is not here, but in {other}"
                    raise LogDirectoryUnusable(first, why, f"name {other} first in log.dirs")

    async def _free_deleted(self) -> None:
        manager = self._log_manager
        if manager is not None:
            await run(self._env.executor, manager.remove_deleted)

    async def _check_space(self) -> None:
        manager = self._log_manager
        if manager is not None:
            manager.space_measured(await run(self._env.executor, manager.measure_space))

    def _directory_changed(self, directory: LogDirectory) -> None:
        """Give up when the disk took the metadata; what is in other directories serves on else."""
        if directory.failure is not None and directory.path == self._log_dirs[0]:
            self._give_up(self._without_metadata(directory.path, str(directory.failure)))

    def _store_broke(self, why: str) -> None:
        path = f"{self._log_dirs[0]}/{METADATA_FILE}"
        fix = "see what is wrong with the disk, then start again; ottla doctor looks at the rest"
        self._give_up(LogDirectoryUnusable(path, f"the metadata is out of use ({why})", fix))

    def _mirror_ended(self, error: BaseException | None) -> None:
        """Give up: topics would be made and deleted in the store, and this node not do it."""
        path = f"{self._log_dirs[0]}/{METADATA_FILE}"
        why = f"what it says could not be followed, by a fault of ours ({error!r})"
        fix = "start again, and please report it with the traceback in the log"
        self._give_up(LogDirectoryUnusable(path, why, fix))

    def _membership_ended(self, error: BaseException) -> None:
        """Give up: no client would find this node."""
        path = f"{self._log_dirs[0]}/{METADATA_FILE}"
        why = f"this node is no member of its cluster, by a fault of ours ({error!r})"
        fix = "start again, and please report it with what the log says"
        self._give_up(LogDirectoryUnusable(path, why, fix))

    def _give_up(self, failure: LogDirectoryUnusable) -> None:
        if self.failure is None:
            self.failure = failure
            logger.critical("this node cannot go on: %s", failure)
            self.failed.set()

    def _without_metadata(self, path: str, why: str) -> LogDirectoryUnusable:
        what = "the cluster's metadata" if len(self._log_dirs) > 1 else "all data"
        fix = f"it holds {what}: see what is wrong with the disk, then start again"
        return LogDirectoryUnusable(path, why, fix)

    async def _open_store(self) -> None:
        """Open the metadata store; on its first start it takes over the directory's cluster id."""
        if self._open_given_store is not None:
            self._store = await self._open_given_store()
        elif self._is_memory:
            from ottla.metadata.memory_store import MemoryStore  # noqa: PLC0415 - a disk needs none

            self._store = MemoryStore(self._env.clock)
        else:
            from ottla.metadata.sqlite_store import SqliteStore  # noqa: PLC0415 - memory needs none

            self._store = await SqliteStore.open(
                f"{self._log_dirs[0]}/{METADATA_FILE}",
                disk=self._env.disk,
                clock=self._env.clock,
                executor=self._env.store_executor,
            )
            self._store.on_broken = self._store_broke
        meta = Put(self._keys.meta, encode_meta(MetaValue(self.cluster_id)))
        try:
            await self._store.commit([Guard(self._keys.meta, mod_rev=ABSENT)], [meta])
        except GuardFailed as error:
            if error.found is not None:
                self.cluster_id = decode_meta(error.found.value).cluster_id

    async def _adopt(self) -> None:
        """Take in partitions on disk that the store does not know; finish interrupted deletions."""
        assert self._store is not None, "the store is open"
        assert self._follower is not None, "the store is followed"
        assert self._log_manager is not None, "the log directories are open"
        self._log_manager.miss(
            await look_for_known(
                self._store,
                self._keys,
                self._node_id,
                self._log_manager.directories.values(),
                self._config[options.LOG_DIRS_GIVEN_UP],
            )
        )
        revision = await adopt(
            self._store,
            self._keys,
            self._follower.image,
            self._log_manager,
            node_id=self._node_id,
            rng=self._env.rng,
        )
        await self._follower.reached(revision)

    async def _listen(self) -> None:
        assert self._store is not None, "the store is open"
        assert self._follower is not None, "the store is followed"
        assert self._replica_manager is not None, "the partitions are hosted"
        assert self._housekeeper is not None, "house is kept"
        assert self._log_manager is not None, "the log directories are open"
        assert self._coordinators is not None, "groups and transactions are coordinated"
        config, endpoint = self._config, self._config[options.LISTENERS][0]
        advertised = config[options.ADVERTISED_LISTENERS]
        told = (advertised[0].host, advertised[0].port) if advertised else None
        controller = self._controller()
        router = router_of(
            Services(
                node_id=self._node_id,
                config=config,
                image=self._follower.image,
                topic_config=self._topic_config,
                replica_manager=self._replica_manager,
                deletion=self._housekeeper.deletion,
                relocation=self._housekeeper.relocation,
                broker_config=lambda: self._config_in_force,
                controller=controller,
                configs=self._configs(),
                measure_log_dirs=self._measure_log_dirs,
                producer_ids=self._coordinators.producer_ids,
                groups=self._coordinators.groups,
                group_topic=InternalTopicMaker(
                    group_topic_of(config), self._follower.image, controller.create_topics
                ),
                transactions=self._coordinators.transactions,
                transaction_topic=InternalTopicMaker(
                    transaction_topic_of(config), self._follower.image, controller.create_topics
                ),
                advertised=Advertised(self._node_id, told),
                clock=self._env.clock,
                rng=self._env.rng,
                turns=self._turns,
                answers=self._answers,
            )
        )

        def open_dispatch(peer: Peer, keep: Keep) -> Dispatch:
            return partial(router.dispatch, client=Client(*peer), keep=keep)

        limits, log_manager = self._limits(), self._log_manager
        listener = Listener(
            net=self._env.net,
            clock=self._env.clock,
            limits=limits,
            budget=self._budget,
            answers=self._answers,
            open_dispatch=open_dispatch,
            turns=self._turns,
            room=lambda: connections_room_of(self._env.open_files_max, len(log_manager.logs)),
        )
        self.address = await listener.start(host=endpoint.host, port=endpoint.port, paused=True)
        self._listener = listener
        host, port = told or self.address
        self._membership = Membership(
            self._store,
            self._keys,
            self._node_id,
            BrokerValue(host=host, port=port, rack=config[options.BROKER_RACK]),
            clock=self._env.clock,
        )
        self._membership.on_failed = self._membership_ended
        revision = await self._membership.join()
        await self._follower.reached(revision)
        listener.open_doors()  # Not earlier: a client would hear of a cluster without brokers.

    def _controller(self) -> Controller:
        assert self._store is not None, "the store is open"
        assert self._follower is not None, "the store is followed"
        assert self._log_manager is not None, "the log directories are open"
        assert self._replica_manager is not None, "the partitions are hosted"
        config, image = self._config, self._follower.image
        manager = self._log_manager
        return Controller(
            store=self._store,
            keys=self._keys,
            follower=self._follower,
            rng=self._env.rng,
            placement=lambda: Placement(
                live_nodes=sorted(image.brokers),
                default_partition_count=config[options.NUM_PARTITIONS],
                default_replication_factor=config[options.DEFAULT_REPLICATION_FACTOR],
            ),
            check_config=lambda given: topic_config(given, self._config_in_force),
            partitions_max=config[options.MAX_PARTITIONS],
            may_delete=config[options.DELETE_TOPIC_ENABLE],
            internal_topics=[group_topic_of(config), transaction_topic_of(config)],
            hosted=Hosted(self._replica_manager.hosting.done, manager.may_have_left),
        )

    def _coordinators_of(self, replica_manager: ReplicaManager) -> Coordinators:
        assert self._store is not None, "the store is open"
        assert self._follower is not None, "the store is followed"
        return coordinators_of(
            Context(replica_manager, self._env.executor, self._awake_clock, turns=self._turns),
            self._follower.image,
            ProducerIds(self._store, self._keys.producer_id_block),
            coordinator_settings_of(self._config),
            self._node_id,
        )

    def _configs(self) -> Configs:
        assert self._store is not None, "the store is open"
        assert self._follower is not None, "the store is followed"
        return Configs(
            store=self._store,
            keys=self._keys,
            follower=self._follower,
            node_id=self._node_id,
            broker_config=lambda: self._config_in_force,
            check_topic_config=lambda given: topic_config(given, self._config_in_force),
            groups_max=self._config[coordinator_options.GROUP_CONFIGS_MAX],
        )

    # Settings.

    def _follow_configs(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take what was altered in the brokers' configs. Before the partitions hear of it."""
        if any(config_type is ConfigType.BROKER for config_type, _ in delta.configs):
            self._take_config(broker_config_in_force(self._config, image, self._node_id))
            if self._listener is not None:
                self._listener.set_limits(self._limits())
            config, change = self._config_in_force, self._schedule.change
            change(config[options.LOG_SEGMENT_DELETE_DELAY_MS], self._free_deleted)
            if self._housekeeper is not None:
                change(config[options.LOG_CLEANER_BACKOFF_MS], self._housekeeper.cleaner.clean)

    def _limits(self) -> Limits:
        config = self._config_in_force
        limits = limits_of(config, self._env.open_files_max)
        if limits.connections_max < config[options.MAX_CONNECTIONS]:
            # The default is beyond many a shell's limit: news only to who chose a number.
            chosen = config.is_given(options.MAX_CONNECTIONS)
            logger.log(
                logging.WARNING if chosen else logging.INFO,
                "max.connections is %d here, not %d: the process may open %d files (ulimit -n)",
                limits.connections_max,
                config[options.MAX_CONNECTIONS],
                self._env.open_files_max,
            )
        return limits

    def _topic_config(self, topic: str) -> Config:
        """Return a topic's configuration; the defaults for one that is not known (yet)."""
        if self._follower is None:
            return self._topic_defaults
        given = self._follower.image.config(ConfigType.TOPIC, topic)
        if not given:
            return self._topic_defaults
        return stored_topic_config(given, self._config_in_force)

    def _settings_of(self, topic: str) -> PartitionSettings:
        config = self._topic_config(topic)
        if config is self._topic_defaults:
            return self._default_settings
        return partition_settings_of(config, self._config_in_force)


def _new_cluster_id(rng: Rng) -> str:
    """Return a random id in the form that Kafka's tools make."""
    return topic_id_text(TopicId(rng.random_bytes(16)))
