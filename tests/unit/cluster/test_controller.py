"""The controller over a store in memory: what it commits, what it refuses, what a race leaves."""

import asyncio

import pytest

from ottla.cluster.controller import Controller, Hosted
from ottla.cluster.topics import NewPartitions, NewTopic, Placement
from ottla.config.config import Config
from ottla.config.files import broker_config
from ottla.config.topic import SEGMENT_MS, topic_config
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, LeaderEpoch, NodeId, TopicId, topic_id_text
from ottla.metadata.image import TopicImage
from ottla.metadata.keys import ConfigType
from ottla.metadata.store import Ambiguous, Delete, Put, Unavailable
from ottla.metadata.values import (
    PartitionState,
    TopicValue,
    encode_deleted,
    encode_partition,
    encode_topic,
    without_node,
)
from ottla.pending import Pending

OTHER_ID = TopicId(b"o" * 16)


def resolved():
    pending = Pending()
    pending.resolve(None)
    return pending


async def done(pending):
    """The outcomes, an error as its code."""
    finished = asyncio.get_running_loop().create_future()
    pending.on_done(finished.set_result)
    async with asyncio.timeout(5):
        await finished
    assert pending.error is None
    return [item.code if isinstance(item, KafkaError) else item for item in pending.value]


@pytest.fixture
def start(following):
    def start(*, nodes=(1,), partitions_max=100, may_delete=True, left=()):
        return Controller(
            store=following.store,
            keys=following.keys,
            follower=following.follower,
            rng=SeededRng(1),
            placement=lambda: Placement(list(map(NodeId, nodes)), 3, 1),
            check_config=lambda given: topic_config(given, broker_config({})),
            partitions_max=partitions_max,
            may_delete=may_delete,
            hosted=Hosted(1, lambda topic: resolved(), left.__contains__),
        )

    return start


@pytest.fixture
def controller(start):
    return start()


@pytest.fixture
def keys_left(following):
    """The keys in the store, without the test's prefix."""

    async def keys_left():
        entries, _ = await following.store.scan(following.keys.prefix)
        return sorted(entry.key.removeprefix(following.keys.prefix) for entry in entries)

    return keys_left


# Create.


async def test_a_created_topic_is_in_the_image_when_the_answer_comes(controller, following):
    topic = NewTopic("t", 2, configs=[("segment.ms", "1000")])
    (made,) = await done(controller.create_topics([topic]))
    assert (made.partition_count, made.replication_factor) == (2, 1)
    assert isinstance(made.config, Config)
    assert made.config[SEGMENT_MS] == 1000
    image = following.image.topic("t")
    assert image.topic_id == made.topic_id
    assert [(state.replicas, state.isr, state.leader) for state in image.partitions] == [
        ((1,), (1,), 1)
    ] * 2
    assert following.image.config(ConfigType.TOPIC, "t") == {"segment.ms": "1000"}


async def test_partitions_are_spread_and_counts_default(start, following):
    controller = start(nodes=(1, 2, 5))
    await done(controller.create_topics([NewTopic("t")]))
    assert [state.leader for state in following.image.topic("t").partitions] == [1, 2, 5]


async def test_each_topic_of_a_request_fails_on_its_own(controller, following):
    outcomes = await done(
        controller.create_topics(
            [
                NewTopic("a.b"),
                NewTopic("no/path"),
                NewTopic("a.b"),
                NewTopic("a_b"),
                NewTopic("c", replication_factor=0, configs=[("segment.ms", "x")]),
                NewTopic("c", configs=[("segment.ms", None)]),
                NewTopic("d", replication_factor=2),
                NewTopic("e"),
            ]
        )
    )
    assert outcomes[1:7] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ]
    assert set(following.image.topics) == {"a.b", "e"}


async def test_validating_writes_nothing(controller, keys_left):
    (made,) = await done(controller.create_topics([NewTopic("t")], validate_only=True))
    assert made.partition_count == 3
    assert await keys_left() == []
    await done(controller.create_topics([NewTopic("t", 1)]))
    before = await keys_left()
    (added,) = await done(controller.create_partitions([NewPartitions("t", 2)], validate_only=True))
    assert added is None
    assert await keys_left() == before


async def test_the_number_of_partitions_of_a_node_is_limited(start):
    controller = start(partitions_max=5)
    outcomes = await done(
        controller.create_topics([NewTopic("a", 3), NewTopic("b", 3), NewTopic("c", 2)])
    )
    assert outcomes[1] is ErrorCode.POLICY_VIOLATION
    assert outcomes[2].partition_count == 2
    assert await done(controller.create_partitions([NewPartitions("a", 4)])) == [
        ErrorCode.POLICY_VIOLATION
    ]


