"""Where reading starts and ends, as the options spell it, and the half-open ranges it comes to.

Pure: between the options and the plan. Knows no network. The JSON forms are the Kafka connector's
(``positions`` tells more of the first):

    bound       "earliest" | "latest" | positions, in which -2 is earliest and -1 latest
    timestamps  {"topic": {"0": 1700000000000}}   milliseconds since 1970
    assignment  {"topic": [0, 1]}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.ids import NULL_TOPIC_ID, TopicId, TopicPartition
from ottla.spark.positions import INT32_MAX, INT64_MAX, Positions, read_positions

EARLIEST = -2
LATEST = -1
WORDS = {"earliest": EARLIEST, "latest": LATEST}
WORD_OF = {number: word for word, number in WORDS.items()}


class OffsetRange(NamedTuple):
    """The records of one partition with ``start <= offset < end``."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: TopicId = NULL_TOPIC_ID
    """The id of the topic that was planned with; the null id where the cluster gives none."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets [{self.start}, {self.end})"

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition alone."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends, by the option that says so. One of the four is given."""

    option: str
    word: int | None = None
    """EARLIEST or LATEST, for every partition."""
    positions: Positions | None = None
    """An offset for each partition; EARLIEST and LATEST stand in for offsets."""
    timestamp_ms: int | None = None
    """One timestamp for every partition."""
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """A timestamp for each partition."""

    @property
    def is_by_time(self) -> bool:
        """Whether timestamps are given."""
        return self.timestamp_ms is not None or bool(self.timestamps_ms)


def parse_bound(option: str, text: str, *, refused: int | None) -> Bound:
    """Return the bound that ``text`` spells; ``refused`` is a word that makes no sense there.

    Raises ValueError.
    """
    word = WORDS.get(text.strip().lower())
    if word is None:
        wanted = "'earliest', 'latest' or JSON like {\"topic\": {\"0\": 23}}"
        positions = read_positions(_json_object(text, wanted), least=EARLIEST)
        if not positions.offsets:
            message = f"expected {wanted}, found no partition in {text!r}"
            raise ValueError(message)
        if refused is not None and refused in positions.offsets.values():
            message = f"{refused} ({WORD_OF[refused]}) makes no sense here in a batch query"
            raise ValueError(message)
        return Bound(option, positions=positions)
    if word == refused:
        message = f"{WORD_OF[word]!r} makes no sense here in a batch query"
        raise ValueError(message)
    return Bound(option, word)


def parse_timestamp(option: str, text: str) -> Bound:
    """Return the bound of one timestamp for every partition. Raises ValueError."""
    bare = text.strip()
    if not (bare.isascii() and bare.isdigit()) or int(bare) > INT64_MAX:
        message = f"expected milliseconds since 1970, found {text!r}"
        raise ValueError(message)
    return Bound(option, timestamp_ms=int(bare))


def parse_timestamps(option: str, text: str) -> Bound:
    """Return the bound of a timestamp for each partition. Raises ValueError."""
    wanted = 'JSON like {"topic": {"0": 1700000000000}}'
    positions = read_positions(_json_object(text, wanted))
    if not positions.offsets:
        message = f"expected {wanted}, found no partition in {text!r}"
        raise ValueError(message)
    return Bound(option, timestamps_ms=positions.offsets)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions that ``text`` names. Raises ValueError."""
    wanted = 'JSON like {"topic": [0, 1]}'
    named: dict[TopicPartition, None] = {}
    for topic, numbers in _json_object(text, wanted).items():
        if not isinstance(numbers, list) or any(
            type(n) is not int or not 0 <= n <= INT32_MAX for n in numbers
        ):
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
