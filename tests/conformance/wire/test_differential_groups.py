"""Group and offset requests to Ottla and a live Apache Kafka: the same answers, field by field."""

import pytest

from tests.conformance.wire.group_requests import all_of, committing, joining, syncing, unknown_id

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]

CONSUMER = {"protocol_type": "consumer"}
OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.max.size": 3,
}
STEPS_MIN = 150
COUNTED = {}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, kafka_libs):
    """The addresses of both, started with the same options."""
    from tools.kafka_peer import KafkaPeer
    from tools.ottla_peer import OttlaPeer

    directory = tmp_path_factory.mktemp("differential")
    peers = [OttlaPeer(directory / "ottla", OPTIONS), KafkaPeer(directory / "kafka", OPTIONS)]
    try:
        for peer in peers:
            peer.start()
        yield [peer.bootstrap for peer in peers]
    finally:
        for peer in peers:
            peer.kill9()


# Scripts.


def committed_offsets(play):
    topic_id = play.create_topic("t", 3)
    play.create_topic("u", 1)
    groups = ["o1", "o2", "", "../x", "a/b\x00", "é" * 9, "x" * 20_000]
    play.wait_for_coordinator(*groups)
    for group in groups:
        play.call("c", "offset_commit", 8, **committing(group, 5, metadata="first"))
        play.call("c", "offset_fetch", 8, **all_of(group))
        play.call("c", "describe_groups", 5, groups=[group])
    for version in range(2, 10):
        play.call("c", "offset_commit", version, **committing("o1", version, metadata="v"))
    for version in range(1, 8):
        topics = [{"name": "t", "partition_indexes": [0, 2, 9]}]
        topics.append({"name": "nobody", "partition_indexes": [0]})
        play.call("c", "offset_fetch", version, group_id="o1", topics=topics)
    for version in range(2, 8):
        play.call("c", "offset_fetch", version, group_id="o1", topics=None)
    for version in (8, 9):
        play.call("c", "offset_fetch", version, **all_of("o1", "o2", "nobody"))
        play.call("c", "offset_fetch", version, require_stable=True, **all_of("o1", "nobody"))
    play.call("c", "offset_fetch", 9, **all_of("o1", member_id="who", member_epoch=3))
    named = [{"topic_id": topic_id, "partition_indexes": [0, 1]}]
    unnamed = [{"topic_id": unknown_id(), "partition_indexes": [0]}]
    play.call("c", "offset_fetch", 10, groups=[{"group_id": "o1", "topics": named}])
    play.call("c", "offset_fetch", 10, groups=[{"group_id": "o1", "topics": named + unnamed}])
    play.call("c", "offset_fetch", 10, **all_of("o1"))
    for wanted in (topic_id, unknown_id()):
        part = {"partition_index": 1, "committed_offset": 7, "committed_metadata": None}
        play.call(
            "c",
            "offset_commit",
            10,
            group_id="o1",
            generation_id_or_member_epoch=-1,
            topics=[{"topic_id": wanted, "partitions": [part]}],
        )
    part = {"partition_index": 7, "committed_offset": 7, "committed_metadata": None}
    missing = [{"topic_id": topic_id, "partitions": [part]}]
    play.call("c", "offset_commit", 10, group_id="o1", topics=missing)
    play.call("c", "offset_commit", 8, **committing("o1", 1, topic="nobody"))
    play.call("c", "offset_commit", 8, **committing("o1", 1, index=3))
    play.call("c", "offset_commit", 8, **committing("o1", 1, index=-1))
    play.call("c", "offset_commit", 8, **committing("o1", -5))
    play.call("c", "offset_commit", 8, **committing("o1", 2**63 - 1))
    for metadata in ("x" * 4096, "x" * 4097, "é" * 4096, "😀" * 2048, "😀" * 2049):
        play.call("c", "offset_commit", 8, **committing("o1", 3, metadata=metadata))
    play.call("c", "offset_commit", 4, retention_time=60_000, **committing("o2", 3))
    play.call("c", "offset_commit", 8, **committing("new", 3, generation=0, member_id="m"))
    play.call("c", "offset_commit", 9, **committing("new", 3, generation=0, member_id="m"))
    play.call("c", "offset_commit", 9, **committing("new", 3, generation=-1, member_id="m"))
    play.call("c", "offset_commit", 9, **committing("new", 3, generation=0))
    play.call("c", "offset_commit", 9, **committing("new", 3, generation=-2))
    play.call("c", "offset_commit", 8, group_id="new", topics=[])
    play.call("c", "offset_fetch", 8, groups=[])
    twice = [{"name": "t", "partition_indexes": [0, 0]}, {"name": "t", "partition_indexes": [1]}]
    play.call("c", "offset_fetch", 8, groups=[{"group_id": "o1", "topics": twice}])
    play.call("c", "offset_fetch", 5, group_id="o1", topics=twice)


