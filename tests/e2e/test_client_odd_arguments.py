"""``ottla.Client``: odd arguments are refused where they stand, and leave the client as it was."""

import pickle

import pytest

import ottla
from ottla import TopicPartition
from ottla.testing import Broker

pytestmark = pytest.mark.timeout(60)

HALF = "\ud800"
"""Half of a character: a text that is no UTF-8."""
NO_OFFSETS = (-1, 1.5, 1 << 63, "7", None)


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with ottla.Client(broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(broker):
    return broker.create_topic()


@pytest.mark.parametrize(
    "arguments",
    [
        {"value": HALF},
        {"value": "v", "key": HALF},
        {"value": "v", "headers": {HALF: b""}},
        {"value": "v", "headers": {"name": HALF}},
    ],
)
def test_a_text_that_is_no_utf8_takes_no_other_record_with_it(broker, client, topic, arguments):
    with client.producer(linger_ms=200) as producer:
        producer.send(topic, "before")
        with pytest.raises(ottla.BadArgument, match="not UTF-8"):
            producer.send(topic, **arguments)
        producer.send(topic, "behind")
        producer.flush(timeout=30)
    assert [each.value for each in broker.records(topic)] == [b"before", b"behind"]


@pytest.mark.parametrize("name", [5, HALF, None, b"t"])
def test_a_name_that_is_none_does_not_keep_others_from_being_found(client, topic, name):
    with pytest.raises(ottla.BadArgument):
        client.produce(name, "v", timeout=10)
    with pytest.raises(ottla.ClientError):
        client.admin.describe_topic(name, timeout=10)
    assert client.produce(topic, "v", timeout=10).offset == 0


@pytest.mark.parametrize("time", [True, 1 << 40])
def test_a_time_is_sent_as_a_whole_number(client, topic, time):
    class Whole:
        """As numpy's."""

        def __index__(self):
            return int(time)

        def __ge__(self, other):
            return int(time) >= other

        def __lt__(self, other):
            return int(time) < other

    for given in (time, Whole()):
        found = client.produce(topic, "v", timestamp_ms=given, timeout=10)
        assert (type(found.timestamp_ms), found.timestamp_ms) == (int, int(time))


@pytest.mark.parametrize("offset", NO_OFFSETS)
def test_what_is_no_offset_is_refused_before_it_is_sent(client, topic, offset):
    client.produce(topic, "v", timeout=10)
    where = TopicPartition(topic, 0)
    with client.consumer(group="g", auto_commit=False) as consumer:
        if offset is not None:  # Where the group stands.
            with pytest.raises(ottla.BadArgument):
                consumer.assign({where: offset}, timeout=10)
        consumer.assign({where: "earliest"})
        with pytest.raises(ottla.BadArgument):
            consumer.seek(where, offset, timeout=10)
        with pytest.raises(ottla.BadArgument):
            consumer.commit({where: offset}, timeout=10)
        assert len(consumer.poll(timeout=30)) == 1
    with pytest.raises(ottla.BadArgument):
        client.admin.set_committed("other", {where: offset}, timeout=10)


@pytest.mark.parametrize("time", [-1, -2, 1.5, 1 << 63, "now"])
def test_no_time_is_taken_for_the_name_of_a_place(client, topic, time):
    with client.consumer() as consumer:
        consumer.assign({TopicPartition(topic, 0): "earliest"})
        with pytest.raises(ottla.BadArgument):
            consumer.seek_to_time(time, timeout=10)


@pytest.mark.parametrize("each", ["t", ("t",), ("t", "0"), ("t", -1), ("t", 1 << 31), ("t", 0, 1)])
def test_what_is_no_partition_is_refused(client, each):
    with client.consumer() as consumer, pytest.raises(ottla.BadArgument, match="no partition"):
        consumer.assign([each], timeout=10)


@pytest.mark.parametrize("timeout", ["5", float("nan"), [1]])
def test_a_timeout_that_is_no_time_is_refused(client, topic, timeout):
    with client.consumer() as consumer:
        consumer.assign({TopicPartition(topic, 0): "earliest"})
        with pytest.raises(ottla.BadArgument, match="seconds"):
            consumer.poll(timeout=timeout)
    with pytest.raises(ottla.BadArgument, match="seconds"):
        client.produce(topic, "v", timeout=timeout)
    with pytest.raises(ottla.BadArgument, match="seconds"):
        client.admin.list_topics(timeout=timeout)


def test_the_administrator_refuses_kinds_and_places_that_there_are_not(client, topic):
    with pytest.raises(ottla.BadArgument, match="topik"):
        client.admin.configs("topik", topic)
    with pytest.raises(ottla.BadArgument, match="middle"):
        client.admin.offsets(topic, "middle")


def test_an_error_goes_to_another_process_whole(client, topic):
    client.produce(topic, "{", timeout=10)
    with client.consumer(value_deserializer="json") as consumer:
        consumer.assign({TopicPartition(topic, 0): "earliest"})
        with pytest.raises(ottla.Undecodable) as caught:
            next(consumer)
    found = pickle.loads(pickle.dumps(caught.value))
    assert (type(found), str(found), found.data) == (ottla.Undecodable, str(caught.value), b"{")
