"""Produce, key 0: appends one batch to each of some partitions. The ordinary way.

``_refusal`` and ``_refusal_of_all`` find errors that need no log; all others come from below, as an
``AppendRefusal``. A transactional request goes through ``transactional``, one with very many
partitions through ``many``.

v3 record batches of format 2; v7 allows zstd (KIP-110); v8 names the rejected records (KIP-467);
v9 is flexible; v10 tells the current leader (KIP-951); v13 has topic ids, not names (KIP-516).
Versions 0-2 are advertised because librdkafka needs that, but a request in them closes the
connection, as with Kafka.
"""

from __future__ import annotations  # else each call would build those of inner functions

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.errors import CloseConnection, ErrorCode
from ottla.handlers.advertised import Advertised
from ottla.handlers.apis.metadata import is_internal
from ottla.handlers.apis.produce.direct import DirectProduce
from ottla.handlers.apis.produce.layout import Layout
from ottla.handlers.apis.produce.many import produce_many
from ottla.handlers.call import Answer, Call, Direct, Encode
from ottla.handlers.client import Client
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.messages.produce import (
    ACKS_ALL,
    ACKS_NONE,
    TOPIC_IDS_SINCE,
    ZSTD_SINCE,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.records.batch import ATTRIBUTES_POSITION, CODEC_MASK, MAGIC_POSITION, TRANSACTIONAL_BIT
from ottla.records.compression import Codec
from ottla.replication.append import AppendOutcome, AppendRefusal
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.results import AppendResult
from ottla.sliced import Steps

if TYPE_CHECKING:
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.handlers.apis.produce.transactional import TransactionalAppends

CURRENT_LEADER_SINCE = 10
_ACKS = frozenset((-1, 0, 1))

_ATTRIBUTES_LOW_AT = ATTRIBUTES_POSITION + 1
_SHORTEST_BATCH_BYTES = MAGIC_POSITION + 1
"""Shorter records are INVALID_RECORD: they do not even reach the format byte (magic)."""


class Produce:
    """Appends the batches, and answers when as many replicas have them as ``acks`` asks for."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        image: MetadataImage,
        advertised: Advertised,
        transactions: Callable[[], TransactionCoordinator],
    ) -> None:
        self._replica_manager = replica_manager
        self._transactions = transactions
        self._transactional: TransactionalAppends | None = None
        """Use: made for the first request with a transactional id."""
        self._image = image
        self._advertised = advertised

    def handle(
        self, request: ProduceRequest, call: Call
    ) -> ProduceResponse | Pending[ProduceResponse | None] | None:
        """Append each batch. None for acks=0.

        Raises CloseConnection when an append with acks=0 fails: the only way to tell the client.
        """
        layout: Layout = []
        refused: dict[int, AppendOutcome] = {}  # By position in the request.
        appends: list[tuple[TopicPartition, memoryview]] = []
        version, acks = call.api_version, request.acks
        for topic in request.topic_data:
            name = topic.name
            if version >= TOPIC_IDS_SINCE:
                known = self._image.topic_by_id(topic.topic_id)
                name = "" if known is None else known.name
            # The whole topic is refused, whatever its records are like.
            is_refused = acks not in _ACKS or (not name and version >= TOPIC_IDS_SINCE)
            is_ours = name.startswith("__") and is_internal(name)
            indexes: list[int] = []
            layout.append((topic.name, topic.topic_id, indexes))
            for part in topic.partition_data:
                index = part.index
                indexes.append(index)
                where = TopicPartition(name, index)
                records = memoryview(part.records or b"")
                if is_refused:
                    code: ErrorCode | None = self._refusal_of_all(where, version)
                else:
                    code = _refusal(version, request.transactional_id, records)
                    if (
                        code is None
                        and is_ours
                        and self._replica_manager.state_of(where) is not None
                    ):
                        code = ErrorCode.INVALID_TOPIC_EXCEPTION
                if code is None:
                    appends.append((where, records))
                else:
                    refused[len(appends) + len(refused)] = AppendRefusal(code)

        def answer(outcomes: list[AppendOutcome]) -> ProduceResponse | None:
            response = _answer(acks, layout, refused, outcomes)
            return self._name_leaders(response, version, call.client)

        if not appends:
            return answer([])
        transactional_id, timeout_ms = request.transactional_id, request.timeout_ms
        if transactional_id is None:
            appended = self._replica_manager.appends.many(appends, acks=acks, timeout_ms=timeout_ms)
        else:
            appended = self._for_transactions().append(
                transactional_id, appends, version=version, acks=acks, timeout_ms=timeout_ms
            )
        return appended.then(answer) if isinstance(appended, Pending) else answer(appended)

    def _for_transactions(self) -> TransactionalAppends:
        if self._transactional is None:
            from ottla.handlers.apis.produce.transactional import (  # noqa: PLC0415 - rarely needed
                TransactionalAppends,
            )

            self._transactional = TransactionalAppends(self._replica_manager, self._transactions())
        return self._transactional

    def handle_long(self, request: ProduceRequest, call: Call) -> Steps[ProduceResponse | None]:
        """Do as ``handle`` for very many partitions, in parts."""
        return produce_many(request, lambda part: self.handle(part, call))

    def direct(self, version: int, encode: Encode) -> Direct:
        """Return the direct way, for requests that are not transactional."""

        def answer_by_table(
            layout: Layout, outcomes: list[AppendOutcome], correlation_id: int, client: Client
        ) -> Answer:
            response = _answer(ACKS_ALL, layout, {}, outcomes)
            response = self._name_leaders(response, version, client)
            assert response is not None, "only acks=0 goes without an answer"
            return encode(response, correlation_id)

        return DirectProduce(version, self._replica_manager, self._image, answer_by_table).serve

    def _name_leaders(
        self, response: ProduceResponse | None, version: int, client: Client
    ) -> ProduceResponse | None:
        """Add leaders, and their addresses, of partitions that are led elsewhere (KIP-951)."""
        if response is None or version < CURRENT_LEADER_SINCE:
            return response
        leaders: set[int] = set()
        for topic in response.responses:
            for part in topic.partition_responses:
                if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    part.current_leader = self._leader_of(topic, part.index)
                    if part.current_leader is not None:
                        leaders.add(part.current_leader.leader_id)
        if leaders:
            response.node_endpoints = [
                NodeEndpoint(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in self._advertised.brokers(self._image, client)
                if broker.node_id in leaders
            ]
        return response

    def _leader_of(self, topic: TopicProduceResponse, index: int) -> LeaderIdAndEpoch | None:
        """Return the leader as this node knows it; None when there is none that is registered."""
        known = self._image.topic_by_id(topic.topic_id) if not topic.name else None
        name = topic.name if known is None else known.name
        state = self._replica_manager.state_of(TopicPartition(name, index))
        if state is None or state.leader not in self._image.brokers:
            return None
        return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)

    def _refusal_of_all(self, where: TopicPartition, version: int) -> ErrorCode:
        """Return the code for a partition of an unknown topic id or with impossible acks."""
        if version >= TOPIC_IDS_SINCE and not where.topic:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._replica_manager.state_of(where) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.INVALID_REQUIRED_ACKS


def _answer(
    acks: int,
    layout: Layout,
    refused: dict[int, AppendOutcome],
    outcomes: list[AppendOutcome],
) -> ProduceResponse | None:
    """Merge refusals and outcomes into the answer, in the order of the request.

    ``refused``: refusals by position in the request. ``outcomes``: the appends', in order. None for
    acks=0. Raises CloseConnection for acks=0 when anything was refused.
    """
    for position, refusal in refused.items():
        outcomes.insert(position, refusal)
    if acks == ACKS_NONE:
        for outcome in outcomes:
            if isinstance(outcome, AppendRefusal):
                raise CloseConnection(f"a produce with acks=0 failed: {outcome.code.name}")
        return None
    answers = iter(outcomes)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    _partition_response(index, next(answers)) for index in indexes
                ],
            )
            for name, topic_id, indexes in layout
        ]
    )


def _refusal(version: int, transactional_id: str | None, records: memoryview) -> ErrorCode | None:
    """Return why these records are refused before the log sees them; None: they are not."""
    if len(records) <= _ATTRIBUTES_LOW_AT:
        return ErrorCode.INVALID_RECORD if len(records) < _SHORTEST_BATCH_BYTES else None
    attributes = records[_ATTRIBUTES_LOW_AT]
    if attributes & TRANSACTIONAL_BIT and transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if version < ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return None


def _partition_response(index: int, outcome: AppendOutcome) -> PartitionProduceResponse:
    if isinstance(outcome, AppendResult):
        base_offset, _, log_append_time_ms, log_start_offset = outcome
        return PartitionProduceResponse(
            index=index,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
    return PartitionProduceResponse(
        index=index,
        error_code=outcome.code,
        base_offset=-1,
        log_start_offset=outcome.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(
                batch_index=record.index, batch_index_error_message=record.why
            )
            for record in outcome.rejected
        ],
        error_message=outcome.why or None,
    )
