"""What lies in an old copy of a log directory, and is not what the metadata says: it is set aside.

The metadata is newer than the copy. What it does not have was deleted since; what another log
directory holds, too, was moved there since. None of it may be taken in, or keep the partition of
that name from its work; nor is it deleted, for a person may have brought it back on purpose. So it
is renamed (``log.directories.strays``), and the replica is made anew, and fetches what others have.

    in an old copy                                        becomes
    of a topic, or a partition, that is no more           a stray
    of another topic of that name                         a stray
    of a partition whose replicas are other nodes         a stray
    in a log directory that is no old copy, too           a stray
    in several old copies                                 the newest stays, the others are strays
    cannot be opened, and others are in sync              a stray
    anything else                                         stays: the node follows with it

What a mark calls deleted is deleted by ``adoption``, which calls this at a start, before partitions
are hosted. A start that is cut short is done again: the copy gets its new generation later, and
counts as old until then. Source: ADR 54.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from posixpath import dirname
from typing import NamedTuple

from ottla.cluster.copies import Copy, copy_of, newest
from ottla.cluster.topics import NOT_TOPICS
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.log.directories.directory import DuplicatePartition
from ottla.log.directories.manager import LogManager
from ottla.log.directories.strays import Stray, let_go, set_aside
from ottla.log.files.checkpoints import read_partition_metadata
from ottla.log.files.faults import is_passing, is_shortage
from ottla.log.files.layout import PARTITION_METADATA, partition_directory
from ottla.metadata.image import TopicImage, state_of
from ottla.metadata.values import NO_STATE, PartitionState

logger = logging.getLogger(__name__)

NAMED_MAX = 20
_SET_ASIDE = (
    "%d partition directories of old copies are set aside, since the metadata, which is newer, has"
    " their partitions no more, or elsewhere; remove them when nobody needs them: %s%s"
)


class OldCopies(NamedTuple):
    """The old copies among a node's log directories, and what the metadata says."""

    paths: Collection[str]
    topics: Mapping[str, TopicImage]
    deleted: Collection[TopicId | None]
    """Topics whose directories are deleted wherever they are found."""
    node_id: NodeId

    def settle(self, manager: LogManager) -> None:
        """Set aside what is not to be served. Blocks; before hosting.

        Raises LogDirectoryUnusable when the process is short of something.
        """
        strays = [
            Stray(where, dirname(log.directory))
            for where, log in manager.logs.items()
            if self._is_of_copy(where, dirname(log.directory))
            and self._is_foreign(where, log.topic_id)
        ]
        held_by: dict[TopicPartition, list[str]] = {}
        for where, fault in list(manager.offline.items()):
            if isinstance(fault, DuplicatePartition):
                several = self._of_several(manager, where, fault)
                strays += [Stray(where, log_dir) for log_dir in several]
                if several:
                    held_by[where] = [one for one in fault.log_dirs if one not in several]
            else:
                place = manager.offline.place_of(where)
                if place is not None and self._is_useless(manager, where, place):
                    strays.append(Stray(where, place))
        _carry_out(manager, strays, held_by)

    def _is_of_copy(self, where: TopicPartition, log_dir: str) -> bool:
        return log_dir in self.paths and where.topic not in NOT_TOPICS

    def _is_foreign(self, where: TopicPartition, topic_id: TopicId | None) -> bool:
        """Tell whether a directory of a copy is not this node's replica of a partition.

        One that does not say whose it is could be a former topic's: it is not worth the doubt where
        others are in sync. What nobody ever had but the copy is no stray.
        """
        if topic_id is not None and topic_id in self.deleted:
            return False
        state = self._state(where)
        if state is None or topic_id not in {None, self.topics[where.topic].topic_id}:
            return True
        if topic_id is None and self._others(state):
            return True
        return bool(state.replicas) and self.node_id not in state.may_have_it

    def _is_useless(self, manager: LogManager, where: TopicPartition, log_dir: str) -> bool:
        """Tell whether a partition that could not be opened is to be set aside."""
        if not self._is_of_copy(where, log_dir):
            return False
        topic_id = _topic_id_in(manager, where, log_dir)
        if topic_id is not None and topic_id in self.deleted:
            return False
        is_lasting = not is_passing(manager.offline[where])
        return self._is_foreign(where, topic_id) or (is_lasting and self._has_others(where))

    def _of_several(
        self, manager: LogManager, where: TopicPartition, fault: DuplicatePartition
    ) -> list[str]:
        """Return which of the log directories that hold a partition are to give it up."""
        given_up: list[str] = []
        copies: list[str] = []
        is_elsewhere = False
        topic = self.topics.get(where.topic)
        for log_dir in fault.log_dirs:
            topic_id = _topic_id_in(manager, where, log_dir)
            if not self._is_of_copy(where, log_dir):
                is_online = manager.directories[log_dir].is_online
                is_right = topic is not None and topic_id == topic.topic_id
                is_elsewhere = is_elsewhere or is_right or not is_online
            elif self._is_foreign(where, topic_id):
                given_up.append(log_dir)
            elif topic_id is None or topic_id not in self.deleted:
                copies.append(log_dir)
        if is_elsewhere:
            return given_up + copies
        if len(copies) > 1:
            found = _logs(manager, where, fault, copies)
            kept = newest(found)[:1] if found else []
            if kept or self._has_others(where):
                given_up += [log_dir for log_dir in copies if log_dir not in kept]
        return given_up

    def _state(self, where: TopicPartition) -> PartitionState | None:
        """Return what the metadata says of a partition; None: it has none of that name."""
        return state_of(self.topics, where)

    def _has_others(self, where: TopicPartition) -> bool:
        return self._others(self._state(where) or NO_STATE)

    def _others(self, state: PartitionState) -> bool:
        """Tell whether other nodes have all records, or had when the ISR became too small."""
        return bool({*state.isr, *state.elr} - {self.node_id})


