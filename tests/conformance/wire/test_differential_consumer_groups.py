"""KIP-848 group requests to Ottla and a live Apache Kafka: the same answers, field by field."""

import time

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]

OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.max.size": 3,
}


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


class Members:
    """Short words for what the members of one group send."""

    def __init__(self, play, group, topic_id=None, names=("nobody",)):
        self.play, self.group, self.topic_id, self.names = play, group, topic_id, list(names)
        if "nobody" not in self.names:
            play.wait_for_topics(group, *self.names)

    def beat(self, member, epoch, version=1, *, owned=None, **fields):
        if owned is not None:
            fields["topic_partitions"] = [{"topic_id": self.topic_id, "partitions": owned}]
        fields.setdefault("topic_partitions", None)
        fields.setdefault("subscribed_topic_names", None)
        self.play.call(
            "c",
            "consumer_group_heartbeat",
            version,
            group_id=self.group,
            member_id=member,
            member_epoch=epoch,
            **fields,
        )
        self.play.call("c", "consumer_group_describe", 1, group_ids=[self.group])

    def join(self, member, version=1, **fields):
        asked = {
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": self.names,
            "topic_partitions": [],
        } | fields
        self.beat(member, 0, version, **asked)

    def commit(self, member, epoch, version=9, index=0, instance=None):
        part = {"partition_index": index, "committed_offset": 3, "committed_metadata": ""}
        self.play.call(
            "c",
            "offset_commit",
            version,
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            group_instance_id=instance,
            topics=[{"name": self.names[0], "partitions": [part]}],
        )

    def fetch(self, member, epoch):
        topics = [{"name": self.names[0], "partition_indexes": [0]}]
        asked = {"group_id": self.group, "topics": topics}
        asked |= {"member_id": member, "member_epoch": epoch}
        self.play.call("c", "offset_fetch", 9, groups=[asked])


def refusals(play):
    play.create_topic("tr", 4)
    play.wait_for_coordinator("r", "")
    for group in ("", " "):
        Members(play, group).join("m")
    g = Members(play, "r", None, ["tr"])
    g.join("")
    g.join("m", rebalance_timeout=-1)
    g.join("m", topic_partitions=None)
    g.join("m", subscribed_topic_names=None)
    g.join("m", instance_id="")
    g.join("m", rack_id=" ")
    for assignor in ("nope", ""):
        g.join("m", server_assignor=assignor)
    for pattern in ("(", "[a", "a**", "a{1001}", "(?=a)", r"\1", "[b-a]"):
        g.join("m", subscribed_topic_names=None, subscribed_topic_regex=pattern)
    for epoch in (-3, -2, -1, 5):
        g.beat("m", epoch)
    g.beat("", 5)
    g.beat("", -1)
    g.beat("m", -2, instance_id="i")
    g.beat("m", -1, instance_id="i")
    play.call("c", "consumer_group_describe", 0, group_ids=["r", "nobody"])
    for version in (5, 6):
        play.call("c", "describe_groups", version, groups=["r"])


def reconciliation(play):
    topic_id = play.create_topic("two", 4)
    play.wait_for_coordinator("g")
    g = Members(play, "g", topic_id, ["two"])
    g.join("m1")
    g.beat("m1", 2)
    g.beat("m1", 2, owned=[0, 1, 2, 3])
    g.beat("who", 2)
    g.beat("m1", 1)
    g.beat("m1", 3)
    g.join("m2")
    g.beat("m1", 2)  # It has not said that it has given anything up.
    g.beat("m1", 2, owned=[0, 1, 2, 3])
    g.beat("m2", 3)
    g.beat("m1", 2, owned=[0, 1, 2])
    g.beat("m1", 2, owned=[0, 1])
    g.beat("m1", 2, owned=[0, 1])  # It missed the answer.
    g.beat("m1", 2, owned=[2])
    g.beat("m1", 2)
    g.beat("m2", 3)
    g.beat("m2", 3, owned=[2, 3])
    g.join("m3")
    g.join("m4")  # There is no room.
    g.beat("m2", 3, owned=[2, 3])
    g.beat("m2", 3, owned=[2])
    g.beat("m3", 4)
    g.beat("m1", 3, owned=[0, 1])
    g.join("m1")  # It begins anew, and has what it had.
    g.beat("m3", -1)
    play.call("c", "list_groups", 5, types_filter=["consumer"], states_filter=[])
    g.beat("m1", 4, owned=[0, 1])
    g.beat("m2", 4, owned=[2])
    play.call("c", "delete_groups", 2, groups_names=["g"])
    g.beat("m1", -1)
    g.beat("m2", -1)
    play.call("c", "list_groups", 5, types_filter=[], states_filter=["empty"])
    play.call("c", "delete_groups", 2, groups_names=["g"])
    g.beat("m2", 5)


