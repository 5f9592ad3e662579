"""How a stream follows its topics: begins, goes on, finds what is new, and tells what was lost."""

import itertools

import pytest

from ottla.client.wire.errors import ConnectionFailed
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.spark.loss import DataAgedOut, LogRewound, PartitionGone, TopicRecreated
from ottla.spark.offsets import OffsetRange
from ottla.spark.option_table import Use
from ottla.spark.options import parse_options
from ottla.spark.planning import tracker as tracker_module
from ottla.spark.planning.admission import Limits
from ottla.spark.planning.sharing import FIRST
from ottla.spark.planning.tracker import StreamTracker
from ottla.spark.positions import Positions
from tests.unit.spark.planning.fake_cluster import (
    ID,
    OTHER_ID,
    P0,
    P1,
    P2,
    Clock,
    FakeCluster,
    at,
    make,
    through_json,
)


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({}, (5, 0)),
        ({"startingOffsets": None}, (10, 7)),
        ({"startingOffsets": '{"t": {"0": 6, "1": -1}}'}, (6, 7)),
        ({"startingTimestamp": "100"}, (8, 3)),
    ],
)
def test_a_stream_begins_where_the_options_say(options, offsets):
    cluster = FakeCluster(t=[(5, 10, 0), (0, 7, 0)])
    cluster.times = {P0: 8, P1: 3}
    assert make(cluster, **options).initial() == at(*offsets)


def test_latest_is_one_place_however_often_it_is_asked():
    cluster = FakeCluster(t=[(0, 10, 0)])
    tracker = make(cluster, startingOffsets="latest")
    start = tracker.initial()
    cluster.logs[P0] = (0, 15, 0)
    assert tracker.initial() == start


def test_a_micro_batch_goes_to_the_ends_and_the_next_one_from_there():
    cluster = FakeCluster(t=[(0, 10, 0), (0, 7, 0)])
    tracker = make(cluster)
    start = tracker.initial()
    end = tracker.latest(start)
    assert end == at(10, 7, begin={P0: 0, P1: 0})
    assert tracker.plan(start, through_json(end)) == [
        OffsetRange("t", 0, 0, 10, ID),
        OffsetRange("t", 1, 0, 7, ID),
    ]
    cluster.logs[P1] = (0, 9, 0)
    start, end = end, tracker.latest(end)
    assert end == at(10, 9, shared=FIRST)
    assert tracker.plan(start, end) == [OffsetRange("t", 1, 7, 9, ID)]


def test_nothing_new_is_the_start_itself():
    tracker = make(FakeCluster(t=[(0, 10, 3)]))
    start = at(10, epoch=2)
    assert tracker.latest(start) is start
    connectors = Positions({P0: 10})
    assert tracker.latest(connectors) is connectors


def test_a_steady_stream_asks_four_questions_a_micro_batch():
    cluster = FakeCluster(t=[(0, 10, 0)])
    tracker = make(cluster)
    tracker.latest(at(3))
    cluster.calls.clear()
    start = at(4)
    tracker.plan(start, tracker.latest(start))
    assert cluster.calls == ["look_up", "list", "list"]


@pytest.mark.parametrize("limits", [Limits(), Limits(most=3)])
def test_a_micro_batch_never_ends_before_it_begins(limits):
    # The stream was read_uncommitted until now, and a transaction is open from offset 5 on.
    cluster = FakeCluster(t=[(0, 10, 0), (0, 10, 0)])
    cluster.open_from = {P0: 5}
    tracker = make(cluster, **{"kafka.isolation.level": "read_committed"})
    start = at(8, 10)
    assert tracker.latest(start, limits) is start
    cluster.logs[P1] = (0, 12, 0)
    end = tracker.latest(start, limits)
    assert end == at(8, 12)
    assert tracker.plan(start, end) == [OffsetRange("t", 1, 10, 12, ID)]
    cluster.open_from = {}
    assert tracker.latest(end).offsets == at(10, 12).offsets


