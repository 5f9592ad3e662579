"""What a leader knows of its followers: who is in sync, and how far the partition is committed.

Owns the decisions of one leadership: what counts as committed, who leaves the ISR, who may join it.
All is pure: a view goes in, the next view comes out. The view begins empty with each leader epoch,
for what a follower said before may have been cut off its log since. The leader changes the ISR by
compare-and-set: it proposes the next state, and until the store has told what became of that, both
ISRs count. Knows no log, no clock and no store. Source: KIP-497 (maximal ISR), KIP-903 (broker
epochs), KIP-966; tests/model checks these functions.

    proposal -> committed, or the key was another one    stands until the image tells a newer state
             -> no answer: it may have been committed    is committed again, and stands
             -> a registration was gone                  will never be committed: it is gone
"""

from collections.abc import Collection
from typing import NamedTuple

from ottla.ids import NodeId
from ottla.metadata.values import PartitionState
from ottla.replication.elections import change_isr, effective_min_isr


class Remote(NamedTuple):
    """How far a follower is, as its newest fetch in this leader epoch said."""

    end_offset: int
    """Exclusive end of what it has synced: it asks for what comes after."""
    broker_epoch: int
    """Which registration of the node asked."""
    fetched_at_ms: int = 0
    """When it asked."""
    log_end_offset: int = 0
    """Where the leader's log ended then."""
    caught_up_at_ms: int = 0
    """When it last had all that the leader had at its fetch before."""


class Proposal(NamedTuple):
    """A state that the leader has asked the store to commit, in place of the one it knows."""

    state: PartitionState
    joining: NodeId | None = None
    """Who joins the ISR. The commit is guarded by its registration, ``broker_epoch``."""
    broker_epoch: int = -1


class LeaderView(NamedTuple):
    """One leadership, from its first turn on."""

    state: PartitionState
    """As the image last told; the leader is this node."""
    epoch_start_offset: int
    """Where the log ended when the leadership began."""
    remotes: tuple[tuple[NodeId, Remote], ...] = ()
    """The followers that have fetched in this epoch, by node id."""
    proposal: Proposal | None = None
    """Use: one at a time."""

    def remote(self, node: NodeId) -> Remote | None:
        """Return what is known of a follower; None: it has not fetched in this epoch."""
        for one, remote in self.remotes:
            if one == node:
                return remote
        return None


def hear(view: LeaderView | None, state: PartitionState, log_end_offset: int) -> LeaderView:
    """Take over what the image tells of the partition that this node leads.

    None: a leadership begins. A newer leader epoch voids all that followers have said; a newer
    state of the same epoch tells what became of the proposal. An older state changes nothing.
    """
    if view is None or state.leader_epoch > view.state.leader_epoch:
        return LeaderView(state, log_end_offset)
    if state.partition_epoch <= view.state.partition_epoch:
        return view
    return view._replace(state=state, proposal=None)


def follower_fetched(
    view: LeaderView,
    node: NodeId,
    end_offset: int,
    *,
    broker_epoch: int,
    log_end_offset: int,
    now_ms: int = 0,
) -> LeaderView:
    """Note a fetch in this leader epoch by a follower that has synced up to ``end_offset``.

    The fetch is one whose last record is in the leader's log: nothing diverges. One of a former
    registration of the node, or of a node that holds no replica, changes nothing.
    """
    before = view.remote(node)
    if node not in view.state.replicas or (before and before.broker_epoch > broker_epoch):
        return view
    caught_up_at_ms = -1 if before is None else before.caught_up_at_ms
    if end_offset >= log_end_offset:
        caught_up_at_ms = now_ms
    elif before is not None and end_offset >= before.log_end_offset:
        caught_up_at_ms = max(caught_up_at_ms, before.fetched_at_ms)
    remote = Remote(end_offset, broker_epoch, now_ms, log_end_offset, caught_up_at_ms)
    others = [one for one in view.remotes if one[0] != node]
    return view._replace(remotes=tuple(sorted([*others, (node, remote)])))


def log_was_cut(view: LeaderView, log_end_offset: int) -> LeaderView:
    """Note where the log ends that was still being cut when the leadership began.

    What was cut off is in nobody's way any more. Who asked for what comes after it had the log of
    before: of this one only what is left, whatever the leader writes there now.
    """
    remotes = tuple(
        (
            node,
            remote._replace(
                end_offset=min(remote.end_offset, log_end_offset),
                log_end_offset=min(remote.log_end_offset, log_end_offset),
            ),
        )
        for node, remote in view.remotes
    )
    start = min(view.epoch_start_offset, log_end_offset)
    return view._replace(epoch_start_offset=start, remotes=remotes)


# What is committed.


