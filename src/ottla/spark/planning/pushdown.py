"""Filters of a batch query, and the offsets that need not be read because of them.

The planner's side. Spark hands filters over where ``spark.sql.python.filterPushdown.enabled`` is
on, and applies every one of them again: here they only narrow ranges, never decide on a row.
Offsets, partitions and topics narrow exactly. A timestamp narrows the start (no record before the
first that is as new can match), never the end, since timestamps of producers are in no order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from ottla.client.blocking import BlockingClient
from ottla.client.offsets import NO_OFFSET
from ottla.ids import TopicPartition
from ottla.spark.offsets import OffsetRange

EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What filters leave. None: no bound."""

    start: int | None = None
    """The lowest offset that can match."""
    end: int | None = None
    """The offset after the highest."""
    since_ms: int | None = None
    """The oldest timestamp that can match."""
    names: tuple[Filter, ...] = ()
    """Filters that the topic or the partition must match."""

    def keeps(self, one: OffsetRange) -> bool:
        """Tell whether anything in a range of this partition can match."""
        values: dict[object, str | int] = {("topic",): one.topic, ("partition",): one.partition}
        return all(
            _matches(each, values[each.attribute])  # type: ignore[attr-defined]
            for each in self.names
        )


EVERYTHING = Narrowing()


def narrowing_of(filters: Iterable[Filter]) -> Narrowing:
    """Return what is left of the logs when all ``filters`` hold; those not understood hold."""
    starts: list[int] = []
    ends: list[int] = []
    times_us: list[int] = []
    names: list[Filter] = []
    for each in filters:
        attribute = getattr(each, "attribute", ())
        low, high = _bounds(each)
        if attribute in {("topic",), ("partition",)} and isinstance(each, _NAMING):
            names.append(each)
        elif attribute == ("offset",):
            starts += [low] if isinstance(low, int) else []
            ends += [high] if isinstance(high, int) else []
        elif attribute == ("timestamp",) and isinstance(low, int):
            times_us.append(low)
    return Narrowing(
        start=max(starts, default=None),
        end=min(ends, default=None),
        since_ms=-(-max(times_us) // 1000) if times_us else None,
        names=tuple(names),
    )


_EQUAL = (EqualTo, EqualNullSafe)
_NAMING = (
    *_EQUAL,
    In,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)


def _bounds(each: Filter) -> tuple[int | None, int | None]:
    """Return the half-open range of whole numbers (of microseconds for a time) that can match."""
    match each:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            number = _number(value)
            return number, _plus_one(number)
        case In(_, values):
            numbers = [_number(value) for value in values]
            known = [number for number in numbers if number is not None]
            if not known or len(known) < len(numbers):
                return None, None
            return min(known), max(known) + 1
        case GreaterThan(_, value):
            return _plus_one(_number(value)), None
        case GreaterThanOrEqual(_, value):
            return _number(value), None
        case LessThan(_, value):
            return None, _number(value)
        case LessThanOrEqual(_, value):
            return None, _plus_one(_number(value))
        case _:
            return None, None


def _plus_one(number: int | None) -> int | None:
    return None if number is None else number + 1


def _number(value: object) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - EPOCH) // timedelta(microseconds=1)
    return value if type(value) is int else None


def _matches(each: Filter, value: str | int) -> bool:
    match each:
        case EqualTo(_, wanted) | EqualNullSafe(_, wanted):
            return bool(value == wanted)
        case In(_, wanted):
            return value in wanted
        case StringStartsWith(_, wanted):
            return str(value).startswith(wanted)
        case _ if isinstance(value, int):
            low, high = _bounds(each)
            return (low is None or low <= value) and (high is None or value < high)
        case _:
            return True


def narrow(
    client: BlockingClient, ranges: Sequence[OffsetRange], left: Narrowing
) -> list[OffsetRange]:
    """Return the parts of ``ranges`` in which a record can match."""
    kept = [
        one._replace(
            start=one.start if left.start is None else max(one.start, left.start),
            end=one.end if left.end is None else min(one.end, left.end),
        )
        for one in ranges
        if left.keeps(one)
    ]
    kept = [one for one in kept if one.start < one.end]
    if left.since_ms is None or not kept:
        return kept
    firsts = _firsts(client, {one.topic_partition for one in kept}, max(left.since_ms, 0))
    return [
        one._replace(start=max(one.start, firsts[one.topic_partition]))
        for one in kept
        if firsts[one.topic_partition] != NO_OFFSET and firsts[one.topic_partition] < one.end
    ]


def _firsts(
    client: BlockingClient, partitions: Iterable[TopicPartition], since_ms: int
) -> Mapping[TopicPartition, int]:
    found = client.list_offsets(dict.fromkeys(partitions, since_ms))
    return {each: first.offset for each, first in found.items()}
