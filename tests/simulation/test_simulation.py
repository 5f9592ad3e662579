"""The simulation itself: it repeats, it judges, and some worlds of it stay whole."""

import logging
import random
import secrets
import time
from contextlib import suppress

import pytest

from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.transaction import machine
from ottla.env.faulty_disk import DiskKilled
from ottla.env.gate import Gate
from ottla.log.producers import states
from ottla.replication.fetch import DelayedFetch
from tests.simulation.__main__ import command_of, digest_elsewhere, live
from tests.simulation.executor import SimulatedExecutor
from tests.simulation.jobs import Deadlock, Jobs, Threads, threads_of
from tests.simulation.loop import Life, SimulatedLoop
from tests.simulation.mix import CLIENTS, FAULTS, LATER_THEMES, WATCHERS, mix_of
from tests.simulation.mutants import (
    MUTANTS,
    SOURCE,
    Mutant,
    Stale,
    mutant_of,
    patched,
    read_list,
)
from tests.simulation.turns import SECONDS_MAX
from tests.simulation.world import World

FRESH_WORLDS = 24
FRESH_MINUTES = 5.0
"""Two simulated hours together, 75 seconds of a processor, by several (``pytest -n``) if there are
some."""


@pytest.mark.timeout(300)
def test_the_same_seed_is_the_same_world_in_processes_with_other_hash_seeds():
    digests = [digest_elsewhere("test.1", 1, hash_seed) for hash_seed in (1, 2)]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 32, "a digest was printed"


def test_another_seed_is_another_world():
    digests = [live(name, 0.1, is_digested=True)["digest"] for name in ("test.2", "test.3")]
    assert digests[0] != digests[1]
    assert None not in digests


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(2))
def test_ten_simulated_minutes_break_no_promise(number):
    told = live(f"test.whole.{number}", 10)
    assert told["problems"] == []
    assert told["seconds"] >= 600
    assert told["checked"] > 0, "promised records were looked at"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("_number", range(FRESH_WORLDS))
def test_a_fresh_seed_breaks_no_promise(capsys, _number):
    """A world that nobody has seen; ``dev.py simulate`` lives as many as one likes."""
    name = str(secrets.randbelow(1 << 32))
    command = command_of(name, FRESH_MINUTES)
    with capsys.disabled():
        print(f"\n{command}", end="")
    told = live(name, FRESH_MINUTES)
    assert told["problems"] == [], command


def a_calm_world(name, seconds=40, count=1):
    """Return a world without faults, so many clients of each kind in it."""
    mix = mix_of(name)
    mix.faults = []
    mix.clients = dict.fromkeys((*CLIENTS, *WATCHERS), count)
    return World(name, seconds, mix=mix)


def test_an_acknowledged_record_that_is_gone_is_found(monkeypatch):
    world = a_calm_world("test.lost")
    acknowledge = world.history.acknowledge

    def promise_more(batch, base_offset):
        acknowledge(batch, base_offset)
        batch.base_offset += 1000

    monkeypatch.setattr(world.history, "acknowledge", promise_more)
    assert not world.run()
    assert "acknowledged" in world.problems[0]


def test_a_batch_of_a_producer_that_was_fenced_is_found_when_it_is_taken(monkeypatch):
    monkeypatch.setattr(states, "_check_epoch", lambda header, state: None)
    world = a_calm_world("test.ghost", 120)
    assert not world.run()
    assert "that was fenced was taken" in world.problems[0]


def test_a_fenced_producer_that_the_coordinator_lets_write_is_found(monkeypatch):
    """Where the log has not heard of the newer epoch nobody else can know."""
    add = machine._add
    monkeypatch.setattr(
        machine,
        "_add",
        lambda known, event, now_ms, **others: add(
            known, event._replace(producer_epoch=known.producer_epoch), now_ms, **others
        ),
    )
    world = a_calm_world("test.ghost", 120)
    assert not world.run()
    assert "that was fenced was taken" in world.problems[0]


