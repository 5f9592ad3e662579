"""Holds clients to their quotas: counts each request, throttles its answer, mutes its connection.

Owns what is counted when. The bytes of a Produce count when it comes in, those of a Fetch before it
is answered; a throttled Fetch is answered without records, and its bytes do not count. The time
that the loop spends on a request counts when its answer is ready, in percent of the loop. Of all
throttle times of a request the largest is told and the connection muted for it, at once.
Source: KIP-13, KIP-124, KIP-219, KIP-599; the answers of a live Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.client import Client
from ottla.handlers.fetch_size import ONE_PARTITION_BYTES, answer_bytes
from ottla.handlers.gate import Asked, Passage
from ottla.ids import NODE_KIND, STRANGER, QuotaEntity
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.messages.fetch import TOPIC_IDS_SINCE
from ottla.quota.clients import ClientQuotas, Meters
from ottla.quota.meter import Entry, FetchMeter, Held, client_id_of
from ottla.quota.rate import Windows
from ottla.replication.fetch import FetchedPartition

_PRODUCE = int(ApiKey.PRODUCE)
_PRODUCE_FLEXIBLE_SINCE = API_TABLE[ApiKey.PRODUCE].flexible_from or 0
_VERSION_AT = 3
_CLIENT_ID_AT = 10
"""Where a request's version (its low byte) and the bytes of its client id stand."""
_PERCENT = 100.0
_MS = 1000.0
"""Milliseconds of a second: a fraction, because times are."""
_OF_NODES = frozenset({ApiKey.WRITE_TXN_MARKERS})
"""Requests that nodes send each other; who may send them is not throttled for time, who is refused
is, as in Kafka."""
_MUTATIONS = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.METADATA}
)


class _FetchCounted(FetchMeter, Passage):
    """Any Fetch of a client with a quota of bytes but none of time. It keeps nothing of one."""

    __slots__ = ("_clock", "_meters", "counts_answer", "fetch_bytes_max")

    def __init__(self, clock: Clock, meters: Meters) -> None:
        assert meters.fetch is not None, "that is what it counts"
        super().__init__(
            meters.fetch,
            clock.monotonic,
            usual_bytes=ONE_PARTITION_BYTES,
            ids_since=TOPIC_IDS_SINCE,
        )
        self._clock = clock
        self._meters = meters
        self.counts_answer = False  # Here, where it is found faster than in the class.
        self.fetch_bytes_max = meters.fetch_bytes_max

    def charge(self, call: Asked, fetched: Sequence[FetchedPartition]) -> int:
        """Charge the bytes of a Fetch; take them back, and mute, if it has to wait."""
        meter = self._meters.fetch
        assert meter is not None, "that is what it counts"
        size_bytes = answer_bytes(call.api_version, fetched)
        now_ms = int(self._clock.monotonic() * _MS)
        throttle_ms = meter.charge(size_bytes, now_ms)
        if throttle_ms:
            meter.note(-size_bytes, now_ms)
            _mute(call.client, throttle_ms)
        return throttle_ms


class Quotas:
    """The quotas of all clients, at the gate."""

    def __init__(self, windows: Windows, controller_windows: Windows, clock: Clock) -> None:
        self._clients = ClientQuotas(windows, controller_windows, self._held)
        self._found = self._clients.found
        self._clock = clock
        self._now = clock.monotonic
        self._entry = Entry(
            self._found,
            clock.monotonic,
            self._look_up,
            self._counted,
            flexible_since=_PRODUCE_FLEXIBLE_SINCE,
        )
        self.admit = self._entry.admit
        """Lets a request in; see ``gate.Admit``. No quota holds for nodes of the cluster, nor for
        who has still to log in: it would be that of somebody else, whom the client id names."""

    def __len__(self) -> int:
        return len(self._clients)

    def change(self, changes: Iterable[tuple[QuotaEntity, Mapping[str, float]]]) -> None:
        """Set the quotas of some entities; an empty mapping removes them."""
        for entity, values in changes:
            self._clients.change(entity, values)
        self._entry.ask_client_id(asked=self._clients.asks_client_id)

    def _look_up(self, client: Client, frame: memoryview, client_id_bytes: int) -> Held | None:
        if client.principal.kind == NODE_KIND or client.principal == STRANGER:
            return None
        asks = self._clients.asks_client_id
        name = client_id_of(frame, client_id_bytes) if asks else None
        return self._clients.of(client.principal, name, int(self._now() * _MS))

    def _held(self, meters: Meters) -> Held:
        if meters.request is not None:
            return Held(None, None, meters)  # Time counts, too: each request has its own passage.
        fetch = None if meters.fetch is None else _FetchCounted(self._clock, meters)
        return Held(fetch, meters.produce, meters)

    def _counted(
        self, key: int, frame: memoryview, client: Client, client_id_bytes: int, meters: Meters
    ) -> Passage | None:
        """Let in what is not surely within the quotas of bytes, or counts otherwise."""
        now, throttle_ms = self._now(), 0
        if key == _PRODUCE:
            if meters.produce is not None:
                # A client id that does not fit into the frame takes nothing back.
                body_bytes = max(_body_bytes(frame, client_id_bytes), 0)
                throttle_ms = meters.produce.charge(body_bytes, int(now * _MS))
                if throttle_ms:
                    _mute(client, throttle_ms)
            is_counted = throttle_ms > 0
        else:
            is_counted = key in _MUTATIONS and meters.mutation is not None
        if not is_counted and meters.request is None:
            return None
        return _Counted(self._clock, client, meters, key=key, throttle_ms=throttle_ms, now=now)


