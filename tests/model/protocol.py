"""A model of one partition on three nodes: all that may happen in one state, and what must hold.

The decisions are the broker's own functions: elections, replica_state, divergence, follower and
LeaderEpochs. The model adds what is around them: a store with guards, views of it that lag, lost
and late messages, commits without an answer, leaders that do not know that they are deposed,
crashes that drop what was not synced, disks that are lost, replicas that come and go, and a
changed min.insync.replicas that each node hears of at its own time. A node here does with the
functions' answers what a node of a cluster is to do; ``mutants`` breaks either.
"""

from typing import NamedTuple

from ottla.ids import LeaderEpoch, NodeId
from ottla.log.contents.leader_epochs import EpochEnd, LeaderEpochs
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.replication import divergence, elections, follower, replica_state
from ottla.replication.follower import Asked
from ottla.replication.replica_state import LeaderView, Proposal

NODES = tuple(map(NodeId, (0, 1, 2)))
CONTROLLER = "controller"
MIN_ISR = 2
NOT_REGISTERED = 0


class Violation(Exception):
    """The protocol lost or contradicted what it had acknowledged."""


class Entry(NamedTuple):
    """A record: which leader wrote it, and which one of all it is."""

    epoch: int
    value: int


class Node(NamedTuple):
    """One broker: its process and its disk."""

    is_up: bool
    broker_epoch: int
    """As the process believes; NOT_REGISTERED: it has no registration."""
    view: int
    """The revision of the partition's key that it has heard of."""
    fenced_epoch: int
    log: tuple[Entry, ...] = ()
    synced: int = 0
    high_watermark: int = 0
    leads: LeaderView | None = None
    is_wiped: bool = False
    asked: Asked | None = None
    """Its newest fetch."""
    number: int = 0


class Used(NamedTuple):
    """How much of what is bounded has happened."""

    values: int = 0
    broker_epochs: int = len(NODES)
    crashes: int = 0
    expiries: int = 0
    commits: int = 0
    wipes: int = 0
    moves: int = 0


LIMITS = Used(values=3, broker_epochs=9, crashes=2, expiries=2, commits=5, wipes=1, moves=3)
TARGETS = ((1, 2), (0, 2), (2,), (0,), (2, 1, 0))
"""What the replicas may be reassigned to."""
IN_FLIGHT_MAX = 2
"""Fetches, with their answers, of one follower."""


class Fetch(NamedTuple):
    asked: Asked
    node: NodeId


class Answer(NamedTuple):
    asked: Asked
    node: NodeId
    high_watermark: int
    entries: tuple[Entry, ...] = ()
    diverging: EpochEnd | None = None


class Commit(NamedTuple):
    """A proposal on its way to the store; ``number`` tells a repeated one from the first."""

    node: NodeId
    broker_epoch: int
    base: int
    proposal: Proposal
    number: int


class State(NamedTuple):
    keys: tuple[PartitionState, ...]
    """All values that the partition's key has had; the last one is the present one."""
    live: tuple[int, ...]
    """Broker epochs in the store, by node; NOT_REGISTERED: it has no registration there."""
    nodes: tuple[Node, ...]
    messages: frozenset[Fetch | Answer | Commit] = frozenset()
    committed: tuple[tuple[int, Entry], ...] = ()
    """What was ever acknowledged, by offset."""
    used: Used = Used()
    lowered: frozenset[NodeId | str] = frozenset()
    """Who has heard that min.insync.replicas is 1 now."""

    @property
    def key(self):
        return self.keys[-1]


def first_state():
    """All three are in sync, and the first one leads."""
    key = PartitionState(NODES, NODES, NODES[0], LeaderEpoch(1), 0)
    nodes = [Node(True, one + 1, 0, -1) for one in NODES]
    nodes[0] = nodes[0]._replace(leads=replica_state.hear(None, key, 0))
    return State((key,), tuple(one + 1 for one in NODES), tuple(nodes))


# Changes.


