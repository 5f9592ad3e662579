"""What a follower asks, which answers it takes, and where two logs are cut to agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.ids import LeaderEpoch, NodeId
from ottla.log.contents.leader_epochs import EpochEnd, LeaderEpochs
from ottla.replication.divergence import divergence, end_of_leaders_epoch
from ottla.replication.follower import (
    followed_high_watermark,
    may_take,
    next_fetch,
    truncation_offset,
)

LEADER = (NodeId(2), LeaderEpoch(5))


def fetch(number=1, end=10, synced=10):
    return next_fetch(
        number,
        leader=LEADER,
        broker_epoch=7,
        log_end_offset=end,
        synced_offset=synced,
        latest_epoch=3,
    )


def takes(answered, newest, *, leader=LEADER, broker_epoch=7, end=10):
    return may_take(answered, newest, leader=leader, broker_epoch=broker_epoch, log_end_offset=end)


def test_a_follower_asks_only_when_all_is_synced():
    assert fetch(synced=9) is None
    assert fetch() == (1, *LEADER, 7, 10, 3)


def test_only_the_answer_to_the_newest_request_is_taken():
    assert takes(fetch(), fetch())
    assert not takes(fetch(1), fetch(2))
    assert not takes(fetch(), None)


@pytest.mark.parametrize(
    "changed",
    [
        {"leader": (NodeId(2), LeaderEpoch(6))},
        {"leader": (NodeId(3), LeaderEpoch(5))},
        {"broker_epoch": 8},
        {"end": 11},
    ],
)
def test_an_answer_is_for_the_same_leader_registration_and_log_end(changed):
    assert not takes(fetch(), fetch(), **changed)


def test_the_high_watermark_follows_as_far_as_the_log_goes():
    assert followed_high_watermark(3, 8, 10) == 8
    assert followed_high_watermark(3, 12, 10) == 10
    assert followed_high_watermark(3, 2, 10) == 3


def test_an_epoch_without_records_is_empty_at_the_end():
    def end(epoch, latest):
        return end_of_leaders_epoch(epoch, leader_epoch=5, latest_epoch=latest, log_end_offset=20)

    assert end(5, 3) == EpochEnd(5, 20)
    assert end(4, 3) == EpochEnd(3, 20)
    assert end(3, 3) is None  # its records tell
    assert end(2, -1) == EpochEnd(2, 20)
    assert end(6, 3) is None
    assert end(-1, 3) is None


def test_a_log_diverges_where_the_leaders_epoch_ended():
    assert divergence(EpochEnd(3, 20), 20, 3) is None
    assert divergence(EpochEnd(3, 19), 20, 3) == EpochEnd(3, 19)
    assert divergence(EpochEnd(2, 25), 20, 3) == EpochEnd(2, 25)


def test_a_log_without_epochs_is_cut_at_the_leaders_end():
    assert truncation_offset(EpochEnd(2, 7), EpochEnd(-1, -1), 10) == 7
    assert truncation_offset(EpochEnd(2, 17), EpochEnd(-1, -1), 10) == 10


# Two logs of records by leader epoch, that share a beginning.

PIECES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=5)


def log_of(pieces, *, writer, epoch=0):
    """Return (epoch, writer) of each record; only one writer has an epoch, as leaders do."""
    log = []
    for step, count in pieces:
        epoch += step
        log += [(2 * epoch + writer, writer)] * count
    return log


def epochs_of(log):
    epochs = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        epochs.assign(epoch, offset)
    return epochs


@given(shared=PIECES, mine=PIECES, theirs=PIECES)
def test_a_follower_is_cut_to_what_both_share_and_no_deeper(shared, mine, theirs):
    shared = log_of(shared, writer=0)
    after = shared[-1][0] // 2 + 1 if shared else 0
    log = shared + log_of(mine, writer=0, epoch=after)
    leaders = shared + log_of(theirs, writer=1, epoch=after)
    leaders_epochs = epochs_of(leaders)
    rounds = 0
    while log:
        last = log[-1][0]
        end = end_of_leaders_epoch(
            last,
            leader_epoch=1_000,
            latest_epoch=leaders_epochs.latest,
            log_end_offset=len(leaders),
        ) or leaders_epochs.end_offset_for(last, len(leaders))
        diverging = divergence(end, len(log), last)
        if diverging is None:
            break
        own_end = epochs_of(log).end_offset_for(diverging.epoch, len(log))
        cut = truncation_offset(diverging, own_end, len(log))
        assert 0 <= cut < len(log)
        log = log[:cut]
        rounds += 1
    assert log == shared
    assert rounds <= len({epoch for epoch, _ in leaders}) + len(mine) + 1
