"""Operations on partitions of three replicas, as clients see them: stops, moves, elections."""

import json
import threading

import pytest

from ottla.ids import TopicPartition
from tests.commands import run_command
from tests.e2e.test_nodes_replicas import (
    REPLICAS,
    consumed,
    create,
    producer_of,
    states,
    until,
    wait_for_isr,
)
from tests.nodes import Nodes

# Other people's code, other people's warnings.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def nodes():
    with Nodes(REPLICAS) as nodes:
        nodes.start(1, 2, 3)
        yield nodes


class Load:
    """An idempotent producer in a thread of its own, from enter to exit."""

    def __init__(self, nodes, topic="t"):
        self._producer = producer_of(nodes)
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = []
        self.refused = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def _told(self, error, message):
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.refused.append((message.value(), error))

    def _run(self):
        number = 0
        while not self._is_over.is_set():
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._told)
            number += 1
            self._producer.poll(0.002)
        assert self._producer.flush(60) == 0

    def wait(self, count=50):
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted or self.refused, lambda: self.refused)


def test_a_rolling_restart_is_no_error_for_anybody(nodes):
    create(nodes, min_insync_replicas="2")
    with Load(nodes) as load:
        for node in (1, 2, 3):
            load.wait()
            nodes.stop(node)
            assert node not in {state.leader for state in states(nodes)}
            load.wait()
            nodes.start(node)
            wait_for_isr(nodes)
    assert not load.refused
    assert sorted(consumed(nodes, len(load.acknowledged))) == sorted(load.acknowledged)


def wire_to(nodes, node=1):
    from tools.wire_client import WireClient

    return WireClient(nodes.address(node), timeout_seconds=60)


def elect(nodes, kind, partitions, *, topic="t", version=2):
    named = None if partitions is None else [{"topic": topic, "partitions": partitions}]
    with wire_to(nodes, nodes.running[0]) as wire:
        answer = wire.call(
            "elect_leaders", version, election_type=kind, topic_partitions=named, timeout=30_000
        )
    assert answer["error_code"] == 0
    return {
        one["partition_id"]: one["error_code"]
        for each in answer["replica_election_results"]
        for one in each["partition_result"]
    }


def test_preferred_leaders_lead_again_when_they_are_asked_for(nodes):
    create(nodes, min_insync_replicas="2")
    preferred = [state.replicas[0] for state in states(nodes)]
    nodes.stop(1)
    moved = preferred.index(1)
    assert elect(nodes, 0, [0, 1, 2]) == {n: 80 if n == moved else 84 for n in range(3)}
    assert elect(nodes, 1, [moved]) == {moved: 84}, "it is led"
    nodes.start(1)
    wait_for_isr(nodes)
    with Load(nodes) as load:
        load.wait()
        assert elect(nodes, 0, None) == {moved: 0}, "of all those are told that needed it"
        assert [state.leader for state in states(nodes)] == preferred
        load.wait()
    assert not load.refused
    assert sorted(consumed(nodes, len(load.acknowledged))) == sorted(load.acknowledged)


def test_an_unclean_election_is_possible_when_nobody_is_left_that_has_all(nodes):
    create(nodes, partitions=1)
    leader = nodes.leaders("t")[0]
    others = [node for node in (1, 2, 3) if node != leader]
    for node in others:
        nodes.kill(node)
    wait_for_isr(nodes, 1)
    nodes.kill(leader)
    nodes.start_together(*others)
    until(lambda: states(nodes)[0].leader == -1, lambda: states(nodes))
    assert elect(nodes, 0, [0]) == {0: 80}
    assert elect(nodes, 1, [0]) == {0: 0}
    state = states(nodes)[0]
    assert state.leader in others
    assert state.leader in state.isr
    assert set(state.isr) <= set(others), "the other one may have joined by now"


def test_a_node_that_leads_too_much_gives_it_back_by_itself():
    options = REPLICAS | {"leader.imbalance.check.interval.seconds": "1"}
    with Nodes(options) as nodes:
        nodes.start(1, 2, 3)
        create(nodes)
        preferred = [state.replicas[0] for state in states(nodes)]
        nodes.stop(2)
        assert 2 not in nodes.leaders("t")
        nodes.start(2)
        until(lambda: nodes.leaders("t") == preferred, lambda: states(nodes))


def alter(nodes, replicas, *, topic="t", **more):
    """Ask for replicas by partition (None: cancel); return the error codes by partition."""
    parts = [{"partition_index": n, "replicas": each} for n, each in replicas.items()]
    with wire_to(nodes, nodes.running[0]) as wire:
        answer = wire.call(
            "alter_partition_reassignments",
            1,
            timeout=30_000,
            topics=[{"name": topic, "partitions": parts}],
            **more,
        )
    (told,) = answer["responses"]
    return {one["partition_index"]: one["error_code"] for one in told["partitions"]}