def deleting(play):
    play.create_topic("d", 3)
    play.wait_for_coordinator("d1", "d2", "nobody", "")
    for index in range(3):
        play.call("c", "offset_commit", 8, **committing("d1", index, topic="d", index=index))
        play.call("c", "offset_commit", 8, **committing("d2", index, topic="d", index=index))
    parts = [{"partition_index": index} for index in (0, 1, 7)]
    topics = [{"name": "d", "partitions": parts}]
    play.call("c", "offset_delete", 0, group_id="d1", topics=topics)
    play.call("c", "offset_delete", 0, group_id="d1", topics=topics)
    play.call("c", "offset_delete", 0, group_id="nobody", topics=topics)
    play.call("c", "offset_delete", 0, group_id="", topics=topics)
    play.call("c", "offset_delete", 0, group_id="d1", topics=[])
    play.call("c", "offset_fetch", 8, **all_of("d1"))
    for version in range(3):
        play.call("c", "delete_groups", version, groups_names=["d1", "nobody", "", "d1"])
    play.call("c", "offset_fetch", 8, **all_of("d1", "d2"))
    play.call("c", "delete_groups", 2, groups_names=["d2"])
    play.call("c", "list_groups", 5)


def first_member(play):
    play.create_topic("j", 3)
    play.wait_for_coordinator("j1", "j2", "j3", "")
    for version in range(10):
        group = f"v{version}"
        play.wait_for_coordinator(group)
        fields = joining(group)
        if version == 0:
            del fields["rebalance_timeout"]
        answer = play.call("m", "join_group", version, **fields)
        if version >= 4:
            fields["member_id"] = answer["member_id"]
            answer = play.call("m", "join_group", version, **fields)
        member, generation = answer["member_id"], answer["generation_id"]
        fields = syncing(group, member, generation, [(member, b"mine")])
        sync_version = min(version, 5)
        if sync_version == 5:
            fields |= {"protocol_type": "consumer", "protocol_name": "range"}
        play.call("m", "sync_group", sync_version, **fields)
        beat = {"group_id": group, "member_id": member, "generation_id": generation}
        play.call("m", "heartbeat", min(version, 4), **beat)
        play.call("m", "describe_groups", min(version, 6), groups=[group])
        play.call("m", "offset_commit", max(2, version), **dict(
            committing(group, 4, topic="j", generation=generation, member_id=member)
        ))  # fmt: skip
        leaving = {"member_id": member} if version < 3 else {"members": [{"member_id": member}]}
        play.call("m", "leave_group", min(version, 5), group_id=group, **leaving)
        play.call("m", "describe_groups", min(version, 6), groups=[group])
    for version in range(6):
        fields = {"states_filter": ["EMPTY", "stable"]} if version >= 4 else {}
        play.call("m", "list_groups", version, **fields)
    play.call("m", "list_groups", 5, types_filter=["Classic"])
    play.call("m", "list_groups", 5, types_filter=["consumer"])
    play.call("m", "list_groups", 5, types_filter=["bogus"], states_filter=["bogus"])
    for version in range(7):
        play.call("m", "describe_groups", version, groups=["nobody", ""])
    play.call("m", "describe_groups", 6, groups=["v5"], include_authorized_operations=True)


