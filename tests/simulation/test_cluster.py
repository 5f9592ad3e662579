"""Worlds of several nodes: they repeat, they judge, and some of them stay whole."""

import random
import secrets
import uuid
from types import SimpleNamespace

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.metadata.store import Put
from tests.campaigns.administering.records import CONTROL, TRANSACTIONAL, key_of
from tests.simulation.clients.members import SESSION_SECONDS
from tests.simulation.cluster.faults import JOURNALED
from tests.simulation.cluster.inspector import aborted_within
from tests.simulation.cluster.ledger import Fate, Ledger, Sent, Transaction
from tests.simulation.cluster.members import Member
from tests.simulation.cluster.mix import cluster_mix_of
from tests.simulation.cluster.running import command_of, digest_elsewhere, live
from tests.simulation.cluster.store import KeptSession, SharedEntries, StoreLink
from tests.simulation.cluster.themes import LATEST_THEMES, NEWEST_THEMES
from tests.simulation.jobs import Jobs
from tests.simulation.loop import Life, SimulatedLoop
from tests.simulation.mutants import MUTANTS_OF_SEVERAL, SOURCE, mutant_of, patched
from tools.wire_client import batch

WHERE = ("t", 0)
NOW_MS = 1_000_000
FRESH_WORLDS = 3
FRESH_MINUTES = 1.7
"""Some 4 seconds of a processor each."""


class Found:
    """A record as a judge reads it."""

    def __init__(self, offset, record):
        self.offset = offset
        self.record = record
        self.is_whole = True


def judged(found, *, committed=(), prepare=lambda _: None):
    """Return the problems that a ledger tells of what was found."""
    problems = []
    ledger = Ledger(problems.append)
    prepare(ledger)
    ledger.judge(WHERE, found, committed)
    return problems


def sent(ledger, *numbers, at=None, is_sequenced=True, transaction=None, age_ms=0):
    ids = [(1, number) for number in numbers]
    batch = Sent(WHERE, ids, transaction, is_sequenced=is_sequenced, timestamp_ms=NOW_MS - age_ms)
    ledger.send(batch)
    if at is not None:
        ledger.answered(batch, 0, at)
    return batch


@pytest.mark.timeout(300)
def test_the_same_seed_is_the_same_world_in_processes_with_other_hash_seeds():
    digests = [digest_elsewhere("test.1", 0.3, 3, hash_seed) for hash_seed in (1, 2)]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 32, "a digest was printed"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["test.nodes.0", "test.nodes.1"])
def test_two_simulated_minutes_of_three_nodes_break_no_promise(name):
    told = live(name, 2)
    assert told["problems"] == []
    assert told["seconds"] >= 120
    assert told["checked"] > 0, "records were looked at"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("_number", range(FRESH_WORLDS))
def test_a_fresh_seed_of_three_nodes_breaks_no_promise(capsys, _number):
    """Worlds that nobody has seen."""
    name = str(secrets.randbelow(1 << 32))
    command = command_of(name, FRESH_MINUTES, 3)
    with capsys.disabled():
        print(f"\n{command}", end="")
    assert live(name, FRESH_MINUTES)["problems"] == [], command


def test_a_world_may_be_about_swaps_or_old_copies():
    """A share of all worlds; the others are as they were without these themes."""
    names = [cluster_mix_of(f"themes.{number}").theme for number in range(200)]
    for theme in (*LATEST_THEMES, *NEWEST_THEMES):
        assert 0.04 < names.count(theme.name) / len(names) < 0.2


def test_a_job_may_sleep_before_some_calls_of_the_disk_and_before_no_other():
    loop = SimulatedLoop()
    jobs, life, done = Jobs(loop, random.Random("test"), chance=0.0), Life("node"), []

    def work():
        for call in (DiskCall.WRITE, DiskCall.RENAME):
            jobs.running.call = call, "/a/file"
            jobs.pause()
            done.append(call)

    jobs.let_sleep(["cleaner"], 1.0, 5.0, before=JOURNALED)
    assert jobs.late_seconds("cleaner") == 0.0
    jobs.begin(life, work, lambda *_: None, seconds=lambda: 0.0, name="disk")
    assert done == [DiskCall.WRITE, DiskCall.RENAME]
    done.clear()
    jobs.begin(life, work, lambda *_: None, seconds=lambda: 0.0, name="cleaner")
    assert done == [DiskCall.WRITE]
    loop.run_until(lambda: len(done) > 1)
    assert loop.now > 0.0
    assert not jobs.alive


