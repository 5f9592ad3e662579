"""Partitions found on disk that cannot be served: why, where they lie, and what is known of them.

Owned by the log manager; filled by log.directories.opening. What the checkpoints say of them is
kept until they are back. Nothing of them is ever deleted. Source: reliability rules 8, 18 and 21.
"""

from ottla.errors import as_value
from ottla.ids import TopicPartition
from ottla.log.directories.directory import Fault, LogDirectory
from ottla.log.directories.making import Kept
from ottla.log.directories.offset_checkpoints import OffsetCheckpoints
from ottla.log.files.faults import is_passing
from ottla.log.files.layout import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)


class Offline(dict[TopicPartition, Fault]):
    """Why each partition could not be opened."""

    def __init__(
        self, directories: dict[str, LogDirectory], checkpoints: OffsetCheckpoints
    ) -> None:
        super().__init__()
        self._directories = directories
        self._checkpoints = checkpoints
        self._places: dict[TopicPartition, str] = {}
        """Which log directory each lies in; none for those that two hold."""
        self.unclean: set[str] = set()
        """Log directories that hold one: a stop leaves them without its mark."""

    def __setitem__(self, where: TopicPartition, fault: Fault) -> None:
        """Keep why, without the frames it came through: they hold the log's files open."""
        super().__setitem__(where, as_value(fault))

    def set_apart(self, where: TopicPartition, log_dir: str, fault: Fault) -> None:
        """Keep what is known of a partition in ``log_dir`` for the day it is back."""
        self[where] = fault
        self._places[where] = log_dir
        self.held_by_one_more(where, log_dir)

    def held_by_one_more(self, where: TopicPartition, log_dir: str) -> None:
        """Keep what ``log_dir`` says of a partition that others hold, too. It lies in none then."""
        self.unclean.add(log_dir)
        self._checkpoints.keep(log_dir, where)

    def place_of(self, where: TopicPartition) -> str | None:
        """Return the log directory that a partition lies in; None when it is not offline."""
        return self._places.get(where)

    def reopening(self, where: TopicPartition) -> Kept | None:
        """Return what is known of an offline partition that may be opened now.

        None: what keeps it offline does not pass by itself.
        """
        log_dir = self._places.get(where)
        if (
            log_dir is None
            or not self._directories[log_dir].is_online
            or not is_passing(self[where])
        ):
            return None
        offsets = self._checkpoints.kept(log_dir, where)
        return Kept(
            log_dir,
            offsets.get(RECOVERY_POINT_CHECKPOINT, 0),
            offsets.get(LOG_START_CHECKPOINT, 0),
            offsets.get(HIGH_WATERMARK_CHECKPOINT, 0),
        )

    def end(self, where: TopicPartition) -> None:
        """Take note that a partition is offline no more: it was opened, or is not here."""
        del self[where]
        self._places.pop(where, None)
        self._checkpoints.keep_no_more(where)

    def drop_directory(self, log_dir: str) -> None:
        """Forget what lies in a log directory that is offline as a whole."""
        for where, place in list(self._places.items()):
            if place == log_dir:
                del self[where], self._places[where]
