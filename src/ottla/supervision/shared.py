"""What the nodes of one host share: the sockets that listen, the metadata, the cluster's id.

Owns how they are opened and closed, before the first node starts and after the last has ended.
Nothing is started when a port is taken, when the data is another's, or when it has partitions of a
node that would not run.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from os.path import abspath
from posixpath import dirname
from typing import NamedTuple

from ottla.cluster.registrations import forget
from ottla.cluster.unsettled import Unsettled, mark, read_unsettled
from ottla.config import broker as options
from ottla.config.config import Config
from ottla.env.clock import Clock, SystemClock
from ottla.env.disk import Disk
from ottla.env.executor import Executor, ThreadExecutor
from ottla.env.real_disk import RealDisk
from ottla.env.rng import Rng, SystemRng
from ottla.env.shared_sockets import SharedSockets
from ottla.errors import CorruptFile
from ottla.ids import NodeId
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.files.checkpoints import MetaProperties, read_meta_properties
from ottla.log.files.layout import GENERATION, META_PROPERTIES
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.sqlite_store import SqliteStore, StoreInUse
from ottla.metadata.store import MetadataStore
from ottla.node.giving_up import METADATA_FILE
from ottla.node.identity import (
    LOST,
    NODES_DIRECTORY,
    OLD,
    STORE_CLUSTER,
    UNSETTLED,
    agree_on_cluster,
    is_settled,
    look_for_metadata_elsewhere,
    look_for_other_nodes,
    new_cluster_id,
    refuse_new_directories,
    refuse_one_twice,
)
from ottla.node.interbroker import INTER_BROKER_HOST, SECRET_BYTES, InterBroker
from ottla.node.left_out import left_out, tell
from ottla.node.lost_acls import refuse_to_open_all
from ottla.node.restored import doubt_of
from ottla.supervision.errands import Socket
from ottla.supervision.layout import ListenerPorts, node_directory, node_ids

logger = logging.getLogger(__name__)


class Outside(NamedTuple):
    """The ports of ``ottla.env`` that a supervisor needs."""

    disk: Disk
    clock: Clock
    rng: Rng
    store_executor: Executor
    """One thread, for the metadata store only."""

    @classmethod
    def real(cls) -> "Outside":
        """Return the operating system's."""
        executor = ThreadExecutor(1, "ottla-metadata")
        return cls(RealDisk(), SystemClock(), SystemRng(), executor)


class Doors:
    """Every socket that listens, of the supervisor and of its nodes."""

    def __init__(self) -> None:
        self.bound: tuple[ListenerPorts, ...] = ()
        """Use: the ports, none of them 0."""
        self._inter_broker: tuple[InterBroker, ...] = ()
        """Use: those of the nodes 1, 2, ...; none for a single node, which nobody asks."""
        self._sockets = SharedSockets()

    async def open(self, planned: Sequence[ListenerPorts], backlog: int) -> None:
        """Bind and listen everywhere. Raises OSError naming the address; then nothing is bound."""
        bound: list[ListenerPorts] = []
        try:
            for each in planned:
                door, *nodes = [
                    await self._sockets.listen(each.host, port, backlog)
                    for port in (each.door, *each.nodes)
                ]
                bound.append(each._replace(door=door, nodes=tuple(nodes)))
        except BaseException:
            self.close()
            raise
        self.bound = tuple(bound)

    async def open_to_nodes(self, count: int, rng: Rng, backlog: int) -> None:
        """Take a free port for each node, where the others log in to it. Raises OSError."""
        secret = rng.random_bytes(SECRET_BYTES).hex()
        opened: list[InterBroker] = []
        for _ in range(count):
            port = await self._sockets.listen(INTER_BROKER_HOST, 0, backlog)
            opened.append(InterBroker(INTER_BROKER_HOST, port, secret))
        self._inter_broker = tuple(opened)

    def inter_broker(self, node: NodeId) -> InterBroker | None:
        """Return where a node lets others in; None: there are no others."""
        return self._inter_broker[node - 1] if self._inter_broker else None

    def of(self, node: NodeId) -> list[Socket]:
        """Return what a node listens on: the doors, and ports of its own."""
        wanted = [
            (each.host, port) for each in self.bound for port in (each.door, each.nodes[node - 1])
        ]
        inter_broker = self.inter_broker(node)
        if inter_broker is not None:
            wanted.append((inter_broker.host, inter_broker.port))
        return [Socket(host, port, self._sockets.descriptors(host, port)) for host, port in wanted]

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Return host and port of each listener's door."""
        return {each.name: (each.host, each.door) for each in self.bound}

    def close(self) -> None:
        """Listen no more. Harmless when closed."""
        self._sockets.close()


class SharedData(NamedTuple):
    """The metadata, opened, and whose it is."""

    store: MetadataStore
    cluster_id: str
    is_new: bool
    is_unsettled: bool = False
    """Whether nobody has served by it; see ``Settling``."""


async def open_in_memory(outside: Outside) -> SharedData:
    """Return a new cluster that ends with this process."""
    store = MemoryStore(outside.clock)
    cluster_id = await agree_on_cluster(store, Keys(STORE_CLUSTER), new_cluster_id(outside.rng))
    return SharedData(store, cluster_id, is_new=True)