def with_node(state, one, **changes):
    nodes = list(state.nodes)
    nodes[one] = nodes[one]._replace(**changes)
    return state._replace(nodes=tuple(nodes))


def with_key(state, key):
    return state if key == state.key else state._replace(keys=(*state.keys, key))


def with_live(state, one, broker_epoch):
    live = list(state.live)
    live[one] = broker_epoch
    return state._replace(live=tuple(live))


def using(state, what):
    return state._replace(used=state.used._replace(**{what: getattr(state.used, what) + 1}))


def is_left(state, what):
    return getattr(state.used, what) < getattr(LIMITS, what)


def min_isr(state, who):
    return 1 if who in state.lowered else MIN_ISR


def live_nodes(state):
    return {one for one in NODES if state.live[one] != NOT_REGISTERED}


def epochs_of(log):
    epochs = LeaderEpochs()
    for offset, entry in enumerate(log):
        epochs.assign(entry.epoch, offset)
    return epochs


def advanced(state, one):
    """Raise the high watermark of a leader, and note what is acknowledged by that."""
    node = state.nodes[one]
    if node.leads is None:
        return state
    end = replica_state.committed(node.leads, node.synced, node.high_watermark, min_isr(state, one))
    if end <= node.high_watermark:
        return state
    committed = dict(state.committed)
    for offset in range(node.high_watermark, end):
        if committed.setdefault(offset, node.log[offset]) != node.log[offset]:
            raise Violation(f"two records are acknowledged at offset {offset}")
    state = state._replace(committed=tuple(sorted(committed.items())))
    return with_node(state, one, high_watermark=end)


def check(state):
    """Raise Violation unless all that may lead have all that was acknowledged."""
    key = state.key
    for one in {*key.isr, *key.elr, key.leader} - {NO_LEADER}:
        node = state.nodes[one]
        if node.is_wiped and node.broker_epoch == NOT_REGISTERED:
            continue  # It takes itself out before it counts.
        for offset, entry in state.committed:
            if node.log[offset : offset + 1] != (entry,):
                raise Violation(f"node {one} may lead, and lacks offset {offset}")
    for one in NODES:
        for other in NODES[one + 1 :]:
            _check_matching(state.nodes[one].log, state.nodes[other].log, one, other)


def _check_matching(log, other_log, one, other):
    for offset in range(min(len(log), len(other_log)) - 1, -1, -1):
        if log[offset] == other_log[offset] and log[:offset] != other_log[:offset]:
            raise Violation(f"nodes {one} and {other} differ before what they share at {offset}")


# What a node does.


def hears(state, one, revision):
    """Let a node hear of a value of the key."""
    node = state.nodes[one]
    key = state.keys[revision]
    is_leader = node.broker_epoch != NOT_REGISTERED and elections.is_granted(
        key, one, node.fenced_epoch
    )
    leads = replica_state.hear(node.leads, key, len(node.log)) if is_leader else None
    return advanced(with_node(state, one, view=revision, leads=leads), one)


def registers(state, one):
    node = state.nodes[one]
    if node.is_wiped:
        state = with_key(state, elections.withdraw(state.key, one))
    state = using(state, "broker_epochs")
    broker_epoch = state.used.broker_epochs
    state = with_node(
        state,
        one,
        broker_epoch=broker_epoch,
        is_wiped=False,
        view=len(state.keys) - 1,
        fenced_epoch=elections.fenced_epoch_of(state.key, one),
        leads=None,
    )
    return with_live(state, one, broker_epoch)


def proposes(state, one, leads):
    node = state.nodes[one]
    state = with_node(state, one, leads=leads)
    return advanced(sends_commit(state, one, node), one)


def sends_commit(state, one, node):
    state = using(state, "commits")
    proposal = state.nodes[one].leads.proposal
    commit = Commit(one, node.broker_epoch, node.view, proposal, state.used.commits)
    return state._replace(messages=state.messages | {commit})