async def test_the_second_creator_of_a_topic_is_told(controller, following):
    """The image does not know the rival's topic yet: only the store's guard does."""
    key = following.keys.topic("t")

    async def rival(commit):
        await commit([], [Put(key, encode_topic(TopicValue(OTHER_ID, 1)))])

    following.store.before = rival
    assert await done(controller.create_topics([NewTopic("t", 1)])) == [
        ErrorCode.TOPIC_ALREADY_EXISTS
    ]
    assert following.image.topic("t").topic_id == OTHER_ID


@pytest.mark.parametrize("error", [Unavailable("gone"), Ambiguous("perhaps")])
async def test_a_store_that_does_not_answer_is_a_timeout(controller, following, error):
    async def fail(commit):
        raise error

    following.store.before = fail
    outcomes = await done(controller.create_topics([NewTopic("t"), NewTopic("u")]))
    assert outcomes[0] is ErrorCode.REQUEST_TIMED_OUT
    assert set(following.image.topics) == {"u"}, "the next one is tried all the same"


@pytest.mark.parametrize("where", ["get", "reached"])
async def test_a_store_that_goes_before_it_is_written_to_is_a_timeout(
    controller, following, monkeypatch, where
):
    """It closed the client's connection when nothing but the commit was expected to fail."""
    await done(controller.create_topics([NewTopic("t", 1)]))

    async def fail(_):
        raise Unavailable("gone")

    monkeypatch.setattr(following.store if where == "get" else following.follower, where, fail)
    timeout = [ErrorCode.REQUEST_TIMED_OUT]
    assert await done(controller.create_partitions([NewPartitions("t", 2)])) == timeout
    assert await done(controller.delete_topics([("t", NULL_TOPIC_ID)])) == timeout


async def test_a_topic_that_many_ask_for_is_created_once(controller, following, caplog):
    commits = following.store.commit
    count = 0

    async def counted(guards, ops):
        nonlocal count
        count += bool(ops)
        return await commits(guards, ops)

    following.store.commit = counted
    for _ in range(3):
        controller.auto_create(["t"])
    for _ in range(100):
        await asyncio.sleep(0)
    assert "t" in following.image.topics
    assert count == 1, "its partitions and the topic are one commit"
    controller.auto_create(["t", "no name"])
    for _ in range(100):
        await asyncio.sleep(0)
    assert "cannot create the topic no name asked for" in caplog.text
    assert "the topic t asked" not in caplog.text, "another node was faster"


# Partitions.


async def test_partitions_are_added_behind_those_there_are(start, following):
    controller = start(nodes=(1, 2))
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))
    outcomes = await done(
        controller.create_partitions(
            [NewPartitions("t", 3), NewPartitions("absent", 3), NewPartitions("t", 3)]
        )
    )
    assert outcomes == [
        None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
    ]
    topic = following.image.topic("t")
    assert topic.topic_id == made.topic_id
    assert [state.leader for state in topic.partitions] == [1, 2, 1]


async def test_partitions_are_not_added_to_a_topic_that_was_replaced(controller, following):
    """But to the one that has its name now, as for who asks a moment later."""
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))
    key = following.keys.topic("t")

    async def replace(commit):
        await commit([], [Put(key, encode_topic(TopicValue(OTHER_ID, 1)))])

    following.store.before = replace
    assert await done(controller.create_partitions([NewPartitions("t", 2)])) == [None]
    assert len(following.image.topic("t").partitions) == 2
    added = [following.keys.partition(each, 1) for each in (made.topic_id, OTHER_ID)]
    assert [await following.store.get(each) is None for each in added] == [True, False]


async def test_a_topic_that_grows_while_it_moves_gets_no_more_replicas(start, following):
    controller, both = start(nodes=(1, 2)), (NodeId(1), NodeId(2))
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))
    state = following.image.topic("t").partitions[0]._replace(replicas=both, removing=both[1:])
    key = following.keys.partition(made.topic_id, 0)
    await following.store.commit([], [Put(key, encode_partition(state))])
    assert await done(controller.create_partitions([NewPartitions("t", 2)])) == [None]
    assert len(following.image.topic("t").partitions[1].replicas) == 1


async def test_a_slow_node_does_not_write_over_partitions_that_another_has_added(start, following):
    """The client's time was over, and it has asked another node."""
    first, slow = start(partitions_max=1000), start(nodes=(2,), partitions_max=1000)
    await done(first.create_topics([NewTopic("t", 1)]))

    async def add(commit):
        assert await done(first.create_partitions([NewPartitions("t", 301)])) == [None]

    following.store.before = add
    assert await done(slow.create_partitions([NewPartitions("t", 301)])) == [
        ErrorCode.INVALID_PARTITIONS
    ]
    partitions = following.image.topic("t").partitions
    assert {state.replicas for state in partitions} == {(NodeId(1),)}


