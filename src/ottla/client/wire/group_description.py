"""A group as DescribeGroups or ConsumerGroupDescribe shows it, in one form. Does no I/O."""

from typing import NamedTuple

from ottla.client.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from ottla.ids import TopicPartition
from ottla.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from ottla.protocol.messages.describe_groups import DescribedGroup as ClassicGroup


class MemberDescription(NamedTuple):
    """One member of a group and what it was given."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """Empty, too, when the group's members use a protocol of their own."""


class GroupDescription(NamedTuple):
    """A group and its members."""

    group: str
    type: str
    """``classic`` or ``consumer``."""
    state: str
    protocol_type: str
    assignor: str
    """How partitions are shared; empty unless the group is stable."""
    coordinator: int
    members: tuple[MemberDescription, ...]

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that its offsets may be changed from outside."""
        return not self.members


def describe_classic(found: ClassicGroup, coordinator: int) -> GroupDescription:
    """Return what DescribeGroups told. Raises ValueError for an assignment that cannot be read."""
    is_consumer = found.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        found.group_id,
        "classic",
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        coordinator,
        tuple(
            MemberDescription(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host.removeprefix("/"),
                tuple(decode_assignment(one.member_assignment)) if is_consumer else (),
            )
            for one in found.members
        ),
    )


def describe_consumer(found: ConsumerGroup, coordinator: int) -> GroupDescription:
    """Return what ConsumerGroupDescribe told."""
    return GroupDescription(
        found.group_id,
        "consumer",
        found.group_state,
        PROTOCOL_TYPE,
        found.assignor_name,
        coordinator,
        tuple(
            MemberDescription(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host.removeprefix("/"),
                tuple(
                    TopicPartition(topic.topic_name, index)
                    for topic in one.assignment.topic_partitions
                    for index in topic.partitions
                ),
            )
            for one in found.members
        ),
    )
