"""Fetch, key 1: reads committed records of some partitions, and waits for more if asked to.

Looks the topics up, has ``replication.fetches`` read or wait, and makes the answer.
``handlers.fetch_session`` knows what a session is and what it leaves out of an answer.

v4 isolation level (KIP-98), v5 log start offset, v7 sessions (KIP-227), v9 leader epoch (KIP-320),
v11 rack (KIP-392), v12 flexible, v13 topic ids (KIP-516), v15 replica state as a tag (KIP-903),
v16 node endpoints (KIP-951), v18 high watermark of the follower.
"""

from __future__ import annotations  # else each call would build those of inner functions

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.cluster.topics import TOPIC_NAME_LENGTH_MAX
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.advertised import Advertised
from ottla.handlers.call import Call, Response
from ottla.handlers.fetch_asked import PARTITIONS_MAX, is_follower, named_count
from ottla.handlers.fetch_data import data_of, refuse_all, refused_data
from ottla.handlers.fetch_look_up import LookUp
from ottla.handlers.fetch_session import (
    REFUSED_MAX,
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
    TOPIC_IDS_SINCE,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)
from ottla.replication.fetch import (
    FetchedPartition,
    FetchLimits,
    FetchSpec,
    Isolation,
    Prefers,
)
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import STRIDE, Steps, at_once, each

if TYPE_CHECKING:
    from ottla.handlers.follower_fetch import FollowerFetch

REPLICA_STATE_SINCE = 15
"""Older followers tell no epoch of their registration."""
NODE_ENDPOINTS_SINCE = 16
RACKS_SINCE = 11
"""Since then consumers know preferred replicas, and may be served by any replica."""
AT_ONCE_MAX = 500
"""Up to so many partitions are read and answered in one turn of the loop: some milliseconds."""
_ISOLATIONS: dict[int, Isolation] = {int(one): one for one in Isolation}
_FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_UNKNOWN, _UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
"""Named here because a member of an Enum is found ten times slower by its class."""
_NO_FOLLOWERS = ErrorCode.NOT_LEADER_OR_FOLLOWER


class _Asked:
    """The partitions of a request: those to be read, those that are refused, and their order."""

    __slots__ = ("refused", "specs", "topics")

    def __init__(self) -> None:
        self.topics: dict[tuple[str, TopicId], dict[int, TopicPartition]] = {}
        """By the topic as the client named it: its partitions, in the order of the request."""
        self.specs: dict[TopicPartition, FetchSpec] = {}
        self.refused: dict[TopicPartition, ErrorCode] = {}

    @property
    def is_not_held(self) -> bool:
        """Whether it names too much that does not exist to be kept in memory while it waits."""
        return len(self.refused) > REFUSED_MAX or any(
            len(name) > TOPIC_NAME_LENGTH_MAX for name, _ in self.topics
        )


