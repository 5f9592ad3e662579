"""The appends of one partition that wait because another replica is to lead it soon.

The part of a Partition that lets appends wait while a follower catches up, and lets them go on in
the order in which they came: they are appended then, or refused if another replica leads. Between
replication.partition and replication.flushing. On the loop. Source: cluster design 3.8.
"""

from ottla.env.executor import Executor
from ottla.log.log import Log
from ottla.pending import Pending
from ottla.replication.flushing import PartitionFlushes


class PartitionYields(PartitionFlushes):
    """Flushes as before; appends may have to wait, while followers and consumers read on."""

    __slots__ = ("_yielding",)

    def __init__(self, log: Log, executor: Executor) -> None:
        super().__init__(log, executor)
        self._yielding: list[Pending[None]] | None = None
        """Use: appends that wait until another replica leads, or does not. None: none need to."""

    @property
    def is_yielding(self) -> bool:
        """Tell whether appends wait because another replica may lead soon."""
        return self._yielding is not None

    @property
    def has_to_wait(self) -> bool:
        """Tell whether appends wait, for ``released``."""
        return self.is_held or self.is_yielding

    def yield_appends(self) -> None:
        """Let appends wait until ``go_on_appending``; followers and consumers read on."""
        assert self._yielding is None, self.log.topic_partition
        self._yielding = []

    def go_on_appending(self) -> None:
        """Let those go on that wait: they are appended, or refused if another replica leads."""
        waiting, self._yielding = self._yielding, None
        for pending in waiting or ():
            pending.resolve(None)

    def released(self) -> Pending[None]:
        """Return when nothing is waited for any more, in the order in which this was asked."""
        if self._yielding is None or self.is_held:
            return super().released()
        pending: Pending[None] = Pending()
        self._yielding.append(pending)
        return pending
