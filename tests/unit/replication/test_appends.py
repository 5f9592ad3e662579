"""When a producer hears "done", and what a consumer sees by then."""

import asyncio
import gc
from types import TracebackType

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.records.batch import read_header
from ottla.records.compression import Codec
from ottla.replication.partition import Partition


def offsets(answer, words):
    return [outcome.base_offset for outcome in words.result_of(answer)]


def test_acks_all_waits_for_the_flush_and_only_then_shows_the_records(node, words):
    answer = node.append((0, words.batch()))
    assert isinstance(answer, Pending)
    assert answer.overlaps
    assert not answer.is_done
    assert node.partition().high_watermark == 0
    assert node.read() == b""
    assert node.executor.waiting == 1
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]
    assert node.partition().high_watermark == 1
    assert len(node.read()) > 0


def test_acks_one_answers_before_the_flush_but_shows_nothing_yet(node, words):
    answer = node.append((0, words.batch()), acks=1)
    assert words.codes(answer) == [ErrorCode.NONE]
    assert node.read() == b""
    node.executor.run_all()
    assert len(node.read()) > 0


def test_acks_none_is_flushed_and_shown_too(node, words):
    assert words.codes(node.append((0, words.batch()), acks=0)) == [ErrorCode.NONE]
    node.executor.run_all()
    assert node.partition().high_watermark == 1


def test_without_flushes_asked_for_everything_is_done_at_once(make_node, words):
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    answer = node.append((0, words.batch()))
    assert words.codes(answer) == [ErrorCode.NONE]
    assert node.executor.waiting == 0
    assert len(node.read()) > 0


def test_appends_during_a_flush_share_the_next_one(node, words):
    first = node.append((0, words.batch()))
    later = [node.append((0, words.batch())) for _ in range(50)]
    assert node.executor.waiting == 1
    before = node.disk.counts[DiskCall.SYNC]
    assert node.executor.run_next()
    assert first.is_done
    assert not any(answer.is_done for answer in later), "their bytes came after that sync began"
    assert node.executor.waiting == 1
    assert node.executor.run_next()
    assert all(answer.is_done for answer in later)
    assert node.executor.waiting == 0
    assert node.disk.counts[DiskCall.SYNC] - before <= 3
    assert offsets(later[-1], words) == [50]


def test_partitions_flush_side_by_side_and_an_append_waits_for_all_of_its_own(node, words):
    answer = node.append((0, words.batch()), (1, words.batch()))
    assert node.executor.waiting == 2
    node.executor.run_next()
    assert not answer.is_done
    node.executor.run_next()
    assert words.codes(answer) == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_failed_fsync_acknowledges_nothing_and_takes_the_log_offline(node, words):
    good = node.append((0, words.batch()))
    node.executor.run_all()
    assert good.is_done
    answers = [node.append((0, words.batch())) for _ in range(3)]
    node.disk.fail(DiskCall.SYNC)
    node.executor.run_all()
    for answer in answers:
        assert words.codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.partition().high_watermark == 1, "what failed to be synced is never shown"
    assert words.codes(node.append((0, words.batch()))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.fetch((0, 0), max_wait_ms=0)[0].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.executor.waiting == 0, "a failed sync is never tried again"
    assert words.codes(node.append((1, words.batch()))) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_full_disk_is_told_and_survived(node, words):
    node.disk.fail(DiskCall.WRITE, errno=28)
    assert words.codes(node.append((0, words.batch()))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    node.measure_space()
    answer = node.append((0, words.batch()))
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]
    assert offsets(answer, words) == [0]


def test_one_refused_partition_does_not_disturb_the_others(node, words):
    broken = words.batch()
    broken[-1] ^= 1
    answer = node.append((0, words.batch()), (1, broken), (7, words.batch()))
    node.executor.run_all()
    assert words.codes(answer) == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    starts = [status.log_start_offset for status in words.result_of(answer)]
    assert starts[1:] == [-1, -1], "as Kafka: these never reached the log"


def test_a_refusal_by_the_log_tells_the_log_start_offset(node, words):
    wrong_count = words.batch(b"a", b"b", base_offset=5)
    (status,) = words.result_of(node.append((0, wrong_count)))
    assert (status.code, status.log_start_offset) == (ErrorCode.INVALID_RECORD, 0)


def test_a_partition_named_twice_in_a_request_is_appended_to_twice(node, words):
    answer = node.append((0, words.batch()), (0, words.batch()))
    node.executor.run_all()
    assert offsets(answer, words) == [0, 1]
    assert not len(node.partition().commits)


def test_an_append_that_is_not_flushed_in_time_times_out(node, words):
    answer = node.append((0, words.batch()), timeout_ms=1000)
    node.clock.advance(1.1)
    assert words.codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]
    node.executor.run_all()
    assert node.partition().high_watermark == 1


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 1])
def test_a_request_without_patience_is_answered_when_the_flush_is_quick(node, words, timeout_ms):
    answer = node.append((0, words.batch()), (1, words.batch()), timeout_ms=timeout_ms)
    node.clock.advance(0.9)
    assert not answer.is_done
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE] * 2


