"""SyncGroup, Heartbeat and LeaveGroup on a classic group. Pure.

Source: KIP-345, KIP-559 and the answers of a live Kafka.
"""

from ottla.coordinator.group.classic.events import (
    Answer,
    AssignmentStored,
    CancelTimer,
    ClassicSettings,
    Heartbeat,
    Leave,
    LeaveAnswer,
    LeavingMember,
    Store,
    Sync,
    SyncAnswer,
    TimerKind,
)
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState
from ottla.coordinator.group.classic.rebalance import (
    Effects,
    answer_sync,
    complete_if_all_joined,
    prepare_rebalance,
    rebalance_or_complete,
    remove_member,
    reset_assignments,
    session_timer,
    tell_synced,
)
from ottla.errors import ErrorCode, KafkaError


def on_sync(group: ClassicGroup, sync: Sync, now_ms: int, settings: ClassicSettings) -> Effects:
    """Take the leader's assignment; let other members wait for theirs, or answer them."""
    effects: Effects = []
    code = _sync_refusal(group, sync)
    if code is not ErrorCode.NONE:
        effects.append(Answer(sync.reply, SyncAnswer(code)))
        return effects
    member = group.members[sync.member_id]
    _synced(group, sync.member_id, effects)
    if group.state is GroupState.STABLE:
        answer = SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)
        effects.append(Answer(sync.reply, answer))
        return effects
    # An earlier SyncGroup of the same member may wait, which its client has given up.
    answer_sync(member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS), effects)
    member.awaiting_sync = sync.reply
    if group.leader == sync.member_id:
        assignments = {
            member_id: sync.assignments.get(member_id, b"") for member_id in group.members
        }
        stored = AssignmentStored(group.generation, assignments, ErrorCode.NONE)
        effects.append(Store(assignments, stored))
    return effects


def _sync_refusal(group: ClassicGroup, sync: Sync) -> ErrorCode:
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        group.check_member(sync.member_id, sync.instance_id)
    except KafkaError as error:
        return error.code
    if sync.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(sync.protocol_type, group.protocol_type) or _differ(sync.protocol, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def _synced(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    group.pending_syncs.discard(member_id)
    if not group.pending_syncs:
        effects.append(CancelTimer(TimerKind.SYNC))


def on_assignment_stored(
    group: ClassicGroup, stored: AssignmentStored, now_ms: int, settings: ClassicSettings
) -> Effects:
    """Hand out the assignments when they are durable; rebalance if they were not written."""
    effects: Effects = []
    is_current = stored.generation == group.generation
    if group.state is not GroupState.COMPLETING_REBALANCE or not is_current:
        return effects  # A rebalance has begun meanwhile, and has answered everybody.
    if stored.code is not ErrorCode.NONE:
        reset_assignments(group, stored.code, effects)
        rebalance_or_complete(group, now_ms, settings, effects)
        return effects
    for member_id, member in group.members.items():
        member.assignment = stored.assignments.get(member_id, b"")
    answer = SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol)
    tell_synced(group, lambda assignment: answer._replace(assignment=assignment), effects)
    group.transition(GroupState.STABLE, now_ms)
    return effects


def on_heartbeat(
    group: ClassicGroup, beat: Heartbeat, now_ms: int, settings: ClassicSettings
) -> Effects:
    """Extend a member's session; during a rebalance, tell it to join."""
    try:
        member = group.check_member(beat.member_id, beat.instance_id)
    except KafkaError as error:
        return [Answer(beat.reply, error.code)]
    if beat.generation != group.generation:
        return [Answer(beat.reply, ErrorCode.ILLEGAL_GENERATION)]
    is_preparing = group.state is GroupState.PREPARING_REBALANCE
    code = ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE
    return [session_timer(member), Answer(beat.reply, code)]


def on_leave(group: ClassicGroup, leave: Leave, now_ms: int, settings: ClassicSettings) -> Effects:
    """Remove members; the others rebalance."""
    effects: Effects = []
    answers = tuple(LeaveAnswer(one, _leave_one(group, one, effects)) for one in leave.members)
    if any(answer.code is ErrorCode.NONE for answer in answers):
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare_rebalance(group, now_ms, settings, effects)
        else:
            complete_if_all_joined(group, now_ms, effects)
    effects.append(Answer(leave.reply, answers))
    return effects


def _leave_one(group: ClassicGroup, leaving: LeavingMember, effects: Effects) -> ErrorCode:
    member_id, instance_id = leaving
    if not member_id:
        known = None if instance_id is None else group.static_members.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif member_id in group.pending_joins:
        group.remove(member_id)
        effects.append(CancelTimer(TimerKind.SESSION, member_id))
        return ErrorCode.NONE
    else:
        try:
            group.check_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
    remove_member(group, group.members[member_id], effects)
    effects.append(CancelTimer(TimerKind.SESSION, member_id))
    return ErrorCode.NONE