def offsets(play):
    topic_id = play.create_topic("to", 4)
    play.wait_for_coordinator("o")
    g = Members(play, "o", topic_id, ["to"])
    g.commit("", -1)
    g.join("m1")
    for epoch in (2, 1, 3, 0, -1):
        g.commit("m1", epoch)
        g.fetch("m1", epoch)
    g.commit("m1", 2, version=8)
    g.commit("", -1)
    g.commit("who", 2)
    g.fetch("who", 2)
    g.fetch(None, -1)
    g.fetch("", -1)
    g.join("m2")
    g.beat("m1", 2, owned=[0, 1, 2, 3])
    g.commit("m1", 2, index=3)  # It may commit what it is giving up.
    g.beat("m1", 2, owned=[0, 1])
    for epoch in (1, 2, 3, 4):
        g.commit("m1", epoch)
        g.commit("m1", epoch, index=3)
    deleted = [{"name": "to", "partitions": [{"partition_index": 0}]}]
    play.call("c", "offset_delete", 0, group_id="o", topics=deleted)
    g.beat("m1", -1)
    g.beat("m2", -1)
    g.commit("", -1)
    play.call("c", "offset_delete", 0, group_id="o", topics=deleted)
    play.call("c", "delete_groups", 2, groups_names=["o"])
    g.fetch(None, -1)


def static_members(play):
    topic_id = play.create_topic("ts", 4)
    play.wait_for_coordinator("s")
    g = Members(play, "s", topic_id, ["ts"])
    g.join("s1", instance_id="i1")
    g.join("s2", instance_id="i1")
    g.beat("s1", 2, instance_id="i2")
    g.beat("s2", 2, instance_id="i1")
    g.beat("s1", 2)
    g.beat("s1", -2, instance_id="i1")
    g.beat("s1", 2, instance_id="i1")
    g.join("s2", instance_id="i1")
    g.beat("s1", 2, instance_id="i1")
    g.beat("s1", -1, instance_id="i1")
    g.commit("s1", 2, instance="i1")
    g.commit("s2", 2, instance="i1")
    g.join("s3", instance_id="i3")
    g.beat("s2", 2, owned=[0, 1, 2, 3], instance_id="i1")
    g.beat("s2", -2, instance_id="i1")
    g.join("s2", instance_id="i1")
    leaving = [{"member_id": "s2"}, {"member_id": "who"}]
    play.call("c", "leave_group", 5, group_id="s", members=leaving)
    g.beat("s3", -1, instance_id="i3")


def subscriptions(play):
    topic_id = play.create_topic("tu", 4)
    play.create_topic("u", 2)
    play.wait_for_coordinator("u")
    play.wait_for_topics("u", "tu", "u")
    g = Members(play, "u", topic_id, ["nobody"])
    g.join("m1")
    g.beat("m1", 2, subscribed_topic_names=["tu"])
    g.beat("m1", 3, owned=[0, 1, 2, 3], subscribed_topic_names=["u", "tu"])
    g.beat("m1", 4, owned=[0, 1, 2, 3], subscribed_topic_names=["tu", "u"])
    g.beat("m1", 4, owned=[0, 1, 2, 3], rack_id="r", server_assignor="range")
    g.join("m2", subscribed_topic_names=["tu"], server_assignor="range")
    g.beat("m1", 4, owned=[0, 1])
    play.prepare(
        "create_partitions",
        3,
        topics=[{"name": "u", "count": 3, "assignments": None}],
        timeout=10_000,
        validate_only=False,
    )


