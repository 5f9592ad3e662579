"""Where reading stands in many partitions: offsets, and by what to know the log again later.

The JSON of a stream's checkpoint and of its progress, and of the options ``startingOffsets`` and
``endingOffsets``. Pure. It is the Kafka connector's form with one key more, which is no legal name
of a topic; without it, as the connector writes, the same is read, and less can be checked:

    positions = { [ "$ottla": marks, ] topic: { partition: offset, ... }, ... }
    marks     = { [ "begin": offsets, ] "epochs": { topic: epochs, ... },
                  "ids": { topic: topic id, ... }, [ "shared": number, ] "version": 2 }
    offsets   as in positions
    epochs    = epoch                                of all partitions that have an offset
              | { "*": epoch, partition: epoch, ... }     of all, and of those that differ
              | { partition: epoch, ... }                 version 1 has this form only

Keys are sorted, since Spark compares offsets as texts. Offsets are those of the next record to
read. A leader epoch is the one in force when the log was seen to reach the offset: what a log of
that epoch holds below the offset has been read. A topic id is 22 characters, as Kafka prints it.
``begin`` is in the end of a stream's first micro-batch, and says where that began. ``shared`` says
how many offsets share a task in the micro-batch that ends here, where the options do not: one that
is repeated is divided as it was. Who does not know it divides as if it were not there.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla.ids import TopicId, TopicPartition, parse_topic_id, topic_id_text

INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
"""What a partition or an epoch, and what an offset, has room for in a request."""
MARKS = "$ottla"
VERSION = 2
VERSIONS_READ = (1, 2)
REST = "*"
"""The partitions whose epochs are not told one by one."""

Json = dict[str, object]
"""What ``json.loads`` makes of an object."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Offsets by partition; ids and epochs where they are known."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, TopicId] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    begin: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where a stream's first micro-batch began, which ends here; empty for any other."""
    shared: int = 0
    """How many offsets share a task in the micro-batch that ends here; 0: none do."""

    def to_json(self) -> Json:
        """Return the object to write, its keys sorted."""
        value: Json = {}
        if self.ids or self.epochs or self.begin or self.shared:
            value[MARKS] = {
                **({"begin": _nested(self.begin)} if self.begin else {}),
                "epochs": _short(self.epochs, self.offsets),
                "ids": {topic: topic_id_text(self.ids[topic]) for topic in sorted(self.ids)},
                **({"shared": self.shared} if self.shared else {}),
                "version": VERSION,
            }
        value.update(_nested(self.offsets))
        return value

    def text(self) -> str:
        """Return the JSON text."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    def named(self) -> str:
        """Return the partitions, for messages."""
        return ", ".join(str(each) for each in sorted(self.offsets)) or "none"


def _nested(values: Mapping[TopicPartition, int]) -> Json:
    nested: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(values, key=lambda each: (each.topic, str(each.partition))):
        nested.setdefault(topic, {})[str(partition)] = values[TopicPartition(topic, partition)]
    return dict(nested)


def _short(epochs: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> Json:
    """Return the epochs in few words: most partitions of a topic have the same."""
    counts = Counter(topic for topic, _ in offsets)
    found: Json = {}
    for topic, each in _nested(epochs).items():
        assert isinstance(each, dict)
        if len(each) < counts[topic]:
            found[topic] = each
            continue
        often = Counter(each.values())
        common = min(often, key=lambda epoch: (-often[epoch], epoch))
        others = {number: epoch for number, epoch in each.items() if epoch != common}
        found[topic] = {REST: common, **others} if others else common
    return found


def _long(epochs: object, offsets: Mapping[TopicPartition, int]) -> Iterator[tuple[str, object]]:
    """Yield the epochs of each topic by partition, as version 1 has them."""
    if not isinstance(epochs, dict):
        message = f"no object: {epochs!r}"
        raise ValueError(message)  # noqa: TRY004 - the caller translates ValueError only
    partitions: dict[str, list[str]] = {}
    for topic, number in offsets:
        partitions.setdefault(topic, []).append(str(number))
    for topic, told in epochs.items():
        each = dict(told) if isinstance(told, dict) else {REST: told}
        if REST in each:
            each = {**dict.fromkeys(partitions.get(topic, ()), each.pop(REST)), **each}
        yield topic, each


def read_positions(value: Mapping[str, object], *, least: int = 0) -> Positions:
    """Return what an object says. ``least``: the lowest number that is an offset.

    Raises ValueError.
    """
    marks = value.get(MARKS, {})
    offsets = dict(_read_nested({k: v for k, v in value.items() if k != MARKS}, "offset", least))
    if not isinstance(marks, dict):
        message = f"{MARKS} is no object"
        raise ValueError(message)  # noqa: TRY004 - the caller translates ValueError only
    version = marks.get("version", VERSION)
    if version not in VERSIONS_READ:
        message = f"offsets of version {version}; this Ottla reads versions 1 to {VERSION}"
        raise ValueError(message)
    ids = marks.get("ids", {})
    if not isinstance(ids, dict) or not all(isinstance(text, str) for text in ids.values()):
        message = "the ids are no object of texts"
        raise ValueError(message)
    shared = marks.get("shared", 0)
    if type(shared) is not int or shared < 0:
        message = f"no number of offsets that share a task: {shared!r}"
        raise ValueError(message)
    return Positions(
        offsets,
        {topic: parse_topic_id(text) for topic, text in ids.items()},
        dict(
            _read_nested(
                dict(_long(marks.get("epochs", {}), offsets)), "leader epoch", 0, INT32_MAX
            )
        ),
        dict(_read_nested(marks.get("begin", {}), "offset", 0)),
        shared,
    )


def _read_nested(
    value: object, what: str, least: int, most: int = INT64_MAX
) -> Iterator[tuple[TopicPartition, int]]:
    if not isinstance(value, dict):
        message = f"no object: {value!r}"
        raise ValueError(message)  # noqa: TRY004 - as above
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            message = f"{partitions!r} of topic {topic!r} is no object of partitions"
            raise ValueError(message)  # noqa: TRY004 - as above
        for number, found in partitions.items():
            is_partition = number.isascii() and number.isdigit() and str(int(number)) == number
            is_partition = is_partition and int(number) <= INT32_MAX
            if not is_partition or type(found) is not int or not least <= found <= most:
                message = f"{number!r}: {found!r} of topic {topic!r} is no partition and {what}"
                raise ValueError(message)
            yield TopicPartition(topic, int(number)), found
