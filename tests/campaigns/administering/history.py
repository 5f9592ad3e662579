"""What was asked of a broker, when, and what it answered: the base of all judgement.

A request is written down before it is sent. Its *call* says until when it may have had an effect:
until its answer, or, without one, until the campaign knows that nobody works on it any more
(``History.settle``). A name's topics are told apart by their ids; what was asked by name counts for
each topic that may have had the name then. Knows nothing of sockets. All times are seconds of the
wall clock, which stamps the records, too.
"""

import math
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, islice
from typing import TypeVar

from tests.campaigns.administering.records import RecordId

BY_NAME = uuid.UUID(int=0)
MARKER_BYTES = 78


class _Clock:
    """Whose seconds these are: the system's, unless a simulation has its own."""

    now: Callable[[], float] = staticmethod(time.time)


def seconds() -> float:
    """Return the wall clock that a history is written by."""
    return _Clock.now()


@contextmanager
def seconds_of(now: Callable[[], float]) -> Iterator[None]:
    """Let histories be written by another wall clock during a ``with`` block."""
    before, _Clock.now = _Clock.now, staticmethod(now)
    try:
        yield
    finally:
        _Clock.now = before


class Verdict(Enum):
    """What a client was told."""

    OK = "ok"
    FAIL = "fail"
    """A refusal that changed nothing."""
    UNKNOWN = "unknown"
    """No answer, or one that leaves it open."""


@dataclass(slots=True, eq=False)
class Call:
    """One request: when it was sent, when its effect was over, how it ended."""

    sent: float = field(default_factory=seconds)
    over: float = math.inf
    verdict: Verdict = Verdict.UNKNOWN

    def answer(self, verdict: Verdict) -> None:
        """Take note of an answer; an open one is over only when nobody works on it any more."""
        self.verdict = verdict
        if verdict is not Verdict.UNKNOWN:
            self.over = seconds()

    @property
    def is_ok(self) -> bool:
        """It was answered with success."""
        return self.verdict is Verdict.OK

    @property
    def may_have_been(self) -> bool:
        """It was not refused."""
        return self.verdict is not Verdict.FAIL


class Outcome(Enum):
    """How a transaction ended."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer."""

    name: str
    outcome: Outcome = Outcome.OPEN


@dataclass(slots=True, eq=False)
class Batch:
    """Some records that were sent together to one partition."""

    name: str
    topic_id: uuid.UUID
    """``BY_NAME``: whichever topic had the name."""
    partition: int
    ids: list[RecordId]
    keys: list[bytes]
    tombstones: list[bool]
    timestamp_ms: int
    size_bytes: int
    call: Call
    base_offset: int = -1
    """-1: not told."""
    transaction: Transaction | None = None
    is_sequenced: bool = False
    """Of an idempotent producer, outside of transactions: such batches keep their order."""


@dataclass(slots=True, eq=False)
class Asked:
    """Something that was asked for a topic by its name."""

    name: str
    call: Call


@dataclass(slots=True, eq=False)
class Altered(Asked):
    """Options that were set; None: taken back."""

    configs: Mapping[str, str | None]


@dataclass(slots=True, eq=False)
class Deleted(Asked):
    """Records that were deleted below an offset."""

    partition: int
    offset: int


@dataclass(slots=True, eq=False)
class Grown(Asked):
    """Partitions that were added."""

    count: int


AskedT = TypeVar("AskedT", bound=Asked)


@dataclass(slots=True, eq=False)
class PartitionState:
    """What was seen of one partition of one topic."""

    batches: list[Batch] = field(default_factory=list)
    seen: dict[int, RecordId] = field(default_factory=dict)
    """By consumers, at any time: what they saw has to stay."""
    high_watermark: int = 0
    log_start: int = 0
    """The largest that were told."""


