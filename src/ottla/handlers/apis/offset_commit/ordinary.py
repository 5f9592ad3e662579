"""OffsetCommit, key 8: stores how far a group has read; answers when that is durable.

Partitions that do not exist are refused here and never reach the group. v10 names topics by id.
"""

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.offsets.committing import CommitRequest
from ottla.errors import ErrorCode
from ottla.handlers.apis.offset_commit.direct import (
    IDS_SINCE,
    TELLS_UNKNOWN_GROUP_SINCE,
    DirectOffsetCommit,
)
from ottla.handlers.call import Call, Direct, Encode
from ottla.handlers.commit_topics import sort_topics
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.pending import Pending
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.sliced import Steps, each


class OffsetCommit:
    """Passes the offsets of existing partitions to the group coordinator."""

    def __init__(self, groups: GroupCoordinator, image: MetadataImage) -> None:
        self._groups = groups
        self._image = image

    def handle(
        self, request: OffsetCommitRequest, call: Call
    ) -> Steps[OffsetCommitResponse | Pending[Steps[OffsetCommitResponse]]]:
        """Return one code per partition, in the request's order."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if call.api_version >= IDS_SINCE:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        found = yield from sort_topics(
            request.topics, lambda asked: self._topic(asked, call.api_version), unknown
        )
        if not found.existing:
            return (yield from _response(request, found.codes([])))
        committed = self._groups.commit_offsets(
            CommitRequest(
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                request.retention_time_ms,
                found.existing,
                call.api_version >= TELLS_UNKNOWN_GROUP_SINCE,
            )
        )
        return committed.then(
            lambda codes: _response(request, found.codes(codes)),
            lambda error: _response(request, found.codes_refused(error)),
        )

    def direct(self, version: int, encode: Encode) -> Direct:
        """Return the direct way, for offsets without metadata."""
        del encode
        return DirectOffsetCommit(version, self._groups, self._image).serve

    def _topic(self, asked: OffsetCommitRequestTopic, version: int) -> TopicImage | None:
        if version >= IDS_SINCE:
            return self._image.topic_by_id(asked.topic_id)
        return self._image.topic(asked.name)


def _response(request: OffsetCommitRequest, codes: list[ErrorCode]) -> Steps[OffsetCommitResponse]:
    answers = iter(codes)
    topics = []
    for topic in request.topics:
        found = yield from each(
            topic.partitions,
            lambda part: OffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=next(answers)
            ),
        )
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=found)
        )
    return OffsetCommitResponse(topics=topics)