class Fetch:
    """Reads with or without a fetch session."""

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
        is_rack_aware: bool = False,
    ) -> None:
        """``is_rack_aware``: whether consumers are sent to replicas in their rack."""
        self._is_rack_aware = is_rack_aware
        self._replica_manager = replica_manager
        self._image = image
        self._advertised = advertised
        self._sessions = sessions
        self._clock = clock
        self._response_bytes_max = response_bytes_max
        self._wait_ms_max = wait_ms_max
        self._look_up = LookUp(replica_manager, image).look_up
        self._follower_fetch: FollowerFetch | None = None
        """Use: made with the first request of a follower."""

    def handle(self, request: FetchRequest, call: Call) -> Response:
        """Answer when there are ``min_bytes`` or an error, or when ``max_wait_ms`` have passed."""
        isolation = _ISOLATIONS.get(request.isolation_level)
        if isolation is None:
            return refuse_all(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if is_follower(request):
            return self._follow(request, call)
        max_bytes = min(request.max_bytes, self._response_bytes_max)
        passage = call.passage
        if (
            passage is not None
            and (bytes_max := passage.fetch_bytes_max) is not None
            and max_bytes > bytes_max
        ):
            max_bytes = bytes_max  # A larger answer would never fit into the quota.
        limits = FetchLimits(
            max_wait_ms=min(request.max_wait_ms, self._wait_ms_max),
            min_bytes=min(request.min_bytes, max_bytes),  # There will never be more.
            max_bytes=max_bytes,
            isolation=isolation,
            may_follow=call.api_version >= RACKS_SINCE,
            prefers=self._nearest_to(request.rack_id) if request.rack_id else None,
        )
        named = named_count(request)
        if request.session_epoch not in (SESSION_EPOCH_FINAL, SESSION_EPOCH_INITIAL):
            try:
                session = self._continued(request, named, call)
            except KafkaError as error:
                return FetchResponse(error_code=error.code, responses=[])
            if session is None:
                return FetchResponse(responses=[])
            named += len(session)
            steps = self._go_on(session, limits, call)
        else:
            self._sessions.remove(request.session_id)
            if request.session_epoch == SESSION_EPOCH_INITIAL and named <= PARTITIONS_MAX:
                steps = self._begin_session(request, limits, call)
            elif named <= STRIDE:
                return self._few(request, limits, call)
            else:
                steps = self._without_session(request, limits, call)
        if named > AT_ONCE_MAX:
            return steps
        found = at_once(steps)
        return found.then(at_once) if isinstance(found, Pending) else found

    def _nearest_to(self, rack: str) -> Prefers | None:
        """Return what chooses the replica for a client in ``rack``; None: the leaders serve all."""
        replicas = self._replica_manager.replicas
        if replicas is None or not self._is_rack_aware:
            return None
        brokers = self._image.brokers
        racks = {node: broker.registration.rack for node, broker in brokers.items()}
        return partial(replicas.nearest, rack, racks)

    def _follow(self, request: FetchRequest, call: Call) -> Response:
        """Answer a node that follows; loads that."""
        access = call.client.access
        if access is not None and not access.may_replicate():
            return refuse_all(request, _FORBIDDEN)
        if call.api_version < REPLICA_STATE_SINCE:
            return refuse_all(request, _NO_FOLLOWERS)
        if self._follower_fetch is None:
            from ottla.handlers.follower_fetch import FollowerFetch  # noqa: PLC0415 - few have them

            self._follower_fetch = FollowerFetch(
                self._replica_manager,
                self._image,
                response_bytes_max=self._response_bytes_max,
                wait_ms_max=self._wait_ms_max,
            )
        return self._follower_fetch.handle(request)

    def _few(
        self, request: FetchRequest, limits: FetchLimits, call: Call
    ) -> FetchResponse | Pending[FetchResponse]:
        """Do as ``_without_session``, but not in steps, which cost as much as few partitions."""
        asked, passage = _Asked(), call.passage
        for topic in request.topics:
            self._ask(asked, topic, topic.partitions, call)

        def answer(fetched: list[FetchedPartition]) -> FetchResponse:
            if passage is not None:
                wait_ms = passage.fetch_wait_ms(call, fetched)
                if wait_ms:
                    return FetchResponse(throttle_time_ms=wait_ms, responses=[])
            found = {item.topic_partition: item for item in fetched}
            topics = [
                FetchableTopicResponse(
                    topic=name,
                    topic_id=topic_id,
                    partitions=[
                        refused_data(index, asked.refused[where])
                        if (read := found.get(where)) is None
                        else data_of(read, limits.isolation)
                        for index, where in indexes.items()
                    ],
                )
                for (name, topic_id), indexes in asked.topics.items()
            ]
            return self._with_endpoints(FetchResponse(responses=topics), call)

        if asked.refused and asked.is_not_held:
            limits = limits._replace(max_wait_ms=0)
        found = self._replica_manager.fetch(list(asked.specs.values()), limits)
        return found.then(answer) if isinstance(found, Pending) else answer(found)

    def _without_session(
        self, request: FetchRequest, limits: FetchLimits, call: Call
    ) -> Steps[FetchResponse | Pending[Steps[FetchResponse]]]:
        asked = yield from self._sort_out(request, call)
        passage = call.passage

        def answer(fetched: list[FetchedPartition]) -> Steps[FetchResponse]:
            if passage is not None:
                wait_ms = passage.fetch_wait_ms(call, fetched)
                if wait_ms:
                    return FetchResponse(throttle_time_ms=wait_ms, responses=[])
            response = yield from _response(asked, fetched, limits.isolation)
            return self._with_endpoints(response, call)

        if asked.is_not_held:
            limits = limits._replace(max_wait_ms=0)
        specs = list(asked.specs.values())
        return (yield from self._read(specs, limits, answer))

    def _read(
        self,
        specs: list[FetchSpec],
        limits: FetchLimits,
        answer: Callable[[list[FetchedPartition]], Steps[FetchResponse]],
    ) -> Steps[FetchResponse | Pending[Steps[FetchResponse]]]:
        """Read now, or when there is more, and return what ``answer`` makes of the result."""
        if len(specs) <= AT_ONCE_MAX:
            found = self._replica_manager.fetch(specs, limits)
            if isinstance(found, Pending):
                return found.then(answer)
            return (yield from answer(found))
        many = yield from self._replica_manager.fetch_many(specs, limits)
        if not isinstance(many, Pending):
            return (yield from answer(many))

        def answer_many(reading: Steps[list[FetchedPartition]]) -> Steps[FetchResponse]:
            fetched = yield from reading
            return (yield from answer(fetched))

        return many.then(answer_many)

    # With a session.

    def _begin_session(
        self, request: FetchRequest, limits: FetchLimits, call: Call
    ) -> Steps[FetchResponse | Pending[Steps[FetchResponse]]]:
        """Answer completely, and begin a session if the cache has room for it."""
        session = FetchSession(uses_topic_ids=call.api_version >= TOPIC_IDS_SINCE)
        session.update(request.topics, ())
        yield None
        yield from self._look_up(session, call.client.access)
        yield None
        plan, passage = session.plan(), call.passage
        if session.is_not_kept:
            limits = limits._replace(max_wait_ms=0)  # As without a session.

        def answer(fetched: list[FetchedPartition]) -> Steps[FetchResponse]:
            if passage is not None:
                wait_ms = passage.fetch_wait_ms(call, fetched)
                if wait_ms:
                    return FetchResponse(throttle_time_ms=wait_ms, responses=[])
            session.note_all(plan, fetched)
            self._sessions.add(session, self._clock.monotonic())
            yield None
            news = zip(plan.partitions, fetched, strict=True)
            response = yield from _session_response(session, news, plan.refused, limits.isolation)
            return self._with_endpoints(response, call)

        return (yield from self._read(plan.specs, limits, answer))

    def _continued(self, request: FetchRequest, named: int, call: Call) -> FetchSession | None:
        """Return the session that the request continues, updated by it.

        None: it is empty now, and has ended. Raises KafkaError when the session cannot go on.
        """
        session = self._sessions.get(
            request.session_id,
            request.session_epoch,
            uses_topic_ids=call.api_version >= TOPIC_IDS_SINCE,
        )
        if named > PARTITIONS_MAX or len(session) > PARTITIONS_MAX:
            self._sessions.remove(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.update(request.topics, request.forgotten_topics_data)
        self._sessions.advance(session, self._clock.monotonic())
        if len(session) == 0:
            self._sessions.remove(session.session_id)
            return None
        return session

    def _go_on(
        self, session: FetchSession, limits: FetchLimits, call: Call
    ) -> Steps[FetchResponse | Pending[Steps[FetchResponse]]]:
        """Answer with what is new since the session's last answer."""
        epoch, passage = session.epoch, call.passage
        if not (yield from self._look_up(session, call.client.access)):
            return _used_by_another(session)
        plan = session.plan()
        if session.is_not_kept:
            self._sessions.remove(session.session_id)
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])

        def answer(fetched: list[FetchedPartition]) -> Steps[FetchResponse]:
            if session.epoch != epoch:  # Another request used the session while this one waited.
                return _used_by_another(session)
            news = session.news(plan, fetched)
            if passage is not None:
                wait_ms = passage.news_wait_ms(call, news)
                if wait_ms:
                    return FetchResponse(
                        throttle_time_ms=wait_ms, session_id=session.session_id, responses=[]
                    )
            session.note(news)
            response = yield from _session_response(session, news, plan.refused, limits.isolation)
            return self._with_endpoints(response, call)

        return (yield from self._read(plan.specs, limits, answer))

    def _with_endpoints(self, response: FetchResponse, call: Call) -> FetchResponse:
        """Add the addresses of the leaders that the answer names (KIP-951)."""
        if call.api_version < NODE_ENDPOINTS_SINCE:
            return response
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

    # Without a session.

    def _sort_out(self, request: FetchRequest, call: Call) -> Steps[_Asked]:
        """Look the partitions up; if one is named twice, the last time counts."""
        asked = _Asked()
        for topic in request.topics:
            for begin in range(0, len(topic.partitions) or 1, STRIDE):
                yield None
                parts = topic.partitions[begin : begin + STRIDE]
                self._ask(asked, topic, parts, call)
        return asked

    def _ask(
        self, asked: _Asked, topic: FetchTopic, parts: Sequence[FetchPartition], call: Call
    ) -> None:
        """Put some partitions of a topic into ``asked``, to be read or refused."""
        name, by_id = topic.topic, call.api_version >= TOPIC_IDS_SINCE
        refusal, forbidden = _UNKNOWN, False
        if by_id:
            known = self._image.topic_by_id(topic.topic_id)
            if known is None:
                refusal = _UNKNOWN_ID
            name = topic_id_text(topic.topic_id) if known is None else known.name
        access = call.client.access
        if (
            access is not None
            and (name not in access.readable or access.epoch != access.authorizer.epoch)
            and refusal is not _UNKNOWN_ID
            and not access.may_fetch(name)  # Asked only if what stands before does not tell.
        ):
            refusal, forbidden = _FORBIDDEN, True
        indexes = asked.topics.setdefault((topic.topic, topic.topic_id), {})
        for part in parts:
            where = TopicPartition(name, part.partition)
            indexes[part.partition] = where
            hosted = None if forbidden else self._replica_manager.topic_id_anywhere(where)
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


