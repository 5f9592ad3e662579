"""Appends that come while one is under way share a batch: order, errors, sizes and the end."""

import pytest

from ottla.coordinator.records import EndMarker, ProducerIdAndEpoch
from ottla.coordinator.shard import ShardState
from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode
from ottla.records.batch import read_header
from ottla.records.compression import Codec
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker


@pytest.fixture
def one(make_groups):
    """All groups in one partition."""
    return make_groups(partitions=1)


def batches(groups, index=0):
    """How many records each batch of a partition has, from the first on."""
    log = groups.partition(index).log
    data = log.read(
        0, max_bytes=1 << 24, upper_offset=log.log_end_offset, min_one_message=True
    ).region.read()
    found, position = [], 0
    while position < len(data):
        header = read_header(memoryview(data), position)
        found.append(header.last_offset_delta + 1)
        position += header.size_bytes
    return found


def codes(words, commits):
    return [getattr(words.result_of(one), "code", words.result_of(one)) for one in commits]


def test_commits_that_come_during_a_sync_are_one_batch_and_one_sync(one, words):
    commits = [one.commit(f"g{number}", (0, number)) for number in range(20)]
    assert one.partition(0).log.log_end_offset == 1, "the others wait for the first"
    one.executor.run_next()
    assert [commit.is_done for commit in commits] == [True] + [False] * 19
    assert one.fetch("g1") == {}, "nobody reads what is not durable"
    one.executor.run_next()
    assert codes(words, commits) == [[ErrorCode.NONE]] * 20
    assert batches(one) == [1, 19]
    before = [one.fetch(f"g{number}") for number in range(20)]
    assert before == [{("t", 0): number} for number in range(20)]
    one.restart()
    assert [one.fetch(f"g{number}") for number in range(20)] == before


def test_what_is_gathered_is_replayed_with_its_own_offsets(one):
    """Of two offsets of a partition the later one in the log counts, also behind a transaction."""
    for number in range(12):
        one.commit("g", *((index, 10 * number + index) for index in range(number % 4 + 1)))
    one.settle()
    live = one.shard("g").machine.offsets._committed
    one.restart()
    assert one.shard("g").machine.offsets._committed == live


def test_a_deletion_stays_behind_the_commits_before_it_and_before_those_behind(one, words):
    early = [one.commit("g", (0, offset)) for offset in range(3)]
    deleted = one.coordinator.delete_group("g")
    late = [one.commit("g", (1, offset)) for offset in range(3)]
    one.settle()
    assert codes(words, early + late) == [[ErrorCode.NONE]] * 6
    assert words.result_of(deleted) is None
    assert one.fetch("g") == {("t", 1): 2}
    one.restart()
    assert one.fetch("g") == {("t", 1): 2}


def test_a_commit_of_an_old_generation_is_refused_behind_those_that_wait(one, words):
    member, generation = one.member("g")
    good = [one.commit("g", (0, n), member_id=member, generation=generation) for n in range(3)]
    old = one.commit("g", (0, 99), member_id=member, generation=generation - 1)
    assert words.result_of(old).code is ErrorCode.ILLEGAL_GENERATION
    one.settle()
    assert codes(words, good) == [[ErrorCode.NONE]] * 3
    assert one.fetch("g") == {("t", 0): 2}


def test_a_transaction_keeps_its_place_among_what_is_gathered(one, words):
    from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit

    def in_transaction(offset):
        topic = TopicCommit("t", [(0, offset, -1, "")])
        producer = ProducerIdAndEpoch(7, 0)
        asked = CommitRequest("g", "", None, -1, -1, [topic], False, producer=producer)
        return one.coordinator.commit_offsets(asked)

    before = [one.commit("g", (0, offset)) for offset in (1, 2, 3)]
    pending = in_transaction(4)
    between = [one.commit("g", (1, offset)) for offset in (5, 6)]
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    batch = build_end_transaction_marker(marker, producer_id=7, producer_epoch=0, timestamp_ms=1)
    ended = one.coordinator.end_transaction(0, batch, EndMarker(7, True), 1)
    behind = one.commit("g", (2, 7))
    one.settle()
    assert codes(words, [*before, pending, *between, behind]) == [[ErrorCode.NONE]] * 7
    assert words.result_of(ended) is None
    assert batches(one) == [1, 2, 1, 2, 1, 1]
    expected = {("t", 0): 4, ("t", 1): 6, ("t", 2): 7}
    assert one.fetch("g") == expected
    one.restart()
    assert one.fetch("g") == expected


def test_a_sync_that_fails_is_told_to_each_of_a_batch(one, words):
    one.commit("g", (0, 1))
    one.settle()
    one.node.disk.fail(DiskCall.SYNC, nth=2)
    commits = [one.commit(f"g{number}", (0, number)) for number in range(5)]
    one.settle()
    assert codes(words, commits) == [[ErrorCode.NONE], *[ErrorCode.NOT_COORDINATOR] * 4]
    assert one.runtime.has_failed(0)