def maximal_isr(view: LeaderView) -> frozenset[NodeId]:
    """Return who may be in the ISR by now: the state's, and those of an outstanding proposal."""
    members = frozenset(view.state.isr)
    return members if view.proposal is None else members.union(view.proposal.state.isr)


def committed(
    view: LeaderView, own_end_offset: int, high_watermark: int, min_insync_replicas: int
) -> int:
    """Return the new high watermark: what every replica holds that may be elected. Never lower.

    ``own_end_offset``: what of the leader's own copy counts, the synced part. The high watermark
    stands while the ISR is too small and while there are eligible ones outside of it, by what the
    *state* says: nodes hear of a changed ``min.insync.replicas`` at different times.
    """
    state = view.state
    if state.elr or len(state.isr) < effective_min_isr(state, min_insync_replicas):
        return high_watermark
    end_offset = own_end_offset
    for node in maximal_isr(view):
        if node != state.leader:
            remote = view.remote(node)
            end_offset = min(end_offset, remote.end_offset if remote else 0)
    return max(end_offset, high_watermark)


# Who is in sync.


def may_join(view: LeaderView, node: NodeId, high_watermark: int) -> bool:
    """Tell whether a follower may join the ISR: it has what is committed, and this epoch's start.

    Former epochs' records may be committed above the high watermark that this leader knows.
    """
    remote = view.remote(node)
    return (
        remote is not None
        and node not in view.state.isr
        and remote.end_offset >= max(high_watermark, view.epoch_start_offset)
    )


def lagging(
    view: LeaderView, *, log_end_offset: int, now_ms: int, began_at_ms: int, lag_max_ms: int
) -> tuple[NodeId, ...]:
    """Return the in-sync followers that have not caught up for ``lag_max_ms``.

    ``began_at_ms``: when the leadership began; who has not fetched since counts from then. The
    times are of a clock that stands while this process stands, else a paused leader would wake and
    find that all have lagged.
    """
    found = []
    for node in view.state.isr:
        if not is_behind(view, node, log_end_offset):
            continue
        remote = view.remote(node)
        caught_up_at_ms = (
            began_at_ms if remote is None else max(remote.caught_up_at_ms, began_at_ms)
        )
        if now_ms - caught_up_at_ms > lag_max_ms:
            found.append(node)
    return tuple(found)


def is_behind(view: LeaderView, node: NodeId, log_end_offset: int) -> bool:
    """Tell whether an in-sync follower lacks records, as far as it has said."""
    if node == view.state.leader or node not in view.state.isr:
        return False
    remote = view.remote(node)
    return remote is None or remote.end_offset < log_end_offset


def propose_shrink(
    view: LeaderView, leaving: Collection[NodeId], min_insync_replicas: int
) -> LeaderView:
    """Propose an ISR without these followers. No proposal may be outstanding."""
    members = [node for node in view.state.isr if node not in leaving]
    return _propose(view, Proposal(change_isr(view.state, members, min_insync_replicas)))


def propose_expand(view: LeaderView, node: NodeId, min_insync_replicas: int) -> LeaderView:
    """Propose an ISR with this follower, which ``may_join``. No proposal may be outstanding."""
    remote = view.remote(node)
    assert remote is not None
    state = change_isr(view.state, [*view.state.isr, node], min_insync_replicas)
    return _propose(view, Proposal(state, joining=node, broker_epoch=remote.broker_epoch))


def may_clear_elr(view: LeaderView, min_insync_replicas: int) -> bool:
    """Tell whether the ISR has become large enough to do without eligible ones outside of it.

    So it is when ``min.insync.replicas`` was lowered; nothing is committed before they are gone.
    """
    state = view.state
    return bool(state.elr) and len(state.isr) >= effective_min_isr(state, min_insync_replicas)


def propose_clear(view: LeaderView, min_insync_replicas: int) -> LeaderView:
    """Propose the same ISR and an empty ELR; ``may_clear_elr``. No proposal may be outstanding."""
    state = change_isr(view.state, view.state.isr, min_insync_replicas)
    return _propose(view, Proposal(state))


def _propose(view: LeaderView, proposal: Proposal) -> LeaderView:
    assert view.proposal is None
    return view._replace(proposal=proposal)


def was_refused(view: LeaderView, proposal: Proposal, *, is_key_changed: bool) -> LeaderView:
    """Note that a guard of the commit failed. The proposal is gone if it cannot come true any more.

    ``is_key_changed``: the partition's key was another one than the proposal was made for. Then an
    earlier commit of the same proposal, which ended without an answer, may have changed it: who
    would join may be in the ISR already. The image soon tells what is there now. With the key
    unchanged a registration was gone, which never returns.
    """
    if view.proposal != proposal or is_key_changed:
        return view
    return view._replace(proposal=None)
