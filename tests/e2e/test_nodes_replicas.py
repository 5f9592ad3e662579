"""Partitions of three replicas on three nodes, as clients see them while nodes are killed."""

import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.env.rng import SeededRng
from ottla.metadata.keys import Keys
from ottla.metadata.store import Put
from ottla.metadata.values import decode_known_broker
from ottla.node.identity import STORE_CLUSTER
from tests.nodes import Nodes

PATIENCE_SECONDS = 60
PARTITIONS = 3
REPLICAS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "2000",
}
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


def create(nodes, topic="t", partitions=PARTITIONS, factor=3, **configs):
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    texts = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, factor, config=texts)])[topic].result(30)


def states(nodes, topic="t"):
    return nodes.call(lambda: nodes.image(nodes.running[0]).topic(topic).partitions)


def until(is_so, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def wait_for_isr(nodes, count=3, topic="t"):
    def is_so():
        return all(len(state.isr) == count for state in states(nodes, topic))

    until(is_so, lambda: states(nodes, topic))


def producer_of(nodes, **options):
    settings = {
        "bootstrap.servers": nodes.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 0,
        "log_level": 0,
    }
    return Producer(settings | {name.replace("_", "."): each for name, each in options.items()})


def produce(producer, values, topic="t"):
    """Send values round robin; return those that were not acknowledged."""
    refused = []

    def told(error, message):
        if error is not None:
            refused.append((message.value(), error))

    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=told)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return refused


