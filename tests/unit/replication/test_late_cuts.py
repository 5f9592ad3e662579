"""A log is not cut by what a former leader said: roles change while a cut waits, or goes on."""

import asyncio

import pytest

from ottla.env.faulty_disk import FaultyDisk
from ottla.env.rng import SeededRng
from ottla.ids import NodeId
from ottla.log.directories.copies import LogCopies
from ottla.log.directories.cutting import LogCuts
from ottla.log.upkeep.front import drop_segments_below, raise_start_offset
from ottla.pending import pending_of
from ottla.replication.replica_state import may_join
from tests.unit.replication.test_following import CONFIG, OTHER, Pair, fill, stored

THIRD = NodeId(3)


@pytest.fixture
def pair(make_node, words):
    """Node 0 has led, and has five records alone; node 1 leads, and has three that are its own."""
    pair = Pair(make_node)
    fill(pair.leading, words, 10)
    return pair


async def part(pair, words):
    await pair.catch_up()
    fill(pair.leading, words, 5)
    pair.lead(1, 2)
    fill(pair.leading, words, 3, size=20)


def ask(pair):
    asked = pair.follower.next_request()
    return asked, pair.answer(asked)


async def turns(node, count=20):
    for _ in range(count):
        for _ in range(5):
            await asyncio.sleep(0)
        node.clock.advance(0.05)
        node.executor.run_next()


async def begun(pair, asked, answer):
    """Let the follower take an answer while its cleaner swaps segments: it has to wait."""
    node = pair.following
    node.partition().log.is_swapping = True
    taking = pending_of(pair.follower.take(asked, answer))
    await turns(node)
    assert not taking.is_done
    return taking


