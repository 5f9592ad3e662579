"""The runtime keeps order and durability, loads its log, and survives a broken log."""

import copy
import errno

import pytest

from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.records import EndMarker, ProducerIdAndEpoch
from ottla.coordinator.shard import ShardState
from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID
from ottla.log.append import own
from ottla.log.log import Log, LogState
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.record import Record


def test_a_commit_is_answered_and_seen_only_when_it_is_durable(groups, words):
    committed = groups.commit("g", (0, 5))
    assert not committed.is_done
    assert groups.fetch("g") == {}
    groups.settle()
    assert words.result_of(committed) == [ErrorCode.NONE]
    assert groups.fetch("g") == {("t", 0): 5}


def test_commits_in_flight_keep_their_order(groups, words):
    commits = [groups.commit("g", (0, offset)) for offset in range(10)]
    assert not any(commit.is_done for commit in commits)
    groups.executor.run_next()  # The first flush has the first commit alone.
    assert [commit.is_done for commit in commits] == [True] + [False] * 9
    assert groups.fetch("g") == {("t", 0): 0}
    groups.settle()
    assert groups.fetch("g") == {("t", 0): 9}


def test_what_runs_alone_waits_for_what_is_before_it_and_holds_up_what_comes_after(groups, words):
    first = groups.commit("g", (0, 1))
    deleted = groups.coordinator.delete_group("g")
    second = groups.commit("g", (0, 2))
    stable = groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=True)
    assert not any(one.is_done for one in (first, deleted, second, stable))
    groups.settle()
    assert words.result_of(deleted) is None
    assert words.result_of(second) == [ErrorCode.NONE]
    assert [one.committed.offset for one in words.result_of(stable)] == [2]
    groups.restart()
    assert groups.fetch("g") == {("t", 0): 2}


def test_a_join_behind_a_deletion_makes_a_new_group(groups, words):
    groups.commit("g", (0, 1))
    groups.settle()
    deleted = groups.coordinator.delete_group("g")
    joined = groups.join("g")
    groups.settle()
    groups.clock.advance(0)
    assert words.result_of(deleted) is None
    assert words.result_of(joined).generation == 1
    assert groups.fetch("g") == {}


def test_everything_survives_a_restart(groups, words):
    for group in map(str, range(50)):
        groups.commit(group, (0, 7), (1, 8))
    member, generation = groups.member("stable")
    groups.commit("stable", (0, 3), member_id=member, generation=generation)
    groups.settle()
    groups.restart()
    for group in map(str, range(50)):
        assert groups.fetch(group) == {("t", 0): 7, ("t", 1): 8}
    group = groups.group("stable")
    assert (group.state.value, group.generation, list(group.members)) == ("Stable", 1, [member])
    assert words.result_of(groups.beat("stable", member, generation)) is ErrorCode.NONE
    groups.clock.advance(9.9)
    assert list(group.members) == [member]
    groups.clock.advance(0.2)
    assert not group.members, "its session began anew with the restart, and is over"


def test_a_large_log_is_loaded_in_slices(make_groups):
    groups = make_groups(partitions=1, segment_bytes=200_000)
    for number in range(12_000):
        groups.commit("g", (number % 10, number))
    groups.settle()
    groups.coordinator.stop()
    groups.boot()
    turns = groups.executor.run_all()
    assert turns >= 4
    assert groups.fetch("g") == {("t", index): 11_990 + index for index in range(10)}


def test_while_it_loads_clients_are_asked_to_come_back(groups, words):
    groups.commit("g", (0, 5))
    groups.settle()
    groups.coordinator.stop()
    groups.boot()
    assert groups.shard("g").state is ShardState.LOADING
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert groups.fetch("g").code is loading
    assert words.result_of(groups.commit("g", (0, 6))).code is loading
    assert words.result_of(groups.join("g")).code is loading
    with pytest.raises(KafkaError) as refused:
        groups.coordinator.list_groups([], [])
    assert refused.value.code is loading
    groups.settle()
    assert groups.fetch("g") == {("t", 0): 5}


def test_leadership_comes_and_goes(groups, words):
    groups.commit("g", (0, 5))
    groups.settle()
    partition = groups.runtime.partition_for("g")
    waiting = groups.join("other")  # Waits for the delay to be over.
    groups.lead(0, 1, leader=2, epoch=1)
    assert words.result_of(waiting).code is ErrorCode.NOT_COORDINATOR
    assert groups.fetch("g").code is ErrorCode.NOT_COORDINATOR
    groups.lead(partition, epoch=2)
    groups.settle()
    assert groups.fetch("g") == {("t", 0): 5}


