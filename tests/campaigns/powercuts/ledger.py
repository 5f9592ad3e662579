"""What was sent, acknowledged, seen and deleted; and the judgement over what a restart found.

Pure: knows no sockets and no files. One writer per partition sends its batches one behind the
other, so a batch has one right place, known before it is sent: the offset behind its predecessor.
A found log is right if, batch for batch and byte for byte, it is a prefix of what was sent that
ends not before what was acknowledged or seen, and starts where a deletion put it.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from tools.wire_client import records_of


class SentBatch(NamedTuple):
    """A batch as its producer made it. ``crc`` covers all that a broker leaves alone."""

    base_offset: int
    crc: int
    payload: bytes
    data: bytes
    records: list[tuple[bytes | None, bytes | None]]
    """Keys and values."""
    producer_id: int = -1
    attributes: int = 0

    @property
    def count(self) -> int:
        """How many records, and offsets."""
        return len(self.records)

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.base_offset + self.count


@dataclass(slots=True)
class PartitionLedger:
    """One partition's history, from its only writer's view."""

    name: str
    producer_id: int
    batches: list[SentBatch] = field(default_factory=list)
    """Invariant: each begins where the one before ends."""
    acked_end: int = 0
    """Exclusive: all below was acknowledged."""
    seen_end: int = 0
    """Exclusive: a consumer has read all below."""
    deleted_to: int = 0
    """The log start offset that is promised: nothing below comes back."""
    asked_to: int = 0
    """The log start offset may have come so far."""
    next_sequence: int = 0
    is_synced: bool = True
    """Whether an acknowledgement means fsynced (``flush.messages=1``)."""
    is_compacted: bool = False
    """Whether only the last record of each key is promised."""
    is_transactional: bool = False
    """Whether its batches are those of transactions, and of their coordinator."""

    def power_was_cut(self) -> None:
        """Withdraw what was promised for the death of the process only."""
        if not self.is_synced:
            self.acked_end = self.seen_end = self.deleted_to

    @property
    def sent_end(self) -> int:
        """Exclusive: offsets below may be there."""
        return self.batches[-1].end_offset if self.batches else 0

    def judge(self, start: int, end: int, found: list[dict[str, Any]]) -> list[str]:
        """Compare ``[start, end)`` and the batches read in it with what should be there."""
        judged = self._judge_compacted if self.is_compacted else self._judge_batches
        return self._judge_bounds(start, end) + judged(start, end, found)

    def _judge_bounds(self, start: int, end: int) -> list[str]:
        problems = []
        if not self.deleted_to <= start <= self.asked_to:
            why = f"deleted to {self.deleted_to}, asked to {self.asked_to}"
            problems.append(f"{self.name} starts at {start}: {why}")
        if end < max(self.acked_end, self.seen_end):
            why = f"acknowledged to {self.acked_end}, seen to {self.seen_end}"
            problems.append(f"{self.name} lost records: it ends at {end}, {why}")
        if end > self.sent_end:
            problems.append(f"{self.name} ends at {end}, {self.sent_end} was sent: phantoms")
        if end not in {0, *(one.end_offset for one in self.batches)}:
            problems.append(f"{self.name} ends at {end}, inside of a batch")
        return problems

    def _judge_batches(self, start: int, end: int, found: list[dict[str, Any]]) -> list[str]:
        """Every batch is there, byte for byte."""
        problems = []
        expected = [one for one in self.batches if start < one.end_offset <= end]
        if len(found) != len(expected):
            problems.append(f"{self.name}: {len(found)} batches are not {len(expected)}")
        for one, header in zip(expected, found, strict=False):
            if not header["crc_ok"]:
                problems.append(f"{self.name}@{header['base_offset']}: bad checksum")
            right = (one.base_offset, one.crc, one.payload)
            if (header["base_offset"], header["crc"], header["payload"]) != right:
                at = f"{self.name}@{one.base_offset}"
                problems.append(f"{at}: found another batch, {header['base_offset']}")
        return problems

    def _judge_compacted(self, start: int, end: int, found: list[dict[str, Any]]) -> list[str]:
        """The last record of each key is there, or it is a tombstone and all of the key is gone."""
        problems = [
            f"{self.name}@{header['base_offset']}: bad checksum"
            for header in found
            if not header["crc_ok"]
        ]
        sent = {
            one.base_offset + delta: record
            for one in self.batches
            for delta, record in enumerate(one.records)
        }
        # Of transactions the committed records are judged: aborted ones go, and markers.
        upper = start if self.is_transactional else min(end, self.sent_end)
        last = {sent[at][0]: at for at in range(start, upper)}
        seen: dict[bytes | None, int] = {}
        before = -1
        for offset, key, value in (one for header in found for one in records_of(header)):
            if offset <= before or sent.get(offset) != (key, value):
                problems.append(f"{self.name}@{offset}: {key!r}={value!r} was not sent so")
            before, seen[key] = offset, offset
        for key, offset in last.items():
            is_deleted = sent[offset][1] is None
            if seen.get(key) != offset and not (is_deleted and key not in seen):
                problems.append(f"{self.name}: {key!r} is {seen.get(key)}, its last is {offset}")
        return problems

    def forget_lost(self) -> None:
        """Drop what was sent, not acknowledged, and is not there: nobody will send it again."""
        self.batches = [one for one in self.batches if one.end_offset <= self.seen_end]

    def settle(self, start: int, end: int) -> list[SentBatch]:
        """Take what was found as the truth that must hold; return the batches that are not there.

        A consumer may have seen it now, so it must never change again.
        """
        self.seen_end = max(self.seen_end, end)
        self.deleted_to = max(self.deleted_to, start)
        return [one for one in self.batches if one.end_offset > end]


class TopicState(Enum):
    """What the client knows of a topic."""

    CREATING = "asked for"
    PRESENT = "acknowledged"
    DELETING = "asked to go"
    GONE = "its going acknowledged"


@dataclass(slots=True)
class TopicLedger:
    """One incarnation of a topic."""

    name: str
    partitions: list[PartitionLedger]
    state: TopicState = TopicState.CREATING
    topic_id: Any = None
    configs: list[dict[str, str]] = field(default_factory=list)
    """The configs that may hold: the last acknowledged, then those asked for since."""


@dataclass(slots=True)
class Ledger:
    """All topics ever, and producer ids given out."""

    topics: list[TopicLedger] = field(default_factory=list)
    producer_ids: set[int] = field(default_factory=set)
    offsets: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)
    """By group, topic and partition: what may be committed, the last acknowledged first."""

    def judge_topics(self, found: dict[str, Any]) -> list[str]:
        """Compare the topics found (name to id) with what clients were told. Settles them."""
        problems = []
        known: dict[str, list[TopicLedger]] = {}
        for topic in self.topics:
            known.setdefault(topic.name, []).append(topic)
        for name, topic_id in found.items():
            if name.startswith("__"):
                continue  # The node's own.
            if name not in known:
                problems.append(f"a topic {name} that nobody made")
                continue
            newest = known[name][-1]
            if newest.state is TopicState.GONE:
                problems.append(f"topic {name} came back")
            elif newest.state is TopicState.CREATING:
                newest.state, newest.topic_id = TopicState.PRESENT, topic_id
            elif newest.topic_id != topic_id:
                problems.append(f"topic {name} has another id")
        for name, incarnations in known.items():
            if name not in found:
                newest = incarnations[-1]
                if newest.state is TopicState.PRESENT:
                    problems.append(f"topic {name} is gone")
                newest.state = TopicState.GONE
        return problems

    @property
    def present(self) -> list[TopicLedger]:
        """Topics that are there, or may be."""
        return [topic for topic in self.topics if topic.state is not TopicState.GONE]
