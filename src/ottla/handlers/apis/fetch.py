"""Fetch, key 1: read committed records of some partitions, waiting for them if asked to.

v4 isolation level (KIP-98), v5 log start offset, v7 sessions (KIP-227), v9 leader epoch (KIP-320),
v11 rack (KIP-392), v12 flexible, v13 topic ids (KIP-516), v15 replica state as a tag (KIP-903),
v16 node endpoints (KIP-951), v18 high watermark of the follower. Sessions are not kept: every
answer is complete and carries session id 0, which tells clients so.
"""

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.ids import TopicId, TopicPartition, topic_id_text
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.replication.fetch import FetchedPartition, FetchLimits, FetchSpec, Isolation
from ottla.replication.replica_manager import ReplicaManager

TOPIC_IDS_SINCE = 13
SESSION_EPOCH_FINAL = -1
SESSION_EPOCH_INITIAL = 0
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
        *,
        response_bytes_max: int,
        wait_ms_max: int,
    ) -> None:
        self._replica_manager = replica_manager
        self._image = image
        self._response_bytes_max = response_bytes_max
        self._wait_ms_max = wait_ms_max

    def handle(self, request: FetchRequest, call: Call) -> FetchResponse | Pending[FetchResponse]:
        """Answer once ``min_bytes`` are there, an error is, or ``max_wait_ms`` have passed."""
        session_error = _session_error(request)
        if session_error is not ErrorCode.NONE:
            return FetchResponse(error_code=session_error, responses=[])
        if request.isolation_level not in _ISOLATIONS:
            return _refuse_all(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if _is_follower(request):
            return _refuse_all(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        isolation = Isolation(request.isolation_level)
        asked = self._sort_out(request, by_id=call.api_version >= TOPIC_IDS_SINCE)
        found = self._replica_manager.fetch(
            list(asked.specs.values()),
            FetchLimits(
                max_wait_ms=min(request.max_wait_ms, self._wait_ms_max),
                min_bytes=request.min_bytes,
                max_bytes=min(request.max_bytes, self._response_bytes_max),
                isolation=isolation,
            ),
        )
        if isinstance(found, Pending):
            return found.then(lambda fetched: _response(asked, fetched, isolation))
        return _response(asked, found, isolation)

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
                if self._replica_manager.get(where) is None:
                    asked.refused[where] = refusal
                    continue
                asked.specs[where] = FetchSpec(
                    where, part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch
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


def _session_error(request: FetchRequest) -> ErrorCode:
    """Return what Kafka answers to a session that does not exist; none ever does here."""
    if request.session_epoch in (SESSION_EPOCH_FINAL, SESSION_EPOCH_INITIAL):
        return ErrorCode.NONE
    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND


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
        aborted_transactions=[] if may_have_aborted else None,
        records=b"" if fetched.region is None else fetched.region,
    )
