"""Row 19 of the hostile-client table: producers on many partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.housekeeping.producer_limit import forget_silent_producers, level_of


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 1000))
def test_the_level_is_the_largest_that_fits(counts, limit):
    if sum(counts) <= limit:
        return
    level = level_of(counts, limit)
    assert sum(min(count, level) for count in counts) <= limit
    assert sum(min(count, level + 1) for count in counts) > limit


@pytest.fixture
def filled(make_node, words):
    """A node that knows six producers in one partition and two in another."""
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    for partition, count in ((0, 6), (1, 2)):
        for producer_id in range(count):
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
            node.append((partition, words.batch(**fields)))
    return node


def known(node, index):
    return [producer_id for producer_id, _ in node.partition(index).log.producers.states]


def test_row_19_the_partition_that_knows_the_most_forgets_the_silent_ones(filled):
    forget_silent_producers(filled.replica_manager.partitions, 5)
    assert known(filled, 0) == [3, 4, 5]
    assert known(filled, 1) == [0, 1]


def test_within_the_limit_nobody_is_forgotten(filled):
    forget_silent_producers(filled.replica_manager.partitions, 8)
    assert (len(known(filled, 0)), len(known(filled, 1))) == (6, 2)


def test_a_forgotten_producer_may_go_on(filled, words):
    forget_silent_producers(filled.replica_manager.partitions, 5)
    fields = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 1}
    (outcome,) = filled.append((0, words.batch(**fields)))
    assert outcome.base_offset == 6


def test_who_has_a_transaction_open_is_not_forgotten(make_node):
    from ottla.log.producers.states import ProducerStates
    from ottla.records.batch import TRANSACTIONAL_BIT, read_header
    from ottla.records.builder import build_batch
    from ottla.records.record import Record

    header = read_header(build_batch([Record()], producer_id=0, producer_epoch=0, base_sequence=0))
    states = ProducerStates(1000)
    states.update(header._replace(attributes=TRANSACTIONAL_BIT), 0, 0, 0)
    states.update(header._replace(producer_id=1), 1, 0, 0)
    states.forget_oldest(2)
    assert [producer_id for producer_id, _ in states] == [0]
