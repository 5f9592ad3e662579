"""How far a query is behind, from its progress as Spark gives it."""

import json

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from ottla.ids import TopicId, TopicPartition
from ottla.spark import lag, register
from ottla.spark.listener import ProgressListener
from ottla.spark.planning.source import OttlaDataSource
from ottla.spark.positions import Positions

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": TopicId(b"i" * 16)}


class Progress(dict):
    name = None
    id = "an id"


def progress(end, latest):
    return Progress(sources=[{"endOffset": end, "latestOffset": latest}])


NEWEST = Positions({P0: 10, P1: 7}, IDS).text()


@pytest.mark.parametrize(
    ("end", "latest", "expected"),
    [
        (Positions({P0: 4, P1: 7}, IDS).text(), NEWEST, {P0: 6, P1: 0}),
        (Positions({P0: 4}, IDS).to_json(), json.loads(NEWEST), {P0: 6, P1: 7}),
        (Positions({P0: 11, P1: 7}, IDS).text(), NEWEST, {P0: 0, P1: 0}),
        ("5", "9", {}),
        (None, None, {}),
        ("no JSON", '{"t": {"0": 3}}', {}),
    ],
)
def test_lag_is_what_is_left_in_the_logs(end, latest, expected):
    assert lag(progress(end, latest)) == expected


def test_of_two_sources_on_one_topic_the_slower_counts():
    """The last one was told."""
    slow, fast = Positions({P0: 2, P1: 7}, IDS).text(), Positions({P0: 9, P1: 7}, IDS).text()
    for one, other in ((slow, fast), (fast, slow)):
        both = progress(one, NEWEST)["sources"] + progress(other, NEWEST)["sources"]
        assert lag(Progress(sources=both)) == {P0: 8, P1: 0}


def test_a_query_is_asked_for_its_last_progress():
    class Query:
        lastProgress = progress(Positions({P0: 4, P1: 7}, IDS).text(), NEWEST)  # noqa: N815

    assert sum(lag(Query()).values()) == 6
    Query.lastProgress = None
    assert lag(Query()) == {}


def test_the_listener_reports_each_micro_batch(caplog):
    class Event:
        progress = progress(Positions({P0: 4, P1: 7}, IDS).text(), NEWEST)

    seen = []
    ProgressListener(lambda *each: seen.append(each)).onQueryProgress(Event)
    assert seen == [("an id", {P0: 6, P1: 0})]
    with caplog.at_level("INFO", logger="ottla.spark"):
        ProgressListener().onQueryProgress(Event)
    assert "query an id is 6 offsets behind (t-0 6, t-1 0)" in caplog.text


def test_a_session_can_be_told_by_hand():
    class Session:
        class dataSource:  # noqa: N801
            @staticmethod
            def register(source):
                told.append(source)

    told = []
    register(Session)
    assert told == [OttlaDataSource]
