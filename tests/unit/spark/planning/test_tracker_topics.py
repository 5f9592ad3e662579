"""How a stream treats topics of a pattern or a mirror that come, go, or are left out of answers."""

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.spark.loss import LogRewound, PartitionGone, TopicRecreated
from ottla.spark.offsets import OffsetRange
from ottla.spark.positions import Positions
from tests.unit.spark.planning.fake_cluster import ID, OTHER_ID, P0, FakeCluster, at, make

PATTERN = {"subscribe": None, "subscribePattern": "pat-.*"}
A0, B0 = TopicPartition("pat-a", 0), TopicPartition("pat-b", 0)


def pattern_cluster():
    return FakeCluster(**{"pat-a": [(0, 10, 0)], "pat-b": [(0, 7, 0)]})


def of_both(a, b):
    return Positions({A0: a, B0: b}, {"pat-a": ID, "pat-b": ID}, {A0: 0, B0: 0})


@pytest.mark.parametrize("by_name", [0, 1, 2])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_one_answer_leaves_out_is_asked_for_by_name(fail, by_name):
    """Also twice: a broker may lag behind. Nothing is lost, and nothing read again."""
    cluster = pattern_cluster()
    cluster.left_out = [{"pat-b"}] * (1 + by_name)
    tracker = make(cluster, **PATTERN, failOnDataLoss=fail)
    start = of_both(8, 5)
    end = tracker.latest(start)
    assert end == of_both(10, 7)
    assert [each.start for each in tracker.plan(start, end)] == [8, 5]


def test_a_topic_that_is_left_out_of_the_end_of_all_is_not_forgotten():
    """AvailableNow notes the ends before it knows the checkpoint."""
    cluster = pattern_cluster()
    tracker = make(cluster, **PATTERN)
    cluster.left_out = [{"pat-b"}]
    tracker.hold_end()
    assert tracker.latest(of_both(8, 5)) == of_both(10, 5)


def test_a_replayed_batch_asks_by_name_too():
    cluster = pattern_cluster()
    cluster.left_out = [{"pat-b"}]
    ranges = make(cluster, **PATTERN).plan(of_both(8, 5), of_both(10, 7))
    assert [(each.start, each.end) for each in ranges] == [(8, 10), (5, 7)]


def test_a_topic_that_is_gone_by_name_is_gone():
    cluster = pattern_cluster()
    del cluster.logs[B0], cluster.ids["pat-b"]
    with pytest.raises(PartitionGone):
        make(cluster, **PATTERN).latest(of_both(8, 5))
    assert cluster.calls.count("look_up") == 3
    end = make(cluster, **PATTERN, failOnDataLoss="false").latest(of_both(8, 5))
    assert end.offsets == {A0: 10}


