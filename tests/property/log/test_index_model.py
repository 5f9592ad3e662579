"""The sparse indexes against a sorted list."""

from bisect import bisect_right

import hypothesis.strategies as st
from hypothesis import given

from ottla.env.memory_disk import MemoryDisk
from ottla.log.segment.offset_index import OffsetIndex
from ottla.log.segment.time_index import TimeIndex

BASE = 10**12


@given(
    steps=st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**5)), max_size=200),
    asked=st.lists(st.integers(0, 10**8), max_size=20),
    cut=st.integers(0, 10**8),
)
def test_offset_index(steps, asked, cut):
    disk = MemoryDisk()
    index = OffsetIndex(disk, "/i", BASE)
    model, offset, position = [], BASE, 0
    for more_offsets, more_bytes in steps:
        offset, position = offset + more_offsets, position + more_bytes
        index.append(offset, position)
        model.append((offset, position))
    for _ in range(2):
        for ask in asked:
            at = bisect_right(model, (BASE + ask, 2**40))
            assert index.lookup(BASE + ask) == (model[at - 1] if at else None)
        index.keep_below(BASE + cut)
        model = [entry for entry in model if entry[0] < BASE + cut]
        index.write()
        index = OffsetIndex(disk, "/i", BASE)
        index.load(position + 1)
    assert [index.entry(n) for n in range(index.count)] == model


@given(
    steps=st.lists(st.tuples(st.integers(-1, 10**4), st.integers(0, 100)), max_size=200),
    asked=st.lists(st.integers(-5, 10**4 + 5), max_size=20),
)
def test_time_index(steps, asked):
    disk = MemoryDisk()
    index = TimeIndex(disk, "/t", BASE)
    model, offset = [], BASE
    for timestamp, more_offsets in steps:
        offset += 1 + more_offsets
        index.append(timestamp, offset)
        if timestamp > (model[-1][0] if model else -1):
            model.append((timestamp, offset))
    index.write()
    loaded = TimeIndex(disk, "/t", BASE)
    loaded.load(1 << 30)
    for ask in asked:
        at = bisect_right(model, (ask, 2**63))
        assert loaded.lookup(ask) == (model[at - 1] if at else None)
