"""One directory of ``log.dirs``: whose it is, that nobody else uses it, whether its disk works.

Owns its lock, its identity (meta.properties) and its state. Knows nothing of the partitions in it.
Below log.manager. A directory that fails stays away until a restart; the others go on. Source:
Kafka's LogManager, KIP-112 (a broker survives the loss of a disk); reliability rules 2 and 3.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from posixpath import dirname

from ottla.env.disk import Disk, HeldDirectory, Lock, Volume
from ottla.env.rng import Rng
from ottla.errors import CorruptFile, OttlaError
from ottla.ids import TopicId, TopicPartition, topic_id_text
from ottla.log.directories.space import SpaceLimits
from ottla.log.files.checkpoints import MetaProperties, read_meta_properties, write_meta_properties
from ottla.log.files.faults import is_shortage
from ottla.log.files.layout import LOCK, META_PROPERTIES, RESERVE, parse_partition_directory

logger = logging.getLogger(__name__)

_FULL = (
    "the log directory %s is full: batches are refused until there is space; reads and deletions "
    "go on"
)

Fault = OttlaError | OSError
"""Why something on a disk cannot be used."""


class DuplicatePartition(OttlaError):
    """A partition that two log directories hold: nobody can tell which copy is the right one."""

    def __init__(self, topic_partition: TopicPartition, log_dirs: Sequence[str]) -> None:
        super().__init__(topic_partition, log_dirs)
        self.topic_partition = topic_partition
        self.log_dirs = log_dirs

    def __str__(self) -> str:
        places = " and ".join(f"{log_dir}/{self.topic_partition}" for log_dir in self.log_dirs)
        return f"two directories hold it, {places}: move one of them away and start again"


class LogDirectoryUnusable(OttlaError):
    """A log directory that this node must not or cannot use. ``fix`` tells people what to do."""

    def __init__(self, path: str, why: str, fix: str) -> None:
        super().__init__(path, why, fix)
        self.path = path
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; {self.fix}"


class LogDirectory:
    """A log directory of this node, in use from ``take`` to ``release``."""

    __slots__ = (
        "_disk",
        "_held",
        "_limits",
        "_lock",
        "_volume",
        "directory_id",
        "failure",
        "is_full",
        "is_named_anew",
        "is_short",
        "log_count",
        "path",
    )

    def __init__(self, disk: Disk, path: str, limits: SpaceLimits) -> None:
        self._disk = disk
        self.path = path
        self._limits = limits
        self.is_full = False
        """Use: no batch is taken while it is so; the log manager says so to the logs."""
        self.is_short = False
        """Whether a call was refused, for want of descriptors or memory, since one last looked."""
        self.failure: Fault | None = None
        """Why it is offline; None while it serves. Invariant: set once, never taken back."""
        self._lock: Lock | None = None
        self._held: HeldDirectory | None = None
        """Use: its names are made durable although the process may have no descriptor left."""
        self._volume: Volume | None = None
        """Use: lets its files be synced together. Open from before the first write."""
        self.directory_id = ""
        """What it is known by wherever it is mounted; empty until it is taken, and for one of an
        old Kafka, which had no ids."""
        self.is_named_anew = False
        """Whether it got its id just now although partitions are in it: its former one is lost."""
        self.log_count = 0
        """Use: a new log goes where there are the fewest. Invariant: those of the log manager's
        logs that are in it."""

    @property
    def is_online(self) -> bool:
        """Tell whether it serves."""
        return self.failure is None

    def take(self, *, cluster_id: str, node_id: int, rng: Rng) -> None:
        """Lock the directory, make it when it is missing, and see that it is this node's. Blocks.

        Raises LogDirectoryUnusable when another process uses it or it is of another cluster or
        node: that must be put right by somebody. One whose disk refuses, or whose identity cannot
        be read, is offline afterwards.
        """
        try:
            self._make_and_lock()
            self._identify(cluster_id, node_id, rng)
        except (OSError, CorruptFile) as error:
            self.set_failure(error)
            self.release()

    def set_failure(self, error: Fault) -> None:
        """Be offline, at a start. Raises LogDirectoryUnusable when the disk is not to blame.

        Nothing has been lost by a start that ends for want of descriptors or memory; all that lies
        here would be offline until the next one otherwise.
        """
        if isinstance(error, OSError) and is_shortage(error):
            raise self.short(error) from error
        self.failure = error

    def short(self, error: OSError) -> LogDirectoryUnusable:
        """Return the error that tells people what a start was short of."""
        why = f"it cannot be opened now ({error.strerror})"
        fix = "raise the limit (ulimit -n) or see who takes what it lacks, then start again"
        return LogDirectoryUnusable(self.path, why, fix)

    def _make_and_lock(self) -> None:
        disk, path = self._disk, self.path
        is_made = not disk.exists(path)
        if is_made:
            disk.make_directory(path)
        if is_made or not disk.exists(f"{path}/{META_PROPERTIES}"):
            self._sync_name(may_be_hidden=not is_made)
        try:
            self._lock = disk.lock(f"{path}/{LOCK}")
        except BlockingIOError as error:
            why = "another process uses this data directory"
            raise LogDirectoryUnusable(path, why, "stop it, or choose another one") from error
        self._held = disk.hold_directory(path)
        self._volume = disk.open_volume(path)

    def _sync_name(self, *, may_be_hidden: bool) -> None:
        """Make the directory's own name durable: it may be of a start that was killed just then.

        ``may_be_hidden``: somebody else may have made it, where this user may not look.
        """
        try:
            self._disk.sync_directory(dirname(self.path) or ".")
        except PermissionError:
            if not may_be_hidden:
                raise

    def _identify(self, cluster_id: str, node_id: int, rng: Rng) -> None:
        """Check that the directory is this node's, or make a new one so."""
        path = f"{self.path}/{META_PROPERTIES}"
        meta = read_meta_properties(self._disk, path)
        if meta is None:
            directory_id = topic_id_text(TopicId(rng.random_bytes(16)))
            self.is_named_anew = any(
                map(parse_partition_directory, self._disk.list_directory(self.path))
            )
            meta = MetaProperties(cluster_id, node_id, directory_id)
            write_meta_properties(self._disk, path, meta)
        if (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
            why = (
                f"belongs to node {meta.node_id} of cluster {meta.cluster_id}; "
                f"this is node {node_id} of cluster {cluster_id}"
            )
            raise LogDirectoryUnusable(self.path, why, "point this node at its own directory")
        self.directory_id = meta.directory_id

    def belong_to(self, cluster_id: str, node_id: int) -> None:
        """Note that the directory is of this cluster. Blocks. Raises OSError."""
        path = f"{self.path}/{META_PROPERTIES}"
        meta = MetaProperties(cluster_id, node_id, self.directory_id)
        write_meta_properties(self._disk, path, meta)

    # Space.

    def measure(self) -> bool:
        """Tell whether batches are to be refused, and take the reserve when there is room.

        Blocks; on any thread. A volume that does not say how full it is, is as it was. Raises
        OSError when it is not this directory that bears its name any more.
        """
        if self._held is not None:
            self._held.ensure_in_place()
        disk, path = self._disk, f"{self.path}/{RESERVE}"
        try:
            limits = self._limits.on_volume(disk.total_bytes(self.path))
            free_bytes = disk.free_bytes(self.path)
            has_reserve = disk.exists(path) and disk.size_of(path) >= limits.reserve_bytes
            is_full = limits.is_full(free_bytes, was_full=self.is_full, has_reserve=has_reserve)
            if not is_full and not has_reserve and limits.may_take_reserve(free_bytes):
                self._take_reserve(path, limits.reserve_bytes)
        except OSError:
            return self.is_full
        return is_full

    def _take_reserve(self, path: str, size_bytes: int) -> None:
        file = self._disk.open(path, create=True)
        try:
            file.allocate(size_bytes)
        except OSError:
            self.free_reserve()
            raise
        finally:
            file.close()

    def set_full(self, *, is_full: bool) -> None:
        """Note, and say, that there is no space any more, or some again."""
        self.is_full = is_full
        if is_full:
            logger.error(_FULL, self.path)
        else:
            logger.warning("the log directory %s has space again", self.path)

    def note_shortage(self, error: OSError) -> None:
        """Note, and say once, that the process is short of something: who was refused waits."""
        if not self.is_short:
            logger.error(
                "the log directory %s is well, but requests are refused: %s", self.path, error
            )
        self.is_short = True

    def end_shortage(self) -> bool:
        """Tell whether there was a shortage since the last call: what was refused can be tried."""
        was_short, self.is_short = self.is_short, False
        return was_short

    def free_reserve(self) -> bool:
        """Give the reserve up; False when there is none. Blocks, for little; on any thread."""
        with suppress(OSError):
            self._disk.remove(f"{self.path}/{RESERVE}")
            return True
        return False

    def unusable(self) -> LogDirectoryUnusable:
        """Return the error that tells people why it is offline, and what to do."""
        failure = self.failure
        if isinstance(failure, OSError):
            why = f"cannot be used as a data directory ({failure.strerror})"
            fix = "choose a directory that this user may write, on a disk that works"
            return LogDirectoryUnusable(self.path, why, fix)
        fix = "put the file back from a copy, or choose another directory"
        return LogDirectoryUnusable(self.path, str(failure), fix)

    def release(self) -> None:
        """Let others use it. Harmless when it is not held."""
        if self._held is not None:
            self._held.release()
            self._held = None
        if self._volume is not None:
            self._volume.close()
            self._volume = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
