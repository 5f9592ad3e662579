"""Whether one log may be read and changed, and who is told when its disk refuses.

The part of a Log that knows its state; log.log adds the data. Owns no file and decides nothing of
what an error means (log.faults does). On the loop. Source: reliability rules 1, 2 and 18.
"""

import errno
import logging
from collections.abc import Callable
from enum import Enum

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.files.tenancy import Tenancy

logger = logging.getLogger(__name__)


class LogState(Enum):
    """What may be done with a log."""

    OPEN = "open"
    FULL = "out of disk space"
    """No batch is taken; all else goes on: reads, flushes, deletion."""
    HELD = "waiting for another name"
    """Its directory changes its name just now, in an executor. Whoever comes waits: nothing is
    appended, flushed or read."""
    FAILED = "failed"
    """The disk's answer to a sync or a repair was an error: nothing here is believed any more."""
    CLOSED = "closed"


OPEN, FULL, CLOSED = LogState.OPEN, LogState.FULL, LogState.CLOSED
HELD = LogState.HELD
"""For the hot way: Python 3.11 takes a fifth of a microsecond to find a member of an enum."""


class LogHealth:
    """The state of a log, and its ways out of service."""

    __slots__ = ("failure", "is_swapping", "on_disk_error", "state", "tenancy", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.state = LogState.OPEN
        self.is_swapping = False
        """Use: cleaned segments take the place of others just now, see ``log.swap``, or the log is
        held. Invariant: while it is set, nothing is dropped or truncated."""
        self.tenancy = Tenancy()
        """Use: what runs beside the loop asks it before it uses the directory's name. Invariant:
        over when the log is CLOSED."""
        self.failure: OSError | None = None
        """What the disk said when the log failed."""
        self.on_disk_error: Callable[[OSError], None] | None = None
        """Use: told on the loop what the disk refused. It may take the log out of service."""

    @property
    def is_in_service(self) -> bool:
        """Tell whether it is read and changed; batches it takes only while it is OPEN."""
        return self.state is OPEN or self.state is FULL or self.state is HELD

    def hold(self) -> None:
        """Let nobody append, flush, read or swap segments until ``end_hold``. On the loop."""
        self.ensure_settled()
        self.state = LogState.HELD
        self.is_swapping = True

    def end_hold(self, *, is_full: bool) -> None:
        """Go on, unless the log went out of service meanwhile. ``is_full``: its log directory."""
        self.is_swapping = False
        if self.state is HELD:
            self.state = FULL if is_full else OPEN

    def ensure_open(self) -> None:
        """Raise KafkaError KAFKA_STORAGE_ERROR unless the log is in service."""
        if not self.is_in_service:
            raise self.unusable()

    def ensure_writable(self) -> None:
        """Raise KafkaError KAFKA_STORAGE_ERROR unless the log takes batches."""
        if self.state is not OPEN:
            raise self.unusable()

    def ensure_settled(self) -> None:
        """Raise as ``ensure_open`` does; nobody may be swapping segments either."""
        self.ensure_open()
        assert not self.is_swapping, self.topic_partition

    def unusable(self) -> KafkaError:
        """Return the refusal, KAFKA_STORAGE_ERROR, of what a log in this state cannot do."""
        why = f"the log of {self.topic_partition} is {self.state.value}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def _fail(self, error: OSError) -> None:
        """Believe nothing here any more, and say so."""
        if self.is_in_service:
            logger.error("%s is offline until a restart: %s", self.topic_partition, error)
        self.take_out(error)
        self.report(error)

    def end_by_fault(self, error: BaseException) -> None:
        """Go out of service until a restart because of a fault of ours, and say so."""
        why = f"{self.topic_partition} is offline until a restart, by a fault of ours"
        logger.error(why, exc_info=error)
        self.take_out(OSError(errno.EIO, f"{why}: {error!r}"))

    def take_out(self, error: OSError) -> None:
        """Go out of service for good, because of ``error``. Files are let go, none is touched.

        Says nothing: who takes a whole directory out tells of it once.
        """
        if self.is_in_service:
            self.state = LogState.FAILED
            self.failure = error
            self.let_go()

    def retire(self) -> None:
        """Be closed: for good, and for everybody. Does not block."""
        self.state = LogState.CLOSED
        self.tenancy.end()
        self.let_go()

    def let_go(self) -> None:
        """Let go of all files."""
        raise NotImplementedError

    def report(self, error: OSError) -> None:
        """Tell the owner of the log's directory what its disk refused. On the loop.

        Of a log that is closed nothing is told: its directory may be another's.
        """
        if self.on_disk_error is not None and self.state is not LogState.CLOSED:
            self.on_disk_error(error)
