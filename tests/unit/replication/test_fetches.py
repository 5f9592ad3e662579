"""What a fetch sees, and how long it waits."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.log import Log
from ottla.pending import Pending
from ottla.replication.fetch import FetchLimits, FetchSpec, Isolation


def sizes(answer, words):
    return [
        0 if fetched.region is None else fetched.region.length_bytes
        for fetched in words.result_of(answer)
    ]


@pytest.fixture
def filled(make_node, words):
    """A node that commits at once, with three batches in partition 0 and none in partition 1."""
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    for _ in range(3):
        node.append((0, words.batch(b"x" * 1000)))
    return node


def batch_size(words):
    return len(words.batch(b"x" * 1000))


def test_it_answers_at_once_when_enough_is_there(filled, words):
    size = batch_size(words)
    assert sizes(filled.fetch((0, 0)), words) == [3 * size]
    assert sizes(filled.fetch((0, 1)), words) == [2 * size]
    assert sizes(filled.fetch((0, 0), (1, 0)), words) == [3 * size, 0]


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (-1, 1), (500, 0)])
def test_it_answers_at_once_when_nothing_may_be_waited_for(filled, words, max_wait_ms, min_bytes):
    answer = filled.fetch((0, 3), max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    assert sizes(answer, words) == [0]


def test_it_waits_for_an_append_and_its_commit(node, words):
    answer = node.fetch((0, 0), (1, 0))
    node.append((1, words.batch()))
    assert not answer.is_done, "appended, but not durable yet"
    node.executor.run_all()
    assert answer.is_done
    assert sizes(answer, words) == [0, len(words.batch())]
    assert node.replica_manager._fetches.purgatory.watched_count == 0


def test_it_waits_until_min_bytes_are_there_together(filled, words):
    size = batch_size(words)
    answer = filled.fetch((0, 3), (1, 0), min_bytes=3 * size)
    for index in (0, 1):
        filled.append((index, words.batch(b"x" * 1000)))
        assert not answer.is_done
    filled.append((0, words.batch(b"x" * 1000)))
    assert sizes(answer, words) == [2 * size, size]


def test_fetches_of_very_many_partitions_count_for_several(make_node, words):
    node = make_node(partitions=60)
    everything = [(index, 0) for index in range(60)]
    waiting = [node.fetch(*everything) for _ in range(167)]
    assert not any(answer.is_done for answer in waiting), "10,020 partitions, none too many before"
    assert sizes(node.fetch((0, 0)), words) == [0], "answered at once"
    node.clock.advance(1)
    assert all(answer.is_done for answer in waiting)
    assert not node.fetch((0, 0)).is_done


def test_it_gives_what_there_is_when_its_time_is_over(filled, words):
    answer = filled.fetch((0, 0), min_bytes=10**6, max_wait_ms=300)
    filled.clock.advance(0.29)
    assert not answer.is_done
    filled.clock.advance(0.02)
    assert sizes(answer, words) == [3 * batch_size(words)]
    assert filled.clock.timers() == 0


def test_an_error_of_a_known_partition_ends_the_wait(filled, words):
    out_of_range, empty = words.result_of(filled.fetch((0, 9), (1, 0)))
    assert (out_of_range.code, empty.code) == (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE)
    assert out_of_range[2:5] == (-1, -1, -1)


def test_who_may_have_been_replaced_calls_no_offset_out_of_range(node, words):
    """The next leader may have it: a consumer that is told so begins anew, or skips records."""
    node.append((0, words.batch()))
    node.executor.run_all()
    partition = node.partition()
    partition.may_take = lambda one: one is not partition
    assert node.fetch((0, 7), max_wait_ms=0)[0].code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as caught:
        partition.delete_records(7)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.fetch((0, 0), max_wait_ms=0)[0].region is not None
    partition.may_take = lambda _: True
    assert node.fetch((0, 7), max_wait_ms=0)[0].code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("offset", [-1, -5, 4, 2**62])
def test_offsets_outside_the_log(filled, words, offset):
    (fetched,) = words.result_of(filled.fetch((0, offset)))
    assert fetched.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, "NONE"), (2, "NONE"), (1, "FENCED_LEADER_EPOCH"), (3, "UNKNOWN_LEADER_EPOCH")],
)
def test_the_leader_epoch_that_the_client_knows_is_checked(filled, words, epoch, code):
    filled.change(filled.led(0, epoch=2))
    spec = FetchSpec(TopicPartition("t", 0), 0, 10**6, epoch)
    limits = FetchLimits(0, 1, 10**6, Isolation.READ_UNCOMMITTED)
    (fetched,) = words.result_of(filled.replica_manager.fetch([spec], limits))
    assert fetched.code is ErrorCode[code]


def test_no_partitions_need_no_wait(filled, words):
    assert words.result_of(filled.fetch(max_wait_ms=500)) == []


def test_at_least_one_batch_comes_of_the_first_partition_with_data(filled, words):
    filled.append((1, words.batch(b"x" * 1000)))
    size = batch_size(words)
    assert sizes(filled.fetch((0, 0), (1, 0), max_bytes=10), words) == [size, 0]
    assert sizes(filled.fetch((0, 3), (1, 0), max_bytes=10), words) == [0, size]


def test_the_whole_answer_stays_within_max_bytes(filled, words):
    size = batch_size(words)
    filled.append((1, words.batch(b"x" * 1000)))
    first, second = sizes(filled.fetch((0, 0), (1, 0), max_bytes=3 * size + size // 2), words)
    assert first == 3 * size
    assert second <= size // 2


def test_a_topic_deleted_meanwhile_ends_the_wait(node, words):
    answer = node.fetch((0, 0))
    change = node.led(0)
    node.change(type(change)("t", change.topic_id, 0, change.new, None))
    (fetched,) = words.result_of(answer)
    assert fetched.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_failed_log_ends_the_wait(node, words):
    answer = node.fetch((0, 0))
    node.append((0, words.batch()))
    node.disk.fail(DiskCall.SYNC)
    node.executor.run_all()
    (fetched,) = words.result_of(answer)
    assert fetched.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_many_waiting_fetches_are_all_woken_by_one_append(node, words):
    answers = [node.fetch((0, 0), (1, 0)) for _ in range(500)]
    assert all(isinstance(answer, Pending) for answer in answers)
    node.append((0, words.batch()))
    node.executor.run_all()
    assert all(answer.is_done for answer in answers)
    assert node.replica_manager._fetches.purgatory._watchers == {}


def test_an_unreadable_file_is_a_storage_error_and_wakes_the_others(
    node, words, caplog, monkeypatch
):
    answers = [node.fetch((0, 0), max_wait_ms=10_000), node.fetch((0, 0), max_wait_ms=10_000)]
    produced = node.append((0, words.batch()))

    def unreadable(*_, **__):
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Log, "read", unreadable)
        node.executor.run_all()
        assert produced.is_done
        first, second = (words.result_of(answer)[0] for answer in answers)
        assert first.code is second.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "cannot be read" in caplog.text
    (fetched,) = words.result_of(node.fetch((0, 0)))
    assert fetched.code is ErrorCode.NONE


def test_a_fetch_that_nobody_waits_for_is_forgotten(filled):
    answer = filled.fetch((0, 3), (1, 0))
    assert filled.replica_manager._fetches.purgatory.watched_count == 1
    answer.cancel()
    assert filled.replica_manager._fetches.purgatory.watched_count == 0
    assert filled.replica_manager._fetches.purgatory._watchers == {}


def test_a_fetch_of_who_hurries_is_answered_with_what_there_is(filled, words):
    answer = filled.fetch((0, 3), (1, 0))
    answer.hurry()
    assert sizes(answer, words) == [0, 0]
    assert filled.replica_manager._fetches.purgatory.watched_count == 0
    answer.hurry()
