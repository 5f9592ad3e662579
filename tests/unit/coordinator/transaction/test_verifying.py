"""A coordinator on another node confirms a partition: its word holds until a marker comes."""

from types import SimpleNamespace

import pytest

from ottla.coordinator.group.offsets.committing import TopicCommit
from ottla.coordinator.transaction.peers import Marker, Producer
from ottla.errors import ErrorCode
from ottla.handlers.apis.produce.transactional import TransactionalAppends
from ottla.handlers.apis.txn_offset_commit import TxnOffsetCommit
from ottla.ids import NodeId, TopicPartition
from ottla.pending import Pending
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.records.builder import build_batch
from ottla.records.record import Record

WHERE = TopicPartition("t", 0)
PRODUCER = Producer("far", 7, 0)


@pytest.fixture
def asked(node, monkeypatch):
    """What node 2, the coordinator, is asked: (verify_only, the Pending of its answer)."""
    asked = []

    def ask(node_id, producer, partitions, *, verify_only):
        assert (node_id, producer, list(partitions)) == (2, PRODUCER, [WHERE])
        asked.append((verify_only, Pending()))
        return asked[-1][1]

    monkeypatch.setattr(node.transactions, "elsewhere", lambda name: 2, raising=False)
    monkeypatch.setattr(node.transactions, "ask_elsewhere", ask)
    return asked


def mark(node, *, commit=False, epoch=0):
    marker = Marker(7, epoch, commit, 0, 0)
    written = node.transactions.write_markers(marker, [WHERE])
    node.settle()
    assert written.value == [ErrorCode.NONE]


def code_of(node, produced):
    node.settle()
    (outcome,) = produced.value if isinstance(produced, Pending) else produced
    return getattr(outcome, "code", ErrorCode.NONE)


@pytest.mark.parametrize("version", [11, 12])
def test_nothing_is_appended_before_the_coordinator_has_answered(node, asked, version):
    produced = node.produce(PRODUCER, version=version)
    node.settle()
    assert not produced.is_done
    assert node.stable() == (0, 0)
    ((verify_only, answer),) = asked
    assert verify_only == (version < 12)
    answer.resolve({WHERE: ErrorCode.NONE})
    assert code_of(node, produced) == ErrorCode.NONE
    assert node.stable() == (0, 1)


def test_an_open_transaction_needs_no_second_answer(node, asked):
    produced = node.produce(PRODUCER)
    asked[0][1].resolve({WHERE: ErrorCode.NONE})
    assert code_of(node, produced) == ErrorCode.NONE
    assert code_of(node, node.produce(PRODUCER, sequence=1)) == ErrorCode.NONE
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("version", "told"),
    [(11, ErrorCode.INVALID_TXN_STATE), (12, ErrorCode.CONCURRENT_TRANSACTIONS)],
)
def test_a_yes_does_not_outlive_an_abort(node, asked, version, told):
    produced = node.produce(PRODUCER, version=version)
    mark(node)
    asked[0][1].resolve({WHERE: ErrorCode.NONE})
    assert code_of(node, produced) == told
    assert node.stable() == (1, 1), "nothing hangs behind the marker"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_refusal_is_told_as_that_of_a_coordinator_here(node, asked, said, told):
    produced = node.produce(PRODUCER, version=11)
    asked[0][1].resolve({WHERE: said})
    assert code_of(node, produced) == told
    assert node.stable() == (0, 0)


def test_a_question_that_fails_confirms_nothing_and_is_answered(node, asked):
    produced = node.produce(PRODUCER)
    asked[0][1].fail(RuntimeError("can't start new thread"))
    assert code_of(node, produced) == ErrorCode.NOT_ENOUGH_REPLICAS, "it is tried again"
    assert node.stable() == (0, 0)


def test_offsets_of_a_question_that_fails_are_not_written(node, monkeypatch):
    """They were, and pending for good: no coordinator knew of them."""
    asked = Pending()
    monkeypatch.setattr(node.transactions, "elsewhere", lambda name: 2, raising=False)
    monkeypatch.setattr(node.transactions, "ask_elsewhere", lambda *_, **__: asked)
    image = SimpleNamespace(topic=node.topics.get)
    handler = TxnOffsetCommit(node.coordinator, node.transactions, image, node.node.replica_manager)
    topics = [TopicCommit("t", [(0, 5, -1, "")])]
    request = TxnOffsetCommitRequest(
        transactional_id="far", group_id="g", producer_id=7, producer_epoch=0, topics=[]
    )
    committed = handler._commit(request, topics, 5)
    asked.fail(RuntimeError("can't start new thread"))
    node.settle()
    assert committed.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not node.shard("g").machine.offsets.has_open_transaction("g")


@pytest.mark.parametrize("said", [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED])
def test_questions_that_are_over_leave_nothing_behind(node, asked, said):
    states = node.node.partition(0).producers
    produced = node.produce(PRODUCER)
    assert list(states._verifications) == [7]
    asked[0][1].resolve({WHERE: said})
    code_of(node, produced)
    assert not states._verifications


def follow(node, index=0, *, epoch=1):
    node.node.change(node.node.led(index, leader=NodeId(2), epoch=epoch))


def lead(node, index=0, *, epoch=2):
    node.node.change(node.node.led(index, epoch=epoch))


@pytest.mark.parametrize("version", [11, 12])
def test_who_does_not_lead_says_so_and_asks_nobody(node, asked, version):
    """As Kafka; the coordinator's "no" would end the transaction."""
    follow(node)
    produced = node.produce(PRODUCER, version=version)
    assert code_of(node, produced) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not asked


@pytest.mark.parametrize("version", [11, 12])
def test_a_marker_that_a_follower_takes_over_ends_no_transaction(node, asked, version):
    """It is that of the transaction before: the next leader takes the batch."""
    produced = node.produce(PRODUCER, version=version)
    follow(node)
    node.node.partition(0).producers.void_verifications(PRODUCER.producer_id)
    asked[0][1].resolve({WHERE: ErrorCode.NONE})
    assert code_of(node, produced) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.stable() == (0, 0)


@pytest.mark.parametrize("leads_again", [True, False])
def test_a_yes_does_not_outlive_a_follower_s_cut_and_no_transaction_ends(node, asked, leads_again):
    produced = node.produce(PRODUCER)
    follow(node)
    log = node.node.partition(0).log
    log.producers.restore(list(log.segments), log.log_end_offset)
    if leads_again:
        lead(node)
    asked[0][1].resolve({WHERE: ErrorCode.NONE})
    assert code_of(node, produced) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.stable() == (0, 0)


def test_who_leads_only_when_the_answer_comes_appends_nothing_unasked(node, asked):
    follow(node, 1)
    batches = [
        build_batch([Record(key=b"k", value=b"v")], producer_id=7, producer_epoch=0,
                    base_sequence=0, transactional=True)
        for _ in range(2)
    ]  # fmt: skip
    appends = TransactionalAppends(node.node.replica_manager, node.transactions)
    produced = appends.append(
        PRODUCER.transactional_id,
        [(TopicPartition("t", index), memoryview(one)) for index, one in enumerate(batches)],
        version=12,
        acks=-1,
        timeout_ms=30_000,
    )
    lead(node, 1)
    asked[0][1].resolve({WHERE: ErrorCode.NONE})
    node.settle()
    first, second = produced.value
    assert not hasattr(first, "code")
    assert second.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.stable(1) == (0, 0)
