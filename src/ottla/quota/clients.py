"""Which quota holds for a client, and the meter that it shares with others.

Owns precedence and the number of meters. The most specific quota counts: user and client id, user
and default client id, user, default user and client id, both defaults, default user, client id,
default client id. A quota of a user is shared by all clients of that user, one of a client id by
all users with that client id; a default gives each of those whom it holds for a meter of their
own. Source: KIP-13, KIP-55, KIP-257.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.ids import QUOTA_DEFAULT as DEFAULT
from ottla.ids import Principal, QuotaEntity
from ottla.quota.meter import Meter
from ottla.quota.rate import INT32_MAX, Windows
from ottla.quota.token_bucket import TokenBucket

PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
MUTATION = "controller_mutation_rate"
METERS_MAX = 10_000
"""So many meters of each kind. If all are in use, further clients of one user share one."""
SWEPT_MAX = 100
"""So many meters of each kind are looked at in one go: about 1 ms of all kinds."""
METER_IDLE_MS = 3_600_000
"""A meter that nobody has asked for for so long is forgotten, as in Kafka."""
NAME_LENGTH_MAX = 256
"""Longer client ids are known by a hash, so that they take no memory."""


Sharers = tuple[str | None, str | None]
"""Who shares a meter: a user and a client id; None: any."""


class Metering(Protocol):
    """What there is one of for each client or group of clients."""

    bound: float

    def is_idle(self, now_ms: int) -> bool:
        """Whether a new one would say the same."""


M = TypeVar("M", bound=Metering)
Kept = TypeVar("Kept")
Key = TypeVar("Key")


class Meters(NamedTuple):
    """What one client is measured by; None: no such quota holds for it."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
    mutation: TokenBucket | None
    fetch_bytes_max: int | None
    """A fetch that reads more than this could never be answered; None: it may read any number."""


class Kind(Generic[M]):
    """The meters of one kind of quota, by user and client id as far as these matter."""

    def __init__(self, make: Callable[[float, int], M], meters_max: int = METERS_MAX) -> None:
        """Build it; ``make`` takes a bound and the time in ms."""
        self._make = make
        self._meters_max = meters_max
        self._meters: dict[Sharers, M] = {}
        self._shared: dict[tuple[float, str | None], M] = {}
        """Use: by bound and sharer, for those for whom there is no room. At most twice as many as
        there are meters, until ``make_room``."""
        self._swept_ms = 0
        self._left: list[Sharers] = []
        self._left_shared: list[tuple[float, str | None]] = []
        """Use: of which meters a sweep that has begun has still to look, the last ones first."""

    def __len__(self) -> int:
        return len(self._meters)

    def get(self, tags: Sharers, bound: float, now_ms: int, sharer: str | None = None) -> M:
        """Return the meter, with this bound.

        If there is no room for one, that of the ``sharer``: a user, so that nobody takes from the
        others by taking all meters; None: of all.
        """
        meter = self._meters.get(tags)
        if meter is None:
            if len(self._meters) >= self._meters_max:
                return self._get_shared(bound, sharer, now_ms)
            meter = self._meters[tags] = self._make(bound, now_ms)
        meter.bound = bound
        return meter

    def _get_shared(self, bound: float, sharer: str | None, now_ms: int) -> M:
        meter = self._shared.get((bound, sharer))
        if meter is None:
            if sharer is not None and len(self._shared) >= self._meters_max:
                return self._get_shared(bound, None, now_ms)
            meter = self._shared[bound, sharer] = self._make(bound, now_ms)
        return meter

    def make_room(self, now_ms: int, interval_ms: int) -> bool:
        """Forget some meters that hold nothing, if it is time for that; tell whether there were.

        ``interval_ms``: how often to look at all while further clients have to share one meter.
        """
        if not self._left and not self._left_shared:
            if len(self._meters) < self._meters_max:
                interval_ms = METER_IDLE_MS
            if now_ms - self._swept_ms < interval_ms:
                return False
            self._swept_ms = now_ms
            self._left = list(reversed(self._meters))
            self._left_shared = list(self._shared)
        gone = _forget_idle(self._meters, self._left, now_ms)
        gone_shared = _forget_idle(self._shared, self._left_shared, now_ms)
        return gone or gone_shared


def _forget_idle(meters: dict[Key, M], left: list[Key], now_ms: int) -> bool:
    """Look at some meters, the last ones of ``left``; tell whether any is forgotten."""
    some = left[-SWEPT_MAX:]
    del left[-SWEPT_MAX:]
    idle = [key for key in some if key in meters and meters[key].is_idle(now_ms)]
    for key in idle:
        del meters[key]
    return bool(idle)


