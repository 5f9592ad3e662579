"""The protocol without one of its rules: each of these must lose what it acknowledged.

A mutant is a piece of a function's source and what stands in its place. Where the source has moved
on, that is an error here, and no mutant that is never found.
"""

import inspect
from contextlib import contextmanager

from ottla.replication import divergence, elections, follower, replica_state
from tests.model import happenings, protocol, walks

MODULES = (divergence, elections, follower, replica_state, protocol, happenings, walks)

MUTANTS = {
    # Rule 1: the high watermark is what all that may be elected have synced.
    "only the ISR that the store confirmed counts": (
        replica_state.maximal_isr,
        "if view.proposal is None else members.union(view.proposal.state.isr)",
        "",
    ),
    "the leader counts what it has not synced": (
        protocol.advanced,
        "node.leads, node.synced,",
        "node.leads, len(node.log),",
    ),
    "a follower asks before it has synced": (
        follower.next_fetch,
        "if synced_offset < log_end_offset:",
        "if False:",
    ),
    # Rule 2: a proposal stands until it is known what became of it.
    "a refused repetition ends a proposal": (
        replica_state.was_refused,
        " or is_key_changed",
        "",
    ),
    # Rule 3: what followers said is void in a new leader epoch.
    "followers' ends outlive a leader epoch": (
        replica_state.hear,
        "if view is None or state.leader_epoch > view.state.leader_epoch:",
        "if view is None:",
    ),
    # Rule 4: who joins has all that may be committed.
    "a follower joins without this epoch's start": (
        replica_state.may_join,
        "max(high_watermark, view.epoch_start_offset)",
        "high_watermark",
    ),
    "a follower joins whatever its registration": (
        protocol.is_accepted,
        "if joining is not None:",
        "if False:",
    ),
    # Rule 5: nothing is committed while others than the ISR are eligible.
    "a small ISR commits": (
        replica_state.committed,
        "if state.elr or len(state.isr) < effective_min_isr(state, min_insync_replicas):",
        "if False:",
    ),
    "the heard configuration decides, not the ELR": (
        replica_state.committed,
        "if state.elr or len",
        "if len",
    ),
    # Rule 6: a process does not go on in the leader epoch of a former one.
    "a restarted leader goes on in its epoch": (
        elections.fenced_epoch_of,
        "is_former_leader = state.leader == node and len(state.replicas) > 1",
        "is_former_leader = False",
    ),
    # Rule 7: each write of the key is guarded by what it was.
    "the key is written whatever it is": (
        protocol.is_accepted,
        "holds = is_unchanged and state",
        "holds = state",
    ),
    # Rule 8: a follower cuts off what the leader does not have.
    "a follower keeps what diverges": (
        divergence.divergence,
        "return leaders_end",
        "return None",
    ),
    # Rule 9: only the answer to the newest request counts.
    "a late answer is taken": (
        follower.may_take,
        "answered == newest\n        and ",
        "",
    ),
    # Rule 10: who has lost its log takes itself out.
    "a wiped node stays eligible": (
        protocol.registers,
        "if node.is_wiped:",
        "if False:",
    ),
    # Reassignment: what a replica said before it was none for a while is void.
    "a reassignment ends in the same leader epoch": (
        elections.finish_reassignment,
        "LeaderEpoch(state.leader_epoch + 1)",
        "LeaderEpoch(state.leader_epoch + (leader != state.leader))",
    ),
    "a cancelled reassignment stays in its leader epoch": (
        elections.cancel_reassignment,
        "LeaderEpoch(state.leader_epoch + 1)",
        "LeaderEpoch(state.leader_epoch + (leader != state.leader))",
    ),
}


@contextmanager
def planted(name):
    """Let the model run with a mutant. Raises Stale."""
    function, before, after = MUTANTS[name]
    source = inspect.getsource(function)
    if source.count(before) != 1:
        raise Stale(name)
    namespace = {}
    exec(source.replace(before, after), function.__globals__, namespace)
    (mutant,) = namespace.values()
    holders = [module for module in MODULES if getattr(module, function.__name__, None) is function]
    for module in holders:
        setattr(module, function.__name__, mutant)
    try:
        yield
    finally:
        for module in holders:
            setattr(module, function.__name__, function)


class Stale(Exception):
    """A mutant's source is not what it was."""
