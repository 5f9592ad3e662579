"""Offsets as the options spell them, and what becomes of them: one half-open range per partition.

Pure: between the options and the plan. Knows no network. The JSON forms are the Kafka connector's:

    bound       "earliest" | "latest" | {"topic": {"0": 23, "1": -2}}   -2 earliest, -1 latest
    assignment  {"topic": [0, 1]}
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.ids import TopicPartition

EARLIEST = -2
LATEST = -1
WORDS = {"earliest": EARLIEST, "latest": LATEST}
NAMES = {number: word for word, number in WORDS.items()}


class OffsetRange(NamedTuple):
    """The records of one partition with ``start <= offset < end``."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: one word for every partition, or an offset for each."""

    everywhere: int | None = None
    """EARLIEST or LATEST; None when ``offsets`` is given."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """By partition; EARLIEST and LATEST stand in for offsets."""

    def resolve(
        self,
        partition: TopicPartition,
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> int:
        """Return the offset of ``partition``, which must be named where offsets are given."""
        offset = self.offsets[partition] if self.everywhere is None else self.everywhere
        if offset == EARLIEST:
            return earliest[partition]
        return latest[partition] if offset == LATEST else offset


EVERY_EARLIEST = Bound(EARLIEST)
EVERY_LATEST = Bound(LATEST)


def parse_bound(text: str, *, refused: int) -> Bound:
    """Return the bound that ``text`` spells. ``refused`` is the word that makes no sense there.

    Raises ValueError.
    """
    word = WORDS.get(text.strip().lower())
    if word is None:
        offsets = dict(_parse_offsets(text))
        if refused in offsets.values():
            message = f"{refused} ({NAMES[refused]}) makes no sense here in a batch query"
            raise ValueError(message)
        return Bound(offsets=offsets)
    if word == refused:
        message = f"{NAMES[refused]!r} makes no sense here in a batch query"
        raise ValueError(message)
    return Bound(word)


def _parse_offsets(text: str) -> Iterable[tuple[TopicPartition, int]]:
    wanted = "'earliest', 'latest' or JSON like {\"topic\": {\"0\": 23}}"
    for topic, partitions in _json_object(text, wanted).items():
        if not isinstance(partitions, dict):
            message = f"expected {wanted}, found {text!r}"
            raise ValueError(message)  # noqa: TRY004 - the caller translates ValueError only
        for number, offset in partitions.items():
            if not number.isdecimal() or type(offset) is not int or offset < EARLIEST:
                message = f"{number!r}: {offset!r} of topic {topic!r} is no partition and offset"
                raise ValueError(message)
            yield TopicPartition(topic, int(number)), offset


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions that ``text`` names. Raises ValueError."""
    wanted = 'JSON like {"topic": [0, 1]}'
    named: dict[TopicPartition, None] = {}
    for topic, numbers in _json_object(text, wanted).items():
        if not isinstance(numbers, list) or any(type(n) is not int or n < 0 for n in numbers):
            message = f"expected {wanted}, found {text!r}"
            raise ValueError(message)
        named.update((TopicPartition(topic, number), None) for number in numbers)
    if not named:
        message = f"expected {wanted}, found no partition in {text!r}"
        raise ValueError(message)
    return tuple(named)


def _json_object(text: str, wanted: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        message = f"expected {wanted}, found {text!r}"
        raise ValueError(message) from error
    if not isinstance(value, dict):
        message = f"expected {wanted}, found {text!r}"
        raise ValueError(message)  # noqa: TRY004 - the caller translates ValueError only
    return value


def ranges(
    starting: Bound,
    ending: Bound,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[OffsetRange]:
    """Return what to read of every partition in ``earliest``, without the empty ranges.

    ``earliest`` and ``latest`` are the log start offsets and the ends, by the same partitions.
    Raises ValueError when a bound with offsets does not name exactly these partitions, when a
    range lies outside of the log, or ends before it starts.
    """
    for name, bound in (("startingOffsets", starting), ("endingOffsets", ending)):
        if bound.everywhere is None and bound.offsets.keys() != earliest.keys():
            named = ", ".join(map(str, sorted(map(_text, bound.offsets))))
            there = ", ".join(sorted(map(_text, earliest)))
            message = f"{name} must name every partition: it names {named}; there are {there}"
            raise ValueError(message)
    found = [
        _checked(
            OffsetRange(
                partition.topic,
                partition.partition,
                starting.resolve(partition, earliest, latest),
                ending.resolve(partition, earliest, latest),
            ),
            log_start=earliest[partition],
            log_end=latest[partition],
        )
        for partition in sorted(earliest)
    ]
    return [one for one in found if one.start < one.end]


def _text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _checked(one: OffsetRange, *, log_start: int, log_end: int) -> OffsetRange:
    """Return ``one`` when the log holds all of it. Raises ValueError."""
    if one.start > one.end:
        message = f"{one} ends before it starts"
        raise ValueError(message)
    if one.start < log_start or one.end > log_end:
        message = f"{one} was asked for, but the log holds [{log_start}, {log_end})"
        raise ValueError(message)
    return one