def test_what_a_buried_life_lets_go_of_wakes_the_living():
    """A mirror once slept for ever: the end of another life's coroutine resolved what it waited for
    while nothing could be called."""
    loop = SimulatedLoop()
    dead, living = Life("dead"), Life("living")
    waited_for = loop.create_future()

    async def hold():
        try:
            await loop.create_future()
        finally:
            waited_for.set_result("let go")
            loop.call_soon(heard.append, "the dead")

    async def wait():
        heard.append(await waited_for)

    heard = []
    loop.start_for(dead, hold())
    loop.start_for(living, wait())
    loop.run_until(lambda: False)
    loop.bury(dead)
    loop.run_until(lambda: False)
    assert heard == ["let go"]


def test_a_dead_process_closes_no_session():
    """Its sessions end where they are held; what its coroutines do when they end reaches nobody."""
    loop = SimulatedLoop()
    shared, life = SharedEntries(loop), Life("node")
    link = StoreLink(loop, random.Random("test"))

    async def live():
        session = KeptSession(link, life, shared.life, 9.0, lambda _: None)
        session.inner = await shared.inner.session(9.0, session.heard)
        await shared.inner.commit([], [Put("/live", b"", session.id)])
        try:
            await loop.create_future()
        finally:
            await session.close()

    loop.start_for(life, live())
    loop.run_until(lambda: loop.now > 1.0)
    loop.bury(life)
    assert "/live" in shared.inner._entries


def test_what_is_where_it_was_promised_is_no_problem():
    assert judged([Found(4, (1, 0))], prepare=lambda ledger: sent(ledger, 0, at=4)) == []


def test_a_promised_record_that_is_gone_is_told():
    (problem,) = judged([], prepare=lambda ledger: sent(ledger, 0, at=4))
    assert "lost" in problem


def test_a_promised_record_that_moved_is_told():
    (problem,) = judged([Found(5, (1, 0))], prepare=lambda ledger: sent(ledger, 0, at=4))
    assert "promised at 4, is at 5" in problem


@pytest.mark.parametrize(("asked_start", "count"), [(5, 0), (4, 1)])
def test_a_record_that_is_promised_twice_is_told_unless_the_first_was_deleted(asked_start, count):
    """A replica that was made since does not know its producer, as with Kafka."""
    problems = []
    ledger = Ledger(problems.append)
    batch = sent(ledger, 0, at=4)
    ledger.place(WHERE).asked_start = asked_start
    ledger.answered(batch, 0, 9)
    assert len(problems) == count
    ledger.judge(WHERE, [Found(9, (1, 0))], [])
    assert len(problems) == 2 * count


def test_a_doubled_record_is_told():
    found = [Found(4, (1, 0)), Found(5, (1, 0))]
    problems = judged(found, prepare=lambda ledger: sent(ledger, 0, at=None))
    assert any("doubled" in problem for problem in problems)


def test_records_out_of_order_are_told():
    found = [Found(0, (1, 1)), Found(1, (1, 0))]
    problems = judged(found, prepare=lambda ledger: sent(ledger, 0, 1))
    assert any("out of order" in problem for problem in problems)


def test_a_record_that_a_reader_saw_and_that_is_gone_is_told():
    def prepare(ledger):
        sent(ledger, 0)
        ledger.saw(WHERE, Found(3, (1, 0)), "reader")

    (problem,) = judged([], prepare=prepare)
    assert "was seen at 3" in problem


def test_a_record_of_an_aborted_transaction_that_is_visible_is_told():
    transaction = Transaction("one")
    transaction.fate = Fate.ABORTED
    found = [Found(0, (1, 0))]
    problems = judged(
        found, committed=found, prepare=lambda ledger: sent(ledger, 0, transaction=transaction)
    )
    assert any("is visible" in problem for problem in problems)


def test_a_half_of_a_transaction_is_told():
    problems, transaction = [], Transaction("one")
    ledger = Ledger(problems.append)
    sent(ledger, 0, 1, transaction=transaction)
    transaction.fate = Fate.UNKNOWN
    ledger.saw_committed(WHERE, Found(0, (1, 0)), "reader")
    ledger.judge_transactions({(1, 0)})
    assert "is hidden" in problems[0]


