"""Takes a classic group from one generation to the next. Pure: changes the group, returns effects.

The parts that JoinGroup, SyncGroup, LeaveGroup and timeouts have in common. Source: Kafka's
GroupMetadataManager in its effect, asked of a live Kafka.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ottla.coordinator.group.classic.events import (
    Answer,
    CancelTimer,
    ClassicSettings,
    Effect,
    Gradually,
    JoinAnswer,
    JoinDelayOver,
    JoinExpired,
    JoinMember,
    RejoinAll,
    SessionExpired,
    SetTimer,
    Store,
    SyncAnswer,
    SyncExpired,
    TimerKind,
)
from ottla.coordinator.group.classic.group import (
    NO_LEADER,
    TRANSITIONS,
    ClassicGroup,
    GroupState,
    Member,
    Protocol,
    metadata_of,
)
from ottla.errors import ErrorCode

Effects = list[Effect]


def session_timer(member: Member, delay_ms: int | None = None) -> SetTimer:
    """Return the effect that extends a member's session by its timeout (or ``delay_ms``)."""
    delay_ms = member.session_timeout_ms if delay_ms is None else delay_ms
    return _session_timer(member.member_id, delay_ms)


def _session_timer(member_id: str, delay_ms: int) -> SetTimer:
    return SetTimer(TimerKind.SESSION, member_id, delay_ms, SessionExpired(member_id))


def answer_join(group: ClassicGroup, member: Member, answer: JoinAnswer, effects: Effects) -> None:
    """Answer a member's JoinGroup if one waits."""
    reply = group.end_join(member)
    if reply is not None:
        effects.append(Answer(reply, answer))


def answer_sync(member: Member, answer: SyncAnswer, effects: Effects) -> bool:
    """Answer a member's SyncGroup if one waits; tell whether one did."""
    if member.awaiting_sync is None:
        return False
    effects.append(Answer(member.awaiting_sync, answer))
    member.awaiting_sync = None
    return True


def joined(group: ClassicGroup, member_id: str) -> JoinAnswer:
    """Return the answer for a member in this generation; the leader's names all members."""
    answer = _joined(group)._replace(member_id=member_id)
    if group.leader == member_id:
        everybody = (
            JoinMember(one.member_id, one.instance_id, one.metadata(group.protocol))
            for one in group.members.values()
        )
        answer = answer._replace(members=tuple(everybody))
    return answer


def _joined(group: ClassicGroup) -> JoinAnswer:
    return JoinAnswer(
        "",
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or NO_LEADER,
    )


def rebalance_or_complete(
    group: ClassicGroup, now_ms: int, settings: ClassicSettings, effects: Effects
) -> None:
    """Begin a rebalance; during one, end the join phase if all members have joined."""
    if GroupState.PREPARING_REBALANCE in TRANSITIONS[group.state]:
        prepare_rebalance(group, now_ms, settings, effects)
    else:
        complete_if_all_joined(group, now_ms, effects)


def prepare_rebalance(
    group: ClassicGroup, now_ms: int, settings: ClassicSettings, effects: Effects
) -> None:
    """Ask all members to join again. A group's first rebalance waits a little for more."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, effects)
    group.pending_syncs.clear()
    effects.append(CancelTimer(TimerKind.SYNC))
    is_initial = group.state is GroupState.EMPTY
    group.transition(GroupState.PREPARING_REBALANCE, now_ms)
    if is_initial:
        delay_ms = settings.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        event = JoinDelayOver(delay_ms, remaining_ms)
        effects.append(SetTimer(TimerKind.JOIN, "", delay_ms, event))
    elif group.has_all_members_joined:
        complete_join(group, now_ms, effects)
    else:
        effects.append(SetTimer(TimerKind.JOIN, "", group.rebalance_timeout_ms, JoinExpired()))


def complete_if_all_joined(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """End the join phase if all members have joined and the initial delay is over."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_members_joined
    ):
        complete_join(group, now_ms, effects)


