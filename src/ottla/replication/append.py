"""The outcome of an append, and of several that are answered together.

Owns these values and how several are joined. ``replication.appends`` makes them; they wait in
``replication.commit_queue``. Source: the API refactoring seed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError, RecordError, RecordsRejected
from ottla.ids import TopicPartition
from ottla.log.results import AppendResult
from ottla.pending import Pending

_BEFORE_THE_LOG = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Refusals that Kafka answers without telling the log start offset."""


class AppendRefusal(NamedTuple):
    """Why a partition's records are not acknowledged."""

    code: ErrorCode
    why: str = ""
    rejected: tuple[RecordError, ...] = ()
    """The records that are the reason, if some of them are."""
    log_start_offset: int = -1
    """Told only when the log itself looked at the records; else -1."""


GONE = AppendRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted meanwhile")
LEADERSHIP_MOVED = AppendRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership moved meanwhile")
FLUSH_FAILED = AppendRefusal(ErrorCode.KAFKA_STORAGE_ERROR, "the log could not be flushed")
TIMED_OUT = AppendRefusal(ErrorCode.REQUEST_TIMED_OUT, "not committed within the request's timeout")
"""The outcomes of an append that was written but not committed."""

OWN_FLUSH_MS = 1000
"""How long this node's own fsync may take before it counts against a request's timeout."""

AppendOutcome = AppendResult | AppendRefusal
"""The outcome of one partition's part of an append."""


def gone_meanwhile(where: TopicPartition) -> KafkaError:
    """Return why an append is refused whose topic was deleted before its turn came."""
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} was deleted meanwhile")


def refusal_of(error: KafkaError, log_start_offset: int) -> AppendRefusal:
    """Return how an append that raised ``error`` is answered."""
    return AppendRefusal(
        error.code,
        error.why,
        error.records if isinstance(error, RecordsRejected) else (),
        -1 if error.code in _BEFORE_THE_LOG else log_start_offset,
    )


def patience_seconds(timeout_ms: int) -> float:
    """Return how long an append waits for its commit, given its request's timeout.

    A client's timeout is for replicas to follow. Kafka has none to wait for where there is one
    replica, so that 0 and -1 are as good as any; here that one syncs before it answers.
    """
    return max(timeout_ms, OWN_FLUSH_MS) / 1000


def gathered(
    parts: Sequence[list[AppendOutcome] | Pending[list[AppendOutcome]]],
    pending: Pending[list[AppendOutcome]],
) -> None:
    """Resolve ``pending`` with the outcomes of all parts, in this order, when all are there."""
    left = 1

    def one_done(_: Pending[list[AppendOutcome]] | None = None) -> None:
        nonlocal left
        left -= 1
        if not left:
            found: list[AppendOutcome] = []
            for part in parts:
                found += (part.value or ()) if isinstance(part, Pending) else part
            pending.resolve(found)

    for part in parts:
        if isinstance(part, Pending):
            left += 1
            part.on_done(one_done)
    one_done()


def joined(
    begun: list[AppendOutcome] | Pending[list[AppendOutcome]], rest: Pending[list[AppendOutcome]]
) -> Pending[list[AppendOutcome]]:
    """Return the outcomes of both, in this order, when both are there.

    Not ``overlaps``: the rest is not appended yet.
    """
    both: Pending[list[AppendOutcome]] = Pending()
    first: Pending[list[AppendOutcome]] = Pending()
    if isinstance(begun, Pending):
        begun.on_done(first.take_over)
    else:
        first.resolve(begun)

    def then_rest(done: Pending[list[AppendOutcome]]) -> None:
        rest.then(lambda outcomes: [*(done.value or ()), *outcomes]).on_done(both.take_over)

    first.on_done(then_rest)
    return both
