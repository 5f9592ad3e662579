"""The quotas at the gate, on a clock of the test's own."""

import random
from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.handlers.fetch_size import answer_bytes
from ottla.handlers.gate import Timed
from ottla.ids import STRANGER, Principal, QuotaEntity, TopicPartition
from ottla.protocol.header import encode_request_header
from ottla.quota.meter import Meter
from ottla.quota.rate import Windows
from ottla.records.region import Region
from ottla.replication.fetch import FetchedPartition
from tests.unit.quota.forms import EACH, skip_unless_it_is_there

PRODUCE, FETCH, CREATE_TOPICS, HEARTBEAT, WRITE_TXN_MARKERS = 0, 1, 19, 12, 27
BOUND = 50_000.0


def answer_of(size_bytes):
    """Records whose answer (v12, one partition of the topic t) has about so many bytes."""
    region = Region(None, 0, size_bytes)
    return [FetchedPartition(TopicPartition("t", 0), ErrorCode.NONE, region=region)]


class Line:
    def __init__(self):
        self.mutes = []

    def mute(self, seconds):
        self.mutes.append(round(seconds * 1000))


@pytest.fixture
def clock():
    clock = ManualClock()
    clock.advance(100)
    return clock


@pytest.fixture
def line():
    return Line()


@pytest.fixture(params=EACH)
def form(request):
    skip_unless_it_is_there(request.param)
    return request.param


@pytest.fixture
def quotas(form, clock):
    return form.handlers.Quotas(Windows(), Windows(), clock)


@pytest.fixture
def client(line):
    return Client("10.0.0.1", 1, "10.0.0.2", 9092, Principal("User", "ann"), line=line)


@pytest.fixture
def admit(quotas, client):
    def admit(key, version=9, body=0, client_id="app"):
        header = encode_request_header(key, version, 1, client_id)
        name_bytes = -1 if client_id is None else len(client_id.encode())
        return quotas.admit(key, memoryview(header + bytes(body)), client, name_bytes)

    return admit


@pytest.fixture
def call(client):
    return Call(12, "app", client)


def limit(quotas, **values):
    quotas.change([(QuotaEntity("ann"), {key: float(v) for key, v in values.items()})])


def test_who_has_no_quota_is_not_counted(quotas, admit):
    quotas.change([(QuotaEntity("bob"), {"producer_byte_rate": 1.0})])
    assert admit(PRODUCE, body=10**6) is None
    limit(quotas, producer_byte_rate=1)
    assert admit(PRODUCE, body=10**6) is not None
    quotas.change([(QuotaEntity("ann"), {})])
    assert admit(PRODUCE, body=10**6) is None
    assert len(quotas) == 1


def test_client_ids_count_from_the_moment_on_that_a_quota_names_one(quotas, admit):
    limit(quotas, producer_byte_rate=1e9)
    for number in range(50):
        assert admit(PRODUCE, body=10, client_id=f"app-{number}") is None
    assert len(quotas._found) == 1, "no client id matters, so none is remembered"
    quotas.change([(QuotaEntity("ann", "app-7"), {"producer_byte_rate": 1.0})])
    assert admit(PRODUCE, body=1000, client_id="app-8") is None
    assert admit(PRODUCE, body=1000, client_id="app-7") is not None
    quotas.change([(QuotaEntity("ann", "app-7"), {})])
    assert admit(PRODUCE, body=1000, client_id="app-7") is None


def test_fetches_that_fit_are_all_counted(quotas, admit, call, clock):
    limit(quotas, consumer_byte_rate=BOUND)
    for _ in range(52):
        assert admit(FETCH, 12).fetch_wait_ms(call, answer_of(10_000)) == 0
        clock.advance(0.0301)
    assert admit(FETCH, 12).fetch_wait_ms(call, answer_of(10_000)) > 0


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("client_id", [None, "", "app", "ü" * 50])
def test_the_body_of_a_produce_counts_and_not_its_header(quotas, admit, line, version, client_id):
    limit(quotas, producer_byte_rate=BOUND)
    assert admit(PRODUCE, version, 500_000, client_id) is None
    assert line.mutes == []
    passage = admit(PRODUCE, version, 50, client_id)
    assert passage.answered() == 1
    assert line.mutes == [1, 1], "from when it comes in, and from its answer on"


def test_a_producer_is_told_what_kafka_tells_it(quotas, admit, clock, line):
    """The figures of a live Kafka 4.3, to 20 ms."""
    limit(quotas, producer_byte_rate=BOUND)
    told = []
    for body in (1091, 1091, 400_094, 200_094, 1091, 1091, 200_094):
        clock.advance(0.014)
        passage = admit(PRODUCE, body=body)
        told.append(0 if passage is None else passage.answered())
        clock.advance(told[-1] / 1000)
    for ours, kafkas in zip(told, [0, 0, 0, 1991, 2012, 2018, 5998], strict=True):
        assert ours == pytest.approx(kafkas, abs=20)
    assert line.mutes == [one for one in told if one for _ in range(2)]


