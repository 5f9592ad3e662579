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
            "version": 2,
        },
        "t": {"0": 23, "1": 40, "10": 7},
    }


def test_what_is_written_is_read():
    assert read_positions(json.loads(ALL.text())) == ALL


@pytest.mark.parametrize(
    ("epochs", "form"),
    [
        ([5, 5, 5], 5),
        ([5, 6, 5], {"*": 5, "1": 6}),
        ([7, 6, 5], {"*": 5, "0": 7, "1": 6}),
        ([5, 5], {"0": 5, "1": 5}),
    ],
)
def test_epochs_that_are_the_same_are_told_once(epochs, form):
    """They made a checkpoint of a thousand partitions twice as long as the connector's."""
    offsets = dict.fromkeys((P0, P1, P10), 3)
    known = dict(zip(offsets, epochs, strict=False))
    positions = Positions(offsets, {"t": ID}, known)
    assert positions.to_json()["$ottla"]["epochs"] == {"t": form}
    assert read_positions(json.loads(positions.text())) == positions


def test_a_checkpoint_of_version_1_is_read():
    marks = {
        "epochs": {"t": {"0": 5, "1": 6}},
        "ids": {"t": "AAECAwQFBgcICQoLDA0ODw"},
        "version": 1,
    }
    found = read_positions({"$ottla": marks, "t": {"0": 23, "1": 40}})
    assert found == Positions({P0: 23, P1: 40}, {"t": ID}, {P0: 5, P1: 6})


def test_a_thousand_partitions_are_as_long_as_the_connectors():
    offsets = {TopicPartition("t", number): 1_000_000 for number in range(1_000)}
    ours = Positions(offsets, {"t": ID}, dict.fromkeys(offsets, 12)).text()
    assert len(ours) < len(Positions(offsets).text()) + 120


def test_where_a_first_micro_batch_began_is_kept():
    first = Positions({P0: 23}, {"t": ID}, {P0: 5}, {P0: 20})
    assert first.to_json()["$ottla"]["begin"] == {"t": {"0": 20}}
    assert read_positions(json.loads(first.text())) == first


def test_how_a_micro_batch_is_divided_is_kept():
    end = Positions({P0: 23}, {"t": ID}, {P0: 5}, shared=64)
    assert end.to_json()["$ottla"]["shared"] == 64
    assert read_positions(json.loads(end.text())) == end


@pytest.mark.parametrize("shared", [-1, "64", True, None, 0.5])
def test_a_division_that_is_none_is_refused(shared):
    with pytest.raises(ValueError, match="share a task"):
        read_positions({"$ottla": {"shared": shared}, "t": {"0": 23}})


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
        '{"$ottla": {"version": 3}}',
        '{"t": {"0": 1}, "$ottla": {"epochs": {"t": "5"}}}',
        '{"t": {"0": 1}, "$ottla": {"epochs": {"t": -1}}}',
        '{"t": {"0": 1}, "$ottla": {"epochs": {"t": {"*": true}}}}',
        '{"$ottla": {"epochs": 5}}',
        '{"$ottla": {"ids": {"t": "short"}}}',
        '{"$ottla": {"ids": {"t": 7}}}',
        '{"$ottla": {"epochs": {"t": {"0": "5"}}}}',
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"no partition and|no object|version|topic id"):
        read_positions(json.loads(text))
