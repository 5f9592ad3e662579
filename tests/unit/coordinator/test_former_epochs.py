"""A shard of a former leader epoch writes nothing any more, and the next one misses nothing."""

import pytest

from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.records import EndMarker, ProducerIdAndEpoch
from ottla.coordinator.shard import ShardState
from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode
from ottla.log.directories.cutting import LogCuts
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.replication.partition import Partition
from ottla.turns import Turns


class Held:
    """A node whose partition of the group ``g`` lets appends wait."""

    def __init__(self, groups):
        self.groups = groups
        self.index = groups.runtime.partition_for("g")
        self.partition = groups.partition(self.index)

    def wait(self, how):
        """Let appends wait; return what lets them go on."""
        if how == "yielding":
            self.partition.yield_appends()
            return self.partition.go_on_appending
        log = self.partition.log
        self.partition.hold()

        def go_on():
            log.end_hold(is_full=False)
            self.partition.release(log)

        return go_on

    def granted_anew(self):
        """The same node leads, in the next leader epoch: a reassignment was cancelled."""
        self.groups.lead(self.index, epoch=1)
        self.groups.settle()

    def check_memory(self):
        """What is told is what the log says."""
        told = self.groups.fetch("g")
        self.groups.restart()
        assert self.groups.fetch("g") == told


@pytest.fixture
def held(groups):
    groups.commit("g", (0, 5))
    groups.settle()
    return Held(groups)


HOW = pytest.mark.parametrize("how", ["yielding", "held"])


@HOW
def test_a_commit_that_waited_over_a_new_epoch_is_not_told_and_forgotten(held, words, how):
    """The former shard wrote it and told so; the next one had read the log, and did not know it."""
    groups = held.groups
    go_on = held.wait(how)
    committed = groups.commit("g", (0, 6))
    held.granted_anew()
    go_on()
    groups.settle()
    assert words.result_of(committed).code is ErrorCode.NOT_COORDINATOR
    assert groups.fetch("g") == {("t", 0): 5}
    held.check_memory()


def test_a_fault_in_an_append_that_waited_is_answered_and_the_shard_serves_on(
    held, words, monkeypatch, caplog
):
    """Nothing of the shard was written any more, and nobody was told."""
    groups = held.groups
    go_on = held.wait("yielding")
    commits = [groups.commit("g", (0, offset)) for offset in (6, 7)]

    def fails(*_, **__):
        raise RuntimeError("a fault")

    with monkeypatch.context() as context:
        context.setattr(Partition, "append", fails)
        go_on()
    groups.settle()
    codes = [words.result_of(commit).code for commit in commits]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert "a fault" in caplog.text
    committed = groups.commit("g", (0, 8))
    groups.settle()
    assert words.result_of(committed) == [ErrorCode.NONE]
    assert groups.fetch("g") == {("t", 0): 8}
    held.check_memory()


@HOW
def test_a_marker_that_waited_over_a_new_epoch_is_sent_again(held, words, how):
    """It was told that the offsets are committed, and nobody saw them."""
    groups = held.groups
    topics = [TopicCommit("t", [(0, 6, -1, "")])]
    producer = ProducerIdAndEpoch(7, 0)
    asked = CommitRequest("g", "", None, -1, -1, topics, False, producer=producer)
    groups.coordinator.commit_offsets(asked)
    groups.settle()
    go_on = held.wait(how)
    ended = end_transaction(held)
    held.granted_anew()
    go_on()
    groups.settle()
    assert words.result_of(ended).code is ErrorCode.NOT_COORDINATOR
    ended = end_transaction(held)
    groups.settle()
    assert words.result_of(ended) is None
    assert groups.fetch("g") == {("t", 0): 6}
    held.check_memory()


def end_transaction(held):
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    batch = build_end_transaction_marker(marker, producer_id=7, producer_epoch=0, timestamp_ms=1)
    return held.groups.coordinator.end_transaction(held.index, batch, EndMarker(7, True), 1)


class BusyClock(ManualClock):
    """Each look at it tells that some milliseconds have gone: work takes its time."""

    def monotonic(self):
        self.hold(0.003)
        return super().monotonic()


def test_a_deletion_under_way_takes_nothing_that_the_next_epoch_has_told(make_groups, words):
    """It went on: offsets that were committed again were gone after the next load."""
    groups = make_groups(max_message_bytes=16_384)
    for first in range(0, 2000, 100):
        groups.commit("g", *((at, 5) for at in range(first, first + 100)))
        groups.settle()
    groups.coordinator.stop()
    due = []
    groups.turns = Turns(BusyClock(), call_soon=due.append)
    groups.boot()

    def turn():
        turns, due[:] = list(due), []
        for one in turns:
            one()
        return bool(turns)

    while turn() or groups.executor.run_all():
        pass
    held = Held(groups)
    end = held.partition.log.log_end_offset
    deleted = groups.coordinator.delete_group("g")
    while held.partition.log.log_end_offset == end:
        assert turn()
    groups.settle()
    assert not deleted.is_done, "it has begun, and has more to do"
    groups.lead(held.index, epoch=1)
    new = groups.shard("g")
    while new.state is ShardState.LOADING:
        groups.executor.run_all()
        assert turn()
    committed = groups.commit("g", (1999, 9))
    while turn() or groups.executor.run_all():
        pass
    assert words.result_of(committed) == [ErrorCode.NONE]
    assert words.result_of(deleted).code is ErrorCode.NOT_COORDINATOR
    told = groups.fetch("g")
    assert told["t", 1999] == 9
    groups.coordinator.stop()
    groups.turns = Turns(groups.clock, call_soon=lambda run: groups.clock.call_later(0, run))
    groups.boot()
    groups.settle()
    assert groups.fetch("g") == told


def test_a_shard_that_is_elected_while_its_log_is_cut_does_not_wait_for_what_has_gone(held, words):
    """It was loading for good, and its groups had no coordinator."""
    groups, partition = held.groups, held.partition
    groups.commit("g", (0, 6))
    groups.settle()
    groups.lead(held.index, leader=2, epoch=1)
    cuts = LogCuts(groups.node.log_manager, groups.clock)
    partition.hold()
    job = cuts.cut_job(partition.log, 1)
    groups.lead(held.index, epoch=2)
    job.run()
    partition.release(cuts.cut(job))
    groups.settle()
    assert groups.shard("g").state is ShardState.ACTIVE
    assert groups.fetch("g") == {("t", 0): 5}
    committed = groups.commit("g", (0, 7))
    groups.settle()
    assert words.result_of(committed) == [ErrorCode.NONE]
    held.check_memory()


def test_a_log_that_fails_while_its_shard_waits_for_it_is_told_as_failed(held):
    """Its clients were told to wait for the load, for good."""
    groups = held.groups
    groups.commit("g", (0, 6))
    groups.lead(held.index, epoch=1)
    groups.node.disk.fail(DiskCall.SYNC)
    groups.settle()
    assert groups.fetch("g").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.runtime.shard_of(held.index).state is ShardState.FAILED
