"""A batch delivered exactly once, whatever step the driver is killed at. Without Spark.

On Ottla and (``--target kafka``) Apache Kafka. The kill is an exception that nobody expects, thrown
where the process would have ended; the connections are left as they are.
"""

import time
import uuid
from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.blocking.producer import BlockingProducer
from ottla.client.wire.errors import ConnectionFailed
from ottla.env.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.spark.writing import transaction
from ottla.spark.writing.identity import Content, Step
from ottla.spark.writing.marker import (
    DeliveryError,
    Marker,
    Rules,
    marker_place,
    read_begun,
    read_marker,
)
from ottla.spark.writing.messages import Staged
from ottla.spark.writing.outgoing import Outgoing
from ottla.spark.writing.sink_options import parse_sink_options
from ottla.testing import Broker
from tests import deliveries
from tests.deliveries import settled_ends
from tools.kafka_peer import KafkaPeer
from tools.wire_client import WireClient


class Killed(BaseException):
    """The end of the process."""


def deliver(options, name, marker, batches, **more):
    """Deliver batches that a task's message holds."""
    outgoing = Outgoing([Staged(batches=batches)])
    return transaction.deliver(options, name, marker, outgoing, **more).step


@pytest.fixture
def topic(target, topic_name):
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 2)
    return topic_name


@pytest.fixture
def options(target, topic):
    return parse_sink_options(
        {
            "kafka.bootstrap.servers": target.bootstrap,
            "topic": topic,
            "delivery": "exactly-once",
            "kafka.max.in.flight.requests.per.connection": "2",
        }
    )


@pytest.fixture
def name():
    return uuid.uuid4().hex


@pytest.fixture
def deliver_batch(options, topic, name):
    """Deliver the records ``batch-0``, ``batch-1``, ... of a batch to two partitions."""

    def run(batch_id, query="q", transactional_id=name):
        batches = [
            (
                TopicPartition(topic, number % 2),
                build_batch([Record(value=b"%d-%d" % (batch_id, number))], transactional=True),
            )
            for number in range(6)
        ]
        return deliver(options, transactional_id, Marker(query, batch_id, topic), batches)

    return run


@pytest.fixture
def committed_values(target, topic):
    return partial(deliveries.committed_values, target.bootstrap, topic)


def values_of(*batch_ids):
    return sorted(f"{batch_id}-{number}" for batch_id in batch_ids for number in range(6))


def killing(monkeypatch, owner, method, *, after, call=1):
    """Let the process end before or after a call of a method."""
    original = getattr(owner, method)
    calls = []

    def dying(self, *arguments, **named):
        calls.append(method)
        if len(calls) == call and not after:
            raise Killed
        result = original(self, *arguments, **named)
        if len(calls) == call:
            raise Killed
        return result

    monkeypatch.setattr(owner, method, dying)


@pytest.mark.parametrize(
    ("owner", "method", "after", "call", "is_there"),
    [
        (BlockingCoordinators, "take_over", True, 1, False),
        (BlockingCoordinators, "committed", True, 1, False),
        (BlockingProducer, "send", False, 1, False),
        (BlockingProducer, "send", True, 4, False),
        (BlockingProducer, "flush", True, 1, False),
        (BlockingCoordinators, "commit_offsets", True, 1, False),
        (BlockingCoordinators, "keep", True, 1, False),
        (BlockingCoordinators, "end", False, 1, False),
        (BlockingCoordinators, "end", True, 1, True),
    ],
)
def test_killed_at_any_step_a_batch_is_there_once(
    monkeypatch, deliver_batch, committed_values, owner, method, after, call, is_there
):
    assert deliver_batch(0) is Step.WRITE
    with monkeypatch.context() as patch:
        killing(patch, owner, method, after=after, call=call)
        with pytest.raises(Killed):
            deliver_batch(1)
    assert deliver_batch(1) is (Step.SKIP if is_there else Step.WRITE)
    assert deliver_batch(1) is Step.SKIP
    assert deliver_batch(2) is Step.WRITE
    assert committed_values() == values_of(0, 1, 2)


