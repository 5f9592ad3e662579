"""The blocking producer against a broker of a few lines: order, numbers, retries, limits."""

import pytest

from ottla.client.blocking.producer import BlockingProducer, SendingSettings
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.sending import ProducerIdentity
from ottla.client.wire.settings import Address, ClientSettings
from ottla.client.wire.view import ClusterView, PartitionView, TopicView
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import ProducerId, TopicId, TopicPartition
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.records.batch import batch_crc, read_header
from ottla.records.builder import build_batch
from ottla.records.decode import decode_batches
from ottla.records.record import Record

TOPIC_ID = TopicId(bytes(range(16)))
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = ClientSettings(retry_backoff_ms=10, retry_backoff_max_ms=40)


class ManualClock:
    """Sleeping moves it."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Broker:
    """Leads all partitions; checks sequence numbers as a leader does. ``faults``: one per batch."""

    def __init__(self, partition_count=2):
        self.partition_count = partition_count
        self.logs = {}
        self.expected = {}
        self.faults = []
        self.batch_bytes_max = 1 << 20
        self.requests = []
        self.versions = []
        self.deepest = 0
        self.breaks_after = None
        self.look_ups = 0

    def append(self, topic, each):
        target = TopicPartition(topic, each.index)
        batch = bytes(each.records)
        header = read_header(batch)
        assert header.crc == batch_crc(memoryview(batch))
        assert header.size_bytes == len(batch)
        fault = self.faults.pop(0) if self.faults else ErrorCode.NONE
        log = self.logs.setdefault(target, [])
        base = sum(read_header(one).record_count for one in log)
        if fault is ErrorCode.NONE or fault is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            if len(batch) > self.batch_bytes_max:
                return ErrorCode.MESSAGE_TOO_LARGE, -1
            known = self.expected.get(target)
            if header.producer_id >= 0:
                epoch, sequence = known or (header.producer_epoch, 0)
                if header.producer_epoch > epoch:
                    sequence = 0
                if header.base_sequence < sequence:
                    return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
                if header.base_sequence != sequence:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                self.expected[target] = (
                    header.producer_epoch,
                    header.base_sequence + header.record_count,
                )
            log.append(batch)
        return fault, base

    def values(self, target):
        return [
            record.value
            for one in self.logs.get(target, [])
            for batch in decode_batches(memoryview(one), 1 << 20)
            for record in batch.records
        ]


class Connection:
    """One connection: answers wait until they are asked for."""

    def __init__(self, broker):
        self.broker = broker
        self.due = []
        self.has_answer = False
        self.is_closed = False

    def send(self, request, answer, *, highest=None):
        broker = self.broker
        broker.requests.append(request)
        broker.versions.append(highest)
        if broker.breaks_after == len(broker.requests):
            raise ConnectionFailed("b", 1, "broken pipe")
        topics = []
        for topic in request.topic_data:
            parts = []
            for each in topic.partition_data:
                code, base = broker.append(topic.name, each)
                parts.append(
                    PartitionProduceResponse(index=each.index, error_code=code, base_offset=base)
                )
            topics.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=parts
                )
            )
        if answer is not None:
            self.due.append(ProduceResponse(responses=topics))
        broker.deepest = max(broker.deepest, len(self.due))

    def receive(self):
        if self.broker.breaks_after == -1:
            self.broker.breaks_after = None
            raise ConnectionFailed("b", 1, "connection reset")
        return self.due.pop(0)

    def call(self, request, answer, **_):
        return InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=0)

    def close(self):
        self.is_closed = True


class Client:
    """The cluster as BlockingClient shows it."""

    def __init__(self, broker):
        self.broker = broker
        self.view = ClusterView()

    def look_up(self, topics, *, create=False):
        self.broker.look_ups += 1
        partitions = {
            n: PartitionView(n, 1, 0, (1,), (1,), ErrorCode.NONE)
            for n in range(self.broker.partition_count)
        }
        self.view = ClusterView(
            brokers={1: Address("b", 1)},
            topics={
                name: TopicView(name, TOPIC_ID, False, ErrorCode.NONE, partitions)
                for name in topics
            },
        )
        return self.view

    def any(self):
        return Connection(self.broker)

    def forget(self, _error):
        pass

    def retrying(self, attempt, **_):
        return attempt()


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def make(broker, clock):
    def producer(identity=None, done=None, **settings):
        made = BlockingProducer(
            Client(broker),
            SETTINGS,
            SendingSettings(**{"gathered_bytes": 0, **settings}),
            identity,
            done=done,
            clock=clock,
            connect=lambda _address, _settings: Connection(broker),
        )
        made.topic("t")
        return made

    return producer


def send(producer, target, values, **options):
    data = build_batch([Record(timestamp=5, value=value) for value in values], **options)
    producer.send(target, data, len(data))


def numbered(count, size=1):
    return [[b"%d.%d" % (number, part) for part in range(size)] for number in range(count)]


def flat(batches):
    return [value for values in batches for value in values]


def test_batches_arrive_in_order_and_are_counted(make, broker):
    producer = make()
    for values in numbered(12, 3):
        send(producer, FIRST, values)
        send(producer, SECOND, values)
    producer.flush()
    assert broker.values(FIRST) == broker.values(SECOND) == flat(numbered(12, 3))
    assert producer.written[FIRST].record_count == 36
    assert (producer.written[FIRST].first_offset, producer.written[FIRST].next_offset) == (0, 36)
    assert 1 < broker.deepest <= 5


def test_who_goes_on_has_the_connections_and_writes_in_the_next_epoch(make, broker):
    """Numbered from 0 in the same epoch, the second's batches would pass for the first's."""
    producer = make()
    send(producer, FIRST, [b"1"])
    send(producer, SECOND, [b"2"])
    producer.flush()
    connections, used = producer.hand_over()
    producer.close()
    assert [each.is_closed for each in connections] == [False]
    follower = make(used._replace(epoch=used.epoch + 1))
    send(follower, FIRST, [b"3"])
    follower.flush()
    assert broker.values(FIRST) == [b"1", b"3"]
    assert follower.hand_over()[1].epoch == used.epoch + 1


def test_a_lane_that_had_to_begin_an_epoch_is_not_followed_in_that_one(make, broker):
    producer = make()
    broker.faults = [ErrorCode.UNKNOWN_PRODUCER_ID]
    send(producer, FIRST, [b"1"])
    send(producer, SECOND, [b"2"])
    producer.flush()
    assert producer.hand_over()[1].epoch == 1


def test_who_wrote_without_numbers_hands_over_no_id(make):
    producer = make(is_idempotent=False)
    send(producer, FIRST, [b"1"])
    producer.flush()
    assert producer.hand_over()[1] is None
    assert make().hand_over() == ([], None)


def test_without_numbers_one_batch_of_a_partition_is_in_flight(make, broker):
    producer = make(is_idempotent=False)
    for values in numbered(8):
        send(producer, FIRST, values)
    assert broker.deepest == 1
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(8))


def test_a_batch_that_comes_back_is_written_before_those_behind_it(make, broker):
    producer = make()
    broker.faults = [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    for values in numbered(9, 2):
        send(producer, FIRST, values)
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(9, 2))


def test_what_was_appended_although_refused_is_not_written_twice(make, broker):
    producer = make()
    broker.faults = [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    for values in numbered(5, 2):
        send(producer, FIRST, values)
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(5, 2))


def test_a_lost_connection_writes_nothing_twice_and_asks_who_leads(make, broker):
    producer = make()
    for values in numbered(4):
        send(producer, FIRST, values)
    broker.breaks_after = -1
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(4))
    assert broker.look_ups == 2


def test_a_connection_lost_with_several_batches_under_way_is_left_at_once(
    make, broker, monkeypatch
):
    """A closed socket looks like an answer: nothing more is to be taken from it."""
    producer = make()
    for values in numbered(4):
        send(producer, FIRST, values)
    broker.breaks_after = -1
    monkeypatch.setattr(
        Connection, "has_answer", property(lambda self: bool(self.due)), raising=False
    )
    monkeypatch.setattr(
        Connection, "__init__", lambda self, at: vars(self).update(broker=at, due=[])
    )
    for values in numbered(6)[4:]:
        send(producer, FIRST, values)
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(6))


def test_a_connection_lost_while_sending_is_tried_again(make, broker):
    producer = make()
    broker.breaks_after = 2
    for values in numbered(6):
        send(producer, FIRST, values)
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(6))


def test_a_leader_that_forgot_the_producer_gets_the_next_epoch(make, broker):
    producer = make()
    send(producer, FIRST, [b"a"])
    producer.flush()
    broker.expected.clear()
    for values in numbered(3):
        send(producer, FIRST, values)
    producer.flush()
    assert broker.values(FIRST) == [b"a", *flat(numbered(3))]
    assert broker.expected[FIRST] == (1, 3)


def test_in_a_transaction_a_lost_number_is_an_error(make, broker):
    producer = make(ProducerIdentity(ProducerId(9), 4, "tx", 2))
    broker.expected[FIRST] = (4, 5)
    broker.faults = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    send(producer, FIRST, [b"a"])
    with pytest.raises(KafkaError, match="t-0"):
        producer.flush()


def test_a_fenced_producer_stops_at_once(make, broker):
    producer = make(ProducerIdentity(ProducerId(9), 4, "tx", 2))
    broker.faults = [ErrorCode.INVALID_PRODUCER_EPOCH]
    send(producer, FIRST, [b"a"])
    with pytest.raises(KafkaError) as raised:
        producer.flush()
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_that_is_too_large_is_split_and_keeps_its_numbers(make, broker):
    producer = make()
    broker.batch_bytes_max = 300
    for values in numbered(4, 50):
        send(producer, FIRST, values)
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(4, 50))
    assert producer.smallest_refused_bytes > 300


def test_a_topic_that_takes_little_is_not_waited_for(make, broker, clock):
    """A pause at each halving made a minute of a few MB, and a transaction ran out of time."""
    producer = make()
    broker.batch_bytes_max = 300
    begun, look_ups = clock.now, None
    for values in numbered(12, 200):
        send(producer, FIRST, values)
        look_ups = look_ups or broker.look_ups
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(12, 200))
    assert clock.now == begun
    assert broker.look_ups == look_ups
    # Each of the 12 is some 2,300 bytes: it is refused as a whole once, and then fits in parts.
    assert len(broker.requests) < 12 * (2300 // 150 + 8)


def test_what_comes_back_with_a_split_for_another_reason_is_waited_for(make, broker, clock):
    producer = make()
    send(producer, FIRST, [b"first"])
    producer.flush()
    broker.batch_bytes_max = 300
    begun = clock.now
    broker.faults = [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    for values in numbered(2, 50):
        send(producer, FIRST, values)
    producer.flush()
    assert broker.values(FIRST) == [b"first", *flat(numbered(2, 50))]
    assert clock.now > begun


def test_a_record_that_is_too_large_is_named(make, broker):
    producer = make()
    broker.batch_bytes_max = 300
    data = build_batch([Record(timestamp=5, key=b"the key", value=bytes(400))])
    producer.send(FIRST, data, len(data))
    with pytest.raises(KafkaError, match=r"t-0.*b'the key'.*400 bytes") as raised:
        producer.flush()
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_is_not_acknowledged_is_bounded(make, broker):
    producer = make(buffer_bytes=500)
    for values in numbered(50, 3):
        send(producer, FIRST, values)
        assert producer._buffered_bytes <= 500
    producer.flush()
    assert producer._buffered_bytes == 0


def test_after_the_delivery_timeout_the_last_error_is_raised(make, broker, clock):
    producer = make(delivery_timeout_ms=2000)
    broker.faults = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
    send(producer, FIRST, [b"a"])
    with pytest.raises(KafkaError, match="within 2000 ms") as raised:
        producer.flush()
    assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert clock.now >= 102.0


def test_small_batches_wait_for_company_or_the_end(make, broker):
    producer = make(gathered_bytes=1000)
    for target in (FIRST, SECOND):
        send(producer, target, [b"first"])
    producer.flush()
    broker.requests.clear()
    for number, target in enumerate((FIRST, SECOND) * 3):
        send(producer, target, [b"%d" % number])
    assert broker.requests == []
    send(producer, FIRST, [b"x" * 1000])
    assert len(broker.requests) == 4  # each with a batch of both, as long as both have one
    send(producer, SECOND, [b"6"])
    producer.flush()
    assert broker.values(FIRST) == [b"first", b"0", b"2", b"4", b"x" * 1000]
    assert broker.values(SECOND) == [b"first", b"1", b"3", b"5", b"6"]


def test_the_first_batch_of_a_partition_is_answered_before_the_next_leaves(make, broker):
    """Refused, it would be passed by the next one, which an unknown producer's leader takes."""
    producer = make(gathered_bytes=1)
    for values in numbered(4):
        send(producer, FIRST, values)
    assert [len(each.topic_data) for each in broker.requests] == [1]
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(4))


