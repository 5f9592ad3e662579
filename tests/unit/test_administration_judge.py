"""The judge of tests/campaigns/administration.py finds each kind of broken promise, no other."""

import time
import uuid

import pytest

from tests.campaigns.administering.history import (
    Altered,
    Batch,
    Call,
    Commit,
    Deleted,
    History,
    Outcome,
    Topic,
    Transaction,
    Verdict,
)
from tests.campaigns.administering.judge import Observation, PartitionJudge, judge_commits
from tests.campaigns.administering.records import (
    Found,
    committed,
    is_tombstone,
    key_of,
    make_batch,
    parse,
)
from tools.wire_client import batch as wire_batch

TOPIC_ID = uuid.UUID(int=7)
WRITER = 1
NOW = time.time()
PLAIN = tuple(number for number in range(1, 200) if not is_tombstone(WRITER, number))
TOMBSTONE = next(number for number in range(1, 200) if is_tombstone(WRITER, number))


def call(sent, over=None, verdict=Verdict.OK):
    return Call(NOW + sent, NOW + (sent + 0.1 if over is None else over), verdict)


class Story:
    """A topic that was made 100 seconds ago, and what was written to its partition 0."""

    def __init__(self, **configs):
        self.history = History()
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.topic = Topic("t", TOPIC_ID, call(-100), named, 1, 1)
        self.history.topics[TOPIC_ID] = self.topic
        self.end = 0

    def write(self, number, *, sent=-50, transaction=None, verdict=Verdict.OK, offset=None):
        """Write one record; it is acknowledged at the next offset."""
        record = (WRITER, number)
        one = Batch(
            "t",
            TOPIC_ID,
            0,
            [record],
            [key_of(*record)],
            [is_tombstone(*record)],
            int((NOW + sent) * 1000),
            100,
            call(sent, verdict=verdict),
            transaction=transaction,
        )
        self.history.send(one)
        if verdict is Verdict.OK:
            one.base_offset = self.end if offset is None else offset
            self.end = one.base_offset + 1
        return one

    def found(self, offset, number, *, topic_id=TOPIC_ID, is_whole=True):
        record = (WRITER, number)
        return Found(offset, record, topic_id, key_of(*record), is_tombstone(*record), is_whole)

    def judge(self, found, *, start=0, end=None, controls=(), visible=None, **clock):
        """Return the problems of this observation; ``found``: (offset, number) or Found."""
        records = [self.found(*one) if len(one) == 2 else one for one in found]
        seen = {one.offset for one in records} if visible is None else set(visible)
        end = self.end if end is None else end
        observed = Observation(start, end, records, list(controls), seen, NOW, **clock)
        return PartitionJudge(self.history, self.topic, 0, observed).judge()

    def returned(self, found, *, start=0):
        """Return what came back in this observation: ``found`` as above, each of them visible."""
        records = [self.found(*one) for one in found]
        seen = {one.offset for one in records}
        observed = Observation(start, self.end, records, [], seen, NOW)
        return PartitionJudge(self.history, self.topic, 0, observed).returned()


def same_key(number):
    return next(
        one for one in PLAIN if one > number and key_of(WRITER, one) == key_of(WRITER, number)
    )


def three(**configs):
    story = Story(**configs)
    for number in (1, 2, 3):
        story.write(number)
    return story


ALL = [(0, 1), (1, 2), (2, 3)]


def swapped(*, is_sequenced, **configs):
    """Return the problems of a producer's records 1 and 3, which stand the other way round."""
    story = Story(**configs)
    for number in (3, 1):
        story.write(number).is_sequenced = is_sequenced
    return story.judge([(0, 3), (1, 1)])


def test_records_of_an_idempotent_producer_out_of_its_order_are_told():
    (problem,) = swapped(is_sequenced=True)
    assert "out of order: (1, 1) at 1 follows (1, 3)" in problem


def test_who_may_have_been_forgotten_or_does_not_count_may_change_the_order():
    assert swapped(is_sequenced=False) == []
    assert swapped(is_sequenced=True, cleanup_policy="compact") == []


