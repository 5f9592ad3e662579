"""A follower has what its leader has, durably, before it says so; the leader commits only then."""

import asyncio
import errno
import random

import pytest

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId
from ottla.log.contents.leader_epochs import EpochEnd
from ottla.log.directories.cutting import LogCuts
from ottla.log.upkeep.front import drop_segments_below, raise_start_offset
from ottla.pending import Pending, pending_of
from ottla.replication.cutting import Cutting
from ottla.replication.followers import answer_follower
from ottla.replication.following import Fetched, Following
from ottla.replication.isr_changes import IsrChanges

OTHER = NodeId(2)
REGISTERED = 7
CONFIG = {"segment_bytes": 700, "index_interval_bytes": 100}


class Pair:
    """A leader and a follower, nodes with disks of their own; requests go by hand."""

    def __init__(self, make_node):
        self.nodes = [make_node(partitions=1, **CONFIG) for _ in range(2)]
        self.changes = None
        self.lead(0, 1)

    def lead(self, which, epoch, isr=(1, 2)):
        """Let one of the nodes lead and the other one follow. Each calls itself node 1."""
        self.leading, self.following = self.nodes[which], self.nodes[1 - which]
        leading, following = self.leading, self.following
        leading.change(leading.led(0, epoch=epoch, isr=isr, old=leading.partition().state))
        self.changes = IsrChanges(leading.clock, lambda *_: Pending(), lambda: 10_000)
        self.changes.watch(leading.partition())
        before = following.partition().state
        following.change(following.led(0, leader=OTHER, epoch=epoch, isr=isr, old=before))
        self.follow()

    def follow(self):
        node = self.following
        cutting = Cutting(LogCuts(node.log_manager, node.clock), node.executor, node.clock)
        make_anew = node.replica_manager.hosting.make_anew
        self.follower = Following(node.partition(), cutting, lambda: REGISTERED, make_anew)

    def answer(self, asked, max_bytes=500):
        partition = self.leading.partition()
        found = answer_follower(partition, self.changes, OTHER, asked, max_bytes=max_bytes)
        data = b"" if found.region is None else found.region.read()
        return Fetched(
            found.high_watermark,
            found.log_start_offset,
            memoryview(data),
            found.diverging,
            found.begins_at,
        )

    async def take(self, asked, fetched):
        pending = pending_of(self.follower.take(asked, fetched))
        for _ in range(300):
            for _ in range(5):
                await asyncio.sleep(0)
            if pending.is_done:
                if pending.error is not None:
                    raise pending.error
                return pending.value
            self.following.executor.run_next()
        pytest.fail("it never ends")

    def is_made_anew(self):
        hosting = self.following.replica_manager.hosting
        return self.follower.partition not in hosting.partitions.values()

    async def catch_up(self):
        """Fetch until a fetch brings nothing new; twice, for the high watermark."""
        nothing = 0
        for _ in range(200):
            asked = self.follower.next_request()
            if asked is None:  # What it wrote while it led is not synced yet.
                self.following.executor.run_all()
                continue
            fetched = self.answer(asked)
            assert await self.take(asked, fetched)
            if self.is_made_anew():
                self.following.executor.run_all()
                self.follow()
            self.following.partition().check()
            is_new = len(fetched.records) or fetched.diverging or fetched.begins_at
            nothing = 0 if is_new else nothing + 1
            if nothing == 2:
                return
        pytest.fail("it never catches up")


@pytest.fixture
def pair(make_node):
    return Pair(make_node)


def fill(node, words, count, size=60):
    answers = [node.append((0, words.batch(b"%d" % at * size))) for at in range(count)]
    node.executor.run_all()
    return answers


def stored(log):
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)


async def test_acks_all_waits_until_the_follower_has_synced(pair, words):
    (waiting,) = fill(pair.leading, words, 1)
    asked = pair.follower.next_request()
    fetched = pair.answer(asked)
    taking = pending_of(pair.follower.take(asked, fetched))
    for _ in range(10):
        await asyncio.sleep(0)
    log = pair.following.partition().log
    assert log.log_end_offset == 1
    assert pair.follower.next_request() is None, "not before it is synced"
    assert not waiting.is_done
    while not taking.is_done:
        pair.following.executor.run_next()
        await asyncio.sleep(0)
    assert log.flushed_offset == 1
    assert not waiting.is_done
    pair.answer(pair.follower.next_request())
    assert waiting.is_done
    assert words.codes(waiting) == [ErrorCode.NONE]


