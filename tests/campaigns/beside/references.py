"""Stand for what each broker names in its own way: topic ids, producer ids, members.

A random request is made once, with references in it; each broker's ``Memory`` resolves them to what
that broker has said.
"""

import uuid
from typing import NamedTuple

from tools.wire_client import batch

UNKNOWN_ID = uuid.UUID(bytes=bytes(range(16)))


class TopicIdOf(NamedTuple):
    """The newest id of a topic that the broker has told; without one, an id that nobody has."""

    topic: str


class ProducerOf(NamedTuple):
    """A field of what a producer was told by InitProducerId last, ``plus`` so much."""

    producer: str
    field: str
    plus: int = 0


class MemberOf(NamedTuple):
    """A member id that a group has given out, by its number among those."""

    group: str
    number: int


class Session(NamedTuple):
    """The fetch session that the last answer has opened; 0 without one."""

    connection: str


class Batch(NamedTuple):
    """A record batch of a producer: its bytes are made when the producer's id is known."""

    fields: tuple[tuple[str, object], ...]


class Memory:
    """What one broker has told."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.producers: dict[str, tuple[int, int]] = {}
        self.members: dict[str, list[str]] = {}
        self.sessions: dict[str, int] = {}

    def resolve(self, value):
        """Return ``value`` with all references replaced, at any depth."""
        if isinstance(value, TopicIdOf):
            return self.topic_ids.get(value.topic, UNKNOWN_ID)
        if isinstance(value, ProducerOf):
            producer_id, epoch = self.producers.get(value.producer, (-1, -1))
            return (producer_id if value.field == "id" else epoch) + value.plus
        if isinstance(value, MemberOf):
            known = self.members.get(value.group) or [""]
            return known[value.number % len(known)]
        if isinstance(value, Session):
            return self.sessions.get(value.connection, 0)
        if isinstance(value, Batch):
            return batch(**{name: self.resolve(field) for name, field in value.fields})
        if isinstance(value, dict):
            return {name: self.resolve(field) for name, field in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolve(field) for field in value]
        return value
