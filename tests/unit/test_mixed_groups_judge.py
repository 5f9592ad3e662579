"""The judge of tests/campaigns/mixed_groups.py finds each kind of broken promise."""

import pytest

from tests.campaigns.mixed.judge import Judge


def assigned(at, member, partitions=(0,), generation=1, member_id=None):
    member_id = member_id or f"id-{member}"
    more = {"partitions": partitions, "generation": generation, "id": member_id}
    return {"at": at, "member": member, "what": "assigned", **more}


def gone(at, member, what="revoked", partitions=(0,)):
    return {"at": at, "member": member, "what": what, "partitions": partitions}


def read(at, member, start, end, partition=0, wrong=0):
    more = {"ranges": [[partition, start, end]], "wrong": wrong}
    return {"at": at, "member": member, "what": "read", **more}


def commit(at, member, offset, partition=0, *, answered=1, error=None, fenced=False):
    sent = {"at": at, "member": member, "what": "committing", "offsets": [[partition, offset]]}
    if answered is None:
        return [sent]
    back = {"at": at + answered, "member": member}
    if error is None:
        return [sent, {**back, "what": "committed"}]
    return [sent, {**back, "what": "refused", "error": error, "fenced": fenced}]


def killed(at, member):
    return {"at": at, "member": member, "what": "killed"}


def problems(*events, is_classic=True):
    flat = []
    for each in events:
        flat += each if isinstance(each, list) else [each]
    judge = Judge(is_classic=is_classic)
    judge.take(reversed(flat))
    return judge.problems


FIRST = [assigned(1, 1), read(2, 1, 0, 10), *commit(3, 1, 10)]


def test_a_clean_change_of_owners_is_right():
    second = [assigned(6, 2, generation=2), read(7, 2, 10, 20), *commit(8, 2, 20)]
    assert problems(*FIRST, gone(5, 1), *second) == []


def test_what_a_killed_member_read_may_be_read_again():
    second = [assigned(6, 2, generation=2), read(7, 2, 10, 20)]
    assert problems(*FIRST, read(4, 1, 10, 15), killed(5, 1), *second) == []


def test_a_zombie_that_is_told_so_is_right():
    second = [assigned(6, 2, generation=2), read(7, 2, 10, 20)]
    assert problems(*FIRST, *second, gone(8, 1, "lost")) == []
    fenced = commit(8, 1, 12, error="UNKNOWN_MEMBER_ID", fenced=True)
    assert problems(*FIRST, *second, fenced, gone(10, 1)) == []
    assert problems(*FIRST, *second, assigned(9, 1, [3], 3, "another id")) == []


def test_a_commit_of_what_is_anothers_is_wrong_even_if_the_member_is_late():
    second = [assigned(6, 2, generation=2), read(7, 2, 10, 20)]
    assert problems(*FIRST, *second, gone(8, 1), is_classic=False) == []
    late = [read(7, 1, 10, 12), *commit(8, 1, 12)]
    found = problems(*FIRST, *second, *late, gone(10, 1), is_classic=False)
    assert any("was taken" in each for each in found), found


@pytest.mark.parametrize(
    ("events", "word"),
    [
        ([*FIRST, assigned(6, 2, generation=1), killed(5, 1)], "in generation 1"),
        ([*FIRST, assigned(6, 2, generation=2), gone(7, 1)], "while"),
        ([*FIRST, gone(5, 1), assigned(6, 2, generation=2), read(7, 2, 11, 12)], "skipped"),
        ([*FIRST, gone(5, 1), assigned(6, 2, generation=2), read(7, 2, 9, 12)], "was committed"),
        (
            [assigned(1, 1), read(2, 1, 0, 9), killed(3, 1), assigned(4, 2), read(5, 2, 4, 9)],
            "nobo",
        ),
        ([*FIRST, read(5, 1, 9, 12)], "expected"),
        ([*FIRST, read(5, 1, 10, 12, wrong=1)], "not at their offsets"),
        ([*FIRST, assigned(5, 1, [3], generation=0)], "went back"),
        ([*FIRST, *commit(5, 1, 8)], "after 10"),
        ([read(1, 1, 0, 5)], "without owning"),
        ([commit(1, 1, 5)], "not owned"),
        (
            [
                *FIRST,
                assigned(6, 2, generation=2),
                read(7, 1, 10, 12),
                *commit(8, 1, 12),
                gone(10, 1, "lost"),
            ],
            "was taken",
        ),
    ],
)
def test_what_is_wrong_is_seen(events, word):
    found = problems(*events)
    assert any(word in each for each in found), found
