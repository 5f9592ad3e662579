"""However much is queued, due, loaded or decided at once, other work of the loop has its turns."""

import sys
from itertools import pairwise

import pytest

from ottla.coordinator.group.consumer.machine import Heartbeat
from ottla.coordinator.group.offsets.committed import TAKEN_PER_STEP
from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.records import EndMarker, ProducerIdAndEpoch
from ottla.coordinator.shard import ShardState
from ottla.deadlines import Deadlines
from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId
from ottla.metadata.image import MetadataDelta, TopicImage
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.sliced import STRIDE
from ottla.turns import Turns


class BusyClock(ManualClock):
    """Each look at it tells that a millisecond has gone: work takes its time."""

    def monotonic(self):
        self.hold(0.001)
        return super().monotonic()


SOME = 20
"""More than a slice does, by such a clock."""


class Line:
    """Turns whose next one comes with ``next``."""

    def __init__(self):
        self._due = []
        self.turns = Turns(BusyClock(), call_soon=self._due.append)

    def next(self):
        due, self._due[:] = list(self._due), []
        for turn in due:
            turn()
        return bool(due)


@pytest.fixture
def line():
    return Line()


@pytest.fixture
def busy(make_groups, words, line):
    """A coordinator whose slices end soon, and ``turn``, which gives it one."""
    consumer = words.SETTINGS.consumer._replace(members_max=100_000)
    groups = make_groups(settings=words.SETTINGS._replace(consumer=consumer))
    groups.coordinator.stop()
    groups.turns, groups.turn = line.turns, line.next
    groups.boot()
    while line.next() or groups.executor.run_all():
        pass
    return groups


def heartbeat(groups, member, epoch=0, group="g", topics=("t",)):
    owned = {} if epoch == 0 else None
    return groups.coordinator.consumer_heartbeat(
        group,
        Heartbeat(member, epoch, None, None, 60_000, topics, None, None, owned, "c", "/h"),
    )


def finish(groups, pendings):
    for _ in range(10_000):
        if all(one.is_done for one in pendings):
            return [groups.result_of(one) for one in pendings]
        groups.turn()
        groups.executor.run_all()
    raise AssertionError("they wait for ever")


def slices_of(groups, seen, count):
    """Take turns until ``seen`` has so many; return how many came in the longest of them."""
    longest = before = len(seen)
    for _ in range(1000):
        if len(seen) >= count:
            return longest
        groups.turn()
        longest, before = max(longest, len(seen) - before), len(seen)
    raise AssertionError(f"{len(seen)} of {count}")


def test_all_sessions_that_are_over_at_once_are_not_ended_in_one_turn(line):
    clock, fired = ManualClock(), []
    timers = Deadlines(clock, line.turns, name="timers")
    for number in range(SOME):
        timers.schedule(number, 1000, lambda number=number: fired.append(number))
    clock.advance(1)
    assert 0 < len(fired) < SOME // 2
    timers.schedule("later", 1000, lambda: fired.append("later"))
    timers.cancel(SOME - 1)
    while line.next():
        pass
    assert fired == list(range(SOME - 1))
    clock.advance(1)
    assert fired[-1] == "later"


def test_a_long_queue_is_not_served_in_one_turn_and_keeps_its_order(busy):
    shard = busy.shard("g")
    seen = []
    shard.hold()
    shard.execute(lambda: seen.append("alone"), print, alone=True)
    for number in range(SOME):
        shard.execute(lambda number=number: seen.append(number), print)
    assert seen == []
    shard.release()
    assert len(seen) < SOME // 2
    shard.execute(lambda: seen.append("last"), print)
    slices_of(busy, seen, SOME + 2)
    assert seen == ["alone", *range(SOME), "last"]


