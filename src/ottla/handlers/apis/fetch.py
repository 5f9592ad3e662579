"""Fetch, key 1: read committed records of some partitions, waiting for them if asked to.

v4 isolation level (KIP-98), v5 log start offset, v7 sessions (KIP-227), v9 leader epoch (KIP-320),
v11 rack (KIP-392), v12 flexible, v13 topic ids (KIP-516), v15 replica state as a tag (KIP-903),
v16 node endpoints (KIP-951), v18 high watermark of the follower. Sessions are not kept: every
answer is complete and carries session id 0, which tells clients so.
"""

from collections.abc import Callable

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.ids import TopicId, TopicPartition
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

TopicKey = tuple[str, TopicId]


class Fetch:
    """Reads through the replica manager."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        image: Callable[[], MetadataImage],
        *,
        response_bytes_max: int,
        wait_ms_max: int,
    ) -> None:
        self._replica_manager = replica_manager
        self._image = image
        self._response_bytes_max = response_bytes_max
        self._wait_ms_max = wait_ms_max

    def handle(
        self, request: FetchRequest, call: Call
    ) -> FetchResponse | Pending[FetchResponse]:
        """Answer once ``min_bytes`` are there, an error is, or ``max_wait_ms`` have passed."""
        session_error = _session_error(request)
        if session_error is not ErrorCode.NONE:
            return FetchResponse(error_code=session_error, responses=[])
        if request.isolation_level not in Isolation._value2member_map_:
            return self._refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if _is_follower(request):
            return self._refuse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topics: dict[TopicKey, list[int]] = {}
        specs: dict[TopicPartition, FetchSpec] = {}
        refused: dict[tuple[TopicKey, int], ErrorCode] = {}
        names: dict[TopicKey, str] = {}
        image = self._image()
        for topic in request.topics:
            key = (topic.topic, topic.topic_id)
            name = topic.topic
            if call.api_version >= TOPIC_IDS_SINCE:
                name = image.topic_name(topic.topic_id) or ""
            names[key] = name
            indexes = topics.setdefault(key, [])
            for part in topic.partitions:
                where = TopicPartition(name, part.partition)
                if where in specs or (key, part.partition) in refused:
                    indexes.remove(part.partition)
                indexes.append(part.partition)
                if not name and call.api_version >= TOPIC_IDS_SINCE:
                    refused[key, part.partition] = ErrorCode.UNKNOWN_TOPIC_ID
                elif self._replica_manager.get(where) is None:
                    refused[key, part.partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    specs.pop(where, None)
                    specs[where] = FetchSpec(
                        where, part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch
                    )
        is_committed = request.isolation_level == Isolation.READ_COMMITTED

        def respond(fetched: list[FetchedPartition]) -> FetchResponse:
            found = {item.topic_partition: item for item in fetched}
            return FetchResponse(
                error_code=0,
                responses=[
                    FetchableTopicResponse(
                        topic=key[0],
                        topic_id=key[1],
                        partitions=[
                            _refused_data(index, refused[key, index])
                            if (key, index) in refused
                            else _data(found[TopicPartition(names[key], index)], is_committed)
                            for index in indexes
                        ],
                    )
                    for key, indexes in topics.items()
                ],
            )

        outcome = self._replica_manager.fetch(
            list(specs.values()),
            FetchLimits(
                max_wait_ms=min(request.max_wait_ms, self._wait_ms_max),
                min_bytes=request.min_bytes,
                max_bytes=min(request.max_bytes, self._response_bytes_max),
                isolation=Isolation(request.isolation_level),
            ),
        )
        return outcome.then(respond) if isinstance(outcome, Pending) else respond(outcome)

    def _refuse(self, request: FetchRequest, code: ErrorCode) -> FetchResponse:
        return FetchResponse(
            error_code=code if code is ErrorCode.UNKNOWN_SERVER_ERROR else 0,
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
    if request.session_id == 0:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
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


def _data(fetched: FetchedPartition, is_committed: bool) -> PartitionData:  # noqa: FBT001
    has_aborted = is_committed and fetched.code is ErrorCode.NONE
    return PartitionData(
        partition_index=fetched.topic_partition.partition,
        error_code=fetched.code,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=[] if has_aborted else None,
        records=b"" if fetched.region is None else fetched.region,
    )
