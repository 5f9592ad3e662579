"""Fetch sessions: which partitions a client reads, and what it was last told of them (KIP-227).

Owns the sessions, their ids and epochs, which session ends when there are too many, and what an
incremental answer leaves out. A decider: does no I/O, is given the time, and knows neither logs nor
bytes of the wire. ``apis.fetch`` uses it, looks the topics up and reads.
Source: KIP-227, KIP-516 (topic ids); eviction as Kafka's for consumers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import ReferenceType, ref

from ottla.cluster.topics import TOPIC_NAME_LENGTH_MAX
from ottla.env.rng import Rng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT32_MAX, TopicId, TopicPartition, topic_id_text
from ottla.protocol.messages.fetch import FetchTopic, ForgottenTopic
from ottla.replication.fetch import INVALID_OFFSET, FetchedPartition, FetchSpec

if TYPE_CHECKING:
    from ottla.security.access import Access

NO_SESSION = 0
SESSION_EPOCH_FINAL = -1
"""Asks for one complete answer without a session; ends the session that the request names."""
SESSION_EPOCH_INITIAL = 0
"""Asks for a complete answer and a new session."""
EVICTION_SECONDS = 120
"""A session that was not used for so long gives way to any other. One that was in use for longer
than this gives way to one with at least as many partitions."""
REFUSED_MAX = 1_000
"""A session with more partitions that cannot be read ends, and its client names them all again.
Each request of a session looks these partitions up, and each answer names them."""

_NO_ERROR = ErrorCode.NONE
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INCONSISTENT_TOPIC_ID)
"""Named here because a member of an Enum is found ten times slower by its class."""

PartitionKey = tuple[str, TopicId, int]
"""The topic's name or, if the session uses them, its id; and the partition's index."""


class SessionPartition:
    """One partition that a session asks for."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "refusal", "spec")

    def __init__(self, key: PartitionKey, spec: FetchSpec) -> None:
        self.key = key
        self.spec = spec
        """Its topic id is None until this node was found to host the partition."""
        self.refusal: ErrorCode | None = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        """Why it cannot be read; None once this node was found to host it."""
        self.high_watermark = INVALID_OFFSET  # Use: as last told to the client; -1 after an error.
        self.log_start_offset = INVALID_OFFSET


class Plan(NamedTuple):
    """What a Fetch of the session reads now, in this order, and what it cannot read."""

    partitions: list[SessionPartition]
    specs: list[FetchSpec]
    """The specs of ``partitions``, in the same order."""
    refused: list[SessionPartition]


class FetchSession:
    """The partitions of one client, in the order in which they are read."""

    __slots__ = (
        "_allowed_at",
        "_allowed_for",
        "_has_impossible",
        "_partitions",
        "_plan",
        "counted",
        "created_seconds",
        "epoch",
        "session_id",
        "used_seconds",
        "uses_topic_ids",
    )

    def __init__(self, *, uses_topic_ids: bool) -> None:
        self.session_id = NO_SESSION
        self.epoch = 1
        """The epoch that the next request must carry."""
        self.uses_topic_ids = uses_topic_ids
        self.created_seconds = self.used_seconds = 0.0
        self.counted = 0
        """Use: what the cache counts for it. Invariant: its number of partitions at its last use.
        """
        self._partitions: dict[PartitionKey, SessionPartition] = {}
        self._plan: Plan | None = None
        self._has_impossible = False
        """Use: True when it names a topic by a name that is too long to exist."""
        self._allowed_for: ReferenceType[Access] | None = None
        self._allowed_at = 0
        """Use: for whom, and at which epoch of its ACLs, all that is read was allowed. Weak: a
        session may outlive its connection, whose decisions take memory."""

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]) -> None:
        """Add or change the partitions of ``topics``, and remove those of ``forgotten``."""
        partitions = self._partitions
        for topic in topics:
            self._has_impossible |= len(topic.topic) > TOPIC_NAME_LENGTH_MAX
            for part in topic.partitions:
                key = (topic.topic, topic.topic_id, part.partition)
                known = partitions.get(key)
                if known is None:
                    name = topic_id_text(topic.topic_id) if self.uses_topic_ids else topic.topic
                    where, meant = TopicPartition(name, part.partition), None
                else:
                    # The topic may have been made anew under its name; the offset is of the old.
                    where, meant = known.spec.topic_partition, known.spec.topic_id
                spec = FetchSpec(
                    where,
                    part.fetch_offset,
                    part.partition_max_bytes,
                    part.current_leader_epoch,
                    meant,
                    part.last_fetched_epoch,
                    self.uses_topic_ids,
                )
                if known is None:
                    partitions[key] = SessionPartition(key, spec)
                else:
                    known.spec = spec
                self._plan = None
        for gone in forgotten:
            for index in gone.partitions:
                if partitions.pop((gone.topic, gone.topic_id, index), None) is not None:
                    self._plan = None

    def plan(self) -> Plan:
        """Return what to read: the same object until something changes. Do not change it.

        So a session of a thousand idle partitions costs nothing to prepare.
        """
        if self._plan is None:
            reads = [part for part in self._partitions.values() if part.refusal is None]
            refused = [part for part in self._partitions.values() if part.refusal is not None]
            self._plan = Plan(reads, [part.spec for part in reads], refused)
        return self._plan

    def is_allowed_for(self, access: Access) -> bool:
        """Tell whether all that is read was allowed to this client, by the ACLs of now."""
        return (
            self._allowed_for is not None
            and self._allowed_for() is access
            and self._allowed_at == access.authorizer.epoch
        )

    def allow(self, access: Access, epoch: int) -> None:
        """Note that this client may read all that is read, by the ACLs of this epoch.

        What is refused is asked about with each request anyway.
        """
        self._allowed_for, self._allowed_at = ref(access), epoch

    def allow_nobody(self) -> None:
        """Have the next request ask about all partitions, whoever sends it."""
        self._allowed_for = None

    def forbid(self, partition: SessionPartition) -> None:
        """Note that the client may no longer read a partition."""
        partition.refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition.high_watermark = partition.log_start_offset = INVALID_OFFSET
        self._plan = None

    @property
    def is_not_kept(self) -> bool:
        """Whether the session must not be kept: too much of it cannot be read, or cannot exist.

        Each request would look these partitions up again, and impossible names may be very long.
        """
        return self._has_impossible or len(self.plan().refused) > REFUSED_MAX

    def found(self, partition: SessionPartition, where: TopicPartition, topic_id: TopicId) -> None:
        """Note that a refused partition is hosted here, as ``where`` of the topic ``topic_id``."""
        partition.refusal = None
        partition.spec = partition.spec._replace(topic_partition=where, topic_id=topic_id)
        self._plan = None

    def news(
        self, plan: Plan, fetched: Sequence[FetchedPartition]
    ) -> list[tuple[SessionPartition, FetchedPartition]]:
        """Return what an incremental answer must hold; ``fetched``: for ``plan``, in order.

        Data, errors, diverging epochs and preferred replicas are returned every time, other results
        when the high watermark or the log start offset has moved.
        """
        return [
            (partition, item)
            for partition, item in zip(plan.partitions, fetched, strict=True)
            if item.region is not None
            or item.code is not _NO_ERROR
            or item.diverging is not None
            or item.preferred is not None
            or item.high_watermark != partition.high_watermark
            or item.log_start_offset != partition.log_start_offset
        ]

    def note(self, news: Iterable[tuple[SessionPartition, FetchedPartition]]) -> None:
        """Note ``news`` as told to the client.

        A partition that had data is read last next time, so that a small ``max_bytes`` does not
        starve the others.
        """
        for partition, item in news:
            self._note(partition, item)
            if item.region is not None:
                self._partitions[partition.key] = self._partitions.pop(partition.key)
                self._plan = None

    def note_all(self, plan: Plan, fetched: Sequence[FetchedPartition]) -> None:
        """Note that a complete answer tells the client all of ``fetched``."""
        for partition, item in zip(plan.partitions, fetched, strict=True):
            self._note(partition, item)

    def _note(self, partition: SessionPartition, item: FetchedPartition) -> None:
        partition.high_watermark = item.high_watermark
        partition.log_start_offset = item.log_start_offset
        if item.code is not _NO_ERROR and item.code in _GONE:
            # The session's next request looks it up again.
            partition.refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._plan = None


