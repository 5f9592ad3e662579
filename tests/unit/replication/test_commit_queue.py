"""One batch for one partition, waiting for its commit: order, refusals, patience."""

from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.log.health import LogState
from ottla.pending import Pending
from ottla.records.builder import build_batch
from ottla.records.record import Record


def append(node, batch, *, index=0, acks=-1, timeout_ms=30_000):
    where = TopicPartition("t", index)
    return node.replica_manager.appends.one(
        where, memoryview(bytearray(batch)), acks=acks, timeout_ms=timeout_ms
    )


def code(pending):
    assert pending.is_done, "still waiting"
    (outcome,) = pending.value
    return getattr(outcome, "code", ErrorCode.NONE)


def offsets(pendings):
    return [pending.value[0].base_offset for pending in pendings]


def test_appends_are_answered_in_order_by_the_flushes_that_hold_them(node, words):
    first = append(node, words.batch())
    assert isinstance(first, Pending)
    assert first.overlaps
    later = [append(node, words.batch()) for _ in range(3)]
    node.executor.run_next()
    assert first.is_done
    assert not any(pending.is_done for pending in later), "the first flush began before them"
    node.executor.run_all()
    assert offsets([first, *later]) == [0, 1, 2, 3]


def test_acks_of_the_leader_alone_wait_for_nothing(node, words):
    assert append(node, words.batch(), acks=1).base_offset == 0


def test_partitions_do_not_wait_for_each_other(node, words):
    one, other = append(node, words.batch()), append(node, words.batch(), index=1)
    node.executor.run_next()
    assert (one.is_done, other.is_done) == (True, False)
    node.executor.run_all()
    assert other.is_done


def test_a_failed_flush_is_told_to_all_that_wait(node, words):
    waiting = [append(node, words.batch()) for _ in range(3)]
    node.disk.fail(DiskCall.SYNC)
    node.executor.run_all()
    assert [code(pending) for pending in waiting] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3


def test_a_flush_that_ends_well_acknowledges_nothing_of_a_log_that_was_given_up(node, words):
    """Another log of its directory has met the error; the kernel tells each file its own, once."""
    waiting = [append(node, words.batch()), node.append((0, words.batch()), (1, words.batch()))]
    node.partition().log.take_out(OSError("its disk failed"))
    node.executor.run_all()
    assert code(waiting[0]) is ErrorCode.KAFKA_STORAGE_ERROR
    assert words.codes(waiting[1]) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


def test_a_full_disk_does_not_hold_back_what_was_synced(node, words):
    waiting = append(node, words.batch())
    node.partition().log.state = LogState.FULL
    node.executor.run_all()
    assert code(waiting) is ErrorCode.NONE
    node.partition().log.state = LogState.OPEN


def test_a_commit_during_a_stall_is_heard_of_before_the_patience_ends(node, words):
    committed = append(node, words.batch())
    node.clock.stall(60)
    assert not committed.is_done
    node.executor.run_all()
    assert offsets([committed]) == [0]
    uncommitted = append(node, words.batch())
    node.clock.stall(60)
    node.clock.advance(1)
    assert code(uncommitted) is ErrorCode.REQUEST_TIMED_OUT


def test_leadership_that_moves_is_told_to_all_that_wait(node, words):
    waiting = [append(node, words.batch()) for _ in range(2)]
    change = node.led(0, leader=2, epoch=1)
    node.change(change)
    assert [code(pending) for pending in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    node.executor.run_all()


def test_a_deleted_topic_is_told_to_all_that_wait(node, words):
    waiting = append(node, words.batch())
    node.change(node.led(0)._replace(old=node.led(0).new, new=None))
    assert code(waiting) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node.executor.run_all()


def test_each_waits_as_long_as_it_said(node, words):
    patient = append(node, words.batch(), timeout_ms=30_000)
    hasty = append(node, words.batch(), timeout_ms=2_000)
    at_once = [append(node, words.batch(), timeout_ms=timeout) for timeout in (0, -1, 999)]
    node.clock.advance(0.99)
    assert not any(one.is_done for one in at_once), "no timeout is shorter than an fsync"
    node.clock.advance(0.02)
    assert {code(one) for one in at_once} == {ErrorCode.REQUEST_TIMED_OUT}
    assert not hasty.is_done
    node.clock.advance(1)
    assert code(hasty) is ErrorCode.REQUEST_TIMED_OUT
    assert not patient.is_done
    node.executor.run_all()
    assert offsets([patient]) == [0]
    late = append(node, words.batch(), timeout_ms=1_000)
    node.clock.advance(30)
    assert code(late) is ErrorCode.REQUEST_TIMED_OUT, "a timer of an earlier one did not stop it"
    node.executor.run_all()


def test_a_resend_that_waits_with_its_original_is_answered_with_its_offsets(node):
    batch = build_batch([Record(value=b"v", timestamp=1)], producer_id=7, base_sequence=0)
    original, resend = append(node, batch), append(node, batch)
    assert not resend.is_done
    node.executor.run_all()
    assert offsets([original, resend]) == [0, 0]


def test_an_unknown_partition_is_refused_at_once(node, words):
    refusal = append(node, words.batch(), index=7)
    assert refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_goes_leaves_no_timer_behind(node, words):
    before = node.clock.timers()
    committed = append(node, words.batch(), timeout_ms=2**31 - 1)
    node.executor.run_all()
    assert code(committed) is ErrorCode.NONE
    uncommitted = append(node, words.batch(), timeout_ms=2**31 - 1)
    state = node.partition().state
    node.change(node.led(0)._replace(old=state, new=None))
    node.executor.run_all()
    assert code(uncommitted) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert node.clock.timers() == before