# Delete.


async def test_a_deleted_topic_leaves_nothing_in_the_store(controller, following, keys_left):
    topics = [NewTopic(name, 2, configs=[("segment.ms", "1000")]) for name in "ab"]
    made = await done(controller.create_topics(topics))
    by_name, by_id = await done(
        controller.delete_topics([("a", NULL_TOPIC_ID), (None, made[1].topic_id)])
    )
    assert by_name == ("a", made[0].topic_id)
    assert by_id == ("b", made[1].topic_id)
    assert not following.image.topics
    assert await keys_left() == []
    (again,) = await done(controller.create_topics([NewTopic("a")]))
    assert again.topic_id != made[0].topic_id


async def test_a_topic_that_does_not_exist_cannot_be_deleted(controller):
    assert await done(controller.delete_topics([("a", NULL_TOPIC_ID), (None, OTHER_ID)])) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


async def test_deletion_can_be_switched_off(start, following):
    controller = start(may_delete=False)
    await done(controller.create_topics([NewTopic("t")]))
    assert await done(controller.delete_topics([("t", NULL_TOPIC_ID)])) == [
        ErrorCode.TOPIC_DELETION_DISABLED
    ]
    assert "t" in following.image.topics


async def test_a_deleted_topic_whose_directory_stays_leaves_its_mark(start, keys_left):
    """Else a later start would take the directory for a topic that came from elsewhere."""
    controller = start(left={"t"})
    (made,) = await done(controller.create_topics([NewTopic("t")]))
    await done(controller.delete_topics([("t", NULL_TOPIC_ID)]))
    assert [key for key in await keys_left() if "delete/" in key] == [
        f"delete/{topic_id_text(made.topic_id)}"
    ]


async def test_a_node_leaves_the_marks_of_topics_that_were_deleted_while_it_started(
    start, following
):
    mark = following.keys.deleted_topic(OTHER_ID)
    nodes = [NodeId(1), NodeId(3)]
    await following.store.commit([], [Put(mark, encode_deleted("t", nodes))])
    state = PartitionState(tuple(nodes), tuple(nodes), NodeId(3), LeaderEpoch(0), 0)
    start().carry_out_deletions([TopicImage("t", OTHER_ID, (state,))])
    for _ in range(20):
        await asyncio.sleep(0)
    assert without_node((await following.store.get(mark)).value, NodeId(3)) is None


async def test_a_node_that_was_away_when_its_replica_left_is_in_the_mark(start, following):
    """Else it would take its copy for a topic that came from elsewhere."""
    controller = start()
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))
    key = following.keys.partition(made.topic_id, 0)
    state = following.image.topic("t").partitions[0]._replace(left=(NodeId(3),))
    await following.store.commit([], [Put(key, encode_partition(state))])
    await done(controller.delete_topics([("t", NULL_TOPIC_ID)]))
    mark = await following.store.get(following.keys.deleted_topic(made.topic_id))
    assert mark is not None
    assert without_node(mark.value, NodeId(3)) is None, "node 1 has deleted its own"


async def test_a_node_that_gets_a_replica_just_before_a_deletion_is_in_the_mark(start, following):
    """Else the topic is back if that node ends before it has removed its directory."""
    controller = start()
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))
    key = following.keys.partition(made.topic_id, 0)
    state = following.image.topic("t").partitions[0]._replace(replicas=(NodeId(1), NodeId(3)))

    async def reassign(commit):
        await commit([], [Put(key, encode_partition(state))])

    following.store.before = reassign
    await done(controller.delete_topics([("t", NULL_TOPIC_ID)]))
    mark = await following.store.get(following.keys.deleted_topic(made.topic_id))
    assert mark is not None
    assert without_node(mark.value, NodeId(3)) is None, "node 1 has deleted its own"


async def test_of_two_requests_to_delete_a_topic_one_is_told_that_it_is_gone(controller, following):
    await done(controller.create_topics([NewTopic("t")]))
    key = following.keys.topic("t")

    async def rival(commit):
        await commit([], [Delete(key)])

    following.store.before = rival
    assert await done(controller.delete_topics([("t", NULL_TOPIC_ID)])) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


@pytest.mark.parametrize("by_name", [True, False])
async def test_a_topic_that_gets_partitions_while_it_is_deleted_is_deleted_with_them(
    controller, start, following, keys_left, by_name
):
    other_node = start()
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))

    async def grow(commit):
        await done(other_node.create_partitions([NewPartitions("t", 3)]))

    following.store.before = grow
    named = ("t", NULL_TOPIC_ID) if by_name else (None, made.topic_id)
    assert await done(controller.delete_topics([named])) == [("t", made.topic_id)]
    assert not following.image.topics
    assert await keys_left() == []


