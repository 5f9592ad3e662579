"""Changing configs over a store in memory: what is merged, refused, and what a race leaves."""

import asyncio

import pytest

from ottla.cluster.configs import (
    CHANGES_MAX,
    KEPT_MAX,
    Alteration,
    ConfigChange,
    Configs,
    Operation,
    ResourceType,
    broker_config_in_force,
    merge,
)
from ottla.config.broker import MESSAGE_MAX_BYTES, NUM_PARTITIONS
from ottla.config.files import broker_config
from ottla.config.log import LOG_CLEANUP_POLICY
from ottla.config.option import Source
from ottla.config.quota import accept_rates_of
from ottla.config.topic import stored_topic_config, topic_config
from ottla.errors import ErrorCode
from ottla.ids import NodeId, TopicId
from ottla.metadata.contests import PATIENCE_SECONDS
from ottla.metadata.keys import ConfigType
from ottla.metadata.store import VALUE_BYTES_MAX, Ambiguous, Delete, Put, Unavailable
from ottla.metadata.values import TopicValue, encode_config, encode_topic
from ottla.pending import outcome_of

SET, DELETE, APPEND, SUBTRACT = Operation
TOPIC_ID = TopicId(b"t" * 16)
GROUPS_MAX = 3


def alteration(*changes, kind=ResourceType.TOPIC, name="t", replaces=False):
    return Alteration(kind, name, [ConfigChange(*change) for change in changes], replaces)


@pytest.fixture
async def configs(following):
    """Of node 1; the topic ``t`` exists."""
    static = broker_config({})
    key = following.keys.topic("t")
    revision = await following.store.commit([], [Put(key, encode_topic(TopicValue(TOPIC_ID, 1)))])
    await following.follower.reached(revision)
    return Configs(
        store=following.store,
        keys=following.keys,
        follower=following.follower,
        node_id=NodeId(1),
        broker_config=lambda: static,
        check_topic_config=lambda given: topic_config(given, static),
        groups_max=GROUPS_MAX,
    )


@pytest.fixture
def alter(configs):
    """Ask for one change; give its code, None for success."""

    async def alter(*changes, validate_only=False, **resource):
        finished = asyncio.get_running_loop().create_future()
        pending = configs.alter([alteration(*changes, **resource)], validate_only=validate_only)
        pending.on_done(finished.set_result)
        async with asyncio.timeout(5):
            await finished
        (outcome,) = pending.value
        return None if outcome is None else outcome.code

    return alter


@pytest.fixture
def given(following):
    return lambda: dict(following.image.config(ConfigType.TOPIC, "t"))


# Merging.


@pytest.mark.parametrize(
    ("present", "change", "merged"),
    [
        ({}, (SET, "compact"), "compact"),
        ({"cleanup.policy": "compact"}, (DELETE, None), None),
        ({}, (APPEND, "compact"), "delete,compact"),
        ({"cleanup.policy": ""}, (APPEND, "compact"), "compact"),
        ({"cleanup.policy": "compact, delete"}, (APPEND, "delete"), "compact,delete"),
        ({"cleanup.policy": "compact,delete"}, (SUBTRACT, " delete,x"), "compact"),
        ({}, (SUBTRACT, "delete"), ""),
    ],
)
def test_merge_of_one_key(present, change, merged):
    defaults = stored_topic_config({}, broker_config({}))
    texts = merge(present, alteration(("cleanup.policy", *change)), defaults)
    assert texts.get("cleanup.policy") == merged


def test_a_long_list_is_merged_in_no_time():
    parts = ",".join(f"{number}:1" for number in range(200_000))
    key = "leader.replication.throttled.replicas"
    defaults = stored_topic_config({}, broker_config({}))
    texts = merge({key: parts}, alteration((key, SUBTRACT, parts)), defaults)
    assert texts[key] == ""  # A quadratic merge would take minutes.


# Committing.


async def test_a_change_is_in_the_image_when_the_answer_comes(alter, given):
    assert await alter(("segment.ms", SET, "1"), ("flush.ms", SET, "2")) is None
    assert given() == {"segment.ms": "1", "flush.ms": "2"}
    assert await alter(("flush.ms", SET, "3"), replaces=True) is None
    assert given() == {"flush.ms": "3"}


@pytest.mark.parametrize(
    ("key", "tells"),
    [
        ("listener.name.out.ssl.keystore.location", True),
        ("ssl.truststore.location", True),
        ("num.partitions", False),
    ],
)
async def test_who_would_alter_certificates_is_told_how_they_are_renewed(configs, key, tells):
    change = alteration((key, SET, "7"), kind=ResourceType.BROKER, name="1")
    (outcome,) = await outcome_of(configs.alter([change]))
    assert outcome.code is ErrorCode.INVALID_REQUEST
    assert outcome.why.startswith(f"Cannot update these configs dynamically: [{key}]")
    assert ("ottla.ssl.reload.interval.ms" in outcome.why) == tells


