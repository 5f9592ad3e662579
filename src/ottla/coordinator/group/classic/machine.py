"""The classic group's state machine: one event in, the group changed, effects out. Pure.

Has the table of the functions that carry out each event. Time comes as an argument; random ids come
in the event.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.join import on_join, on_static_member_stored
from ottla.coordinator.group.classic.rebalance import (
    Effects,
    on_delay_over,
    on_join_expired,
    on_rejoin_all,
    on_session_expired,
    on_sync_expired,
)
from ottla.coordinator.group.classic.sync import (
    on_assignment_stored,
    on_heartbeat,
    on_leave,
    on_sync,
)

_Step = Callable[[ClassicGroup, Any, int, events.ClassicSettings], Effects]

STEPS: Mapping[type[events.Event], _Step] = {
    events.Join: on_join,
    events.Sync: on_sync,
    events.Heartbeat: on_heartbeat,
    events.Leave: on_leave,
    events.SessionExpired: on_session_expired,
    events.JoinDelayOver: on_delay_over,
    events.JoinExpired: on_join_expired,
    events.SyncExpired: on_sync_expired,
    events.AssignmentStored: on_assignment_stored,
    events.StaticMemberStored: on_static_member_stored,
    events.RejoinAll: on_rejoin_all,
}


def step(
    group: ClassicGroup, event: events.Event, now_ms: int, settings: events.ClassicSettings
) -> Effects:
    """Let ``event`` happen to ``group`` and return the effects, in order.

    ``now_ms`` is wall time. Raises nothing: a refusal is an answer.
    """
    return STEPS[type(event)](group, event, now_ms, settings)
