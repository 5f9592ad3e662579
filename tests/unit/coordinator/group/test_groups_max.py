"""A client that would make one group too many is refused, however it makes the group."""

import pytest

from ottla.coordinator.group.consumer.machine import Heartbeat
from ottla.errors import ErrorCode


@pytest.fixture
def groups(make_groups, words):
    return make_groups(settings=words.SETTINGS._replace(groups_max=3))


def beat(groups, group, epoch=0, regex=None):
    topics = ["t"] if regex is None else None
    asked = Heartbeat("m", epoch, None, None, 60_000, topics, regex, None, {}, "c", "/h")
    return groups.coordinator.consumer_heartbeat(group, asked)


def code(pending):
    return None if pending.error is None else pending.error.code


def test_one_more_group_is_refused_to_members_and_commits(groups):
    groups.commit("offsets", (0, 1))
    groups.join("classic")
    groups.settle()
    modern = beat(groups, "modern")
    groups.settle()
    assert code(modern) is None
    too_many = [groups.join("x"), beat(groups, "y"), groups.commit("z", (0, 1))]
    groups.settle()
    refused = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [code(one) for one in too_many] == [refused, refused, ErrorCode.POLICY_VIOLATION]
    for name in ("x", "y", "z"):
        assert not groups.fetch(name)


def test_groups_that_are_there_go_on(groups):
    for name in ("a", "b", "c"):
        groups.commit(name, (0, 1))
    groups.settle()
    again, joined, modern = groups.commit("a", (0, 2)), groups.join("b"), beat(groups, "c")
    groups.settle()
    groups.clock.advance(10)
    groups.settle()
    assert groups.fetch("a") == {("t", 0): 2}
    assert code(joined) is not ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(modern) is None
    assert again.value == [ErrorCode.NONE]
    deleted = groups.coordinator.delete_group("a")
    groups.settle()
    assert groups.result_of(deleted) is None
    groups.commit("d", (0, 1))
    groups.settle()
    assert groups.fetch("d") == {("t", 0): 1}


def test_who_was_refused_a_member_epoch_is_not_told_of_the_limit(groups):
    """Kafka's own codes come first where no group would have been made."""
    for name in ("a", "b", "c"):
        groups.commit(name, (0, 1))
    groups.settle()
    assert code(beat(groups, "x", epoch=5)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(groups.join("x", member_id="somebody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(groups.commit("x", (0, 1), member_id="m", generation=4)) in (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )


def test_groups_that_are_made_at_once_do_not_pass_the_limit(groups):
    """What is on its way counts: else each connection has one more."""
    asked = [groups.commit(f"offsets-{n}", (0, 1)) for n in range(3)]
    asked += [beat(groups, f"modern-{n}") for n in range(3)]
    asked += [groups.join(f"classic-{n}") for n in range(3)]
    again = groups.commit("offsets-0", (0, 2))
    groups.settle()
    assert [code(one) for one in asked[:3]] == [None] * 3
    assert all(code(one) is ErrorCode.GROUP_MAX_SIZE_REACHED for one in asked[3:])
    assert again.value == [ErrorCode.NONE], "it is no further group"
    groups.coordinator.delete_group("offsets-0")
    groups.settle()
    modern = [beat(groups, f"modern-{n}") for n in range(3)]
    groups.settle()
    assert [code(one) for one in modern] == [None] + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2


def test_a_group_whose_first_member_is_refused_counts_no_longer(groups):
    """Else whoever sends nonsense under enough names keeps all new groups out."""
    for number in range(5):
        asked = beat(groups, f"nonsense {number}", regex="(")
        groups.settle()
        assert code(asked) is ErrorCode.INVALID_REGULAR_EXPRESSION
    sound = beat(groups, "sound")
    groups.settle()
    assert code(sound) is None


def test_a_first_heartbeat_that_nobody_waits_for_counts_until_it_is_over(groups):
    for number in range(5):
        beat(groups, f"nonsense {number}", regex="(").cancel()
        groups.settle()
    gone = beat(groups, "gone")
    gone.cancel()
    groups.settle()
    assert {one.group_id for one in groups.coordinator.list_groups([], [])} == {"gone"}
    for name in ("a", "b"):
        sound = beat(groups, name)
        groups.settle()
        assert code(sound) is None