def complete_join(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """Begin the next generation with the members that have joined.

    Dynamic members that have not are removed; static ones stay: they may come back as they were.
    """
    effects.append(CancelTimer(TimerKind.JOIN))
    for member in list(group.members.values()):
        if member.awaiting_join is None and member.instance_id is None:
            group.remove(member.member_id)
            effects.append(CancelTimer(TimerKind.SESSION, member.member_id))
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has joined: wait again.
        effects.append(SetTimer(TimerKind.JOIN, "", group.rebalance_timeout_ms, JoinExpired()))
        return
    group.next_generation(now_ms)
    if group.state is GroupState.EMPTY:
        effects.append(Store({}, None))
        return
    told = [_Told.of(member, group.end_join(member)) for member in group.members.values()]
    group.pending_syncs.update(group.members)
    effects.append(Gradually(len(told), _tell_joined(_joined(group), told)))
    delay_ms = group.rebalance_timeout_ms
    effects.append(SetTimer(TimerKind.SYNC, "", delay_ms, SyncExpired(group.generation)))


class _Told(NamedTuple):
    """A member as it was when its generation began."""

    member_id: str
    instance_id: str | None
    protocols: Sequence[Protocol]
    session_timeout_ms: int
    reply: object | None

    @classmethod
    def of(cls, member: Member, reply: object | None) -> "_Told":
        """Note that a member has seen its generation."""
        member.is_new = False
        return cls(
            member.member_id,
            member.instance_id,
            member.protocols,
            member.session_timeout_ms,
            reply,
        )

    def as_told_to_leader(self, protocol: str | None) -> JoinMember:
        """Return the metadata by which the leader assigns."""
        return JoinMember(self.member_id, self.instance_id, metadata_of(self.protocols, protocol))


def _tell_joined(answer: JoinAnswer, told: Sequence[_Told]) -> Iterator[Answer | SetTimer]:
    for member_id, _, _, session_timeout_ms, reply in told:
        if reply is not None:
            mine = answer._replace(member_id=member_id)
            if member_id == answer.leader:
                everybody = (
                    JoinMember(
                        one.member_id, one.instance_id, metadata_of(one.protocols, answer.protocol)
                    )
                    for one in told
                )
                mine = mine._replace(members=tuple(everybody))
            yield Answer(reply, mine)
        yield _session_timer(member_id, session_timeout_ms)


def reset_assignments(group: ClassicGroup, code: ErrorCode, effects: Effects) -> None:
    """Drop the assignments, and answer the members that wait for one with the reason."""
    for member in group.members.values():
        member.assignment = b""
    tell_synced(group, lambda _: SyncAnswer(code), effects)


def tell_synced(
    group: ClassicGroup, answer: Callable[[bytes], SyncAnswer], effects: Effects
) -> None:
    """Answer every SyncGroup that waits with the assignment, and extend the sessions."""
    waiting = []
    for member in group.members.values():
        reply, member.awaiting_sync = member.awaiting_sync, None
        if reply is not None:
            told = (reply, member.assignment, member.member_id, member.session_timeout_ms)
            waiting.append(told)

    def tell() -> Iterator[Answer | SetTimer]:
        for reply, assignment, member_id, session_timeout_ms in waiting:
            yield Answer(reply, answer(assignment))
            yield _session_timer(member_id, session_timeout_ms)

    if waiting:
        effects.append(Gradually(len(waiting), tell()))


# What time brings.


def on_delay_over(
    group: ClassicGroup, event: JoinDelayOver, now_ms: int, settings: ClassicSettings
) -> Effects:
    """Wait again if a member came during the initial delay, up to the rebalance timeout."""
    effects: Effects = []
    if group.state is not GroupState.PREPARING_REBALANCE:
        return effects
    if group.member_added and event.remaining_ms:
        group.member_added = False
        delay_ms = min(settings.initial_rebalance_delay_ms, event.remaining_ms)
        remaining_ms = max(event.remaining_ms - event.delay_ms, 0)
        again = JoinDelayOver(delay_ms, remaining_ms)
        effects.append(SetTimer(TimerKind.JOIN, "", delay_ms, again))
    else:
        complete_join(group, now_ms, effects)
    return effects


def on_join_expired(
    group: ClassicGroup, event: JoinExpired, now_ms: int, settings: ClassicSettings
) -> Effects:
    """Go on without the members that have not joined."""
    effects: Effects = []
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join(group, now_ms, effects)
    return effects


def on_sync_expired(
    group: ClassicGroup, event: SyncExpired, now_ms: int, settings: ClassicSettings
) -> Effects:
    """Remove members of a generation that never asked for their assignment."""
    effects: Effects = []
    in_generation = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
    if event.generation == group.generation and in_generation and group.pending_syncs:
        for member_id in list(group.pending_syncs):
            group.remove(member_id)
            effects.append(CancelTimer(TimerKind.SESSION, member_id))
        prepare_rebalance(group, now_ms, settings, effects)
    return effects


def on_session_expired(
    group: ClassicGroup, event: SessionExpired, now_ms: int, settings: ClassicSettings
) -> Effects:
    """Remove a silent member, unless it waits for an answer of this node."""
    effects: Effects = []
    member_id = event.member_id
    member = group.members.get(member_id)
    if member is None:
        if member_id in group.pending_joins:
            group.remove(member_id)
            complete_after_removal(group, now_ms, effects)
        return effects
    is_waiting = member.awaiting_join is not None or member.awaiting_sync is not None
    if member.is_new or not is_waiting:
        remove_member(group, member, effects)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare_rebalance(group, now_ms, settings, effects)
        else:
            complete_after_removal(group, now_ms, effects)
    return effects


def on_rejoin_all(
    group: ClassicGroup, event: RejoinAll, now_ms: int, settings: ClassicSettings
) -> Effects:
    """Ask all members to join again; of too many, the first ones may stay."""
    effects: Effects = []
    prepare_rebalance(group, now_ms, settings, effects)
    return effects


def remove_member(group: ClassicGroup, member: Member, effects: Effects) -> None:
    """Remove a member, and answer its requests that wait."""
    gone = ErrorCode.UNKNOWN_MEMBER_ID
    answer_join(group, member, JoinAnswer("", gone), effects)
    answer_sync(member, SyncAnswer(gone), effects)
    group.remove(member.member_id)


def complete_after_removal(group: ClassicGroup, now_ms: int, effects: Effects) -> None:
    """End the join phase if it waited only for the member that has gone."""
    if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
        complete_join(group, now_ms, effects)
