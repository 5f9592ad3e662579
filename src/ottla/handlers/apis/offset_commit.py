"""OffsetCommit, key 8: stores how far a group has read. Answered when it is durable.

Partitions that do not exist are refused here and never reach the group. v10 names topics by id.
"""

from ottla.coordinator.group.coordinator import Commit, CommitRequest, GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.pending import Pending
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TELLS_UNKNOWN_GROUP_SINCE = 9
IDS_SINCE = 10


class OffsetCommit:
    """Hands what exists to the group."""

    def __init__(self, groups: GroupCoordinator, image: MetadataImage) -> None:
        self._groups = groups
        self._image = image

    def handle(
        self, request: OffsetCommitRequest, call: Call
    ) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
        """Answer per partition, in the request's order."""
        refusals: list[ErrorCode | None] = []
        commits: list[Commit] = []
        for asked in request.topics:
            topic = self._topic(asked, call.api_version)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is None and call.api_version >= IDS_SINCE:
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
            for part in asked.partitions:
                index = part.partition_index
                if topic is None or not 0 <= index < len(topic.partitions):
                    refusals.append(unknown)
                    continue
                refusals.append(None)
                commits.append(
                    Commit(
                        topic.name,
                        index,
                        part.committed_offset,
                        part.committed_leader_epoch,
                        part.committed_metadata,
                        topic.topic_id,
                    )
                )
        if not commits:
            return _response(request, [code or ErrorCode.NONE for code in refusals])

        def respond(outcome: list[ErrorCode] | KafkaError) -> OffsetCommitResponse:
            if isinstance(outcome, KafkaError):
                outcome = [outcome.code] * len(commits)
            codes = iter(outcome)
            merged = [next(codes) if refusal is None else refusal for refusal in refusals]
            return _response(request, merged)

        committed = self._groups.commit(
            CommitRequest(
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                request.retention_time_ms,
                commits,
                call.api_version >= TELLS_UNKNOWN_GROUP_SINCE,
            )
        )
        return committed.then(respond)

    def _topic(self, asked: OffsetCommitRequestTopic, version: int) -> TopicImage | None:
        if version >= IDS_SINCE:
            return self._image.topic_by_id(asked.topic_id)
        return self._image.topic(asked.name)


def _response(request: OffsetCommitRequest, codes: list[ErrorCode]) -> OffsetCommitResponse:
    answers = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=next(answers)
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
