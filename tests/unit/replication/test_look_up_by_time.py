"""A look-up by time in a log of many segments, none of which was looked at since the start."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode, KafkaError
from ottla.log.upkeep.front import drop_segments_below, raise_start_offset
from ottla.replication.fetch import Isolation
from ottla.replication.offset_lookup import find_by_time
from ottla.sliced import at_once

SEGMENTS = 60
CALLS_MAX = 16
"""Of the disk, by one step: about what one cold segment takes."""
NEWEST_MS = 1_700_000_000_000


@pytest.fixture
def cold(make_node, words):
    """A partition with many segments, whose largest timestamps nobody has asked for."""
    node = make_node()
    log = node.partition().log
    for _ in range(SEGMENTS):
        node.append((0, words.batch()))
        node.executor.run_all()
        log.roll()
    node.append((0, words.batch()))
    node.executor.run_all()
    for segment in log.segments:
        segment.latest = None
        segment.let_go_of_file()
    return node


def steps_of(node, timestamp):
    """Return the calls of the disk by each step of a look-up, and what it found."""
    counts = []
    isolation = Isolation.READ_UNCOMMITTED
    steps = find_by_time(node.partition(), timestamp, isolation, lambda batch: None)
    while True:
        before = sum(node.disk.counts.values())
        try:
            next(steps)
        except StopIteration as end:
            return counts, end.value
        finally:
            counts.append(sum(node.disk.counts.values()) - before)


@pytest.mark.parametrize(("timestamp", "offset"), [(NEWEST_MS + 1, None), (None, 0)])
def test_no_step_reads_more_than_a_cold_segment(cold, timestamp, offset):
    counts, found = steps_of(cold, timestamp)
    assert (found and found.offset) == offset
    assert sum(counts) >= SEGMENTS, "each had to be read"
    assert max(counts) <= CALLS_MAX
    assert cold.disk.counts[DiskCall.READ] > 0


def test_segments_behind_the_first_that_reaches_are_left_alone(cold):
    counts, found = steps_of(cold, NEWEST_MS)
    assert found.offset == 0
    assert sum(counts) <= 2 * CALLS_MAX


def test_segments_may_go_while_it_takes_a_breath(cold):
    log = cold.partition().log
    steps = find_by_time(
        cold.partition(), NEWEST_MS + 1, Isolation.READ_UNCOMMITTED, lambda batch: None
    )
    next(steps)
    raise_start_offset(log, SEGMENTS - 1)
    assert drop_segments_below(log, cold.disk, SEGMENTS - 1, SEGMENTS)
    assert at_once(steps) is None


@pytest.mark.parametrize(
    ("call", "number"), [(DiskCall.OPEN, errno.EMFILE), (DiskCall.READ, errno.EIO)]
)
@pytest.mark.parametrize("timestamp", [NEWEST_MS + 1, NEWEST_MS, None])
def test_one_that_cannot_read_is_refused_and_the_next_one_is_not(cold, call, number, timestamp):
    cold.disk.fail(call, errno=number, lasting=True)
    with pytest.raises(KafkaError) as refused:
        steps_of(cold, timestamp)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    cold.disk.heal()
    _, found = steps_of(cold, NEWEST_MS)
    assert found.offset == 0
