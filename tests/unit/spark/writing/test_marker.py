"""What follows from the marker of a batch: write, skip, or say that neither is exactly once."""

import json

import pytest

from ottla.client.wire.coordination import Committed
from ottla.spark.writing.identity import Content, Step
from ottla.spark.writing.marker import (
    KEPT_MS,
    Begun,
    DeliveryError,
    Marker,
    Rules,
    decide,
    marker_place,
    read_begun,
    read_marker,
    write_begun,
    write_marker,
)

STREAM = Rules()
FOREACH = Rules(are_gaps_legal=True)
ROWS = Content(3, 0xABC)
OTHERS = Content(4, 0xDEF)


def batch(number, query="q", **more):
    return Marker(query, number, "t", **{"run_id": "run", "content": ROWS, **more})


def again(number, **more):
    """A batch that comes when the query was started anew."""
    return batch(number, **{"run_id": "next run", **more})


@pytest.mark.parametrize("topic", ["t", None, "é"])
@pytest.mark.parametrize("content", [ROWS, None, Content(0, (1 << 64) - 1)])
def test_a_marker_is_read_as_it_was_written(topic, content):
    for marker in (
        Marker("query", 7, topic, "run", content, "plan"),
        Marker("query", 7, topic, None, content, None),
    ):
        offset, metadata = write_marker(marker, 1234)
        assert offset == 1234  # the log's end: no lag
        assert len(metadata) < 4096  # offset.metadata.max.bytes
        assert read_marker(Committed(offset, -1, metadata)) == marker


def test_no_offset_is_no_marker():
    assert read_marker(None) is None


def test_a_checkpoint_of_the_last_version_goes_on():
    """Its markers have the batch's number as offset and say nothing of the rows."""
    metadata = '{"ottla": 1, "query": "q", "topic": "t"}'
    found = read_marker(Committed(7, -1, metadata))
    assert found == Marker("q", 7, "t")
    assert decide(found, batch(7), STREAM) is Step.SKIP
    assert decide(found, batch(8), STREAM) is Step.WRITE
    with pytest.raises(DeliveryError, match="checkpoint is older"):
        decide(found, batch(6), STREAM)


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
@pytest.mark.parametrize("number", [0, 5])
def test_a_batch_that_was_committed_for_another_topic_is_doubted(rules, number):
    """Killed after the commit, and started again with another topic, or with one by its rows."""
    for other in (again(number, run_id="a run"), again(number + 1, run_id=None)):
        with pytest.raises(DeliveryError, match="for topic t, and this one goes to the topics of"):
            decide(None, batch(number)._replace(topic=None), rules, elsewhere=[other])
    said = rules._replace(missing=Step.SKIP)
    assert decide(None, batch(number), said, elsewhere=[other]) is Step.SKIP


def test_sinks_that_share_an_id_in_one_run_stand_in_nobodys_way():
    others = [batch(5), batch(4, run_id="a run"), batch(7, query="p", run_id="a run")]
    assert decide(None, batch(5)._replace(topic="u"), FOREACH, elsewhere=others) is Step.WRITE


@pytest.mark.parametrize(
    "metadata",
    [
        *("", "{", "[1]", "7", "{}", '{"ottla": 3}', '{"ottla": 1}', '{"ottla": 2}'),
        json.dumps({"ottla": 2, "query": "q", "batch": 1, "topic": "t", "rows": 1, "sum": "x"}),
    ],
)
def test_the_offset_of_somebody_else_is_refused(metadata):
    with pytest.raises(DeliveryError, match="choose another id"):
        read_marker(Committed(7, -1, metadata))


def test_it_lies_where_the_rows_go_or_with_the_offsets():
    assert marker_place("t") == ("t", 0)
    assert marker_place(None) == ("__consumer_offsets", 0)


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
@pytest.mark.parametrize(
    ("found", "wanted", "step"),
    [
        (None, 0, Step.WRITE),
        (0, 0, Step.SKIP),
        (0, 1, Step.WRITE),
        (6, 7, Step.WRITE),
        (7, 7, Step.SKIP),
    ],
)
def test_a_batch_is_written_unless_it_is_there(found, wanted, step, rules):
    marker = None if found is None else batch(found)
    assert decide(marker, again(wanted), rules) is step


def test_a_gap_is_an_error_for_a_stream_and_legal_in_foreach_batch():
    """A stream wrote the ones in between in another way, and perhaps this one, too."""
    with pytest.raises(DeliveryError, match="last one that was committed is batch 3"):
        decide(batch(3), again(7), STREAM)
    assert decide(batch(3), again(7), Rules(missing=Step.WRITE)) is Step.WRITE
    assert decide(batch(3), again(7), FOREACH) is Step.WRITE
    assert decide(None, batch(7), FOREACH) is Step.WRITE


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
def test_a_number_that_stands_for_other_rows_is_neither_skipped_nor_written(rules):
    """The checkpoint lost the batch, and it was planned anew with what came since."""
    with pytest.raises(DeliveryError, match=r"with 3 rows .* now it has 4 .*onChangedBatch=skip"):
        decide(batch(7), again(7, content=OTHERS), rules)
    for step in Step:
        assert decide(batch(7), again(7, content=OTHERS), rules._replace(changed=step)) is step
    with pytest.raises(DeliveryError):  # as many rows, others
        decide(batch(7), again(7, content=Content(3, 0xABD)), rules)


def test_the_same_plan_with_other_rows_is_the_same_batch():
    """A query with uuid() gives other rows each time; those that are there are the batch."""
    wanted = again(7, content=OTHERS, plan="p")
    assert decide(batch(7, plan="p"), wanted, STREAM) is Step.SKIP
    for plan in ("another", None):
        with pytest.raises(DeliveryError, match="onChangedBatch"):
            decide(batch(7, plan=plan), wanted, STREAM)


