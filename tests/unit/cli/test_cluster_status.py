from ottla.cli.cluster_status import nodes_of
from ottla.client.wire.settings import Address
from ottla.client.wire.view import NO_LEADER, PartitionView, TopicView
from ottla.errors import ErrorCode
from ottla.ids import NULL_TOPIC_ID


def topic(name, *partitions):
    views = {
        number: PartitionView(number, leader, 0, replicas, replicas, ErrorCode.NONE)
        for number, (leader, replicas) in enumerate(partitions)
    }
    return TopicView(name, NULL_TOPIC_ID, False, ErrorCode.NONE, views)


def test_a_node_that_is_down_is_told_with_what_is_offline():
    brokers = {1: Address("h", 9093), 3: Address("h", 9095)}
    topics = [
        topic("a", (1, (1,)), (NO_LEADER, (2,)), (3, (3,))),
        topic("b", (1, (1,)), (NO_LEADER, (2,))),
    ]
    rows = nodes_of(brokers, {1: "r"}, 3, topics)
    shown = [
        tuple(row[key] for key in ("node_id", "state", "port", "controller", "leads", "replicas"))
        for row in rows
    ]
    assert shown == [
        (1, "up", 9093, False, 2, 2),
        (2, "down", None, False, 0, 2),
        (3, "up", 9095, True, 1, 1),
    ]
    assert [row["offline"] for row in rows] == [0, 2, 0]
    assert rows[1]["offline_partitions"] == ["a-1", "b-1"]
    assert rows[0]["rack"] == "r"


def test_a_node_without_partitions_is_there():
    assert nodes_of({7: Address("h", 1)}, {}, -1, [])[0]["leads"] == 0


def test_a_node_that_is_down_and_has_no_partitions_is_told_where_the_cluster_knows_it():
    brokers = {1: Address("h", 1), 2: Address("h", 2)}
    rows = nodes_of(brokers, {}, 1, [topic("a", (1, (1,)))], {2, 3})
    shown = [(row["node_id"], row["state"], row["replicas"]) for row in rows]
    assert shown == [(1, "up", 1), (2, "up", 0), (3, "down", 0)], "node 2 has come back since"