def test_a_world_may_be_about_keys_that_transactions_delete():
    """A share of all worlds; the others are as they were without this theme."""
    names = [mix_of(f"themes.{number}").theme for number in range(200)]
    for theme in LATER_THEMES:
        assert 0.04 < names.count(theme.name) / len(names) < 0.2


def test_a_fetch_that_waits_and_is_told_nothing_is_found(monkeypatch):
    monkeypatch.setattr(DelayedFetch, "try_complete", lambda fetch, key: False)
    world = a_calm_world("test.waiting", 120)
    assert not world.run()
    assert "nobody tells who waits" in world.problems[0]


def test_a_member_that_is_gone_and_stays_is_found(monkeypatch):
    monkeypatch.setattr(ConsumerGroups, "fence_after", lambda *_, **__: None)
    world = a_calm_world("test.gone", 400, count=2)
    assert not world.run()
    assert "is a member, and nobody has heard of it" in world.problems[0]


def test_a_node_that_gives_up_without_a_fault_is_found():
    world = a_calm_world("test.up")
    world.loop.call_for(
        world.clients_life, 20.0, lambda: world.node.broker._giving_up.give_up(OSError("x"))
    )
    assert not world.run()
    assert "gave up" in world.problems[0]


def test_an_end_that_was_planned_does_not_come_when_all_is_judged():
    world = a_calm_world("test.up")
    world.loop.call_for(world.clients_life, 20.0, lambda: world.node.kill_at(100_000))
    assert world.run(), world.problems
    assert world.node.lives == 1
    assert world.node._files._changes_until_death is None


def test_a_fault_that_is_only_logged_is_found(caplog):
    world = a_calm_world("test.up")

    def fail():
        try:
            raise ValueError("x")
        except ValueError:
            logging.getLogger("ottla.coordinator.appends").exception("an append failed")

    world.loop.call_for(world.clients_life, 20.0, fail)
    assert not world.run()
    assert "an append failed: ValueError('x')" in world.problems[0]
    assert not caplog.records, "it is told, not printed"


def test_a_turn_of_the_loop_that_looks_at_the_clock_for_long_is_found():
    world = a_calm_world("test.turn")
    clock = world.node.clock

    def work(seconds):
        begin = clock.monotonic()
        while clock.monotonic() - begin < seconds:
            pass

    most = world.turns._most_in_world
    for seconds in (most / 2, most):
        at = 20.0 + seconds
        world.loop.call_for(
            world.clients_life,
            at,
            lambda seconds=seconds: world.loop.call_for(world.node.life, 0.0, work, seconds),
        )
    assert not world.run()
    assert "of the world" in world.problems[0]
    assert world.turns.longest_in_world > most
    assert len(world.problems) == 1, "the shorter one is no problem"


def test_a_turn_of_the_loop_that_takes_the_processor_for_long_is_found():
    world = a_calm_world("test.turn")

    def work():
        end = time.thread_time() + 1.3 * SECONDS_MAX
        while time.thread_time() < end:
            pass

    def submit():
        world.node.environment.executor.submit(work, lambda *_: None)

    for at, what in ((15.0, submit), (25.0, work)):
        world.loop.call_for(
            world.clients_life, at, lambda what=what: world.loop.call_for(world.node.life, 0, what)
        )
    assert not world.run()
    assert "of the processor" in world.problems[0]
    assert world.loop.now >= 25.0, "work of a job is no turn of the loop"


def test_a_partition_that_fails_while_no_disk_is_broken_is_found():
    world = a_calm_world("test.failed")

    def fail():
        partitions = world.node.broker.node.work.replica_manager.hosting.partitions
        next(iter(partitions.values())).log.take_out(OSError("x"))

    world.loop.call_for(world.clients_life, 20.0, fail)
    assert not world.run()
    assert any("out of service" in problem for problem in world.problems), world.problems


