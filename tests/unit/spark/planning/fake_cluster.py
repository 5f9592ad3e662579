"""Topics without a cluster, for the tests of what a stream plans."""

import json

from ottla.client.wire.epochs import EpochEnd
from ottla.client.wire.offsets import EARLIEST, LATEST, FoundOffset
from ottla.client.wire.settings import Address
from ottla.client.wire.view import ClusterView, PartitionView, TopicView
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.spark.option_table import Use
from ottla.spark.options import parse_options
from ottla.spark.planning.tracker import StreamTracker
from ottla.spark.positions import Positions, read_positions

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


ID, OTHER_ID = TopicId(b"i" * 16), TopicId(b"o" * 16)


class FakeCluster:
    """Topics as (start, end, epoch) for each partition; answers as a BlockingClient does."""

    def __init__(self, **topics):
        self.logs = {
            TopicPartition(topic, number): log
            for topic, logs in topics.items()
            for number, log in enumerate(logs)
        }
        self.ids = dict.fromkeys(topics, ID)
        self.epoch_starts = {}
        self.times = {}
        self.open_from = {}
        """Where the first open transaction begins."""
        self.calls = []
        self.view = ClusterView()
        self.left_out = []
        """Sets of topics that the next answers for all topics, and then by name, do not have."""
        self.refused = {}
        self.deleted_before_list = ()
        """Partitions that Metadata still knows."""

    def refresh(self, names):
        self.calls.append("refresh")
        return self._see(names or (), self.left_out.pop(0) if self.left_out else set())

    def look_up(self, names):
        self.calls.append("look_up")
        return self._see((), self.left_out.pop(0) if self.left_out else set())

    def retrying(self, attempt):
        """Three tries are what the time allows."""
        for _ in range(2):
            try:
                return attempt()
            except KafkaError as error:
                if not error.code.retriable:
                    raise
        return attempt()

    def _see(self, names, left_out):
        topics = {}
        for name in self.ids:
            parts = {
                each.partition: PartitionView(each.partition, 0, 0, (0,), (0,), ErrorCode.NONE)
                for each in self.logs
                if each.topic == name
            }
            error = self.refused.get(name, ErrorCode.NONE)
            if name not in left_out:
                topics[name] = TopicView(name, self.ids[name], False, error, parts)
        self.view = ClusterView("c", 0, {0: Address("h", 1)}, {}, topics)
        for name in names:
            self.view.topic(name)
        return self.view

    def existing(self, partitions):
        self.look_up(())
        return {each for each in partitions if each in self.logs and each.topic in self.ids}

    def list_offsets(self, timestamps, *, read_committed=False):
        self.calls.append("list")
        for each in self.deleted_before_list:
            self.logs.pop(each, None)
        for each in timestamps:
            if each not in self.logs:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(each))
        found = {}
        for each, timestamp in timestamps.items():
            start, end, epoch = self.logs[each]
            offset = start if timestamp == EARLIEST else end
            if read_committed and timestamp == LATEST:
                offset = min(self.open_from.get(each, end), end)
            if timestamp >= 0:
                offset = self.times.get(each, -1)
            found[each] = FoundOffset(offset, -1, epoch, ErrorCode.NONE)
        return found

    def latest_offsets(self, partitions):
        return {each: self.logs[each][1] for each in partitions}

    def epoch_ends(self, epochs):
        self.calls.append("epochs")
        return {
            each: EpochEnd(self.epoch_starts.get(each, self.logs[each][1]), epoch, ErrorCode.NONE)
            for each, epoch in epochs.items()
        }

    def close(self):
        self.calls.append("close")


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


def make(cluster, clock=None, **options):
    given = {"bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest"}
    given |= options
    given = {name: value for name, value in given.items() if value is not None}
    return StreamTracker(parse_options(given, Use.STREAM), lambda *_: cluster, clock or Clock())


def at(*offsets, topic_id=ID, epoch=0, **more):
    return Positions(
        {TopicPartition("t", number): offset for number, offset in enumerate(offsets)},
        {"t": topic_id},
        {TopicPartition("t", number): epoch for number in range(len(offsets))},
        **more,
    )


def through_json(positions):
    """As it comes back from Spark."""
    return read_positions(json.loads(json.dumps(positions.to_json())))