def _response(
    asked: _Asked, fetched: list[FetchedPartition], isolation: Isolation
) -> Steps[FetchResponse]:
    found = {item.topic_partition: item for item in fetched}

    def data(item: tuple[int, TopicPartition]) -> PartitionData:
        return _answered(item, asked, found, isolation)

    topics = []
    for (name, topic_id), indexes in asked.topics.items():
        partitions = yield from each(indexes.items(), data)
        topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions))
    return FetchResponse(responses=topics)


def _answered(
    item: tuple[int, TopicPartition],
    asked: _Asked,
    found: Mapping[TopicPartition, FetchedPartition],
    isolation: Isolation,
) -> PartitionData:
    index, where = item
    read = found.get(where)
    if read is None:
        return refused_data(index, asked.refused[where])
    return data_of(read, isolation)


def _used_by_another(session: FetchSession) -> FetchResponse:
    return FetchResponse(
        error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        session_id=session.session_id,
        responses=[],
    )


def _session_response(
    session: FetchSession,
    news: Iterable[tuple[SessionPartition, FetchedPartition]],
    refused: Iterable[SessionPartition],
    isolation: Isolation,
) -> Steps[FetchResponse]:
    """Return an answer with ``news`` and all partitions that cannot be read."""
    topics: dict[tuple[str, TopicId], list[PartitionData]] = {}
    for count, (partition, fetched) in enumerate(news, 1):
        name, topic_id, _ = partition.key
        topics.setdefault((name, topic_id), []).append(data_of(fetched, isolation))
        if not count % STRIDE:
            yield None
    for count, partition in enumerate(refused, 1):
        name, topic_id, index = partition.key
        if partition.refusal is not None:
            data = refused_data(index, partition.refusal)
            topics.setdefault((name, topic_id), []).append(data)
        if not count % STRIDE:
            yield None
    yield None
    return FetchResponse(
        session_id=session.session_id,
        responses=[
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
    )
