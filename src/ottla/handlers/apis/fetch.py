"""Fetch, key 1: read committed records of some partitions, waiting for them if asked to.

v4 isolation level (KIP-98), v5 log start offset, v7 sessions (KIP-227), v9 leader epoch (KIP-320),
v11 rack (KIP-392), v12 flexible, v13 topic ids (KIP-516), v15 replica state as a tag (KIP-903),
v16 node endpoints (KIP-951), v18 high watermark of the follower. What a session is and leaves out
of an answer: ``handlers.fetch_session``.
"""

from collections.abc import Iterable

from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.advertised import Advertised
from ottla.handlers.call import Call
from ottla.handlers.fetch_session import (
    SESSION_EPOCH_FINAL,
    SESSION_EPOCH_INITIAL,
    FetchSession,
    FetchSessionCache,
    SessionPartition,
)
from ottla.ids import TopicId, TopicPartition, topic_id_text
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.replication.fetch import FetchedPartition, FetchLimits, FetchSpec, Isolation
from ottla.replication.replica_manager import ReplicaManager

TOPIC_IDS_SINCE = 13
NODE_ENDPOINTS_SINCE = 16
INVALID_OFFSET = -1
_ISOLATIONS = frozenset(Isolation)


class _Asked:
    """What a request asks for, sorted out: what can be read, what is refused, in which order."""

    __slots__ = ("refused", "specs", "topics")

    def __init__(self) -> None:
        self.topics: dict[tuple[str, TopicId], dict[int, TopicPartition]] = {}
        """By the topic as the client named it: its partitions in the order of the request."""
        self.specs: dict[TopicPartition, FetchSpec] = {}
        self.refused: dict[TopicPartition, ErrorCode] = {}


class Fetch:
    """Reads through the replica manager."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        image: MetadataImage,
        advertised: Advertised,
        sessions: FetchSessionCache,
        clock: Clock,
        *,
        response_bytes_max: int,
        wait_ms_max: int,
    ) -> None:
        self._replica_manager = replica_manager
        self._image = image
        self._advertised = advertised
        self._sessions = sessions
        self._clock = clock
        self._response_bytes_max = response_bytes_max
        self._wait_ms_max = wait_ms_max

    def handle(self, request: FetchRequest, call: Call) -> FetchResponse | Pending[FetchResponse]:
        """Answer once ``min_bytes`` are there, an error is, or ``max_wait_ms`` have passed."""
        if request.isolation_level not in _ISOLATIONS:
            return _refuse_all(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if _is_follower(request):
            return _refuse_all(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        isolation = Isolation(request.isolation_level)
        limits = FetchLimits(
            max_wait_ms=min(request.max_wait_ms, self._wait_ms_max),
            min_bytes=request.min_bytes,
            max_bytes=min(request.max_bytes, self._response_bytes_max),
            isolation=isolation,
        )
        by_id = call.api_version >= TOPIC_IDS_SINCE
        if request.session_epoch not in (SESSION_EPOCH_FINAL, SESSION_EPOCH_INITIAL):
            return self._with_endpoints(self._continue_session(request, limits, by_id=by_id), call)
        self._sessions.remove(request.session_id)
        if request.session_epoch == SESSION_EPOCH_INITIAL:
            return self._with_endpoints(self._begin_session(request, limits, by_id=by_id), call)
        asked = self._sort_out(request, by_id=by_id)
        found = self._replica_manager.fetch(list(asked.specs.values()), limits)
        if isinstance(found, Pending):
            answer = found.then(lambda fetched: _response(asked, fetched, isolation))
            return self._with_endpoints(answer, call)
        return self._with_endpoints(_response(asked, found, isolation), call)

    # With a session.

    def _begin_session(
        self, request: FetchRequest, limits: FetchLimits, *, by_id: bool
    ) -> FetchResponse | Pending[FetchResponse]:
        """Answer completely; a session begins with the answer, if there is room for it."""
        session = FetchSession(uses_topic_ids=by_id)
        session.update(request.topics, ())
        self._look_up(session)
        plan = session.plan()

        def answer(fetched: list[FetchedPartition]) -> FetchResponse:
            session.note_all(plan, fetched)
            self._sessions.add(session, self._clock.monotonic())
            news = list(zip(plan.partitions, fetched, strict=True))
            return _session_response(session, news, plan.refused, limits.isolation)

        found = self._replica_manager.fetch(plan.specs, limits)
        return found.then(answer) if isinstance(found, Pending) else answer(found)

    def _continue_session(
        self, request: FetchRequest, limits: FetchLimits, *, by_id: bool
    ) -> FetchResponse | Pending[FetchResponse]:
        """Answer what is new since the session's last answer."""
        try:
            session = self._sessions.get(
                request.session_id, request.session_epoch, uses_topic_ids=by_id
            )
            session.update(request.topics, request.forgotten_topics_data)
            if len(session) == 0:
                self._sessions.remove(session.session_id)
                return FetchResponse(responses=[])
            self._look_up(session)
            self._sessions.advance(session, self._clock.monotonic())
        except KafkaError as error:
            return FetchResponse(error_code=error.code, responses=[])
        plan, epoch = session.plan(), session.epoch

        def answer(fetched: list[FetchedPartition]) -> FetchResponse:
            if session.epoch != epoch:  # Another request went on with it while this one waited.
                return FetchResponse(
                    error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    session_id=session.session_id,
                    responses=[],
                )
            news = session.changed(plan, fetched)
            return _session_response(session, news, plan.refused, limits.isolation)

        found = self._replica_manager.fetch(plan.specs, limits)
        return found.then(answer) if isinstance(found, Pending) else answer(found)

    def _with_endpoints(
        self, answer: FetchResponse | Pending[FetchResponse], call: Call
    ) -> FetchResponse | Pending[FetchResponse]:
        """Say how to reach the leaders that the answer names (KIP-951)."""
        if call.api_version < NODE_ENDPOINTS_SINCE:
            return answer
        if isinstance(answer, Pending):
            return answer.then(lambda response: self._add_endpoints(response, call))
        return self._add_endpoints(answer, call)

    def _add_endpoints(self, response: FetchResponse, call: Call) -> FetchResponse:
        leaders = {
            part.current_leader.leader_id
            for topic in response.responses
            for part in topic.partitions
            if part.current_leader is not None
        }
        if leaders:
            response.node_endpoints = [
                NodeEndpoint(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in self._advertised.brokers(self._image, call.client)
                if broker.node_id in leaders
            ]
        return response

    def _look_up(self, session: FetchSession) -> None:
        """Look for the partitions of the session that could not be read so far."""
        for partition in session.plan().refused:
            name, topic_id, index = partition.key
            if session.uses_topic_ids:
                topic = self._image.topic_by_id(topic_id)
                if topic is None:
                    partition.refusal = self._why_unknown(partition)
                    continue
                name = topic.name
            where = TopicPartition(name, index)
            hosted = self._replica_manager.topic_id_of(where)
            if hosted is None:
                partition.refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                session.found(partition, where, hosted)

    def _why_unknown(self, partition: SessionPartition) -> ErrorCode:
        """Return what is said of a topic id that is not there (any more), as Kafka does."""
        if partition.spec.topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._replica_manager.get(partition.spec.topic_partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.INCONSISTENT_TOPIC_ID  # Its name is another's.

    # Without.

    def _sort_out(self, request: FetchRequest, *, by_id: bool) -> _Asked:
        """Resolve the topics; of a partition that is named twice, the last wish counts."""
        asked = _Asked()
        image = self._image
        for topic in request.topics:
            name = topic.topic
            refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if by_id:
                known = image.topic_by_id(topic.topic_id)
                if known is None:
                    refusal = ErrorCode.UNKNOWN_TOPIC_ID
                name = topic_id_text(topic.topic_id) if known is None else known.name
            indexes = asked.topics.setdefault((topic.topic, topic.topic_id), {})
            for part in topic.partitions:
                where = TopicPartition(name, part.partition)
                indexes[part.partition] = where
                hosted = self._replica_manager.topic_id_of(where)
                if hosted is None:
                    asked.refused[where] = refusal
                    continue
                asked.specs[where] = FetchSpec(
                    where,
                    part.fetch_offset,
                    part.partition_max_bytes,
                    part.current_leader_epoch,
                    topic.topic_id if by_id else hosted,
                    part.last_fetched_epoch,
                    by_id,
                )
        return asked


def _response(
    asked: _Asked, fetched: list[FetchedPartition], isolation: Isolation
) -> FetchResponse:
    found = {item.topic_partition: item for item in fetched}
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    _data(found[where], isolation)
                    if where in found
                    else _refused_data(index, asked.refused[where])
                    for index, where in indexes.items()
                ],
            )
            for (name, topic_id), indexes in asked.topics.items()
        ]
    )