async def open_data(config: Config, count: int, outside: Outside) -> SharedData:
    """Open the metadata in the first log directory, for ``count`` nodes.

    Blocks, for little. Raises LogDirectoryUnusable, OSError, CorruptFile, UnreadableValue.
    """
    refuse_one_twice(config[options.LOG_DIRS])
    log_dirs = tuple(map(abspath, config[options.LOG_DIRS]))
    disk, first = outside.disk, log_dirs[0]
    look_for_metadata_elsewhere(disk, log_dirs)
    for log_dir in log_dirs:
        _make(disk, log_dir)
        if count > 1:
            _make(disk, f"{log_dir}/{NODES_DIRECTORY}")
    directories = _directories(disk, log_dirs, count)
    known = _known(disk, first, directories)
    try:
        store = await SqliteStore.open(
            f"{first}/{METADATA_FILE}",
            disk=disk,
            clock=outside.clock,
            executor=outside.store_executor,
        )
    except StoreInUse as error:
        why = "another process uses this data directory"
        raise LogDirectoryUnusable(first, why, "stop it, or choose another one") from error
    try:
        own = new_cluster_id(outside.rng) if known is None else known.cluster_id
        keys = Keys(STORE_CLUSTER)

        def refuse(amiss: str) -> None:
            look_for_other_nodes(disk, log_dirs, count, amiss=amiss)
            given_up = config[options.LOG_DIRS_GIVEN_UP]
            refuse_new_directories(disk, list(directories), given_up, amiss=amiss)

        if not await is_settled(store, keys):
            refuse(LOST if await store.get(keys.meta) is None else UNSETTLED)
            await refuse_to_open_all(store, keys, disk, log_dirs, config)
        cluster_id = await agree_on_cluster(store, keys, own, of_several=count > 1)
        is_unsettled = await _are_to_settle(store, keys, disk, directories, refuse)
        await _do_without_others(store, keys, count, first, outside.clock)
    except BaseException:
        await store.close()
        raise
    return SharedData(store, cluster_id, is_new=known is None, is_unsettled=is_unsettled)


def _directories(disk: Disk, log_dirs: tuple[str, ...], count: int) -> dict[str, NodeId]:
    """Return the log directories of all nodes, and whose they are.

    Data of one node becomes that of several: then the further nodes' are not among them. Where node
    1 was one of several they are, though none of them is there: perhaps they are not mounted.
    """
    nodes = node_ids(count)
    found = {node_directory(path, node): node for path in log_dirs for node in nodes}
    signs = [f"{path}/{GENERATION}" for path in log_dirs]
    signs += [_identity_in(path) for path, node in found.items() if node > 1]
    if any(map(disk.exists, signs)):
        return found
    return {path: node for path, node in found.items() if node == 1}


def _known(disk: Disk, first: str, directories: Iterable[str]) -> MetaProperties | None:
    """Return what the first directory that is not new says of its cluster; None: all are new.

    Any but ``first`` may be broken: its node tells.
    """
    known = _identity(disk, first)
    for path in directories:
        if known is not None:
            break
        with suppress(OSError, LogDirectoryUnusable):
            known = _identity(disk, path)
    return known


def _identity_in(log_dir: str) -> str:
    return f"{log_dir}/{META_PROPERTIES}"


async def _are_to_settle(
    store: MetadataStore,
    keys: Keys,
    disk: Disk,
    directories: Mapping[str, NodeId],
    refuse: Callable[[str], None],
) -> bool:
    """Tell whether the nodes are to decide anew who has the newest records; durably so.

    ``refuse`` raises, told what the metadata is, if somebody may be missing who has newer ones.
    """
    before = await read_unsettled(store, keys)
    if before is Unsettled.METADATA:
        return True
    doubt = await doubt_of(store, keys, disk, directories)
    if doubt is not None and doubt.unsettled is Unsettled.METADATA:
        refuse(OLD)
    if doubt is not None and doubt.unsettled is not before:
        logger.error("%s: the newest copy of each partition is served", doubt.why)
        await store.commit([], [mark(keys, doubt.unsettled)])
    return before is not None or doubt is not None


def _identity(disk: Disk, log_dir: str) -> MetaProperties | None:
    try:
        return read_meta_properties(disk, _identity_in(log_dir))
    except CorruptFile as error:
        fix = "put the file back from a copy, or choose another directory"
        raise LogDirectoryUnusable(log_dir, str(error), fix) from error


def _make(disk: Disk, directory: str) -> None:
    """Make a directory durably, if it is missing."""
    if not disk.exists(directory):
        disk.make_directory(directory)
        disk.sync_directory(dirname(directory) or ".")


async def _do_without_others(
    store: MetadataStore, keys: Keys, count: int, log_dir: str, clock: Clock
) -> None:
    """Forget nodes that would not run, so that nothing is placed on them.

    Raises LogDirectoryUnusable when one of them has partitions.
    """
    follower, started = ImageFollower(store, keys, clock), node_ids(count)
    await follower.start()
    try:
        found = left_out(follower.image, started)
        others = follower.image.known.difference(started)
    finally:
        await follower.close()
    if found:
        why = f"with --nodes {count} nobody would serve what other nodes have: {tell(found)}"
        fix = f"ottla serve --nodes {max(found)}"
        raise LogDirectoryUnusable(log_dir, why, fix)
    await forget(store, keys, others)
