"""Who leads a partition, and who may: from one state of it to the next, without I/O.

Owns the choice of leaders, and what the ISR and the eligible leader replicas (ELR) become when a
node dies, returns or has lost its log. Each function takes a state and returns the next one, or the
same object when nothing changes; who calls it commits the next state, guarded by the revision of
the first. Knows neither the store nor who is asked. Source: KIP-966, KIP-841, Kafka's
PartitionChangeBuilder; tests/model checks these functions.

    in the ISR, or in the ELR      has all that is committed: may lead
    ELR not empty                  nothing is committed (replica_state.committed)
    ISR and ELR without live ones  no leader, unless an unclean election is allowed
    no replica ever had a log      any may lead: there is nothing to be lost
"""

from collections.abc import Collection, Iterable

from ottla.ids import LeaderEpoch, NodeId
from ottla.metadata.values import NO_LEADER, PartitionState


def effective_min_isr(state: PartitionState, min_insync_replicas: int) -> int:
    """Return how many in-sync replicas a commit needs: never more than there are replicas."""
    return min(min_insync_replicas, len(state.replicas))


def elect(
    state: PartitionState,
    live: Collection[NodeId],
    min_insync_replicas: int,
    *,
    leader_syncs: bool = True,
) -> PartitionState:
    """Keep a live leader, else choose the first live replica of the ISR, else of the ELR.

    ``live``: the nodes that are registered now. Without a candidate the leader is NO_LEADER.
    ``leader_syncs``: see ``without_former``.
    """
    led = _led_by(state, _candidate(state, live), min_insync_replicas)
    if not leader_syncs:
        led = without_former(state.leader, led)
    present = state._replace(
        isr=_ordered(state, state.isr),
        elr=_ordered(state, state.elr),
        partition_epoch=led.partition_epoch,
    )
    return state if led == present else led


def fence(
    state: PartitionState,
    node: NodeId,
    live: Collection[NodeId],
    min_insync_replicas: int,
    *,
    leader_syncs: bool = True,
) -> PartitionState:
    """Take a node that is not live out of the ISR, and elect.

    It becomes eligible (ELR) if the ISR is too small without it to commit anything. The ISR may
    become empty: then only the eligible ones may lead. ``leader_syncs``: see ``without_former``.
    """
    assert node not in live
    if node not in state.isr and state.leader != node:
        return state
    isr = tuple(one for one in state.isr if one != node)
    elr = state.elr
    if node in state.isr:
        elr = _ordered(state, {*elr, node})
    left = state._replace(isr=isr, elr=elr)
    led = _led_by(left, _candidate(left, live), min_insync_replicas)
    return led if leader_syncs else without_former(state.leader, led)


def without_former(leader: NodeId, state: PartitionState) -> PartitionState:
    """Take the former ``leader`` out of ISR and ELR, if another replica has all that is committed.

    For each change of leaders where leaders do not sync what they acknowledge
    (``flush.messages``). A power cut may take that from the former one, which others have synced;
    nobody would know, for it leads no more. It joins the ISR again as any follower does: by a
    fetch, before which it has synced all.
    """
    if state.leader == leader or not {*state.isr, *state.elr} - {leader}:
        return state
    return state._replace(
        isr=tuple(node for node in state.isr if node != leader),
        elr=tuple(node for node in state.elr if node != leader),
    )


def elect_unclean(state: PartitionState, live: Collection[NodeId]) -> PartitionState:
    """Choose the first live replica, in sync or not, if no candidate is live: records may be lost.

    The ISR is the new leader alone, the ELR is empty, and the state says ``unclean``.
    """
    if _candidate(state, live) != NO_LEADER:
        return state
    for node in state.replicas:
        if node in live:
            return state._replace(
                leader=node,
                leader_epoch=LeaderEpoch(state.leader_epoch + 1),
                isr=(node,),
                elr=(),
                unmade=(),
                unclean=True,
                partition_epoch=state.partition_epoch + 1,
            )
    return state