def classic_and_consumer(play):
    play.create_topic("tx", 4)
    play.wait_for_coordinator("x")
    g = Members(play, "x", None, ["tx"])
    g.join("m1")
    other = [{"name": "range", "metadata": b""}]
    asked = {"group_id": "x", "session_timeout": 10_000, "rebalance_timeout": 10_000}
    asked |= {"member_id": "", "protocol_type": "other", "protocols": other}
    play.call("c", "join_group", 9, **asked)
    play.call("c", "heartbeat", 4, group_id="x", member_id="m1", generation_id=2)
    play.call("c", "describe_groups", 6, groups=["x"])
    g.beat("m1", -1)
    g.commit("", -1)
    g.join("m2")


def heartbeats_under_way(play):
    """What a member says that it does not own (yet) is another's at once."""
    topic_id = play.create_topic("tw", 4)
    play.wait_for_coordinator("w")
    g = Members(play, "w", topic_id, ["tw"])
    g.join("m1")
    g.join("m2")
    g.beat("m1", 2, owned=[])
    g.beat("m2", 3, owned=[])
    g.beat("m1", 3, owned=[0, 1])
    for epoch in (2, 3):
        for index in range(4):
            g.commit("m1", epoch, index=index)
    g.beat("m1", -1)
    g.beat("m2", -1)


def hostile_names(play):
    """Names that are paths, long or no names at all, and odd numbers."""
    topic_id = play.create_topic("th", 2)
    names = ["../x", "a/b\x00", "é" * 9, "%s{}$(id)", "x" * 20_000]
    play.wait_for_coordinator("h", *names)
    for name in names:
        g = Members(play, name, topic_id, ["th"])
        g.join("m")
        g.beat("m", -1)
        play.call("c", "delete_groups", 2, groups_names=[name])
    g = Members(play, "h", topic_id, ["th"])
    for name in names:
        g.join(name)
        g.commit(name, 2)
        g.beat(name, -1)
        g.join("m", instance_id=name, rack_id=name)
        g.beat("m", -1, instance_id=name)
        g.join("m", subscribed_topic_names=[name, name, "", ".", "th"])
        g.beat("m", -1)
        g.join("m", server_assignor=name)
    g.join("m")
    epoch = play.prepare("consumer_group_describe", 1, group_ids=["h"])["groups"][0]["group_epoch"]
    for owned in ([0, 0, 0], [-1], [2**31 - 1], [7], list(range(10_000))):
        g.beat("m", epoch, owned=owned)
    unknown = [{"topic_id": play.create_topic("tg", 1), "partitions": [0]}] * 3
    g.beat("m", epoch, topic_partitions=unknown)
    for timeout in (-(2**31), -2, 0, 2**31 - 1):
        g.beat("m", epoch, owned=[0, 1], rebalance_timeout=timeout)
    for far in (-(2**31), epoch - 1, epoch + 1, 2**31 - 1):
        g.beat("m", far)
        g.commit("m", far)
        g.fetch("m", far)
    g.beat("m", epoch, owned=[0, 1])
    g.beat("m", -1)


GROUP = 32
OWN = 8  # DYNAMIC_GROUP_CONFIG
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"


