"""A Fetch of another node, which follows partitions that this one leads.

Turns the request into what ``replication.follower_sessions`` knows, waits for news, and makes the
answer. Loaded with the first such request. A follower is known by the epoch of its registration.
Its offsets acknowledge what it has synced, so a wrong epoch gets nothing. Answers:

    no such registration        NOT_LEADER_OR_FOLLOWER for each partition, as a former process gets
    below the log start offset  OFFSET_OUT_OF_RANGE with the log start offset: begin anew there
    histories part              the diverging epoch, and no records

Source: KIP-227, KIP-595 (diverging epoch), KIP-903 (replica epoch); Kafka's ReplicaFetcherThread.
"""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Response
from ottla.handlers.fetch_data import data_of, refuse_all, refused_data
from ottla.handlers.fetch_session import SESSION_EPOCH_FINAL, SESSION_EPOCH_INITIAL
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.replication.fetch import CurrentLeader, FetchedPartition, Isolation
from ottla.replication.fetches import Cold
from ottla.replication.follower import Asked
from ottla.replication.follower_session import FollowerSession, FollowerSpec, News
from ottla.replication.follower_sessions import FollowerSessions
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replicas import Replicas
from ottla.sliced import STRIDE, Steps, promptly

_WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Answer:
    """An answer that grows topic by topic."""

    def __init__(self) -> None:
        self.topics: dict[TopicId, list[PartitionData]] = {}
        self.quiet: list[News] = []
        """What goes along when the answer leaves."""

    def add(self, topic_id: TopicId, data: PartitionData) -> None:
        self.topics.setdefault(topic_id, []).append(data)

    def response(self, session_id: int) -> FetchResponse:
        return FetchResponse(
            session_id=session_id,
            responses=[
                FetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in self.topics.items()
            ],
        )


