"""What may happen next in a state of the model: a name for each, and a function that does it."""

from ottla.ids import NodeId
from ottla.metadata.values import NO_LEADER
from ottla.replication import elections, replica_state
from tests.model import protocol
from tests.model.protocol import (
    CONTROLLER,
    IN_FLIGHT_MAX,
    NODES,
    NOT_REGISTERED,
    Answer,
    Commit,
    Fetch,
    is_left,
    min_isr,
    using,
    with_key,
    with_live,
    with_node,
)

RARE = (
    *("lose", "crash", "expire", "wipe", "config", "repeat", "rescan", "grant", "prefer"),
    *("begin", "cancel"),
)
OFTEN = (
    *("finish", "drop"),
    *("hear", "sync", "register", "produce", "shrink", "expand", "clear", "fetch", "restart"),
    *("fence", "gone", "lost", "elect", "commit", "request", "answer"),
)
"""What may happen, by the first word of its name."""


def happenings(state):
    """Yield (name, function from the state to the next one). Names differ within a state."""
    for who in (*NODES, CONTROLLER):
        if who not in state.lowered:
            yield f"config {who}", lambda s, who=who: s._replace(lowered=s.lowered | {who})
    for one in NODES:
        if state.nodes[one].is_up:
            yield from _of_a_process(state, one)
        else:
            yield from _of_a_dead_node(state, one)
        yield from _of_a_registration(state, one)
    live = protocol.live_nodes(state)
    if state.key.leader == NO_LEADER and live.intersection((*state.key.isr, *state.key.elr)):
        yield "elect", _elect
    preferred = elections.elect_preferred(state.key, live)
    if preferred is not state.key:
        yield "prefer", lambda s: with_key(s, preferred)
    yield from _of_a_reassignment(state, live)
    for message in state.messages:
        yield from _of_a_message(state, message)


def _of_a_reassignment(state, live):
    key = state.key
    if is_left(state, "moves"):
        for target in protocol.TARGETS:
            begun = elections.begin_reassignment(key, tuple(map(NodeId, target)))
            if begun.replicas != key.replicas:
                name = "begin " + ",".join(map(str, target))
                yield name, lambda s, begun=begun: using(with_key(s, begun), "moves")
    if not key.adding and not key.removing:
        return
    needed = min_isr(state, CONTROLLER)
    finished = elections.finish_reassignment(key, live, needed)
    if finished is not key:
        yield "finish", lambda s: with_key(s, finished)
    cancelled = elections.cancel_reassignment(key, live, needed)
    if cancelled is not None:
        yield "cancel", lambda s: with_key(s, cancelled)


def _of_a_process(state, one):
    node = state.nodes[one]
    newest = len(state.keys) - 1
    if node.view < newest:
        yield f"hear {one}", lambda s: protocol.hears(s, one, node.view + 1)
    if node.view + 1 < newest:
        yield f"rescan {one}", lambda s: protocol.hears(s, one, newest)
    if node.synced < len(node.log):
        yield (
            f"sync {one}",
            lambda s: protocol.advanced(with_node(s, one, synced=len(node.log)), one),
        )
    if one not in state.keys[node.view].replicas:
        if node.log:
            yield f"drop {one}", lambda s: with_node(s, one, log=(), synced=0, high_watermark=0)
    elif node.leads is not None:
        yield from _of_a_leader(state, one)
    elif node.broker_epoch != NOT_REGISTERED:
        yield from _of_a_follower(state, one)
    if node.broker_epoch == NOT_REGISTERED and state.live[one] == NOT_REGISTERED:
        members = {*state.key.isr, *state.key.elr}
        if is_left(state, "broker_epochs") and not (node.is_wiped and members == {one}):
            yield f"register {one}", lambda s: protocol.registers(s, one)
    if is_left(state, "crashes"):
        yield (
            f"crash {one}",
            lambda s: using(
                with_node(
                    s,
                    one,
                    is_up=False,
                    broker_epoch=NOT_REGISTERED,
                    log=node.log[: node.synced],
                    leads=None,
                    asked=None,
                ),
                "crashes",
            ),
        )


