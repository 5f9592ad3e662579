"""A partition leads, follows and stops as the image says; what followers said ends with it."""

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, NodeId, TopicPartition
from ottla.metadata.values import PartitionState

NODE, OTHER, THIRD = map(NodeId, (1, 2, 3))
BROKER_EPOCH = 7


@pytest.fixture
def make(make_node):
    return make_node


@pytest.fixture
def four(words):
    return words.batch(b"a", b"b", b"c", b"d")


@pytest.fixture
def led(make, four):
    """A partition in sync with another node, and four of its own records, synced."""
    node = make()
    node.change(node.led(0, isr=(1, 2), old=node.partition().state))
    waiting = node.append((0, four))
    node.executor.run_all()
    return node, waiting


def test_a_commit_waits_for_the_follower(led):
    node, waiting = led
    assert not waiting.is_done
    assert node.partition().high_watermark == 0
    node.partition().follower_fetched(OTHER, 3, BROKER_EPOCH)
    assert node.partition().high_watermark == 3
    assert not waiting.is_done
    node.partition().follower_fetched(OTHER, 4, BROKER_EPOCH)
    assert waiting.is_done
    assert waiting.value[0].base_offset == 0
    node.partition().check()


def test_the_follower_counts_no_more_in_a_new_leader_epoch(led, four):
    node, _ = led
    partition = node.partition()
    node.append((0, four))
    node.executor.run_all()
    partition.follower_fetched(OTHER, 6, BROKER_EPOCH)
    assert partition.high_watermark == 6
    node.change(node.led(0, epoch=3, isr=(1, 2), old=partition.state))
    # It may have followed another leader in between, and have lost what it said.
    node.append((0, four))
    node.executor.run_all()
    assert partition.high_watermark == 6
    partition.follower_fetched(OTHER, 12, BROKER_EPOCH)
    assert partition.high_watermark == 12


def test_it_counts_on_when_only_the_isr_changes(led):
    node, _ = led
    node.partition().follower_fetched(OTHER, 3, BROKER_EPOCH)
    node.change(node.led(0, isr=(2, 1), old=node.partition().state))
    node.partition().follower_fetched(OTHER, 4, BROKER_EPOCH)
    assert node.partition().high_watermark == 4


def test_waiting_appends_are_refused_when_another_node_leads(led):
    node, waiting = led
    node.change(node.led(0, leader=OTHER, epoch=1, isr=(1, 2), old=node.partition().state))
    assert waiting.value[0].code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refused:
        node.partition().follower_fetched(OTHER, 4, BROKER_EPOCH)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.partition().high_watermark == 0


def test_a_node_without_a_replica_is_told_to_ask_again(led):
    node, _ = led
    with pytest.raises(KafkaError) as refused:
        node.partition().follower_fetched(THIRD, 4, BROKER_EPOCH)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_older_isr_of_the_same_epoch_is_ignored(led):
    node, _ = led
    partition = node.partition()
    newest = partition.state
    partition.apply_state(newest._replace(isr=(NODE,), partition_epoch=newest.partition_epoch - 1))
    assert partition.state is newest
    partition.apply_state(newest._replace(leader_epoch=LeaderEpoch(-1), partition_epoch=99))
    assert partition.state is newest


def test_the_high_watermark_stands_while_the_isr_is_too_small(make, four):
    node = make(min_insync_replicas=2)
    node.append((0, four), acks=1)
    node.executor.run_all()
    assert node.partition().high_watermark == 0
    node.partition().configure(node.settings._replace(min_insync_replicas=1))
    assert node.partition().high_watermark == 4


def test_nothing_is_committed_while_others_are_eligible(make, four):
    node = make()
    partition = node.partition()
    state = partition.state._replace(partition_epoch=partition.state.partition_epoch + 1)
    partition.apply_state(state._replace(elr=(OTHER,)))
    node.append((0, four), acks=1)
    node.executor.run_all()
    assert partition.high_watermark == 0
    partition.apply_state(state._replace(partition_epoch=state.partition_epoch + 1))
    assert partition.high_watermark == 4


def test_the_only_replica_needs_nobody(make, four):
    node = make(min_insync_replicas=2)
    partition = node.partition()
    alone = PartitionState((NODE,), (NODE,), NODE, LeaderEpoch(1), 9)
    partition.apply_state(alone)
    node.append((0, four), acks=1)
    node.executor.run_all()
    assert partition.high_watermark == 4
    with pytest.raises(KafkaError):
        partition.follower_fetched(OTHER, 4, BROKER_EPOCH)


# Partitions that are on other nodes only.


class Image:
    """The states of partitions, as the image tells them."""

    def __init__(self, **states):
        self.states = states
        self.brokers = {OTHER: None}

    def partition(self, where):
        return self.states.get(where.topic)


@pytest.fixture
def elsewhere(make):
    node = make()
    led = PartitionState((OTHER, THIRD), (OTHER,), OTHER, LeaderEpoch(5), 3)
    node.replica_manager._image = Image(
        elsewhere=led, headless=led._replace(leader=NodeId(-1)), away=led._replace(leader=THIRD)
    )
    return node.replica_manager


def refusal(replica_manager, topic):
    with pytest.raises(KafkaError) as refused:
        replica_manager.leader_of(TopicPartition(topic, 0))
    return refused.value.code


def test_a_partition_of_other_nodes_is_led_elsewhere_and_an_unknown_one_nowhere(elsewhere):
    assert refusal(elsewhere, "elsewhere") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(elsewhere, "headless") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(elsewhere, "nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("topic", "leader"),
    [("elsewhere", (OTHER, 5)), ("headless", None), ("away", None), ("nowhere", None)],
)
def test_a_fetch_is_told_who_leads(elsewhere, make_fetch, topic, leader):
    (fetched,) = make_fetch(elsewhere, topic)
    assert fetched.current_leader == leader
    assert (fetched.code is ErrorCode.NOT_LEADER_OR_FOLLOWER) == (topic != "nowhere")


@pytest.fixture
def make_fetch():
    from ottla.replication.fetch import FetchLimits, FetchSpec, Isolation

    def fetch(replica_manager, topic):
        limits = FetchLimits(
            max_wait_ms=500, min_bytes=1, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED
        )
        return replica_manager.fetch([FetchSpec(TopicPartition(topic, 0), 0, 1)], limits)

    return fetch
