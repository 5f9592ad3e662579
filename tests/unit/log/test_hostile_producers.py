"""Row 19 of the hostile-client table: producer ids without number on one partition."""

import time
import tracemalloc

from ottla.log.producers.states import PRODUCERS_MAX, ProducerStates
from ottla.records.batch import read_header
from ottla.records.builder import build_batch
from ottla.records.record import Record

NOW = 1_700_000_000_000
EXPIRATION_MS = 86_400_000


def test_row_19_the_one_silent_for_the_longest_makes_room_and_memory_is_bounded():
    header = read_header(build_batch([Record()], producer_id=0, producer_epoch=0, base_sequence=0))
    assert PRODUCERS_MAX == 100_000
    states = ProducerStates(EXPIRATION_MS, producers_max=10_000)
    tracemalloc.start()
    try:
        for producer_id in range(11_000):
            states.update(header._replace(producer_id=producer_id), producer_id, NOW, NOW)
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(states) == 10_000
    assert states.get(999) is None
    assert states.get(1_000) is not None
    assert size_bytes < 800 * len(states), size_bytes / len(states)


def test_row_19_who_is_silent_for_the_expiration_is_forgotten():
    header = read_header(build_batch([Record()], producer_id=0, producer_epoch=0, base_sequence=0))
    states = ProducerStates(EXPIRATION_MS)
    for producer_id in range(1000):
        states.update(header._replace(producer_id=producer_id), producer_id, NOW, NOW)
    states.update(header._replace(producer_id=5000), 1000, NOW, NOW + EXPIRATION_MS)
    assert len(states) == 1


def test_row_19_a_new_producer_costs_the_same_when_others_must_go():
    """Taking the first of a dict again and again walks over all that were taken before."""
    header = read_header(build_batch([Record()], producer_id=0, producer_epoch=0, base_sequence=0))
    states = ProducerStates(EXPIRATION_MS)

    def seconds(producer_ids):
        headers = [header._replace(producer_id=producer_id) for producer_id in producer_ids]
        begin = time.process_time()
        for each in headers:
            states.update(each, each.producer_id, NOW, NOW)
        return (time.process_time() - begin) / len(headers)

    filling = seconds(range(PRODUCERS_MAX))
    assert seconds(range(PRODUCERS_MAX, PRODUCERS_MAX + 30_000)) < 5 * filling