def test_a_stream_that_starts_within_an_open_transaction_gives_nothing_before_its_start():
    cluster = FakeCluster(t=[(0, 10, 0)])
    cluster.open_from = {P0: 5}
    options = {"kafka.isolation.level": "read_committed", "startingOffsets": '{"t": {"0": 8}}'}
    tracker = make(cluster, **options)
    start = tracker.initial()
    assert tracker.latest(start) == at(8, begin={P0: 8})


def test_limits_share_the_backlog():
    tracker = make(FakeCluster(t=[(0, 30, 0), (0, 10, 0)]))
    assert tracker.latest(at(0, 0), Limits(most=8)) == at(6, 2)
    assert tracker.latest(at(0, 0)).offsets == at(30, 10).offsets


def test_a_small_backlog_waits_until_it_is_time():
    clock = Clock()
    cluster = FakeCluster(t=[(0, 10, 0)])
    tracker = make(cluster, clock, maxTriggerDelay="5s")
    least = Limits(least=20)
    assert tracker.latest(at(0), least) == at(10)
    cluster.logs[P0] = (0, 15, 0)
    start = at(10)
    clock.now = 4.0
    assert tracker.latest(start, least) is start
    clock.now = 5.0
    assert tracker.latest(start, least) == at(15)


def test_available_now_reads_what_there_was_and_waits_for_nothing():
    cluster = FakeCluster(t=[(0, 10, 0)])
    tracker = make(cluster)
    tracker.hold_end()
    cluster.logs[P0] = (0, 99, 0)
    cluster.logs[P1] = (0, 5, 0)
    assert tracker.latest(at(0), Limits(most=6)) == at(6)
    assert tracker.latest(at(6), Limits(most=6, least=50)) == at(10, shared=FIRST)
    start = at(10)
    assert tracker.latest(start) is start


def test_new_partitions_are_found_and_begun_at_their_begin():
    cluster = FakeCluster(t=[(0, 10, 0)])
    tracker = make(cluster)
    start = at(10)
    cluster.logs[P1] = (0, 3, 0)
    end = tracker.latest(start)
    assert end == at(10, 3)
    assert tracker.plan(start, end) == [OffsetRange("t", 1, 0, 3, ID)]


def test_a_pattern_finds_new_topics_and_leaves_internal_ones_alone():
    cluster = FakeCluster(t=[(0, 10, 0)])
    tracker = make(cluster, subscribe=None, subscribePattern="[tu]")
    assert tracker.latest(at(1)) == at(10)
    cluster.logs[TopicPartition("u", 0)] = (0, 2, 0)
    cluster.ids["u"] = OTHER_ID
    assert tracker.latest(at(10)).offsets[TopicPartition("u", 0)] == 2


@pytest.mark.parametrize(
    ("pattern", "is_found"),
    [("vent", True), ("^events", True), ("s-1$", True), ("^vent", False), ("^events$", False)],
)
def test_a_pattern_is_found_anywhere_in_a_name_as_in_sparks_connector(pattern, is_found):
    """It had to be the whole name: a query that was the connector's read fewer topics."""
    cluster = FakeCluster()
    there = TopicPartition("events-1", 0)
    cluster.logs[there] = (0, 5, 0)
    cluster.ids["events-1"] = ID
    tracker = make(cluster, subscribe=None, subscribePattern=pattern, startingOffsets="earliest")
    assert tracker.latest(tracker.initial()).offsets == ({there: 5} if is_found else {})


