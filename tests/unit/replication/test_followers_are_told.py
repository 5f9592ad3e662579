"""Whatever happens to its partitions, a follower that waits is soon told of records it lacks."""

import random

import pytest

from ottla.errors import KafkaError
from ottla.ids import TopicPartition
from tests.unit.replication.test_replicas import OTHER, REGISTERED, Leading

PARTITIONS = 3
STEPS = 150
SOON_SECONDS = 0.004
HAPPENINGS = ("append", "append", "append", "acks 1", "sync", "ask", "ask", "time", "hold", "go on")


class Follower:
    """Node 2, as its leader sees it."""

    def __init__(self, leading, rng):
        self.leading = leading
        self.rng = rng
        self.session = leading.sessions.begin(OTHER, REGISTERED)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.waiting = None
        self.ask(is_first=True)

    def ask(self, *, is_first=False):
        """Send requests until one has to wait."""
        while True:
            if not is_first:
                self.session = self.leading.go_on(self.session)
            is_first = False
            for index, end in self.ends.items():
                max_bytes = self.rng.choice((90, 1 << 20, 1 << 20))  # Less than a batch, or more.
                spec = self.leading.spec(end, last_epoch=-1, max_bytes=max_bytes)
                self.session.name(spec._replace(where=TopicPartition("t", index)))
            if not self.take(may_gather=True):
                self.waiting = self.leading.sessions.wait(self.session, 0.5)
                return

    def take(self, **how):
        """Take an answer; return whether it has any records."""
        took = False
        for news in self.leading.sessions.read(self.session, 1 << 20, **how):
            if news is None or news.is_quiet:
                continue
            assert not isinstance(news.found, KafkaError)
            if news.found.region is not None:
                index = news.spec.where.partition
                self.ends[index] = self.leading.node.partition(index).log.log_end_offset
                took = True
        return took

    def go_on(self):
        """Take the answer if the wait is over, and ask again."""
        if self.waiting.is_done:
            self.take(is_heard=True)
            self.ask()

    def lacks(self):
        """Return what there is to read for it."""
        partitions = {index: self.leading.node.partition(index) for index in self.ends}
        return [
            index
            for index, partition in partitions.items()
            if not partition.is_held
            and self.session.partitions[partition.topic_partition].spec.asked.fetch_offset
            < partition.log.log_end_offset
        ]


def happen(what, leading, follower, partition, words, rng):
    node, index = leading.node, partition.topic_partition.partition
    if what in ("append", "acks 1"):
        size = rng.choice((1, 50))
        node.append((index, words.batch(b"x" * size)), acks=-1 if what == "append" else 1)
    elif what == "sync":
        node.executor.run_all()
    elif what == "ask":
        follower.go_on()
    elif what == "time":
        node.clock.advance(rng.choice((0, 0.0005, 0.001, 0.01)))
    elif what == "hold" and not partition.is_held:
        partition.between_flushes(lambda: partition.is_held or partition.hold())
    elif what == "go on" and partition.is_held:
        partition.log.end_hold(is_full=False)
        partition.release(partition.log)


@pytest.mark.parametrize("seed", range(60))
def test_a_follower_that_waits_is_told_soon(make_node, words, seed):
    rng = random.Random(seed)
    leading = Leading(make_node(partitions=PARTITIONS))
    node = leading.node
    for index in range(1, PARTITIONS):
        node.change(node.led(index, epoch=1, isr=(1, 2), old=node.partition(index).state))
    follower, happened = Follower(leading, rng), []
    for _ in range(STEPS):
        what, partition = rng.choice(HAPPENINGS), node.partition(rng.randrange(PARTITIONS))
        happened.append((what, partition.topic_partition.partition))
        happen(what, leading, follower, partition, words, rng)
        if rng.random() < 0.3:
            follower.go_on()
            node.clock.advance(SOON_SECONDS)
            node.clock.advance(0)
            assert follower.waiting.is_done or not follower.lacks(), happened[-20:]