@pytest.mark.parametrize("content", [ROWS, OTHERS])
@pytest.mark.parametrize("changed", [None, Step.SKIP])
def test_a_second_write_in_one_run_is_no_replay(content, changed):
    """Two writes of one foreachBatch share an id: leaving the second out would lose it."""
    rules = FOREACH._replace(changed=changed)
    with pytest.raises(
        DeliveryError, match=r"a second time in the same run.*its own transactional"
    ):
        decide(batch(7), batch(7, content=content), rules)


def test_without_a_run_the_rows_decide():
    """Over Connect and in threads nobody knows the run."""
    assert decide(batch(7, run_id=None), batch(7, run_id=None), FOREACH) is Step.SKIP
    with pytest.raises(DeliveryError, match="two writes share"):
        decide(batch(7, run_id=None), batch(7, run_id=None, content=OTHERS), FOREACH)


def test_a_new_query_takes_the_id_over():
    assert decide(batch(57, "old"), batch(0, "new"), STREAM) is Step.WRITE


@pytest.mark.parametrize("found", [None, batch(7, "other"), batch(90, "other")])
def test_a_later_batch_without_a_marker_is_not_guessed_about(found):
    with pytest.raises(DeliveryError, match="onMissingMarker=write"):
        decide(found, batch(7), STREAM)
    assert decide(found, batch(7), Rules(missing=Step.WRITE)) is Step.WRITE


def test_in_foreach_batch_the_marker_of_another_query_hides_ones_own():
    """Two queries with one id: what the other has written over may have been this batch."""
    with pytest.raises(DeliveryError, match="there is batch 2 of query other"):
        decide(batch(2, "other"), batch(7), FOREACH)


def begun(number, query="q", at_ms=0):
    return Begun(query, number, at_ms)


def test_what_was_begun_is_read_as_it_was_written():
    for each in (Begun("query", 7, 1_700_000_000_000), Begun("é", 0, 0)):
        offset, metadata = write_begun(each, 1234)
        assert offset == 1234  # the log's end: no lag
        assert read_begun(Committed(offset, -1, metadata)) == each
        with pytest.raises(DeliveryError, match="choose another id"):
            read_marker(Committed(offset, -1, metadata))
    assert read_begun(None) is None


@pytest.mark.parametrize(
    "metadata", ["", "[1]", "7", "{}", '{"ottla-begun": 2}', write_marker(batch(1), 0).metadata]
)
def test_what_somebody_else_keeps_is_no_beginning(metadata):
    with pytest.raises(DeliveryError, match="choose another id"):
        read_begun(Committed(7, -1, metadata))


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
@pytest.mark.parametrize("number", [0, 7])
def test_a_batch_begun_before_markers_expired_is_not_written_again(rules, number):
    """Killed after its commit, and idle for longer than brokers keep offsets."""
    for now_ms in (KEPT_MS, -KEPT_MS):  # a clock that was set back proves nothing
        with pytest.raises(DeliveryError, match=r"begun 20h ago.*has expired.*=write.*=skip"):
            decide(None, batch(number), rules, begun=begun(number), now_ms=now_ms)
        for step in Step:
            told = rules._replace(missing=step)
            assert decide(None, batch(number), told, begun=begun(number), now_ms=now_ms) is step


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
def test_a_batch_begun_a_moment_ago_without_a_marker_was_not_committed(rules):
    for now_ms in (0, KEPT_MS - 1):
        assert decide(None, batch(7), rules, begun=begun(7), now_ms=now_ms) is Step.WRITE


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
def test_the_next_batch_after_a_long_rest_is_written(rules):
    """The marker of the one before has expired; that this one was never begun is known."""
    assert decide(None, batch(8), rules, begun=begun(7), now_ms=9 * KEPT_MS) is Step.WRITE


def test_gaps_and_old_checkpoints_are_seen_without_a_marker_too():
    with pytest.raises(DeliveryError, match="last one that was begun is batch 3"):
        decide(None, batch(7), STREAM, begun=begun(3))
    assert decide(None, batch(7), FOREACH, begun=begun(3)) is Step.WRITE
    for rules in (STREAM, FOREACH, Rules(missing=Step.WRITE)):
        with pytest.raises(DeliveryError, match="after batch 8 was begun: the checkpoint is older"):
            decide(None, batch(7), rules, begun=begun(8))


def test_what_another_query_began_hides_ones_own():
    assert decide(None, batch(0), STREAM, begun=begun(7, "other")) is Step.WRITE
    for rules in (STREAM, FOREACH):
        with pytest.raises(DeliveryError, match="there is batch 2 of query other"):
            decide(None, batch(7), rules, begun=begun(2, "other"))


@pytest.mark.parametrize("rules", [STREAM, FOREACH])
def test_a_marker_counts_more_than_what_was_begun(rules):
    """The transaction of batch 7 was aborted: its beginning is there, and the marker before."""
    assert decide(batch(6), batch(7), rules, begun=begun(7), now_ms=9 * KEPT_MS) is Step.WRITE


@pytest.mark.parametrize("rules", [STREAM, FOREACH, Rules(missing=Step.WRITE)])
def test_a_checkpoint_older_than_the_topic_is_refused(rules):
    with pytest.raises(DeliveryError, match="checkpoint is older"):
        decide(batch(8), again(7), rules)


@pytest.mark.parametrize("batch_id", [7, 8])
def test_two_sinks_of_a_query_may_not_share_an_id(batch_id):
    """The second would find the first one's marker and leave its rows out."""
    with pytest.raises(DeliveryError, match="each sink needs its own"):
        decide(batch(7), Marker("q", batch_id, "u"), FOREACH)
