"""A coordinator that may have been replaced tells nothing that its successor may know better."""

import pytest

from ottla.errors import ErrorCode
from ottla.pending import Pending


def test_who_may_have_been_replaced_tells_nothing_from_memory(groups, words):
    """Once a coordinator that was cut off told an offset that its successor had gone beyond."""
    member, generation = groups.member("g")
    groups.commit("g", (0, 5), member_id=member, generation=generation)
    groups.settle()
    partition = groups.shard("g").partition
    partition.may_take = lambda one: one is not partition
    for pending in (
        groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=False),
        groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=True),
        groups.beat("g", member, generation),
        groups.join("g", member),
        groups.commit("g", (0, 6), member_id=member, generation=generation),
    ):
        assert words.result_of(pending).code is ErrorCode.NOT_COORDINATOR
    partition.may_take = lambda _: True
    assert groups.fetch("g") == {("t", 0): 5}
    assert words.result_of(groups.beat("g", member, generation)) is ErrorCode.NONE


def test_a_request_that_has_waited_is_told_nothing_from_memory_in_doubt(groups, words):
    """What it waited for may be what this node cannot commit any more."""
    groups.commit("g", (0, 5))
    stable = groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=True)
    groups.shard("g").partition.may_take = lambda _: False
    groups.settle()
    assert words.result_of(stable).code is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("require_stable", [False, True])
def test_an_offset_is_told_once_it_is_sure_that_nobody_else_coordinates(
    groups, words, require_stable
):
    """Once for three seconds, by what was heard: a member saw an offset go back."""
    groups.commit("g", (0, 5))
    groups.settle()
    sure = []
    groups.shard("g").partition.confirm = lambda _: sure.append(Pending()) or sure[-1]
    told, refused, closed = [
        groups.coordinator.fetch_offsets("g", [("t", 0)], require_stable=require_stable)
        for _ in range(3)
    ]
    assert not told.is_done
    sure[0].resolve(True)
    (offset,) = words.result_of(told)
    assert offset.committed.offset == 5
    sure[1].resolve(False)
    assert words.result_of(refused).code is ErrorCode.NOT_COORDINATOR
    ended = []
    sure[2].on_cancel(lambda: ended.append(1))
    closed.cancel()
    assert ended