def test_a_lock_that_the_loop_shares_with_slow_work_is_found():
    world = a_calm_world("test.lock")
    world.mix.pause_chance = world.jobs._chance = 1.0

    def meet():
        lock, executor = Threads(world.jobs).Lock(), world.node.environment.executor

        def hold():
            with lock:
                world.node._files.exists("/a")

        for _ in range(8):
            executor.submit(hold, lambda *_: None)
        world.loop.call_later(1e-4, look, lock)

    def look(lock):
        with lock:
            world.loop.call_later(1e-4, look, lock)

    world.loop.call_for(
        world.clients_life, 20.0, lambda: world.loop.call_for(world.node.life, 0.0, meet)
    )
    assert not world.run()
    assert "waits for a lock" in world.problems[0]


def test_a_producer_that_waits_for_ever_is_found(monkeypatch):
    world = a_calm_world("test.stuck")
    world.loop.call_for(
        world.clients_life,
        10.0,
        lambda: monkeypatch.setattr(world.node.environment.executor, "_work", lambda *_: None),
    )
    assert not world.run()


def jobs_of_a_world(chance=1.0):
    """Return the jobs of a loop, and a function that begins one of a node's life."""
    loop = SimulatedLoop()
    jobs = Jobs(loop, random.Random("test.jobs"), chance=chance)
    life = Life("node")

    def begin(work):
        outcome = []
        jobs.begin(life, work, lambda *told: outcome.append(told), seconds=lambda: 0.01)
        return outcome

    return jobs, life, begin


def test_jobs_and_the_loop_go_on_while_a_job_stops_at_its_disk():
    jobs, _, begin = jobs_of_a_world()
    seen = []

    def work(name):
        for step in range(20):
            jobs.pause()
            seen.append((name, step))
        return name

    outcomes = [begin(lambda name=name: work(name)) for name in "abcd"]
    jobs.loop.call_later(0.05, seen.append, ("loop", 0))
    jobs.loop.run_until(lambda: not jobs.alive)
    assert outcomes == [[(name, None)] for name in "abcd"]
    assert 0 < seen.index(("loop", 0)) < len(seen) - 1
    assert [name for name, _ in seen] != sorted(name for name, _ in seen), "they met"
    for name in "abcd":
        assert [step for other, step in seen if other == name] == list(range(20))


def test_a_job_that_stopped_ends_with_its_process():
    jobs, life, begin = jobs_of_a_world()
    lock, left = Threads(jobs).Lock(), []
    lock.acquire()

    def work():
        try:
            for _ in range(5):
                jobs.pause()
        finally:
            jobs.pause()
            with suppress(DiskKilled):
                lock.acquire()
            left.append(True)

    outcomes = [begin(work) for _ in range(8)]
    stopped = len(jobs.alive)
    assert not left
    life.is_dead = True
    jobs.bury(life)
    assert stopped == 8, "at a pause, or at the lock"
    assert len(left) == 8
    assert not jobs.alive
    assert not any(outcomes), "nobody is told"


def test_a_job_may_end_its_process_while_another_waits_for_it():
    jobs, life, begin = jobs_of_a_world()

    def end_the_process():
        life.is_dead = True
        jobs.bury(life)
        raise DiskKilled

    def work():
        thread = Threads(jobs).Thread(target=end_the_process)
        thread.start()
        thread.join()

    outcomes = [begin(work) for _ in range(3)]
    assert not jobs.alive
    assert not any(outcomes)


def test_a_process_that_ends_while_its_executor_closes_waits_for_none_of_its_jobs():
    jobs, life, _ = jobs_of_a_world()
    executor = SimulatedExecutor(
        jobs, life, random.Random(1), "disk", threads=4, seconds=0.001, pace=lambda: 1.0
    )

    def end_the_process():
        jobs.pause()
        life.is_dead = True
        jobs.bury(life)
        raise DiskKilled

    for work in (jobs.pause, jobs.pause, end_the_process, jobs.pause):
        executor.submit(work, lambda *_: None)
    with pytest.raises(DiskKilled):
        executor.close()
    assert not jobs.alive