def test_a_log_that_fails_refuses_what_was_not_appended_yet(one, words):
    one.node.disk.fail(DiskCall.SYNC)
    commits = [one.commit(f"g{number}", (0, number)) for number in range(5)]
    one.settle()
    assert codes(words, commits) == [ErrorCode.NOT_COORDINATOR] * 5
    assert one.runtime.has_failed(0)


def test_a_leadership_that_goes_refuses_what_was_not_appended_yet(one, words):
    commits = [one.commit(f"g{number}", (0, number)) for number in range(5)]
    shard = one.shard("g0")
    one.lead(0, leader=2, epoch=1)
    one.settle()
    assert codes(words, commits) == [ErrorCode.NOT_COORDINATOR] * 5
    assert shard.state is ShardState.CLOSED
    assert one.partition(0).log.log_end_offset == 1
    one.lead(0, epoch=2)
    one.settle()
    committed = one.commit("g1", (0, 7))
    one.settle()
    assert codes(words, [committed]) == [[ErrorCode.NONE]]
    assert one.fetch("g2") == {}


def test_a_stop_refuses_what_was_not_appended_yet(one, words):
    commits = [one.commit(f"g{number}", (0, number)) for number in range(3)]
    one.coordinator.stop()
    assert [commit.is_done for commit in commits] == [False, True, True]
    one.settle()
    assert codes(words, commits) == [[ErrorCode.NONE], *[ErrorCode.NOT_COORDINATOR] * 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_stays_below_its_topics_limit(make_groups, words, codec):
    one = make_groups(partitions=1, max_message_bytes=1000, codec=codec)
    commits = [one.commit(f"group {number}", (0, 1), (1, 2)) for number in range(30)]
    one.settle()
    assert codes(words, commits) == [[ErrorCode.NONE] * 2] * 30
    sizes = batches(one)
    assert sum(sizes) == 60
    assert 3 < max(sizes) < 20
    assert all(size % 2 == 0 for size in sizes), "no commit is parted"


def test_one_commit_that_is_too_large_is_refused_alone(make_groups, words):
    one = make_groups(partitions=1, max_message_bytes=1000)
    small = [one.commit(f"g{number}", (0, 1)) for number in range(2)]
    large = one.commit("large", *((index, 1) for index in range(100)))
    behind = one.commit("behind", (0, 1))
    one.settle()
    assert words.result_of(large).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes(words, [*small, behind]) == [[ErrorCode.NONE]] * 3


def test_a_limit_that_falls_meanwhile_parts_what_was_gathered(one, words):
    commits = [one.commit(f"g{number}", (0, 1)) for number in range(20)]
    partition = one.partition(0)
    partition.log.config = partition.log.config._replace(max_message_bytes=300)
    one.settle()
    assert codes(words, commits) == [[ErrorCode.NONE]] * 20
    assert batches(one) == [1] * 20


def test_members_that_join_during_a_sync_share_a_batch_with_commits(one, words):
    """One mechanism for all that a shard writes."""
    first = one.commit("other", (0, 1))
    joined = one.join("g")
    one.clock.advance(0)
    one.commit("other", (0, 2))
    one.settle()
    assert codes(words, [first]) == [[ErrorCode.NONE]]
    assert words.result_of(joined).generation == 1
    assert batches(one)[:2] == [1, 2]


def test_a_fault_while_a_batch_is_built_is_told_and_holds_nobody_up(one, words, monkeypatch):
    class Fault(Exception):
        """What nobody thought of."""

    def faulty(*_, **__):
        raise Fault

    commits = [one.commit(f"g{number}", (0, 1)) for number in range(4)]
    with monkeypatch.context() as context:
        context.setattr(one.node.replica_manager.appends, "one", faulty)
        one.executor.run_next()
    assert codes(words, commits) == [[ErrorCode.NONE], *[ErrorCode.UNKNOWN_SERVER_ERROR] * 3]
    again = one.commit("g1", (0, 2))
    deleted = one.coordinator.delete_group("g0")
    one.settle()
    assert codes(words, [again]) == [[ErrorCode.NONE]]
    assert words.result_of(deleted) is None


def test_memory_follows_in_order_when_a_gathered_batch_is_committed_at_once(one, words):
    """As behind a change of ``flush.messages``: the log does not wait for its sync any more."""
    commits = [one.commit("g", (0, offset)) for offset in (1, 2, 3)]
    partition = one.partition(0)
    partition.log.config = partition.log.config._replace(flush_messages=1000)
    one.settle()
    assert codes(words, commits) == [[ErrorCode.NONE]] * 3
    before = one.fetch("g")
    one.restart()
    assert one.fetch("g") == before == {("t", 0): 3}
