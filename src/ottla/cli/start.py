"""Where to begin reading: ``earliest``, ``latest``, an offset, ``-10``, ``-5m`` or a time."""

from collections.abc import Sequence
from datetime import datetime

from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean
from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.offsets import EARLIEST, LATEST, NO_OFFSET
from ottla.config.human import is_whole, parse_duration_ms
from ottla.env.clock import Clock
from ottla.ids import INT64_MAX, TopicPartition


async def start_offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], text: str, clock: Clock
) -> dict[TopicPartition, int]:
    """Return the offset to begin at in each partition, inside the log. Raises Failure."""
    timestamp = checked_timestamp(text, clock)
    starts = await _offsets(cluster, partitions, EARLIEST)
    ends = await _offsets(cluster, partitions, LATEST)
    if timestamp is not None:
        if timestamp == EARLIEST:
            return starts
        if timestamp == LATEST:
            return ends
        found = await _offsets(cluster, partitions, timestamp)
        return {
            each: ends[each] if offset == NO_OFFSET else offset for each, offset in found.items()
        }
    number = int(text)
    wanted = {each: number if number >= 0 else ends[each] + number for each in partitions}
    return {each: min(max(wanted[each], starts[each]), ends[each]) for each in partitions}


def checked_timestamp(text: str, clock: Clock) -> int | None:
    """Return as ``start_timestamp``. Raises Failure: before anything is made or changed."""
    try:
        return start_timestamp(text, clock.wall_ms())
    except ValueError as error:
        raise Failure(str(error), code=Exit.USAGE) from error


def start_timestamp(text: str, now_ms: int) -> int | None:
    """Return the timestamp (or named place) that ``text`` means; None when it is an offset.

    Raises ValueError.
    """
    if text in ("earliest", "beginning", "start"):
        return EARLIEST
    if text in ("latest", "end", "now"):
        return LATEST
    if is_whole(text.removeprefix("-")):
        return None
    if text.startswith("@") and is_whole(text[1:]):
        return min(int(text[1:]), INT64_MAX)
    if text.startswith("-"):
        return max(0, now_ms - parse_duration_ms(text[1:]))
    try:
        # Below 0 are Kafka's names of places.
        return max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError):
        hint = did_you_mean(text, ("earliest", "latest", "beginning", "end"))
        raise ValueError(
            f"{text!r} is not a place in a log; "
            + (
                hint
                or "write earliest, latest, an offset, -10 (the last ten), -5m (a time ago),"
                " @1700000000000 (ms) or 2026-01-31T12:00"
            )
        ) from None


async def _offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    found = await cluster.list_offsets(dict.fromkeys(partitions, timestamp))
    return {each: offset.offset for each, offset in found.items()}