class FollowerFetch:
    """Answers followers."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        image: MetadataImage,
        *,
        response_bytes_max: int,
        wait_ms_max: int,
    ) -> None:
        self._replica_manager = replica_manager
        self._image = image
        self._response_bytes_max = response_bytes_max
        self._wait_ms_max = wait_ms_max

    def handle(self, request: FetchRequest) -> Response:
        """Answer when there is news, or when ``max_wait_ms`` have passed."""
        return promptly(self._serve(request))

    def _serve(self, request: FetchRequest) -> Steps[FetchResponse]:
        cluster_id = request.cluster_id
        if cluster_id is not None and cluster_id != self._image.cluster_id:
            return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, responses=[])
        node, broker_epoch = _who_asks(request)
        replicas, broker = self._replica_manager.replicas, self._image.brokers.get(node)
        is_known = broker is not None and broker.epoch == broker_epoch
        if replicas is None or not is_known or node == self._replica_manager.node_id:
            return (yield from _refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        sessions = replicas.sessions
        try:
            session = _session_of(sessions, request, node, broker_epoch)
        except KafkaError as error:
            return FetchResponse(error_code=error.code, responses=[])
        answer = _Answer()
        yield from self._take(replicas, session, request, answer)
        epoch = session.epoch
        max_bytes = min(request.max_bytes, self._response_bytes_max)
        wait_ms = min(request.max_wait_ms, self._wait_ms_max)
        may_wait = wait_ms > 0 and request.min_bytes > 0
        yield from self._read(sessions, session, max_bytes, answer, may_gather=may_wait)
        is_kept = request.session_epoch != SESSION_EPOCH_FINAL
        if may_wait and not answer.topics:
            if not sessions.is_current(session, epoch):
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
            answer.quiet.clear()  # It is looked at again.
            yield sessions.wait(session, wait_ms / 1000)
            if sessions.is_current(session, epoch):
                yield from self._read(sessions, session, max_bytes, answer, is_heard=True)
        if not sessions.is_current(session, epoch):
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
        for news in answer.quiet:
            self._add(news, answer)
            session.told(news)
        if not is_kept:
            sessions.end(node)
        return answer.response(session.session_id if is_kept else 0)

    def _take(
        self, replicas: Replicas, session: FollowerSession, request: FetchRequest, answer: _Answer
    ) -> Steps[None]:
        """Let the session have what the request names; refuse topics that there are not."""
        count = 0
        for gone in request.forgotten_topics_data:
            topic = self._image.topic_by_id(gone.topic_id)
            for index in gone.partitions if topic is not None else ():
                assert topic is not None
                session.forget(TopicPartition(topic.name, index), gone.topic_id)
        for named in request.topics:
            topic = self._image.topic_by_id(named.topic_id)
            for part in named.partitions:
                count += 1
                if not count % STRIDE:
                    yield None
                if topic is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                    answer.add(named.topic_id, refused_data(part.partition, code))
                    continue
                where = TopicPartition(topic.name, part.partition)
                asked = Asked(
                    0,
                    NodeId(-1),
                    LeaderEpoch(part.current_leader_epoch),
                    session.broker_epoch,
                    part.fetch_offset,
                    part.last_fetched_epoch,
                )
                session.name(
                    FollowerSpec(
                        where,
                        named.topic_id,
                        asked,
                        part.partition_max_bytes,
                        part.log_start_offset,
                        part.high_watermark,
                    )
                )
                replicas.low_watermarks.look_at(where)

    def _read(
        self,
        sessions: FollowerSessions,
        session: FollowerSession,
        max_bytes: int,
        answer: _Answer,
        *,
        is_heard: bool = False,
        may_gather: bool = False,
    ) -> Steps[None]:
        """Look at what is due; what is not in memory is read ahead of the loop first."""
        cold: Cold = []
        left = max_bytes
        for attempt in (cold, None):
            found = sessions.read(session, left, attempt, is_heard=is_heard, may_gather=may_gather)
            for count, news in enumerate(found, 1):
                if news is not None and news.is_quiet:
                    answer.quiet.append(news)
                elif news is not None:
                    left -= self._add(news, answer)
                if not count % STRIDE:
                    yield None
            if not cold:
                return
            if attempt is not None:
                yield self._replica_manager.warm(cold)

    def _add(self, news: News, answer: _Answer) -> int:
        """Add what is told of one partition; return how many bytes of records that is."""
        spec, found, _ = news
        where = spec.where
        if isinstance(found, KafkaError):
            leader = None
            if found.code in _WRONG_LEADER:
                state = self._replica_manager.state_of(where)
                if state is not None and state.leader >= 0:
                    leader = CurrentLeader(state.leader, state.leader_epoch)
            told = FetchedPartition(where, found.code, current_leader=leader)
        else:
            code, start_offset = ErrorCode.NONE, found.log_start_offset
            if found.begins_at is not None:
                code, start_offset = ErrorCode.OFFSET_OUT_OF_RANGE, found.begins_at
            told = FetchedPartition(
                where,
                code,
                found.high_watermark,
                log_start_offset=start_offset,
                region=found.region,
                diverging=found.diverging,
            )
        answer.add(spec.topic_id, data_of(told, Isolation.READ_UNCOMMITTED))
        return 0 if told.region is None else told.region.length_bytes


def _who_asks(request: FetchRequest) -> tuple[NodeId, int]:
    state = request.replica_state
    if state is None:  # Without an epoch: nobody's.
        return NodeId(request.replica_id), -1
    return NodeId(state.replica_id), state.replica_epoch


def _session_of(
    sessions: FollowerSessions, request: FetchRequest, node: NodeId, broker_epoch: int
) -> FollowerSession:
    if request.session_epoch in (SESSION_EPOCH_INITIAL, SESSION_EPOCH_FINAL):
        return sessions.begin(node, broker_epoch)
    return sessions.go_on(
        node, broker_epoch, session_id=request.session_id, epoch=request.session_epoch
    )


def _refused(request: FetchRequest, code: ErrorCode) -> Steps[FetchResponse]:
    if request.session_epoch > SESSION_EPOCH_INITIAL:  # Then the next request names all.
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    return (yield from refuse_all(request, code))
