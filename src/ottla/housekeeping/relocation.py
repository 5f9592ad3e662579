"""Moving replicas between the log directories of this node, while they serve.

One move per partition: copy in the executor, step by step, until little is missing; then the
partition is held, at a moment without a flush in flight, while the executor copies the rest and
lets the copy take the log's place. Who appends or reads meanwhile waits, so that this waits for no
other move: one step at a time is copied into a log directory. A move ends without effect when it is
told to, when the partition goes, or when a disk refuses. Between the replica manager and
log.copies. Source: AlterReplicaLogDirs, KIP-113; a live Kafka's answers.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial

from ottla.env.clock import Clock
from ottla.env.executor import Executor, Lane, run
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.housekeeping.in_progress import InProgress
from ottla.ids import TopicPartition
from ottla.log.directories.copies import LogCopies
from ottla.log.directories.copying import CopyStep, LogCopy
from ottla.log.directories.manager import LogManager
from ottla.log.files.faults import ends_directory
from ottla.log.files.layout import LOG_START_CHECKPOINT
from ottla.pending import Pending, outcome_of, pending_of
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

LAST_BYTES_MAX = 256 << 10
"""How much may be missing when the partition is held: some milliseconds of work for the disk."""
ROUNDS_MAX = 1000
"""A log that grows as fast as it is copied: its copy is given up after so many steps behind."""
PAUSE_SECONDS = 0.05
"""How often a move looks whether segments are still being swapped, or whether it can be told where
the log starts."""


def _report(where: TopicPartition, finished: Pending[None]) -> None:
    if finished.error is not None:
        logger.error("%s stays where it is, by a fault of ours", where, exc_info=finished.error)


class _Move:
    """A copy of ``log``, the log of ``partition``, that begins in ``log_dir`` or is under way."""

    def __init__(self, partition: Partition, log_dir: str) -> None:
        self.partition = partition
        self.log = partition.log
        self.log_dir = log_dir
        self.begun: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        """The answer to every request for this move."""
        self.copy: LogCopy | None = None
        """None until it has begun."""
        self.is_cancelled = False

    @property
    def is_over(self) -> bool:
        """Tell whether going on makes no sense: it was ended, or its topic deleted."""
        partition = self.partition
        return self.is_cancelled or partition.is_failed or partition.log is not self.log


class Relocation:
    """The moves of this node's replicas."""

    def __init__(
        self,
        log_manager: LogManager,
        copies: LogCopies,
        executor: Executor,
        *,
        clock: Clock,
        checkpoint: Callable[[], Coroutine[None, None, None]],
        lookup: Callable[[TopicPartition], Partition | None],
    ) -> None:
        """``checkpoint`` saves the log start offsets."""
        self._log_manager = log_manager
        self._copies = copies
        self._executor = executor
        self._lanes = {path: Lane(executor, 1, place=path) for path in log_manager.directories}
        """Use: steps of copies wait here, by where they go. In the executor others are to have
        their turns however many moves there are: flushes, and whoever holds a partition."""
        self._clock = clock
        self._checkpoint = checkpoint
        self._lookup = lookup
        self._moves: dict[TopicPartition, _Move] = {}
        """Invariant: at most one per partition; each has a coroutine under way."""
        self._in_progress = InProgress()
        """Use: a stop waits until nothing is. Moves that are cancelled count, too."""
        self._is_stopping = False

    def copies_in(self, log_dir: str) -> list[LogCopy]:
        """Return the copies being made in the directory ``log_dir``."""
        return [
            move.copy
            for move in self._moves.values()
            if move.copy is not None and move.log_dir == log_dir and not move.is_cancelled
        ]

    def move(self, where: TopicPartition, log_dir: str) -> Pending[ErrorCode]:
        """Begin to move a partition to ``log_dir``; to where it is: end the move under way.

        Done when the move has begun.
        """
        partition = self._lookup(where)
        refusal = self._refusal(where, partition, log_dir)
        if refusal is None and partition is not None:
            return pending_of(self._move(where, partition, log_dir))
        refused: Pending[ErrorCode] = Pending()
        refused.resolve(refusal or ErrorCode.NONE)
        return refused

    def _refusal(
        self, where: TopicPartition, partition: Partition | None, log_dir: str
    ) -> ErrorCode | None:
        """Return why ``partition`` cannot be moved there; None when it can."""
        if self._is_stopping:
            return ErrorCode.REQUEST_TIMED_OUT
        directory = self._log_manager.directories.get(log_dir)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not directory.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition is None or self._lookup(where) is not partition:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.KAFKA_STORAGE_ERROR if partition.is_failed else None

    async def _move(self, where: TopicPartition, partition: Partition, log_dir: str) -> ErrorCode:
        with self._in_progress.one_more():
            while True:
                while partition.is_held:
                    await outcome_of(partition.released())  # Where it is then is not decided yet.
                refusal = self._refusal(where, partition, log_dir)
                if refusal is not None:
                    return refusal
                under_way = self._moves.get(where)
                if under_way is None:
                    break
                if not under_way.is_over:
                    is_same = under_way.partition is partition  # Otherwise a former topic's.
                    if is_same and under_way.log_dir == log_dir:
                        return await under_way.begun
                    under_way.is_cancelled = True
                if partition.log_dir == log_dir or under_way.begun.done():
                    break
                # Its job forgets what the log directory knows of the name: never after a copy's.
                await under_way.begun
            if partition.log_dir == log_dir:
                return ErrorCode.NONE
            self._moves[where] = move = _Move(partition, log_dir)
            pending_of(self._run(where, move)).on_done(partial(_report, where))
            return await move.begun

    async def settle(self) -> None:
        """End all moves, without effect; but for one whose copy takes over just now.

        None begins any more.
        """
        self._is_stopping = True
        for move in self._moves.values():
            move.is_cancelled = True
        await self._in_progress.settle()

    async def _run(self, where: TopicPartition, move: _Move) -> None:
        is_done = False
        with self._in_progress.one_more():
            try:
                copy = await self._begin(where, move)
                if copy is not None:
                    is_done = await self._follow(where, move, copy)
            except (OSError, OttlaError) as error:
                logger.error("%s stays where it is: %s", where, error)  # noqa: TRY400
                if isinstance(error, OSError) and ends_directory(error):
                    self._log_manager.fail_directory(move.log_dir, error)
            finally:
                self._over(where, move, is_done=is_done)

    async def _begin(self, where: TopicPartition, move: _Move) -> LogCopy | None:
        """Begin the copy and answer who asked for it; None when there is none."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        job = self._copies.begin_job(move.log, move.log_dir)
        try:
            await run(self._executor, job.run, place=move.log_dir)
            move.copy = self._copies.begun(job)
            code = ErrorCode.NONE
        except KafkaError as error:
            logger.error("%s cannot be moved to %s: %s", where, move.log_dir, error)  # noqa: TRY400
            code = error.code
        finally:
            move.begun.set_result(code)
        return move.copy

    def _over(self, where: TopicPartition, move: _Move, *, is_done: bool) -> None:
        if self._moves.get(where) is move:
            del self._moves[where]
        if not is_done and move.copy is not None:
            self._copies.drop(move.copy)
            another = self._moves.get(where)
            if another is not None and another.copy is not None:
                self._log_manager.copying[where] = another.log_dir

    async def _follow(self, where: TopicPartition, move: _Move, copy: LogCopy) -> bool:
        """Copy until the copy is the log; False when the move was ended before."""
        steps_ahead = copy.log.segment_count
        is_checkpointed = False
        for _ in range(ROUNDS_MAX):
            # Even of a small log all is copied once before others have to wait.
            while not move.is_over and copy.misses_more_than(
                LAST_BYTES_MAX if steps_ahead <= 0 else 0
            ):
                steps_ahead -= 1
                step = copy.next_step()
                assert step is not None, "something is missing"
                if not await self._copied(move, step) or move.is_over:
                    return False  # Its log's files may be another's by now.
                copy.took(step)
            if not move.is_over and not (is_checkpointed and self._is_start_known(move)):
                if is_checkpointed:
                    await self._pause()  # What was deleted may not be flushed yet.
                await self._checkpoint()
                is_checkpointed = True
            await self._swaps_ended(move)
            if move.is_over:
                return False
            if not self._log_manager.directories[move.log_dir].is_online:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{move.log_dir} is offline")
            if await self._hold(move, copy):
                return await self._take_over(where, move, copy)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it grows faster than it is copied")

    async def _copied(self, move: _Move, step: CopyStep) -> bool:
        """Do a step when its turn comes; False when the move was over by then."""

        def work() -> bool:
            if move.is_over:
                return False
            step.run()
            return True

        return await run(self._lanes[move.log_dir], work)

    def _is_start_known(self, move: _Move) -> bool:
        """Tell whether, durably, the checkpoint beside the copy says where the log starts.

        Else records that were deleted on request would come back with it. While the partition is
        held the log start offset does not rise.
        """
        says = self._log_manager.checkpoints.says(f"{move.log_dir}/{LOG_START_CHECKPOINT}") or {}
        return says.get(move.log.topic_partition, 0) >= move.log.log_start_offset

    async def _swaps_ended(self, move: _Move) -> None:
        """Wait until no cleaned segment takes the place of others, or the move is over."""
        while move.log.is_swapping and not move.is_over:
            await self._pause()

    async def _pause(self) -> None:
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock.call_later(PAUSE_SECONDS, partial(waited.set_result, None))
        await waited

    async def _hold(self, move: _Move, copy: LogCopy) -> bool:
        """Hold the partition between two flushes; False when that makes no sense just then."""
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def hold() -> None:
            can_hold = (
                not move.is_over
                and not move.log.is_swapping
                and not move.partition.is_held
                and self._is_start_known(move)
                and not copy.misses_more_than(LAST_BYTES_MAX)
            )
            if can_hold:
                move.partition.hold()
            outcome.set_result(can_hold)

        move.partition.between_flushes(hold)
        return await outcome

    async def _take_over(self, where: TopicPartition, move: _Move, copy: LogCopy) -> bool:
        """Let the copy be the log of the partition, which is held; then the partition goes on."""
        before = move.log
        job = self._copies.take_over(copy)
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: None, error: BaseException | None) -> None:
            log = before
            try:
                log = self._copies.taken(job)
            except Exception as fault:  # noqa: BLE001 - it is raised where it is waited for
                error = fault
                log.end_by_fault(fault)
            move.partition.release(log)
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

        self._executor.submit(job.run, done, place=move.log_dir)
        await outcome
        logger.info("%s was moved from %s to %s", where, before.directory, job.target)
        return True