def test_too_few_in_sync_replicas_refuse_acks_all_only(make_node, words):
    node = make_node(min_insync_replicas=2)
    assert words.codes(node.append((0, words.batch()))) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert words.codes(node.append((0, words.batch()), acks=1)) == [ErrorCode.NONE]


def test_a_deleted_topic_answers_its_waiting_producers(node, words):
    answer = node.append((0, words.batch()))
    node.change(gone(node.led(0)))
    assert words.codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    node.executor.run_all()
    assert node.partition() is None
    assert words.codes(node.append((0, words.batch()))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def gone(change):
    return type(change)(change.topic, change.topic_id, change.partition, change.new, None)


def test_a_lost_leadership_answers_waiting_producers(node, words):
    answer = node.append((0, words.batch()))
    node.change(node.led(0, leader=2, epoch=1))
    assert words.codes(answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert words.codes(node.append((0, words.batch()))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    node.executor.run_all()


def test_a_large_compressed_batch_is_opened_in_the_executor(node, words):
    data = words.large_batch()
    answer = node.append((0, data))
    assert isinstance(answer, Pending)
    assert not answer.overlaps, "its successor must not be appended before it"
    assert node.partition().log.log_end_offset == 0
    node.executor.run_next()
    assert node.partition().log.log_end_offset == 1
    assert not answer.is_done
    node.executor.run_all()
    assert offsets(answer, words) == [0]
    assert len(node.read()) == len(data)


def test_the_bytes_of_a_large_batch_may_be_reused_after_the_call(node, words):
    """The frame is only valid during the call; the executor must work on bytes of its own."""
    view = memoryview(bytearray(words.large_batch()))
    answer = node.replica_manager.appends.many(
        [(TopicPartition("t", 0), view)], acks=-1, timeout_ms=1000
    )
    view[:] = bytes([0xDD]) * len(view)
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]
    assert b"\xdd" * 100 not in node.read()


def test_a_broken_large_batch_is_refused_and_the_rest_appended(node, words):
    broken = words.large_batch()
    broken[-5] ^= 0xFF
    answer = node.append((0, broken), (1, words.large_batch(1)))
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]


def test_a_partition_that_takes_nothing_says_so_before_it_judges_a_batch(make_node, words):
    node = make_node(min_insync_replicas=2)
    broken = bytearray(words.large_batch())
    broken[-1] ^= 1
    durable, stored = node.append((0, broken)), node.append((0, broken), acks=1)
    node.executor.run_all()
    assert words.codes(durable) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert words.codes(stored) == [ErrorCode.CORRUPT_MESSAGE]


def test_a_large_batch_gets_its_topics_codec_in_the_executor(make_node, words):
    node = make_node(compression=Codec.ZSTD)
    answer = node.append((0, words.batch(bytes(20_000))))
    assert node.partition().log.log_end_offset == 0
    node.executor.run_all()
    assert offsets(answer, words) == [0]
    header = read_header(node.read())
    assert (header.codec, header.size_bytes < 1000) == (Codec.ZSTD, True)


def test_a_small_batch_that_unfolds_is_recoded_in_the_executor(words, make_node):
    """What compression.type does to a few bytes may be long work with a high level."""
    node = make_node(compression=Codec.ZSTD, compression_level=22)
    answer = node.append((0, words.batch(bytes(100_000), codec=Codec.GZIP)))
    assert node.partition().log.log_end_offset == 0
    node.executor.run_all()
    assert offsets(answer, words) == [0]
    assert read_header(node.read()).codec == Codec.ZSTD


def test_those_before_a_large_batch_go_ahead_and_those_behind_it_keep_their_order(node, words):
    small, large = words.batch(b"small"), words.large_batch()
    answer = node.append((0, small), (0, large), (0, small), (1, small))
    assert not answer.overlaps, "its successor must not be appended before the last of them"
    ends = [node.partition(index).log.log_end_offset for index in (0, 1)]
    assert ends == [1, 0]
    node.executor.run_all()
    assert offsets(answer, words) == [0, 1, 2, 0]
    assert len(node.read()) == len(small) + len(large) + len(small)


def test_a_small_batch_with_large_contents_is_opened_in_the_executor(node, words):
    """A compression bomb of a few kilobytes must not stall the loop."""
    bomb = words.batch(bytes(20_000_000), codec=Codec.ZSTD)
    assert len(bomb) < 4096
    good = words.batch(b"good")
    answer = node.append((0, good), (1, bomb), (0, good))
    assert not answer.overlaps
    assert node.partition(0).log.log_end_offset == 1, "what comes before it is appended at once"
    assert node.partition(1).log.log_end_offset == 0
    node.executor.run_all()
    assert offsets(answer, words) == [0, 0, 1]


def test_a_bomb_is_refused_and_the_rest_appended(node, words):
    bomb = words.batch(bytes(100_000_000), codec=Codec.ZSTD)
    answer = node.append((0, words.batch()), (1, bomb), (0, words.batch()))
    node.executor.run_all()
    codes = [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE]
    assert words.codes(answer) == codes
    assert node.partition(1).log.log_end_offset == 0


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_duplicates_of_an_idempotent_producer_are_acknowledged_once_stored(node, words, acks):
    fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    first = node.append((0, words.batch(**fields)), acks=acks)
    node.executor.run_all()
    again = node.append((0, words.batch(**fields)), acks=acks)
    node.executor.run_all()
    assert words.codes(first) == [ErrorCode.NONE]
    assert words.codes(again) in ([ErrorCode.NONE], [ErrorCode.DUPLICATE_SEQUENCE_NUMBER])


def test_a_duplicate_waits_for_the_flush_that_its_original_waits_for(node, words):
    resent = words.batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    first = node.append((0, resent))
    node.append((0, words.batch()), acks=1)
    again = node.append((0, resent))
    assert isinstance(again, Pending)
    assert not again.is_done
    node.executor.run_next()
    assert first.is_done
    assert again.is_done, "the flush that covers the original covers its duplicate"
    assert offsets(first, words) == offsets(again, words) == [0]
    assert node.partition().log.log_end_offset == 3


def test_a_duplicate_of_what_is_committed_is_answered_at_once(node, words):
    resent = words.batch(producer_id=7, producer_epoch=0, base_sequence=0)
    node.append((0, resent))
    node.executor.run_all()
    answer = node.append((0, resent))
    assert offsets(answer, words) == [0]
    assert words.result_of(answer)[0].log_append_time_ms == 1_700_000_000_000
    assert node.executor.waiting == 0


def test_a_duplicate_is_refused_once_the_flush_of_its_original_failed(node, words):
    resent = words.batch(producer_id=7, producer_epoch=0, base_sequence=0)
    first = node.append((0, resent))
    again = node.append((0, resent))
    node.disk.fail(DiskCall.SYNC)
    node.executor.run_all()
    assert words.codes(first) == words.codes(again) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert words.codes(node.append((0, resent))) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_gap_is_refused_with_the_log_start_offset(node, words):
    node.append((0, words.batch(producer_id=7, producer_epoch=0, base_sequence=0)))
    answer = node.append((0, words.batch(producer_id=7, producer_epoch=0, base_sequence=2)))
    (refusal,) = words.result_of(answer)
    assert (refusal.code, refusal.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)


def test_a_large_duplicate_analysed_twice_at_once_is_written_once(node, words):
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    large = words.large_batch(**fields)
    first, again = node.append((0, large)), node.append((0, large))
    node.executor.run_all()
    assert offsets(first, words) == offsets(again, words) == [0]
    assert node.partition().log.log_end_offset == 1


def test_a_leader_of_several_starts_from_what_was_committed(make_node, words):
    node = make_node(partitions=0)
    where = TopicPartition("t", 0)
    log = node.log_manager.create(where, b"0123456789abcdef")
    for _ in range(3):
        log.append(memoryview(words.batch()), leader_epoch=0)
    log.flush()
    for known, expected in ((2, 2), (99, 3), (0, 0)):
        node.log_manager.high_watermarks[where] = known
        node.replica_manager._partitions.clear()
        node.change(node.led(0, isr=(1, 2)))
        assert node.partition().high_watermark == expected
        node.check()


async def test_a_wait_for_durability_ends_under_constant_load(make_node, words):
    node = make_node(flush_messages=2)
    for _ in range(3):
        node.append((0, words.batch()), acks=1)
    waiting = asyncio.ensure_future(node.partition().flush_to(3))
    for _ in range(10):
        await asyncio.sleep(0)
        for _ in range(2):  # the next flush is due before this one ends
            node.append((0, words.batch()), acks=1)
        node.executor.run_next()
        if waiting.done():
            break
    assert waiting.done()
    node.executor.run_all()


async def test_a_wait_for_durability_ends_when_the_disk_refuses(make_node, words):
    node = make_node(flush_messages=10)
    node.append((0, words.batch()), acks=1)
    node.disk.fail(DiskCall.WRITE, errno=28, lasting=True)
    waiting = asyncio.ensure_future(node.partition().flush_to(1))
    await asyncio.sleep(0)
    node.executor.run_all()
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        await waiting


def test_nothing_of_a_refused_batch_waits_for_the_garbage_collector(node, words):
    """An error that is kept holds its frames: the 64 MiB of a bomb, and the error itself."""
    bomb = words.batch(bytes(100_000_000), codec=Codec.GZIP)
    torn = bytearray(words.large_batch())
    torn[50_000:] = bytes(len(torn) - 50_000)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        answer = node.append((0, words.batch()), (1, bomb), (0, torn), (9, words.batch()))
        node.executor.run_all()
        assert words.codes(answer)[0] is ErrorCode.NONE
        assert ErrorCode.NONE not in words.codes(answer)[1:]
        gc.collect()
        circles = [one for one in gc.garbage if isinstance(one, KafkaError | TracebackType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not circles


# Appends that take long: each may roll its log.


@pytest.fixture
def slow_disk(make_node, monkeypatch):
    """A node whose appends keep the loop for 15 ms each; tells how many there were."""
    node = make_node(partitions=20)
    append, node.appended = Partition.append, 0

    def slow(partition, *args, **fields):
        node.clock.hold(0.015)
        node.appended += 1
        return append(partition, *args, **fields)

    monkeypatch.setattr(Partition, "append", slow)

    def turn():
        """Let one turn of the loop happen, and whatever the executor has."""
        before = node.appended
        node.executor.run_all()
        node.clock.advance(0.001)
        return node.appended - before

    node.turn = turn
    return node


def until_done(node, answer):
    while not answer.is_done:
        assert node.turn() <= 4, "others have their turns"


def test_many_slow_appends_of_one_request_take_turns(slow_disk, words):
    batches = [(index % 20, words.batch(b"%d" % index)) for index in range(1000)]
    answer = slow_disk.append(*batches)
    assert slow_disk.appended == 2
    until_done(slow_disk, answer)
    assert slow_disk.appended == 1000
    assert offsets(answer, words) == [index // 20 for index in range(1000)], "in their order"


def test_a_topic_deleted_between_two_turns_gets_nothing_more(slow_disk, words):
    answer = slow_disk.append(*((index, words.batch()) for index in range(20)))
    slow_disk.turn()
    gone = [
        slow_disk.led(index)._replace(old=slow_disk.partition(index).state, new=None)
        for index in range(20)
    ]
    slow_disk.change(*gone)
    until_done(slow_disk, answer)
    codes = words.codes(answer)
    assert set(codes[slow_disk.appended :]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert slow_disk.appended <= 6


@pytest.mark.parametrize("acks", [0, 1])
def test_slow_appends_that_nobody_waits_for_take_turns_too(slow_disk, words, acks):
    answer = slow_disk.append(*((index, words.batch()) for index in range(20)), acks=acks)
    assert slow_disk.appended == 2
    until_done(slow_disk, answer)
    assert words.codes(answer) == [ErrorCode.NONE] * 20


def test_what_a_second_roll_leaves_during_a_flush_is_flushed_behind_it(make_node, words):
    """With Kafka's default ``flush.messages`` no count of records asks for that flush."""
    node = make_node(flush_messages=words.ASYNC_FLUSH, segment_bytes=200)
    for _ in range(3):  # Each but the first one rolls.
        node.append((0, words.batch(b"x" * 120)))
    log = node.partition().log
    assert [log.segment_count, len(log.segments.unsynced)] == [3, 1]
    node.executor.run_all()
    assert not log.segments.unsynced
    assert log.settled_offset == log.flushed_offset == 3