def test_a_stop_sends_members_away(groups, words):
    groups.member("g")
    joined, other = groups.join("g"), groups.join("new")
    groups.coordinator.stop()
    for waiting in (joined, other):
        assert words.result_of(waiting).code is ErrorCode.NOT_COORDINATOR


def garbage(key, value=b"\x00\x04nonsense", *, offset=0):
    return build_batch([Record(offset=offset, key=key, value=value)])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", b"x"),
        (b"\x00\x01\x00\x05a", b"\x00\x04"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x04nonsense"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x63"),
        (b"\x00\x02\x00\x01g", b"\x00\x03\x00\x7f"),
        (b"\x00\x02\x00\x05g", b"\x00\x03"),
    ],
)
def test_a_log_that_makes_no_sense_says_so_and_leaves_the_others_working(
    groups, words, caplog, key, value
):
    names = {groups.runtime.partition_for(name): name for name in "abcd"}
    for name in names.values():
        groups.commit(name, (0, 1))
    groups.settle()
    groups.partition(0).append(memoryview(garbage(key, value)), acks=1)
    groups.restart()
    assert "__consumer_offsets-0 is out of service" in caplog.text
    assert groups.runtime.has_failed(0)
    assert not groups.runtime.has_failed(1)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.fetch(names[0]).code is code
    assert words.result_of(groups.commit(names[0], (0, 2))).code is code
    assert groups.fetch(names[1]) == {("t", 0): 1}


def test_rotten_bytes_in_the_log_put_that_partition_out_of_service(groups, caplog):
    groups.commit("g", (0, 1))
    groups.settle()
    log = groups.partition(groups.runtime.partition_for("g")).log
    log.segments[0].file.write_at(70, b"\xff")
    groups.restart()
    assert "out of service" in caplog.text
    assert groups.fetch("g").code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_log_that_could_not_be_opened_is_not_taken_for_an_empty_one(groups, words, caplog):
    """Its groups were told that they had committed nothing, and read all again, or nothing."""
    log = groups.partition(groups.runtime.partition_for("g")).log
    log.take_out(OSError(errno.EIO, "Input/output error"))
    groups.restart()
    assert "out of service: its log is offline" in caplog.text
    assert groups.runtime.has_failed(groups.runtime.partition_for("g"))
    assert groups.fetch("g").code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_kinds_of_records_from_the_future_are_left_alone(groups, caplog):
    groups.commit("g", (0, 1))
    groups.settle()
    where = groups.runtime.partition_for("g")
    for _ in range(2):
        groups.partition(where).append(memoryview(garbage(b"\x00\x63future")), acks=1)
    groups.restart()
    assert caplog.text.count("records of type 99") == 1
    assert groups.fetch("g") == {("t", 0): 1}


def test_a_disk_that_fails_puts_the_coordinator_out_of_service(groups, words, caplog):
    groups.commit("g", (0, 1))
    groups.settle()
    where = groups.runtime.partition_for
    other = next(name for name in map(str, range(99)) if where(name) == where("g"))
    waiting = groups.join(other)
    groups.settle()
    groups.node.disk.fail(DiskCall.SYNC)
    commits = [groups.commit("g", (0, offset)) for offset in (2, 3)]
    groups.settle()
    for commit in commits:
        assert words.result_of(commit).code is ErrorCode.NOT_COORDINATOR
    assert words.result_of(waiting).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.fetch("g").code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_with_flushes_of_the_kernels_own_answers_come_at_once(make_groups, words):
    groups = make_groups(flush_messages=2**63 - 1)
    assert words.result_of(groups.commit("g", (0, 1))) == [ErrorCode.NONE]
    assert groups.fetch("g") == {("t", 0): 1}
    member, generation = groups.member("s")
    assert words.result_of(groups.beat("s", member, generation)) is ErrorCode.NONE


def test_more_than_a_batch_may_hold(make_groups, words):
    groups = make_groups(max_message_bytes=1000)
    too_much = groups.commit("g", *((index, index) for index in range(100)))
    assert words.result_of(too_much).code is ErrorCode.UNKNOWN_SERVER_ERROR
    for index in range(100):
        groups.commit("g", (index, index))
    groups.settle()
    deleted = groups.coordinator.delete_group("g")
    groups.settle()
    assert words.result_of(deleted) is None, "in several batches"
    groups.restart()
    assert groups.fetch("g") == {}


