"""What a node has on disk, opened: its log directories, and the metadata that it follows.

Owns the order of opening, and of closing. Knows no partition's leader, and no client.
Source: reliability rules 3 and 16 (first start, clean stop).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.adoption import adopt
from ottla.cluster.known_directories import look_for_known, store_known
from ottla.cluster.unsettled import read_unsettled
from ottla.config import broker as options
from ottla.env.executor import run
from ottla.environment import Environment
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.directories.manager import LogManager
from ottla.log.directories.space import SpaceLimits
from ottla.log.files.checkpoints import read_meta_properties
from ottla.log.files.layout import CLEAN_SHUTDOWN, META_PROPERTIES
from ottla.metadata.image import ImageFollower, TopicImage
from ottla.metadata.keys import Keys
from ottla.metadata.store import MetadataStore
from ottla.node.configuration import Configuration
from ottla.node.giving_up import METADATA_FILE, GivingUp
from ottla.node.identity import (
    NODES_DIRECTORY,
    agree_on_cluster,
    is_settled,
    look_for_metadata_elsewhere,
    look_for_other_nodes,
    new_cluster_id,
    refuse_one_twice,
)
from ottla.node.lost_acls import refuse_to_open_all
from ottla.replication.replica_manager import ReplicaManager
from ottla.settings import internal_configs_of, space_limits_of

if TYPE_CHECKING:
    from ottla.cluster.taking_in import TakeIn

logger = logging.getLogger(__name__)

OpenStore = Callable[[], Awaitable[MetadataStore]]
"""What opens a store that others share, or that a simulation keeps."""


class Logs(NamedTuple):
    """The log directories and every log in them."""

    manager: LogManager
    cluster_id: str
    """Theirs; made anew where there was none."""
    are_new: bool
    """Whether this start made the first directory."""


class Data(NamedTuple):
    """All that is kept."""

    logs: LogManager
    keys: Keys
    store: MetadataStore
    follower: ImageFollower
    directories_are_as_before: bool = False
    """The log directories are those of the last start, whole."""
    adopted: Mapping[str, TopicImage] = MappingProxyType({})
    """The topics, by name, with which the log directories were brought into line."""
    unclean: frozenset[str] = frozenset()
    """The log directories that a former process did not close, or that are new."""
    old_copies: frozenset[str] = frozenset()
    """The log directories that lack what this node has acknowledged since they were copied."""
    is_decided_anew: bool = False
    """The nodes have decided who has the newest copy of each partition, and this node has not made
    anew yet what is behind."""


def known_cluster(
    environment: Environment, configuration: Configuration, giving_up: GivingUp
) -> str | None:
    """Return the cluster that the first log directory is of; None: it is of none yet.

    Blocks. Raises LogDirectoryUnusable.
    """
    path = f"{configuration.log_dirs[0]}/{META_PROPERTIES}"
    try:
        known = read_meta_properties(environment.disk, path)
    except OSError as error:
        why = f"its {META_PROPERTIES} cannot be read ({error.strerror})"
        raise giving_up.without_metadata(why) from error
    return None if known is None else known.cluster_id


def without_clean_stop(environment: Environment, configuration: Configuration) -> frozenset[str]:
    """Return the log directories without the mark of a clean stop; before logs are opened."""
    disk = environment.disk
    return frozenset(
        path for path in configuration.log_dirs if not disk.exists(f"{path}/{CLEAN_SHUTDOWN}")
    )


def open_logs(
    environment: Environment,
    configuration: Configuration,
    giving_up: GivingUp,
    *,
    cluster_id: str | None = None,
) -> Logs:
    """Take the directories and open the logs in them.

    ``cluster_id``: the cluster's; None: the directories', or a new one if there is none. Blocks.
    Raises LogDirectoryUnusable, also for directories of another cluster or node.
    """
    log_dirs, disk = configuration.log_dirs, environment.disk
    if not configuration.is_memory:
        refuse_one_twice(configuration.at_start[options.LOG_DIRS])
    known = known_cluster(environment, configuration, giving_up)
    if cluster_id is None:
        look_for_metadata_elsewhere(disk, log_dirs)
        cluster_id = known or new_cluster_id(environment.rng)
    manager = LogManager(
        disk=disk,
        clock=environment.clock,
        rng=environment.rng,
        log_dirs=log_dirs,
        cluster_id=cluster_id,
        node_id=configuration.node_id,
        config_for=lambda topic: configuration.settings_of(topic).log,
        space=SpaceLimits() if configuration.is_memory else space_limits_of(configuration.at_start),
        recovery_threads=environment.recovery_threads,
        making_threads=environment.making_threads,
    )
    manager.start()
    return Logs(manager, cluster_id, are_new=known is None)


def watch_logs(manager: LogManager, log_dirs: tuple[str, ...], giving_up: GivingUp) -> None:
    """Say which logs cannot be served, and give up when a directory fails that must not.

    Raises LogDirectoryUnusable when it has failed already.
    """
    for path in log_dirs:
        directory = manager.directories[path]
        failure = giving_up.why_not_without(directory)
        if failure is not None:
            raise failure from directory.failure
    manager.listeners.append(giving_up.directory_changed)
    for where, fault in manager.offline.items():
        logger.error("%s is offline: %s", where, fault)


async def open_store(
    environment: Environment, configuration: Configuration, giving_up: GivingUp
) -> MetadataStore:
    """Open the node's own metadata store."""
    if configuration.is_memory:
        from ottla.metadata.memory_store import MemoryStore  # noqa: PLC0415 - a disk needs none

        return MemoryStore(environment.clock)
    from ottla.metadata.sqlite_store import SqliteStore  # noqa: PLC0415 - memory needs none

    store = await SqliteStore.open(
        f"{configuration.log_dirs[0]}/{METADATA_FILE}",
        disk=environment.disk,
        clock=environment.clock,
        executor=environment.store_executor,
    )
    store.on_broken = giving_up.store_broke
    return store