@pytest.mark.parametrize(
    ("change", "start", "kind", "goes_on_from"),
    [
        ({"logs": {P0: (5, 10, 0)}}, at(3), DataAgedOut, 5),
        ({"logs": {P0: (0, 10, 0)}}, at(11), LogRewound, 10),
        ({"logs": {P0: (0, 20, 4)}, "epoch_starts": {P0: 8}}, at(12), LogRewound, 8),
        ({"logs": {P0: (0, 20, 0)}, "ids": {"t": OTHER_ID}}, at(12), TopicRecreated, 0),
        ({"logs": {P0: (0, 20, 0), P1: (2, 5, 0)}}, at(20), DataAgedOut, 20),
        ({"logs": {P0: (0, 20, 0)}}, at(12, 3), PartitionGone, 12),
    ],
)
def test_what_was_lost_has_a_name_or_is_gone_over(change, start, kind, goes_on_from):
    cluster = FakeCluster(t=[])
    for name, value in change.items():
        setattr(cluster, name, value)
    with pytest.raises(kind):
        make(cluster).latest(start)
    patient = make(cluster, failOnDataLoss="false")
    end = patient.latest(start)
    assert end.offsets == {each: log[1] for each, log in cluster.logs.items()}
    ranges = patient.plan(start, end)
    first = next((one.start for one in ranges if one.partition == 0), cluster.logs[P0][1])
    assert first == goes_on_from
    again = make(cluster, failOnDataLoss="false")  # after a restart
    assert again.plan(through_json(start), through_json(end)) == ranges


def test_a_leader_that_changed_without_loss_is_nothing_special():
    cluster = FakeCluster(t=[(0, 20, 4)])
    cluster.epoch_starts = {P0: 12}
    assert make(cluster).latest(at(12)) == at(20, epoch=4)


def test_a_first_micro_batch_cut_short_is_repeated_from_where_it_began():
    """Else "latest", asked again after the kill, would skip what the kill cut off."""
    cluster = FakeCluster(t=[(0, 10, 0)])
    first = make(cluster, startingOffsets="latest")
    start = first.initial()
    cluster.logs[P0] = (0, 15, 0)
    end = through_json(first.latest(start))
    assert first.plan(start, end) == [OffsetRange("t", 0, 10, 15, ID)]
    cluster.logs[P0] = (0, 40, 0)
    second = make(cluster, startingOffsets="latest")
    assert second.plan(second.initial(), end) == [OffsetRange("t", 0, 10, 15, ID)]
    assert second.latest(end) == at(40)


def test_a_repeated_micro_batch_of_a_topic_made_anew_is_not_read_from_the_new_one():
    cluster = FakeCluster(t=[(0, 40, 0)])
    cluster.ids["t"] = OTHER_ID
    with pytest.raises(TopicRecreated):
        make(cluster).plan(at(3), at(10))
    assert make(cluster, failOnDataLoss="false").plan(at(3), at(10)) == []


def test_ranges_are_divided_as_the_options_say():
    tracker = make(FakeCluster(t=[(0, 10, 0)]), minPartitions="2")
    assert [one[2:4] for one in tracker.plan(at(0), at(10))] == [(0, 5), (5, 10)]


class FakeGroups:
    def __init__(self, error=None):
        self.commits = []
        self.tries = 0
        self.error = error

    def commit(self, group, offsets, *, timeout_ms):
        self.tries += 1
        if self.error:
            raise self.error
        self.commits.append((group, dict(offsets)))


def test_progress_is_committed_as_a_group_once_for_each_place(monkeypatch):
    groups = FakeGroups()
    monkeypatch.setattr(tracker_module, "BlockingCoordinators", lambda _client: groups)
    cluster = FakeCluster(t=[(0, 10, 0), (0, 7, 0)])
    tracker = make(cluster, **{"group.id": "g"})
    end = tracker.latest(at(3, 7))
    tracker.publish(end.offsets)
    assert tracker.latest(end) is end
    assert groups.commits == [("g", {P0: 3, P1: 7}), ("g", {P0: 10})]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "no"), "group g; it has members"),
        (KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no"), "group g: GROUP_AUTH"),
        (ConnectionFailed("h", 1, "reset"), "group g: h:1: reset"),
    ],
)
def test_progress_that_nobody_is_shown_never_ends_the_stream(monkeypatch, caplog, error, told):
    groups = FakeGroups(error)
    monkeypatch.setattr(tracker_module, "BlockingCoordinators", lambda _client: groups)
    cluster, clock = FakeCluster(t=[(0, 10, 0)]), Clock()
    tracker = make(cluster, clock, **{"group.id": "g"})
    assert tracker.latest(at(3)) == at(10)
    assert told in caplog.text
    cluster.logs[P0] = (0, 12, 0)
    tracker.latest(at(10))
    assert groups.tries == 1, "each trigger would wait for the group"
    groups.error, clock.now = None, 61.0
    cluster.logs[P0] = (0, 14, 0)
    tracker.latest(at(12))
    assert groups.commits == [("g", {P0: 12})]


