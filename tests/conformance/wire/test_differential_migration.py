"""Groups of both protocols at once, Ottla and a live Apache Kafka: same answers, same records.

Groups turn classic here when everybody has what it is to have: what Ottla does otherwise is told
in docs/compatibility.md.
"""

import pytest

from tests.conformance.wire.mixed_members import Mixed, assignment, subscription

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.max.size": 3,
    "offsets.topic.num.partitions": 1,
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, kafka_libs):
    """The addresses of both, started with the same options."""
    from tools.kafka_peer import KafkaPeer
    from tools.ottla_peer import OttlaPeer

    directory = tmp_path_factory.mktemp("migration")
    peers = [OttlaPeer(directory / "ottla", OPTIONS), KafkaPeer(directory / "kafka", OPTIONS)]
    try:
        for peer in peers:
            peer.start()
        yield [peer.bootstrap for peer in peers]
    finally:
        for peer in peers:
            peer.kill9()


def upgrade_and_downgrade(play):
    g = Mixed(play, "g", {"t": 4})
    g.come("k1")
    g.sync("k1", {"k1": assignment({"t": [0, 1, 2, 3]})})
    g.look()
    g.classic_beat("k1")
    g.subscribe("m1")
    g.play.call("c", "list_groups", 5, types_filter=[], states_filter=[])
    g.classic_beat("k1")
    g.commit("k1", 1)
    g.commit("k1", 2)
    g.fetch("k1", 1)
    g.beat("m1", 2)
    g.join("k1", subscribed=subscription(["t"], {"t": [0, 1, 2, 3]}))
    g.look()
    g.classic_beat("k1")
    g.sync("k1")
    g.classic_beat("k1")
    g.join("k1", subscribed=subscription(["t"], {"t": [0, 1]}))
    g.look()
    g.sync("k1")
    g.classic_beat("k1")
    g.beat("m1", 2, owned=[])
    g.beat("m1", 2, owned=[2, 3])
    g.commit("k1", 2)
    g.commit("k1", 1)
    g.fetch("k1", 2)
    g.beat("m1", -1)
    g.look()
    g.classic_beat("k1")
    g.classic_beat("k1", 3)
    g.join("k1")
    g.sync("k1", {"k1": assignment({"t": [0, 1, 2, 3]})})
    g.classic_beat("k1")
    g.look()
    g.classic_leave({"member_id": g.members["k1"][0]})
    g.look()
    g.subscribe("m2")
    g.beat("m2", -1)
    g.come("k2")
    g.records()


def refusals(play):
    g = Mixed(play, "r", {"r": 4})
    g.subscribe("m1")
    for fields in (
        {"protocol_type": "other"},
        {"protocols": []},
        {"subscribed": b"", "version": 3},
        {"subscribed": subscription(["r"], {"r": [1, 2]})[:-2], "version": 3},
        {"session_timeout": 1},
        {"group_instance_id": "who", "member_id": "who"},
    ):
        g.ask_join("x", fields.pop("member_id", ""), **fields)
        play.receive("x")
    g.look()
    g.join("w", "", version=3)
    g.classic_leave({"member_id": g.members["w"][0]})
    g.join("x", "x", version=3)
    g.members["m1"], g.members["who"] = ("m1", 2), ("who", 2)
    for generation in (5, 0, 7):
        g.classic_beat("x", generation)
        g.sync("x", generation=generation)
    g.sync("x", protocol_name="roundrobin")
    g.sync("x", protocol_type="other")
    for name in ("m1", "who"):
        g.classic_beat(name)
        g.sync(name)
    g.classic_beat("x", group_instance_id="i")
    g.sync("x", group_instance_id="i")
    g.ask_join("y", "", names=("roundrobin",))
    play.receive("y")
    g.join("w", "", names=("roundrobin", "range"))
    g.join("y", "y", names=("roundrobin", "range"))
    g.join("x", names=("roundrobin",))
    g.ask_join("z", "")
    play.receive("z")
    g.ask_join("z", "z")
    play.receive("z")
    left = [{"member_id": "who"}, {"member_id": "x"}]
    g.classic_leave(*left, {"member_id": "", "group_instance_id": "i"})
    g.look()
    g.classic_leave({"member_id": "y"}, {"member_id": "y"})
    g.look()
    g.records()


def a_member_changes_its_protocol(play):
    g = Mixed(play, "p", {"p": 4})
    g.subscribe("m1")
    g.join("x", "", version=3)
    g.join("m1", "m1")  # A member of the consumer protocol speaks the other one now.
    g.look()
    g.beat("m1", 3)
    g.beat("m1", 0, rebalance_timeout=60_000, topic_partitions=[], subscribed_topic_names=["p"])
    g.classic_beat("m1", 3)
    g.join("m1", "m1")
    for name in ("x", "m1"):
        g.classic_beat(name)
        g.sync(name)
    g.classic_leave({"member_id": g.members["x"][0]})
    g.look()
    g.classic_beat("m1")
    g.join("m1")
    g.sync("m1")
    g.classic_beat("m1")
    g.records()


def rebalances(play):
    g = Mixed(play, "b", {"b": 1})  # With more, it is up to random ids who gets which.
    g.stable("k1")
    g.ask_join("k2", "")
    g.joined("k2")
    g.ask_join("k2")
    play.is_waiting("k2")
    g.subscribe("m1")  # In the middle of joining: who waits is told to come again.
    g.joined("k2")
    g.classic_leave({"member_id": g.members["k2"][0]}, {"member_id": "m1"})
    g.look()
    g.ask_join("k2", "")
    g.joined("k2")
    g.ask_join("k2")
    g.join("k1", subscribed=subscription(["b"], {"b": [0]}))
    g.joined("k2")
    g.ask_sync("k2")
    play.is_waiting("k2")
    g.subscribe("m1")  # In the middle of syncing.
    play.receive("k2")
    for name in ("k1", "k2"):
        g.classic_beat(name)
        g.join(name)
        g.sync(name)
    g.look()
    g.records()