def moving(nodes):
    with wire_to(nodes, nodes.running[0]) as wire:
        told = wire.call("list_partition_reassignments", 0, topics=None, timeout=30_000)
    return {
        one["partition_index"]: (
            one["replicas"],
            one["adding_replicas"],
            one["removing_replicas"],
        )
        for topic in told["topics"]
        for one in topic["partitions"]
    }


def directories(nodes, node, topic="t"):
    """Return the numbers of the partitions of a topic that a node has on its disk."""
    names = nodes.call(
        lambda: nodes.disk(node).list_directory(nodes.broker(node).configuration.log_dirs[0])
    )
    return {name for name in names if name.startswith(f"{topic}-") and "delete" not in name}


def test_replicas_move_under_load_and_nothing_is_lost(nodes):
    create(nodes, factor=1)
    home = [state.replicas[0] for state in states(nodes)]
    with Load(nodes) as load:
        load.wait()
        for step in (1, 2):  # Each partition moves to the next node, then to the one behind it.
            wanted = {n: [1 + (home[n] - 1 + step) % 3] for n in range(3)}
            assert set(alter(nodes, wanted).values()) == {0}
            until(lambda: not moving(nodes), lambda: states(nodes))
            assert [list(state.replicas) for state in states(nodes)] == [*wanted.values()]
            load.wait()
        everywhere = {n: [1, 2, 3] for n in range(3)}
        assert set(alter(nodes, everywhere).values()) == {0}
        until(lambda: not moving(nodes), lambda: states(nodes))
        wait_for_isr(nodes)
        load.wait()
        assert set(alter(nodes, {n: [3, 2] for n in range(3)}).values()) == {0}
        until(lambda: not moving(nodes), lambda: states(nodes))
        assert all(state.leader in (2, 3) for state in states(nodes))
        load.wait()
    assert not load.refused
    assert sorted(consumed(nodes, len(load.acknowledged))) == sorted(load.acknowledged)
    until(lambda: not directories(nodes, 1), lambda: directories(nodes, 1))
    assert directories(nodes, 2) == directories(nodes, 3) == {"t-0", "t-1", "t-2"}


def test_a_node_that_was_down_deletes_what_it_has_lost_meanwhile(nodes):
    create(nodes)
    wait_for_isr(nodes)
    nodes.kill(3)
    wait_for_isr(nodes, 2)
    assert set(alter(nodes, {n: [1, 2] for n in range(3)}).values()) == {0}
    until(lambda: not moving(nodes), lambda: states(nodes))
    assert {state.left for state in states(nodes)} == {(3,)}
    nodes.start(3)
    until(lambda: not directories(nodes, 3), lambda: directories(nodes, 3))
    assert set(alter(nodes, {n: [1, 2, 3] for n in range(3)}).values()) == {0}
    wait_for_isr(nodes)
    assert len(directories(nodes, 3)) == 3


def let_follow(nodes, node, *, may):
    """Have a node follow no partition more than it does, or again those it hears of."""

    def change():
        nodes.broker(node).node.work.replica_manager.replicas._is_leaving = not may

    nodes.call(change)


@pytest.fixture
def stuck(nodes):
    """A topic of two replicas, and the third node, which will not follow it: (state, node)."""
    create(nodes, topic="other")
    wait_for_isr(nodes, topic="other")
    create(nodes, factor=2, partitions=1)
    before = states(nodes)[0]
    (third,) = {1, 2, 3} - set(before.replicas)
    let_follow(nodes, third, may=False)
    return before, third


def test_a_reassignment_that_does_not_end_is_told_and_may_be_replaced(nodes, stuck):
    before, third = stuck
    here = list(before.replicas)
    assert alter(nodes, {0: None}) == {0: 85}, "nothing is under way"
    assert alter(nodes, {0: here}) == {0: 0}, "it is so already"
    assert states(nodes)[0] == before
    assert alter(nodes, {0: [third]}, allow_replication_factor_change=False) == {0: 38}
    assert alter(nodes, {0: [third]}) == {0: 0}
    assert moving(nodes) == {0: ([third, *here], [third], here)}
    assert alter(nodes, {0: [*here, third]}) == {0: 0}, "all of them: the third has nothing yet"
    assert moving(nodes) == {0: ([*here, third], [third], [])}
    assert states(nodes)[0].isr == before.isr
    let_follow(nodes, third, may=True)
    assert alter(nodes, {0: [third]}) == {0: 0}
    until(lambda: not moving(nodes) or states(nodes)[0].isr != before.isr, lambda: states(nodes))
    until(lambda: not moving(nodes), lambda: states(nodes))
    state = states(nodes)[0]
    assert (state.replicas, state.isr, state.leader) == ((third,), (third,), third)


def test_a_cancelled_reassignment_leaves_all_as_it_was(nodes, stuck):
    before, third = stuck
    with Load(nodes) as load:
        load.wait()
        assert alter(nodes, {0: [third]}) == {0: 0}
        load.wait()
        assert alter(nodes, {0: None}) == {0: 0}
        load.wait()
    after = states(nodes)[0]
    assert after[:3] == before[:3], "replicas, ISR and leader"
    assert after.leader_epoch > before.leader_epoch
    assert not load.refused
    assert not moving(nodes)
    until(lambda: not directories(nodes, third), lambda: directories(nodes, third))