def keep_the_newest(manager: LogManager) -> None:
    """Set aside the older ones of several directories that a partition has on this node.

    While nobody knows which log directory is old, and the metadata does not, either: the partition
    was moved to another one, and an old copy of the first came back. Those of other topics of that
    name, and what cannot be opened, stay. Blocks; before hosting. Raises LogDirectoryUnusable when
    the process is short of something.
    """
    strays: list[Stray] = []
    kept: dict[TopicPartition, list[str]] = {}
    for where, fault in list(manager.offline.items()):
        if not isinstance(fault, DuplicatePartition):
            continue
        ids = {_topic_id_in(manager, where, log_dir) for log_dir in fault.log_dirs}
        are_online = all(manager.directories[log_dir].is_online for log_dir in fault.log_dirs)
        if len(ids) > 1 or not are_online:
            continue
        found = _logs(manager, where, fault, fault.log_dirs)
        if len(found) == len(fault.log_dirs):
            kept[where] = newest(found)[:1]
            strays += [Stray(where, one) for one in fault.log_dirs if one not in kept[where]]
    _carry_out(manager, strays, kept)


def _topic_id_in(manager: LogManager, where: TopicPartition, log_dir: str) -> TopicId | None:
    path = f"{log_dir}/{partition_directory(where)}/{PARTITION_METADATA}"
    try:
        return read_partition_metadata(manager.disk, path)
    except OSError:
        return None


def _logs(
    manager: LogManager, where: TopicPartition, fault: DuplicatePartition, log_dirs: Sequence[str]
) -> dict[str, Copy]:
    """Return by log directory what is in its log; those that can be opened."""
    found: dict[str, Copy] = {}
    for log_dir in log_dirs:
        _open_again(manager, where, log_dir)
        log = manager.logs.get(where)
        if log is not None:
            found[log_dir] = copy_of(log)
        let_go(manager, where, log_dir)
        manager.offline[where] = fault
    return found


def _carry_out(
    manager: LogManager, strays: list[Stray], kept: Mapping[TopicPartition, list[str]]
) -> None:
    """Set aside ``strays``. ``kept``: where partitions stay that several directories hold."""
    for where, log_dir in strays:
        if where not in kept:
            let_go(manager, where, log_dir)
    renamed = set_aside(manager, strays)
    for where, log_dirs in kept.items():
        _open_kept(manager, where, log_dirs)
    if renamed:
        more = f" and {len(renamed) - NAMED_MAX} more" if len(renamed) > NAMED_MAX else ""
        logger.warning(_SET_ASIDE, len(renamed), ", ".join(renamed[:NAMED_MAX]), more)


def _open_kept(manager: LogManager, where: TopicPartition, log_dirs: list[str]) -> None:
    """Open a partition where it is left; it stays offline where several are."""
    if len(log_dirs) > 1:
        manager.offline[where] = DuplicatePartition(where, log_dirs)
        return
    online = [log_dir for log_dir in log_dirs if manager.directories[log_dir].is_online]
    _open_again(manager, where, *online)


def _open_again(manager: LogManager, where: TopicPartition, *log_dir: str) -> None:
    try:
        manager.open_again(where, *log_dir)
    except OSError as error:
        if is_shortage(error):
            raise manager.directories[log_dir[0]].short(error) from error
        logger.error("%s: %s", where, error)  # noqa: TRY400 - the disk's