async def test_no_change_and_no_configs_leave_nothing_behind(alter, given, following):
    assert await alter(("segment.ms", SET, "1")) is None
    revision = following.image.revision
    assert await alter(("segment.ms", SET, "1")) is None
    assert following.image.revision == revision
    assert await alter(("segment.ms", DELETE, None)) is None
    assert await following.store.get(following.keys.config(ConfigType.TOPIC, "t")) is None


async def test_a_change_beside_ours_is_not_lost(alter, given, following):
    async def meanwhile(commit):
        key = following.keys.config(ConfigType.TOPIC, "t")
        await commit([], [Put(key, encode_config({"flush.ms": "9"}))])

    following.store.before = meanwhile
    assert await alter(("segment.ms", SET, "1")) is None
    assert given() == {"flush.ms": "9", "segment.ms": "1"}


async def test_what_another_node_has_altered_alike_is_shown_here_when_the_answer_comes(
    alter, given, following, monkeypatch
):
    """Its administrator asks again by way of this node, which has not heard of it yet."""
    apply, held = following.follower.mirror._apply, []
    monkeypatch.setattr(following.follower.mirror, "_apply", held.append)
    key = following.keys.config(ConfigType.TOPIC, "t")
    await following.store.commit([], [Put(key, encode_config({"segment.ms": "1000"}))])

    async def catch_up():
        for change_set in held:
            apply(change_set)

    monkeypatch.setattr(following.follower, "catch_up", catch_up)
    assert await alter(("segment.ms", SET, "1000")) is None
    assert given() == {"segment.ms": "1000"}