def test_a_topic_that_must_not_be_read_any_more_is_not_called_gone():
    cluster = pattern_cluster()
    cluster.left_out = [{"pat-b"}]
    cluster.refused = {"pat-b": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(KafkaError) as caught:
        make(cluster, **PATTERN, failOnDataLoss="false").latest(of_both(8, 5))
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_topic_that_another_pattern_meant_is_not_asked_for():
    cluster = pattern_cluster()
    tracker = make(cluster, subscribe=None, subscribePattern="pat-a", failOnDataLoss="false")
    assert tracker.latest(of_both(8, 5)).offsets == {A0: 10}
    assert "look_up" not in cluster.calls


def of_two(**options):
    return {"subscribe": "t,u", **options}


U0 = TopicPartition("u", 0)


@pytest.mark.parametrize(
    "options",
    [
        of_two(),
        PATTERN | {"subscribePattern": "[tu]"},
        {"subscribe": None, "assign": '{"t": [0], "u": [0]}'},
    ],
)
def test_a_topic_deleted_while_it_is_planned_stands_in_nobodys_way(options):
    """Between Metadata and ListOffsets: every other topic goes on."""
    cluster = FakeCluster(t=[(0, 10, 0)], u=[(0, 5, 0)])
    cluster.deleted_before_list = {U0}
    start = Positions({P0: 3, U0: 5}, {"t": ID, "u": ID}, {P0: 0, U0: 0})
    with pytest.raises(PartitionGone, match="u-0"):
        make(cluster, **options).latest(start)
    cluster.logs[U0] = (0, 5, 0)
    end = make(cluster, **options, failOnDataLoss="false").latest(start)
    assert end.offsets == {P0: 10}


@pytest.mark.parametrize(
    "options", [of_two(), {"subscribe": None, "assign": '{"t": [0], "u": [0]}'}]
)
def test_a_topic_that_was_named_and_is_gone_is_waited_for_once(options):
    cluster = FakeCluster(t=[(0, 10, 0)], u=[(0, 5, 0)])
    tracker = make(cluster, **options, failOnDataLoss="false")
    start = Positions({P0: 3, U0: 5}, {"t": ID, "u": ID}, {P0: 0, U0: 0})
    del cluster.logs[U0], cluster.ids["u"]
    end = tracker.latest(start)
    assert end.offsets == {P0: 10}
    assert cluster.calls.count("look_up") == 3
    cluster.calls.clear()
    assert tracker.latest(end) is end
    assert cluster.calls.count("look_up") == 1, "a stream that waits at each trigger stands still"
    cluster.logs[U0], cluster.ids["u"] = (0, 2, 0), OTHER_ID
    assert tracker.latest(end).offsets == {P0: 10, U0: 2}, "it came back"
    del cluster.logs[U0], cluster.ids["u"]
    with pytest.raises(PartitionGone):
        make(cluster, **options).latest(start)


def test_a_topic_that_was_never_there_is_no_loss():
    cluster = FakeCluster(t=[(0, 10, 0)])
    for fail in ("true", "false"):
        with pytest.raises(KafkaError, match="no topic u"):
            make(cluster, **of_two(failOnDataLoss=fail)).initial()
    with pytest.raises(KafkaError, match="no topic u"):
        make(cluster, **of_two()).latest(at(3))


def test_a_mirrored_cluster_is_gone_on_with_where_that_is_asked_for(caplog):
    cluster = FakeCluster(t=[(0, 20, 2)])
    cluster.ids["t"] = OTHER_ID
    cluster.epoch_starts = {P0: 1}  # leader epoch 0 is another one's here
    with pytest.raises(TopicRecreated, match="acceptTopicIds=true"):
        make(cluster).latest(at(12))
    tracker = make(cluster, acceptTopicIds="true")
    ranges = tracker.plan(at(3), at(12))  # the batch that was under way
    assert ranges == [OffsetRange("t", 0, 3, 12, OTHER_ID)]
    start = at(12)
    end = tracker.latest(start)
    assert end == at(20, topic_id=OTHER_ID, epoch=2)
    assert tracker.plan(start, end) == [OffsetRange("t", 0, 12, 20, OTHER_ID)]
    assert "is taken for" in caplog.text
    tracker.latest(end)
    cluster.ids["t"] = TopicId(b"x" * 16)
    with pytest.raises(TopicRecreated):
        tracker.latest(end)


def test_new_ids_are_noted_when_there_is_nothing_to_read():
    cluster = FakeCluster(t=[(0, 12, 0)])
    cluster.ids["t"] = OTHER_ID
    tracker = make(cluster, acceptTopicIds="true")
    start = at(12)
    end = tracker.latest(start)
    assert end == at(12, topic_id=OTHER_ID)
    assert tracker.plan(start, end) == []
    assert tracker.latest(end) is end


def test_a_mirror_that_lacks_records_is_told_all_the_same():
    cluster = FakeCluster(t=[(0, 10, 0)])
    cluster.ids["t"] = OTHER_ID
    with pytest.raises(LogRewound):
        make(cluster, acceptTopicIds="true").latest(at(12))