def test_an_older_driver_that_wakes_up_writes_nothing(monkeypatch, deliver_batch, committed_values):
    """It has its epoch and is about to send when a newer one delivers the same batch."""
    assert deliver_batch(0) is Step.WRITE
    flush = BlockingProducer.flush
    with monkeypatch.context() as patch:

        def stopped(self):
            patch.setattr(BlockingProducer, "flush", flush)
            assert deliver_batch(1) is Step.WRITE
            flush(self)

        patch.setattr(BlockingProducer, "flush", stopped)
        with pytest.raises(DeliveryError, match="another producer has taken over"):
            deliver_batch(1)
    assert deliver_batch(2) is Step.WRITE
    assert committed_values() == values_of(0, 1, 2)


def test_a_failure_leaves_no_transaction_open(monkeypatch, options, deliver_batch, topic):
    def refuse(self):
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too much")

    assert deliver_batch(0) is Step.WRITE
    with monkeypatch.context() as patch:
        patch.setattr(BlockingProducer, "flush", refuse)
        with pytest.raises(KafkaError, match="too much"):
            deliver_batch(1)
    with BlockingClient(options.client) as client:
        settled_ends(client, topic)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionFailed("h", 1, "hung up"), "may be done or not"),
        (KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "away"), "may be done or not"),
        (KafkaError(ErrorCode.PRODUCER_FENCED, "fenced"), "is found out at the next start"),
    ],
)
def test_a_commit_whose_answer_is_lost_is_not_called_undone(
    monkeypatch, deliver_batch, committed_values, error, why
):
    end = BlockingCoordinators.end

    def lost(self, producer, *, commit):
        end(self, producer, commit=commit)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(BlockingCoordinators, "end", lost)
        with pytest.raises(DeliveryError, match=why):
            deliver_batch(0)
    assert deliver_batch(0) is Step.SKIP
    assert committed_values() == values_of(0)


def test_a_batch_without_rows_moves_the_marker_on(options, name, topic, deliver_batch):
    for batch_id in range(2):
        assert deliver(options, name, Marker("q", batch_id, topic), []) is Step.WRITE
    assert deliver(options, name, Marker("q", 1, topic), []) is Step.SKIP
    assert deliver_batch(2) is Step.WRITE


def test_a_first_batch_without_rows_makes_its_topic(target, name, topic_name):
    """A stream that starts before its source has anything: the marker needs the topic."""
    fresh = f"{topic_name}-fresh"
    given = {"kafka.bootstrap.servers": target.bootstrap, "topic": fresh}
    options = parse_sink_options(given | {"delivery": "exactly-once"})
    begun = time.monotonic()
    assert deliver(options, name, Marker("q", 0, fresh), []) is Step.WRITE
    assert deliver(options, name, Marker("q", 0, fresh), []) is Step.SKIP
    assert time.monotonic() - begun < 20


def test_the_marker_is_no_lag_and_tells_the_rows(options, name, topic, deliver_batch):
    """Tools show the lag of groups: the log's end less what the group has committed."""
    assert deliver_batch(0) is Step.WRITE
    place = marker_place(topic)
    with BlockingClient(options.client) as client:
        settled_ends(client, topic)
        committed = BlockingCoordinators(client).committed(name)
        assert list(committed) == [place]
        assert committed[place].offset == client.latest_offsets([place])[place] == 4
        found = read_marker(committed[place])
    assert found == Marker("q", 0, topic)
    # Without rows for its partition, too.
    assert deliver(options, name, Marker("q", 1, topic, "r", Content(0, 0)), []) is Step.WRITE
    with BlockingClient(options.client) as client:
        committed = BlockingCoordinators(client).committed(name)
        assert committed[place].offset == client.latest_offsets([place])[place]
        assert read_marker(committed[place]) == Marker("q", 1, topic, "r", Content(0, 0))


def test_rows_by_their_column_have_their_marker_with_the_offsets(
    options, topic, name, committed_values
):
    by_column = replace(options, write=replace(options.write, topic=None))
    record = build_batch([Record(value=b"x")], transactional=True)
    marker = Marker("q", 0, None, "r", Content(1, 1))
    batches = [(TopicPartition(topic, 1), record)]
    assert deliver(by_column, name, marker, batches) is Step.WRITE
    assert deliver(by_column, name, marker._replace(run_id="s"), batches) is Step.SKIP
    with pytest.raises(DeliveryError, match="a second time in the same run"):
        deliver(by_column, name, marker, batches)
    assert committed_values() == ["x"]


