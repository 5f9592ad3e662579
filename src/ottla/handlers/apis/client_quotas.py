"""DescribeClientQuotas, key 48, and AlterClientQuotas, key 49 (KIP-546)."""

from collections.abc import Mapping, Sequence

from ottla.cluster.client_quotas import (
    ALTERATIONS_MAX,
    Alteration,
    ClientQuotas,
    Filter,
    Outcome,
    Part,
    check_filters,
    is_match,
    parts_of,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call, Response
from ottla.ids import QuotaEntity
from ottla.protocol.messages import alter_client_quotas as altering
from ottla.protocol.messages import describe_client_quotas as describing
from ottla.sliced import Steps, each

Quota = tuple[QuotaEntity, Mapping[str, float]]


class DescribeClientQuotas:
    """Answers from what the metadata says."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def handle(self, request: describing.DescribeClientQuotasRequest, call: Call) -> Response:
        """Describe the quotas of all entities that the filters match."""
        del call
        filters = [
            Filter(one.entity_type, one.match_type, one.match) for one in request.components[:4]
        ]
        try:
            check_filters(filters)
        except KafkaError as error:
            return describing.DescribeClientQuotasResponse(
                error_code=error.code, error_message=error.why, entries=None
            )
        return self._describe(filters, strict=request.strict)

    def _describe(
        self, filters: Sequence[Filter], *, strict: bool
    ) -> Steps[describing.DescribeClientQuotasResponse]:
        found: list[Quota] = []

        def look(quota: Quota) -> None:
            if is_match(quota[0], filters, strict=strict):
                found.append(quota)

        yield from each(list(self._quotas.known.items()), look)
        entries = yield from each(found, _described)
        return describing.DescribeClientQuotasResponse(error_message="", entries=entries)


def _described(quota: Quota) -> describing.EntryData:
    entity, values = quota
    return describing.EntryData(
        entity=[
            describing.EntityData(entity_type=kind, entity_name=name)
            for kind, name in parts_of(entity)
        ],
        values=[describing.ValueData(key=key, value=values[key]) for key in sorted(values)],
    )


class AlterClientQuotas:
    """Answers when the changes hold on this node."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def handle(
        self, request: altering.AlterClientQuotasRequest, call: Call
    ) -> Steps[altering.AlterClientQuotasResponse]:
        """Change each entity's quotas or none of them; one result per entity."""
        del call
        wanted = yield from each(
            request.entries[: ALTERATIONS_MAX + 1],  # One more than is taken.
            _asked,
        )
        outcomes: list[Outcome] = yield self._quotas.alter(
            wanted, validate_only=request.validate_only
        )
        entries = yield from each(outcomes, lambda one: _result(*one))
        return altering.AlterClientQuotasResponse(entries=entries)


def _asked(entry: altering.EntryData) -> Alteration:
    return Alteration(
        tuple((part.entity_type, part.entity_name) for part in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )


def _result(parts: Sequence[Part], error: KafkaError | None) -> altering.ResponseEntryData:
    return altering.ResponseEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.why,
        entity=[altering.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
    )
