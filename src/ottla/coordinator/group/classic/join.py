"""JoinGroup on a classic group: which members may join, and what that starts. Pure.

Source: KIP-394 (ids first), KIP-345 (static members), KIP-814 (a static leader comes back); the
answers of a live Kafka.
"""

from collections.abc import Mapping

from ottla.coordinator.group.classic.events import (
    Answer,
    CancelTimer,
    ClassicSettings,
    Join,
    JoinAnswer,
    SessionExpired,
    SetTimer,
    StaticMemberStored,
    Store,
    StoreNew,
    SyncAnswer,
    TimerKind,
)
from ottla.coordinator.group.classic.group import (
    NO_LEADER,
    ClassicGroup,
    GroupState,
    Member,
    metadata_bytes_of,
)
from ottla.coordinator.group.classic.rebalance import (
    Effects,
    answer_join,
    answer_sync,
    complete_if_all_joined,
    joined,
    prepare_rebalance,
    rebalance_or_complete,
    session_timer,
)
from ottla.errors import ErrorCode, KafkaError


def on_join(group: ClassicGroup, join: Join, now_ms: int, settings: ClassicSettings) -> Effects:
    """Add a member, or let it come back, or refuse it."""
    effects: Effects = []
    member_id = join.member_id
    if not _has_room(group, member_id, settings):
        group.remove(member_id)
        effects.append(CancelTimer(TimerKind.SESSION, member_id))
        _refuse(join, "", ErrorCode.GROUP_MAX_SIZE_REACHED, effects)
        complete_if_all_joined(group, now_ms, effects)
    elif not group.supports(join.protocol_type, join.protocols):
        _refuse(join, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, effects)
    elif not _has_metadata_room(group, join, settings):
        _refuse(join, member_id, ErrorCode.GROUP_MAX_SIZE_REACHED, effects)
    elif not member_id:
        _join_new(group, join, now_ms, settings, effects)
    elif member_id in group.pending_joins and join.instance_id is None:
        _add(group, join, now_ms, settings, effects, member_id=member_id)
    else:
        _join_again(group, join, now_ms, settings, effects)
    if join.is_new_group:
        effects.append(StoreNew(join.reply))
    return effects


def _refuse(join: Join, member_id: str, code: ErrorCode, effects: Effects) -> None:
    effects.append(Answer(join.reply, JoinAnswer(member_id, code)))


def _has_room(group: ClassicGroup, member_id: str, settings: ClassicSettings) -> bool:
    member = group.members.get(member_id)
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        is_waiting = member is not None and member.awaiting_join is not None
        return is_waiting or group.awaiting_join_count < settings.members_max
    return member is not None or len(group.members) < settings.members_max


def _has_metadata_room(group: ClassicGroup, join: Join, settings: ClassicSettings) -> bool:
    """Tell whether the group may keep what the member knows, in the place of what it knew."""
    known_id = join.member_id or group.static_members.get(join.instance_id or "")
    known = group.members.get(known_id or "")
    others_bytes = group.metadata_bytes - (known.metadata_bytes if known is not None else 0)
    return others_bytes + metadata_bytes_of(join.protocols) <= settings.metadata_max_bytes


def _join_new(
    group: ClassicGroup, join: Join, now_ms: int, settings: ClassicSettings, effects: Effects
) -> None:
    """Give an id to a client without one; a static member may be known by its name."""
    new_id = join.new_member_id
    if join.instance_id is not None:
        old_id = group.static_members.get(join.instance_id)
        if old_id is not None:
            _replace_static(group, join, now_ms, settings, effects, old_id=old_id)
        else:
            _add(group, join, now_ms, settings, effects, member_id=new_id)
    elif join.needs_known_member_id:
        # Not a member yet: a client that asks for ids and never comes back costs little. An id that
        # was forgotten is told so (UNKNOWN_MEMBER_ID), and asks again.
        if len(group.pending_joins) >= settings.pending_ids_max:
            oldest = next(iter(group.pending_joins))
            group.remove(oldest)
            effects.append(CancelTimer(TimerKind.SESSION, oldest))
        group.pending_joins[new_id] = None
        delay_ms, event = join.session_timeout_ms, SessionExpired(new_id)
        effects.append(SetTimer(TimerKind.SESSION, new_id, delay_ms, event))
        _refuse(join, new_id, ErrorCode.MEMBER_ID_REQUIRED, effects)
    else:
        _add(group, join, now_ms, settings, effects, member_id=new_id)


