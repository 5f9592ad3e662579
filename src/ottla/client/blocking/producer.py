"""Sends closed record batches from one thread: pipelined, retried, in order. Every call blocks.

For Spark's executors, beside ``blocking``. Owns the connections to the leaders, what is in flight
on each, and the limits: requests in flight, bytes not acknowledged, time. What an answer means for
a batch is decided in ``lanes``. The caller encodes the next batch while the last ones are on their
way: ``send`` waits only when the buffer is full. One batch that cannot be written ends the
producer: the error is raised, and nothing more is sent. Knows no records.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.wire.backoff import pause_ms
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.lanes import Lane, OutgoingBatch, Verdict, Written, failure
from ottla.client.wire.sending import (
    LAST_VERSION_BY_NAME,
    NO_IDENTITY,
    Appended,
    ProducerIdentity,
    init_producer_request,
    produce_request,
    produce_version_limit,
    read_init_producer,
    read_produce,
)
from ottla.client.wire.settings import Address, ClientSettings
from ottla.client.wire.view import ClusterView, TopicView
from ottla.env.blocking import BlockingClock
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.produce import ProduceResponse
from ottla.records.batch import read_header
from ottla.records.builder import build_batch
from ottla.records.decode import decode_batches

LAST_VERSION_BEFORE_IMPLICIT = 11
"""The last version of Produce that does not add its partitions to the transaction by itself."""
JOINED_MAX = 1_000
"""Partitions that are added to a transaction by one request."""
DECOMPRESSED_BYTES_MAX = 512 << 20
"""What a batch of our own may decompress to when it is split."""
_HOPELESS = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Errors on the way to a leader that no further try cures."""


@dataclass(frozen=True, slots=True)
class SendingSettings:
    """How batches are sent. ``acks``: -1 all in-sync replicas, 1 the leader, 0 no answer."""

    acks: int = -1
    is_idempotent: bool = True
    """A retry never writes twice. Needs acks=-1; without effect otherwise."""
    in_flight_max: int = 5
    """Requests without an answer, per broker."""
    request_bytes: int = 1 << 20
    """Batches beyond this go with another request. One larger batch goes alone."""
    gathered_bytes: int = 256 << 10
    """Small batches wait for ``flush``, or until they have so many bytes: fewer requests."""
    buffer_bytes: int = 32 << 20
    """Of batches not acknowledged; ``send`` waits beyond."""
    delivery_timeout_ms: int = 120_000
    """From ``send`` to the last try."""
    metadata_timeout_ms: int = 10_000
    """For a topic's partitions to become known, its creation included."""
    may_create_topics: bool = True


@dataclass(slots=True)
class _Request:
    """A Produce request that was sent."""

    batches: list[tuple[Lane, OutgoingBatch]]
    view: ClusterView
    number: int


@dataclass(slots=True)
class _Link:
    """The connection to one leader, and what is in flight on it, oldest first."""

    connection: BlockingConnection
    requests: deque[_Request] = field(default_factory=deque)


