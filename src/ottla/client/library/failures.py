"""What the client library raises: a small tree, each error with what, why and how to mend it.

Owns the translation of what the rooms below raise. Knows no connection and no record.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isnan
from operator import index
from typing import SupportsFloat, TypeVar

from ottla.client.wire.errors import ConnectionFailed, NoAnswer, Unsendable
from ottla.config.option import InvalidConfig
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import INT32_MAX, INT64_MAX, TopicPartition

Value = TypeVar("Value")


class ClientError(OttlaError):
    """The root of what the client library raises on purpose.

    ``what`` was to be done, ``why`` it was not, ``fix``: what to do about it ("": not known).
    ``code``: Kafka's error code; None when no broker said one.
    """

    def __init__(
        self, what: str, why: str = "", *, fix: str = "", code: ErrorCode | None = None
    ) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why
        self.fix = fix
        self.code = code

    @property
    def is_retriable(self) -> bool:
        """Whether the same call may succeed later, unchanged."""
        return self.code is not None and self.code.retriable

    def __str__(self) -> str:
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text} ({self.fix})" if self.fix else text


class Unreachable(ClientError):
    """No broker can be reached, or the connection ended."""

    @property
    def is_retriable(self) -> bool:
        """Always: the cluster may come back."""
        return True


class TimedOut(ClientError):
    """The call's time is up. What it asked for may or may not have been done."""

    @property
    def is_retriable(self) -> bool:
        """Always: the next try may be in time."""
        return True


class Refused(ClientError):
    """A broker answered with an error code; ``code`` says which."""


class Fenced(Refused):
    """Another producer has taken over the transactional id; this one can write no more."""


class NotAllowed(Refused):
    """The login failed, or the user may not do this."""


class GroupMoved(Refused):
    """The group has given the partitions to others meanwhile: the commit does not count."""


class ClientClosed(ClientError):
    """The client, the producer or the consumer was closed."""


class BadArgument(ClientError, ValueError):
    """An argument or a setting that cannot be used; nothing was sent."""


class Undecodable(ClientError):
    """A record whose key or value the deserializer refuses. The consumer goes on behind it.

    ``topic``, ``partition`` and ``offset`` say which record; ``field`` is "key" or "value",
    ``data`` its bytes.
    """

    def __init__(
        self, why: str, *, topic: str, partition: int, offset: int, field: str, data: bytes | None
    ) -> None:
        super().__init__(
            f"{topic}-{partition} at offset {offset}: the {field} cannot be decoded",
            why,
            fix="go on iterating to leave it out",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.field = field
        self.data = data


_FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_DENIED = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
)
MOVED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
_CLASSES: dict[ErrorCode, type[Refused]] = {
    **dict.fromkeys(_FENCED, Fenced),
    **dict.fromkeys(_DENIED, NotAllowed),
    **dict.fromkeys(MOVED, GroupMoved),
}
_ENDED = (
    "the coordinator has aborted it: was it open for longer than transaction_timeout_ms, or does"
    " another producer take the transactional id over?"
)
_FIXES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic with client.admin.create_topic",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic, or send smaller records",
    ErrorCode.OFFSET_OUT_OF_RANGE: 'seek, or set auto_offset_reset to "earliest" or "latest"',
    ErrorCode.SASL_AUTHENTICATION_FAILED: "check user name, password and mechanism",
    ErrorCode.INVALID_TXN_STATE: _ENDED,
    ErrorCode.INVALID_RECORD: "does the topic want a key (cleanup.policy=compact)?",
    **dict.fromkeys(_FENCED, "make a new producer, and let only one use the transactional id"),
    **dict.fromkeys(MOVED, "go on reading: the new owner reads the records again"),
}


def as_failure(what: str, error: OttlaError) -> ClientError:
    """Return what the library raises for an error of the rooms below; its own as they are."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, Unsendable):
        return BadArgument(what, error.why)
    if isinstance(error, KafkaError):
        kind = _CLASSES.get(error.code, Refused)
        return kind(what, str(error), fix=_FIXES.get(error.code, ""), code=error.code)
    if isinstance(error, NoAnswer):
        return TimedOut(what, str(error))
    if isinstance(error, ConnectionFailed):
        fix = "is the broker started, and the address right?" if error.refused else ""
        return Unreachable(what, str(error), fix=fix)
    if isinstance(error, InvalidConfig):
        return BadArgument(what, str(error))
    return ClientError(what, str(error))


def as_write_failure(
    what: str, error: KafkaError | ConnectionFailed | ClientError, *, is_settled_later: bool
) -> ClientError:
    """Return what the library raises when a leader of a partition refuses a write.

    A leader says INVALID_PRODUCER_EPOCH of a transaction that ran out of time, too.
    ``is_settled_later``: the coordinator will tell who is fenced, when the transaction is aborted.
    """
    if (
        is_settled_later
        and isinstance(error, KafkaError)
        and error.code is ErrorCode.INVALID_PRODUCER_EPOCH
    ):
        return Refused(what, str(error), fix=_ENDED, code=error.code)
    return as_failure(what, error)


def check_names(what: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return names of topics. Raises BadArgument for what is none, such as a list of them."""
    found = tuple(names)
    for name in found:
        if not isinstance(name, str):
            why = f"a topic's name is a text, found {name!r}"
            raise BadArgument(what, why, fix="give each name as an argument of its own: *names")
        bytes_of(what, name)
    return found


def check_offset(what: str, found: object) -> int:
    """Return an offset. Raises BadArgument for what is none."""
    if not hasattr(found, "__index__") or not 0 <= index(found) <= INT64_MAX:
        raise BadArgument(what, f"{found!r} is no offset")
    return index(found)


def check_offsets(what: str, given: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return offsets by partition. Raises BadArgument for what is none."""
    return {
        check_partition(what, each): check_offset(what, offset) for each, offset in given.items()
    }


def check_partition(what: str, given: object) -> TopicPartition:
    """Return a partition, which may be a pair. Raises BadArgument for what is none."""
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and hasattr(number, "__index__"):
            bytes_of(what, topic)
            if 0 <= index(number) <= INT32_MAX:
                return TopicPartition(topic, index(number))
    fix = 'TopicPartition("orders", 0)'
    raise BadArgument(what, f"{given!r} is no partition of a topic", fix=fix)


def seconds_of(what: str, timeout: object) -> float | None:
    """Return a caller's ``timeout``. Raises BadArgument for what is no number of seconds."""
    if timeout is None or isinstance(timeout, int):
        return timeout
    if not isinstance(timeout, SupportsFloat) or isnan(float(timeout)):
        raise BadArgument(what, f"timeout={timeout!r} is no number of seconds")
    return float(timeout)


def bytes_of(what: str, text: str) -> bytes:
    """Return a text as UTF-8. Raises BadArgument for one that has halves of characters."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadArgument(what, f"{text!a} is not UTF-8 text") from error


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise what the library raises for what is raised within. ``what``: was to be done."""
    try:
        yield
    except ClientError:
        raise
    except OttlaError as error:
        raise as_failure(what, error) from error


async def within(
    what: str, work: Awaitable[Value], timeout: float | None, said: float | None = None
) -> Value:
    """Return what ``work`` does; raise TimedOut after ``timeout`` seconds (None: no limit).

    ``said``: what the error tells instead of them.
    """
    with translated(what):
        try:
            timeout = seconds_of(what, timeout)
        except BadArgument:
            if isinstance(work, Coroutine):
                work.close()
            raise
        if timeout is None:
            return await work
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(what, f"not done within {said or timeout:g} s") from None