def refusals(play):
    play.wait_for_coordinator("r1", "r2", "r3", "r4", "r5", "")
    play.call("m", "join_group", 9, **joining(""))
    play.call("m", "join_group", 9, **joining("r1", "who"))
    play.call("m", "join_group", 9, **joining("r1", session_timeout=99))
    play.call("m", "join_group", 9, **joining("r1", session_timeout=1_800_001))
    play.call("m", "join_group", 9, **joining("r1", protocols=()))
    play.call("m", "join_group", 9, **joining("r2", protocol_type=""))
    # What Kafka tells of a group whose only join was refused is not asked: Empty or Dead, depending
    # on whether other groups wrote to its partition before.
    play.call("m", "sync_group", 5, **syncing("r3", "who", 1), **CONSUMER, protocol_name="range")
    play.call("m", "sync_group", 5, **syncing("r3", "who", 1), **CONSUMER)
    play.call("m", "sync_group", 5, **syncing("", "who", 1), **CONSUMER, protocol_name="range")
    play.call("m", "sync_group", 4, **syncing("r1", "who", 1))
    play.call("m", "heartbeat", 4, group_id="", member_id="who", generation_id=1)
    play.call("m", "heartbeat", 4, group_id="r3", member_id="who", generation_id=1)
    play.call("m", "heartbeat", 4, group_id="r1", member_id="who", generation_id=1)
    for version in range(6):
        who = {"member_id": "who"} if version < 3 else {"members": [{"member_id": "who"}]}
        play.call("m", "leave_group", version, group_id="r3", **who)
        play.call("m", "leave_group", version, group_id="r1", **who)
        play.call("m", "leave_group", version, group_id="", **who)
    play.call("m", "leave_group", 5, group_id="r1", members=[])
    play.call("m", "leave_group", 5, group_id="r3", members=[])
    both = [{"member_id": "", "group_instance_id": "who"}, {"member_id": ""}]
    play.call("m", "leave_group", 5, group_id="r1", members=both)
    play.call("m", "find_coordinator", 3, key="r1", key_type=9)
    play.call("m", "find_coordinator", 6, key_type=9, coordinator_keys=["r1", "r2"])
    play.call("m", "find_coordinator", 6, key_type=0, coordinator_keys=[])
    for version in range(7):
        fields = {"key": "r1"} if version < 4 else {"coordinator_keys": ["r1", ""]}
        play.call("m", "find_coordinator", version, **fields)
    member = play.call("m", "join_group", 9, **joining("r4"))["member_id"]
    play.call("m", "heartbeat", 4, group_id="r4", member_id=member, generation_id=0)
    play.call("m", "offset_commit", 8, **committing("r4", 1, generation=0, member_id=member))
    play.call("m", "sync_group", 4, **syncing("r4", member, 0))
    play.call("m", "leave_group", 5, group_id="r4", members=[{"member_id": member}])
    play.call("m", "join_group", 9, **joining("r4", member))


def two_members(play, group):
    """Bring a group of two to a stable generation 2; return their ids."""
    asked = joining(group, topics=("j",))
    ids = [play.call(name, "join_group", 9, **asked)["member_id"] for name in "ab"]
    play.call("a", "join_group", 9, **joining(group, ids[0], topics=("j",)))
    play.send("b", "join_group", 9, **joining(group, ids[1], topics=("j",)))
    play.is_waiting("b")
    play.send("a", "join_group", 9, **joining(group, ids[0], topics=("j",)))
    generation = play.receive("a")["generation_id"]
    play.receive("b")
    sync_all(play, group, dict(zip("ab", ids, strict=True)), generation)
    return ids, generation


def sync_all(play, group, ids, generation):
    """Let all of a generation sync, its leader (the first) last."""
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    leader, *others = ids
    for name in others:
        play.send(name, "sync_group", 5, **syncing(group, ids[name], generation), **protocol)
        play.is_waiting(name, seconds=0.1)
    assignments = [(member, name.encode()) for name, member in ids.items()]
    asked = syncing(group, ids[leader], generation, assignments)
    play.call(leader, "sync_group", 5, **asked, **protocol)
    for name in others:
        play.receive(name)


