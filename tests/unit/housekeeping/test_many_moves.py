"""Replicas move by the thousand, or with very many segments, and others notice nothing of it."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.log.directories.copying import CopyStep, LogCopy


@pytest.fixture
def many(make_node):
    """Return a node with as many partitions, half of them in /a, a batch in each of those."""

    def make(count, **config):
        return make_node(log_dirs=("/a", "/b"), partitions=count, **config)

    return make


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_moved_partition_does_not_wait_for_the_copies_of_all_others(
    many, words, monkeypatch
):
    """It was held until each of them had been copied on, with all who wrote to it."""
    node = many(100)
    steps_run = 0
    run_step = CopyStep.run

    def counted(step):
        nonlocal steps_run
        steps_run += 1
        run_step(step)

    monkeypatch.setattr(CopyStep, "run", counted)
    moving = [one for one in node.replica_manager.partitions if one.log_dir == "/a"]
    assert len(moving) == 50
    for partition in moving:
        node.append((partition.topic_partition.partition, words.batch(b"x" * 100)))
    node.executor.run_all()
    relocation = node.housekeeper.relocation
    answers = [relocation.move(one.topic_partition, "/b") for one in moving]
    longest, since = 0, {}
    for _ in range(5000):
        await turns()
        for one in moving:
            if one.is_held:
                since.setdefault(one, steps_run)
            elif one in since:
                longest = max(longest, steps_run - since.pop(one))
        if not relocation._moves or not node.executor.run_next():
            break
    assert [answer.value for answer in answers] == [ErrorCode.NONE] * 50
    assert all(one.log_dir == "/b" for one in moving)
    assert longest <= 4


class Watched(list):
    """Segments, and how often one of them was looked at."""

    looks = 0
    rewrites = 0

    def __iter__(self):
        for segment in super().__iter__():
            self.looks += 1
            yield segment

    def __getitem__(self, index):
        self.looks += 1
        return super().__getitem__(index)

    @property
    def active(self):
        return super().__getitem__(-1)

    def ordinal_of(self, offset):
        return max(offset, 0)  # Each has one record.

    def note_read(self, segment):
        pass


def test_what_is_to_be_copied_next_is_found_at_once_however_many_segments_there_are():
    """Each step looked at all of them, several times: a log of 20,000 held the loop 6 ms a step."""
    count = 1000
    segments = Watched(
        SimpleNamespace(base_offset=number, size_bytes=100, transaction_index=None, file=None)
        for number in range(count)
    )
    log = SimpleNamespace(
        segments=segments,
        log_end_offset=count,
        topic_partition=TopicPartition("t", 0),
        is_swapping=False,
        state=None,
        tenancy=None,
    )
    copy = LogCopy(None, log, "/b/copy")
    steps = 0
    while copy.misses_more_than(0):
        assert copy.offset_lag == count - steps
        copy.took(copy.next_step())
        steps += 1
        assert copy.size_bytes == 100 * steps
    assert (steps, copy.offset_lag, copy.next_step()) == (count, 0, None)
    assert segments.looks < 20 * count
