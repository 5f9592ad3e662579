"""A leader asks for another ISR when it should, once at a time, until it knows what came of it."""

import subprocess
import sys

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, NodeId, TopicPartition
from ottla.metadata.image import BrokerImage, MetadataDelta, PartitionChange
from ottla.metadata.values import PartitionState
from ottla.pending import Pending
from ottla.replication.isr_changes import IsrChanges, Outcome
from ottla.replication.replica_state import maximal_isr

NODE, OTHER, THIRD = NODES = tuple(map(NodeId, (1, 2, 3)))
T0 = TopicPartition("t", 0)
LAG_MAX_MS = 10_000
REGISTERED = 7
"""The broker epoch of the followers."""


class Leader:
    """A partition of three replicas that node 1 leads, and a store that the test answers for."""

    def __init__(self, node, *, isr=NODES, min_isr=2, elr=()):
        self.node = node
        self.clock = ManualClock()
        self.asked = []
        self.changes = IsrChanges(self.clock, self._propose, lambda: LAG_MAX_MS)
        self.partition = node.partition()
        self.partition.min_insync_replicas = min_isr
        self.partition_epoch = 10
        self.tell(isr, elr=elr, epoch=1)
        self.changes.watch(self.partition)

    def _propose(self, where, topic_id, before, proposal):
        assert where == T0
        assert topic_id == self.partition.topic_id
        pending = Pending()
        self.asked.append((before, proposal, pending))
        return pending

    def tell(self, isr, *, elr=(), epoch=None, leader=NODE):
        """Let the image tell of another state."""
        self.partition_epoch += 1
        epoch = self.partition.leader_epoch if epoch is None else LeaderEpoch(epoch)
        state = PartitionState(NODES, tuple(isr), leader, epoch, self.partition_epoch, elr=elr)
        self.partition.apply_state(state)

    def fetch(self, node, end_offset=None, broker_epoch=REGISTERED, *, is_full=False):
        end_offset = self.partition.log.log_end_offset if end_offset is None else end_offset
        self.changes.follower_fetched(
            self.partition, node, end_offset, broker_epoch, is_full=is_full
        )

    def pass_ms(self, count, *, fetching=()):
        for _ in range(count // 500):
            self.clock.advance(0.5)
            for node in fetching:
                self.fetch(node)

    def answer(self, outcome):
        *_, pending = self.asked[-1]
        pending.resolve(outcome)


@pytest.fixture
def leader(make_node, words):
    def make(**fields):
        node = make_node(partitions=1)
        made = Leader(node, **fields)
        node.append((0, words.batch(b"a", b"b", b"c", b"d")), acks=1)
        node.executor.run_all()
        return made

    return make


def test_who_lags_for_too_long_is_to_leave_and_counts_until_the_store_agrees(leader):
    one = leader()
    one.fetch(OTHER)
    one.fetch(THIRD)
    assert one.partition.high_watermark == 4
    one.node.append((0, batch()), acks=1)
    one.node.executor.run_all()
    one.pass_ms(LAG_MAX_MS - 1000, fetching=[OTHER])
    assert one.asked == []
    one.pass_ms(5_000, fetching=[OTHER])
    (before, proposal, _), *more = one.asked
    assert more == []
    assert before == one.partition.state
    assert proposal.state.isr == (NODE, OTHER)
    assert proposal.state.elr == ()
    assert proposal.joining is None
    assert one.partition.high_watermark == 4, "the third one counts as long as it may be elected"
    one.answer(Outcome.COMMITTED)
    assert one.partition.high_watermark == 4
    one.tell((NODE, OTHER))
    assert one.partition.high_watermark == 5
    assert one.partition.view.proposal is None


def test_nobody_lags_behind_a_log_that_is_out_of_service(leader):
    one, told = leader(), []
    one.changes.failed = told.append
    one.fetch(OTHER, 3)
    one.partition.log.end_by_fault(RuntimeError("a fault of ours"))
    one.pass_ms(3 * LAG_MAX_MS)
    assert one.asked == [], "else nobody could lead in its place any more"
    assert set(told) == {one.partition}
    assert len(told) > 3, "until another one leads"
    one.tell(NODES, epoch=2, leader=OTHER)
    told.clear()
    one.pass_ms(LAG_MAX_MS)
    assert told == []


def batch():
    from ottla.records.builder import build_batch
    from ottla.records.record import Record

    return build_batch([Record(timestamp=1, key=None, value=b"late")])


def test_both_may_leave_at_once_and_stay_eligible_while_nothing_can_be_committed(leader):
    one = leader()
    one.pass_ms(15_000)
    (_, proposal, _), *more = one.asked
    assert more == []
    assert (proposal.state.isr, proposal.state.elr) == ((NODE,), (OTHER, THIRD))


def test_who_has_all_that_is_committed_joins_by_its_present_registration(leader):
    one = leader(isr=(NODE, OTHER))
    one.fetch(OTHER)
    one.fetch(THIRD, 3)
    assert one.asked == []
    one.fetch(THIRD, 4)
    (_, proposal, _), *more = one.asked
    assert more == []
    assert proposal.state.isr == NODES
    assert (proposal.joining, proposal.broker_epoch) == (THIRD, REGISTERED)
    assert maximal_isr(one.partition.view) == {*NODES}, "it counts before anybody knows"
    one.fetch(THIRD, 4)
    assert len(one.asked) == 1, "one at a time"


def test_what_was_committed_is_not_asked_again_while_the_image_has_not_told(leader):
    one = leader(isr=(NODE, OTHER))
    one.fetch(THIRD)
    one.answer(Outcome.COMMITTED)
    for _ in range(3):
        one.fetch(THIRD)
        one.pass_ms(3_000, fetching=[OTHER])
    assert len(one.asked) == 1
    one.tell(NODES)
    one.node.append((0, batch()), acks=1)
    one.node.executor.run_all()
    one.pass_ms(14_000, fetching=[OTHER])
    assert len(one.asked) == 2, "the next one is"
    assert one.asked[-1][1].state.isr == (NODE, OTHER)


def test_the_elr_is_cleared_when_the_minimum_was_lowered(leader):
    one = leader(isr=(NODE,), elr=(OTHER,), min_isr=1)
    one.pass_ms(3_000)
    (_, proposal, _), *_ = one.asked
    assert (proposal.state.isr, proposal.state.elr) == ((NODE,), ())


def test_without_an_answer_it_is_committed_again_and_goes_on_counting(leader):
    one = leader()
    one.fetch(OTHER)
    one.pass_ms(14_000, fetching=[OTHER])
    assert len(one.asked) == 1
    for count in (2, 3):
        one.answer(Outcome.UNKNOWN)
        assert one.partition.view.proposal == one.asked[0][1]
        assert len(one.asked) == count - 1, "not at once"
        one.pass_ms(3_000, fetching=[OTHER])
        assert len(one.asked) == count
        assert one.asked[-1][:2] == one.asked[0][:2]


def test_a_changed_key_leaves_the_proposal_until_the_image_tells(leader):
    one = leader()
    one.pass_ms(14_000, fetching=[OTHER])
    one.answer(Outcome.KEY_CHANGED)
    assert one.partition.view.proposal is not None
    one.tell((NODE, OTHER))
    assert one.partition.view.proposal is None


def test_who_registered_anew_joins_by_that_and_not_by_the_former(leader):
    one = leader(isr=(NODE, OTHER))
    one.fetch(THIRD)
    one.answer(Outcome.REGISTRATION_GONE)
    assert one.partition.view.proposal is None
    one.fetch(THIRD)
    assert len(one.asked) == 1, "it is not asked again and again"
    one.fetch(THIRD, broker_epoch=REGISTERED + 1)
    assert len(one.asked) == 2
    assert one.asked[-1][1].broker_epoch == REGISTERED + 1


def test_it_is_tried_again_later_when_it_was_our_registration_that_was_gone(leader):
    one = leader(isr=(NODE, OTHER))
    one.fetch(THIRD)
    one.answer(Outcome.REGISTRATION_GONE)
    one.pass_ms(3_000, fetching=[OTHER, THIRD])
    assert len(one.asked) == 2


def test_an_answer_of_a_former_leadership_changes_nothing(leader):
    one = leader()
    one.pass_ms(14_000)
    one.tell(NODES, epoch=3)
    view = one.partition.view
    one.answer(Outcome.REGISTRATION_GONE)
    assert one.partition.view is view
    one.pass_ms(LAG_MAX_MS - 1000)
    assert len(one.asked) == 1, "in a new leadership everybody has the whole time again"
    one.pass_ms(5_000)
    assert len(one.asked) == 2


def test_who_leads_no_more_proposes_nothing(leader):
    one = leader()
    one.tell(NODES, epoch=3, leader=OTHER)
    one.pass_ms(30_000)
    assert one.asked == []
    with pytest.raises(KafkaError) as refused:
        one.fetch(THIRD)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_stop_ends_it(leader):
    one = leader()
    one.changes.stop()
    one.pass_ms(30_000)
    assert one.asked == []


# Grants.


class Image:
    """As much of a metadata image as a replica manager asks for."""

    def __init__(self, *brokers):
        self.brokers = {
            NodeId(one): BrokerImage(NodeId(one), epoch, None) for one, epoch in brokers
        }
        self.topics = {}

    def partition(self, where):
        return None


def registered(node, epoch):
    node.replica_manager.apply(Image((NODE, epoch)), MetadataDelta(revision=9, brokers=(NODE,)))


def granted(node, epoch, replicas=(1, 2)):
    before = node.partition().state
    state = before._replace(
        replicas=tuple(map(NodeId, replicas)),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=before.partition_epoch + 1,
    )
    change = PartitionChange("t", node.partition().topic_id, 0, before, state)
    node.replica_manager.apply(Image(), MetadataDelta(revision=10, partitions=(change,)))


def test_a_leadership_granted_before_this_process_registered_does_not_count(make_node, words):
    node = make_node(partitions=1)
    granted(node, 4)
    assert node.partition().is_leader
    registered(node, 50)
    assert not node.partition().is_leader
    assert words.codes(node.append((0, words.batch()))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    granted(node, 4)  # A change of the ISR is no grant.
    assert not node.partition().is_leader
    granted(node, 5)
    assert node.partition().is_leader
    registered(node, 50)  # The image tells of the same registration once more.
    assert node.partition().is_leader


def test_the_only_replica_goes_on(make_node):
    node = make_node(partitions=1)
    granted(node, 4, replicas=(1,))
    registered(node, 50)
    assert node.partition().is_leader


def test_a_partition_that_is_being_made_is_fenced_too(make_node):
    node = make_node(partitions=1)
    change = node.led(1, epoch=3)
    node.replica_manager.apply(Image(), MetadataDelta(revision=8, partitions=(change,)))
    registered(node, 50)
    node.executor.run_all()
    assert node.partition(1) is not None
    assert not node.partition(1).is_leader
    node.change(node.led(1, epoch=4, old=change.new))
    assert node.partition(1).is_leader


def test_nothing_of_several_replicas_is_led_before_this_process_is_registered(make_node):
    node = make_node(partitions=1)
    image = Image()
    node.replica_manager.host_all(image)
    change = node.led(1, epoch=3)
    node.change(change)
    assert not node.partition(1).is_leader
    registered(node, 50)
    assert not node.partition(1).is_leader
    node.change(node.led(1, epoch=4, old=change.new))
    assert node.partition(1).is_leader


def test_a_broker_alone_loads_nothing_of_replication_between_nodes():
    code = """
import asyncio, sys
from ottla.broker import Broker
from ottla.config.files import broker_config
async def main():
    broker = Broker(broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"}), memory=True)
    await broker.start()
    await broker.stop()
asyncio.run(main())
parts = ("elections", "replica_state", "isr_changes", "follower", "cutting")
names = [f"ottla.replication.{part}" for part in parts]
names += ["ottla.log.replicated", "ottla.log.directories.cutting"]
print([name for name in names if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_a_follower_without_space_does_not_join_and_stays_while_nothing_is_missing(leader):
    """It would be waited for with the next record, until it counts as lagging."""
    made = leader(isr=(NODE, THIRD))
    made.fetch(OTHER, is_full=True)
    for _ in range(2 * LAG_MAX_MS // 500):
        made.pass_ms(500)
        made.fetch(OTHER, is_full=True)
        made.fetch(THIRD, is_full=True)
    assert not made.asked
    made.fetch(OTHER)
    ((_, proposal, _),) = made.asked
    assert (proposal.joining, proposal.state.isr) == (OTHER, NODES)


@pytest.mark.parametrize(("min_isr", "left"), [(2, (NODE, THIRD)), (3, None)])
def test_a_follower_without_space_leaves_when_records_wait_for_it_and_enough_are_left(
    leader, min_isr, left
):
    made = leader(min_isr=min_isr)
    for node in (OTHER, THIRD):
        made.fetch(node, is_full=node == OTHER)
    assert not made.asked, "nothing is missing there"
    made.node.append((0, batch()), acks=1)
    made.node.executor.run_all()
    made.fetch(THIRD)
    assert not made.asked
    made.fetch(OTHER, end_offset=0, is_full=True)
    assert [proposal.state.isr for _, proposal, _ in made.asked] == ([left] if left else [])


def test_a_follower_that_lags_leaves_although_too_few_are_left(leader):
    made = leader(min_isr=3)
    made.node.append((0, batch()), acks=1)
    made.node.executor.run_all()
    for _ in range(2 * LAG_MAX_MS // 500):
        made.pass_ms(500)
        made.fetch(OTHER, end_offset=0, is_full=True)
        made.fetch(THIRD)
    ((_, proposal, _),) = made.asked
    assert (proposal.state.isr, proposal.state.elr) == ((NODE, THIRD), (OTHER,))