def test_those_who_wait_for_a_shard_that_goes_are_sent_away_in_slices(busy):
    shard = busy.shard("g")
    codes = []
    shard.hold()
    shard.execute(lambda: None, lambda error: codes.append(error.code), alone=True)
    for _ in range(SOME):
        shard.execute(lambda: None, lambda error: codes.append(error.code))
    shard.close()
    assert slices_of(busy, codes, SOME + 1) < SOME // 2
    assert set(codes) == {ErrorCode.NOT_COORDINATOR}


def test_a_load_and_what_begins_with_it_give_way(busy):
    for number in range(SOME * 64):
        busy.commit(f"g{number}", (0, number))
    while busy.turn() or busy.executor.run_all():
        pass
    busy.coordinator.stop()
    busy.boot()
    shards = list(busy.runtime.shards)
    counts = []
    for _ in range(2000):
        busy.executor.run_all()
        counts.append(sum(len(shard.machine.groups) for shard in shards))
        if all(shard.state is ShardState.ACTIVE for shard in shards):
            break
        busy.turn()
    assert counts[-1] == SOME * 64
    assert max(b - a for a, b in pairwise(counts)) < SOME * 32


def test_who_comes_while_a_shard_begins_to_serve_waits_for_it(busy):
    busy.member("g")
    busy.coordinator.stop()
    busy.boot()
    shard = busy.shard("g")
    seen = []
    begin = shard.machine.loaded

    def loaded():
        for _ in range(SOME):
            yield
        yield from begin()
        seen.append("loaded")

    shard.machine.loaded = loaded
    while shard.state is ShardState.LOADING:
        busy.executor.run_next()
    shard.execute(lambda: seen.append("operation"), seen.append)
    assert seen == []
    slices_of(busy, seen, 2)
    assert seen == ["loaded", "operation"]


def calls_of(work):
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def waiters_of(make_groups, count):
    """What it costs that so many wait for a group, each of which writes something then."""
    groups = make_groups()
    shard = groups.shard("g")
    line = shard.machine.line
    record = (b"\x00\x10\x00\x01g\x00\x01r", None)
    seen = []

    def write(number):
        line.write("g", [record], lambda: seen.append(number), print)

    def work():
        for number in range(count):
            line.in_turn("g", lambda number=number: write(number), print)
        while len(seen) < count:
            groups.executor.run_all()
            groups.clock.advance(0)

    calls = calls_of(work)
    assert seen == list(range(count)), "in the order in which they came"
    return calls


def test_who_waits_for_a_group_is_not_put_back_again_and_again(make_groups):
    small, large = waiters_of(make_groups, 20), waiters_of(make_groups, 160)
    assert large < 1.2 * 8 * small


def topic(groups, name, partitions=3):
    states = groups.topics["__consumer_offsets"].partitions[:1] * partitions
    groups.topics[name] = TopicImage(name, TopicId(name.encode().ljust(16, b".")), states)


@pytest.fixture
def deciding(busy):
    """A group whose next decision takes some slices, by such a clock."""
    topic(busy, "t")
    names = [f"m{number}" for number in range(STRIDE * 3)]
    slow, busy.turns.clock = busy.turns.clock, ManualClock()
    answers = finish(busy, [heartbeat(busy, name) for name in names])
    busy.turns.clock = slow
    assert [one.member_id for one in answers] == names
    return busy


def test_a_decision_for_a_large_group_gives_way_and_its_group_waits(deciding):
    busy, shard = deciding, deciding.shard("g")
    joined = heartbeat(busy, "one more")
    assert not joined.is_done
    busy.settle()
    assert "one more" not in shard.machine.groups.get("g").members
    beats = [heartbeat(busy, "m1", epoch=1), heartbeat(busy, "m2", epoch=1)]
    alone = []
    shard.execute(lambda: alone.append(joined.is_done), print, alone=True)
    assert not any(one.is_done for one in beats)
    assert alone == []
    finish(busy, [joined, *beats])
    assert alone == [True], "what runs alone sees what was decided"
    busy.check()


