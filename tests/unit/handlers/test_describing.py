"""Metadata, DescribeTopicPartitions, DescribeCluster, DescribeConfigs: what clients are told."""

from types import SimpleNamespace

import pytest

from ottla.config.files import broker_config
from ottla.config.topic import topic_config
from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode
from ottla.handlers.advertised import Advertised
from ottla.handlers.apis.describe_cluster import DescribeCluster
from ottla.handlers.apis.describe_configs import DescribeConfigs
from ottla.handlers.apis.describe_topic_partitions import DescribeTopicPartitions
from ottla.handlers.apis.metadata import Metadata
from ottla.handlers.authorization.describing import describe_topic_partitions
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.handlers.leadership import Leaderships
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Put
from ottla.metadata.values import (
    BrokerValue,
    MetaValue,
    PartitionState,
    TopicValue,
    encode_broker,
    encode_controller,
    encode_meta,
    encode_name,
    encode_partition,
    encode_topic,
)
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.sliced import Slices
from ottla.turns import Turns

NODE, OTHER = NodeId(1), NodeId(2)
IDS = {"a": TopicId(b"a" * 16), "b": TopicId(b"b" * 16)}
CLIENT = Client("10.0.0.9", 5000, "10.0.0.1", 9092)
KEYS = Keys("test")


def served(steps):
    """Serve to the end what needs no turn."""
    return Slices(Turns(ManualClock())).run(steps, str)


LOST = TopicPartition("a", 1)
NOT_AVAILABLE = ErrorCode.LEADER_NOT_AVAILABLE


def call(version):
    return Call(version, "me", CLIENT)


def put_topic(name, *leaders):
    topic_id = IDS[name]
    yield Put(KEYS.topic(name), encode_topic(TopicValue(topic_id, len(leaders))))
    yield Put(KEYS.topic_id(topic_id), encode_name(name))
    for index, leader in enumerate(leaders):
        state = PartitionState((NODE, OTHER), (NODE,), NodeId(leader), LeaderEpoch(4), 0)
        yield Put(KEYS.partition(topic_id, index), encode_partition(state))


@pytest.fixture
async def image():
    """Two nodes; ``a`` with three partitions, the last without a leader; ``b`` with one."""
    store = MemoryStore(ManualClock())
    follower = ImageFollower(store, KEYS, ManualClock())
    await follower.start()
    revision = await store.commit(
        [],
        [
            Put(KEYS.meta, encode_meta(MetaValue("cluster-id"))),
            Put(KEYS.controller, encode_controller(NODE)),
            Put(KEYS.live_broker(NODE), encode_broker(BrokerValue("bound", 1, "r1"))),
            Put(KEYS.live_broker(OTHER), encode_broker(BrokerValue("other", 2, None))),
            *put_topic("a", 1, 1, -1),
            *put_topic("b", 2),
        ],
    )
    await follower.reached(revision)
    yield follower.image
    await follower.close()
    await store.close()


@pytest.fixture
def leaderships():
    return Leaderships(NODE, lambda where: "bit rot" if where == LOST else None, {NODE, OTHER})


# Metadata.


@pytest.fixture
def ask(image, leaderships):
    """``ask(*topics, version=, **fields)`` -> the answer; ``ask.created``: what it asked for."""
    created = []

    def ask(*topics, version=12, auto_create=True, told=None, access=None, **fields):
        handler = Metadata(
            image,
            SimpleNamespace(auto_create=lambda names, take: created.extend(names)),
            Advertised(NODE, told or {}),
            leaderships,
            auto_create=auto_create,
        )
        asked = None if topics == (None,) else list(topics)
        asker = call(version)._replace(client=CLIENT._replace(access=access))
        return served(handler.handle(MetadataRequest(topics=asked, **fields), asker))

    ask.created = created
    return ask


def named(name):
    return MetadataRequestTopic(name=name)


def test_the_brokers_and_where_they_are_reached(ask):
    answer = ask()
    assert (answer.cluster_id, answer.controller_id, answer.topics) == ("cluster-id", 1, [])
    assert [(b.node_id, b.host, b.port, b.rack) for b in answer.brokers] == [
        (1, "10.0.0.1", 9092, "r1"),
        (2, "other", 2, None),
    ]
    (first, _) = ask(told={"": ("told", 7)}).brokers
    assert (first.host, first.port) == ("told", 7)


def test_null_and_before_version_1_an_empty_list_mean_all_topics(ask):
    assert {topic.name for topic in ask(None).topics} == {"a", "b"}
    assert {topic.name for topic in ask(version=0).topics} == {"a", "b"}
    assert ask(version=1).topics == []


