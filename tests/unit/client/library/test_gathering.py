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
