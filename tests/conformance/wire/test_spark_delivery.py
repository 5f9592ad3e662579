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
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.spark.writing import transaction
from ottla.spark.writing.identity import Content, Step
from ottla.spark.writing.marker import DeliveryError, Marker, marker_place, read_marker
from ottla.spark.writing.messages import Staged
from ottla.spark.writing.outgoing import Outgoing
from ottla.spark.writing.sink_options import parse_sink_options
from tests import deliveries
from tests.deliveries import settled_ends
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
