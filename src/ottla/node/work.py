"""What a node does with its data: replicas, coordinators, housekeeping, administration.

Owns how they are put together. Knows no client: the doors are opened in front of it.
"""

from __future__ import annotations

import logging
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.adoption import finish_late_deletions
from ottla.cluster.configs import Configs
from ottla.cluster.controller import Controller, Hosted
from ottla.cluster.producer_ids import ProducerIds, id_of_now
from ottla.cluster.topics import Placement
from ottla.complaints import Complaints
from ottla.config import broker as options
from ottla.config import coordinator as coordinator_options
from ottla.config import hosts
from ottla.config import log as log_options
from ottla.config import replication as replication_options
from ottla.config.topic import topic_config
from ottla.coordinator.on_demand import CoordinatorsOnDemand
from ottla.env.awake_clock import AwakeClock
from ottla.env.executor import run
from ottla.environment import Environment
from ottla.housekeeping.flush_sweep import FlushSweep
from ottla.housekeeping.housekeeper import Housekeeper
from ottla.housekeeping.schedule import Schedule
from ottla.housekeeping.snapshot_sweep import SWEEP_INTERVAL_MS
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.log.directories.directory import LogDirectory
from ottla.log.directories.manager import LogManager
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.metadata.store import Delete
from ottla.metadata.values import BrokerState
from ottla.node.configuration import Configuration
from ottla.node.data import Data
from ottla.node.links import NodeLinks
from ottla.pending import Pending, outcome_of, pending_of
from ottla.replication.replica_manager import ReplicaManager
from ottla.request_memory import RequestMemory
from ottla.settings import cleaner_settings_of, internal_topics_of
from ottla.turns import Turns

if TYPE_CHECKING:
    from ottla.coordinator.making import Coordinators
    from ottla.handlers.apis.describe_log_dirs import MeasuredDirectory
    from ottla.replication.elector import Elector
    from ottla.replication.replicas import Replicas

logger = logging.getLogger(__name__)

SPACE_CHECK_INTERVAL_MS = 1000
"""How soon a node notices that its disk is nearly full, or has space again."""
FOR_OTHER_NODES = ("ottla.node.peers", "ottla.handlers.authentication", "ottla.security.scram")
"""What a node needs to ask others, and to let them in."""
FREE_MIN_MS = 100
"""The least time between two looks for deleted partitions; a delay of 0 may be asked for."""