async def agree_on_own_store(
    store: MetadataStore, keys: Keys, logs: Logs, configuration: Configuration
) -> str:
    """Return the cluster's id, which the store in a log directory and that directory agree on.

    A directory that has lost its meta.properties is of the store's cluster. Raises
    LogDirectoryUnusable when the store is of another cluster than the directory, or is new although
    other nodes have partitions here, or ACLs may be lost.
    """
    disk, log_dirs = logs.manager.disk, configuration.log_dirs
    if not await is_settled(store, keys):
        look_for_other_nodes(disk, log_dirs, 1)
        await refuse_to_open_all(store, keys, disk, log_dirs, configuration.at_start)
    elif any(disk.exists(f"{path}/{NODES_DIRECTORY}") for path in log_dirs):
        from ottla.node.restored import refuse_to_be_alone  # noqa: PLC0415 - few have several nodes

        await refuse_to_be_alone(store, keys, disk, log_dirs)
    found = await agree_on_cluster(store, keys, logs.cluster_id)
    if found == logs.cluster_id:
        return found
    if not logs.are_new:
        why = f"its {META_PROPERTIES} is of cluster {logs.cluster_id}, its metadata of {found}"
        fix = f"put {METADATA_FILE} of its own cluster back"
        raise LogDirectoryUnusable(configuration.log_dirs[0], why, fix)
    logs.manager.belong_to(found)
    return found


