import pytest

from ottla.log.contents.leader_epochs import LeaderEpochs
from ottla.log.files.checkpoints import EpochStart


@pytest.fixture
def epochs():
    cache = LeaderEpochs()
    for epoch, start in [(0, 0), (2, 100), (5, 250)]:
        cache.assign(epoch, start)
    return cache


def test_each_new_epoch_is_noted_once(epochs):
    epochs.assign(5, 300)
    assert epochs.entries == [(0, 0), (2, 100), (5, 250)]
    assert epochs.latest == 5


def test_a_history_that_contradicts_goes(epochs):
    epochs.assign(6, 100)
    assert epochs.entries == [(0, 0), (6, 100)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (5, (5, 400)),  # the current epoch ends at the log's end
        (6, (-1, -1)),  # the future is unknown
        (0, (0, 100)),
        (1, (0, 100)),  # the largest one at or below
        (2, (2, 250)),
        (4, (2, 250)),
        (-1, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(epochs, asked, answer):
    assert epochs.end_offset_for(asked, 400) == answer


def test_an_epoch_before_the_first_known_ends_where_that_starts():
    assert LeaderEpochs([EpochStart(4, 70)]).end_offset_for(2, 400) == (2, 70)


def test_a_log_without_epochs_knows_nothing():
    assert LeaderEpochs().end_offset_for(0, 400) == (-1, -1)
    assert LeaderEpochs().epoch_for_offset(3) == -1


def test_the_epoch_of_an_offset(epochs):
    assert [epochs.epoch_for_offset(offset) for offset in (0, 99, 100, 249, 250, 10**6)] == [
        0, 0, 2, 2, 5, 5,
    ]  # fmt: skip


def test_truncation_from_the_end_drops_what_starts_there(epochs):
    epochs.is_dirty = False
    epochs.truncate_from_end(250)
    assert epochs.entries == [(0, 0), (2, 100)]
    assert epochs.latest == 2
    assert epochs.is_dirty


def test_truncation_from_the_start_keeps_the_epoch_that_spans_it(epochs):
    epochs.truncate_from_start(170)
    assert epochs.entries == [(2, 170), (5, 250)]
    assert epochs.epoch_for_offset(169) == -1


def test_truncation_where_an_epoch_starts_forgets_those_before_it(epochs):
    epochs.truncate_from_start(250)
    assert epochs.entries == [(5, 250)]


def test_the_checkpoint_keeps_what_lies_before_the_start(epochs):
    """The start may be another one after a crash: its checkpoint is written later."""
    epochs.is_dirty = False
    for start in (50, 100, 170):
        epochs.truncate_from_start(start)
    assert epochs.entries == [(2, 170), (5, 250)]
    assert epochs.to_save == [(0, 0), (2, 100), (5, 250)]
    assert not epochs.is_dirty, "nothing is to be written for that"
    epochs.assign(6, 300)
    assert epochs.to_save == [(0, 0), (2, 100), (5, 250), (6, 300)]
    epochs.truncate_from_end(250)
    assert epochs.to_save == [(0, 0), (2, 100)]
    epochs.truncate_from_end(170)
    epochs.assign(7, 170)
    assert epochs.to_save == [(0, 0), (2, 100), (7, 170)]
    epochs.truncate_from_end(60)
    assert epochs.to_save == [(0, 0)]
