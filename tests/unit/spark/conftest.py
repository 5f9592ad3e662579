"""Record batches as a broker would send them, and a cluster that hands them out."""

from struct import pack

import pytest

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.offsets import FoundOffset
from ottla.client.wire.settings import Address, ClientSettings
from ottla.client.wire.view import ClusterView, PartitionView, TopicView
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.records.batch import batch_crc, read_header


def _varint(value):
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def _bytes(data):
    return _varint(-1) if data is None else _varint(len(data)) + data


def make_batch(
    base_offset, values, *, attributes=0, timestamp=1000, key=b"k", headers=(), producer=-1
):
    """Return one uncompressed RecordBatch v2."""
    records = b""
    for index, value in enumerate(values):
        body = b"\0" + _varint(index) + _varint(index) + _bytes(key) + _bytes(value)
        body += _varint(len(headers)) + b"".join(_bytes(k) + _bytes(v) for k, v in headers)
        records += _varint(len(body)) + body
    last = len(values) - 1
    tail = pack(">hiqq", attributes, last, timestamp, timestamp + last)
    tail += pack(">qhii", producer, -1, -1, len(values))
    tail += records
    head = pack(">qiibI", base_offset, len(tail) + 9, 0, 2, 0)
    crc = batch_crc(memoryview(head + tail))
    return head[:17] + pack(">I", crc) + tail


class Log:
    """A partition: whole batches one behind the other, and the error that it answers next."""

    def __init__(self, data, leader=1):
        self.data = bytearray(data)
        self.leader = leader
        self.start, self.errors, self.aborted = 0, [], []

    def _batches(self):
        position = 0
        while position < len(self.data):
            header = read_header(self.data, position)
            yield header, self.data[position : position + header.size_bytes]
            position += header.size_bytes

    @property
    def end(self):
        return max([header.next_offset for header, _ in self._batches()], default=0)

    def read(self, offset, max_bytes):
        """One whole batch at least, then more, the last cut short, up to ``max_bytes``."""
        rest = [bytes(batch) for header, batch in self._batches() if header.next_offset > offset]
        return b"".join(rest)[: max(max_bytes, len(rest[0]))] if rest else b""


class FakeConnection:
    def __init__(self, cluster, leader):
        self.cluster, self.leader, self.due = cluster, leader, []

    @property
    def has_answer(self):
        return bool(self.due)

    def send(self, request, _answer, highest=None):
        self.due.append(request)
        self.cluster.asked.append(
            {
                f"{topic.topic}-{each.partition}": each.fetch_offset
                for topic in request.topics
                for each in topic.partitions
            }
        )
        self.cluster.sizes.append(request.topics[0].partitions[0].partition_max_bytes)

    def receive(self, *, reuse_buffer):
        assert reuse_buffer
        request = self.due.pop(0)
        if self.cluster.failures:
            raise self.cluster.failures.pop(0)
        throttled = self.cluster.throttled.get(self.leader)
        if throttled:  # as Kafka answers then: of nothing that was asked for
            return FetchResponse(throttle_time_ms=throttled.pop(0), responses=[])
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[self._partition(topic.topic, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _partition(self, topic, asked):
        log = self.cluster.logs[topic, asked.partition]
        error = log.errors.pop(0) if log.errors else ErrorCode.NONE
        if asked.fetch_offset < log.start:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if log.leader != self.leader:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = b"" if error else log.read(asked.fetch_offset, asked.partition_max_bytes)
        return PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=memoryview(data),
            aborted_transactions=[
                AbortedTransaction(producer_id=producer, first_offset=offset)
                for producer, offset in log.aborted
            ],
        )


class FakeCluster(BlockingClient):
    """A client of a cluster that is these logs, by (topic, partition), with their leaders."""

    def __init__(self, logs):
        super().__init__(
            ClientSettings(retry_timeout_ms=10_000, missing_topic_ms=3_000), FakeTime()
        )
        self.logs = {each: log if isinstance(log, Log) else Log(log) for each, log in logs.items()}
        self.asked, self.sizes, self.failures = [], [], []
        self.topic_id = bytes(15) + b"\1"
        self.opened = {}
        self.throttled = {}
        """By leader, the milliseconds that its next answers say instead of giving records."""
        self.answers_lost = []
        """What happens to the next requests for Metadata."""

    def refresh(self, topics):
        views = {
            topic: TopicView(
                name=topic,
                topic_id=self.topic_id,
                is_internal=False,
                error=ErrorCode.NONE,
                partitions={
                    number: PartitionView(number, log.leader, 0, (), (), ErrorCode.NONE)
                    for (name, number), log in self.logs.items()
                    if name == topic
                },
            )
            for topic in topics
        }
        brokers = {log.leader: Address("h", log.leader) for log in self.logs.values()}
        self.view = ClusterView(brokers=brokers, topics=views)
        return self.view

    def look_up(self, topics, *, create=False):
        if self.answers_lost:
            raise self.answers_lost.pop(0)
        return self.refresh([each for each in topics if any(t == each for t, _ in self.logs)])

    def connection(self, node_id):
        return self.opened.setdefault(node_id, FakeConnection(self, node_id))

    def disconnect(self, node_id):
        self.opened.pop(node_id, None)

    def list_offsets(self, timestamps, *, read_committed=False):
        assert not any(one.due for one in self.opened.values()), "an answer is due already"
        return {
            each: FoundOffset(self.logs[each].start if at == -2 else self.logs[each].end, -1, 0, 0)
            for each, at in timestamps.items()
        }


class FakeTime:
    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def batch():
    return make_batch


@pytest.fixture
def log():
    return Log


@pytest.fixture
def cluster():
    """Make a cluster: of one log, which is partition 1 of topic t, or of several."""

    def make(logs):
        return FakeCluster(logs if isinstance(logs, dict) else {TopicPartition("t", 1): logs})

    return make
