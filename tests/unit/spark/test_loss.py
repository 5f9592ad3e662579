"""Three misfortunes of offsets are three errors, and each has a place to go on from."""

import pytest

from ottla.ids import TopicId, TopicPartition
from ottla.spark.loss import (
    ClusterState,
    DataAgedOut,
    LogRewound,
    LogState,
    PartitionGone,
    TopicRecreated,
    find_losses,
)
from ottla.spark.positions import Positions

OLD, NEW = TopicId(b"o" * 16), TopicId(b"n" * 16)
P = TopicPartition("t", 0)


def losses(offset, log, *, known=OLD, now=OLD, epoch=3, epoch_end=None):
    positions = Positions({P: offset}, {"t": known} if known else {}, {P: epoch})
    ends = {} if epoch_end is None else {P: epoch_end}
    state = ClusterState({P: LogState(*log)} if log else {}, {"t": now} if now else {}, ends)
    return find_losses(positions, state)


@pytest.mark.parametrize("offset", [5, 7, 10])
def test_offsets_in_the_log_are_as_they_were(offset):
    assert losses(offset, (5, 10, 3)) == {}
    assert losses(offset, (5, 10, 4), epoch_end=10) == {}


def test_ids_that_nobody_knows_say_nothing():
    assert losses(7, (5, 10, 3), known=None) == {}
    assert losses(7, (5, 10, 3), now=None) == {}


@pytest.mark.parametrize(
    ("change", "kind", "resume", "why"),
    [
        ({"offset": 4}, DataAgedOut, 5, r"t-0: offsets \[4, 5\) are gone.*holds \[5, 10\)"),
        ({"offset": 11}, LogRewound, 10, r"t-0: offset 11 is beyond the log.*\[5, 10\)"),
        ({"epoch_end": 6}, LogRewound, 6, r"another course at offset 6, before offset 7.*epoch 3"),
        ({"epoch_end": 2}, LogRewound, 5, "another course at offset 2"),
        ({"now": NEW}, TopicRecreated, 5, "made anew: offset 7 .*b29vb29vb29vb29vb29vbw,"),
        ({"log": None}, PartitionGone, None, "no such partition any more.*from offset 7"),
    ],
)  # fmt: skip
def test_each_misfortune_has_a_name(change, kind, resume, why):
    ((_, loss),) = losses(**({"offset": 7, "log": (5, 10, 3)} | change)).items()
    assert type(loss.error) is kind
    assert loss.resume == resume
    with pytest.raises(kind, match=why):
        raise loss.error


def test_another_log_is_told_before_what_its_offsets_seem_to_say():
    ((_, loss),) = losses(700, (0, 10, 0), now=NEW).items()
    assert isinstance(loss.error, TopicRecreated)
    assert loss.resume == 0