def test_the_first_look_is_impatient_and_the_others_are_not():
    cluster = FakeCluster(t=[(0, 10, 0)])
    patience = []

    def connect(_options, retry_timeout_ms):
        patience.append(retry_timeout_ms)
        return cluster

    options = parse_options({"bootstrap.servers": "h:1", "subscribe": "t"}, Use.STREAM)
    tracker = StreamTracker(options, connect, Clock())
    tracker.initial()
    tracker.latest(at(1))
    assert patience == [3_000, 60_000]


def test_offsets_keep_their_text_whatever_order_partitions_come_in():
    texts = set()
    for order in itertools.permutations([P0, P1, P2]):
        cluster = FakeCluster(t=[])
        cluster.logs = dict.fromkeys(order, (0, 9, 0))
        texts.add(make(cluster).latest(at(0, 0, 0)).text())
    assert len(texts) == 1


def test_small_ranges_share_a_task_once_micro_batches_are_seen_to_be_quick():
    cluster, clock = FakeCluster(t=[(0, 10, 0), (0, 7, 0)]), Clock()
    tracker = make(cluster, clock)
    start, shared = tracker.initial(), []
    for seconds in (0.5, 0.5, 5.0, 0.5):
        start = tracker.latest(start)
        shared.append(start.shared)
        clock.now += seconds
        cluster.logs[P0] = (0, cluster.logs[P0][1] + 5, 0)
    assert shared == [0, 64, 128, 0]


@pytest.mark.parametrize("option", ["minPartitions", "minRecordsPerPartition"])
def test_ranges_share_no_task_by_themselves_where_the_options_say_which_do(option):
    cluster, clock = FakeCluster(t=[(0, 10, 0), (0, 7, 0)]), Clock()
    tracker = make(cluster, clock, **{option: "2"})
    start = tracker.initial()
    for _ in range(5):
        start = tracker.latest(start)
        clock.now += 0.1
        cluster.logs[P0] = (0, cluster.logs[P0][1] + 5, 0)
    assert start.shared == 0


def test_what_a_bounded_micro_batch_leaves_behind_is_caught_up_with_by_all_tasks():
    """Else it never is: ranges that the option keeps small would share a task for ever."""
    cluster, clock = FakeCluster(t=[(0, 50, 0), (0, 50, 0)]), Clock()
    tracker = make(cluster, clock)
    start, shared = tracker.initial(), []
    for _ in range(6):
        start = tracker.latest(start, Limits(most=20))
        shared.append(start.shared)
        clock.now += 1.5
        if start.offsets[P0] == 50:
            break
    assert shared == [0, 0, 0, 0, 512]


def test_a_micro_batch_that_is_repeated_is_divided_as_it_was():
    """A query that looks at its tasks (``monotonically_increasing_id``) gives the same rows."""
    cluster, clock = FakeCluster(t=[(0, 10, 0), (0, 7, 0)]), Clock()
    tracker = make(cluster, clock)
    start = tracker.latest(tracker.initial())
    clock.now += 0.1
    cluster.logs[P0] = (0, 15, 0)
    end = through_json(tracker.latest(start))
    assert end.shared == FIRST
    killed = make(cluster)
    assert killed.plan(start, end) == tracker.plan(start, end)
    assert killed.latest(end) == end