def test_a_lock_is_held_by_one_job_though_it_stops_inside():
    jobs, _, begin = jobs_of_a_world()
    lock, inside = Threads(jobs).Lock(), []

    def work():
        with lock:
            inside.append(True)
            assert len(inside) == 1
            for _ in range(5):
                jobs.pause()
            inside.pop()

    outcomes = [begin(work) for _ in range(8)]
    jobs.loop.run_until(lambda: jobs.pauses > 3)
    with lock:
        assert not inside
    jobs.loop.run_until(lambda: not jobs.alive)
    assert outcomes == [[(None, None)]] * 8
    assert jobs.loop_waits > 0, "the loop had to wait for it"


def test_who_waits_for_ever_for_a_lock_is_told():
    jobs, _, begin = jobs_of_a_world()
    lock = Threads(jobs).Lock()
    lock.acquire()
    begin(lock.acquire)
    with pytest.raises(Deadlock):
        lock.acquire()


def test_a_gate_of_the_world_is_passed_alone():
    jobs, _, begin = jobs_of_a_world()
    inside = []

    def work():
        assert shut.enter()
        inside.append(True)
        for _ in range(5):
            jobs.pause()
        inside.pop()
        shut.leave()

    with threads_of(jobs):
        shut = Gate()
        outcomes = [begin(work) for _ in range(8)]
        with shut.alone():
            assert not inside
        jobs.loop.run_until(lambda: not jobs.alive)
    assert outcomes == [[(None, None)]] * 8


def test_a_dead_process_does_nothing_more():
    world = a_calm_world("test.dead")
    disks = []

    def kill():
        disks.append(world.node._files)
        world.node.kill()
        disks.append(sum(disks[0].counts.values()))

    world.loop.call_for(world.clients_life, 30.0, kill)
    assert world.run(), world.problems
    assert world.node.lives == 2
    assert sum(disks[0].counts.values()) == disks[1]


def test_a_power_cut_takes_what_was_not_synced():
    world = a_calm_world("test.power")
    inner = world.node.disk
    file = inner.open("/a/written", create=True)
    file.write_at(0, b"x" * 5000)
    world.node.start()
    world.loop.run_until(lambda: world.node.is_up)
    world.node.kill(power=True)
    assert world.node.disk is not inner
    after = world.node.disk
    assert (
        not after.exists("/a/written") or after.open("/a/written").read_at(0, 5000) != b"x" * 5000
    )


def test_every_kind_of_client_and_fault_is_drawn_by_some_seed():
    mixes = [mix_of(str(number)) for number in range(40)]
    assert {name for mix in mixes for name in mix.faults} == set(FAULTS)
    assert {name for mix in mixes for name, count in mix.clients.items() if count} == {
        *CLIENTS,
        *WATCHERS,
    }


LISTED = """Some words.

= nothing is written
@ anywhere
-        self._disk.write(data)
-        return True
+        return False
@ anywhere
- never
"""


def test_a_mutant_is_read_and_planted():
    (pieces,) = read_list(LISTED).values()
    assert pieces == [
        (
            "anywhere",
            "        self._disk.write(data)\n        return True",
            "        return False",
        ),
        ("anywhere", " never", ""),
    ]
    mutant = Mutant("it", [("m", *pieces[0][1:]), ("m", *pieces[1][1:]), ("other", "def", "")])
    text = "    def it():\n        self._disk.write(data)\n        return True  # never\n"
    assert patched(text, "m", mutant) == "    def it():\n        return False  #\n"


def test_a_mutant_whose_source_has_moved_on_is_told(monkeypatch):
    """Not in the suite for each: refactoring would break it; hunting.py tells, and fails."""
    monkeypatch.setitem(MUTANTS, "gone", [("log", "no file has this piece of source", "")])
    with pytest.raises(Stale, match=r"renew mutants\.txt"):
        mutant_of("gone")


def test_most_mutants_can_be_planted_in_the_source_as_it_is():
    stale = []
    for name in MUTANTS:
        try:
            mutant = mutant_of(name)
        except Stale as error:
            stale.append(str(error))
            continue
        for module in {module for module, _, _ in mutant.patches}:
            path = SOURCE.parent.joinpath(*module.split(".")).with_suffix(".py")
            compile(patched(path.read_text(), module, mutant), str(path), "exec")
    assert len(stale) <= len(MUTANTS) // 4, stale