def rebalances(play):
    play.wait_for_coordinator("b1")
    (a, b), generation = two_members(play, "b1")

    def beat(name, member, generation=generation):
        play.call(name, "heartbeat", 4, group_id="b1", member_id=member, generation_id=generation)

    def commit(name, member, generation=generation):
        asked = committing("b1", 9, topic="j", generation=generation, member_id=member)
        play.call(name, "offset_commit", 9, **asked)

    beat("a", a)
    beat("a", a, generation - 1)
    beat("a", "who")
    commit("a", a)
    commit("a", a, generation + 1)
    commit("a", "who")
    play.call("a", "offset_commit", 9, **committing("b1", 1, topic="j"))
    play.call("a", "describe_groups", 6, groups=["b1"])
    parts = [{"partition_index": 0}]
    for topic in ("j", "t"):
        asked = [{"name": topic, "partitions": parts}]
        play.call("a", "offset_delete", 0, group_id="b1", topics=asked)
    play.call("a", "delete_groups", 2, groups_names=["b1"])
    play.call("b", "join_group", 9, **joining("b1", b, topics=("j",)))  # Nothing has changed.
    play.call("b", "join_group", 9, **joining("b1", b, protocol_type="connect"))
    play.call("b", "join_group", 9, **joining("b1", b, protocols=("sticky",)))

    # A third one comes.
    c = play.call("c", "join_group", 9, **joining("b1", topics=("j",)))["member_id"]
    beat("a", a)
    play.send("c", "join_group", 9, **joining("b1", c, topics=("j",)))
    play.is_waiting("c")
    beat("a", a)
    commit("a", a)  # Still the old generation's: it may.
    play.call("a", "sync_group", 4, **syncing("b1", a, generation))
    play.call("a", "describe_groups", 6, groups=["b1"])
    play.send("a", "join_group", 9, **joining("b1", a, topics=("j",)))
    play.is_waiting("a")
    play.send("b", "join_group", 9, **joining("b1", b, topics=("j",)))
    for name in "abc":
        generation = play.receive(name)["generation_id"]
    beat("a", a, generation)
    commit("a", a, generation)  # While the assignment is on its way.
    play.call("a", "describe_groups", 6, groups=["b1"])
    play.call("a", "join_group", 9, **joining("b1", a, topics=("j",)))  # Lost the answer.
    play.call("b", "join_group", 9, **joining("b1", b, topics=("j",)))
    play.call("b", "sync_group", 4, **syncing("b1", b, generation - 1))
    wrong = {"protocol_type": "consumer", "protocol_name": "sticky"}
    play.call("b", "sync_group", 5, **syncing("b1", b, generation), **wrong)
    wrong = {"protocol_type": "connect", "protocol_name": "range"}
    play.call("b", "sync_group", 5, **syncing("b1", b, generation), **wrong)
    sync_all(play, "b1", {"a": a, "b": b, "c": c}, generation)
    play.call("a", "sync_group", 4, **syncing("b1", b, generation))  # Again, by anybody.
    commit("a", a, generation)

    # No room for a fourth.
    play.call("d", "join_group", 3, **joining("b1"))
    play.call("d", "join_group", 9, **joining("b1"))

    # One changes what it reads: all join again. One leaves meanwhile.
    play.send("b", "join_group", 9, **joining("b1", b, topics=("j", "t")))
    play.is_waiting("b")
    beat("c", c, generation)
    play.call("c", "leave_group", 5, group_id="b1", members=[{"member_id": c}])
    beat("c", c, generation)
    play.send("a", "join_group", 9, **joining("b1", a, topics=("j",)))
    for name in "ab":
        generation = play.receive(name)["generation_id"]

    # One comes while the others sync: they are told so.
    play.send("b", "sync_group", 4, **syncing("b1", b, generation))
    play.is_waiting("b")
    e = play.call("e", "join_group", 9, **joining("b1", topics=("j",)))["member_id"]
    play.send("e", "join_group", 9, **joining("b1", e, topics=("j",)))
    play.receive("b")
    play.call("a", "sync_group", 4, **syncing("b1", a, generation))
    for name, member in (("a", a), ("b", b)):
        play.send(name, "join_group", 9, **joining("b1", member, topics=("j",)))
    for name in "abe":
        generation = play.receive(name)["generation_id"]
    sync_all(play, "b1", {"a": a, "b": b, "e": e}, generation)

    # All leave at once.
    everybody = [{"member_id": one} for one in (a, b, e, a)]
    play.call("x", "leave_group", 5, group_id="b1", members=everybody)
    beat("a", a, generation)
    play.call("a", "sync_group", 4, **syncing("b1", a, generation))
    play.call("a", "join_group", 9, **joining("b1", a))
    play.call("a", "offset_fetch", 8, **all_of("b1"))
    play.call("a", "offset_commit", 9, **committing("b1", 2, topic="j"))
    play.call("a", "delete_groups", 2, groups_names=["b1"])
    play.call("a", "describe_groups", 6, groups=["b1"])