def _add(
    group: ClassicGroup,
    join: Join,
    now_ms: int,
    settings: ClassicSettings,
    effects: Effects,
    *,
    member_id: str,
) -> None:
    member = Member(
        member_id,
        instance_id=join.instance_id,
        client_id=join.client_id,
        client_host=join.client_host,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        session_timeout_ms=join.session_timeout_ms,
        protocols=join.protocols,
    )
    member.is_new = True
    is_preparing = group.state is GroupState.PREPARING_REBALANCE
    if is_preparing and group.previous_state is GroupState.EMPTY:
        group.member_added = True
    group.add(member, join.protocol_type)
    group.await_join(member, join.reply)
    # The client may give up silently: the session timer ends the wait.
    effects.append(session_timer(member, settings.new_member_timeout_ms))
    rebalance_or_complete(group, now_ms, settings, effects)


def _join_again(
    group: ClassicGroup, join: Join, now_ms: int, settings: ClassicSettings, effects: Effects
) -> None:
    """Let a member join a rebalance, or start one."""
    try:
        member = group.check_member(join.member_id, join.instance_id)
    except KafkaError as error:
        _refuse(join, join.member_id, error.code, effects)
        return
    has_changed = member.protocols != join.protocols
    is_leader = group.leader == member.member_id
    if group.state is GroupState.COMPLETING_REBALANCE and not has_changed:
        # The member has not seen the answer to its last JoinGroup.
        effects.append(Answer(join.reply, joined(group, member.member_id)))
    elif group.state is GroupState.STABLE and not has_changed and not is_leader:
        effects.append(Answer(join.reply, joined(group, member.member_id)))
    elif group.state is GroupState.EMPTY:
        _refuse(join, join.member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
    else:
        # A leader that joins a stable group wants a rebalance: its topics have changed.
        _update(group, member, join, effects)
        rebalance_or_complete(group, now_ms, settings, effects)


def _update(group: ClassicGroup, member: Member, join: Join, effects: Effects) -> None:
    """Let a member wait with its new protocols; an earlier JoinGroup that waits is answered."""
    answer_join(
        group, member, JoinAnswer(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS), effects
    )
    group.set_protocols(member, join.protocols)
    member.rebalance_timeout_ms = join.rebalance_timeout_ms
    member.session_timeout_ms = join.session_timeout_ms
    group.await_join(member, join.reply)


def _replace_static(
    group: ClassicGroup,
    join: Join,
    now_ms: int,
    settings: ClassicSettings,
    effects: Effects,
    *,
    old_id: str,
) -> None:
    """Let a restarted static member go on under a new id, without a rebalance if possible."""
    old_leader = group.leader
    member = group.replace(old_id, join.new_member_id)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    answer_join(group, member, JoinAnswer(old_id, fenced), effects)
    answer_sync(member, SyncAnswer(fenced), effects)
    effects.append(session_timer(member))
    stored = StaticMemberStored(
        join,
        member.member_id,
        old_id,
        old_leader,
        member.protocols,
        (member.rebalance_timeout_ms, member.session_timeout_ms),
        ErrorCode.NONE,
    )
    _update(group, member, join, effects)
    if group.state is GroupState.STABLE:
        if group.select_protocol() == group.protocol:
            # The assignment stays: only the log has to know the new id.
            effects.append(Store(assignments_of(group), stored))
        else:
            rebalance_or_complete(group, now_ms, settings, effects)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        prepare_rebalance(group, now_ms, settings, effects)
    else:
        complete_if_all_joined(group, now_ms, effects)


def on_static_member_stored(
    group: ClassicGroup, stored: StaticMemberStored, now_ms: int, settings: ClassicSettings
) -> Effects:
    """Answer a static member that came back, or undo that if it could not be written."""
    effects: Effects = []
    member = group.members.get(stored.member_id)
    is_waiting = member is not None and member.awaiting_join is stored.join.reply
    if member is None or not is_waiting or group.state is not GroupState.STABLE:
        return effects  # A rebalance will answer the member, or it was answered.
    leader, join = stored.old_leader or NO_LEADER, stored.join
    if stored.code is not ErrorCode.NONE:
        answer = joined(group, "")._replace(code=stored.code, leader=leader)
        answer_join(group, member, answer, effects)
        group.set_protocols(member, stored.old_protocols)
        member.rebalance_timeout_ms, member.session_timeout_ms = stored.old_timeouts_ms
        effects.append(session_timer(group.replace(stored.member_id, stored.old_member_id)))
    elif join.can_skip_assignment:
        is_leader = group.leader == stored.member_id
        answer = joined(group, stored.member_id)._replace(skip_assignment=is_leader)
        answer_join(group, member, answer, effects)
    else:
        # The answer names its old id as leader: else it would compute an unwanted assignment.
        answer = joined(group, stored.member_id)._replace(leader=leader, members=())
        answer_join(group, member, answer, effects)
    return effects


def assignments_of(group: ClassicGroup) -> Mapping[str, bytes]:
    """Return every member's present assignment."""
    return {member_id: member.assignment for member_id, member in group.members.items()}
