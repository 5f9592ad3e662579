"""Changes and describes client quotas: checks, commits, waits for the image.

Only this module writes quotas. ``checked`` and ``matching`` decide without I/O.
Source: KIP-546, KIP-257, KIP-599, KIP-612; the answers of a live Kafka 4.3.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple
from urllib.parse import quote

from ottla.config.addresses import address_of
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT32_MAX, INT64_MAX, QUOTA_DEFAULT, QuotaEntity
from ottla.metadata.answering import store_answers, unsure
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import (
    ABSENT,
    KEY_BYTES_MAX,
    OPS_MAX,
    Ambiguous,
    Delete,
    Guard,
    MetadataStore,
    Op,
    Put,
    Unavailable,
)
from ottla.metadata.values import encode_quota
from ottla.pending import Pending, pending_of

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (CLIENT_ID, USER, IP)
"""The types of an entity's parts, in the order of answers."""
EXACT, DEFAULT, ANY = 0, 1, 2
"""What a filter matches."""
ALTERATIONS_MAX = 1_000
"""The most entities that one request may change."""
KEY_BYTES_ELSE = 200
"""The most bytes of a quota's key without the names in it."""

_BYTES = ("a LONG", float(INT64_MAX))
_CONNECTIONS = ("an INT", float(INT32_MAX))
_OF_CLIENTS: Mapping[str, tuple[str, float] | None] = {
    "producer_byte_rate": _BYTES,
    "consumer_byte_rate": _BYTES,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_OF_ADDRESSES: Mapping[str, tuple[str, float] | None] = {"connection_creation_rate": _CONNECTIONS}
"""By key, the type and the largest of whole numbers; None: any number above 0."""

Part = tuple[str, str | None]
"""Type and name of one part of an entity, as on the wire; name None: the default."""


class Alteration(NamedTuple):
    """What a request asks for one entity; a value of None removes the quota."""

    parts: tuple[Part, ...]
    changes: tuple[tuple[str, float | None], ...]


class Outcome(NamedTuple):
    """What became of it; ``error`` None: success."""

    parts: tuple[Part, ...]
    error: KafkaError | None


class Filter(NamedTuple):
    """Which entities a request asks for, by one type; ``match`` is a name if it is EXACT."""

    entity_type: str
    match_type: int
    match: str | None


class ClientQuotas:
    """The quotas of one cluster, to be changed and described."""

    def __init__(
        self, store: MetadataStore, keys: Keys, follower: ImageFollower, *, entities_max: int
    ) -> None:
        """Build it; ``entities_max``: how many entities may have quotas."""
        self._store = store
        self._keys = keys
        self._follower = follower
        self._entities_max = entities_max

    @property
    def known(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """All quotas, as the image has them."""
        return self._follower.image.quotas

    def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> Pending[list[Outcome]]:
        """Make the alterations; the Pending gets one outcome per entity."""
        return pending_of(self._alter(alterations, validate_only))

    async def _alter(self, alterations: Sequence[Alteration], validate_only: bool) -> list[Outcome]:
        doubt: KafkaError | None = None
        try:
            await self._follower.catch_up()
        except (Unavailable, Ambiguous) as error:
            doubt = unsure(error)
        found = checked(alterations, self.known, self._entities_max)
        outcomes = [Outcome(one.parts, one.error or doubt) for one in found]
        wanted = [(at, one.plan) for at, one in enumerate(found) if one.plan is not None]
        if validate_only or doubt is not None:
            return outcomes
        for begin in range(0, len(wanted), OPS_MAX):
            some = wanted[begin : begin + OPS_MAX]
            try:
                with store_answers():
                    await self._make([plan for _, plan in some])
            except KafkaError as error:
                refusal = error.as_value()
                for at, _ in some:
                    outcomes[at] = Outcome(outcomes[at].parts, refusal)
            await asyncio.sleep(0)
        return outcomes

    async def _make(self, plans: Sequence["Plan"]) -> None:
        """Commit changes, merged with those that others make at the same time."""
        await self._follower.mirror.contests.won(
            "the quotas of these entities", lambda: self._attempt(plans)
        )

    async def _attempt(self, plans: Sequence["Plan"]) -> None:
        """Commit unless somebody has changed one of the entities: raises GuardFailed then."""
        ops = [op for plan in plans for op in self._ops(plan)]
        if not ops:
            return
        known = [(op.key, self._follower.mirror.get(op.key)) for op in ops]
        guards = [Guard(key, mod_rev=ABSENT if one is None else one.mod_rev) for key, one in known]
        await self._follower.reached(await self._store.commit(guards, ops))

    def _ops(self, plan: "Plan") -> Iterator[Op]:
        """Yield the operation that changes an entity; none if it has these quotas already."""
        known = self.known.get(plan.entity, {})
        values = dict(known)
        for key, value in plan.changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        if values == known:
            return
        key = self._keys.quota(plan.entity)
        yield Put(key, encode_quota(values)) if values else Delete(key)


class Plan(NamedTuple):
    """A change that may be made."""

    entity: QuotaEntity
    changes: Mapping[str, float | None]


class Checked(NamedTuple):
    """What a request may do to an entity; its parts are in the order of answers.

    ``plan`` None: nothing. With an ``error`` as well: it is named again, which is refused.
    """

    parts: tuple[Part, ...]
    plan: Plan | None
    error: KafkaError | None


def checked(
    alterations: Sequence[Alteration],
    known: Mapping[QuotaEntity, Mapping[str, float]],
    entities_max: int,
) -> list[Checked]:
    """Return what may be done to each entity.

    An entity that is named twice is refused, and yet changed as it was named first, as in Kafka.
    """
    found: dict[tuple[Part, ...], Checked] = {}
    room = entities_max - len(known)
    for one in alterations:
        named = dict(one.parts)  # The last of a type counts, as in Kafka.
        kinds = dict.fromkeys((*TYPES, *named))
        parts = tuple((kind, named[kind]) for kind in kinds if kind in named)
        before = found.get(parts)
        if before is not None or len(dict(one.changes)) < len(one.changes):
            text = ", ".join(f"{kind}={name}" for kind, name in parts)
            why = f"Ignoring duplicate entity ClientQuotaEntity(entries={{{text}}})"
            plan = None if before is None else before.plan
            found[parts] = Checked(parts, plan, _invalid(why))
            continue
        try:
            plan = _plan(parts, one.changes)
            if len(alterations) > ALTERATIONS_MAX:
                raise _invalid(f"a request may change {ALTERATIONS_MAX} entities at most")
            sets = any(value is not None for value in plan.changes.values())
            room -= sets and plan.entity not in known
            if room < 0:
                why = f"ottla.client.quotas.max is {entities_max}"
                raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
        except KafkaError as error:
            found[parts] = Checked(parts, None, error.as_value())
        else:
            found[parts] = Checked(parts, plan, None)
    return list(found.values())


def _plan(parts: tuple[Part, ...], changes: Sequence[tuple[str, float | None]]) -> Plan:
    """Return what is to be changed. Raises KafkaError."""
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    named = dict(parts)
    for kind, name in parts:
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in named and len(named) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or"
            " ClientId"
        )
    if sum(len(quote(name or "")) for name in named.values()) > KEY_BYTES_MAX - KEY_BYTES_ELSE:
        raise _invalid("The names are too long to be kept")
    bounds = _OF_ADDRESSES if IP in named else _OF_CLIENTS
    if IP in named:
        named[IP] = _address(named[IP])
    for key, value in changes:
        if value is not None:
            _check(key, value, bounds)
    entity = QuotaEntity(
        *(
            (named[kind] or QUOTA_DEFAULT) if kind in named else None
            for kind in (USER, CLIENT_ID, IP)
        )
    )
    return Plan(entity, dict(changes))


def _address(name: str | None) -> str | None:
    """Return an address as connections have it. Raises KafkaError: names are not looked up."""
    try:
        return None if name is None else address_of(name)
    except ValueError:
        raise _invalid(f"{name} is not a valid IP or resolvable host.") from None


def _check(key: str, value: float, bounds: Mapping[str, tuple[str, float] | None]) -> None:
    """Raise KafkaError if this is no bound."""
    if key not in bounds:
        raise _invalid(f"Invalid configuration key {key}")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    whole = bounds[key]
    if whole is not None and value > whole[1]:
        raise _invalid(f"Proposed value for {key} is too large for {whole[0]}.")
    if not isfinite(value):
        raise _invalid(f"Quota {key} must be a number")
    if whole is not None and value != int(value):
        raise _invalid(f"{key} cannot be a fractional value.")


def check_filters(filters: Sequence[Filter]) -> None:
    """Raise KafkaError if a request cannot ask for that."""
    kinds: set[str] = set()
    for kind, match_type, match in filters:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in kinds:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type == EXACT and match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type in (DEFAULT, ANY) and match is not None:
            of = "DEFAULT" if match_type == DEFAULT else "SPECIFIED"
            raise _invalid(f"Request specified MATCH_TYPE_{of}, but also specified a match string.")
        if match_type not in (EXACT, DEFAULT, ANY):
            raise _invalid(f"Unknown match type {match_type}")
        kinds.add(kind)
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )


def is_match(entity: QuotaEntity, filters: Sequence[Filter], *, strict: bool) -> bool:
    """Whether a request asks for an entity; ``strict``: not for one with further types."""
    names = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    for kind, match_type, match in filters:
        name = names.pop(kind)
        if name is None:
            return False
        if match_type == EXACT and (name != match or name == QUOTA_DEFAULT):
            return False
        if match_type == DEFAULT and name != QUOTA_DEFAULT:
            return False
    if not strict:
        return True
    return bool(filters) and all(name is None for name in names.values())


def parts_of(entity: QuotaEntity) -> tuple[Part, ...]:
    """Return an entity as on the wire."""
    named = zip(TYPES, (entity.client_id, entity.user, entity.ip), strict=True)
    return tuple((kind, name or None) for kind, name in named if name is not None)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
