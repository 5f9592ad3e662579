"""A leader that copied a compacted log knows of an epoch by what compaction had left of it.

So its epochs begin later there than they did. Who comes back with a history that parted from the
leader's within such a gap must not keep it: what was never committed would stand beside, or in the
place of, what was.
"""

import random

import pytest

from ottla.ids import TopicPartition
from ottla.log.contents.gaps import end_if_cut, reached_below
from ottla.log.contents.leader_epochs import EpochStart
from ottla.log.replicated import append_replicated, check_replicated
from ottla.log.upkeep.front import raise_start_offset
from tests.unit.replication.test_following import OTHER, Pair, stored
from tools.wire_client import batches, values_of


@pytest.fixture
def pair(make_node):
    return Pair(make_node)


def write(node, words, written):
    """Let the log of ``node`` hold one batch for each (offset, epoch, text), all of it synced."""
    log = node.partition().log
    for offset, epoch, text in written:
        batch = words.batch(text.encode() * 20, base_offset=offset, leader_epoch=epoch)
        append_replicated(log, check_replicated(memoryview(batch)))
    log.flush()


def held(node):
    """Return the offset and epoch of each batch."""
    data = stored(node.partition().log)
    return [(one["base_offset"], one["leader_epoch"]) for one in batches(data)]


def values_by_offset(node):
    return dict(values_of(stored(node.partition().log)))


async def compare(pair, epoch, isr=(1,)):
    pair.lead(0, epoch, isr=isr)
    await pair.catch_up()


async def test_what_only_a_former_leader_has_does_not_stay_where_the_leaders_log_has_a_gap(
    pair, words
):
    """World n1129h.138: a record that readers had seen was another one where it led next."""
    write(pair.leading, words, [(offset, 24, "new") for offset in range(18, 30)])
    write(pair.following, words, [(offset, 22, "old") for offset in range(16)])
    write(pair.following, words, [(16, 23, "alone"), (17, 23, "alone")])
    await compare(pair, 26)
    assert held(pair.following) == held(pair.leading)
    assert stored(pair.following.partition().log) == stored(pair.leading.partition().log)


async def test_a_tail_of_an_epoch_that_the_leader_knows_does_not_stay_in_a_gap(pair, words):
    """The leader's next epoch began at 6 once; by what is left of it, at 12."""
    committed = [(offset, 22, "old") for offset in range(6)]
    write(pair.leading, words, [*committed[4:], (12, 24, "new"), (13, 24, "new")])
    write(pair.following, words, [*committed, (6, 22, "alone"), (7, 22, "alone")])
    await compare(pair, 26)
    assert held(pair.following) == [(at, 22) for at in range(6)] + [(12, 24), (13, 24)]


async def test_without_a_gap_it_goes_back_to_where_it_parted_and_keeps_the_rest(pair, words):
    committed = [(offset, 22, "old") for offset in range(8)]
    write(pair.leading, words, [*committed, (8, 24, "new")])
    write(pair.following, words, [*committed, (8, 23, "alone"), (9, 23, "alone")])
    pair.lead(0, 26, isr=(1,))
    assert pair.answer(pair.follower.next_request()).diverging == (22, 8)
    await pair.catch_up()
    assert held(pair.following) == held(pair.leading)


@pytest.mark.parametrize("gap_at", [5, 6])
async def test_one_in_sync_keeps_what_the_leaders_log_has_no_more(pair, words, gap_at):
    """What is gone from the leader's was committed: who may be elected must not end below it."""
    committed = [(offset, 22, "old") for offset in range(8)]
    write(pair.leading, words, [*committed[:gap_at], (8, 24, "new")])
    write(pair.following, words, committed)
    await compare(pair, 26, isr=(1, 2))
    assert held(pair.following) == [(at, 22) for at in range(8)] + [(8, 24)]


async def test_one_that_follows_already_is_not_cut_when_its_leader_compacts(pair, words):
    """The leader counts what it has said: in the ISR it would have less than is committed."""
    committed = [(offset, 22, "old") for offset in range(6)]
    write(pair.leading, words, committed)
    write(pair.following, words, committed)
    pair.lead(0, 23, isr=(1,))
    assert pair.answer(pair.follower.next_request()).diverging is None
    log = pair.leading.partition().log
    write(pair.leading, words, [(6, 23, "new")])
    log.segments.truncate_to(3)  # As if compaction had taken what comes behind it.
    assert reached_below(log.segments, 6, 6) == 3
    assert pair.answer(pair.follower.next_request()).diverging is None


async def test_while_the_leaders_log_is_held_nobody_counts_who_was_not_compared(pair, words):
    """Nothing can be read of it then: it would join the ISR with what parts."""
    committed = [(offset, 22, "old") for offset in range(6)]
    write(pair.leading, words, [*committed[4:], (12, 24, "new")])
    write(pair.following, words, [*committed, (6, 22, "alone")])
    pair.lead(0, 26, isr=(1,))
    partition = pair.leading.partition()
    partition.hold()
    fetched = pair.answer(pair.follower.next_request())
    assert (fetched.diverging, len(fetched.records)) == (None, 0)
    assert partition.view.remote(OTHER) is None
    partition.log.end_hold(is_full=False)
    partition.release(partition.log)
    await pair.catch_up()
    assert held(pair.following) == [(at, 22) for at in range(6)] + [(12, 24)]