async def test_a_topic_deleted_meanwhile_leaves_no_config(alter, following):
    async def meanwhile(commit):
        await commit([], [Delete(following.keys.topic("t"))])

    following.store.before = meanwhile
    assert await alter(("segment.ms", SET, "1")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await following.store.get(following.keys.config(ConfigType.TOPIC, "t")) is None


async def test_a_race_that_never_ends_is_given_up(alter, following, monkeypatch):
    times = 0
    original = following.store.commit

    async def always_first(guards, ops):
        nonlocal times
        if ops:
            times += 1
            following.clock.advance(10)
            key = following.keys.config(ConfigType.TOPIC, "t")
            await original([], [Put(key, encode_config({"flush.ms": str(times)}))])
        return await original(guards, ops)

    monkeypatch.setattr(following.store, "commit", always_first)
    assert await alter(("segment.ms", SET, "1")) is ErrorCode.REQUEST_TIMED_OUT
    assert times == PATIENCE_SECONDS / 10


@pytest.mark.usefixtures("pauses_pass")
async def test_who_loses_twenty_times_in_a_row_gets_through(alter, given, following):
    """Three nodes changed a config at once: after ten lost races a client was told to give up."""
    key, left = following.keys.config(ConfigType.TOPIC, "t"), 20

    async def meanwhile(commit):
        nonlocal left
        left -= 1
        await commit([], [Put(key, encode_config({"flush.ms": str(left)}))])
        if left:
            following.store.before = meanwhile

    following.store.before = meanwhile
    assert await alter(("segment.ms", SET, "1")) is None
    assert given() == {"flush.ms": "0", "segment.ms": "1"}


@pytest.mark.parametrize("trouble", [Unavailable, Ambiguous])
async def test_an_unavailable_store_is_a_timeout(alter, following, trouble):
    async def fail(_):
        raise trouble("down")

    following.store.before = fail
    assert await alter(("segment.ms", SET, "1")) is ErrorCode.REQUEST_TIMED_OUT


async def test_more_than_the_store_takes_is_refused(alter, given):
    long = "0:1," * (VALUE_BYTES_MAX // 4) + "1:1"
    key = "leader.replication.throttled.replicas"
    assert await alter((key, SET, long)) is ErrorCode.INVALID_REQUEST
    assert given() == {}


# Brokers.


async def test_configs_that_would_be_relied_on_in_vain_are_refused(alter):
    broker = {"kind": ResourceType.BROKER, "name": "1"}
    change = ("ssl.keystore.location", SET, "/keys")
    assert await alter(change, **broker) is ErrorCode.INVALID_REQUEST


async def test_a_dynamic_option_of_one_listener_is_altered_as_others(alter, following):
    """The option was served, and could be changed by a restart only."""
    broker = {"kind": ResourceType.BROKER, "name": ""}
    key = "listener.name.inside.max.connection.creation.rate"
    assert await alter((key, SET, "4"), **broker) is None
    in_force = broker_config_in_force(broker_config({}), following.image, NodeId(1))
    assert accept_rates_of(in_force, ["INSIDE"]) == {"INSIDE": 4}
    assert await alter((key, SET, "0"), **broker) is ErrorCode.INVALID_REQUEST
    for other in ("max.connections", "ssl.keystore.location", "sasl.enabled.mechanisms"):
        change = (f"listener.name.inside.{other}", SET, "1")
        assert await alter(change, **broker) is ErrorCode.INVALID_REQUEST


async def test_layers_of_a_broker(alter, following):
    static = broker_config({"message.max.bytes": "1", "num.partitions": "3"})

    def in_force(node_id=1):
        return broker_config_in_force(static, following.image, NodeId(node_id))

    broker = {"kind": ResourceType.BROKER}
    assert await alter(("message.max.bytes", SET, "3"), name="", **broker) is None
    assert in_force()[MESSAGE_MAX_BYTES] == 3
    assert await alter(("message.max.bytes", SET, "2"), name="01", **broker) is None
    assert in_force()[MESSAGE_MAX_BYTES] == 2
    assert in_force(2)[MESSAGE_MAX_BYTES] == 3
    assert [setting.source for setting in in_force().settings(MESSAGE_MAX_BYTES)] == [
        Source.DYNAMIC_BROKER,
        Source.DYNAMIC_DEFAULT_BROKER,
        Source.STATIC_BROKER,
        Source.DEFAULT,
    ]


async def test_stored_configs_that_this_version_cannot_use_are_ignored(following):
    stored = {
        "num.partitions": "9",  # fixed
        "message.max.bytes": "many",
        "of.a.newer.version": "1",
        "log.cleanup.policy": "compact",
    }
    key = following.keys.config(ConfigType.BROKER, "1")
    revision = await following.store.commit([], [Put(key, encode_config(stored))])
    await following.follower.reached(revision)
    config = broker_config_in_force(broker_config({}), following.image, NodeId(1))
    assert (config[NUM_PARTITIONS], config[MESSAGE_MAX_BYTES]) == (1, 1_048_588)
    assert config[LOG_CLEANUP_POLICY] == ("compact",)
    topic = stored_topic_config({"of.a.newer.version": "1", "segment.ms": "5"}, config)
    assert dict(topic.given()) == {"segment.ms": "5"}


async def test_the_number_of_groups_with_configs_is_limited(alter):
    """Nothing else ends them: a client that names a million groups would fill the store."""
    change = ("consumer.session.timeout.ms", SET, "50000")
    of = {"kind": ResourceType.GROUP}
    for number in range(GROUPS_MAX):
        assert await alter(change, name=f"g{number}", **of) is None
    assert await alter(change, name="one.more", **of) is ErrorCode.POLICY_VIOLATION
    assert await alter(change, name="one.more", validate_only=True, **of) is (
        ErrorCode.POLICY_VIOLATION
    )
    assert await alter(("consumer.session.timeout.ms", SET, "55000"), name="g0", **of) is None
    assert await alter(("consumer.session.timeout.ms", DELETE, None), name="g0", **of) is None
    assert await alter(change, name="one.more", **of) is None


async def test_groups_whose_configs_come_at_once_do_not_pass_the_limit(alter):
    change = ("consumer.session.timeout.ms", SET, "50000")
    of = {"kind": ResourceType.GROUP}
    codes = await asyncio.gather(*(alter(change, name=f"g{n}", **of) for n in range(20)))
    assert codes.count(None) == GROUPS_MAX
    assert codes.count(ErrorCode.POLICY_VIOLATION) == 20 - GROUPS_MAX
    assert await alter(("consumer.session.timeout.ms", DELETE, None), name="g0", **of) is None
    assert await alter(change, name="one.more", **of) is None


@pytest.mark.parametrize("replaces", [False, True])
async def test_very_many_configs_of_one_resource_are_refused(alter, replaces):
    changes = [(f"c{number}", SET, "1") for number in range(CHANGES_MAX + 1)]
    of = {"kind": ResourceType.BROKER, "name": "", "replaces": replaces}
    assert await alter(*changes, **of) is ErrorCode.INVALID_REQUEST
    assert await alter(*changes[1:], **of) is None


async def test_a_resource_keeps_no_more_configs_than_it_can_use(alter):
    """A broker kept 70,000 that mean nothing: then each DescribeConfigs of it took 0.25 s."""
    of = {"kind": ResourceType.BROKER, "name": ""}
    assert await alter(*((f"c{number}", SET, "1") for number in range(KEPT_MAX)), **of) is None
    assert await alter(("one.more", SET, "1"), **of) is ErrorCode.INVALID_REQUEST
    assert await alter(("c0", SET, "2"), **of) is None
    assert await alter(("c0", DELETE, None), ("one.more", SET, "1"), **of) is None


async def test_what_was_kept_before_there_was_a_bound_may_become_less(alter, following):
    stored = {f"c{number}": "1" for number in range(2 * KEPT_MAX)}
    key = following.keys.config(ConfigType.BROKER, "")
    revision = await following.store.commit([], [Put(key, encode_config(stored))])
    await following.follower.reached(revision)
    of = {"kind": ResourceType.BROKER, "name": ""}
    assert await alter(("one.more", SET, "1"), **of) is ErrorCode.INVALID_REQUEST
    assert await alter(("c0", DELETE, None), **of) is None