def transactional(groups, group, offset, producer_id=7):
    from ottla.coordinator.group.offsets.records import offset_records

    ((key, value),) = offset_records(group, "t", NULL_TOPIC_ID, [(0, offset, -1, "")], 1, -1)
    return build_batch(
        [Record(key=key, value=value)],
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
    )


@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_of_a_transaction_wait_for_its_marker(groups, words, is_committed):
    groups.commit("g", (0, 1))
    groups.settle()
    where = groups.shard("g").where
    manager = groups.node.replica_manager

    def append(batch):
        manager.appends.one(where, own(memoryview(batch)), acks=-1, timeout_ms=1000)
        groups.settle()
        groups.restart()

    append(transactional(groups, "g", 9))
    assert groups.fetch("g") == {("t", 0): 1}
    (unstable,) = words.result_of(
        groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=True)
    )
    assert (unstable.committed, unstable.code) == (None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    kind = ControlType.COMMIT if is_committed else ControlType.ABORT
    append(
        build_end_transaction_marker(
            EndTransactionMarker(kind, 0), producer_id=7, producer_epoch=0, timestamp_ms=1
        )
    )
    assert groups.fetch("g") == {("t", 0): 9 if is_committed else 1}
    assert groups.fetch("g", require_stable=True) == groups.fetch("g")


def test_topics_that_are_gone_are_forgotten(groups):
    from types import SimpleNamespace

    from ottla.metadata.image import MetadataDelta

    groups.commit("a", (0, 1))
    groups.commit("b", (0, 1), topic="other")
    groups.settle()
    groups.commit("a", (1, 1))  # On its way when the topic goes.
    gone = SimpleNamespace(name="t")
    groups.coordinator.apply(None, MetadataDelta(revision=2, topics_deleted=(gone,)))
    groups.settle()
    groups.restart()
    assert groups.fetch("a") == {}
    assert groups.fetch("b") == {("other", 0): 1}


def test_a_key_nobody_leads_here(groups):
    groups.topics.clear()
    groups.runtime.close()
    with pytest.raises(KafkaError) as refusal:
        groups.runtime.shard_for("g")
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR


def test_expiry_runs_by_the_clock_and_takes_the_group_too(make_groups, words):
    groups = make_groups(
        settings=words.SETTINGS._replace(
            offsets_retention_ms=60_000, offsets_retention_check_interval_ms=20_000
        )
    )
    groups.commit("simple", (0, 1))
    member, _ = groups.member("kept")
    groups.commit("kept", (0, 1), member_id=member, generation=1)
    groups.settle()
    for _ in range(3 * 8):
        groups.clock.advance(5)
        groups.beat("kept", member, 1)
        groups.settle()
    listed = {group.group_id for group in groups.coordinator.list_groups([], [])}
    assert listed == {"kept"}
    groups.restart()
    assert groups.fetch("simple") == {}


def test_texts_that_grow_too_long_to_be_stored(groups, words):
    """A client's bytes that are no UTF-8 become three bytes each."""
    name = "\ufffd" * 32_000
    too_long = ErrorCode.UNKNOWN_SERVER_ERROR
    assert words.result_of(groups.commit(name, (0, 1))).code is too_long
    assert words.result_of(groups.join(name)).code is too_long
    assert words.result_of(groups.join("g", new_member_id=name)).code is too_long
    assert groups.coordinator.list_groups([], []) == []
    joined = groups.join("g", client_id=name)
    groups.clock.advance(0)
    groups.settle()
    answer = words.result_of(joined)
    synced = groups.sync("g", answer.member_id, answer.generation)
    assert words.result_of(synced).code is too_long


def test_a_full_disk_is_no_failed_log(groups, words, monkeypatch):
    from ottla.replication.append import AppendRefusal

    refusal = AppendRefusal(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    with monkeypatch.context() as context:
        manager = groups.node.replica_manager
        context.setattr(manager.appends, "one", lambda *_, **__: refusal)
        refused = words.result_of(groups.commit("g", (0, 1)))
        assert refused.code is ErrorCode.NOT_COORDINATOR
    committed = groups.commit("g", (0, 2))
    groups.settle()
    assert words.result_of(committed) == [ErrorCode.NONE]


def test_a_log_that_opens_later_is_coordinated_then(groups, words):
    """A full disk may keep a log from being opened at a start; it is tried again."""
    groups.commit("g", (0, 5))
    groups.settle()
    index = groups.runtime.partition_for("g")
    sound = groups.partition(index)
    hosted = groups.node.replica_manager._partitions
    broken = hosted[sound.topic_partition] = doubled(sound)
    broken.log.state = LogState.FAILED
    groups.restart()
    assert groups.runtime.has_failed(index)
    hosted[sound.topic_partition] = sound
    assert not groups.runtime.has_failed(index)
    groups.settle()
    assert groups.fetch("g") == {("t", 0): 5}


def test_what_stands_in_for_a_log_that_cannot_be_opened_is_no_empty_coordinator(groups, words):
    """It would tell groups that they have committed nothing, and go on so when the log is back."""
    groups.commit("g", (0, 5))
    groups.settle()
    index = groups.runtime.partition_for("g")
    sound = groups.partition(index)
    hosted = groups.node.replica_manager._partitions
    broken = hosted[sound.topic_partition] = doubled(sound)
    broken.log.state = LogState.FAILED
    broken.log.log_end_offset = 0
    groups.restart()
    assert groups.runtime.has_failed(index)
    hosted[sound.topic_partition] = sound
    groups.coordinator.hosted(sound.topic_partition)
    groups.settle()
    shards = [shard for shard in groups.runtime.shards if shard.where == sound.topic_partition]
    assert [shard.state for shard in shards] == [ShardState.ACTIVE], "nobody had to ask"
    assert groups.fetch("g") == {("t", 0): 5}


def test_a_log_that_cannot_be_read_for_a_moment_is_loaded_when_it_can(groups, words, monkeypatch):
    groups.commit("g", (0, 5))
    groups.settle()
    index = groups.runtime.partition_for("g")

    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as context:
        context.setattr(Log, "read", refuse)
        groups.restart()
        assert groups.runtime.has_failed(index)
        refused = words.result_of(groups.commit("g", (0, 6)))
        assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = words.result_of(groups.commit("g", (0, 7)))
    assert again.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    groups.settle()
    assert groups.fetch("g") == {("t", 0): 5}


def doubled(partition):
    """A partition over the same files whose log can be broken without breaking the other's."""
    double = copy.copy(partition)
    double.log = copy.copy(partition.log)
    return double


def test_a_marker_keeps_its_place_between_commits_of_one_flush(groups, words):
    """The next transaction of a producer must not end with the marker of the one before."""
    producer = ProducerIdAndEpoch(7, 0)

    def commit(offset):
        topic = TopicCommit("t", [(0, offset, -1, "")])
        asked = CommitRequest("g", "", None, -1, -1, [topic], False, producer=producer)
        return groups.coordinator.commit_offsets(asked)

    first = commit(5)
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    batch = build_end_transaction_marker(marker, producer_id=7, producer_epoch=0, timestamp_ms=1)
    index = groups.runtime.partition_for("g")
    ended = groups.coordinator.end_transaction(index, batch, EndMarker(7, True), 1)
    second = commit(6)
    groups.settle()
    assert words.result_of(ended) is None
    assert words.result_of(first) == words.result_of(second) == [ErrorCode.NONE]
    assert groups.fetch("g") == {("t", 0): 5}
    assert groups.shard("g").machine.offsets.is_pending("g", "t", 0)
    groups.restart()
    assert groups.fetch("g") == {("t", 0): 5}
    assert groups.shard("g").machine.offsets.is_pending("g", "t", 0)


def test_who_has_asked_that_another_coordinates_tells_nothing_until_it_is_known(groups, words):
    groups.commit("g", (0, 5))
    groups.settle()
    partition = groups.shard("g").partition
    partition.is_given_away = True
    asked = groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=False)
    assert words.result_of(asked).code is ErrorCode.NOT_COORDINATOR
    partition.apply_state(state := partition.state)
    assert partition.is_given_away, "nothing new was told"
    partition.apply_state(state._replace(partition_epoch=1))
    assert groups.fetch("g") == {("t", 0): 5}


def test_who_was_granted_a_group_for_a_former_process_tells_nothing_of_it(groups, words):
    """Others may be elected until it is granted anew; its memory answered for them meanwhile."""
    member, generation = groups.member("g")
    groups.commit("g", (0, 5), member_id=member, generation=generation)
    groups.settle()
    partition = groups.shard("g").partition
    partition.fence(partition.leader_epoch)  # As when this node registers anew.
    assert not partition.is_leader
    for pending in (
        groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=False),
        groups.coordinator.partitions_of("g", require_stable=True),
        groups.beat("g", member, generation),
        groups.coordinator.describe_group("g"),
    ):
        assert words.result_of(pending).code is ErrorCode.NOT_COORDINATOR
    groups.lead(groups.runtime.partition_for("g"), epoch=1)
    groups.settle()
    assert groups.fetch("g") == {("t", 0): 5}
    assert words.result_of(groups.beat("g", member, generation)) is ErrorCode.NONE
