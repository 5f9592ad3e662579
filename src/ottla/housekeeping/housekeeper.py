"""All that keeps house on one node, put together over its partitions.

Owns the order in which this work ends at a stop. When each piece is due is the broker's to say, by
``housekeeping.schedule``; what each does is in its own file. Stands above the replica manager,
which knows nothing of it, and below the handlers, which order deletions and moves here.
"""

from collections.abc import Callable

from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.env.rng import Rng
from ottla.housekeeping.deletion import Deletion
from ottla.housekeeping.flush_sweep import FlushSweep
from ottla.housekeeping.log_cleaner import CleanerSettings, LogCleaner
from ottla.housekeeping.producer_limit import forget_silent_producers
from ottla.housekeeping.relocation import Relocation
from ottla.housekeeping.snapshot_sweep import SnapshotSweep
from ottla.log.directories.copies import LogCopies
from ottla.log.directories.manager import LogManager
from ottla.replication.replica_manager import ReplicaManager


class Housekeeper:
    """Deletion, relocation, compaction, flushes by time and snapshots of producers."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        log_manager: LogManager,
        flush_sweep: FlushSweep,
        *,
        clock: Clock,
        rng: Rng,
        executor: Executor,
        cleaner_executor: Executor,
        cleaner_settings: Callable[[], CleanerSettings],
    ) -> None:
        """``flush_sweep`` is the one that the replica manager tells of its partitions."""
        self._replica_manager = replica_manager
        self._flush_sweep = flush_sweep
        self._snapshot_sweep = SnapshotSweep(
            log_manager.disk,
            clock,
            executor,
            lambda: [partition.log for partition in replica_manager.partitions],
        )
        self.deletion = Deletion(
            log_manager,
            clock=clock,
            executor=executor,
            partitions=lambda: replica_manager.partitions,
            leader_of=replica_manager.leader_of,
            high_watermark_of=replica_manager.hosting.high_watermark_of,
            tell_producers=self._snapshot_sweep.tell_below,
        )
        self.relocation = Relocation(
            log_manager,
            LogCopies(log_manager, clock),
            executor,
            clock=clock,
            checkpoint=self.deletion.checkpoint,
            lookup=replica_manager.get,
        )
        self.cleaner = LogCleaner(
            disk=log_manager.disk,
            checkpoints=log_manager.checkpoints,
            clock=clock,
            rng=rng,
            executor=cleaner_executor,
            partitions=lambda: replica_manager.partitions,
            settings=cleaner_settings,
            save_recovery_points=self.deletion.checkpoint,
        )

    async def snapshot_producers(self) -> None:
        """Take those snapshots of producers that are due; see ``SnapshotSweep``.

        Before that, forget producers if there are too many in sum.
        """
        forget_silent_producers(self._replica_manager.partitions)
        await self._snapshot_sweep.take_due()

    async def settle(self) -> None:
        """Begin nothing any more; wait until nothing is under way. Before the partitions settle."""
        self._flush_sweep.stop()
        await self.cleaner.settle()
        await self._snapshot_sweep.settle()
        await self.relocation.settle()
        await self.deletion.settle()
