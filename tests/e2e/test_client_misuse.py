"""Arguments of the client that mean nothing are refused where they stand, and spoil no batch."""

import pytest

import ottla
from ottla.testing import Broker


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with ottla.Client(broker.bootstrap) as client:
        yield client


class SpoilingHooks:
    """Returns headers that cannot be sent, for some."""

    def on_send(self, topic, headers):
        return (("trace", 7),) if headers else headers

    def on_receive(self, record):
        pass


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"timestamp_ms": 1795401566181.5}, "no whole number of ms"),
        ({"timestamp_ms": "now"}, "no whole number of ms"),
        ({"timestamp_ms": -1}, "no whole number of ms"),
        ({"partition": "0"}, "no '0'"),
        ({"partition": 0.0}, "no 0.0"),
        ({"partition": 1}, "no 1"),
        ({"headers": {"spoilt": b"1"}}, "found str, int"),
        ({"value": 5}, "found int"),
    ],
)
def test_a_record_that_cannot_be_sent_takes_no_other_with_it(broker, arguments, why):
    topic = broker.create_topic()
    with (
        ottla.Client(broker.bootstrap, hooks=SpoilingHooks()) as client,
        client.producer(linger_ms=200) as producer,
    ):
        producer.send(topic, "before")
        with pytest.raises(ottla.BadArgument, match=why):
            producer.send(topic, **{"value": "v", **arguments})
        producer.send(topic, "behind")
        producer.flush(timeout=60)
    assert [each.value for each in broker.records(topic)] == [b"before", b"behind"]


def test_a_list_of_names_is_refused_with_what_to_write(client):
    with pytest.raises(ottla.BadArgument, match=r"\*names"):
        client.admin.delete_topics(["t"])
    with pytest.raises(ottla.BadArgument, match=r"\*names"):
        client.consumer(["t"], group="g")
    consumer = client.consumer(group="g")
    with pytest.raises(ottla.BadArgument, match=r"\*names"):
        consumer.subscribe(["t"])