def elect_unmade(state: PartitionState, live: Collection[NodeId]) -> PartitionState:
    """Choose the first live replica if no replica has ever made its log; else nothing changes.

    All nodes ended between the making of the topic and that of the first log. Nobody can have been
    told of a record: that takes the logs of the whole ISR. A node that a reassignment adds has what
    one of the others has led, at most.
    """
    former = {*state.replicas} - {*state.adding}
    is_unmade = bool(former) and former <= {*state.unmade}
    if not is_unmade or state.leader != NO_LEADER or state.isr or state.elr:
        return state
    for node in state.replicas:
        if node in live:
            return _led_by(state, node, 1)
    return state


def elect_preferred(
    state: PartitionState, live: Collection[NodeId], *, leader_syncs: bool = True
) -> PartitionState:
    """Let the first replica lead, if it is live and in the ISR. See ``without_former``."""
    preferred = state.replicas[0] if state.replicas else NO_LEADER
    if preferred == state.leader or preferred not in state.isr or preferred not in live:
        return state
    after = state._replace(
        leader=preferred,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        partition_epoch=state.partition_epoch + 1,
    )
    return after if leader_syncs else without_former(state.leader, after)


def grant_anew(state: PartitionState) -> PartitionState:
    """Let the leader lead in a new epoch: its process is another one than when it was elected."""
    assert state.leader != NO_LEADER
    return state._replace(
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        partition_epoch=state.partition_epoch + 1,
    )


def withdraw(state: PartitionState, node: NodeId, *, has_made: bool = True) -> PartitionState:
    """Take a node out of ISR and ELR that has lost its log; it leads no more.

    The node does that itself, before its registration makes it live. Whoever else may lead is
    elected after that (``elect``). ``has_made``: False if the node knows that it has never made the
    log (``elect_unmade``).
    """
    if node not in state.isr and node not in state.elr and node != state.leader:
        return state
    is_leader = node == state.leader
    return state._replace(
        isr=tuple(one for one in state.isr if one != node),
        elr=tuple(one for one in state.elr if one != node),
        unmade=_ordered(state, {*state.unmade} - {node} if has_made else {*state.unmade, node}),
        leader=NO_LEADER if is_leader else state.leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + is_leader),
        partition_epoch=state.partition_epoch + 1,
    )


def change_isr(
    state: PartitionState, isr: Iterable[NodeId], min_insync_replicas: int
) -> PartitionState:
    """Return the state with this ISR, as its leader proposes it; the leader must be in it.

    Who leaves becomes eligible (ELR) while the ISR is too small to commit; else the ELR is emptied.
    """
    members = {*isr}
    assert state.leader in members
    elr: tuple[NodeId, ...] = ()
    if len(members) < effective_min_isr(state, min_insync_replicas):
        elr = _ordered(state, {*state.elr, *state.isr} - members)
    return state._replace(
        isr=_ordered(state, members),
        elr=elr,
        unmade=tuple(node for node in state.unmade if node not in members),
        unclean=False,
        partition_epoch=state.partition_epoch + 1,
    )


# Reassignment (KIP-455). It is in the partition's own state, and takes three steps: the new
# replicas are added, they join the ISR as any other does, then those that go leave. The high
# watermark counts the whole ISR all the while, so each step only takes members out of it.


def begin_reassignment(state: PartitionState, target: Collection[NodeId]) -> PartitionState:
    """Let the replicas become ``target``, in this order; one that is under way is replaced.

    Those that go stay behind the others until ``finish_reassignment``. Without a change of members
    only the order changes, at once. Who was to be added before still is to be, or to be and to go:
    so those are kept that are in sync, and a cancel goes back to where it all began.
    """
    before = {*state.replicas} - {*state.adding}
    removing = tuple(node for node in state.replicas if node not in target)
    replicas = (*target, *removing)
    return _in_order(
        state._replace(
            replicas=replicas,
            adding=tuple(node for node in replicas if node not in before),
            removing=removing,
            left=tuple(node for node in state.left if node not in target),
            partition_epoch=state.partition_epoch + 1,
        )
    )


