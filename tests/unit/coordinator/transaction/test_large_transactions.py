"""Transactions of as many partitions as a record of ``__transaction_state`` can name."""

import pytest

from ottla.coordinator.transaction.transaction import EPOCH_MAX
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

E = ErrorCode


@pytest.mark.parametrize("last_epoch", [False, True])
def test_a_transaction_takes_no_more_partitions_than_its_end_can_name(make_node, last_epoch):
    """Its end says more than its beginning, and would be refused for good."""
    node = make_node(max_message_bytes=1000)
    producer = node.begun(timeout_ms=10_000)
    while last_epoch and producer.producer_epoch < EPOCH_MAX - 1:
        shard = node.transactions.runtime.shard_for("x")
        known = shard.machine.transactions["x"]
        shard.machine.transactions["x"] = known._replace(producer_epoch=EPOCH_MAX - 2)
        producer = node.begun(timeout_ms=10_000)
    version = 2 if last_epoch else 0
    code, index = E.NONE, 0
    while code is E.NONE:
        where = TopicPartition("t", index)
        if index > 1:
            node.partitions_gone.add(where)
        added = node.transactions.add_partitions(producer, [where], client_version=version)
        node.settle()
        code, index = added.value.code, index + 1
    assert code is E.UNKNOWN_SERVER_ERROR
    assert index > 100
    if last_epoch:
        ended = node.end(producer)
        node.settle()
        assert ended.value.code is E.NONE
        assert node.state() == "CompleteCommit"
    else:
        node.clock.advance(11)
        node.settle()
        assert node.state() == "CompleteAbort"