def sessions(play):
    play.wait_for_coordinator("s1")
    short = {"session_timeout": 700, "rebalance_timeout": 1500}
    a = play.call("a", "join_group", 9, **joining("s1", **short))["member_id"]
    play.call("a", "join_group", 9, **joining("s1", a, **short))
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    play.call("a", "sync_group", 5, **syncing("s1", a, 1, [(a, b"A")]), **protocol)

    # A second one joins; the first is silent, and dropped.
    b = play.call("b", "join_group", 9, **joining("s1"))["member_id"]
    play.send("b", "join_group", 9, **joining("s1", b))
    play.receive("b")
    play.call("a", "heartbeat", 4, group_id="s1", member_id=a, generation_id=1)
    asked = syncing("s1", b, 2, [(b, b"B")])
    play.call("b", "sync_group", 5, **asked, **protocol)
    play.call("b", "describe_groups", 6, groups=["s1"])

    # An id is given out, and nobody comes for it: it does not hold the others up for long.
    play.call("c", "join_group", 9, **joining("s1", **short))
    play.send("b", "join_group", 9, **joining("s1", b))
    play.receive("b")


def static_members(play):
    play.wait_for_coordinator("i1", "i2")
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}

    def join(name, instance, member_id="", *, version=9, wait=True, **fields):
        asked = joining("i1", member_id, instance=instance, topics=("j",), **fields)
        play.send(name, "join_group", version, **asked)
        return play.receive(name) if wait else None

    def sync(name, member, generation, assignments=(), instance=None):
        asked = syncing("i1", member, generation, assignments, group_instance_id=instance)
        play.call(name, "sync_group", 5, **asked, **protocol)

    def beat(name, member, generation, instance=None):
        play.call(
            name, "heartbeat", 4, group_id="i1", member_id=member, generation_id=generation,
            group_instance_id=instance,
        )  # fmt: skip

    a = join("a", "ia")["member_id"]
    sync("a", a, 1, [(a, b"A")], "ia")
    join("b", "ib", wait=False)
    play.is_waiting("b")
    beat("a", a, 1, "ia")
    join("a", "ia", a, wait=False)
    play.receive("a")
    b = play.receive("b")["member_id"]
    play.send("b", "sync_group", 5, **syncing("i1", b, 2, group_instance_id="ib"), **protocol)
    sync("a", a, 2, [(a, b"A"), (b, b"B")], "ia")
    play.receive("b")
    play.call("a", "describe_groups", 6, groups=["i1"])
    beat("a", a, 2, "ia")
    beat("a", a, 2)
    beat("a", a, 2, "who")
    beat("a", a, 2, "ib")

    # The follower restarts: no rebalance, the old id is fenced.
    play.drop("b")
    b2 = join("b", "ib")["member_id"]
    beat("b", b, 2, "ib")
    beat("b", b, 2)
    beat("b", b2, 2, "ib")
    sync("b", b2, 2, instance="ib")
    sync("b", b, 2, instance="ib")
    asked = committing("i1", 1, topic="j", generation=2, member_id=b)
    play.call("b", "offset_commit", 9, **asked, group_instance_id="ib")
    asked["member_id"] = b2
    play.call("b", "offset_commit", 9, **asked, group_instance_id="ib")
    play.call("b", "offset_commit", 9, **asked, group_instance_id="who")
    join("b", "ib", b)
    old = [{"member_id": b, "group_instance_id": "ib"}]
    play.call("b", "leave_group", 5, group_id="i1", members=old)

    # The leader restarts: with v9 it is told to skip the assignment, before that it is a follower.
    play.drop("a")
    a2 = join("a", "ia")["member_id"]
    sync("a", a2, 2, instance="ia")
    play.drop("a")
    a3 = join("a", "ia", version=8)["member_id"]
    sync("a", a3, 2, instance="ia")
    play.call("a", "describe_groups", 6, groups=["i1"])

    # Two leave by their names.
    names = [{"member_id": "", "group_instance_id": one} for one in ("ia", "ib", "who")]
    play.call("x", "leave_group", 5, group_id="i1", members=names)
    play.call("x", "describe_groups", 6, groups=["i1"])

    # Odd names.
    play.call("y", "join_group", 9, **joining("i2", instance=""))
    play.call("z", "describe_groups", 6, groups=["i2"])