async def test_a_topic_that_was_replaced_while_it_was_deleted_by_its_id_stays(
    controller, following
):
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))
    key = following.keys.topic("t")

    async def replace(commit):
        await commit([], [Put(key, encode_topic(TopicValue(OTHER_ID, 1)))])

    following.store.before = replace
    assert await done(controller.delete_topics([(None, made.topic_id)])) == [
        ErrorCode.UNKNOWN_TOPIC_ID
    ]
    assert following.image.topic("t").topic_id == OTHER_ID


async def test_a_deletion_cut_short_leaves_its_mark(controller, following, keys_left):
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))

    async def nothing(commit):
        async def fail(commit):
            raise Unavailable("gone")

        following.store.before = fail  # The commit after this one: the mark's removal.

    following.store.before = nothing
    assert await done(controller.delete_topics([("t", NULL_TOPIC_ID)])) == [
        ErrorCode.REQUEST_TIMED_OUT
    ]
    assert "t" not in following.image.topics
    mark = following.keys.deleted_topic(made.topic_id)
    assert await following.store.get(mark) is not None


@pytest.mark.parametrize("validate_only", [False, True])
async def test_more_config_text_than_can_be_kept_is_refused(controller, validate_only):
    huge = [("follower.replication.throttled.replicas", ",".join(["0:1"] * 300_000))]
    answer = controller.create_topics([NewTopic("t", configs=huge)], validate_only=validate_only)
    while not answer.is_done:  # noqa: ASYNC110 - a Pending is no event
        await asyncio.sleep(0)
    (outcome,) = answer.value
    assert outcome.code is ErrorCode.INVALID_REQUEST
    assert "can be kept" in outcome.why


# Many at once.


async def test_topics_made_at_the_same_time_take_no_more_room_than_there_is(start, following):
    controller = start(partitions_max=500)
    made = [controller.create_topics([NewTopic(f"t{number}", 300)]) for number in range(4)]
    outcomes = [(await done(each))[0] for each in made]
    assert outcomes[0].partition_count == 300
    assert outcomes[1:] == [ErrorCode.POLICY_VIOLATION] * 3
    grown = [
        controller.create_partitions([NewPartitions("t0", 450)]),
        controller.create_topics([NewTopic("u", 200)]),
    ]
    assert [(await done(each))[0] for each in grown] == [None, ErrorCode.POLICY_VIOLATION]
    assert sum(len(topic.partitions) for topic in following.image.topics.values()) == 450


async def test_room_that_a_failed_creation_had_is_free_again(start, following):
    async def fail(commit):
        raise Unavailable("gone")

    controller = start(partitions_max=5)
    following.store.before = fail
    assert await done(controller.create_topics([NewTopic("t", 5)])) == [ErrorCode.REQUEST_TIMED_OUT]
    assert (await done(controller.create_topics([NewTopic("t", 5)])))[0].partition_count == 5


async def test_names_that_collide_are_not_made_at_the_same_time(controller, following):
    names = ["a.b", "a_b", "a.b"]
    made = [controller.create_topics([NewTopic(name, 1)]) for name in names]
    outcomes = [(await done(each))[0] for each in made]
    assert outcomes[1:] == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert set(following.image.topics) == {"a.b"}


async def test_simultaneous_changes_of_one_topic_leave_nothing_behind(start, keys_left):
    """Partitions are written ahead of their topic: those of who comes second would stay."""
    controller = start(partitions_max=10_000)
    before = await keys_left()
    made = [controller.create_topics([NewTopic("t", 250)]) for _ in range(3)]
    assert [(await done(each))[0] for each in made][1:] == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
    grown = [controller.create_partitions([NewPartitions("t", count)]) for count in (500, 700, 600)]
    assert [(await done(each))[0] for each in grown] == [None, None, ErrorCode.INVALID_PARTITIONS]
    changed = [
        controller.create_partitions([NewPartitions("t", 1_000)]),
        controller.delete_topics([("t", NULL_TOPIC_ID)]),
        controller.create_topics([NewTopic("t", 1)]),
    ]
    outcomes = [(await done(each))[0] for each in changed]
    assert outcomes[0] is None
    await done(controller.delete_topics([("t", NULL_TOPIC_ID)]))
    assert await keys_left() == before
    assert not len(controller._claims)


async def test_topics_of_one_request_do_not_all_lead_on_one_node(start, following):
    controller = start(nodes=(1, 2, 5))
    await done(controller.create_topics([NewTopic(f"t{number}", 1) for number in range(6)]))
    leaders = [topic.partitions[0].leader for topic in following.image.topics.values()]
    assert sorted(leaders) == [1, 1, 2, 2, 5, 5]
    assert not +controller._claims.leads
