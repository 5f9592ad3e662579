"""Groups of both protocols at once, Ottla and a live Apache Kafka: same answers, same records.

Groups turn classic here when everybody has what it is to have: what Ottla does otherwise is told
in docs/compatibility.md.
"""

import struct
import uuid

import pytest

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


def text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def partitions_of(owned):
    parts = [struct.pack(">i", len(owned))]
    for topic, numbers in owned.items():
        parts += [text(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


def subscription(topics, owned=None, *, version=1, generation=-1, rack=None):
    """What a consumer says in JoinGroup."""
    parts = [struct.pack(">hi", version, len(topics)), *map(text, topics), struct.pack(">i", -1)]
    if version >= 1:
        parts.append(partitions_of(owned or {}))
    if version >= 2:
        parts.append(struct.pack(">i", generation))
    if version >= 3:
        parts.append(struct.pack(">h", -1) if rack is None else text(rack))
    return b"".join(parts)


def assignment(owned, version=1):
    """What a leader gives in SyncGroup."""
    return struct.pack(">h", version) + partitions_of(owned) + struct.pack(">i", -1)


class Mixed:
    """Short words for what members of either protocol send. Classic ones have connections."""

    def __init__(self, play, group, topics):
        self.play, self.group, self.topics = play, group, list(topics)
        self.counts = topics
        self.ids = {name: play.create_topic(name, count) for name, count in topics.items()}
        play.wait_for_coordinator(group)
        self.members = {}

    # The classic protocol.

    def ask_join(self, name, member_id=None, *, version=9, subscribed=None, **fields):
        names = fields.pop("names", ("range",))
        data = subscription(self.topics) if subscribed is None else subscribed
        asked = {
            "group_id": self.group,
            "session_timeout": 30_000,
            "rebalance_timeout": 60_000,
            "member_id": self.members.get(name, ("", 0))[0] if member_id is None else member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": one, "metadata": data} for one in names],
        } | fields
        self.play.send(name, "join_group", version, **asked)

    def joined(self, name):
        answer = self.play.receive(name)
        self.members[name] = (answer["member_id"], answer["generation_id"])
        return answer

    def join(self, name, member_id=None, **fields):
        self.ask_join(name, member_id, **fields)
        return self.joined(name)

    def come(self, name, **fields):
        """Join with the id that the first JoinGroup gives."""
        self.join(name, **fields)
        return self.join(name, **fields)

    def ask_sync(self, name, given=None, *, generation=None, version=5, **fields):
        member_id, known = self.members[name]
        asked = {
            "group_id": self.group,
            "generation_id": known if generation is None else generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                {"member_id": self.members[one][0], "assignment": data}
                for one, data in (given or {}).items()
            ],
        } | fields
        self.play.send(name, "sync_group", version, **asked)

    def sync(self, name, given=None, **fields):
        self.ask_sync(name, given, **fields)
        return self.play.receive(name)

    def classic_beat(self, name, generation=None, **fields):
        member_id, known = self.members[name]
        asked = {
            "group_id": self.group,
            "member_id": member_id,
            "generation_id": known if generation is None else generation,
        } | fields
        return self.play.call(name, "heartbeat", 4, **asked)

    def classic_leave(self, *members, version=5):
        self.play.call("c", "leave_group", version, group_id=self.group, members=list(members))

    def stable(self, name="k1", **fields):
        """A classic group of one member that has everything."""
        self.come(name, **fields)
        everything = {topic: list(range(count)) for topic, count in self.counts.items()}
        self.sync(name, {name: assignment(everything)})

    # The consumer protocol.

    def beat(self, member, epoch, *, owned=None, **fields):
        if owned is not None:
            given = {self.topics[0]: owned} if isinstance(owned, list) else owned
            fields["topic_partitions"] = [
                {"topic_id": self.ids[topic], "partitions": numbers}
                for topic, numbers in given.items()
                if numbers
            ]
        fields.setdefault("topic_partitions", None)
        fields.setdefault("subscribed_topic_names", None)
        self.play.call(
            "c",
            "consumer_group_heartbeat",
            1,
            group_id=self.group,
            member_id=member,
            member_epoch=epoch,
            **fields,
        )
        self.look()

    def subscribe(self, member, **fields):
        asked = {
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": self.topics,
            "topic_partitions": [],
        } | fields
        self.beat(member, 0, **asked)

    # Both.

    def look(self):
        """Describe the group in either way."""
        self.play.call("c", "consumer_group_describe", 1, group_ids=[self.group])
        self.play.call("c", "describe_groups", 6, groups=[self.group])

    def commit(self, name, generation, version=9, **fields):
        member_id = self.members[name][0] if name in self.members else name
        part = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
        asked = {
            "group_id": self.group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "topics": [{"name": self.topics[0], "partitions": [part]}],
        } | fields
        self.play.call("c", "offset_commit", version, **asked)

    def fetch(self, name, epoch):
        member_id = self.members[name][0] if name in self.members else name
        topics = [{"name": self.topics[0], "partition_indexes": [0]}]
        asked = {"group_id": self.group, "topics": topics}
        asked |= {"member_id": member_id, "member_epoch": epoch}
        self.play.call("c", "offset_fetch", 9, groups=[asked])

    def records(self):
        """Compare what stands in the log of the group: batch by batch, when all is there."""
        asked = [{"group_id": self.group, "topics": []}]
        self.play.prepare("offset_fetch", 8, groups=asked, require_stable=True)
        for batch in batches_of(self.play, self.group):
            self.play.note("c", "records", batch)


def batches_of(play, group):
    """The records of a group, as values, batch by batch, in the order in which they stand."""
    from ottla.coordinator.records import decode_slice

    connection = play.connection("prepare")
    offset, batches = 0, []
    while True:
        fetched = connection.fetch(
            "__consumer_offsets", offset=offset, partition_max_bytes=1 << 20, max_wait=0
        )
        data = bytes(fetched["records"] or b"")
        if not data:
            return batches
        while data:
            end = 12 + int.from_bytes(data[8:12], "big")
            piece, data = decode_slice(data[:end]), data[end:]
            offset = piece.next_offset
            found = [plain for one in piece.entries if (plain := record_of(one, group))]
            # Kafka goes through members and targets in the order of a hash map.
            batches += [sorted(found, key=lambda one: one[0])] if found else []


def record_of(stored, group):
    """What a record says; nothing if it is of another group, or another kind of thing."""
    from ottla.coordinator.group import records, tables
    from ottla.coordinator.group.consumer import tables as consumer_tables

    member = consumer_tables.ConsumerGroupMemberKey
    kinds = {
        2: (tables.GroupMetadataKey, tables.GroupMetadataValue),
        3: (consumer_tables.ConsumerGroupKey, consumer_tables.GroupValue),
        5: (member, consumer_tables.MemberValue),
        6: (consumer_tables.ConsumerGroupKey, consumer_tables.TargetEpochValue),
        7: (member, consumer_tables.TargetMemberValue),
        8: (member, consumer_tables.CurrentMemberValue),
    }
    kind = records.key_type(stored)
    if kind not in kinds:
        return None
    key_table, value_table = kinds[kind]
    key, _ = key_table.decoder(2 * (kind == 2))(memoryview(stored.key), 2, len(stored.key))
    if key.group != group:
        return None
    if stored.value is None:
        return kind, getattr(key, "name", ""), None
    version = int.from_bytes(stored.value[:2], "big")
    value, end = value_table.decoder(version)(memoryview(stored.value), 2, len(stored.value))
    assert end == len(stored.value)
    return kind, getattr(key, "name", ""), version, fields_of(value)


def fields_of(value):
    if isinstance(value, list):
        return [fields_of(one) for one in value]
    if hasattr(value, "FIELDS"):
        # The leader is whom a hash map has first.
        left_out = {"current_state_timestamp", "assignment_timestamp", "metadata_hash", "leader"}
        kept = {name: getattr(value, name) for name in value.FIELDS if name not in left_out}
        if "topic_id" in kept:
            kept["topic_id"] = uuid.UUID(bytes=kept["topic_id"])
        return {name: fields_of(one) for name, one in kept.items()}
    return value


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
