"""What follows from the marker of a batch: write, skip, or say that neither is exactly once."""

import pytest

from ottla.client.coordination import Committed
from ottla.spark.writing.marker import (
    DeliveryError,
    Marker,
    Step,
    decide,
    marker_place,
    read_marker,
    write_marker,
)


@pytest.mark.parametrize("topic", ["t", None, "é"])
def test_a_marker_is_read_as_it_was_written(topic):
    marker = Marker("query", 7, topic)
    offset, metadata = write_marker(marker)
    assert read_marker(Committed(offset, -1, metadata)) == marker


def test_no_offset_is_no_marker():
    assert read_marker(None) is None


@pytest.mark.parametrize("metadata", ["", "{", "[1]", "7", "{}", '{"ottla": 2}', '{"ottla": 1}'])
def test_the_offset_of_somebody_else_is_refused(metadata):
    with pytest.raises(DeliveryError, match="choose another id"):
        read_marker(Committed(7, -1, metadata))


def test_it_lies_where_the_rows_go_or_with_the_offsets():
    assert marker_place("t") == ("t", 0)
    assert marker_place(None) == ("__consumer_offsets", 0)


@pytest.mark.parametrize(
    ("found", "wanted", "step"),
    [
        (None, 0, Step.WRITE),
        (0, 0, Step.SKIP),
        (0, 1, Step.WRITE),
        (6, 7, Step.WRITE),
        (7, 7, Step.SKIP),
        (3, 7, Step.WRITE),  # in between it was delivered in another way
    ],
)
def test_a_batch_is_written_unless_it_is_there(found, wanted, step):
    marker = None if found is None else Marker("q", found, "t")
    assert decide(marker, Marker("q", wanted, "t"), missing_is_new=False) is step


def test_a_new_query_takes_the_id_over():
    found = Marker("old", 57, "t")
    assert decide(found, Marker("new", 0, "t"), missing_is_new=False) is Step.WRITE


@pytest.mark.parametrize("found", [None, Marker("other", 7, "t"), Marker("other", 90, "t")])
def test_a_later_batch_without_a_marker_is_not_guessed_about(found):
    wanted = Marker("q", 7, "t")
    with pytest.raises(DeliveryError, match="onMissingMarker=write"):
        decide(found, wanted, missing_is_new=False)
    assert decide(found, wanted, missing_is_new=True) is Step.WRITE


@pytest.mark.parametrize("missing_is_new", [False, True])
def test_a_checkpoint_older_than_the_topic_is_refused(missing_is_new):
    with pytest.raises(DeliveryError, match="checkpoint is older"):
        decide(Marker("q", 8, "t"), Marker("q", 7, "t"), missing_is_new=missing_is_new)


@pytest.mark.parametrize("batch_id", [7, 8])
def test_two_sinks_of_a_query_may_not_share_an_id(batch_id):
    """The second would find the first one's marker and leave its rows out."""
    with pytest.raises(DeliveryError, match="each sink needs its own"):
        decide(Marker("q", 7, "t"), Marker("q", batch_id, "u"), missing_is_new=False)
