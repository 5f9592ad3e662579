"""``ottla cluster drain`` and ``balance`` while replicas are on their way."""

import asyncio
import json
from argparse import Namespace
from types import SimpleNamespace

import pytest

from ottla.cli import cluster_moves
from ottla.cli.failure import Failure
from ottla.ids import LeaderEpoch, TopicPartition
from ottla.metadata.values import PartitionState
from ottla.replication.elections import begin_reassignment

T0 = TopicPartition("t", 0)


class Nodes:
    """Partitions that move as those of Ottla do; ``ends``: called at each look at moves."""

    def __init__(self, replicas, nodes):
        self.states = {
            TopicPartition("t", number): PartitionState(each, each, each[0], LeaderEpoch(0), 0)
            for number, each in enumerate(replicas)
        }
        self.view = SimpleNamespace(brokers=dict.fromkeys(nodes), racks={})
        self.ends = iter(())
        self.elected = []
        self.asked = 0

    def begin(self, where, *target):
        self.states[where] = begin_reassignment(self.states[where], target)

    def end(self, where):
        state = self.states[where]
        left = tuple(node for node in state.replicas if node not in state.removing)
        self.states[where] = state._replace(replicas=left, adding=(), removing=())

    # What the commands ask for.

    async def list_topics(self):
        partitions = {
            where.partition: SimpleNamespace(partition=where.partition, replicas=state.replicas)
            for where, state in self.states.items()
        }
        next(self.ends, None)
        return [SimpleNamespace(name="t", partitions=partitions)]

    async def reassignments(self, partitions=None):
        self.asked += 1
        if partitions is not None:
            for where in partitions:
                self.end(where)
        return {
            where: state for where, state in self.states.items() if state.adding or state.removing
        }

    async def reassign(self, targets, *, may_change_factor):
        for where, target in targets.items():
            state = self.states[where]
            assert may_change_factor or len(target) == len(state.replicas) - len(state.removing)
            self.begin(where, *target)
        return dict.fromkeys(targets)

    async def elect(self, partitions):
        self.elected = sorted(partitions)


@pytest.fixture
def start(monkeypatch):
    def start(*replicas, nodes):
        cluster = Nodes(replicas, nodes)
        monkeypatch.setattr(cluster_moves, "Admin", lambda _: cluster)
        monkeypatch.setattr(cluster_moves, "Moves", lambda _: cluster)
        monkeypatch.setattr(cluster_moves, "run", lambda _, command: asyncio.run(command(cluster)))
        return cluster

    return start


def options(**given):
    told = {"execute": True, "no_wait": True, "output": "json", "no_header": False}
    return Namespace(**{**told, **given})


def test_a_second_drain_while_the_first_is_under_way_keeps_the_factor(start, capsys):
    nodes = start((1, 2), (2, 3), nodes=(1, 2, 3, 4))
    cluster_moves.drain(options(nodes=[1]))
    begun = dict(nodes.states)
    assert begun[T0].removing == (1,)
    capsys.readouterr()
    for _ in range(3):
        cluster_moves.drain(options(nodes=[1]))
        told = capsys.readouterr()
        assert json.loads(told.out) == []
        assert "nothing has to move; 1 partitions are under way already" in told.err
    assert nodes.states == begun
    cluster_moves.drain(options(nodes=[1], no_wait=False))
    assert "done" in capsys.readouterr().err
    assert [state.replicas for state in nodes.states.values()] == [(4, 2), (2, 3)]
    assert nodes.elected == [T0], "it waits for what the first one began"


def test_a_drain_of_the_node_that_a_move_adds_keeps_the_factor(start):
    nodes = start((1, 2), nodes=(1, 2, 3))
    nodes.begin(T0, 3, 2)
    cluster_moves.drain(options(nodes=[3]))
    nodes.end(T0)
    assert sorted(nodes.states[T0].replicas) == [1, 2]


def test_a_balance_while_replicas_move_keeps_the_factor(start, capsys):
    nodes = start((1, 2), (1, 2), (1, 2), (1, 2), nodes=(1, 2, 3, 4))
    cluster_moves.balance(options())
    begun = dict(nodes.states)
    cluster_moves.balance(options())
    assert "nothing has to move" in capsys.readouterr().err
    assert nodes.states == begun
    for where in begun:
        nodes.end(where)
    assert {len(state.replicas) for state in nodes.states.values()} == {2}


def test_what_is_said_to_be_everywhere_is(start):
    """(1, 2) was on its way to (3, 2), and said to have a replica on each of the three nodes."""
    nodes = start((1, 2), nodes=(1, 2, 3))
    nodes.begin(T0, 3, 2)
    cluster_moves.drain(options(nodes=[1]))
    nodes.begin(T0, 3, 2, 1)
    with pytest.raises(Failure, match="cannot be drained"):
        cluster_moves.drain(options(nodes=[1]))


def test_a_node_that_is_down_and_all_but_drained_is_still_known(start, capsys):
    nodes = start((9, 2), nodes=(1, 2))
    nodes.begin(T0, 1, 2)
    cluster_moves.drain(options(nodes=[9]))
    assert "under way already" in capsys.readouterr().err
    nodes.end(T0)
    with pytest.raises(Failure, match="there is no node 9"):
        cluster_moves.drain(options(nodes=[9]))


def test_a_move_that_ends_while_it_is_looked_at_is_not_taken_for_a_third_replica(start):
    """Metadata was from before its end, the list of moves from after it."""
    nodes = start((1, 2), nodes=(1, 2, 3, 4))
    nodes.begin(T0, 3, 2)
    nodes.ends = (nodes.end(T0) for _ in range(1))
    cluster_moves.drain(options(nodes=[2]))
    assert nodes.asked == 3
    nodes.end(T0)
    assert nodes.states[T0].replicas in {(3, 1), (1, 3), (3, 4), (4, 3)}