def test_a_batch_that_comes_again_for_another_topic_is_not_doubled(
    options, topic, name, committed_values
):
    """Committed and then killed; meanwhile the sink has its topics from the rows."""
    rules = Rules(are_gaps_legal=True)
    by_column = replace(options, write=replace(options.write, topic=None))
    record = (TopicPartition(topic, 1), build_batch([Record(value=b"x")], transactional=True))
    marker = Marker("q", 3, topic, "r", Content(1, 1))
    assert deliver(options, name, marker, [record], rules=rules) is Step.WRITE
    again = marker._replace(topic=None, run_id="s", content=Content(1, 2))
    with pytest.raises(DeliveryError, match=f"batch 3 was committed for topic {topic}"):
        deliver(by_column, name, again, [record], rules=rules)
    assert committed_values() == ["x"]
    assert deliver(by_column, name, again._replace(batch_id=4), [record], rules=rules) is Step.WRITE
    assert committed_values() == ["x", "x"]


def test_a_refusal_leaves_nothing_behind(options, name, topic, deliver_batch, committed_values):
    """Other rows under a number that is there: the error comes before the first row is sent."""
    first = Marker("q", 0, topic, "r", Content(1, 1))
    record = (TopicPartition(topic, 0), build_batch([Record(value=b"x")], transactional=True))
    assert deliver(options, name, first, [record]) is Step.WRITE
    changed = first._replace(run_id="s", content=Content(2, 2))
    for _ in range(2):
        with pytest.raises(DeliveryError, match="onChangedBatch"):
            deliver(options, name, changed, [record, record])
    assert deliver(options, name, first._replace(run_id="s"), [record]) is Step.SKIP
    assert deliver_batch(1) is Step.WRITE
    assert committed_values() == sorted(["x", *values_of(1)])


STREAM, FOREACH = Rules(), Rules(are_gaps_legal=True)
DAY_MS = 24 * 3_600_000


@pytest.fixture
def forget(target, name):
    """Have the broker forget the marker, as it does when offsets.retention.minutes are over."""
    from confluent_kafka.admin import AdminClient

    def run():
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.delete_consumer_groups([name])[name].result(30)

    return run


class Later:
    """A clock that is ahead of the system's."""

    def __init__(self, days):
        self._ahead_ms = days * DAY_MS

    def wall_ms(self):
        return SystemClock().wall_ms() + self._ahead_ms


@pytest.fixture
def copy(options, topic, name):
    """Deliver one record of a batch in the ways of a stream and of foreachBatch."""

    def run(batch_id, days=0, rules=STREAM):
        value = b"%d" % batch_id
        batches = [
            (TopicPartition(topic, 1), build_batch([Record(value=value)], transactional=True))
        ]
        marker = Marker("q", batch_id, topic, None, Content(1, batch_id))
        return deliver(options, name, marker, batches, rules=rules, clock=Later(days))

    return run


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
@pytest.mark.parametrize("last", [0, 2])
def test_a_batch_whose_marker_has_expired_is_never_doubled(
    copy, forget, committed_values, rules, last
):
    """Killed after the commit, over Connect or anywhere, and idle for a week: nobody else knows."""
    for batch_id in range(last + 1):
        assert copy(batch_id, rules=rules) is Step.WRITE
    forget()
    for _ in range(2):
        with pytest.raises(DeliveryError, match=r"begun 8d\S* ago"):
            copy(last, days=8, rules=rules)
    assert committed_values() == [str(each) for each in range(last + 1)]
    # Somebody has looked, and says that it is there.
    assert copy(last, days=8, rules=rules._replace(missing=Step.SKIP)) is Step.WRITE
    assert copy(last, days=8, rules=rules) is Step.SKIP  # the marker says it again
    assert copy(last + 1, days=8, rules=rules) is Step.WRITE
    assert committed_values() == [str(each) for each in range(last + 2)]


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
def test_the_next_batch_after_a_week_is_written(copy, forget, committed_values, rules):
    """What is written once a month, such as rejects, needs no marker of the last time."""
    for batch_id in range(3):
        assert copy(batch_id, days=30 * batch_id, rules=rules) is Step.WRITE
        forget()
    assert committed_values() == ["0", "1", "2"]