def what_cannot_become_a_consumer_group(play):
    g = Mixed(play, "n1", {"n1": 4})
    g.come("k1", subscribed=b"\0")
    g.sync("k1", {"k1": assignment({})})
    g.subscribe("m1")
    g = Mixed(play, "n2", {"n2": 4})
    g.come("k1")
    g.sync("k1", {"k1": b"xx"})
    g.subscribe("m1")
    g.classic_beat("k1")
    g = Mixed(play, "n3", {})
    g.come("k1")
    g.sync("k1")
    g.subscribe("m1")
    g = Mixed(play, "n4", {"n4": 4})
    g.come("k1", protocol_type="connect")
    g.sync("k1", protocol_type="connect")
    g.subscribe("m1")
    g = Mixed(play, "n5", {"n5": 4})
    g.stable("k1")
    g.beat("m1", 5)
    g.beat("m1", -1)
    g.beat("k1", 1)
    for name in ("k2", "k3"):
        g.join(name, "")
        g.ask_join(name)
    g.join("k1")
    g.joined("k2")
    g.joined("k3")
    g.subscribe("m1")  # There is room for three.
    g.beat(g.members["k2"][0], 0, rebalance_timeout=9_000, topic_partitions=[],
           subscribed_topic_names=["n5"])  # fmt: skip


def static_members(play):
    g = Mixed(play, "s", {"s": 4})
    g.subscribe("m1", instance_id="i1")
    g.join("k1", "", group_instance_id="i1")
    g.look()
    g.classic_beat("k1")
    g.sync("k1", group_instance_id="i1")
    g.beat("m1", 2, instance_id="i1")
    g.subscribe("m2", instance_id="i1")
    g.classic_beat("k1", group_instance_id="i1")
    g.beat("m2", -2, instance_id="i1")
    g.join("k1", "", group_instance_id="i1")
    g.look()
    g.subscribe("m3", instance_id="i1")
    g.join("k2", "", group_instance_id="i2")
    g.join("k3", "", group_instance_id="i2")
    g.look()
    g.classic_beat("k2", group_instance_id="i2")
    g.classic_beat("k3", group_instance_id="i2")
    g.join("k2", group_instance_id="i2")
    g.sync("k3", group_instance_id="i2")
    for owned in ([0, 1, 2, 3], [0, 1], [0, 1]):
        g.beat("m3", 2, owned=owned, instance_id="i1")
    g.join("k3", group_instance_id="i2")
    g.classic_beat("k3")
    g.sync("k3", group_instance_id="i2")
    g.join("k4", "", group_instance_id="i1")
    g.look()
    names = [{"member_id": "", "group_instance_id": one} for one in ("i1", "i2", "who")]
    g.classic_leave(*names)
    g.look()
    g.records()


def leaving(play):
    g = Mixed(play, "l", {"l": 1})
    g.subscribe("m1")
    for name in ("x", "y"):
        g.join(name, name, version=3)
    g.classic_leave(*({"member_id": g.members.get(one, (one,))[0]} for one in ("x", "m1", "y")))
    g.look()
    g.subscribe("m1")
    for name in ("x", "y"):
        g.join(name, name, version=3)
    play.call("c", "leave_group", 2, group_id="l", member_id="m1")
    g.look()
    play.call("c", "leave_group", 2, group_id="l", member_id="who")
    g.records()


def versions(play):
    g = Mixed(play, "v", {"v": 4})
    g.subscribe("m1")
    for version in (0, 1, 2, 3, 9):
        said = subscription(["v"], {"v": [0]}, version=version, generation=7, rack="r")
        g.join("x", "x", version=3, subscribed=said)
        g.look()
        g.sync("x")
        g.beat("m1", 2, owned=[0, 1])


def offsets(play):
    g = Mixed(play, "o", {"o": 4})
    g.stable("k1")
    g.subscribe("m1")
    for generation in (1, 2, 0, -1):
        g.commit("k1", generation)
        g.commit("k1", generation, version=8)
        g.fetch("k1", generation)
    g.commit("m1", 2, version=8)
    g.commit("m1", 2)
    g.commit("", -1)
    g.fetch("who", 1)
    g.join("k1", subscribed=subscription(["o"], {"o": [0, 1, 2, 3]}))
    g.sync("k1")
    g.join("k1", subscribed=subscription(["o"], {"o": [0, 1]}))
    for generation in (1, 2, 3):
        g.commit("k1", generation)
        g.commit("k1", generation, group_instance_id="i")
    play.call("c", "delete_groups", 2, groups_names=["o"])
    g.beat("m1", -1)
    g.commit("k1", 2)
    g.fetch("k1", 2)
    play.call("c", "delete_groups", 2, groups_names=["o"])


SCRIPTS = [
    upgrade_and_downgrade,
    refusals,
    a_member_changes_its_protocol,
    rebalances,
    what_cannot_become_a_consumer_group,
    static_members,
    leaving,
    versions,
    offsets,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_answers_are_kafkas(brokers, script):
    from tools.differential import compare

    count, differences = compare(script, *brokers)
    assert count >= 10
    assert not differences, "\n".join(differences)