def test_what_was_promised_and_is_there_is_right():
    assert three().judge(ALL) == []


@pytest.mark.parametrize(
    ("found", "more", "word"),
    [
        ([(0, 1), (2, 3)], {}, "lost: 1 promised"),
        ([(0, 1), (2, 3)], {}, "1 holes from offset 1"),
        ([(0, 1), (1, 2)], {}, "lost"),
        ([(1, 2), (2, 3)], {"start": 1}, "below the log start"),
        ([], {"start": 3}, "below the log start"),
        ([], {"end": 0}, "acknowledged to 3, high watermark is 0"),
        ([*ALL, (3, 1)], {"end": 4}, "doubled"),
        ([*ALL, (3, 99)], {"end": 4}, "invented"),
        ([(0, 2), (1, 1), (2, 3)], {}, "(1, 1) promised at 0, (1, 2) is there"),
        ([(0, 1), (2, 3), (1, 2)], {}, "follows"),
        (ALL, {"start": 5}, "log start 5 > end 3"),
        (ALL, {"visible": [0, 2]}, "hidden from committed readers"),
    ],
)
def test_what_is_missing_doubled_or_out_of_place_is_found(found, more, word):
    problems = three().judge(found, **more)
    assert any(word in problem for problem in problems), problems


def test_a_record_of_a_dead_topic_is_found():
    story = three()
    dead = story.found(3, 4, topic_id=uuid.UUID(int=6))
    problems = story.judge([*ALL, dead], end=4)
    assert any("dead topic" in problem for problem in problems), problems


def test_an_altered_record_is_found():
    story = three()
    problems = story.judge([(0, 1), (1, 2), story.found(2, 3, is_whole=False)])
    assert any("altered" in problem for problem in problems), problems


def test_a_record_without_an_answer_may_be_there_or_not_until_somebody_saw_it():
    def story():
        made = three()
        made.write(4, verdict=Verdict.UNKNOWN)
        return made

    assert story().judge(ALL) == []
    seen = story()
    assert seen.judge([*ALL, (3, 4)], end=4) == []
    problems = seen.judge(ALL, end=4)
    assert any("lost" in problem for problem in problems), problems


def test_bounds_never_fall():
    story = three(retention_ms="1000")
    assert story.judge([(2, 3)], start=2) == []
    problems = story.judge([(1, 2), (2, 3)], start=1, end=3)
    assert any("log start fell: 2 to 1" in problem for problem in problems), problems
    problems = story.judge([], start=2, end=2)
    assert any("high watermark fell: 3 to 2" in problem for problem in problems), problems


# -- what may be gone ---------------------------------------------------------------------------


def deletion(offset, sent=-20, verdict=Verdict.OK):
    return Deleted("t", call(sent, verdict=verdict), 0, offset)


def test_records_go_as_far_as_somebody_asked_and_no_farther():
    story = three()
    story.history.deleted.append(deletion(2))
    assert story.judge([(2, 3)], start=2) == []
    story = three()
    story.history.deleted.append(deletion(2))
    assert any("lost: 1" in problem for problem in story.judge([], start=3))
    story = three()
    story.history.deleted.append(deletion(2))
    assert any("deleted below 2" in problem for problem in story.judge(ALL))


def test_what_was_asked_of_the_topic_that_had_the_name_before_is_no_excuse():
    story = three()
    story.history.deleted.append(deletion(2, sent=-200))
    assert any("lost" in problem for problem in story.judge([(2, 3)], start=2))


def test_a_deletion_in_doubt_excuses_but_demands_nothing():
    story = three()
    story.history.deleted.append(deletion(2, verdict=Verdict.UNKNOWN))
    assert story.judge(ALL) == []
    assert story.judge([(2, 3)], start=2) == []


def test_retention_by_time_takes_what_is_old_enough():
    assert three(retention_ms="10000").judge([], start=3) == []
    problems = three(retention_ms="80000").judge([], start=3)
    assert any("lost: 3" in problem for problem in problems), problems
    problems = three(retention_ms="10000", cleanup_policy="compact").judge([], start=3)
    assert any("lost: 3" in problem for problem in problems), problems