def test_an_end_that_falls_is_told_but_no_answer_that_came_late():
    problems = []
    ledger = Ledger(problems.append)
    ledger.told_latest(WHERE, 5, 0, "reader")
    ledger.told_latest(WHERE, 4, 0, "a reader that had asked before")
    assert problems == []
    ledger.told_latest(WHERE, 4, 5, "reader")
    assert "the end was 5, and is 4" in problems[0]


def test_a_generation_that_comes_again_is_told_unless_its_group_may_have_been_forgotten():
    problems = []
    ledger = Ledger(problems.append)
    ledger.assigned("g", 5, 0, "a")
    ledger.assigned("g", 1, 5, "b")
    assert not problems, "it has no offsets"
    ledger.commits["g", ("t", 0)] = 7, 7
    ledger.assigned("g", 4, 4, "a")
    assert not problems, "this was asked before the fifth was told"
    ledger.assigned("g", 4, 5, "b")
    assert problems == ["b: generation 4 of g follows 5"]


def test_a_log_begins_where_somebody_asked_or_where_retention_may_and_nowhere_else():
    problems = []
    ledger = Ledger(problems.append)
    place = ledger.place(WHERE)
    place.asked_start = 5
    ledger.began(WHERE, 5, 100, NOW_MS)
    place.retained_bytes = 1000
    ledger.began(WHERE, 9, 1000, NOW_MS)
    assert problems == []
    ledger.began(WHERE, 10, 999, NOW_MS)
    assert "the log start is 10, asked was 5, 999 bytes are left" in problems[0]


def test_what_is_below_the_log_start_is_not_lost_what_is_above_is():
    def prepare(ledger):
        sent(ledger, 0, 1, at=4)
        ledger.place(WHERE).asked_start = 5
        ledger.saw(WHERE, Found(4, (1, 0)), "reader")
        ledger.began(WHERE, 5, 100, NOW_MS)

    assert judged([Found(5, (1, 1))], prepare=prepare) == []
    (problem,) = judged([], prepare=prepare)
    assert "(1, 1) lost: promised at 4" in problem


def test_retention_by_time_takes_no_record_before_its_time():
    problems = []
    ledger = Ledger(problems.append)
    sent(ledger, 0, at=0, age_ms=5_000)
    sent(ledger, 1, at=1, age_ms=4_999)
    ledger.place(WHERE).retained_ms = 5_000
    ledger.saw(WHERE, Found(0, (1, 0)), "reader")
    ledger.saw(WHERE, Found(1, (1, 1)), "reader")
    ledger.began(WHERE, 1, 100, NOW_MS)
    assert problems == []
    ledger.began(WHERE, 2, 100, NOW_MS)
    assert "the log start is 2" in problems[0]
    assert "what went was 4999 ms old" in problems[0]


def test_compaction_may_take_a_record_that_a_later_one_of_its_key_supersedes_and_no_other():
    """Of one writer every twentieth record has the same key."""

    def prepare(ledger):
        ledger.place(WHERE).is_compacted = True
        for number, offset in ((0, 0), (1, 1), (20, 2)):
            sent(ledger, number, at=offset)
            ledger.saw(WHERE, Found(offset, (1, number)), "reader")

    assert key_of(1, 0) == key_of(1, 20) != key_of(1, 1)
    left = [Found(1, (1, 1)), Found(2, (1, 20))]
    assert judged(left, committed=left, prepare=prepare) == []
    problems = judged(left[:1], committed=left[:1], prepare=prepare)
    assert any("(1, 20) was seen at 2: lost" in problem for problem in problems)
    assert any("(1, 0) lost: promised at 0" in problem for problem in problems)
    problems = judged(left[1:], committed=left[1:], prepare=prepare)
    assert any("(1, 1) lost: promised at 1" in problem for problem in problems)


def test_an_aborted_record_supersedes_none_and_may_be_taken():
    def prepare(ledger):
        ledger.place(WHERE).is_compacted = True
        transaction = Transaction("one")
        transaction.fate = Fate.ABORTED
        sent(ledger, 0, at=0)
        sent(ledger, 20, at=1, transaction=transaction)
        ledger.saw(WHERE, Found(1, (1, 20)), "reader")

    first = [Found(0, (1, 0))]
    assert judged(first, committed=first, prepare=prepare) == []
    problems = judged([Found(1, (1, 20))], prepare=prepare)
    assert problems == ["('t', 0): (1, 0) lost: promised at 0"]


