"""What a pipeline names is held against the cluster before Spark tries it for half a minute."""

import pytest

from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import Address
from ottla.client.wire.view import ClusterView, PartitionView, TopicView
from ottla.errors import ErrorCode
from ottla.ids import NULL_TOPIC_ID
from ottla.spark.pipelines.asking import Asked, Found, ask


class Cluster:
    """Topic there has one partition; the address away:1 is nobody's."""

    def __init__(self, settings):
        self.settings = settings

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def refresh(self, names):
        view = self.look_up(names)
        for name in names or ():
            view.topic(name)
        return view

    def look_up(self, names):
        (address,) = self.settings.bootstrap
        if address.host == "away":
            assert not self.settings.awaits_cluster, "an address that may be wrong is told at once"
            raise ConnectionFailed(*address, "connection refused", refused=True)
        part = PartitionView(0, 1, 0, (1,), (1,), ErrorCode.NONE)
        refused = TopicView(
            "refused", NULL_TOPIC_ID, False, ErrorCode.TOPIC_AUTHORIZATION_FAILED, {}
        )
        there = TopicView("there", NULL_TOPIC_ID, False, ErrorCode.NONE, {0: part})
        topics = {"there": there} if names is None else {"there": there, "refused": refused}
        return ClusterView("c", 1, {1: Address("h", 1)}, {}, topics)

    def retrying(self, attempt):
        return attempt()


def asked(**options):
    is_sink = "topic" in options
    given = {"kafka.bootstrap.servers": "h:1", **options}
    return Asked("orders", "t/orders.py:3", given, is_sink)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"subscribe": "gone"}, "no topic gone"),
        ({"assign": '{"there": [0, 7]}'}, "there-7: the topic has 1 partitions"),
        ({"subscribe": "there", "startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "there", "kafka.bootstrap.servers": "away:1"}, "away:1: connection refused"),
        ({"topic": "there", "delivry": "exactly-once"}, "did you mean delivery"),
        ({"topic": "there", "kafka.bootstrap.servers": "away:1"}, "away:1: connection refused"),
        ({"topic": "refused"}, "topic refused: "),
    ],
)
def test_what_is_wrong_is_told_with_its_place(options, error):
    found = ask([asked(**options), asked(subscribe="there")], Cluster)
    assert len(found.errors) == 1
    assert found.errors[0].startswith("t/orders.py:3: orders: ")
    assert error in found.errors[0]
    assert found.is_unreachable == ("connection refused" in error)


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"topic": "gone"}, "topic gone is not there: the first write makes it"),
        ({"subscribePattern": "x.*"}, "no topic matches x.* yet"),
    ],
)
def test_what_may_come_yet_is_a_note(options, note):
    found = ask([asked(**options)], Cluster)
    assert not found.errors
    assert note in found.notes[0]


def test_what_is_right_is_not_talked_about():
    everything = [asked(subscribe="there"), asked(topic="there"), asked(topic="there")]
    assert ask(everything, Cluster) == Found((), ())
    assert ask([], Cluster) == Found((), ())
