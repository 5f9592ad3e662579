"""ConsumerGroupDescribe, key 69: members, epochs and assignments of KIP-848 groups.

v1 adds which protocol each member speaks (KIP-1099).
"""

from collections.abc import Iterable, Mapping

from ottla.coordinator.group.consumer.group import CONSUMER, ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.coordinator.group.consumer.targets import preferred_assignor
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.answer_room import AnswerRoom
from ottla.handlers.call import Call
from ottla.handlers.operations import GROUP_OPERATIONS
from ottla.ids import TopicId
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ottla.sliced import Steps, distinct, each

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Values of ``member_type``: the protocol that the member speaks."""

_NUMBERS = 16
"""So many partition indexes count as one element of the answer."""


class ConsumerGroupDescribe:
    """Answers from the group coordinator's memory."""

    def __init__(
        self, groups: GroupCoordinator, image: MetadataImage, *, elements_max: int
    ) -> None:
        self._groups = groups
        self._image = image
        self._elements_max = elements_max

    def handle(
        self, request: ConsumerGroupDescribeRequest, call: Call
    ) -> Steps[ConsumerGroupDescribeResponse]:
        """Return each group once, with its own error if it has one."""
        del call
        room = AnswerRoom(self._elements_max)
        groups: list[DescribedGroup] = []
        for group_id in (yield from distinct(request.group_ids)):
            try:
                found: ConsumerGroup = yield self._groups.describe(CONSUMER, group_id)
                if not room.take((yield from _weight(found))):
                    raise room.refusal
            except KafkaError as error:
                groups.append(_refused(group_id, error))
                continue
            described = yield from self._described(
                found, with_operations=request.include_authorized_operations
            )
            groups.append(described)
        return ConsumerGroupDescribeResponse(groups=groups)

    def _described(self, group: ConsumerGroup, *, with_operations: bool) -> Steps[DescribedGroup]:
        members = list(group.members.values())
        described = DescribedGroup(
            group_id=group.group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=preferred_assignor(group),
            members=(yield from each(members, lambda member: self._member(group, member))),
        )
        if with_operations:
            described.authorized_operations = GROUP_OPERATIONS
        return described

    def _member(self, group: ConsumerGroup, member: ConsumerMember) -> Member:
        held: dict[TopicId, list[int]] = {}
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                held.setdefault(topic_id, []).extend(numbers)
        return Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
            subscribed_topic_regex=member.regex,
            assignment=self._assignment(held),
            target_assignment=self._assignment(group.targets.get(member.member_id, {})),
            member_type=CLASSIC_MEMBER if member.classic is not None else CONSUMER_MEMBER,
        )

    def _assignment(self, partitions: Mapping[TopicId, Iterable[int]]) -> Assignment:
        """Return the partitions with their topics' names, without deleted topics."""
        found = []
        for topic_id, numbers in partitions.items():
            topic = self._image.topic_by_id(topic_id)
            if topic is not None:
                found.append(
                    TopicPartitions(
                        topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers)
                    )
                )
        return Assignment(topic_partitions=found)


def _weight(group: ConsumerGroup) -> Steps[int]:
    """Return how many elements a group counts for: members, topics, owned and target partitions."""
    topics = yield from each(list(group.members.values()), lambda member: len(member.topics))
    targets = yield from each(
        list(group.targets.values()), lambda one: sum(len(numbers) for numbers in one.values())
    )
    weight = len(topics) + sum(topics) + (len(group.owners) + sum(targets)) // _NUMBERS
    return 1 + weight


def _refused(group_id: str, error: KafkaError) -> DescribedGroup:
    # In Kafka only GROUP_ID_NOT_FOUND has a text; INVALID_REQUEST is our own refusal.
    is_told = error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST)
    return DescribedGroup(
        error_code=error.code,
        error_message=error.why if is_told else None,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