def test_a_transaction_is_joined_at_once_by_all_partitions(make, broker):
    """Each request is written down durably by the coordinator: one, not one for each partition."""
    joined = []
    producer = make(ProducerIdentity(ProducerId(7), 0, "tx"))
    producer._coordinators.add_partitions = lambda _, partitions: joined.append(list(partitions))
    producer.join([SECOND, FIRST])
    for target in (FIRST, SECOND):
        send(producer, target, [b"a"])
    producer.flush()
    assert joined == [[FIRST, SECOND]]


def test_a_request_takes_one_batch_of_each_partition_up_to_its_size(make, broker):
    broker.partition_count = 30
    producer = make(request_bytes=700)
    for index in range(30):
        send(producer, TopicPartition("t", index), [b"x" * 30])
    producer.flush()
    sizes = [len(request.topic_data[0].partition_data) for request in broker.requests]
    assert sum(sizes) == 30
    assert max(sizes) > 1
    assert all(
        sum(len(each.records) for each in request.topic_data[0].partition_data) <= 700
        for request in broker.requests
    )


def test_without_acknowledgements_nothing_is_waited_for(make, broker):
    freed = []
    producer = make(acks=0, done=freed.append)
    for values in numbered(3):
        send(producer, FIRST, values)
    producer.flush()
    assert broker.values(FIRST) == flat(numbered(3))
    assert len(freed) == 3
    assert producer.written[FIRST].first_offset == -1


def test_old_transactions_are_joined_by_a_version_that_does_not_join_by_itself(
    make, broker, monkeypatch
):
    joined = []
    monkeypatch.setattr(
        "ottla.client.blocking.coordinators.BlockingCoordinators.add_partitions",
        lambda _self, _identity, partitions: joined.append(list(partitions)),
    )
    producer = make(ProducerIdentity(ProducerId(9), 0, "tx", 1))
    for values in numbered(2):
        send(producer, FIRST, values, transactional=True)
    producer.flush()
    assert joined == [[FIRST]]
    assert broker.versions == [11, 11]
    assert {request.transactional_id for request in broker.requests} == {"tx"}