async def test_it_catches_up_byte_for_byte_over_segments_and_cut_answers(pair, words):
    waiting = fill(pair.leading, words, 40)
    await pair.catch_up()
    log = pair.following.partition().log
    assert stored(log) == stored(pair.leading.partition().log)
    assert log.segment_count > 3
    assert pair.following.partition().high_watermark == 40
    assert all(answer.is_done for answer in waiting)
    # What it has said is durable.
    disk = pair.following.disk.inner.crash(SeededRng(1))
    path = f"{log.directory}/{0:020d}.log"
    assert disk.size_of(path) == pair.leading.disk.size_of(path)


async def test_what_a_deposed_leader_had_alone_is_cut_off(pair, words):
    fill(pair.leading, words, 10)
    await pair.catch_up()
    alone = fill(pair.leading, words, 5)
    assert not any(answer.is_done for answer in alone)
    pair.lead(1, 2)
    fill(pair.leading, words, 3, size=20)
    await pair.catch_up()
    log = pair.following.partition().log
    assert log.log_end_offset == 13
    assert stored(log) == stored(pair.leading.partition().log)
    assert log.leader_epochs.entries == pair.leading.partition().log.leader_epochs.entries
    assert all(words.codes(answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] for answer in alone)


async def test_one_that_ends_below_the_leaders_start_begins_anew_there(pair, words):
    fill(pair.leading, words, 2)
    await pair.catch_up()
    fill(pair.leading, words, 30)
    log = pair.leading.partition().log
    raise_start_offset(log, 20)
    drop_segments_below(log, pair.leading.disk, 20, 100)
    await pair.catch_up()
    copy = pair.following.partition().log
    assert (copy.log_start_offset, copy.log_end_offset) == (20, 32)
    assert pair.following.partition().high_watermark == 32
    assert stored(log).endswith(stored(copy))


@pytest.mark.parametrize("start", [90, 91, 92])
@pytest.mark.parametrize("known", [0, 2, 30])
async def test_one_catches_up_with_a_leader_whose_log_starts_amid_a_batch(
    pair, words, start, known
):
    """Once it began at the log start, and refused the leader's first batch for ever."""

    def fill_by_threes(count):
        for at in range(count):
            pair.leading.append((0, words.batch(*[b"%d" % at * 20] * 3)))
        pair.leading.executor.run_all()

    fill_by_threes(known)
    await pair.catch_up()
    fill_by_threes(40 - known)
    log = pair.leading.partition().log
    raise_start_offset(log, start)
    drop_segments_below(log, pair.leading.disk, start, 100)
    await pair.catch_up()
    copy = pair.following.partition().log
    assert (copy.log_start_offset, copy.log_end_offset) == (start, 120)
    assert pair.following.partition().high_watermark == 120
    assert stored(log)[-400:] == stored(copy)[-400:]
    assert copy.segments.base_offset <= 90


async def amid_the_batch_of_its_start(pair, words):
    """Let the follower start at 10, within its batch of 9 to 12, and be told to end at 11."""
    for at in range(12):
        pair.leading.append((0, words.batch(*[b"%d" % at * 20] * 3)))
    pair.leading.executor.run_all()
    await pair.catch_up()
    raise_start_offset(pair.following.partition().log, 10)
    asked = pair.follower.next_request()
    return asked, pair.answer(asked)._replace(diverging=EpochEnd(1, 11))


async def test_one_that_is_cut_amid_the_batch_of_its_start_is_made_anew(pair, make_node, words):
    """Once it ended at 9, with 10 as the start in the checkpoint: a crash made it corrupt."""
    asked, answer = await amid_the_batch_of_its_start(pair, words)
    node = pair.following
    job = node.log_manager.checkpoint_job()
    job.run()
    node.log_manager.checkpointed(job)
    await pair.take(asked, answer)
    node.executor.run_all()
    crashed = FaultyDisk(node.disk.inner.crash(SeededRng(1)))
    again = make_node(disk=crashed, partitions=1, **CONFIG).partition()
    assert again.log.is_in_service
    assert pair.is_made_anew()
    pair.follow()
    await pair.catch_up()
    assert stored(node.partition().log) == stored(pair.leading.partition().log)


