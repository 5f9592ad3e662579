"""Flushes by time: no data of a log with flush.ms waits longer than that for its fsync."""

from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.housekeeping.flush_sweep import FlushSweep
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataDelta
from ottla.metadata.keys import ConfigType
from ottla.replication.partition import PartitionSettings
from ottla.turns import Turns

NEVER = 2**63 - 1


@pytest.fixture
def start(make_node, words):
    def start(flush_ms, **fields):
        return make_node(**{"flush_messages": words.ASYNC_FLUSH, "flush_ms": flush_ms, **fields})

    return start


def lag(node, index=0):
    """How many records are not fsynced yet."""
    node.executor.run_all()
    log = node.partition(index).log
    return log.log_end_offset - log.flushed_offset


@pytest.mark.parametrize("waited", [0, 0.3, 1.9, 5])
def test_data_is_never_older_than_flush_ms_when_its_flush_begins(start, words, waited):
    node = start(2000)
    node.clock.advance(waited)
    node.append((0, words.batch()), acks=1)
    assert lag(node) == 1
    node.clock.advance(2)
    assert lag(node) == 0


def test_a_log_with_a_longer_time_beside_a_short_one_is_not_late(start, words):
    node = start(2500)
    partition = node.partition(1)
    node.settings = PartitionSettings(partition.log.config._replace(flush_ms=1000), 1)
    partition.configure(node.settings)
    node.flush_sweep.watch(partition)
    node.clock.advance(0.1)
    node.append((0, words.batch()), (1, words.batch()), acks=1)
    node.clock.advance(1)
    assert (lag(node, 0), lag(node, 1)) == (1, 0)
    node.clock.advance(1.5)
    assert lag(node, 0) == 0


def test_a_flush_in_flight_puts_the_next_off_by_one_look_only(start, words):
    node = start(2500, flush_messages=2, flush_sweep_interval_ms=1000)
    node.append((0, words.batch()), (0, words.batch()), acks=1)
    assert node.executor.waiting == 1, "two records begin a flush by count"
    node.append((0, words.batch()), acks=1)
    node.clock.advance(2)
    assert lag(node) == 1, "the look came while that flush was in flight"
    node.clock.advance(1)
    assert lag(node) == 0


def test_where_time_cannot_matter_there_is_no_timer(make_node, words):
    for node in (make_node(), make_node(flush_ms=5), make_node(flush_messages=words.ASYNC_FLUSH)):
        assert node.clock.timers() == 0


def test_an_idle_log_is_not_fsynced_over_and_over(start):
    node = start(1)
    node.clock.advance(1)
    assert node.executor.waiting == 0


def test_settings_that_change_count_at_once(start, words):
    node = start(NEVER)
    node.append((0, words.batch()), acks=1)
    settings = node.settings
    node.settings = PartitionSettings(settings.log._replace(flush_ms=50), 1)
    changed = MetadataDelta(revision=2, configs=((ConfigType.BROKER, ""),))
    node.replica_manager.apply(None, changed)
    node.clock.advance(0.05)
    assert lag(node) == 0
    node.settings = settings
    node.replica_manager.apply(None, changed)
    assert node.clock.timers() == 0


async def test_a_deleted_partition_and_a_stopped_node_are_left_alone(start):
    node = start(50, partitions=1)
    old = node.led(0)
    node.change(old._replace(old=old.new, new=None))
    assert node.replica_manager.get(TopicPartition("t", 0)) is None
    assert node.clock.timers() == 0
    node = start(50)
    await node.housekeeper.settle()
    assert node.clock.timers() == 0


async def test_what_is_hosted_after_a_stop_begins_no_timer(start):
    node = start(50)
    await node.housekeeper.settle()
    node.change(node.led(5))
    assert node.partition(5) is not None
    assert node.clock.timers() == 0


def test_a_given_interval_is_kept_to(start, words):
    node = start(1000, flush_sweep_interval_ms=5000)
    node.append((0, words.batch()), acks=1)
    node.clock.advance(4.9)
    assert lag(node) == 1
    node.clock.advance(0.1)
    assert lag(node) == 0


class BusyClock(ManualClock):
    """Each look at it tells that a millisecond has gone: work takes its time."""

    def monotonic(self):
        self.hold(0.001)
        return super().monotonic()


class Watched:
    """What a sweep sees of a partition."""

    def __init__(self, name, flushed):
        self.log = SimpleNamespace(config=SimpleNamespace(flush_messages=NEVER, flush_ms=1000))
        self.flush = lambda: flushed.append(name) or True


def test_very_many_flushes_are_not_begun_in_one_turn_and_all_in_their_time():
    clock, due, flushed = ManualClock(), [], []
    sweep = FlushSweep(clock, NEVER, Turns(BusyClock(), call_soon=due.append))
    partitions = [Watched(number, flushed) for number in range(20)]
    for one in partitions:
        sweep.watch(one)
    clock.advance(1)
    assert 0 < len(flushed) < 10
    sweep.watch(Watched("later", flushed))
    sweep.forget(partitions[19])
    while due:
        before = len(flushed)
        due.pop(0)()
        assert len(flushed) - before < 10
    assert flushed == list(range(19))
    clock.advance(1)
    while due:
        due.pop(0)()
    assert flushed[19:] == [*range(19), "later"], "the next sweep comes as before"
    clock.advance(1)
    assert due
    sweep.stop()
    count = len(flushed)
    while due:
        due.pop(0)()
    clock.advance(10)
    assert len(flushed) == count
    assert not clock.timers()