def consumed(nodes, count, topic="t", group="g"):
    settings = {
        "bootstrap.servers": nodes.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found, deadline = [], time.monotonic() + PATIENCE_SECONDS
    try:
        while len(found) < count and time.monotonic() < deadline:
            found += [one.value() for one in consumer.consume(500, 0.2) if not one.error()]
        if found:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def values(tag, count=90):
    return [b"%s %d" % (tag, number) for number in range(count)]


def test_each_node_is_killed_in_turn_and_nothing_acknowledged_is_lost(nodes):
    create(nodes, min_insync_replicas="2")
    producer, sent = producer_of(nodes), []
    for node in (1, 2, 3):
        for tag in (b"before %d" % node, b"without %d" % node):
            assert not produce(producer, values(tag))
            sent += values(tag)
            if node in nodes.running:
                nodes.kill(node)
        nodes.start(node)
        wait_for_isr(nodes)
    assert sorted(consumed(nodes, len(sent))) == sorted(sent)
    assert all(state.leader_epoch > 0 for state in states(nodes))


def test_what_followers_have_synced_outlives_a_power_cut_though_leaders_had_not(nodes):
    """With flush.messages above 1 a leader acknowledges what is in its page cache."""
    create(nodes, min_insync_replicas="2", flush_messages="1000000")
    assert not produce(producer_of(nodes), values(b"kept"))
    nodes.kill_together(1, 2, 3)
    for node in (1, 2, 3):
        nodes.take_disk(node, nodes.disk(node).crash(SeededRng(node)))
    nodes.start_together(1, 2, 3)
    wait_for_isr(nodes)
    assert sorted(consumed(nodes, 90)) == sorted(values(b"kept"))


def test_a_group_goes_on_where_it_was_when_its_coordinator_is_killed(nodes):
    create(nodes)
    producer = producer_of(nodes)
    assert not produce(producer, values(b"first"))
    assert len(consumed(nodes, 90)) == 90
    wait_for_isr(nodes, topic="__consumer_offsets")
    for node in (1, 2):
        nodes.kill(node)
        tag = b"without %d" % node
        assert not produce(producer, values(tag))
        assert sorted(consumed(nodes, 90)) == sorted(values(tag)), "only what is new"
        nodes.start(node)
        wait_for_isr(nodes, topic="__consumer_offsets")


def test_a_transaction_outlives_its_coordinator_and_its_leaders(nodes):
    create(nodes, min_insync_replicas="2")
    producer = producer_of(nodes, transactional_id="x")
    producer.init_transactions(PATIENCE_SECONDS)
    sent = []
    for node in (1, 2, 3):
        producer.begin_transaction()
        assert not produce(producer, values(b"committed %d" % node))
        nodes.kill(node)
        producer.commit_transaction(PATIENCE_SECONDS)
        sent += values(b"committed %d" % node)
        nodes.start(node)
        wait_for_isr(nodes)
        wait_for_isr(nodes, topic="__transaction_state")
        producer.begin_transaction()
        assert not produce(producer, values(b"aborted %d" % node))
        producer.abort_transaction(PATIENCE_SECONDS)
    assert sorted(consumed(nodes, len(sent))) == sorted(sent)


def test_too_few_in_sync_replicas_refuse_acks_all_until_one_is_back(nodes):
    create(nodes, min_insync_replicas="2")
    assert not produce(producer_of(nodes), values(b"before"))
    nodes.kill(2)
    nodes.kill(3)
    until(lambda: all(state.isr == (1,) for state in states(nodes)), lambda: states(nodes))
    assert all(state.elr for state in states(nodes)), "those that have all may lead"
    refused = produce(producer_of(nodes, message_timeout_ms=1500), values(b"refused", 3))
    assert len(refused) == 3
    nodes.start(2)
    wait_for_isr(nodes, 2)
    assert not produce(producer_of(nodes), values(b"after"))
    nodes.start(3)
    wait_for_isr(nodes)
    found = consumed(nodes, 180)
    assert {*values(b"before"), *values(b"after")} <= {*found}


def test_a_node_that_lost_its_disk_is_not_elected_and_gets_all_again(nodes):
    create(nodes)
    assert not produce(producer_of(nodes), values(b"kept"))
    nodes.kill(1)
    nodes.forget_disk(1)
    nodes.start(1, ottla_log_dirs_given_up=directory_of(nodes, 1))
    wait_for_isr(nodes)
    for node in (2, 3):
        nodes.kill(node)
    until(lambda: all(state.leader == 1 for state in states(nodes)), lambda: states(nodes))
    assert sorted(consumed_without_group(nodes)) == sorted(values(b"kept"))


def kill_all_at_once(nodes):
    """Kill all nodes so that none has seen another one go."""
    keys = Keys(STORE_CLUSTER)
    topic_id = nodes.call(lambda: nodes.image(1).topic("t").topic_id)
    wanted = [keys.partition(topic_id, number) for number in range(len(states(nodes)))]

    async def read():
        return [await nodes.store.get(key) for key in wanted]

    async def put_back():
        await nodes.store.commit([], [Put(entry.key, entry.value) for entry in before])

    before = nodes.run(read)
    for node in (1, 2, 3):
        nodes.kill(node)
    nodes.run(put_back)


def without_log(nodes, node, partition=0):
    """Leave on a node's disk what is there if it ends before it has made the log."""
    disk, directory = nodes.disk(node), f"/data/t-{partition}"
    for name in disk.list_directory(directory):
        disk.remove(f"{directory}/{name}")
    disk.remove_directory(directory)


def test_a_topic_whose_nodes_all_end_before_its_first_log_is_made_begins_with_their_next_start(
    nodes,
):
    create(nodes, min_insync_replicas="2")
    wait_for_isr(nodes)
    kill_all_at_once(nodes)
    for node in (1, 2, 3):
        without_log(nodes, node)
    for node in (1, 2):  # Of the other partition one has its log.
        without_log(nodes, node, partition=1)
    nodes.start_together(1, 2, 3)
    wait_for_isr(nodes)
    assert not produce(producer_of(nodes), values(b"after"))


def test_a_topic_whose_logs_are_lost_with_a_disk_waits_for_somebody_to_say_so(nodes):
    create(nodes, partitions=1, min_insync_replicas="2")
    wait_for_isr(nodes)
    directory = directory_of(nodes, 1)
    kill_all_at_once(nodes)
    for node in (2, 3):
        without_log(nodes, node)
    nodes.forget_disk(1)
    nodes.start(1, ottla_log_dirs_given_up=directory)
    nodes.start_together(2, 3)
    until(lambda: not states(nodes)[0].isr, lambda: states(nodes))
    (state,) = states(nodes)
    assert (state.leader, state.elr, state.unmade) == (-1, (), (2, 3))


def directory_of(nodes, node):
    async def read():
        entry = await nodes.store.get(Keys(STORE_CLUSTER).known_broker(node))
        (directory,) = decode_known_broker(entry.value).directories
        return directory

    return nodes.run(read)


def consumed_without_group(nodes):
    from confluent_kafka import TopicPartition

    consumer = Consumer({"bootstrap.servers": nodes.bootstrap, "group.id": "none", "log_level": 0})
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    found, deadline = [], time.monotonic() + PATIENCE_SECONDS
    while len(found) < 90 and time.monotonic() < deadline:
        found += [one.value() for one in consumer.consume(500, 0.2) if not one.error()]
    consumer.close()
    return found


def test_a_cluster_that_was_stopped_as_a_whole_comes_back_with_all(nodes):
    create(nodes, min_insync_replicas="2")
    assert not produce(producer_of(nodes), values(b"kept"))
    for node in (1, 2, 3):
        nodes.kill(node)
    nodes.start_together(1, 2, 3)
    wait_for_isr(nodes)
    assert not produce(producer_of(nodes), values(b"after"))
    assert len(consumed(nodes, 180)) == 180


def test_a_topic_is_made_while_a_node_is_down_that_is_to_have_a_replica(nodes):
    """Else the first group would wait until all hosts are up; Kafka makes topics so, too."""
    nodes.kill(3)
    until(lambda: 3 not in nodes.call(lambda: dict(nodes.image(1).brokers)), lambda: "it is live")
    create(nodes, min_insync_replicas="2")
    assert all(set(state.replicas) == {1, 2, 3} for state in states(nodes))
    assert all(set(state.isr) == {1, 2} for state in states(nodes))
    assert not produce(producer_of(nodes), values(b"without"))
    nodes.start(3)
    wait_for_isr(nodes)
    nodes.kill(1)
    assert not produce(producer_of(nodes), values(b"with"))


def test_more_replicas_than_nodes_are_refused(nodes):
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        create(nodes, factor=4)