@dataclass(slots=True, eq=False)
class Topic:
    """One life of a name."""

    name: str
    topic_id: uuid.UUID
    created: Call
    configs: Mapping[str, str]
    created_count: int
    partition_count: int
    """How many partitions clients know of; more are added."""
    deletion: Call | None = None
    partitions: dict[int, PartitionState] = field(
        default_factory=lambda: defaultdict(PartitionState)
    )

    @property
    def is_living(self) -> bool:
        """Nobody asked to delete it."""
        return self.deletion is None

    @property
    def is_gone(self) -> bool:
        """Its deletion was confirmed."""
        return self.deletion is not None and self.deletion.is_ok

    @property
    def end(self) -> float:
        """When it was gone at the latest."""
        return self.deletion.over if self.deletion is not None and self.is_gone else math.inf

    def may_be_meant(self, asked: Asked) -> bool:
        """Tell whether it may have had the name while the request had its effect."""
        return (
            asked.name == self.name
            and asked.call.may_have_been
            and asked.call.sent < self.end
            and asked.call.over > self.created.sent
        )

    def is_meant(self, asked: Asked) -> bool:
        """Tell whether the request was confirmed, and was for this topic and for no other."""
        return (
            asked.name == self.name
            and asked.call.is_ok
            and asked.call.sent > self.created.over
            and (self.deletion is None or asked.call.over < self.deletion.sent)
        )


@dataclass(slots=True, eq=False)
class Creation:
    """A topic that may have come to be."""

    name: str
    call: Call
    configs: Mapping[str, str]
    partition_count: int

    def request(self) -> dict[str, object]:
        """Return what CreateTopics is asked for."""
        return {
            "name": self.name,
            "num_partitions": self.partition_count,
            "replication_factor": 1,
            "configs": [{"name": key, "value": text} for key, text in self.configs.items()],
        }

    def topic(self, topic_id: uuid.UUID) -> Topic:
        """Return the topic, now that it is known."""
        count = self.partition_count
        return Topic(self.name, topic_id, self.call, self.configs, count, count)


@dataclass(slots=True, eq=False)
class Commit:
    """One offset that was committed."""

    offset: int
    call: Call


