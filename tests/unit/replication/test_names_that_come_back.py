"""A topic is deleted and made anew under its name while a request for the old one is on its way.

Nothing of the old one's reaches the new one, and nothing of the new one's answers for the old one.
The codes are those of a live Kafka, where it has them.
"""

from collections import deque

import pytest

from ottla.env.executor import ManualExecutor
from ottla.env.memory_disk import MemoryFile
from ottla.errors import ErrorCode
from ottla.ids import TopicId, TopicPartition
from ottla.pending import Pending
from ottla.replication.fetch import FetchLimits, FetchSpec, Isolation

NEW_ID = TopicId(b"another topic's!")
T0 = TopicPartition("t", 0)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class SlowExecutor(ManualExecutor):
    """Lets the work at hand be overtaken by later work."""

    def overtaken(self):
        """Put what waits aside; return what puts it back."""
        aside, self._jobs = self._jobs, deque()
        return lambda: self._jobs.extend(aside)


@pytest.fixture
def node(make_node):
    return make_node(executor=SlowExecutor())


def make_anew(node):
    """Delete ``t`` and make it again, ahead of all that waits in the executor."""
    put_back = node.executor.overtaken()
    known = node.led(0)
    for index in range(2):
        node.change(known._replace(partition=index, old=known.new, new=None))
    for index in range(2):
        node.change(known._replace(partition=index, topic_id=NEW_ID))
    assert node.partition().topic_id == NEW_ID
    put_back()


def is_untouched(node):
    return [node.partition(index).log.log_end_offset for index in range(2)] == [0, 0]


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_large_batch_for_the_old_topic_never_lands_in_the_new_one(node, words, acks):
    answer = node.append((0, words.large_batch()), acks=acks)
    assert isinstance(answer, Pending)
    make_anew(node)
    node.executor.run_all()
    assert words.codes(answer) == [UNKNOWN]
    assert words.result_of(answer)[0].log_start_offset == -1, "no log has looked at it"
    assert is_untouched(node)
    again = node.append((0, words.large_batch()))
    node.executor.run_all()
    assert words.codes(again) == [ErrorCode.NONE], "a client that asks again means the new one"


def test_nor_does_one_that_came_alone(node, words):
    records = memoryview(words.large_batch())
    answer = node.replica_manager.appends.one(T0, records, acks=-1, timeout_ms=30_000)
    make_anew(node)
    node.executor.run_all()
    assert words.codes(answer) == [UNKNOWN]
    assert is_untouched(node)


def test_nor_do_the_small_batches_beside_a_large_one(node, words):
    answer = node.append((0, words.batch()), (1, words.large_batch()))
    make_anew(node)
    node.executor.run_all()
    assert words.codes(answer) == [UNKNOWN] * 2
    assert is_untouched(node)


def test_a_commit_in_the_new_topic_acknowledges_nothing_of_the_old_one(node, words):
    records = memoryview(words.batch())
    alone = node.replica_manager.appends.one(T0, records, acks=-1, timeout_ms=30_000)
    several = node.append((0, words.batch()), (1, words.batch()))
    make_anew(node)
    assert words.codes(alone) == [UNKNOWN]
    assert words.codes(several) == [UNKNOWN] * 2
    for _ in range(5):
        node.append((0, words.batch()), (1, words.batch()))
    node.executor.run_all()
    assert node.partition().high_watermark == 5
    node.check()


@pytest.mark.parametrize(
    ("by_id", "code"), [(True, ErrorCode.INCONSISTENT_TOPIC_ID), (False, UNKNOWN)]
)
def test_a_read_ahead_for_the_old_topic_reads_nothing_of_the_new_one(
    node, words, by_id, code, monkeypatch
):
    for number in range(520):  # More than the log's tail remembers by position.
        node.append((0, words.batch(b"%d" % number)))
    node.executor.run_all()
    monkeypatch.setattr(MemoryFile, "is_cached", lambda *_: False)
    asked = FetchSpec(T0, 1, 10**6, topic_id=node.partition().topic_id, is_by_id=by_id)
    limits = FetchLimits(500, 1, 10**6, Isolation.READ_UNCOMMITTED)
    answer = node.replica_manager.fetch([asked], limits)
    assert node.executor.waiting == 1
    make_anew(node)
    new = [node.append((0, words.batch(b"new"))) for _ in range(5)]
    node.executor.run_all()
    assert all(one.is_done for one in new)
    (found,) = words.result_of(answer)
    assert (found.code, found.region) == (code, None)


@pytest.mark.parametrize("by_id", [True, False])
def test_a_waiting_fetch_of_the_old_topic_is_told_that_it_is_gone(node, words, by_id):
    asked = FetchSpec(T0, 0, 10**6, topic_id=node.partition().topic_id, is_by_id=by_id)
    limits = FetchLimits(60_000, 1, 10**6, Isolation.READ_UNCOMMITTED)
    answer = node.replica_manager.fetch([asked], limits)
    assert not answer.is_done
    make_anew(node)
    (found,) = words.result_of(answer)
    assert (found.code, found.region) == (UNKNOWN, None), "as a live Kafka answers"
