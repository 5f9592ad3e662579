"""Takes a member one step towards its target: it gives up first, then gets. Pure.

A partition goes to its next owner only when its last owner has given it up, by a heartbeat that
does not name it among the partitions owned. Source: KIP-848, reconciliation; Kafka 4.3, asked.
"""

from collections.abc import Callable, Collection

from ottla.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Owned,
    Partitions,
    Target,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId

IsHeldByOthers = Callable[[TopicId, int], bool]


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Target,
    subscribed: Collection[TopicId],
    is_held: IsHeldByOthers,
    owned: Owned | None,
) -> ConsumerMember:
    """Return the member after a heartbeat in which it ``owned`` these partitions.

    ``owned`` None: it did not say, so it may still have everything. ``is_held`` tells whether
    anybody holds a partition. ``target`` counts for topics in ``subscribed`` only: it may be from
    before the member changed its mind. Raises KafkaError (FENCED_MEMBER_EPOCH).
    """
    wanted = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in subscribed}
    epoch = _epoch_to_go_on(member, target_epoch, subscribed, owned)
    if epoch is None:
        return member
    kept, revoking = _split(member, wanted)
    if revoking and _owns(owned, revoking):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    is_complete = True
    for topic_id, numbers in wanted.items():
        for number in numbers:
            if number in kept.get(topic_id, ()):
                continue
            if is_held(topic_id, number) and not _is_own(member, topic_id, number):
                is_complete = False
            else:
                kept.setdefault(topic_id, {})[number] = target_epoch
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, target_epoch, state, kept, NO_PARTITIONS)


def _epoch_to_go_on(
    member: ConsumerMember, target_epoch: int, subscribed: Collection[TopicId], owned: Owned | None
) -> int | None:
    """Return the epoch of the member's next step; None: it has no step to take."""
    if member.state is MemberState.STABLE:
        has_more = any(topic_id not in subscribed for topic_id in member.assigned)
        return None if member.epoch == target_epoch and not has_more else member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, member.revoking):
        return None
    if member.state is MemberState.UNKNOWN:
        if owned is None or any(owned.values()):
            why = "The consumer group member is in a unknown state. The member must abandon all "
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, f"{why}its partitions and rejoin.")
        return target_epoch
    return member.epoch


_Split = dict[TopicId, dict[int, int]]


def _split(member: ConsumerMember, wanted: Target) -> tuple[_Split, _Split]:
    """Return the partitions that a member keeps, and those that it must give up."""
    kept: _Split = {}
    revoking: _Split = {}
    for topic_id, numbers in member.assigned.items():
        for number, since in numbers.items():
            into = kept if number in wanted.get(topic_id, ()) else revoking
            into.setdefault(topic_id, {})[number] = since
    return kept, revoking


def _owns(owned: Owned | None, partitions: Partitions) -> bool:
    """Tell whether the member has any of ``partitions`` still."""
    if owned is None:
        return True
    return any(
        number in partitions.get(topic_id, ())
        for topic_id, numbers in owned.items()
        for number in numbers
    )


def _is_own(member: ConsumerMember, topic_id: TopicId, number: int) -> bool:
    """Tell whether the member itself holds a partition, which it has just given up."""
    return number in member.revoking.get(topic_id, ()) or number in member.assigned.get(
        topic_id, ()
    )


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Partitions,
    revoking: Partitions,
) -> ConsumerMember:
    return member._replace(
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