def test_leaders_and_their_absence(ask):
    (topic,) = ask(named("a")).topics
    assert (topic.error_code, topic.topic_id) == (0, IDS["a"])
    assert [
        (part.partition_index, part.error_code, part.leader_id, part.offline_replicas)
        for part in topic.partitions
    ] == [(0, 0, 1, []), (1, NOT_AVAILABLE, -1, [1]), (2, NOT_AVAILABLE, -1, [])]
    part = topic.partitions[1]
    assert (part.leader_epoch, part.replica_nodes, part.isr_nodes) == (4, [1, 2], [1])


def test_a_lost_copy_here_does_not_unseat_a_leader_elsewhere():
    state = PartitionState((NODE, OTHER), (OTHER,), OTHER, LeaderEpoch(0), 0)
    found = Leaderships(NODE, lambda where: "bit rot", {NODE, OTHER}).of("a", 0, state)
    assert found == (ErrorCode.NONE, OTHER, [NODE])


def test_a_missing_topic_is_created_once_named_and_allowed(ask):
    (topic, _) = ask(named("new"), named("a/b")).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask.created == ["new"]
    ask(named("new"), allow_auto_topic_creation=False)
    ask(named("new"), auto_create=False)
    ask(MetadataRequestTopic(topic_id=TopicId(b"x" * 16), name=None))
    assert ask.created == ["new"]


def test_what_comes_or_goes_behind_a_guard_is_asked_about_again(ask):
    """A guard lets an unknown id and a known name pass; both may be other then."""
    access = SimpleNamespace(may_create_topic="mine".__eq__, may_describe=lambda name: name != "b")
    by_id = MetadataRequestTopic(topic_id=IDS["b"], name=None)
    hidden, _, _ = ask(by_id, named("gone"), named("mine"), access=access).topics
    assert (hidden.error_code, hidden.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert ask.created == ["mine"]


def test_names_and_ids_that_do_not_exist(ask):
    unknown = MetadataRequestTopic(topic_id=TopicId(b"x" * 16), name=None)
    by_id = MetadataRequestTopic(topic_id=IDS["b"], name=None)
    found = ask(named("a/b"), unknown, by_id).topics
    assert [topic.error_code for topic in found] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        0,
    ]
    assert [topic.name for topic in found] == ["a/b", None, "b"]


def test_a_topic_named_twice_is_answered_once(ask):
    assert [topic.name for topic in ask(named("b"), named("a"), named("b")).topics] == ["b", "a"]