def next_fetch(state, one):
    node = state.nodes[one]
    key = state.keys[node.view]
    return follower.next_fetch(
        node.number + 1,
        leader=(key.leader, key.leader_epoch),
        broker_epoch=node.broker_epoch,
        log_end_offset=len(node.log),
        synced_offset=node.synced,
        latest_epoch=node.log[-1].epoch if node.log else -1,
    )


def asks(state, one, asked):
    state = with_node(state, one, number=asked.number, asked=asked)
    return state._replace(messages=state.messages | {Fetch(asked, one)})


def is_servable(state, fetch):
    asked = fetch.asked
    leads = state.nodes[asked.leader].leads
    return leads is not None and leads.state.leader_epoch == asked.leader_epoch


def serves(state, fetch):
    """Let the leader answer a fetch: by a divergence, or by what comes after the offset."""
    asked = fetch.asked
    leader = state.nodes[asked.leader]
    diverging = _divergence(leader, asked)
    if diverging is not None:
        answer = Answer(asked, fetch.node, leader.high_watermark, diverging=diverging)
    elif asked.fetch_offset > len(leader.log):
        return state
    else:
        leads = replica_state.follower_fetched(
            leader.leads,
            fetch.node,
            asked.fetch_offset,
            broker_epoch=asked.broker_epoch,
            log_end_offset=len(leader.log),
        )
        state = advanced(with_node(state, asked.leader, leads=leads), asked.leader)
        high_watermark = state.nodes[asked.leader].high_watermark
        answer = Answer(asked, fetch.node, high_watermark, leader.log[asked.fetch_offset :])
    return state._replace(messages=state.messages | {answer})


def _divergence(leader, asked):
    if asked.last_fetched_epoch < 0:
        return None
    epochs = epochs_of(leader.log)
    end = divergence.end_of_leaders_epoch(
        asked.last_fetched_epoch,
        leader_epoch=leader.leads.state.leader_epoch,
        latest_epoch=epochs.latest,
        log_end_offset=len(leader.log),
    ) or epochs.end_offset_for(asked.last_fetched_epoch, len(leader.log))
    return divergence.divergence(end, asked.fetch_offset, asked.last_fetched_epoch)


def is_takable(state, answer):
    node = state.nodes[answer.node]
    key = state.keys[node.view]
    return node.is_up and follower.may_take(
        answer.asked,
        node.asked,
        leader=(key.leader, key.leader_epoch),
        broker_epoch=node.broker_epoch,
        log_end_offset=len(node.log),
    )


def takes(state, answer):
    node = state.nodes[answer.node]
    if answer.diverging is None:
        log = node.log + answer.entries
        high_watermark = follower.followed_high_watermark(
            node.high_watermark, answer.high_watermark, len(log)
        )
        return with_node(state, answer.node, log=log, high_watermark=high_watermark)
    own_end = epochs_of(node.log).end_offset_for(answer.diverging.epoch, len(node.log))
    end = follower.truncation_offset(answer.diverging, own_end, len(node.log))
    return with_node(
        state,
        answer.node,
        log=node.log[:end],
        synced=min(node.synced, end),
        high_watermark=min(node.high_watermark, end),
    )


def is_accepted(state, commit):
    """Tell whether the guards of a commit hold; the second says whether the key is unchanged."""
    is_unchanged = commit.base == len(state.keys) - 1
    holds = is_unchanged and state.live[commit.node] == commit.broker_epoch
    joining = commit.proposal.joining
    if joining is not None:
        holds = holds and state.live[joining] == commit.proposal.broker_epoch
    return holds, is_unchanged


def arrives(state, commit):
    holds, is_unchanged = is_accepted(state, commit)
    if holds:
        return with_key(state, commit.proposal.state)
    node = state.nodes[commit.node]
    if node.leads is None or node.broker_epoch != commit.broker_epoch:
        return state
    leads = replica_state.was_refused(node.leads, commit.proposal, is_key_changed=not is_unchanged)
    return with_node(state, commit.node, leads=leads)