def test_a_client_id_that_is_longer_than_the_frame_takes_no_bytes_back(quotas, admit, client):
    limit(quotas, producer_byte_rate=BOUND)
    assert admit(PRODUCE, body=499_000) is None
    lying = memoryview(encode_request_header(PRODUCE, 9, 1, "app"))
    for _ in range(50):
        assert quotas.admit(PRODUCE, lying, client, 32_767) is None
    assert admit(PRODUCE, body=2000) is not None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_charged_without_a_call_is_what_a_meter_charges(quotas, admit, call, clock, seed):
    rng = random.Random(seed)
    bound = rng.choice([1000.0, 50_000.0, 1e10])
    limit(quotas, producer_byte_rate=bound, consumer_byte_rate=bound)
    written, read, told, expected = Meter(bound, Windows()), Meter(bound, Windows()), [], []
    for _ in range(600):
        clock.advance(rng.choice([0, 0.0004, 0.003, 0.0307, 0.4, 0.9996, 2.5, 30]))
        now_ms, size = int(clock.monotonic() * 1000), int(rng.random() * bound)
        passage = admit(FETCH, 12)
        told.append(passage.fetch_wait_ms(call, answer_of(size)))
        size_bytes = answer_bytes(12, answer_of(size))
        expected.append(read.charge(size_bytes, now_ms))
        if expected[-1]:
            read.note(-size_bytes, now_ms)
        body = rng.randrange(10_000)
        passage = admit(PRODUCE, body=body)
        told.append(0 if passage is None else passage.answered())
        expected.append(written.charge(body, now_ms))
    assert told == expected


@pytest.mark.parametrize("seed", range(20))
def test_each_answer_is_counted_to_the_byte(quotas, admit, client, clock, seed):
    """Of whatever version, with one partition or many, with records or none; also of a session."""
    rng = random.Random(seed)
    limit(quotas, consumer_byte_rate=BOUND)
    read, told, expected = Meter(BOUND, Windows()), [], []
    for _ in range(1000):
        clock.advance(rng.choice([0, 0.0004, 0.003, 0.5, 0.9996]))
        version, topic = rng.randrange(4, 19), "t" * rng.choice([1, 126, 127, 249])
        sizes = (0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 60_000, 400_000)
        fetched = [
            FetchedPartition(
                TopicPartition(topic, index),
                ErrorCode.NONE,
                region=rng.choice([None, Region(None, 0, rng.choice(sizes))]),
                aborted=rng.choice([(), (), [None, None]]),
            )
            for index in range(rng.choice([0, 1, 1, 1, 1, 2]))
        ]
        passage, call = admit(FETCH, version), Call(version, "app", client)
        if rng.random() < 0.5:
            told.append(passage.fetch_wait_ms(call, fetched))
        else:
            told.append(passage.news_wait_ms(call, [(None, each) for each in fetched]))
        now_ms, size_bytes = int(clock.monotonic() * 1000), answer_bytes(version, fetched)
        expected.append(read.charge(size_bytes, now_ms))
        if expected[-1]:
            read.note(-size_bytes, now_ms)
    assert told == expected
    assert any(told)


def test_others_than_produce_pass_a_producers_quota(quotas, admit):
    limit(quotas, producer_byte_rate=1)
    assert admit(HEARTBEAT, body=10**6, version=4) is None
    assert admit(FETCH, body=10**6, version=12) is None


def test_a_fetch_that_is_over_counts_nothing(quotas, admit, call, clock, line):
    limit(quotas, consumer_byte_rate=BOUND)
    first = admit(FETCH, 12)
    assert first.fetch_bytes_max == 500_000
    assert first.fetch_wait_ms(call, answer_of(200_000)) == 0
    assert first.answered() == 0
    clock.advance(0.004)
    second = admit(FETCH, 12)
    wait_ms = second.fetch_wait_ms(call, answer_of(400_000))
    assert wait_ms == pytest.approx(1996, abs=5)
    assert line.mutes == [wait_ms]
    assert second.answered() == 0, "the handler tells it"
    third = admit(FETCH, 12)
    assert third.fetch_wait_ms(call, answer_of(300_000)) == 0


@pytest.mark.parametrize("in_session", [False, True])
def test_a_fetch_that_takes_too_much_time_waits_and_counts_no_bytes(
    quotas, admit, call, clock, line, in_session
):
    limit(quotas, consumer_byte_rate=BOUND, request_percentage=1)
    slow = admit(FETCH, 12)
    clock.advance(0.5)
    fetched = answer_of(400_000)
    told = [(None, one) for one in fetched]
    waits = slow.news_wait_ms(call, told) if in_session else slow.fetch_wait_ms(call, fetched)
    assert waits == 1000
    assert slow.answered() == 1000, "for both, told and muted once"
    assert line.mutes == [1000]
    clock.advance(60)
    assert admit(FETCH, 12).fetch_wait_ms(call, answer_of(490_000)) == 0