async def held(pair):
    """Let the follower take an answer by which it cuts: the cut waits for the disk."""
    taking = pending_of(pair.follower.take(*ask(pair)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert pair.following.partition().is_held
    return taking


async def over(pair, taking):
    node = pair.following
    node.partition().log.is_swapping = False
    await turns(node)
    assert taking.is_done
    assert taking.error is None
    assert not node.partition().is_held
    assert node.partition().log.is_in_service


async def test_a_leader_loses_nothing_to_a_cut_that_waited_since_it_followed(pair, words):
    """Once it was cut: records that it had acknowledged as the next leader were gone."""
    await part(pair, words)
    taking = await begun(pair, *ask(pair))
    node = pair.following
    node.change(node.led(0, epoch=3, isr=(1,), old=node.partition().state))
    answers = fill(node, words, 2)
    assert all(answer.is_done for answer in answers)
    before = stored(node.partition().log)
    await over(pair, taking)
    assert node.partition().log.log_end_offset == node.partition().high_watermark == 17
    assert stored(node.partition().log) == before


@pytest.mark.parametrize("leader", [OTHER, THIRD])
async def test_who_follows_another_leader_meanwhile_is_not_cut(pair, words, leader):
    """That one may have what the former had not; the follower may have acknowledged it."""
    await part(pair, words)
    taking = await begun(pair, *ask(pair))
    node = pair.following
    node.change(node.led(0, leader=leader, epoch=3, isr=(2,), old=node.partition().state))
    await over(pair, taking)
    assert node.partition().log.log_end_offset == 15
    assert node.partition().high_watermark == 10


@pytest.mark.parametrize("is_elected", [False, True])
async def test_nor_does_its_log_begin_anew(pair, words, is_elected):
    await pair.catch_up()
    pair.lead(0, 2, isr=(1,))
    fill(pair.leading, words, 30)
    log = pair.leading.partition().log
    raise_start_offset(log, 20)
    drop_segments_below(log, pair.leading.disk, 20, 100)
    asked, answer = ask(pair)
    assert answer.begins_at == 20
    taking = await begun(pair, asked, answer)
    node = pair.following
    leader = NodeId(1) if is_elected else THIRD
    node.change(node.led(0, leader=leader, epoch=3, isr=(leader,), old=node.partition().state))
    if is_elected:
        fill(node, words, 15)
    await over(pair, taking)
    log = node.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (0, 25 if is_elected else 10)
    assert node.partition().high_watermark == log.log_end_offset


async def test_one_that_is_elected_amid_a_cut_shows_nothing_of_what_goes(pair, words):
    """And others may join it: they need not have what it had when it was elected."""
    await part(pair, words)
    node = pair.following
    taking = await held(pair)
    node.change(node.led(0, epoch=3, isr=(1,), old=node.partition().state))
    assert node.partition().high_watermark == 10
    await over(pair, taking)
    partition = node.partition()
    assert partition.log.log_end_offset == partition.high_watermark == 10
    partition.follower_fetched(OTHER, 10, 1)
    assert may_join(partition.view, OTHER, partition.high_watermark)


async def test_what_a_follower_had_of_what_was_cut_is_nothing_of_what_comes_there(pair, words):
    """Once it counted as a copy of what the next leader wrote in that place: records that it had
    acknowledged were on one node."""
    await part(pair, words)
    node = pair.following
    taking = await held(pair)
    node.change(node.led(0, epoch=3, isr=(1, OTHER), old=node.partition().state))
    node.partition().follower_fetched(OTHER, 15, 1)  # It has the tail that is cut off here.
    await over(pair, taking)
    answers = fill(node, words, 5)
    partition = node.partition()
    assert (partition.log.flushed_offset, partition.high_watermark) == (15, 10)
    assert not any(answer.is_done for answer in answers)
    partition.follower_fetched(OTHER, 15, 1)
    assert partition.high_watermark == 15


async def test_the_high_watermark_is_not_taken_before_histories_agree(pair, words):
    """Once it covered records of a former leader that a second cut took: consumers had seen them.

    It takes two cuts: epoch 1 and 3 were led by the follower, 2 and 4 by the other one.
    """
    await pair.catch_up()
    fill(pair.leading, words, 5)  # Node 0 has 10 to 15 of epoch 1 alone,
    pair.nodes[1].change(
        pair.nodes[1].led(0, epoch=2, isr=(1, 2), old=pair.nodes[1].partition().state)
    )
    fill(pair.nodes[1], words, 25)  # node 1 has 10 to 35 of epoch 2,
    pair.nodes[0].change(
        pair.nodes[0].led(0, epoch=3, isr=(1, 2), old=pair.nodes[0].partition().state)
    )
    fill(pair.nodes[0], words, 5)  # and node 0 has 15 to 20 of epoch 3.
    pair.lead(1, 4, isr=(1,))
    fill(pair.leading, words, 1)
    assert pair.leading.partition().high_watermark == 36
    node, cuts = pair.following, 0
    while node.partition().high_watermark < 36:
        asked, answer = ask(pair)
        cuts += answer.diverging is not None
        assert await pair.take(asked, answer)
        seen = node.read()
        assert stored(pair.leading.partition().log).startswith(seen)
        if answer.diverging is not None:
            assert node.partition().high_watermark == 10
    assert cuts == 2


@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "moved"])
async def test_where_a_log_starts_is_kept_though_it_is_said_while_another_is_made(
    pair, make_node, words, is_cut
):
    """A follower hears it with any answer; it is told once, so that it was never heard again."""
    await pair.catch_up()
    node = pair.following = make_node(partitions=1, log_dirs=("/a", "/b"))
    fill(node, words, 10)
    partition = node.partition()
    log, manager = partition.log, node.log_manager
    if is_cut:
        cuts = LogCuts(manager, node.clock)
        partition.hold()
        job, take = cuts.cut_job(log, 8), cuts.cut
    else:
        copies = LogCopies(manager, node.clock)
        begin = copies.begin_job(log, "/b" if log.log_dir == "/a" else "/a")
        begin.run()
        copy = copies.begun(begin)
        partition.hold()
        job, take = copies.take_over(copy), copies.taken
    job.run()
    raise_start_offset(log, 5)
    partition.release(take(job))
    assert partition.log is not log
    assert partition.log_start_offset == 5


async def test_what_takes_the_place_of_what_was_cut_is_not_committed(pair, make_node, words):
    """After an unclean election and a crash: consumers were shown what the ISR did not have."""
    await pair.catch_up()
    with_less = FaultyDisk(pair.nodes[0].disk.inner.crash(SeededRng(1)))
    fill(pair.leading, words, 20)
    await pair.catch_up()
    node = pair.following
    assert node.partition().high_watermark == 30

    def job():
        return node.log_manager.high_watermark_job(node.replica_manager.hosting.high_watermark_of)

    job().run()
    pair.nodes[0] = make_node(disk=with_less, partitions=1, **CONFIG)
    pair.nodes[0].partition_epoch = 50
    pair.lead(0, 3)
    fill(pair.leading, words, 15)
    asked, answer = ask(pair)
    assert answer.diverging is not None
    taking = pending_of(pair.follower.take(asked, answer))
    for _ in range(20):
        await asyncio.sleep(0)
    assert node.partition().is_held
    amid_the_cut = job()
    (told,) = amid_the_cut.files.values()
    assert told[node.partition().topic_partition] <= 10
    await over(pair, taking)
    amid_the_cut.run()
    asked = pair.follower.next_request()
    await pair.take(asked, pair.answer(asked, max_bytes=10_000))
    assert node.partition().high_watermark == 10
    crashed = FaultyDisk(node.disk.inner.crash(SeededRng(1)))
    again = make_node(disk=crashed, partitions=1, **CONFIG)
    assert again.partition().log.log_end_offset > 10
    assert again.log_manager.high_watermarks[again.partition().topic_partition] <= 10