class BlockingProducer:
    """Use as a context manager, or ``close`` it; ``flush`` before, or what is in flight is lost."""

    def __init__(
        self,
        client: BlockingClient,
        client_settings: ClientSettings,
        settings: SendingSettings | None = None,
        identity: ProducerIdentity | None = None,
        *,
        done: Callable[[OutgoingBatch], None] | None = None,
        clock: BlockingClock | None = None,
        connect: Callable[[Address, ClientSettings], BlockingConnection] = BlockingConnection,
    ) -> None:
        """Connect later, when there is something to send.

        ``identity``: given by a transaction's owner, its epoch fresh (no partition was written in
        it); None takes one of its own when the settings want one. ``done`` is called with each
        batch that was written: its buffer is free.
        """
        self._client = client
        self._coordinators = BlockingCoordinators(client)
        self._client_settings = client_settings
        self._settings = settings or SendingSettings()
        self._identity = identity
        self._done = done
        self._clock = clock or BlockingClock()
        self._connect = connect
        self._view = ClusterView()
        self._is_stale = False
        self._lanes: dict[TopicPartition, Lane] = {}
        self._busy: dict[TopicPartition, Lane] = {}
        """The lanes that are not done; the one that was served last is last."""
        self._links: dict[int, _Link] = {}
        self._request_count = 0
        self._smallest_refused_bytes: int | None = None
        self._buffered_bytes = 0
        self._gathered_bytes = 0
        """Taken since anything was sent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def written(self) -> dict[TopicPartition, Written]:
        """What was acknowledged so far, by partition."""
        return {
            each: lane.written for each, lane in self._lanes.items() if lane.written.record_count
        }

    @property
    def smallest_refused_bytes(self) -> int | None:
        """The size of the smallest batch that a broker found too large and that was split."""
        return self._smallest_refused_bytes

    def topic(self, name: str, *, again: bool = False) -> TopicView:
        """Return the topic's partitions, asking the cluster when they are not known, or ``again``.

        The broker may create it, if it and the settings allow. Raises KafkaError
        UNKNOWN_TOPIC_OR_PARTITION after ``metadata_timeout_ms``.
        """
        if again or not self._knows(name):
            self._find([name])
        return self._view.topic(name)

    def join(self, partitions: Collection[TopicPartition]) -> None:
        """Find these partitions, and have them in the transaction before anything is sent.

        One request for all; ``send`` alone finds them one by one. Raises as ``topic`` does.
        """
        self._find(name for name in {each.topic for each in partitions} if not self._knows(name))
        lanes = [self._lanes.get(each) or self._open_lane(each) for each in sorted(partitions)]
        for start in range(0, len(lanes), JOINED_MAX):
            self._join_transaction(lanes[start : start + JOINED_MAX])

    def _knows(self, name: str) -> bool:
        found = self._view.topics.get(name)
        return found is not None and not found.error

    def _find(self, names: Iterable[str]) -> None:
        """Ask until these topics are there, or the time for that is over."""
        names = set(names)

        def attempt() -> None:
            wanted = names | self._view.topics.keys()
            self._view = self._client.look_up(wanted, create=self._settings.may_create_topics)
            for each in names:
                self._view.topic(each)

        if names:
            self._client.retrying(attempt, timeout_ms=self._settings.metadata_timeout_ms)

    def send(self, partition: TopicPartition, data: bytearray, size_bytes: int) -> None:
        """Send the batch in the first ``size_bytes`` of ``data``, which is not to be touched again.

        Its header is complete but for the producer's fields and the sum. Waits while more than
        ``buffer_bytes`` are not acknowledged; small batches wait for others, or for ``flush``.
        Raises KafkaError, ConnectionFailed: a batch, not necessarily this one, cannot be written.
        """
        lane = self._lanes.get(partition) or self._open_lane(partition)
        batch = OutgoingBatch(
            data,
            size_bytes,
            read_header(data).record_count,
            self._clock.monotonic() + self._settings.delivery_timeout_ms / 1000,
        )
        lane.add(batch)
        self._busy[partition] = lane
        self._buffered_bytes += size_bytes
        self._gathered_bytes += size_bytes
        is_full = self._buffered_bytes > self._settings.buffer_bytes
        if self._gathered_bytes < self._settings.gathered_bytes and not is_full:
            return
        self._gathered_bytes = 0
        self._advance()
        while self._buffered_bytes > self._settings.buffer_bytes:
            self._wait()

    def flush(self) -> None:
        """Wait until every batch is written. Raises as ``send`` does."""
        self._advance()
        while self._busy:
            self._wait()

    def hand_over(self) -> tuple[list[BlockingConnection], ProducerIdentity | None]:
        """Give the connections, and the highest epoch written in, to who goes on; all is written.

        Call it after ``flush`` and instead of ``close``. None: nothing was written, or unnumbered.
        """
        assert not self._busy, "batches are on their way"
        connections = [link.connection for link in self._links.values()]
        self._links.clear()
        used = [lane.identity for lane in self._lanes.values() if lane.is_idempotent]
        return connections, max(used, key=lambda each: each.epoch, default=None)

    def close(self) -> None:
        """Close the connections to the leaders. Harmless when closed already."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    def _open_lane(self, partition: TopicPartition) -> Lane:
        if self._identity is None:
            wants_one = self._settings.is_idempotent and self._settings.acks == -1
            self._identity = self._new_identity() if wants_one else NO_IDENTITY
        is_numbered = self._identity.producer_id >= 0
        lane = Lane(partition, self._identity, self._settings.in_flight_max if is_numbered else 1)
        self._lanes[partition] = lane
        return lane

    def _new_identity(self) -> ProducerIdentity:
        def attempt() -> ProducerIdentity:
            answer = self._client.any().call(init_producer_request(), InitProducerIdResponse)
            return read_init_producer(answer)

        return self._client.retrying(attempt)

    # -- sending -----------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Take the answers that are there, then send what may be sent; wait for nothing."""
        for node, link in list(self._links.items()):
            while link.requests and link.connection.has_answer:
                self._receive(node, link)
        now = self._clock.monotonic()
        ready = [lane for lane in self._busy.values() if lane.may_send(now)]
        if not ready:
            return
        if self._is_stale:
            self._renew_view()
        self._join_transaction(ready)
        by_leader: dict[int, list[Lane]] = {}
        for lane in ready:
            try:
                leader = self._view.partition(*lane.partition).leader
            except KafkaError as error:
                self._hold(lane, error)
            else:
                by_leader.setdefault(leader, []).append(lane)
        for node, lanes in by_leader.items():
            self._send_to(node, lanes)

    def _send_to(self, node: int, lanes: list[Lane]) -> None:
        """Send one leader what these lanes have, as far as it may be in flight."""
        try:
            link = self._links.get(node) or self._open_link(node)
        except (KafkaError, ConnectionFailed) as error:
            for lane in lanes:
                self._hold(lane, error)
            return
        while len(link.requests) < self._settings.in_flight_max:
            batches = self._fill_request(lanes)
            if not batches:
                return
            try:
                self._produce(link, batches)
            except (KafkaError, ConnectionFailed) as error:
                link.requests.append(_Request(batches, self._view, self._request_count))
                self._lose(node, link, error)
                return

    def _fill_request(self, lanes: list[Lane]) -> list[tuple[Lane, OutgoingBatch]]:
        """Take one batch of each lane that may send, as long as a request has room."""
        now = self._clock.monotonic()
        batches: list[tuple[Lane, OutgoingBatch]] = []
        size_bytes = 0
        for lane in list(lanes):
            if not lane.may_send(now):
                continue
            size_bytes += lane.waiting[0].size_bytes
            if batches and size_bytes > self._settings.request_bytes:
                break
            batches.append((lane, lane.take()))
            lanes.remove(lane)
            lanes.append(lane)  # the others come first next time
        return batches

    def _produce(self, link: _Link, batches: list[tuple[Lane, OutgoingBatch]]) -> None:
        settings, view = self._settings, self._view
        records = {lane.partition: batch.view for lane, batch in batches}
        identity = self._identity or NO_IDENTITY
        highest = produce_version_limit(view, records) or LAST_VERSION_BY_NAME + 1
        if identity.transactional_id is not None and identity.transaction_version < 2:
            highest = min(highest, LAST_VERSION_BEFORE_IMPLICIT)
        request = produce_request(
            view,
            records,
            settings.acks,
            self._client_settings.request_timeout_ms,
            identity.transactional_id,
        )
        if settings.acks == 0:
            link.connection.send(request, None, highest=highest)
            nothing = Appended(ErrorCode.NONE, -1, -1, "")
            for lane, batch in batches:
                self._take_answer(lane, batch, nothing)
            return
        link.connection.send(request, ProduceResponse, highest=highest)
        self._request_count += 1
        link.requests.append(_Request(batches, view, self._request_count))

    def _open_link(self, node: int) -> _Link:
        address = self._view.brokers.get(node)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not alive")
        link = _Link(self._connect(address, self._client_settings))
        self._links[node] = link
        return link

    def _join_transaction(self, lanes: Iterable[Lane]) -> None:
        """Have the coordinator add these partitions to the transaction, where requests do not."""
        identity = self._identity or NO_IDENTITY
        if identity.transactional_id is None or identity.transaction_version >= 2:
            return
        fresh = [lane for lane in lanes if not lane.is_in_transaction]
        if fresh:
            partitions = [lane.partition for lane in fresh]
            self._coordinators.add_partitions(identity, partitions)
        for lane in fresh:
            lane.is_in_transaction = True

    def _renew_view(self) -> None:
        """Ask once who leads; when no broker answers, the lanes find that out for themselves."""
        try:
            self._view = self._client.look_up(self._view.topics)
            self._is_stale = False
        except (KafkaError, ConnectionFailed) as error:
            self._client.forget(error)

    # -- answers -----------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for the oldest answer, or for the end of the shortest pause; then go on."""
        waited_for = [(node, link) for node, link in self._links.items() if link.requests]
        if waited_for:
            node, link = min(waited_for, key=lambda each: each[1].requests[0].number)
            self._receive(node, link)
        else:
            retry_at = min((lane.retry_at for lane in self._busy.values()), default=0.0)
            self._clock.sleep(max(0.0, retry_at - self._clock.monotonic()))
        self._advance()

    def _receive(self, node: int, link: _Link) -> None:
        request = link.requests[0]
        try:
            answer = link.connection.receive()
            assert isinstance(answer, ProduceResponse)
            appended = read_produce(request.view, answer)
        except (KafkaError, ConnectionFailed) as error:
            self._lose(node, link, error)
            return
        link.requests.popleft()
        for lane, batch in request.batches:
            unanswered = Appended(
                ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, "the answer is without it"
            )
            self._take_answer(lane, batch, appended.get(lane.partition, unanswered))

    def _lose(self, node: int, link: _Link, error: KafkaError | ConnectionFailed) -> None:
        """Close a connection; what was in flight on it comes back: it may have been written."""
        link.connection.close()
        self._links.pop(node, None)
        lost = list(link.requests)
        link.requests.clear()  # whoever goes through this link's requests is done with them
        for request in lost:
            for lane, batch in request.batches:
                lane.put_back(batch, error)
        for request in lost:
            for lane, _ in request.batches:
                if lane.is_back:
                    self._hold(lane, error)

    def _take_answer(self, lane: Lane, batch: OutgoingBatch, appended: Appended) -> None:
        verdict = lane.judge(batch, appended.error)
        if verdict is Verdict.WRITTEN:
            lane.succeed(batch, appended.base_offset)
            self._release(lane, batch)
        else:
            self._take_refusal(lane, batch, verdict, failure(lane.partition, appended))
        if lane.is_back and lane.error is not None and not lane.goes_on():
            self._hold(lane, lane.error)

    def _take_refusal(
        self, lane: Lane, batch: OutgoingBatch, verdict: Verdict, error: KafkaError
    ) -> None:
        match verdict:
            case Verdict.AGAIN:
                lane.put_back(batch, error)
            case Verdict.NEXT_EPOCH:
                lane.put_back(batch, error, next_epoch=True)
            case Verdict.SPLIT:
                self._split(lane, batch, error)
            case Verdict.LOST:
                raise _named(batch, error)

    def _release(self, lane: Lane, batch: OutgoingBatch) -> None:
        self._buffered_bytes -= batch.size_bytes
        if lane.is_done:
            self._busy.pop(lane.partition, None)
        if self._done is not None:
            self._done(batch)

    def _hold(self, lane: Lane, error: OttlaError) -> None:
        """Let a lane try again after a pause, or raise: it cannot, or its time is up."""
        if isinstance(error, KafkaError) and error.code in _HOPELESS:
            raise error
        now = self._clock.monotonic()
        lane.pause(now + pause_ms(self._client_settings, lane.try_count) / 1000)
        self._is_stale = True
        if lane.waiting and lane.waiting[0].deadline <= now:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.REQUEST_TIMED_OUT
            limit = self._settings.delivery_timeout_ms
            why = f"{lane.partition}: not written within {limit} ms, after {lane.try_count} tries"
            raise KafkaError(code, f"{why}; the last one met: {error}") from error

    def _split(self, lane: Lane, batch: OutgoingBatch, error: OttlaError) -> None:
        """Put parts in the place of a batch that the broker finds too large.

        Two halves, or as many as have half of what was refused so far: a topic that takes little
        refuses each large batch once, not at each halving.
        """
        (decoded,) = decode_batches(batch.view, DECOMPRESSED_BYTES_MAX)
        refused = min(self._smallest_refused_bytes or batch.size_bytes, batch.size_bytes)
        all_of_them = decoded.records
        count = min(max(2, -(-2 * batch.size_bytes // refused)), len(all_of_them))
        bounds = [len(all_of_them) * number // count for number in range(count + 1)]
        parts = []
        for records in (all_of_them[start:end] for start, end in pairwise(bounds)):
            data = build_batch(
                records,
                codec=decoded.header.codec,
                transactional=decoded.header.is_transactional,
            )
            parts.append(OutgoingBatch(data, len(data), len(records), batch.deadline))
        lane.put_back_split(batch, error, parts)
        self._buffered_bytes += sum(part.size_bytes for part in parts) - batch.size_bytes
        self._smallest_refused_bytes = refused
        if self._done is not None:
            self._done(batch)


def _named(batch: OutgoingBatch, error: KafkaError) -> KafkaError:
    """Return ``error``, naming the record when a single one was found too large."""
    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
        return error
    (decoded,) = decode_batches(batch.view, DECOMPRESSED_BYTES_MAX)
    (record,) = decoded.records
    what = describe_row(record.key, record.value)
    return KafkaError(error.code, f"{error.why}: {what}, {batch.size_bytes} bytes as a batch")


def describe_row(key: bytes | None, value: bytes | None) -> str:
    """Return a few words that find a record again: the beginning of its key, and its sizes."""
    size = "no value" if value is None else f"a value of {len(value)} bytes"
    if key is None:
        return f"a record without key and with {size}"
    start = repr(bytes(key[:40])) + ("..." if len(key) > 40 else "")
    return f"the record with key {start} ({len(key)} bytes) and {size}"