def test_retention_that_was_called_off_takes_nothing_any_more():
    story = Story(retention_ms="10000")
    story.history.altered.append(Altered("t", call(-30), {"retention.ms": "-1"}))
    story.write(1, sent=-60)
    story.write(2, sent=-35)
    assert story.judge([(1, 2)], start=1) == []
    problems = story.judge([], start=2)
    assert any("lost: 1 promised" in problem for problem in problems), problems
    assert story.judge([], start=2, ahead=20.0) == [], "it was old enough for a fast clock"


def test_retention_by_size_leaves_that_much():
    assert three(retention_bytes="200").judge([(1, 2), (2, 3)], start=1) == []
    problems = three(retention_bytes="400").judge([(1, 2), (2, 3)], start=1)
    assert any("lost" in problem for problem in problems), problems


def test_compaction_takes_what_has_a_newer_record_of_its_key_and_nothing_else():
    newer = same_key(1)

    def story():
        made = Story(cleanup_policy="compact")
        for number in (1, 2, newer):
            made.write(number)
        return made

    assert story().judge([(1, 2), (2, newer)]) == []
    for found in ([(2, newer)], [(0, 1), (1, 2)], [(1, 2)]):
        problems = story().judge(found)
        assert any("above the log start" in problem for problem in problems), problems


def test_the_newest_of_its_key_that_readers_saw_is_lost_though_the_log_start_stayed():
    story = Story(cleanup_policy="compact,delete", retention_ms="600000")
    for number in (1, 2, 3):
        story.write(number)
    assert story.judge(ALL) == []
    problems = story.judge([(2, 3)])
    assert any("lost: 2 promised records above the log start" in one for one in problems), problems


def test_retention_may_take_what_compaction_left_of_a_segment_with_younger_records():
    # World s1128a.25: the young records of a segment went by compaction, the old ones by age.
    newer = same_key(2)

    def story():
        made = Story(cleanup_policy="compact,delete", retention_ms="30000")
        made.write(1, sent=-50)
        made.write(2, sent=-5)
        made.write(newer, sent=-4)
        return made

    assert story().judge([(2, newer)], start=2) == []
    problems = story().judge([], start=2)
    assert any("lost: 2 promised records below the log start" in one for one in problems), problems


def test_a_tombstone_stays_until_its_horizon():
    def story(kept_ms):
        made = Story(cleanup_policy="compact", delete_retention_ms=kept_ms)
        before = next(one for one in PLAIN if key_of(WRITER, one) == key_of(WRITER, TOMBSTONE))
        made.write(before)
        made.write(TOMBSTONE)
        return made

    assert story("1000").judge([]) == []
    problems = story("80000").judge([])
    assert any("lost: 2" in problem for problem in problems), problems
    assert story("80000").judge([(1, TOMBSTONE)]) == []
    assert story("80000").judge([], behind=75.0) == [], "its horizon was set by a slow clock"


def test_an_option_set_for_a_moment_excuses_what_it_took():
    story = three()
    story.history.altered.append(Altered("t", call(-30), {"cleanup.policy": "compact"}))
    story.history.altered.append(Altered("t", call(-20), {"cleanup.policy": "delete"}))
    assert story.judge(ALL) == []
    assert any("lost" in problem for problem in story.judge([(0, 1), (2, 3)]))


