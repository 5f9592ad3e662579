"""How ranges of offsets become tasks: one each, or as the user wants more, smaller or fewer.

Pure. The arithmetic of ``split`` gives the number of tasks that Spark's Kafka connector makes of
the same ranges, so that tuning done there holds here. ``gather`` makes fewer of them, which the
connector cannot: a task costs Spark the same, be there one record for it or a thousand.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.ids import TopicPartition
from ottla.spark.offsets import OffsetRange

if TYPE_CHECKING:
    from ottla.spark.options import SourceOptions


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int, max_records: int
) -> list[OffsetRange]:
    """Return the ranges, divided; empty ones are left out. 0 means no limit."""
    parts = [one for one in ranges if one.start < one.end]
    if max_records:
        parts = [piece for one in parts for piece in _divide(one, -(-_size(one) // max_records))]
    if len(parts) >= min_partitions:
        return parts
    return _divide_to(parts, min_partitions)


def tasks_of(
    ranges: Sequence[OffsetRange], options: "SourceOptions", *, least: int = 0
) -> list[tuple[OffsetRange, ...]]:
    """Return what each task reads of ``ranges``, which are divided as the options say.

    ``least``: how many offsets share a task where the options do not say it.
    """
    if options.says_tasks:
        least = options.min_records_per_partition or 0
    return gather(ranges, least=least, most=options.max_records_per_partition)


def gather(
    ranges: Sequence[OffsetRange], *, least: int, most: int
) -> list[tuple[OffsetRange, ...]]:
    """Return what each task reads: ranges in a row, until they have ``least`` offsets together.

    Never two of one partition, nor more than ``most`` (0: no limit) where a range has not more by
    itself. ``least`` 0: each range has its own task.
    """
    tasks: list[tuple[OffsetRange, ...]] = []
    together: dict[TopicPartition, OffsetRange] = {}
    size = 0
    for one in ranges:
        is_full = size >= least or bool(most and size + _size(one) > most)
        if together and (is_full or one.topic_partition in together):
            tasks.append(tuple(together.values()))
            together, size = {}, 0
        together[one.topic_partition] = one
        size += _size(one)
    if together:
        tasks.append(tuple(together.values()))
    return tasks


def _divide_to(parts: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Return about ``count`` ranges: small ones stay whole, the large share the rest by size."""
    total = sum(map(_size, parts))
    large = [one for one in parts if _share(_size(one), total, count) > 1]
    large_total = sum(map(_size, large))
    for_large = max(count - (len(parts) - len(large)), 1)
    divided: list[OffsetRange] = []
    for one in parts:
        pieces = _share(_size(one), large_total, for_large) if one in large else 1
        divided += _divide(one, pieces)
    return divided


def _share(size: int, total: int, count: int) -> int:
    """Return ``count * size / total``, rounded half up, at least 1."""
    return max((2 * count * size + total) // (2 * total), 1)


def _divide(one: OffsetRange, pieces: int) -> Iterator[OffsetRange]:
    start = one.start
    for left in range(pieces, 0, -1):
        end = start + (one.end - start) // left
        if start < end:
            yield one._replace(start=start, end=end)
        start = end


def _size(one: OffsetRange) -> int:
    return one.end - one.start