class GroupConfigs:
    """Short words for what admin clients do to the configs of groups."""

    def __init__(self, play):
        self.play = play

    def describe(self, name, *keys, synonyms=True):
        """Those of consumer groups: share and streams groups have theirs in Kafka."""
        keys = list(keys) or [SESSION, HEARTBEAT, INTERVAL]
        asked = {"resource_type": GROUP, "resource_name": name, "configuration_keys": keys}
        self.play.call(
            "c",
            "describe_configs",
            4,
            resources=[asked],
            include_synonyms=synonyms,
            include_documentation=False,
        )

    def set(self, name, *changes, validate=False, operation=0):
        configs = [
            {"name": key, "config_operation": operation, "value": value} for key, value in changes
        ]
        asked = {"resource_type": GROUP, "resource_name": name, "configs": configs}
        answer = self.play.call(
            "c", "incremental_alter_configs", 1, resources=[asked], validate_only=validate
        )
        if not validate and operation in {0, 1} and answer["responses"][0]["error_code"] == 0:
            self._wait_for(
                name, dict(changes) if operation == 0 else {key: None for key, _ in changes}
            )

    def replace(self, name, *changes):
        configs = [{"name": key, "value": value} for key, value in changes]
        asked = {"resource_type": GROUP, "resource_name": name, "configs": configs}
        answer = self.play.call("c", "alter_configs", 2, resources=[asked], validate_only=False)
        if answer["responses"][0]["error_code"] == 0:
            self._wait_for(name, {SESSION: None, HEARTBEAT: None, INTERVAL: None, **dict(changes)})

    def _wait_for(self, name, wanted):
        """Wait until the broker tells what was altered: Kafka's answers before it knows itself."""
        asked = {"resource_type": GROUP, "resource_name": name, "configuration_keys": None}
        deadline = time.monotonic() + 20
        while True:
            found = self.play.prepare(
                "describe_configs",
                4,
                resources=[asked],
                include_synonyms=False,
                include_documentation=False,
            )
            configs = found["results"][0]["configs"]
            own = {one["name"]: one["value"] for one in configs if one["config_source"] == OWN}
            if all(own.get(key) == value for key, value in wanted.items()):
                return
            assert time.monotonic() < deadline, (wanted, own)
            time.sleep(0.01)

    def listed(self):
        self.play.call("c", "list_config_resources", 1, resource_types=[GROUP])


def group_configs(play):
    play.create_topic("gc", 2)
    play.wait_for_coordinator("gc")
    c = GroupConfigs(play)
    c.listed()
    for name in ("gc", "", " ", "x" * 300):
        c.describe(name)
    c.describe("gc", SESSION, "nope", synonyms=False)
    for key, values in {
        SESSION: ("50000", "1", "44999", "45000", "60001", "x", "", None),
        HEARTBEAT: ("5000", "4999", "15001", "60000", "0"),
        INTERVAL: ("0", "-1", "15001", "15000"),
        "nope": ("1",),
    }.items():
        for value in values:
            c.set("gc", (key, value), validate=True)
            c.set("gc", (key, value))
            c.describe("gc")
    c.listed()
    c.set("gc", (SESSION, None), operation=1)
    c.set("gc", ("nope", None), operation=1)
    for operation in (2, 3):
        c.set("gc", (HEARTBEAT, "6000"), operation=operation)
    c.set("gc", (SESSION, "50000"), (SESSION, "51000"))
    c.set("gc", (SESSION, "45000"), (HEARTBEAT, "15000"))
    c.set("", (SESSION, "50000"))
    c.describe("gc")
    c.replace("gc", (SESSION, "55000"))
    c.describe("gc")
    for changes in ([("nope", "1")], [(SESSION, None)], [(SESSION, "1")]):
        c.replace("gc", *changes)
    c.replace("", (SESSION, "55000"))
    c.replace("gc")
    c.describe("gc")
    c.listed()

    g = Members(play, "gc", None, ["gc"])
    c.set("gc", (HEARTBEAT, "7000"))
    g.join("m")
    c.set("gc", (HEARTBEAT, "8000"))
    g.beat("m", 2)
    c.set("gc", (HEARTBEAT, None), operation=1)
    g.beat("m", 2)
    c.set("gc", (SESSION, "50000"))
    g.beat("m", -1)
    play.call("c", "delete_groups", 2, groups_names=["gc"])
    c.listed()


SCRIPTS = [
    group_configs,
    heartbeats_under_way,
    hostile_names,
    refusals,
    reconciliation,
    offsets,
    static_members,
    subscriptions,
    classic_and_consumer,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_answers_are_kafkas(brokers, script):
    from tools.differential import compare

    count, differences = compare(script, *brokers)
    assert count >= 10
    assert not differences, "\n".join(differences)
