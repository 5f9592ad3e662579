"""Moving replicas between the log directories of this node, while they serve.

One move per partition: copy in the executor, step by step, until little is missing; then, in one
turn of the loop without a flush in flight, the rest, and the copy takes the log's place. A move
ends without effect when it is told to, when the partition goes, or when a disk refuses. Between the
replica manager and log.copies. Source: AlterReplicaLogDirs, KIP-113; a live Kafka's answers.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from posixpath import dirname

from ottla.env.executor import Executor, run
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.log.directories.copies import LogCopies
from ottla.log.directories.copying import LogCopy
from ottla.log.directories.manager import LogManager
from ottla.log.files.faults import ends_directory
from ottla.log.log import Log
from ottla.pending import Pending, pending_of
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

LAST_BYTES_MAX = 256 << 10
"""What is copied on the loop at last: some milliseconds with its sync."""
ROUNDS_MAX = 1000
"""A log that grows as fast as it is copied: its copy is given up after so many steps behind."""


def _report(where: TopicPartition, finished: Pending[None]) -> None:
    if finished.error is not None:
        logger.error("%s stays where it is, by a fault of ours", where, exc_info=finished.error)


class _Move:
    """A copy under way."""

    def __init__(self, partition: Partition, copy: LogCopy) -> None:
        self.partition = partition
        self.copy = copy
        self.is_cancelled = False

    @property
    def is_over(self) -> bool:
        """Tell whether going on makes no sense: it was ended, or its topic deleted."""
        partition = self.partition
        return self.is_cancelled or partition.is_failed or partition.log is not self.copy.log


class Relocation:
    """The moves of this node's replicas."""

    def __init__(
        self,
        log_manager: LogManager,
        copies: LogCopies,
        executor: Executor,
        *,
        checkpoint: Callable[[], Coroutine[None, None, None]],
        lookup: Callable[[TopicPartition], Partition | None],
    ) -> None:
        """``checkpoint`` saves the log start offsets."""
        self._log_manager = log_manager
        self._copies = copies
        self._executor = executor
        self._checkpoint = checkpoint
        self._lookup = lookup
        self._moves: dict[TopicPartition, _Move] = {}
        """Invariant: at most one per partition; each has a coroutine under way."""
        self._running_count = 0
        """Use: a stop waits until it is 0. Those of cancelled moves count, too."""
        self._ended = asyncio.Event()

    def copies_in(self, log_dir: str) -> list[LogCopy]:
        """Return the copies being made in the directory ``log_dir``."""
        return [
            move.copy
            for move in self._moves.values()
            if dirname(move.copy.directory) == log_dir and not move.is_cancelled
        ]

    def move(self, where: TopicPartition, log_dir: str) -> ErrorCode:
        """Begin to move a partition to ``log_dir``; to where it is: end the move under way."""
        directory = self._log_manager.directories.get(log_dir)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not directory.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._lookup(where)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.is_failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        under_way = self._moves.get(where)
        if under_way is not None and not under_way.is_over:
            is_same = under_way.partition is partition  # Else of a former topic of the name.
            if is_same and dirname(under_way.copy.directory) == log_dir:
                return ErrorCode.NONE
            under_way.is_cancelled = True
        if dirname(partition.log.directory) == log_dir:
            return ErrorCode.NONE
        try:
            copy = self._copies.begin(partition.log, log_dir)
        except KafkaError as error:
            logger.error("%s cannot be moved to %s: %s", where, log_dir, error)  # noqa: TRY400
            return error.code
        self._moves[where] = move = _Move(partition, copy)
        pending_of(self._run(where, move)).on_done(partial(_report, where))
        return ErrorCode.NONE

    async def settle(self) -> None:
        """End all moves, without effect."""
        for move in self._moves.values():
            move.is_cancelled = True
        while self._running_count:
            self._ended.clear()
            await self._ended.wait()

    async def _run(self, where: TopicPartition, move: _Move) -> None:
        copy = move.copy
        self._running_count += 1
        is_done = False
        try:
            is_done = await self._follow(move)
        except (OSError, OttlaError) as error:
            logger.error("%s stays where it is: %s", where, error)  # noqa: TRY400
            if isinstance(error, OSError) and ends_directory(error):
                self._log_manager.fail_directory(dirname(copy.directory), error)
        finally:
            self._over(where, move, is_done=is_done)

    def _over(self, where: TopicPartition, move: _Move, *, is_done: bool) -> None:
        copy = move.copy
        self._running_count -= 1
        self._ended.set()
        if self._moves.get(where) is move:
            del self._moves[where]
        if not is_done:
            self._copies.drop(copy)
            another = self._moves.get(where)
            if another is not None:
                self._log_manager.copying[where] = dirname(another.copy.directory)

    async def _follow(self, move: _Move) -> bool:
        """Copy until the copy is the log; False when the move was ended before."""
        copy = move.copy
        is_checkpointed = False
        for _ in range(ROUNDS_MAX):
            while copy.missing_bytes > LAST_BYTES_MAX and not move.is_over:
                step = copy.next_step()
                assert step is not None, "something is missing"
                await run(self._executor, step.run)
                if move.is_over:
                    return False  # Its log's files may be another's by now.
                copy.took(step)
            if not is_checkpointed and not move.is_over:
                await self._checkpoint()
                is_checkpointed = True
            is_done = await self._finish(move)
            if is_done is not None:
                return is_done
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it grows faster than it is copied")

    async def _finish(self, move: _Move) -> bool | None:
        """Let the copy take over between two flushes; None when too much is missing again."""
        outcome: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()

        def finish() -> None:
            copy, partition = move.copy, move.partition
            try:
                if move.is_over or partition.is_failed:
                    outcome.set_result(False)
                elif copy.missing_bytes > LAST_BYTES_MAX:
                    outcome.set_result(None)
                else:
                    copy.complete()
                    self._take_over(partition, copy)
                    outcome.set_result(True)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                outcome.set_exception(error)

        move.partition.between_flushes(finish)
        return await outcome

    def _take_over(self, partition: Partition, copy: LogCopy) -> None:
        before = copy.log.directory
        log: Log = self._copies.put_in_place(copy)
        partition.take_log(log)
        logger.info("%s was moved from %s to %s", log.topic_partition, before, log.directory)