def _session_response(
    session: FetchSession,
    news: Iterable[tuple[SessionPartition, FetchedPartition]],
    refused: Iterable[SessionPartition],
    isolation: Isolation,
) -> FetchResponse:
    """Return an answer with what was read; what cannot be read is in each."""
    topics: dict[tuple[str, TopicId], list[PartitionData]] = {}
    for partition, fetched in news:
        name, topic_id, _ = partition.key
        topics.setdefault((name, topic_id), []).append(_data(fetched, isolation))
    for partition in refused:
        name, topic_id, index = partition.key
        if partition.refusal is not None:
            data = _refused_data(index, partition.refusal)
            topics.setdefault((name, topic_id), []).append(data)
    return FetchResponse(
        session_id=session.session_id,
        responses=[
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
    )


def _refuse_all(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    return FetchResponse(
        error_code=code if code is ErrorCode.UNKNOWN_SERVER_ERROR else ErrorCode.NONE,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_refused_data(part.partition, code) for part in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _is_follower(request: FetchRequest) -> bool:
    """Tell whether a broker claims to ask. There is one node only: nobody follows it."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


def _refused_data(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=INVALID_OFFSET,
        last_stable_offset=INVALID_OFFSET,
        log_start_offset=INVALID_OFFSET,
        aborted_transactions=[],
        records=b"",
    )


def _data(fetched: FetchedPartition, isolation: Isolation) -> PartitionData:
    may_have_aborted = isolation is Isolation.READ_COMMITTED and fetched.code is ErrorCode.NONE
    return PartitionData(
        partition_index=fetched.topic_partition.partition,
        error_code=fetched.code,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=[
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in fetched.aborted
        ]
        if may_have_aborted
        else None,
        records=b"" if fetched.region is None else fetched.region,
        diverging_epoch=fetched.diverging
        and EpochEndOffset(epoch=fetched.diverging.epoch, end_offset=fetched.diverging.end_offset),
        current_leader=fetched.current_leader
        and LeaderIdAndEpoch(
            leader_id=fetched.current_leader.node_id,
            leader_epoch=fetched.current_leader.leader_epoch,
        ),
    )