def _body_bytes(frame: memoryview, client_id_bytes: int) -> int:
    """Return the bytes of a Produce behind its header; negative if its client id is no such one."""
    # Behind the header of a flexible version stands an empty set of tags.
    tags_bytes = 1 if frame[_VERSION_AT] >= _PRODUCE_FLEXIBLE_SINCE else 0
    return len(frame) - _CLIENT_ID_AT - max(client_id_bytes, 0) - tags_bytes


class _Counted(Passage):
    """A request of a client that has a quota."""

    __slots__ = (
        *("_client", "_clock", "_is_charged", "_is_free", "_meters", "_mutates"),
        *("_running_since", "_spent_seconds", "_throttle_ms"),
    )

    def __init__(
        self,
        clock: Clock,
        client: Client,
        meters: Meters,
        *,
        key: int,
        throttle_ms: int,
        now: float,
    ) -> None:
        self._clock = clock
        self._client = client
        self._is_free = key in _OF_NODES and (
            client.access is None or client.access.may_write_markers(quiet=True)
        )
        """Use: of time."""
        self._meters = meters
        self._throttle_ms = throttle_ms
        self._running_since = now if meters.request is not None else None
        """Use: None while it waits, and always when time does not count."""
        self._spent_seconds = 0.0
        """Use: of the loop, and not charged yet."""
        self._is_charged = False
        self._mutates = False
        """Use: whether it waits for partitions. As in Kafka, a request that is refused if there is
        no room does not wait for those that it was given."""

    @property
    def fetch_bytes_max(self) -> int | None:  # type: ignore[override]
        """The most bytes that a Fetch may read; None: any number."""
        return self._meters.fetch_bytes_max

    def waits(self) -> None:
        """Stop the time."""
        if self._running_since is not None:
            self._spent_seconds += self._clock.monotonic() - self._running_since
            self._running_since = None

    def goes_on(self) -> None:
        """Let the time run."""
        if self._running_since is None and self._meters.request is not None:
            self._running_since = self._clock.monotonic()

    def answered(self, *, has_answer: bool = True) -> int:
        """Charge the time so far; return the largest throttle time, and mute the connection."""
        throttle_ms, mutation = self._throttle_ms, self._meters.mutation
        if self._meters.request is not None:
            now = self._clock.monotonic()
            throttle_ms = max(throttle_ms, self._charge_time(now, is_checked=has_answer))
        if self._mutates and mutation is not None:
            now = self._clock.monotonic()
            throttle_ms = max(throttle_ms, mutation.wait_ms(int(now * 1000)))
        if throttle_ms:  # A Produce is muted since it came in; its time runs from the answer on.
            _mute(self._client, throttle_ms)
        return throttle_ms

    def _charge_time(self, now: float, *, is_checked: bool) -> int:
        """Charge the time so far, once; return the throttle time for it."""
        meter = self._meters.request
        if meter is None or self._is_charged or self._is_free:
            return 0
        if self._running_since is not None:
            self._spent_seconds += now - self._running_since
            self._running_since = now
        percent, self._spent_seconds = self._spent_seconds * _PERCENT, 0.0
        self._is_charged = True
        if is_checked:
            return meter.charge(percent, int(now * 1000))
        meter.note(percent, int(now * 1000))
        return 0

    def left(self) -> None:
        """Count the rest of the time; nobody is throttled for it now."""
        meter, since = self._meters.request, self._running_since
        if meter is not None and since is not None and not self._is_free:
            now = self._clock.monotonic()
            meter.note((self._spent_seconds + now - since) * _PERCENT, int(now * 1000))

    def fetch_wait_ms(self, call: Asked, fetched: Sequence[FetchedPartition]) -> int:
        """Charge the bytes of a Fetch and its time; take the bytes back if it has to wait."""
        now = self._clock.monotonic()
        now_ms, throttle_ms = int(now * 1000), self._charge_time(now, is_checked=True)
        fetch = self._meters.fetch
        if fetch is not None:
            size_bytes = answer_bytes(call.api_version, fetched)
            fetch_ms = fetch.charge(size_bytes, now_ms)
            if fetch_ms or throttle_ms:
                throttle_ms = max(throttle_ms, fetch_ms)
                fetch.note(-size_bytes, now_ms)
        self._throttle_ms = throttle_ms
        return throttle_ms

    def take_partitions(self, count: int, *, is_strict: bool) -> None:
        """Take tokens for partitions. Raises KafkaError; see ``Passage``."""
        bucket = self._meters.mutation
        if bucket is None:
            return
        now_ms = int(self._clock.monotonic() * 1000)
        if is_strict and bucket.wait_ms(now_ms):
            self._mutates = True
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.take(count, now_ms)
        self._mutates = not is_strict


def _mute(client: Client, throttle_ms: int) -> None:
    if client.line is not None:
        client.line.mute(throttle_ms / 1000)