def test_topics_that_change_while_a_group_decides_are_looked_at_by_its_next_heartbeat(deciding):
    busy, group = deciding, deciding.shard("g").machine.groups.get("g")
    joined = heartbeat(busy, "one more")
    topic(busy, "t", partitions=4)
    old = busy.topics["t"]
    busy.coordinator.apply(None, MetadataDelta(revision=2, topics_created=(old,)))
    finish(busy, [joined])
    assert group.is_stale
    epoch = group.epoch
    finish(busy, [heartbeat(busy, "one more", epoch=joined.value.epoch, topics=None)])
    assert group.epoch == epoch + 1
    assert not group.is_stale


def test_a_decision_under_way_ends_with_its_shard(deciding):
    busy, shard = deciding, deciding.shard("g")
    joined = heartbeat(busy, "one more")
    waiting = heartbeat(busy, "m1", epoch=1)
    shard.close()
    assert [one.code for one in finish(busy, [joined, waiting])] == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_COORDINATOR,
    ]


def test_a_fault_in_a_decision_that_took_long_costs_that_request_only(deciding, monkeypatch):
    busy = deciding
    joined = heartbeat(busy, "one more")
    line = busy.shard("g").machine.line
    write = line.write
    monkeypatch.setattr(line, "write", lambda *_: 1 // 0)
    waiting = heartbeat(busy, "m1", epoch=1)
    for _ in range(1000):
        if joined.is_done:
            break
        busy.turn()
    monkeypatch.setattr(line, "write", write)
    assert joined.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    (answer,) = finish(busy, [waiting])
    assert isinstance(answer, KafkaError) or answer.member_id == "m1"
    finish(busy, [heartbeat(busy, "one more")])


def test_topics_that_go_together_are_forgotten_in_one_walk_over_the_groups(busy):
    for number in range(SOME):
        finish(busy, [busy.commit(f"g{number}", (0, 5), topic=f"t{number % 3}")])
    shards = list(busy.runtime.shards)
    walks = []
    for shard in shards:
        of_topics = shard.machine.offsets.of_topics

        def walk(names, of_topics=of_topics):
            walks.append(names)
            return of_topics(names)

        shard.machine.offsets.of_topics = walk
    gone = [TopicImage(f"t{n}", TopicId(bytes([n]) * 16), ()) for n in (0, 1)]
    busy.coordinator.apply(None, MetadataDelta(revision=2, topics_deleted=tuple(gone)))
    for _ in range(100):
        busy.turn()
        busy.settle()
    assert walks == [{"t0", "t1"}] * len(shards)
    left = {name for n in range(SOME) for name, _ in busy.fetch(f"g{n}")}
    assert left == {"t2"}


def test_a_transaction_of_very_many_offsets_ends_in_slices_and_is_seen_whole(busy):
    producer, count = ProducerIdAndEpoch(7, 0), SOME * TAKEN_PER_STEP
    topic = TopicCommit("t", [(index, index, -1, None) for index in range(count)])
    asked = CommitRequest("g", "", None, -1, -1, [topic], False, producer=producer)
    (committed,) = finish(busy, [busy.coordinator.commit_offsets(asked)])
    assert committed == [ErrorCode.NONE] * count
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    batch = build_end_transaction_marker(marker, producer_id=7, producer_epoch=0, timestamp_ms=1)
    index = busy.runtime.partition_for("g")
    ended = busy.coordinator.end_transaction(index, batch, EndMarker(7, True), 1)
    wanted = [("t", 0), ("t", count - 1)]
    whole = busy.coordinator.fetch_offsets("g", wanted, require_stable=True)
    busy.executor.run_all()
    offsets, seen, turns = busy.shard("g").machine.offsets, [], 0
    while not ended.is_done:
        assert not whole.is_done, "who wants what is stable waits for all of it"
        seen.append(len(offsets.of_group("g").get("t", ())))
        busy.turn()
        turns += 1
    assert turns > 2
    assert max(b - a for a, b in pairwise(seen)) < count // 2
    (found,) = finish(busy, [whole])
    assert [one.committed.offset for one in found] == [0, count - 1]