def test_a_batch_killed_before_its_commit_is_written_when_it_comes_again(
    monkeypatch, copy, committed_values
):
    with monkeypatch.context() as patch:
        killing(patch, BlockingCoordinators, "end", after=False)
        with pytest.raises(Killed):
            copy(0)
    with pytest.raises(DeliveryError, match=r"begun 8d\S* ago"):  # by then nobody could tell
        copy(0, days=8)
    assert copy(0) is Step.WRITE
    assert committed_values() == ["0"]


def test_without_a_right_to_note_what_is_begun_nothing_is_guessed(
    monkeypatch, copy, committed_values
):
    """An ACL for the group of the marker alone, or a cluster that keeps nothing for ever."""
    committed = BlockingCoordinators.committed

    def refused(*_):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")

    def read(self, group, *more):
        return refused() if group.endswith("-begun") else committed(self, group, *more)

    with monkeypatch.context() as patch:
        patch.setattr(BlockingCoordinators, "keep", refused)
        with pytest.raises(DeliveryError, match="right to Read that group"):
            copy(0)
        patch.setattr(BlockingCoordinators, "committed", read)
        with pytest.raises(DeliveryError, match="right to Read that group"):
            copy(0)
        assert committed_values() == []
        assert copy(0, rules=Rules(missing=Step.WRITE)) is Step.WRITE
        assert copy(1) is Step.WRITE  # its marker is there
        assert copy(1) is Step.SKIP
    assert committed_values() == ["0", "1"]


def test_what_was_begun_is_no_lag(options, name, topic, copy):
    place = marker_place(topic)
    for batch_id in range(2):
        assert copy(batch_id) is Step.WRITE
        with BlockingClient(options.client) as client:
            settled_ends(client, topic)
            kept = BlockingCoordinators(client).committed(f"{name}-begun")
            assert list(kept) == [place]
            assert kept[place].offset == client.latest_offsets([place])[place]
            assert read_begun(kept[place])[:2] == ("q", batch_id)


@pytest.mark.timeout(240)
def test_a_broker_forgets_the_marker_and_keeps_what_was_begun(request, tmp_path, topic_name):
    """Offsets of idle groups expire, but for those that a client wants to be kept."""
    is_kafka = request.config.getoption("--target") == "kafka"
    if is_kafka:
        retention = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 500}
        broker = KafkaPeer(tmp_path / "data", retention)
        broker.start()
    else:
        broker = Broker()
    with broker:
        with WireClient(broker.bootstrap) as wire:
            wire.create_topic(topic_name, 1)
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic_name}
        options = parse_sink_options(given | {"delivery": "exactly-once"})
        for batch_id in range(2):
            assert deliver(options, "x", Marker("q", batch_id, topic_name), []) is Step.WRITE
        if not is_kafka:
            broker.clock.advance("8d")
        deadline = time.monotonic() + 150
        with BlockingClient(options.client) as client:
            coordinators = BlockingCoordinators(client)
            while coordinators.committed("x"):
                assert time.monotonic() < deadline, "the marker does not expire"
                time.sleep(0.1)
            assert read_begun(coordinators.committed("x-begun")[marker_place(topic_name)])
        with pytest.raises(DeliveryError, match=r"begun 8d\S* ago"):
            deliver(options, "x", Marker("q", 1, topic_name), [], clock=Later(8))
        assert deliver(options, "x", Marker("q", 2, topic_name), [], clock=Later(8)) is Step.WRITE


def test_a_job_without_a_marker_is_all_or_nothing(
    monkeypatch, options, name, topic, committed_values
):
    batches = [(TopicPartition(topic, 0), build_batch([Record(value=b"x")], transactional=True))]
    with monkeypatch.context() as patch:
        killing(patch, BlockingCoordinators, "end", after=False)
        with pytest.raises(Killed):
            deliver(options, name, None, batches)
    deliver(options, name, None, batches)
    deliver(options, name, None, [])
    assert committed_values() == ["x"]