class FetchSessionCache:
    """The sessions of a node, with a limit on their number and on their partitions."""

    def __init__(self, rng: Rng, *, slots: int, partitions_max: int) -> None:
        """Build an empty cache for ``slots`` sessions (0: none), ``partitions_max`` in all."""
        self._rng = rng
        self._slots = slots
        self._partitions_max = partitions_max
        self._sessions: dict[int, FetchSession] = {}  # Invariant: the longest unused comes first.
        self.partition_count = 0
        """Use: bounds memory. Invariant: the sum of the sessions' ``counted``."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession:
        """Return the session that an incremental request continues.

        Raises KafkaError when there is none, or the epoch or the use of topic ids does not match.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids is not uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def advance(self, session: FetchSession, now_seconds: float) -> None:
        """Note that ``session`` was updated by a request, and expect the next epoch.

        If it has outgrown the cache: ends it and raises KafkaError(FETCH_SESSION_ID_NOT_FOUND).
        """
        session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        self.partition_count += len(session) - session.counted
        session.counted = len(session)
        if self.partition_count > self._partitions_max:
            self.remove(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.used_seconds = now_seconds
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def add(self, session: FetchSession, now_seconds: float) -> None:
        """Keep ``session`` and give it an id, if there is room or others can be evicted for it.

        Else its id stays ``NO_SESSION``.
        """
        while not self._has_room(session) and self._evict_for(session, now_seconds):
            pass
        if self._has_room(session) and not session.is_not_kept:
            session.session_id = self._new_id()
            session.created_seconds = session.used_seconds = now_seconds
            session.counted = len(session)
            self.partition_count += session.counted
            self._sessions[session.session_id] = session

    def remove(self, session_id: int) -> None:
        """End a session. Harmless when there is none with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.counted

    def _has_room(self, session: FetchSession) -> bool:
        return (
            len(self._sessions) < self._slots
            and self.partition_count + len(session) <= self._partitions_max
        )

    def _evict_for(self, session: FetchSession, now_seconds: float) -> bool:
        """End one session to make room for ``session``; False when none may be ended.

        That is the longest unused one, if it was unused for ``EVICTION_SECONDS``; else the smallest
        of those in use for longer than that, if it is not larger than ``session``.
        """
        if not self._sessions or len(session) > self._partitions_max:
            return False
        victim = next(iter(self._sessions.values()))
        if now_seconds - victim.used_seconds <= EVICTION_SECONDS:
            old = [
                other
                for other in self._sessions.values()
                if other.used_seconds - other.created_seconds > EVICTION_SECONDS
            ]
            if not old:
                return False
            victim = min(old, key=lambda other: (other.counted, other.session_id))
            if victim.counted > len(session):
                return False
        self.remove(victim.session_id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._rng.random_below(INT32_MAX)
            if session_id not in self._sessions:
                return session_id