# -- transactions, committed offsets -------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "visible", "word"),
    [
        (Outcome.COMMITTED, [0, 1], ""),
        (Outcome.COMMITTED, [0], "hidden"),
        (Outcome.COMMITTED, [], "hidden"),
        (Outcome.ABORTED, [], ""),
        (Outcome.ABORTED, [1], "not committed, is visible"),
        (Outcome.UNKNOWN, [], ""),
        (Outcome.UNKNOWN, [0, 1], ""),
        (Outcome.UNKNOWN, [0], "hidden"),
        (Outcome.UNKNOWN, [1], "visible"),
    ],
)
def test_transactions_are_seen_whole_or_not_at_all(outcome, visible, word):
    story = Story()
    transaction = Transaction("one", outcome)
    story.write(1, transaction=transaction)
    story.write(2, transaction=transaction)
    problems = story.judge([(0, 1), (1, 2)], end=3, controls=[2], visible=visible)
    assert bool(problems) == bool(word), problems
    assert not word or any(word in problem for problem in problems), problems


def test_committed_offsets_do_not_go_back():
    history = [Commit(5, call(-9)), Commit(8, call(-8)), Commit(9, call(-7, 0, Verdict.UNKNOWN))]
    assert judge_commits("g", history, 8) == []
    assert judge_commits("g", history, 9) == []
    for found in (5, -1, 7):
        assert judge_commits("g", history, found)
    assert judge_commits("g", [], -1) == []
    assert judge_commits("g", [], 3), "an offset of a topic that is dead"


def test_a_commit_in_doubt_may_overtake_one_that_was_asked_later():
    late = Commit(5, call(-9, -2, Verdict.UNKNOWN))
    assert judge_commits("g", [late, Commit(8, call(-8))], 5) == []
    gone = Commit(5, call(-9, -8.5, Verdict.UNKNOWN))
    assert judge_commits("g", [gone, Commit(8, call(-8))], 5)


# -- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_compressed", [False, True])
def test_records_are_read_back_as_they_were_made(is_compressed):
    ids = [(WRITER, number) for number in range(1, 12)]
    data = make_batch(
        ids, TOPIC_ID, has_tombstones=True, timestamp_ms=5, is_compressed=is_compressed
    )
    (read,) = parse(data)
    assert [one.record for one in read.records] == ids
    assert [one.offset for one in read.records] == list(range(11))
    assert [one.is_tombstone for one in read.records] == [is_tombstone(*one) for one in ids]
    assert all(one.is_whole and one.topic_id == TOPIC_ID for one in read.records)
    torn = bytearray(data)
    torn[-3] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        parse(bytes(torn))


def test_a_reader_of_committed_records_leaves_out_what_was_aborted():
    def data(offset, producer_id, number):
        return make_batch(
            [(WRITER, number)],
            TOPIC_ID,
            has_tombstones=False,
            timestamp_ms=5,
            base_offset=offset,
            producer_id=producer_id,
            attributes=16,
        )

    def marker(offset, producer_id, kind):
        key = b"\0\0" + kind.to_bytes(2, "big")
        fields = {"base_offset": offset, "producer_id": producer_id, "attributes": 16 | 32}
        return wire_batch([b"\0\0\0\0\0\0"], keys=[key], **fields)

    read = parse(data(0, 5, 1) + data(1, 6, 2) + marker(2, 5, 0) + data(3, 5, 3) + marker(4, 5, 1))
    assert [one.offset for one in committed(read, [(0, 5)])] == [1, 3]
    assert [one.offset for one in committed(read, [])] == [0, 1, 3]


@pytest.mark.parametrize(
    ("found", "returned"),
    [
        ([], {}),
        ([1], {}),
        ([0, 1], {}),
        ([0], {0: 1}),
        ([0, 2], {}),
    ],
)
def test_an_older_record_of_a_deleted_key_does_not_come_back(found, returned):
    """Record 1 deletes record 0's key; a third may follow that nobody has acknowledged."""
    story = Story(cleanup_policy="compact", delete_retention_ms="0")
    plain = next(one for one in PLAIN if key_of(WRITER, one) == key_of(WRITER, TOMBSTONE))
    numbers = (plain, TOMBSTONE, same_key(plain))
    story.write(numbers[0])
    story.write(numbers[1])
    story.write(numbers[2], verdict=Verdict.UNKNOWN)
    story.end = 3
    assert story.returned([(at, numbers[at]) for at in found]) == returned
    assert story.returned([(at, numbers[at]) for at in found], start=1) == {}
