import gc
import tracemalloc

import pytest

from ottla.client.library.gathering import Gatherer, ProducerSettings
from ottla.env.rng import SeededRng


@pytest.mark.parametrize("size_bytes", [0, 1, 8, 100])
@pytest.mark.parametrize("header_count", [0, 2])
def test_a_buffer_of_tiny_records_takes_no_more_memory_than_it_says(size_bytes, header_count):
    """A record of one byte is a tuple, a number and two objects: twenty times what is sent."""
    gatherer = Gatherer(ProducerSettings(buffer_bytes=2 << 20, linger_ms=60_000), SeededRng(1))
    topic = gatherer.know("t", 3)
    number = 10**9
    gc.collect()  # Tuples that others have left to be used again would not be traced.
    tracemalloc.start()
    try:
        while not gatherer.is_full:
            number += 1
            key, value, *those = (bytes(bytearray(size_bytes)) for _ in range(2 + header_count))
            headers = tuple((f"name-{number}", data) for data in those)
            gatherer.add(topic, None, (number, key, value, headers), 0.0)
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes < 1.1 * gatherer.buffered_bytes
    if size_bytes > 1:  # Python has but one of each byte.
        assert gatherer.buffered_bytes < 1.3 * taken_bytes


def test_what_was_written_makes_room():
    gatherer = Gatherer(ProducerSettings(buffer_bytes=1), SeededRng(1))
    topic = gatherer.know("t", 1)
    batch, _, _ = gatherer.add(topic, None, (1, b"k", b"v", ()), 0.0)
    assert gatherer.is_full
    (taken,) = gatherer.take_due(0.0, everything=True)
    gatherer.finish(taken, None)
    assert (taken, gatherer.buffered_bytes, gatherer.is_full) == (batch, 0, False)


def test_a_divided_batch_gives_back_as_much_room_as_it_took():
    gatherer = Gatherer(ProducerSettings(), SeededRng(1))
    topic = gatherer.know("t", 1)
    for number in range(7):
        gatherer.add(topic, 0, (1, None, b"v" * number, ()), 0.0)
    (batch,) = gatherer.take_due(1.0, everything=True)
    gatherer.add(topic, 0, (1, None, b"behind", ()), 0.0)
    gatherer.divide(batch)
    assert [first for first, _ in batch.parts] == [0, 3]
    order = []
    while taken := gatherer.take_due(1.0, everything=True):
        (part,) = taken
        order.append(len(part.rows))
        part.lane.is_busy = False
        gatherer.finish(part, None)
    assert order == [3, 4, 1], "the parts go before what waits"
    assert (gatherer.buffered_bytes, gatherer.unfinished_count) == (0, 0)


def test_a_record_of_a_topic_that_was_forgotten_meanwhile_is_sent_all_the_same():
    gatherer = Gatherer(ProducerSettings(), SeededRng(1))
    topic = gatherer.know("t", 1)
    gatherer.forget("t")
    gatherer.add(topic, 0, (1, None, b"v", ()), 0.0)
    assert len(gatherer.take_due(1.0, everything=True)) == 1