class ClientQuotas(Generic[Kept]):
    """The quotas in force for users and client ids, and what is measured by them."""

    def __init__(
        self,
        windows: Windows,
        controller_windows: Windows,
        keep: Callable[[Meters], Kept],
        meters_max: int = METERS_MAX,
    ) -> None:
        """Build it; ``keep`` makes what ``of`` returns and remembers, of a client's meters."""
        self._windows = windows
        self._keep = keep
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self._client_ids = 0
        """Invariant: how many of ``_quotas`` are of client ids. Counted, because a change among
        10,000 must not look at all."""
        self._meters_max = meters_max
        self._produce = Kind(lambda bound, _: Meter(bound, windows), meters_max)
        self._fetch = Kind(lambda bound, _: Meter(bound, windows), meters_max)
        self._request = Kind(lambda bound, _: Meter(bound, windows, windows.window_ms), meters_max)
        self._mutation = Kind(
            lambda bound, now_ms: TokenBucket(bound, controller_windows, now_ms), meters_max
        )
        self.found: dict[Principal | tuple[Principal, bytes], Kept | None] = {}
        """Use: by principal, and by client id if it was named, what ``of`` has returned; asked
        first by the caller. Cleared when a quota changes and when meters are forgotten."""
        self.asks_client_id = False
        """Whether a quota of some client ids is in force. If so, ``of`` has to be told one."""

    def __len__(self) -> int:
        """Return for how many entities there are quotas."""
        return len(self._quotas)

    def change(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """Set the quotas of an entity; an empty mapping removes them."""
        was_known = entity in self._quotas
        if values:
            self._quotas[entity] = values
        else:
            self._quotas.pop(entity, None)
        if entity.client_id is not None:
            self._client_ids += bool(values) - was_known
            self.asks_client_id = self._client_ids > 0
        self.found.clear()

    def of(self, principal: Principal, client_id: bytes | None, now_ms: int) -> Kept | None:
        """Return what a client is measured by; None: by nothing. Remembers it in ``found``.

        ``client_id``: None if no quota asks for it.
        """
        self._make_room(now_ms)
        user, name = principal.name, (client_id or b"").decode("utf-8", "replace")
        produce, _ = self._meter(PRODUCE, self._produce, user, name, now_ms)
        fetch, fetch_bound = self._meter(FETCH, self._fetch, user, name, now_ms)
        request, _ = self._meter(REQUEST, self._request, user, name, now_ms)
        mutation, _ = self._meter(MUTATION, self._mutation, user, name, now_ms)
        kept = None
        if any(one is not None for one in (produce, fetch, request, mutation)):
            burst = fetch_bound * self._windows.burst_seconds
            bytes_max = None if burst >= INT32_MAX else int(burst)
            kept = self._keep(Meters(produce, fetch, request, mutation, bytes_max))
        if client_id is None:
            self.found[principal] = kept
        elif len(client_id) <= NAME_LENGTH_MAX:
            self.found[principal, client_id] = kept
        return kept

    def _make_room(self, now_ms: int) -> None:
        interval_ms = self._windows.all_ms
        swept = [
            self._produce.make_room(now_ms, interval_ms),
            self._fetch.make_room(now_ms, interval_ms),
            self._request.make_room(now_ms, interval_ms),
            self._mutation.make_room(now_ms, interval_ms),
        ]
        if any(swept) or len(self.found) >= self._meters_max:
            self.found.clear()

    def _meter(
        self, key: str, kind: Kind[M], user: str, client_id: str, now_ms: int
    ) -> tuple[M | None, float]:
        """Return the meter and its bound; None and infinity if no quota holds."""
        found = self.bound(key, user, client_id)
        if found is None:
            return None, float("inf")
        bound, (of_user, of_client) = found
        if of_client is not None and len(of_client) > NAME_LENGTH_MAX:
            of_client = blake2b(of_client.encode(), digest_size=16).hexdigest()
        return kind.get((of_user, of_client), bound, now_ms, sharer=user), bound

    def bound(self, key: str, user: str, client_id: str) -> tuple[float, Sharers] | None:
        """Return the bound and who shares its meter; None: no quota holds.

        A client without a client id, or with an empty one, has quotas of users only, as in Kafka.
        """
        levels: tuple[tuple[QuotaEntity, Sharers], ...] = (
            (QuotaEntity(user, client_id), (user, client_id)),
            (QuotaEntity(user, DEFAULT), (user, client_id)),
            (QuotaEntity(user), (user, None)),
            (QuotaEntity(DEFAULT, client_id), (user, client_id)),
            (QuotaEntity(DEFAULT, DEFAULT), (user, client_id)),
            (QuotaEntity(DEFAULT), (user, None)),
            (QuotaEntity(client_id=client_id), (None, client_id)),
            (QuotaEntity(client_id=DEFAULT), (None, client_id)),
        )
        if not client_id:
            levels = tuple(one for one in levels if one[0].client_id is None)
        for entity, tags in levels:
            bound = self._quotas.get(entity, {}).get(key)
            if bound is not None:
                return bound, tags
        return None