class History:
    """All that happened to one broker's directory. Thread-safe by its lock, for writers."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.topics: dict[uuid.UUID, Topic] = {}
        self._living: list[Topic] = []
        self._known_count = 0
        """Of ``topics``, so many are in ``_living``, or were: nobody is deleted and lives on."""
        self.creations: dict[str, Creation] = {}
        """By name: those without an answer, until they are looked at."""
        self.altered: list[Altered] = []
        self.deleted: list[Deleted] = []
        self.grown: list[Grown] = []
        self.sent: dict[RecordId, Batch] = {}
        self.commits: dict[tuple[str, uuid.UUID, int], list[Commit]] = defaultdict(list)
        self.transaction_count = 0
        self.bytes_by_name: dict[str, int] = defaultdict(int)
        """Sent without a topic id."""
        self.problems: list[str] = []
        self.counts: dict[str, int] = defaultdict(int)

    def problem(self, text: str) -> None:
        """Take note of a broken promise."""
        with self.lock:
            self.problems.append(text)

    def count(self, what: str, by: int = 1) -> None:
        """Count for the report."""
        with self.lock:
            self.counts[what] += by

    def living(self) -> list[Topic]:
        """Return the topics that nobody asked to delete."""
        with self.lock:
            added = islice(self.topics.values(), self._known_count, None)
            self._living = [one for one in chain(self._living, added) if one.is_living]
            self._known_count = len(self.topics)
            return self._living.copy()

    def by_name(self, name: str) -> Topic | None:
        """Return the topic that has the name now, as far as was told."""
        return next((topic for topic in self.living() if topic.name == name), None)

    def send(self, batch: Batch) -> None:
        """Write down what is about to be sent."""
        with self.lock:
            for one in batch.ids:
                self.sent[one] = batch
            topic = self.topics.get(batch.topic_id)
            if batch.topic_id == BY_NAME:
                self.bytes_by_name[batch.name] += batch.size_bytes
            elif topic is not None:
                topic.partitions[batch.partition].batches.append(batch)

    def acknowledge(self, batch: Batch, base_offset: int) -> None:
        """Write down that it is there; ``base_offset`` -1: somewhere."""
        with self.lock:
            batch.call.answer(Verdict.OK)
            if base_offset >= 0 and batch.base_offset not in (-1, base_offset):
                what = f"{batch.ids[0]} for {batch.name}-{batch.partition} ({batch.topic_id})"
                self.problem(f"{what}: acknowledged at {batch.base_offset} and at {base_offset}")
            batch.base_offset = max(base_offset, batch.base_offset)
            self.counts["records acknowledged"] += len(batch.ids)
            if batch.topic_id == BY_NAME:
                self._place(batch)

    def _place(self, batch: Batch) -> None:
        """Give a batch that was sent by name to its topic, if it can be only one."""
        asked = Asked(batch.name, batch.call)
        for topic in self.topics.values():
            if topic.is_meant(asked):
                topic.partitions[batch.partition].batches.append(batch)

    def settle(self) -> None:
        """All that was asked is over: the process has died since, or all is quiet."""
        now = seconds()
        with self.lock:
            for call in self._open_calls():
                call.over = min(call.over, now)

    def _open_calls(self) -> Iterator[Call]:
        for asked in (*self.altered, *self.deleted, *self.grown):
            yield asked.call
        for commits in self.commits.values():
            for commit in commits:
                yield commit.call
        for topic in self.topics.values():
            for state in topic.partitions.values():
                for batch in state.batches:
                    yield batch.call

    def forget_dead(self) -> None:
        """Drop what is known of topics that are gone, but for their ids."""
        with self.lock:
            self.altered = self._kept(self.altered)
            self.deleted = self._kept(self.deleted)
            self.grown = self._kept(self.grown)
            for topic in self.topics.values():
                if topic.is_gone:
                    for state in topic.partitions.values():
                        for batch in state.batches:
                            for one in batch.ids:
                                self.sent.pop(one, None)
                    topic.partitions.clear()

    def _kept(self, requests: list[AskedT]) -> list[AskedT]:
        """Return those that may matter: not over, or maybe for a topic that is there."""
        there: dict[str, list[Topic]] = defaultdict(list)
        for topic in self.topics.values():
            if not topic.is_gone:
                there[topic.name].append(topic)
        return [
            one
            for one in requests
            if one.call.over == math.inf
            or one.name in self.creations
            or any(topic.may_be_meant(one) for topic in there[one.name])
        ]

    # -- what a topic's options may have been -------------------------------------------------

    def possible(self, topic: Topic, key: str, default: str) -> list[tuple[str, float, float]]:
        """Return each value that an option may have had, since when and until when at the most."""
        values = [(topic.configs.get(key, default), topic.created)]
        values += [
            (default if one.configs[key] is None else one.configs[key], one.call)
            for one in self.altered
            if key in one.configs and topic.may_be_meant(one)
        ]
        surely = [one.call for one in self.altered if key in one.configs and topic.is_meant(one)]
        return [
            (
                value,
                call.sent,
                min((later.over for later in surely if later.sent >= call.over), default=math.inf),
            )
            for value, call in values
        ]

    def asked_deletions(self, topic: Topic, partition: int) -> list[Deleted]:
        """Return the deletions of records that may have reached the partition."""
        return [
            one for one in self.deleted if one.partition == partition and topic.may_be_meant(one)
        ]

    def partition_bounds(self, topic: Topic) -> tuple[int, int]:
        """Return how many partitions the topic has, at the least and at the most."""
        least = most = topic.created_count
        for one in self.grown:
            if topic.is_meant(one):
                least = max(least, one.count)
            if topic.may_be_meant(one):
                most = max(most, one.count)
        return least, max(least, most)