def test_a_transaction_is_whole_whose_first_records_were_deleted():
    problems, transaction = [], Transaction("one")
    ledger = Ledger(problems.append)
    sent(ledger, 0, at=2, transaction=transaction)
    sent(ledger, 1, at=7, transaction=transaction)
    transaction.fate = Fate.COMMITTED
    ledger.place(WHERE).asked_start = 5
    ledger.began(WHERE, 5, 100, NOW_MS)
    ledger.judge_transactions({(1, 1)})
    assert problems == []
    ledger.judge_transactions(set())
    assert "[(1, 1)] of one, which is committed, is hidden" in problems[0]


def records_at(offset, producer_id=-1):
    attributes = TRANSACTIONAL if producer_id >= 0 else 0
    return batch(
        [b"one", b"two"], base_offset=offset, attributes=attributes, producer_id=producer_id
    )


def marker_at(offset, producer_id):
    return batch(base_offset=offset, attributes=CONTROL | TRANSACTIONAL, producer_id=producer_id)


def test_an_aborted_transaction_of_which_a_replica_never_had_the_beginning_is_the_same_there():
    """The log starts at 6, amid a transaction that began at 2; one replica began anew there."""
    nothing_left = records_at(6) + records_at(8) + marker_at(10, 1000)
    assert aborted_within(nothing_left, {(2, 1000)}) == aborted_within(nothing_left, set()) == []
    some_left = records_at(6) + records_at(8, 1000) + marker_at(10, 1000)
    assert aborted_within(some_left, {(2, 1000)}) == [(8, 1000)]
    assert aborted_within(some_left, {(8, 1000)}) == [(8, 1000)]
    amid_a_batch = records_at(5, 1000) + marker_at(7, 1000)
    assert aborted_within(amid_a_batch, {(2, 1000)}) == [(5, 1000)]
    assert aborted_within(b"", {(2, 1000)}) == [(2, 1000)]


def test_an_aborted_transaction_that_one_replica_lost_or_made_up_is_told():
    begun_below = records_at(6) + records_at(8, 1000) + marker_at(10, 1000)
    assert aborted_within(begun_below, {(2, 1000)}) != aborted_within(begun_below, set())
    begun_here = records_at(6) + marker_at(10, 1000)
    assert aborted_within(begun_here, {(6, 1000)}) != aborted_within(begun_here, set())
    committed_later = marker_at(6, 1000) + records_at(7, 1000) + marker_at(9, 1000)
    assert aborted_within(committed_later, {(7, 1000)}) != aborted_within(committed_later, set())
    assert aborted_within(committed_later, {(2, 1000)}) == [], "it has ended before those at 7"
    twice = {(2, 1000), (4, 1000)}
    assert aborted_within(begun_below, twice) != aborted_within(begun_below, {(2, 1000)})


def test_a_partition_is_given_to_one_member_at_a_time():
    problems, members = [], []
    world = SimpleNamespace(
        members=members, problem=problems.append, loop=SimpleNamespace(now=100.0)
    )
    place = (uuid.UUID(int=1), 0)
    for number in range(2):
        member = Member.__new__(Member)
        member.world, member.name, member.owned = world, f"member-{number}", set()
        member.last_heard, member.group = 100.0, "members"
        members.append(member)
    members[0].take({place})
    members[0].last_heard -= SESSION_SECONDS
    members[1].take({place})
    assert problems == [], "the other one was not heard for a session"
    members[0].last_heard = 100.0
    members[1].take({place})
    assert "is given to member-1 while member-0 has it" in problems[0]


@pytest.mark.parametrize("name", list(MUTANTS_OF_SEVERAL))
def test_each_mutant_of_several_nodes_can_be_planted(name):
    mutant = mutant_of(name)
    for module, _, _ in mutant.patches:
        path = SOURCE.parent.joinpath(*module.split(".")).with_suffix(".py")
        text = path.read_text()
        changed = patched(text, module, mutant)
        assert changed != text
        compile(changed, path, "exec")
