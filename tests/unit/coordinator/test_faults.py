"""An unexpected error in a coordinator costs that request: the shard serves the others."""

import pytest

from ottla.coordinator.shard import ShardState
from ottla.errors import ErrorCode


class Fault(Exception):
    """What nobody thought of."""


def test_a_fault_in_an_operation_is_answered_and_the_shard_serves_on(groups, words, caplog):
    def faulty(_pending):
        raise Fault

    for alone in (False, True):
        answer = groups.shard("g").answer(faulty, alone=alone)
        assert words.result_of(answer).code is ErrorCode.UNKNOWN_SERVER_ERROR
        committed = groups.commit("g", (0, 5))
        groups.settle()
        assert words.result_of(committed) == [ErrorCode.NONE]
    assert caplog.text.count("an operation failed unexpectedly") == 2
    assert "Fault" in caplog.text


def test_a_fault_in_a_queued_operation_lets_those_behind_it_run(groups, words, caplog):
    def faulty(_pending):
        raise Fault

    groups.commit("g", (0, 1))
    shard = groups.shard("g")
    waiting = shard.answer(faulty, alone=True)  # Behind the commit's append.
    behind = groups.commit("g", (0, 2))
    assert not waiting.is_done
    groups.settle()
    assert words.result_of(waiting).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert words.result_of(behind) == [ErrorCode.NONE]
    assert groups.fetch("g") == {("t", 0): 2}


def test_a_fault_behind_the_answer_changes_nothing(groups, words, caplog):
    def faulty(pending):
        pending.resolve("done")
        raise Fault

    assert words.result_of(groups.shard("g").answer(faulty)) == "done"
    committed = groups.commit("g", (0, 5))
    groups.settle()
    assert words.result_of(committed) == [ErrorCode.NONE]


def test_memory_that_did_not_follow_the_log_is_made_anew_from_it(
    groups, words, caplog, monkeypatch
):
    groups.commit("g", (0, 1))
    groups.settle()
    shard = groups.shard("g")

    def faulty(*_):
        raise Fault

    monkeypatch.setattr(shard.machine, "take_commit", faulty)
    committed = groups.commit("g", (0, 2))
    groups.settle()
    assert words.result_of(committed).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.state is ShardState.FAILED
    assert "memory could not follow the log" in caplog.text
    again = groups.commit("g", (1, 7))
    assert words.result_of(again).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    groups.settle()
    assert groups.fetch("g") == {("t", 0): 2}, "it was durable"


@pytest.mark.parametrize("when", ["replay", "loaded"])
def test_a_fault_at_a_load_is_said_and_does_not_load_for_ever(groups, caplog, monkeypatch, when):
    groups.commit("g", (0, 1))
    groups.settle()

    def faulty(*_):
        raise Fault

    monkeypatch.setattr(type(groups.shard("g").machine), when, faulty)
    groups.restart()
    assert groups.shard("g").state is ShardState.FAILED
    assert "Fault" in caplog.text


def test_timers_go_on_behind_one_that_fails(groups):
    shard, rung = groups.shard("g"), []

    def faulty():
        raise Fault

    shard.timers.schedule("bad", 10, faulty)
    shard.timers.schedule("good", 20, lambda: rung.append("good"))
    with pytest.raises(Fault):
        groups.clock.advance(0.015)
    groups.clock.advance(0.01)
    assert rung == ["good"]
