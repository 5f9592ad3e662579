"""Client quotas: what an administrator asks and changes.

Owns requests and answers of the two APIs; ``cluster`` owns connections and retries. On asyncio.
Source: KIP-546.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import QUOTA_DEFAULT, QuotaEntity
from ottla.protocol.messages import alter_client_quotas as altering
from ottla.protocol.messages import describe_client_quotas as describing

TYPES = ("user", "client-id", "ip")
"""The parts of an entity on the wire, in the order of QuotaEntity's fields."""
_EXACT, _DEFAULT = 0, 1


class ClientQuota(NamedTuple):
    """The bounds of one entity, by key."""

    entity: QuotaEntity
    bounds: Mapping[str, float]


class Quotas:
    """Calls on a cluster. Every method raises KafkaError with the broker's own words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list_quotas(
        self, wanted: QuotaEntity | None = None, *, strict: bool = False
    ) -> list[ClientQuota]:
        """Return the quotas of the entities that have the parts of ``wanted``; None: of all.

        ``strict``: only of ``wanted`` itself.
        """
        request = describing.DescribeClientQuotasRequest(
            components=[
                describing.ComponentData(
                    entity_type=kind,
                    match_type=_DEFAULT if name == QUOTA_DEFAULT else _EXACT,
                    match=name or None,
                )
                for kind, name in zip(TYPES, wanted or QuotaEntity(), strict=True)
                if name is not None
            ],
            strict=strict,
        )

        async def attempt() -> list[ClientQuota]:
            connection = await self._cluster.controller()
            answer = await connection.call(request, describing.DescribeClientQuotasResponse)
            _check(answer.error_code, answer.error_message)
            found = [
                ClientQuota(_entity(entry), {one.key: one.value for one in entry.values})
                for entry in answer.entries or ()
            ]
            return sorted(found, key=lambda one: [part or "" for part in one.entity])

        return await self._cluster.retrying(attempt)

    async def alter(
        self,
        entity: QuotaEntity,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set the bounds of an entity; None removes one. The others stay."""
        request = altering.AlterClientQuotasRequest(
            entries=[
                altering.EntryData(
                    entity=[
                        altering.EntityData(entity_type=kind, entity_name=name or None)
                        for kind, name in zip(TYPES, entity, strict=True)
                        if name is not None
                    ],
                    ops=[
                        altering.OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in changes.items()
                    ],
                )
            ],
            validate_only=validate_only,
        )

        async def attempt() -> None:
            connection = await self._cluster.controller()
            answer = await connection.call(request, altering.AlterClientQuotasResponse)
            for entry in answer.entries:
                _check(entry.error_code, entry.error_message)

        await self._cluster.retrying(attempt)


def _entity(entry: describing.EntryData) -> QuotaEntity:
    named = {part.entity_type: part.entity_name or QUOTA_DEFAULT for part in entry.entity}
    return QuotaEntity(*(named.get(kind) for kind in TYPES))


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(error_code(code), message or "")