def hostile_names(play):
    """Names that are paths, blank, long or no names at all, in every place that has one."""
    play.create_topic("h", 1)
    names = ["../x", "a/b\x00", " ", "é" * 9, "%s{}$(id)", "x" * 20_000]
    play.wait_for_coordinator("h1", "h2", *names)
    for name in names:
        play.call("m", "find_coordinator", 6, key_type=0, coordinator_keys=[name])
        # As a group: a whole member's life.
        member = play.call("m", "join_group", 9, **joining(name))["member_id"]
        play.call("m", "join_group", 9, **joining(name, member))
        play.call("m", "sync_group", 4, **syncing(name, member, 1, [(member, b"mine")]))
        play.call("m", "heartbeat", 4, group_id=name, member_id=member, generation_id=1)
        play.call("m", "describe_groups", 6, groups=[name])
        play.call("m", "leave_group", 5, group_id=name, members=[{"member_id": member}])
        play.call("m", "delete_groups", 2, groups_names=[name])
        # As a member's id.
        play.call("m", "join_group", 9, **joining("h1", name))
        play.call("m", "sync_group", 4, **syncing("h1", name, 1))
        play.call("m", "heartbeat", 4, group_id="h1", member_id=name, generation_id=1)
        asked = committing("h1", 3, topic="h", generation=1, member_id=name)
        play.call("m", "offset_commit", 9, **asked)
        play.call("m", "leave_group", 5, group_id="h1", members=[{"member_id": name}])
        # As an instance's id, a protocol's name and type, and a reason.
        play.call("m", "join_group", 9, **joining("h1", instance=name))
        left = [{"member_id": "", "group_instance_id": name, "reason": name}]
        play.call("m", "leave_group", 5, group_id="h1", members=left)
        asked = joining("h1", protocols=(name,), protocol_type=name, reason=name)
        member = play.call("m", "join_group", 9, **asked)["member_id"]
        play.call("m", "join_group", 9, **asked | {"member_id": member})
        play.call("m", "describe_groups", 6, groups=["h1"])
        play.call("m", "leave_group", 5, group_id="h1", members=[{"member_id": member}])
    # Numbers that make no sense, and assignments for nobody, for one twice, and for none.
    member = play.call("m", "join_group", 9, **joining("h2"))["member_id"]
    play.call("m", "join_group", 9, **joining("h2", member))
    for generation in (-(2**31), -1, 0, 2, 2**31 - 1):
        play.call("m", "heartbeat", 4, group_id="h2", member_id=member, generation_id=generation)
        play.call("m", "sync_group", 4, **syncing("h2", member, generation))
        asked = committing("h2", 3, topic="h", generation=generation, member_id=member)
        play.call("m", "offset_commit", 9, **asked)
    strange = [("who", b"a"), (member, b"b"), (member, b"c"), ("", b"d")]
    play.call("m", "sync_group", 4, **syncing("h2", member, 1, strange))
    play.call("m", "describe_groups", 6, groups=["h2"])
    for timeout in (-(2**31), -1, 0, 2**31 - 1):
        play.call("m", "join_group", 9, **joining("h2", session_timeout=timeout))
    play.call("m", "heartbeat", 4, group_id="h2", member_id=member, generation_id=1)
    play.call("m", "leave_group", 5, group_id="h2", members=[{"member_id": member}] * 3)


SCRIPTS = [
    hostile_names,
    committed_offsets,
    deleting,
    first_member,
    refusals,
    rebalances,
    sessions,
    static_members,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_answers_are_kafkas(brokers, script):
    from tools.differential import compare

    count, differences = compare(script, *brokers)
    COUNTED[script.__name__] = count
    assert not differences, "\n".join(differences)


def test_so_many_steps_were_compared():
    if len(COUNTED) < len(SCRIPTS):
        pytest.skip("not all scripts ran in this process")
    assert sum(COUNTED.values()) >= STEPS_MIN, COUNTED