def _of_a_leader(state, one):
    node = state.nodes[one]
    leads = node.leads
    epoch = leads.state.leader_epoch
    if is_left(state, "values"):
        entry = protocol.Entry(epoch, state.used.values)
        yield f"produce {one}", lambda s: using(with_node(s, one, log=(*node.log, entry)), "values")
    if not is_left(state, "commits"):
        return
    if leads.proposal is not None:
        yield f"repeat {one}", lambda s: protocol.sends_commit(s, one, node)
        return
    needed = min_isr(state, one)
    for other in leads.state.isr:
        if other != one:
            yield (
                f"shrink {one}-{other}",
                lambda s, other=other: protocol.proposes(
                    s, one, replica_state.propose_shrink(leads, (other,), needed)
                ),
            )
    others = tuple(other for other in leads.state.isr if other != one)
    if len(others) > 1:
        yield (
            f"shrink {one}-all",
            lambda s: protocol.proposes(
                s, one, replica_state.propose_shrink(leads, others, needed)
            ),
        )
    for other in NODES:
        if other != one and replica_state.may_join(leads, other, node.high_watermark):
            yield (
                f"expand {one}+{other}",
                lambda s, other=other: protocol.proposes(
                    s, one, replica_state.propose_expand(leads, other, needed)
                ),
            )
    if replica_state.may_clear_elr(leads, needed):
        yield (
            f"clear {one}",
            lambda s: protocol.proposes(s, one, replica_state.propose_clear(leads, needed)),
        )


def _of_a_follower(state, one):
    node = state.nodes[one]
    if state.keys[node.view].leader in {NO_LEADER, one}:
        return
    in_flight = sum(
        not isinstance(message, Commit) and message.node == one for message in state.messages
    )
    asked = protocol.next_fetch(state, one)
    if asked is not None and in_flight < IN_FLIGHT_MAX:
        yield f"fetch {one}>{asked.leader}", lambda s: protocol.asks(s, one, asked)


def _of_a_dead_node(state, one):
    restarted = {
        "is_up": True,
        "view": len(state.keys) - 1,
        "high_watermark": 0,
    }
    yield f"restart {one}", lambda s: with_node(s, one, **restarted)
    if is_left(state, "wipes") and len({*state.key.isr, *state.key.elr}) > 1:
        yield (
            f"wipe {one}",
            lambda s: using(
                with_node(s, one, **restarted, log=(), synced=0, is_wiped=True), "wipes"
            ),
        )


def _of_a_registration(state, one):
    node, key = state.nodes[one], state.key
    registered = state.live[one]
    if registered == NOT_REGISTERED:
        if one in key.isr or key.leader == one:
            yield f"fence {one}", lambda s: _fence(s, one)
    else:
        if node.broker_epoch != registered:
            yield f"gone {one}", lambda s: with_live(s, one, NOT_REGISTERED)
        elif is_left(state, "expiries"):
            yield f"expire {one}", lambda s: using(with_live(s, one, NOT_REGISTERED), "expiries")
        if (
            key.leader == one
            and node.broker_epoch == registered
            and node.fenced_epoch >= key.leader_epoch
        ):
            yield f"grant {one}", lambda s: with_key(s, elections.grant_anew(s.key))
    if node.is_up and node.broker_epoch not in {NOT_REGISTERED, registered}:
        # It learns that its session is lost: it leads no more, and registers anew.
        yield (
            f"lost {one}",
            lambda s: with_node(s, one, broker_epoch=NOT_REGISTERED, leads=None, asked=None),
        )


def _fence(state, one):
    live = protocol.live_nodes(state)
    return with_key(state, elections.fence(state.key, one, live, min_isr(state, CONTROLLER)))


def _elect(state):
    live = protocol.live_nodes(state)
    return with_key(state, elections.elect(state.key, live, min_isr(state, CONTROLLER)))


def _of_a_message(state, message):
    def without(s):
        return s._replace(messages=s.messages - {message})

    if isinstance(message, Commit):
        name = f"commit {message.node} #{message.number}"
        yield name, lambda s: protocol.arrives(without(s), message)
    else:
        name = f"{message.node} #{message.asked.number}"
        if isinstance(message, Fetch):
            name = f"request {name}"
            if protocol.is_servable(state, message):
                yield name, lambda s: protocol.serves(without(s), message)
        else:
            assert isinstance(message, Answer)
            name = f"answer {name}"
            if protocol.is_takable(state, message):
                yield name, lambda s: protocol.takes(without(s), message)
    yield f"lose {name}", without