def test_a_request_that_its_version_does_not_allow_is_refused_as_a_whole(ask):
    by_id = MetadataRequestTopic(topic_id=IDS["b"], name=None)
    answer = ask(by_id, version=11)
    assert (answer.topics[0].error_code, answer.brokers) == (ErrorCode.INVALID_REQUEST, [])
    answer = ask(MetadataRequestTopic(name=None))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_authorized_operations_are_told_on_request(ask):
    plain = ask(named("a"), version=8)
    asked = ask(
        named("a"),
        named("nobody"),
        version=8,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    nothing = -(2**31)
    assert plain.topics[0].topic_authorized_operations == nothing
    assert plain.cluster_authorized_operations == nothing
    assert asked.topics[0].topic_authorized_operations > 0
    assert asked.topics[1].topic_authorized_operations > 0, "it may be made"
    assert asked.cluster_authorized_operations > 0


# DescribeTopicPartitions.


@pytest.fixture
def pages(image, leaderships):
    handler = DescribeTopicPartitions(image, leaderships, partition_limit=2)

    def pages(*names, cursor=None, limit=2000):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        return served(handler.handle(request, call(0)))

    return pages


def test_pages_go_on_where_the_last_one_ended(pages):
    first = pages()
    (topic,) = first.topics
    assert [part.partition_index for part in topic.partitions] == [0, 1]
    assert first.next_cursor == Cursor(topic_name="a", partition_index=2)
    rest = pages(cursor=first.next_cursor)
    assert [(topic.name, len(topic.partitions)) for topic in rest.topics] == [("a", 1), ("b", 1)]
    assert rest.next_cursor is None


def test_an_offline_partition_has_no_leader_here_either(pages):
    (topic,) = pages("a").topics
    assert [(part.leader_id, part.error_code, part.offline_replicas) for part in topic.partitions][
        1
    ] == (-1, NOT_AVAILABLE, [1])


def test_topics_that_do_not_exist(pages):
    answer = pages("zz", "a/b")
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert all(topic.topic_authorized_operations > 0 for topic in answer.topics)


def test_a_page_that_is_full_ends_before_a_topic_that_does_not_exist(pages):
    answer = pages("b", "bb", limit=1)
    assert [topic.name for topic in answer.topics] == ["b"]
    assert answer.next_cursor == Cursor(topic_name="bb", partition_index=0)
    (rest,) = pages("b", "bb", limit=1, cursor=answer.next_cursor).topics
    assert (rest.name, rest.error_code) == ("bb", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("topics", [[], ["secret", "seen", "secret"]])
def test_a_cursor_below_zero_is_refused_before_anybodys_rights_count(topics):
    """A page of all topics was refused with the name of each that the client may see."""
    guard = describe_topic_partitions(SimpleNamespace(topics={"seen": None, "secret": None}))
    access = SimpleNamespace(may_topic=lambda _, name, **__: name == "seen")
    request = DescribeTopicPartitionsRequest(
        response_partition_limit=2000,
        topics=[TopicRequest(name=name) for name in topics],
        cursor=Cursor(topic_name="seen", partition_index=-1),
    )
    image = SimpleNamespace(topics={"seen": None, "secret": None})
    handler = DescribeTopicPartitions(image, None, partition_limit=1)
    call = SimpleNamespace(api_version=0)
    answer = served(guard(request, call, access, lambda one: served(handler.handle(one, call))))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        (name, ErrorCode.INVALID_REQUEST) for name in topics
    ]


# DescribeCluster.


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_the_cluster(image, endpoint_type, code):
    request = DescribeClusterRequest(
        endpoint_type=endpoint_type, include_cluster_authorized_operations=True
    )
    answer = DescribeCluster(image, Advertised(NODE, {})).handle(request, call(1))
    assert answer.error_code == code
    if code is not ErrorCode.NONE:
        assert answer.error_message
        assert answer.brokers == []
        return
    assert (answer.cluster_id, answer.controller_id) == ("cluster-id", 1)
    assert [(b.broker_id, b.host) for b in answer.brokers] == [(1, "10.0.0.1"), (2, "other")]
    assert answer.cluster_authorized_operations > 0


def test_nodes_that_are_down_are_told_to_who_asks_for_fenced_ones(image):
    """They were passed over: nobody could see whom to unregister."""
    image.known.update((NODE, NodeId(7), NodeId(4)))
    handler = DescribeCluster(image, Advertised(NODE, {}))
    for asks, down in ((False, []), (True, [(4, "", -1, True), (7, "", -1, True)])):
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, include_fenced_brokers=asks
        )
        brokers = handler.handle(request, call(2)).brokers
        assert [(b.broker_id, b.is_fenced) for b in brokers[:2]] == [(1, False), (2, False)]
        assert [(b.broker_id, b.host, b.port, b.is_fenced) for b in brokers[2:]] == down


# DescribeConfigs.


@pytest.fixture
def configs(image):
    config = broker_config({"log.retention.ms": "5000", "num.partitions": "3"})
    given = {"a": {"segment.ms": "1000"}}
    handler = DescribeConfigs(
        NODE,
        image,
        lambda: config,
        lambda topic: topic_config(given.get(topic, {}), config),
        elements_max=10_000,
    )

    def configs(resource_type, name, *keys, **fields):
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(resources=[resource], **fields)
        (result,) = served(handler.handle(request, call(4))).results
        assert (result.resource_type, result.resource_name) == (resource_type, name)
        return result

    return configs


def values(result):
    assert result.error_code == 0
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def test_where_a_topics_values_come_from(configs):
    found = values(configs(2, "a"))
    topic, static, default = 1, 4, 5
    assert found["segment.ms"] == ("1000", topic)
    assert found["retention.ms"] == ("5000", static)
    assert found["flush.messages"] == ("1", default)


def test_only_the_keys_asked_for(configs):
    found = values(configs(4, "1", "num.partitions", "absent"))
    assert found == {"num.partitions": ("3", 4)}


def test_the_node_id_is_told_as_set_statically(configs):
    (entry,) = configs(4, "1", "node.id").configs
    assert (entry.value, entry.config_source, entry.read_only) == ("1", 4, True)


def test_synonyms_and_documentation_come_on_request(configs):
    (plain,) = configs(2, "a", "retention.ms").configs
    asked = configs(2, "a", "retention.ms", include_synonyms=True, include_documentation=True)
    (full,) = asked.configs
    assert (plain.synonyms, plain.documentation) == ([], None)
    strongest = full.synonyms[0]
    assert (strongest.name, strongest.value, strongest.source) == ("log.retention.ms", "5000", 4)
    assert full.documentation


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (2, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "2", ErrorCode.INVALID_REQUEST),
        (4, "one", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_are_not_described_here(configs, resource_type, name, code):
    result = configs(resource_type, name)
    assert (result.error_code, result.configs) == (code, [])


def test_the_cluster_wide_defaults_are_empty(configs):
    assert values(configs(4, "")) == {}
