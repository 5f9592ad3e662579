"""The load of a shard: its log, from its start to its present end, into memory.

The executor reads and decodes the bytes, a slice at a time; the loop replays them in steps between
its other work. The load is over when all that was read is committed. Owns how far it has come. An
error is logged, and ends the load.
"""

import logging
from collections.abc import Iterator
from math import inf
from typing import Protocol

from ottla.coordinator.appends import RECORDS_PER_STEP
from ottla.coordinator.records import EndMarker, Slice, StoredRecord, decode_slice
from ottla.coordinator.step_line import StepLine
from ottla.env.executor import Executor
from ottla.errors import KafkaError
from ottla.log.files.faults import is_passing
from ottla.log.results import AppendResult
from ottla.pending import Pending
from ottla.records.batch import NO_TIMESTAMP
from ottla.replication.append import AppendOutcome, AppendRefusal
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

LOAD_BYTES = 256 * 1024
"""How many bytes of the log are decoded in one go."""


class LoadedMemory(Protocol):
    """The memory that the load fills."""

    @property
    def is_loading(self) -> bool:
        """Whether the load is still wanted."""

    def replay(self, stored: StoredRecord) -> None:
        """Take a record. Raises KafkaError or MalformedMessage if it makes no sense."""

    def end_transaction(self, marker: EndMarker) -> Iterator[None] | None:
        """Take or drop what a producer's transaction wrote, at once or in steps."""

    def loaded(self) -> None:
        """Begin to serve: the whole log has been replayed."""

    def fail(self, why: str, *, needs_reload: bool = False) -> None:
        """Serve nothing: the log cannot be read."""


class Loading:
    """The load of one shard."""

    def __init__(
        self, partition: Partition, executor: Executor, following: StepLine, memory: LoadedMemory
    ) -> None:
        """``following``: the line in which all changes of memory stand."""
        self._where = partition.topic_partition
        self._partition = partition
        self._executor = executor
        self._following = following
        self._memory = memory
        self._at = 0
        """Use: the offset of the record at hand."""

    def begin(self) -> None:
        """Begin to replay the log up to its present end; once it is held no more, which may cut it.

        Else the load would wait for records that are gone.
        """
        partition = self._partition
        if partition.is_failed:
            # The stand-in for a log that could not be opened looks like a log without records.
            self._memory.fail("its log is offline")
            return
        if partition.is_held:
            partition.released().on_done(lambda _: self.begin())
            return
        log = partition.log
        self._load_from(log.log_start_offset, log.log_end_offset)

    def _load_from(self, offset: int, end_offset: int) -> None:
        memory = self._memory
        if not memory.is_loading:
            return
        if offset >= end_offset:
            self._read_all(end_offset)
            return
        if self._partition.is_held:
            self._partition.released().on_done(lambda _: self._load_from(offset, end_offset))
            return
        try:
            region = self._partition.log.read(
                offset, max_bytes=LOAD_BYTES, upper_offset=end_offset, min_one_message=True
            ).region
        except (KafkaError, OSError) as error:
            self._cannot_read(offset, error)
            return
        if region is None:
            self._read_all(end_offset)
            return

        def done(piece: Slice | None, error: BaseException | None) -> None:
            if piece is None:
                if not isinstance(error, KafkaError | OSError):
                    logger.error("%s: the load failed unexpectedly", self._where, exc_info=error)
                self._cannot_read(offset, error)
            else:
                self._following.add(self._take(piece, offset, end_offset))

        self._executor.submit(lambda: decode_slice(region.read()), done)

    def _read_all(self, end_offset: int) -> None:
        """Begin to serve when all that was read is committed: else it might be taken back."""
        partition = self._partition
        if partition.high_watermark >= end_offset:
            self._memory.loaded()
            return
        if partition.is_failed:  # It will tell nobody any more.
            self._memory.fail("its log has failed")
            return

        def committed(done: Pending[list[AppendOutcome]]) -> None:
            is_refused = any(isinstance(one, AppendRefusal) for one in done.value or ())
            if is_refused and partition.is_failed:
                self._memory.fail("its log has failed")
            elif not is_refused and self._memory.is_loading:
                self._memory.loaded()

        start = partition.log_start_offset
        last = AppendResult(end_offset - 1, end_offset - 1, NO_TIMESTAMP, start)
        partition.flush()
        partition.commits.wait(last, timeout_seconds=inf).on_done(committed)

    def _cannot_read(self, offset: int, error: BaseException | None) -> None:
        is_shortage = isinstance(error, OSError) and is_passing(error)
        why = f"the batches from offset {offset} on cannot be read: {error!r}"
        self._memory.fail(why, needs_reload=is_shortage)  # The next request tries again.

    def _take(self, piece: Slice, offset: int, end_offset: int) -> Iterator[None]:
        memory = self._memory
        if not memory.is_loading:
            return
        if piece.next_offset <= offset:
            memory.fail(f"there is no whole batch at offset {offset}")
            return
        self._at = offset
        try:
            yield from self._replay(piece, offset)
        except KafkaError as error:
            memory.fail(f"the record at offset {self._at} makes no sense: {error}")
        except Exception:
            logger.exception("%s: offset %d cannot be replayed", self._where, self._at)
            memory.fail(f"the record at offset {self._at} cannot be replayed")
        self._load_from(piece.next_offset, end_offset)

    def _replay(self, piece: Slice, offset: int) -> Iterator[None]:
        memory = self._memory
        for ordinal, entry in enumerate(piece.entries, 1):
            if not ordinal % RECORDS_PER_STEP:
                yield
            if not memory.is_loading:
                return
            if isinstance(entry, EndMarker):
                yield from memory.end_transaction(entry) or ()
            elif entry.offset >= offset:  # A batch may begin below the log start offset.
                self._at = entry.offset
                memory.replay(entry)