async def follow(
    data: Data,
    environment: Environment,
    configuration: Configuration,
    giving_up: GivingUp,
    *,
    may_adopt: bool = True,
    is_alone: bool = True,
    take_in: "TakeIn | None" = None,
) -> Data:
    """Read the metadata and bring the log directories into line with it; return what is known then.

    Takes in partitions on disk that the store does not know; finishes interrupted deletions.
    ``may_adopt``, ``is_alone``, ``take_in``: see ``adopt``.
    """
    follower, manager = data.follower, data.logs
    configuration.read_from(follower.image)
    follower.add_listener(configuration.follow)
    follower.mirror.on_failed = giving_up.mirror_ended
    await follower.start()
    known = (
        data.store,
        data.keys,
        configuration.node_id,
        manager.directories.values(),
        configuration.at_start[options.LOG_DIRS_GIVEN_UP],
    )
    looked = await look_for_known(*known)
    manager.miss(looked.missing)
    adopted = dict(follower.image.topics)
    unsettled = await read_unsettled(data.store, data.keys)
    if unsettled is None:
        await store_known(*known)
    revision = await adopt(
        data.store,
        data.keys,
        adopted,
        manager,
        node_id=configuration.node_id,
        rng=environment.rng,
        internal_configs=partial(internal_configs_of, configuration.at_start),
        may_adopt=may_adopt,
        is_alone=is_alone,
        take_in=take_in,
        unsettled=unsettled,
        old_copies=data.old_copies,
        may_lack=bool(data.old_copies) or not looked.are_as_before,
    )
    if unsettled is not None:
        await store_known(*known)
    await follower.reached(revision)
    are_as_before = looked.are_as_before and not data.old_copies
    if are_as_before:
        for path, where in manager.copies_alone.items():
            if follower.image.partition(where) is None:  # Else its log was removed by hand.
                manager.remove_later(path)
    return data._replace(
        adopted=adopted,
        directories_are_as_before=are_as_before,
        is_decided_anew=follower.mirror.get(data.keys.behind(configuration.node_id)) is not None,
    )


def refuse_older_metadata(data: Data, where: str, fix: str) -> None:
    """Raise LogDirectoryUnusable when a log has a leader epoch that the metadata does not know yet.

    It was restored from an old backup: its leader epochs would be given a second time, records of
    different histories would pass for the same, and logs whose epochs fall for corrupt. ``where``
    it is, and ``fix``, are for people.
    """
    image = data.follower.image
    for partition, log in data.logs.logs.items():
        state = image.partition(partition)
        if state is None or log.topic_id != image.topics[partition.topic].topic_id:
            continue
        if log.latest_epoch > state.leader_epoch:
            why = (
                f"{partition} has records of leader epoch {log.latest_epoch}, and {where} knows"
                f" {state.leader_epoch} at most: it is older than the data"
            )
            raise LogDirectoryUnusable(log.directory, why, fix)


async def do_without_others(
    data: Data, environment: Environment, configuration: Configuration
) -> None:
    """Forget the nodes that ran here beside this one, so that nothing is placed on them.

    Raises LogDirectoryUnusable when they have partitions: nobody would serve those. Looks for these
    only where there are directories of other nodes.
    """
    first, image = configuration.log_dirs[0], data.follower.image
    has_others = environment.disk.exists(f"{first}/{NODES_DIRECTORY}")
    others = image.known - {configuration.node_id}
    if not has_others and not others:
        return
    from ottla.cluster.registrations import forget  # noqa: PLC0415 - few have several nodes
    from ottla.node.left_out import left_out, tell  # noqa: PLC0415 - few have several nodes

    found = left_out(image, {configuration.node_id})
    if found and has_others:
        why = f"it is the data of several nodes, and this would be one: {tell(found)}"
        raise LogDirectoryUnusable(first, why, f"ottla serve --nodes {max(found)}")
    revision = await forget(data.store, data.keys, others - found.keys())
    await data.follower.reached(revision)


async def close_logs(
    manager: LogManager, environment: Environment, replicas: ReplicaManager | None
) -> None:
    """Close every log durably and say that the stop was clean."""
    stop = partial(manager.stop, threads=environment.stop_threads)
    if replicas is not None:
        stop = partial(stop, high_watermark_of=replicas.hosting.high_watermark_of)
    await run(environment.executor, stop)
