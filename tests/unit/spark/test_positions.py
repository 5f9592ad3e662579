"""Offsets as a checkpoint keeps them: the connector's JSON, and what we add to it."""

import json

import pytest

from ottla.ids import TopicId, TopicPartition
from ottla.spark.positions import Positions, read_positions

ID = TopicId(bytes(range(16)))
P0, P1, P10 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 10)
ALL = Positions({P10: 7, P0: 23, P1: 40}, {"t": ID}, {P0: 5})


def test_the_text_is_the_same_whatever_the_order_they_came_in():
    other = Positions({P0: 23, P1: 40, P10: 7}, {"t": ID}, {P0: 5})
    assert ALL.text() == other.text()
    assert ALL.text() == json.dumps(ALL.to_json(), separators=(",", ":"), sort_keys=True)


def test_the_form_is_the_connectors_with_one_key_more():
    assert ALL.to_json() == {
        "$ottla": {
            "epochs": {"t": {"0": 5}},
            "ids": {"t": "AAECAwQFBgcICQoLDA0ODw"},
            "version": 1,
        },
        "t": {"0": 23, "1": 40, "10": 7},
    }


def test_what_is_written_is_read():
    assert read_positions(json.loads(ALL.text())) == ALL


def test_where_a_first_micro_batch_began_is_kept():
    first = Positions({P0: 23}, {"t": ID}, {P0: 5}, {P0: 20})
    assert first.to_json()["$ottla"]["begin"] == {"t": {"0": 20}}
    assert read_positions(json.loads(first.text())) == first


def test_the_connectors_form_is_read():
    assert read_positions({"t": {"0": 23}}) == Positions({P0: 23})


def test_without_marks_the_form_is_the_connectors():
    assert Positions({P0: 23}).text() == '{"t":{"0":23}}'


@pytest.mark.parametrize(
    "text",
    [
        '{"t": 5}',
        '{"t": {"x": 1}}',
        '{"t": {"0": "1"}}',
        '{"t": {"0": -1}}',
        '{"t": {"0": true}}',
        '{"t": {"-1": 4}}',
        '{"t": {"00": 4}}',
        '{"t": {"0": 1.5}}',
        '{"$ottla": 1}',
        '{"$ottla": {"version": 2}}',
        '{"$ottla": {"ids": {"t": "short"}}}',
        '{"$ottla": {"ids": {"t": 7}}}',
        '{"$ottla": {"epochs": {"t": {"0": "5"}}}}',
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"no partition and|no object|version|topic id"):
        read_positions(json.loads(text))