async def test_one_that_retention_lets_start_later_while_a_cut_waits_goes_on(pair, words):
    """Once it was out of service until the node's next start."""
    fill(pair.leading, words, 20)
    await pair.catch_up()
    node = pair.following
    asked = pair.follower.next_request()
    answer = pair.answer(asked)._replace(diverging=EpochEnd(1, 11))
    node.partition().log.is_swapping = True
    taking = pending_of(pair.follower.take(asked, answer))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not taking.is_done
    raise_start_offset(node.partition().log, 12)
    node.partition().log.is_swapping = False
    for _ in range(50):
        await asyncio.sleep(0)
        node.clock.advance(0.05)
        node.executor.run_next()
    assert taking.is_done
    assert taking.error is None
    assert node.partition().log.log_end_offset == 20
    asked = pair.follower.next_request()
    await pair.take(asked, pair.answer(asked)._replace(diverging=EpochEnd(1, 11)))
    assert pair.is_made_anew()


@pytest.mark.parametrize("count", [5, 45])
@pytest.mark.parametrize("is_empty", [False, True])
async def test_one_that_parts_below_its_own_start_is_made_anew(
    pair, make_node, words, count, is_empty
):
    """After an unclean election: what both had, if anything, was deleted here."""
    fill(pair.leading, words, 30)
    await pair.catch_up()
    for node in pair.nodes:
        log = node.partition().log
        raise_start_offset(log, 30 if is_empty else 20)
        drop_segments_below(log, node.disk, log.log_start_offset, 100)
    if is_empty:
        pair.nodes[1] = make_node(partitions=1, **CONFIG)
        pair.lead(0, 1)
        await pair.catch_up()
        assert pair.following.partition().log.log_start_offset == 30
    pair.nodes[0] = make_node(partitions=1, **CONFIG)
    pair.nodes[0].change(pair.nodes[0].led(0, epoch=2, old=pair.nodes[0].partition().state))
    fill(pair.nodes[0], words, count)
    pair.nodes[1].partition_epoch = pair.nodes[0].partition_epoch = 50
    pair.lead(0, 3, isr=(1,))
    await pair.catch_up()
    log, copy = pair.leading.partition().log, pair.following.partition().log
    assert copy.is_in_service
    assert stored(log).endswith(stored(copy))
    assert copy.log_end_offset == count
    if not (is_empty and count > 30):  # There it has nothing that parts.
        assert stored(copy) == stored(log)
    crashed = FaultyDisk(pair.following.disk.inner.crash(SeededRng(1)))
    assert make_node(disk=crashed, partitions=1, **CONFIG).partition().log.log_end_offset == count


async def test_one_whose_records_are_all_deleted_is_made_anew_where_their_epoch_was_lost(
    pair, make_node, words
):
    """It knows an epoch, and has nothing to cut off: it asked again and again."""
    pair.lead(0, 3)
    fill(pair.leading, words, 30)
    await pair.catch_up()
    log = pair.following.partition().log
    raise_start_offset(log, 30)
    drop_segments_below(log, pair.following.disk, 30, 100)
    pair.nodes[0] = make_node(partitions=1, **CONFIG)
    pair.nodes[0].change(pair.nodes[0].led(0, epoch=2, old=pair.nodes[0].partition().state))
    fill(pair.nodes[0], words, 30)
    pair.nodes[1].partition_epoch = pair.nodes[0].partition_epoch = 50
    pair.lead(0, 4, isr=(1,))
    await pair.catch_up()
    assert stored(pair.following.partition().log) == stored(pair.leading.partition().log)


async def test_only_the_answer_to_the_newest_request_is_taken(pair, words):
    fill(pair.leading, words, 2)
    late = pair.follower.next_request()
    answer = pair.answer(late)
    asked = pair.follower.next_request()
    assert not await pair.take(late, answer)
    assert pair.following.partition().log.log_end_offset == 0
    assert await pair.take(asked, answer)
    assert not await pair.take(asked, answer), "nor the same one twice"


