"""What a transaction coordinator answers from memory while another one may have begun."""

import pytest

from ottla.errors import ErrorCode
from ottla.pending import Pending

CLASSIC = 0
"""Transactions of this version keep their epoch: a repeated end looks like the next one's."""


@pytest.fixture
def producer(node):
    """One whose first transaction is complete."""
    producer = node.begun()
    assert node.produced(producer) == 0
    node.end(producer, version=CLASSIC)
    node.settle()
    assert node.state() == "CompleteCommit"
    return producer


@pytest.fixture
def asked(node, producer):
    """What the coordinator has asked: whether nobody else coordinates."""
    asked = []
    partition = node.transactions.runtime.shard_for("x").partition
    partition.confirm = lambda _: asked.append(Pending()) or asked[-1]
    return asked


def test_an_end_is_told_from_memory_once_it_is_sure_that_nobody_else_coordinates(
    node, producer, asked
):
    """The next coordinator may have begun a transaction, which would stay open though it ended."""
    told, refused = (node.end(producer, version=CLASSIC) for _ in range(2))
    assert not told.is_done
    asked[0].resolve(True)
    asked[1].resolve(False)
    assert told.value.code is ErrorCode.NONE
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


def test_a_producer_is_fenced_once_it_is_sure_that_nobody_else_coordinates(node, producer, asked):
    """The next coordinator may have given it the epoch that is not known here."""
    fenced = node.end(producer._replace(producer_epoch=5))
    asked[0].resolve(False)
    assert fenced.value.code is ErrorCode.NOT_COORDINATOR


def test_what_is_written_asks_no_question(node, producer, asked):
    begun = node.init()
    node.settle()
    assert begun.value.code is ErrorCode.NONE
    assert not asked


def test_what_passes_asks_no_question(node, producer, asked):
    assert not node.init().is_done
    assert node.init().value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not asked
    node.settle()


def test_nobody_is_asked_for_a_client_that_has_gone(node, producer, asked):
    ended = []
    pending = node.end(producer, version=CLASSIC)
    asked[0].on_cancel(lambda: ended.append(1))
    pending.cancel()
    assert ended