def test_what_is_left_below_an_offset_is_found_in_every_segment(make_node, words):
    """By another count: over all batches. Some segments are empty, as compaction leaves them."""
    chance = random.Random(1)
    for _ in range(30):
        node = make_node(partitions=1, segment_bytes=700, index_interval_bytes=100)
        offsets = sorted(chance.sample(range(60), chance.randint(1, 25)))
        write(node, words, [(offset, 1, "v" * chance.randint(1, 9)) for offset in offsets])
        segments = node.partition().log.segments
        for _ in range(40):
            offset = chance.randint(1, 60)
            bound = offset + chance.randint(0, 5)
            below = [at + 1 for at in offsets if at < bound]
            wanted = min(offset, max(below, default=0))
            assert reached_below(segments, offset, bound) == wanted, (offsets, offset, bound)


@pytest.mark.parametrize("seed", range(100))
async def test_a_replica_that_caught_up_has_only_what_was_committed(make_node, words, seed):
    """Whatever was compacted where, and wherever its own history parted from that."""
    chance = random.Random(seed)
    pair = Pair(make_node)
    committed = []
    for epoch in sorted(chance.sample(range(1, 12), chance.randint(2, 5))):
        begin = len(committed)
        count = chance.randint(1, 8)
        committed += [(begin + at, epoch, f"c{begin + at}") for at in range(count)]
    share = chance.choice([0.1, 0.5, 0.9])
    left = [one for one in committed[:-1] if chance.random() < share]
    write(pair.leading, words, [*left, committed[-1]])
    # Its last leader went on alone from there, in an epoch before that of what was committed next.
    parted_at = chance.randint(0, len(committed))
    lowest = committed[parted_at - 1][1] if parted_at else 0
    above = committed[parted_at][1] if parted_at < len(committed) else 14
    kept, is_compacted = committed[:parted_at], chance.random() < 0.4
    if is_compacted:
        kept = [one for one in kept[:-1] if chance.random() < 0.5] + kept[-1:]
    write(pair.following, words, kept)
    if lowest < above:
        alone = chance.choice([lowest, chance.randrange(lowest, above)])
        tail = [(parted_at + at, alone, "alone") for at in range(chance.randint(0, 12))]
        write(pair.following, words, tail)
    await compare(pair, 20)
    mine, leaders = values_by_offset(pair.following), values_by_offset(pair.leading)
    assert mine.items() <= {at: text.encode() * 20 for at, _, text in committed}.items()
    assert is_compacted or mine.items() >= leaders.items()
    assert committed[-1][0] in mine


@pytest.mark.parametrize("left", [[], [(4, 22, "old")]])
async def test_a_follower_that_is_cut_in_a_gap_of_its_own_log_goes_on_behind_what_is_left(
    pair, words, left
):
    """Once it knew leader epochs above its end, and refused its leader's batches for good."""
    common = [(at, 22, "old") for at in range(5)] + [(at, 23, "old") for at in range(5, 10)]
    write(pair.leading, words, [*common, (10, 25, "new"), (11, 25, "new")])
    write(pair.following, words, [*left, (12, 24, "alone")])
    log = pair.following.partition().log
    known = [EpochStart(22, 0), EpochStart(23, 5), EpochStart(24, 10)]
    log.leader_epochs.entries[:] = known  # Records of all of them were there.
    log.leader_epochs.is_dirty = True
    pair.lead(0, 26, isr=(1,))
    await pair.catch_up()
    assert held(pair.following) == [
        *[one[:2] for one in left],
        *held(pair.leading)[5 * len(left) :],
    ]
    log = pair.following.partition().log
    log.check()
    assert log.leader_epochs.entries == pair.leading.partition().log.leader_epochs.entries


async def test_a_follower_of_which_nothing_is_left_above_its_start_begins_anew(pair, words):
    """Once it ended below its log start offset, and no start could open it."""
    common = [(at, 22, "old") for at in range(10)]
    write(pair.leading, words, [*common, (10, 25, "new")])
    write(pair.following, words, [(12, 24, "alone"), (13, 24, "alone")])
    raise_start_offset(pair.following.partition().log, 8)
    pair.lead(0, 26, isr=(1,))
    asked = pair.follower.next_request()
    await pair.follower.take(asked, pair.answer(asked))
    assert pair.following.partition() is None
    assert pair.following.replica_manager.hosting.is_making(TopicPartition("t", 0))


@pytest.mark.parametrize("seed", range(30))
def test_a_log_that_is_cut_ends_behind_what_is_left(make_node, words, seed):
    """And knows no epoch, no producer and no durable byte above that."""
    chance = random.Random(seed)
    node = make_node(partitions=1, segment_bytes=700, index_interval_bytes=100)
    offsets = sorted(chance.sample(range(60), chance.randint(1, 25)))
    epochs = sorted(chance.randint(1, 6) for _ in offsets)
    rows = zip(offsets, epochs, strict=True)
    write(node, words, [(at, epoch, "v" * chance.randint(1, 9)) for at, epoch in rows])
    log = node.partition().log
    bases = [segment.base_offset for segment in log.segments]
    cut = chance.randint(0, 60)
    base = max([0, *(one for one in bases if one < cut)])
    wanted = max([base, *(at + 1 for at in offsets if base <= at < cut)])
    assert end_if_cut(log.segments, cut) == wanted
    end = log.log_end_offset
    log.truncate_to(cut)
    assert log.log_end_offset == (wanted if cut < end else end)
    assert all(entry.start_offset < log.log_end_offset for entry in log.leader_epochs.entries)
    assert all(at <= log.log_end_offset for at in log.producers.snapshots.offsets)
    assert log.flushed_offset <= log.log_end_offset
    log.check()