def delete_records(nodes, offset, timeout_ms):
    (leader,) = nodes.leaders("t")
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
    with wire_to(nodes, leader) as wire:
        answer = wire.call("delete_records", 2, topics=topics, timeout=timeout_ms)
    (part,) = answer["topics"][0]["partitions"]
    return part["error_code"], part["low_watermark"]


def test_deleted_records_are_gone_at_every_live_replica_when_that_is_answered(nodes):
    create(nodes, partitions=1)
    producer = producer_of(nodes)
    for number in range(10):
        producer.produce("t", b"%d" % number)
    assert producer.flush(60) == 0
    wait_for_isr(nodes)

    def starts():
        brokers = [nodes.broker(node).node.work.replica_manager for node in nodes.running]
        return {one.get(TopicPartition("t", 0)).log_start_offset for one in brokers}

    assert delete_records(nodes, 4, 60_000) == (0, 4)
    assert nodes.call(starts) == {4}
    follower = next(node for node in (1, 2, 3) if node not in nodes.leaders("t"))
    let_follow(nodes, follower, may=False)
    nodes.run(stop_following, nodes, follower)
    assert delete_records(nodes, 6, 200) == (7, 4), "one has not deleted"
    nodes.stop(follower)
    assert delete_records(nodes, 7, 60_000) == (0, 7), "nobody waits for who is gone"


async def stop_following(nodes, node):
    replicas = nodes.broker(node).node.work.replica_manager.replicas
    for fetcher in replicas._fetchers.values():
        await fetcher.stop()


def test_consumers_read_from_the_replica_in_their_rack():
    from confluent_kafka import Consumer

    options = REPLICAS | {"replica.selector.class": "RackAwareReplicaSelector"}
    with Nodes(options) as nodes:
        for node in (1, 2, 3):
            nodes.start(node, broker_rack=f"r{node}")
        create(nodes, partitions=1)
        wait_for_isr(nodes)
        (leader,) = nodes.leaders("t")
        follower = leader % 3 + 1
        served = counted(nodes)
        settings = {
            "bootstrap.servers": nodes.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "client.rack": f"r{follower}",
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.subscribe(["t"])
        with Load(nodes) as load:
            found = []
            until(
                lambda: (
                    found.extend(
                        one.value() for one in consumer.consume(500, 0.2) if not one.error()
                    )
                    or len(found) >= 200
                ),
                lambda: (len(found), served),
            )
            assert served[follower] > served[leader]
            nodes.stop(follower)  # It goes on at the leader, from where it was.
            load.wait()
        until(
            lambda: (
                found.extend(one.value() for one in consumer.consume(500, 0.2) if not one.error())
                or len(found) >= len(load.acknowledged)
            ),
            lambda: (len(found), len(load.acknowledged)),
        )
        consumer.close()
        assert sorted(found) == sorted(load.acknowledged)


def counted(nodes):
    """Count by node how many reads of consumers found records."""
    served = dict.fromkeys((1, 2, 3), 0)

    def count(node):
        manager = nodes.broker(node).node.work.replica_manager
        read = manager._fetches._read_all

        def counting(*arguments, **options):
            found = read(*arguments, **options)
            if any(each.region for each in found if each.topic_partition.topic == "t"):
                served[node] += 1
            return found

        manager._fetches._read_all = counting

    for node in (1, 2, 3):
        nodes.call(count, node)
    return served


def test_a_cluster_is_balanced_and_a_node_is_drained_by_the_command_line(nodes):
    create(nodes, factor=2)
    where = ("-b", nodes.bootstrap)
    code, out, err = run_command("", "cluster", "drain", "3", *where, "-o", "json")
    assert (code, len(json.loads(out))) == (0, 2), err
    assert any(3 in state.replicas for state in states(nodes)), "it was only a plan"
    with Load(nodes) as load:
        load.wait()
        code, _, err = run_command("", "cluster", "drain", "3", "--execute", *where)
        assert code == 0, err
        assert not moving(nodes)
        assert all(set(state.replicas) == {1, 2} for state in states(nodes))
        code, out, err = run_command("", "cluster", "balance", "--execute", *where, "-o", "json")
        assert code == 0, err
        assert json.loads(out)
        load.wait()
    assert not load.refused
    replicas = [node for state in states(nodes) for node in state.replicas]
    assert sorted(map(replicas.count, (1, 2, 3))) == [2, 2, 2]
    assert sorted(state.leader for state in states(nodes)) == [1, 2, 3]
    code, _, err = run_command("", "cluster", "balance", *where)
    assert (code, "nothing has to move" in err) == (0, True)
    code, _, err = run_command("", "cluster", "drain", "9", *where)
    assert (code, "there is no node 9" in err) == (5, True)
    nodes.stop(3)
    code, _, err = run_command("", "cluster", "drain", "1", *where)
    assert code == 1
    assert "has 2 replicas; other nodes that are up: 2" in err