class Elections:
    """Elects leaders while this node is the controller; loads that when there are other nodes."""

    def __init__(
        self,
        data: Data,
        environment: Environment,
        configuration: Configuration,
        replica_manager: ReplicaManager,
    ) -> None:
        self._parts = (data, environment, configuration)
        self._replica_manager = replica_manager
        self._elector: Elector | None = None

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow the image."""
        if self._elector is None:
            is_alone = len(image.brokers) < 2
            if is_alone and self._replica_manager.replicas is None:
                return
            from ottla.node.replicas import make_elector  # noqa: PLC0415 - one node needs none

            self._elector = make_elector(*self._parts)
        self._elector.apply(image, delta)

    def stop(self) -> None:
        """Elect no more."""
        if self._elector is not None:
            self._elector.stop()


class Work(NamedTuple):
    """All that works on the data."""

    replica_manager: ReplicaManager
    housekeeper: Housekeeper
    coordinators: CoordinatorsOnDemand
    producer_ids: ProducerIds
    controller: Controller
    elections: Elections
    configs: Configs

    async def withdraw(self, data: Data, configuration: Configuration) -> None:
        """Take this node out of the ISRs of partitions whose logs it has lost; before it registers.

        Or the ends of whose logs: they had been acknowledged unsynced, or an old copy took the
        log's place. Who has an old copy does not serve what is offline, either. Raises
        MetadataError.
        """
        missing = self.replica_manager.hosting.missing_at_start
        unopened = self.replica_manager.hosting.unopened
        doubtful = [
            (partition.topic_partition, partition.topic_id)
            for partition in self.replica_manager.partitions
            if len(partition.state.replicas) > 1
            and partition.state.leader == configuration.node_id
            and partition.log.config.flush_messages != 1
            and partition.log_dir in data.unclean
        ]
        old = [
            (partition.topic_partition, partition.topic_id)
            for partition in self.replica_manager.partitions
            if partition.log_dir in data.old_copies
            or (data.old_copies and partition.topic_partition in unopened)
        ]
        if missing or doubtful or old:
            from ottla.node.replicas import withdraw_from  # noqa: PLC0415 - few lose a disk

            await withdraw_from(data, configuration, missing, doubtful, old)
        behind = [where for where, _ in old]
        if data.is_decided_anew:
            behind = [partition.topic_partition for partition in self.replica_manager.partitions]
        anew = [where for where in behind if self._begin_anew(where, configuration.node_id)]
        for topic in sorted({where.topic for where in anew}):
            # Until then the copy counts as old, also for the next start.
            await outcome_of(self.replica_manager.hosting.done(topic))
        if data.is_decided_anew:
            await data.store.commit([], [Delete(data.keys.behind(configuration.node_id))])

    def _begin_anew(self, where: TopicPartition, node: NodeId) -> bool:
        """Begin to make the log of an old copy anew if its topic is compacted and others have all.

        What was deleted or aborted since may be compacted away on the other nodes: this one would
        never hear of it, as a follower that is away for longer than ``delete.retention.ms``.
        """
        partition = self.replica_manager.hosting.partitions.get(where)
        if partition is None or partition.is_failed or not partition.log.config.is_compacted:
            return False
        have_all = {*partition.state.isr, *partition.state.elr}
        is_behind = bool(have_all) and node not in have_all
        if is_behind:
            self.replica_manager.hosting.make_anew(partition)
        return is_behind

    async def hand_over(self) -> int:
        """Let other nodes lead what they can; return how many partitions they lead now."""
        replicas = self.replica_manager.replicas
        if replicas is None:
            return 0
        return await replicas.leave(list(self.replica_manager.partitions))

    async def prefer_leaders(self) -> None:
        """Let preferred leaders lead again."""
        replicas = self.replica_manager.replicas
        if replicas is not None:
            await replicas.hand_overs.prefer(list(self.replica_manager.partitions))

    def answer_waiting(self) -> None:
        """Answer or send away whoever waits for more to come."""
        self.replica_manager.answer_waiting_fetches()
        self.coordinators.stop()

    async def settle(self) -> None:
        """Wait for what has begun and must come to its end."""
        self.elections.stop()
        await self.housekeeper.settle()
        await self.replica_manager.settle()


def begin_work(
    data: Data,
    environment: Environment,
    configuration: Configuration,
    *,
    turns: Turns,
    awake_clock: AwakeClock,
    request_memory: RequestMemory,
    links: NodeLinks,
) -> Work:
    """Host the partitions, and let the coordinators load what they lead."""
    config = configuration.at_start
    interval_ms = config[log_options.LOG_FLUSH_SCHEDULER_INTERVAL_MS]
    flush_sweep = FlushSweep(environment.clock, interval_ms, turns)
    replica_manager = ReplicaManager(
        node_id=configuration.node_id,
        log_manager=data.logs,
        clock=environment.waits_clock,
        executor=environment.executor,
        settings=configuration.settings_of,
        waiting_fetches_max=config[options.FETCH_MAX_WAITING],
        watcher=flush_sweep,
        read_executor=environment.read_executor,
        request_memory=request_memory,
        turns=turns,
    )
    housekeeper = Housekeeper(
        replica_manager,
        data.logs,
        flush_sweep,
        clock=environment.clock,
        rng=environment.rng,
        executor=environment.executor,
        cleaner_executor=environment.cleaner_executor or environment.executor,
        cleaner_settings=lambda: cleaner_settings_of(configuration.in_force),
    )

    def replicas() -> Replicas:
        from ottla.node.replicas import make_replicas  # noqa: PLC0415 - one node needs none

        parts = (data, environment, configuration)
        return make_replicas(*parts, replica_manager, awake_clock=awake_clock, links=links)

    def changed_at(topic_id: TopicId, partition: int) -> int:
        entry = data.follower.mirror.get(data.keys.partition(topic_id, partition))
        return -1 if entry is None else entry.mod_rev

    replica_manager.make_replicas = replicas
    replica_manager.changed_at = changed_at
    deleted = finish_late_deletions(data.logs, data.adopted, data.follower.image)
    replica_manager.host_all(data.follower.image)
    data.follower.add_listener(replica_manager.apply)
    elections = Elections(data, environment, configuration, replica_manager)
    data.follower.add_listener(elections.apply)
    producer_ids = ProducerIds(data.store, data.keys.producer_id_block)
    if config[hosts.CLUSTER] is not None:
        producer_ids.lowest = partial(id_of_now, environment.clock)

    def make() -> Coordinators:
        from ottla.node.coordinators import make_coordinators  # noqa: PLC0415 - many need none

        return make_coordinators(
            data,
            environment,
            configuration,
            replica_manager,
            producer_ids=producer_ids,
            turns=turns,
            awake_clock=awake_clock,
            links=links,
        )

    def load() -> None:
        import_module("ottla.node.coordinators")
        if len(data.follower.image.brokers) > 1:
            for name in FOR_OTHER_NODES:
                import_module(name)

    coordinators = CoordinatorsOnDemand(
        data.follower.image,
        environment.executor,
        load=load,
        make=make,
    )
    data.follower.add_listener(coordinators.apply)
    replica_manager.hosting.listeners.append(coordinators.hosted)
    awake_clock.start()
    coordinators.start()
    complaints = Complaints(logger, environment.clock)
    controller = _controller(data, environment, configuration, replica_manager)
    controller.warn = complaints.warn
    controller.carry_out_deletions(deleted)
    return Work(
        replica_manager,
        housekeeper,
        coordinators,
        producer_ids,
        controller,
        elections,
        Configs(
            store=data.store,
            keys=data.keys,
            follower=data.follower,
            node_id=configuration.node_id,
            broker_config=lambda: configuration.in_force,
            check_topic_config=lambda given: topic_config(given, configuration.in_force),
            groups_max=config[coordinator_options.GROUP_CONFIGS_MAX],
            warn=complaints.warn,
        ),
    )


def _controller(
    data: Data,
    environment: Environment,
    configuration: Configuration,
    replica_manager: ReplicaManager,
) -> Controller:
    config, image = configuration.at_start, data.follower.image

    def placement() -> Placement:
        stopping = {
            node
            for node, broker in image.brokers.items()
            if broker.registration.state is BrokerState.DRAINING
        }
        serving = (image.brokers.keys() - stopping) or image.brokers.keys()
        return Placement(
            live_nodes=sorted(serving),
            default_partition_count=config[options.NUM_PARTITIONS],
            default_replication_factor=config[options.DEFAULT_REPLICATION_FACTOR],
            racks={node: broker.registration.rack for node, broker in image.brokers.items()},
            away_nodes=sorted((image.known | stopping) - serving),
        )

    return Controller(
        store=data.store,
        keys=data.keys,
        follower=data.follower,
        rng=environment.rng,
        placement=placement,
        check_config=lambda given: topic_config(given, configuration.in_force),
        partitions_max=config[options.MAX_PARTITIONS],
        may_delete=config[options.DELETE_TOPIC_ENABLE],
        internal_topics=internal_topics_of(config),
        hosted=Hosted(configuration.node_id, replica_manager.hosting.done, data.logs.may_have_left),
    )


def keep_house(
    schedule: Schedule,
    work: Work,
    logs: LogManager,
    environment: Environment,
    configuration: Configuration,
) -> None:
    """Have done in time what no request asks for; intervals follow the configuration."""

    async def free_deleted() -> None:
        if logs.deleted:
            await run(environment.executor, logs.remove_deleted)

    def delete_delay_ms() -> int:
        return max(configuration.in_force[log_options.LOG_SEGMENT_DELETE_DELAY_MS], FREE_MIN_MS)

    async def look_at_space() -> None:
        await check_space(logs, environment)

    def follow() -> None:
        config = configuration.in_force
        schedule.change(delete_delay_ms(), free_deleted)
        schedule.change(config[log_options.LOG_CLEANER_BACKOFF_MS], keeper.cleaner.clean)

    keeper = work.housekeeper
    every, config, deletion = schedule.every, configuration.in_force, keeper.deletion
    every(SPACE_CHECK_INTERVAL_MS, look_at_space)
    every(config[log_options.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS], deletion.checkpoint)
    every(SWEEP_INTERVAL_MS, keeper.snapshot_producers)
    every(config[log_options.LOG_RETENTION_CHECK_INTERVAL_MS], deletion.delete_old_segments)
    every(
        config[log_options.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
        deletion.checkpoint_high_watermarks,
    )
    every(config[log_options.LOG_CLEANER_BACKOFF_MS], keeper.cleaner.clean)
    every(delete_delay_ms(), free_deleted)
    if config[replication_options.AUTO_LEADER_REBALANCE_ENABLE]:
        seconds = config[replication_options.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
        every(1000 * seconds, work.prefer_leaders)
    configuration.listeners.append(follow)


async def check_space(logs: LogManager, environment: Environment) -> None:
    """Look whether the log directories have space left."""
    logs.space_measured(await run(environment.executor, logs.measure_space))


def measure_log_dirs(
    logs: LogManager, environment: Environment
) -> Pending[list[MeasuredDirectory]]:
    """Return how large the log directories are, and which of them have failed."""
    from ottla.handlers.apis.describe_log_dirs import MeasuredDirectory  # noqa: PLC0415 - as its API

    disk, directories = environment.disk, list(logs.directories.values())

    def measured(directory: LogDirectory) -> MeasuredDirectory:
        path = directory.path
        if directory.failure is not None:
            return MeasuredDirectory(path, -1, -1, directory.failure)
        try:
            return MeasuredDirectory(path, disk.total_bytes(path), disk.free_bytes(path))
        except OSError as error:
            return MeasuredDirectory(path, -1, -1, error)

    return pending_of(
        run(environment.executor, lambda: [measured(directory) for directory in directories])
    )