def test_the_larger_throttle_time_is_told_once(quotas, admit, clock, line):
    limit(quotas, producer_byte_rate=BOUND, request_percentage=1)
    admit(PRODUCE, body=500_000).answered()
    slow = admit(PRODUCE, body=5_000)
    clock.advance(0.5)  # 50 percent seconds, of 10 allowed.
    assert slow.answered() == 1000, "for time, a window at most"
    assert line.mutes == [100, 1000]
    large = admit(PRODUCE, body=500_000)
    assert large.answered() > 9000
    assert line.mutes[2] > 9000
    assert line.mutes[2:] == [line.mutes[2]] * 2


def test_only_time_on_the_loop_counts(quotas, admit, clock, line):
    limit(quotas, request_percentage=1)
    passage = admit(HEARTBEAT, 4)
    clock.advance(0.05)
    passage.waits()
    clock.advance(60)
    passage.waits()
    passage.goes_on()
    clock.advance(0.05)
    passage.goes_on()
    assert passage.answered() == 0, "100 ms of a second are the burst of 10 windows of 1 percent"
    clock.advance(0.02)
    passage.left()
    assert admit(HEARTBEAT, 4).answered() > 0, "what came after the answer counts, too"
    assert len(line.mutes) == 1


def test_steps_are_timed_one_by_one(quotas, admit, clock):
    limit(quotas, request_percentage=1)
    passage = admit(HEARTBEAT, 4)

    def steps():
        for _ in range(3):
            clock.advance(0.03)
            yield None
        return "done"

    timed = Timed(steps(), passage)
    for _ in range(3):
        assert timed.send(None) is None
        clock.advance(60)
    with pytest.raises(StopIteration) as end:
        timed.send(None)
    assert end.value.value == "done"
    assert passage.answered() == 0
    assert admit(HEARTBEAT, 4).answered() == 0


def test_who_wants_no_answer_is_counted_and_not_checked(quotas, admit, clock, line):
    limit(quotas, request_percentage=1)
    passage = admit(PRODUCE)
    clock.advance(5)
    assert passage.answered(has_answer=False) == 0
    assert line.mutes == []
    assert admit(HEARTBEAT, 4).answered() == 1000


def test_nodes_are_not_held_up(quotas, admit, clock):
    limit(quotas, request_percentage=0.001)
    passage = admit(WRITE_TXN_MARKERS, 1)
    clock.advance(1)
    assert passage.answered() == 0


@pytest.mark.parametrize("may", [True, False])
def test_who_may_not_write_markers_is_throttled_for_trying(quotas, client, clock, may):
    limit(quotas, request_percentage=1)
    client = client._replace(access=SimpleNamespace(may_write_markers=lambda *, quiet: may))
    frame = memoryview(encode_request_header(WRITE_TXN_MARKERS, 1, 1, "app"))
    passage = quotas.admit(WRITE_TXN_MARKERS, frame, client, 3)
    clock.advance(1)
    assert (passage.answered() == 0) == may


def test_a_stranger_takes_nothing_from_the_quota_of_anybody(quotas, client):
    """It tells a client id, but has not logged in: the quota is of those who have."""
    quotas.change([(QuotaEntity(None, "app"), {"request_percentage": 1.0})])
    frame = memoryview(encode_request_header(18, 3, 1, "app"))
    assert quotas.admit(18, frame, client._replace(principal=STRANGER), 3) is None
    assert quotas.admit(18, frame, client, 3) is not None


def test_partitions_cost_tokens(quotas, admit, clock, line):
    limit(quotas, controller_mutation_rate=1)
    passage = admit(CREATE_TOPICS, 7)
    for _ in range(3):
        passage.take_partitions(5, is_strict=True)
    assert passage.answered() == 0, "who is served waits for nothing"
    refused = admit(CREATE_TOPICS, 7)
    with pytest.raises(KafkaError) as error:
        refused.take_partitions(1, is_strict=True)
    assert error.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.answered() == 4000
    clock.advance(4)
    old = admit(CREATE_TOPICS, 5)
    old.take_partitions(2, is_strict=False)
    old.take_partitions(3, is_strict=False)
    assert old.answered() == 5000
    assert line.mutes == [4000, 5000]


def test_a_client_without_a_line_is_told_all_the_same(quotas):
    limit(quotas, producer_byte_rate=1)
    client = Client("10.0.0.1", 1, "10.0.0.2", 9092, Principal("User", "ann"))
    header = encode_request_header(PRODUCE, 9, 1, "app")
    assert quotas.admit(PRODUCE, memoryview(header + bytes(1000)), client, 3).answered() == 990_000