async def test_an_answer_of_a_former_leader_is_dropped(pair, words):
    fill(pair.leading, words, 2)
    asked = pair.follower.next_request()
    answer = pair.answer(asked)
    node = pair.following
    node.change(node.led(0, leader=OTHER, epoch=2, isr=(1, 2), old=node.partition().state))
    assert not await pair.take(asked, answer)
    with pytest.raises(KafkaError) as refused:
        pair.answer(pair.follower.next_request())
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_damaged_answer_leaves_nothing(pair, words):
    fill(pair.leading, words, 2)
    asked = pair.follower.next_request()
    answer = pair.answer(asked)
    damaged = bytearray(answer.records)
    damaged[80] ^= 1
    with pytest.raises(KafkaError) as refused:
        await pair.take(asked, answer._replace(records=memoryview(damaged)))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert pair.following.partition().log.log_end_offset == 0
    await pair.catch_up()
    assert pair.following.partition().log.log_end_offset == 2


async def test_a_full_disk_takes_no_records_and_all_else(pair, words):
    """Once it took nothing, and asked for the same records again and again."""
    fill(pair.leading, words, 3)
    await pair.catch_up()
    log = pair.following.partition().log
    fill(pair.leading, words, 1)
    pair.following.disk.fail(DiskCall.WRITE, errno=errno.ENOSPC)
    asked = pair.follower.next_request()
    assert not pair.follower.is_full
    assert await pair.take(asked, pair.answer(asked)), "it was found out just now"
    assert pair.follower.is_full
    assert log.log_end_offset == 3
    asked = pair.follower.next_request()
    assert await pair.take(asked, pair.answer(asked)), "it was on its way"
    asked = pair.follower.next_request()
    found = pair.answer(asked, 0)
    assert await pair.take(asked, found._replace(log_start_offset=2))
    assert (log.log_end_offset, log.log_start_offset) == (3, 2)
    pair.following.measure_space()
    assert not pair.follower.is_full
    await pair.catch_up()
    assert log.log_end_offset == 4


async def test_who_leads_asks_nobody(pair):
    pair.nodes[1].change(pair.nodes[1].led(0, epoch=2, isr=(1, 2)))
    assert pair.follower.next_request() is None


def values_at(node, offset):
    """Return the first value of the batch at an offset of the node's log."""
    from ottla.records.decode import decode_batches

    log = node.partition().log
    result = log.read(offset, max_bytes=1, upper_offset=log.log_end_offset, min_one_message=True)
    (batch,) = decode_batches(result.region.read(), 1 << 20)
    assert batch.header.base_offset == offset
    return next(iter(batch.records)).value


@pytest.mark.parametrize("seed", range(25))
async def test_nothing_acknowledged_is_lost_whoever_leads(pair, words, seed):
    chance, waiting, epoch, leads, number = random.Random(seed), [], 1, 0, 0
    for _ in range(30):
        what = chance.choice(["append", "append", "fetch", "fetch", "fetch", "switch"])
        if what == "append":
            for _ in range(chance.randrange(1, 6)):
                number += 1
                value = b"%d." % number * chance.choice([1, 40])
                waiting.append((value, pair.leading.append((0, words.batch(value)))))
            if chance.random() < 0.7:
                pair.leading.executor.run_all()
        elif what == "fetch":
            asked = pair.follower.next_request()
            if asked is not None:
                await pair.take(asked, pair.answer(asked, max_bytes=chance.choice([1, 300, 3000])))
        else:
            epoch, leads = epoch + 1, 1 - leads
            pair.lead(leads, epoch)
        for node in pair.nodes:
            node.partition().check()
    waiting.append((b"last", pair.leading.append((0, words.batch(b"last")))))
    pair.leading.executor.run_all()
    await pair.catch_up()
    one, other = pair.leading.partition(), pair.following.partition()
    assert stored(one.log) == stored(other.log)
    assert one.log.leader_epochs.entries == other.log.leader_epochs.entries
    assert one.high_watermark == other.high_watermark == one.log.log_end_offset
    one.log.check()
    other.log.check()
    acknowledged = 0
    for value, answer in waiting:
        assert answer.is_done
        if words.codes(answer) == [ErrorCode.NONE]:
            acknowledged += 1
            offset = words.result_of(answer)[0].base_offset
            assert values_at(pair.leading, offset) == values_at(pair.following, offset) == value
    assert acknowledged