def finish_reassignment(
    state: PartitionState, live: Collection[NodeId], min_insync_replicas: int
) -> PartitionState:
    """Let those go that are to go, if the others are in sync, and enough of them; else nothing.

    The leader epoch rises: who was a replica and is none any more may have records of the old one
    that nobody else has. A leader that goes is followed by a live member of the ISR.
    """
    if not state.adding and not state.removing:
        return state
    without = _without(state, state.removing)
    if not {*state.adding} - {*state.removing} <= {*without.isr}:
        return state
    if len(without.isr) < max(effective_min_isr(without, min_insync_replicas), 1):
        return state
    leader = without.leader
    if leader not in without.isr:
        leader = next((node for node in without.isr if node in live), NO_LEADER)
        if leader == NO_LEADER:
            return state
    return without._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        elr=(),
        partition_epoch=state.partition_epoch + 1,
    )


def cancel_reassignment(
    state: PartitionState, live: Collection[NodeId], min_insync_replicas: int
) -> PartitionState | None:
    """Take out again what was to be added; None: nobody is left then who has all that is committed.

    The leader epoch rises, as in ``finish_reassignment``.
    """
    without = _without(state, state.adding)
    if not without.isr and not without.elr:
        return None
    leader = without.leader if without.leader in without.isr else _candidate(without, live)
    if len(without.replicas) == 1:  # It leads whenever it is there: nobody elects it.
        leader = without.replicas[0]
    led = _led_by(without, leader, min_insync_replicas)
    return led._replace(leader_epoch=LeaderEpoch(state.leader_epoch + 1))


def _without(state: PartitionState, nodes: Collection[NodeId]) -> PartitionState:
    """Return the state without these replicas, and without a reassignment."""
    return _in_order(
        state._replace(
            replicas=tuple(node for node in state.replicas if node not in nodes),
            adding=(),
            removing=(),
            left=tuple(sorted({*state.left, *nodes})),
        )
    )


def _in_order(state: PartitionState) -> PartitionState:
    return state._replace(
        isr=_ordered(state, state.isr),
        elr=_ordered(state, state.elr),
        unmade=_ordered(state, state.unmade),
    )


def is_granted(state: PartitionState, node: NodeId, fenced_epoch: LeaderEpoch) -> bool:
    """Tell whether ``node`` may act as the leader that the state names.

    ``fenced_epoch``: the leader epoch in which the store named it leader when this process
    registered, or -1. A grant as old as that was for a former process, which may have lost what it
    had not synced.
    """
    return state.leader == node and state.leader_epoch > fenced_epoch


def fenced_epoch_of(state: PartitionState, node: NodeId) -> LeaderEpoch:
    """Return up to which epoch a process that registers now must not lead; -1: from any on.

    The only replica may go on in its former epoch: nobody has followed it.
    """
    is_former_leader = state.leader == node and len(state.replicas) > 1
    return state.leader_epoch if is_former_leader else LeaderEpoch(-1)


def _candidate(state: PartitionState, live: Collection[NodeId]) -> NodeId:
    if state.leader in state.isr and state.leader in live:
        return state.leader
    for members in (state.isr, state.elr):
        for node in state.replicas:
            if node in members and node in live:
                return node
    return NO_LEADER


def _led_by(state: PartitionState, leader: NodeId, min_insync_replicas: int) -> PartitionState:
    isr = {*state.isr}
    if leader != NO_LEADER:
        isr.add(leader)
    elr: set[NodeId] = set()
    if len(isr) < effective_min_isr(state, min_insync_replicas):
        elr = {*state.elr} - isr
    return state._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + (leader != state.leader)),
        isr=_ordered(state, isr),
        elr=_ordered(state, elr),
        unmade=tuple(node for node in state.unmade if node not in isr),
        partition_epoch=state.partition_epoch + 1,
    )


def _ordered(state: PartitionState, members: Collection[NodeId]) -> tuple[NodeId, ...]:
    """Return members in the order of ``replicas``; states that mean the same are then equal."""
    return tuple(node for node in state.replicas if node in members)
