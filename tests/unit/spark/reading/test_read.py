"""What becomes of fetched bytes: exactly the rows of the range, once, or an error that says why."""

from dataclasses import replace

import pytest

pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.fetching import FetchLimits
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.spark.loss import DataAgedOut, LogRewound, PartitionGone, TopicRecreated
from ottla.spark.offsets import OffsetRange
from ottla.spark.reading.columns import TYPES, ArrowDecoder
from ottla.spark.reading.read import fetch_ranges

CONTROL = 0x20 | 0x10


def offsets(batches):
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def read(client, start, end, **options):
    """The batches of one range, each kept while others are made."""
    wanted = [OffsetRange("t", 1, start, end)]
    return list(fetch_ranges(client, wanted, columns=("offset", "value"), **options))


def values(batches):
    return [value for batch in batches for value in batch.column("value").to_pylist()]


SMALL = FetchLimits(partition_max_bytes=1)
"""One batch for each fetch."""


def decode(data, wanted):
    """The only Arrow batch that ``data`` gives, with every column, and where to read on."""
    decoder = ArrowDecoder(tuple(TYPES))
    assert list(decoder.decode(memoryview(data), wanted)) == []
    return decoder.rest(), decoder.next_offset


def test_every_column_says_what_the_record_says(batch):
    data = batch(7, [b"v", None], timestamp=1_234, headers=[(b"h", b"1"), (b"h", None)])
    wanted = OffsetRange("t", 3, 0, 100)
    rows, after = decode(data, wanted)
    assert after == 9
    assert rows.drop_columns(["timestamp"]).to_pylist() == [
        {
            "key": b"k",
            "value": value,
            "topic": "t",
            "partition": 3,
            "offset": offset,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        }
        for offset, value in ((7, b"v"), (8, None))
    ]
    assert rows.column("timestamp").cast("int64").to_pylist() == [1_234_000, 1_235_000]


def test_no_headers_are_null_as_in_the_kafka_connector(batch):
    wanted = OffsetRange("t", 3, 0, 100)
    rows, _ = decode(batch(0, [b"v"]), wanted)
    assert rows.column("headers").to_pylist() == [None]


def test_log_append_time_is_the_batchs_for_every_record(batch):
    data = batch(0, [b"a", b"b", b"c"], attributes=0x08, timestamp=5)
    rows, _ = decode(data, OffsetRange("t", 0, 0, 9))
    assert rows.column("timestampType").to_pylist() == [1, 1, 1]
    assert rows.column("timestamp").cast("int64").to_pylist() == [7000, 7000, 7000]


def test_rows_before_and_after_the_range_are_left_out(batch, cluster):
    client = cluster(batch(0, [b"%d" % n for n in range(10)]))
    assert offsets(read(client, 3, 6)) == [3, 4, 5]
    assert client.asked == [{"t-1": 3}]


def test_a_range_over_several_fetches_is_read_once(batch, cluster):
    data = batch(0, [b"a"] * 4) + batch(4, [b"b"] * 4) + batch(8, [b"c"] * 4)
    client = cluster(data)
    limits = FetchLimits(partition_max_bytes=len(data) // 3 + 30)  # the second is cut short
    assert offsets(read(client, 1, 11, limits=limits)) == list(range(1, 11))
    assert client.asked == [{"t-1": 1}, {"t-1": 4}, {"t-1": 8}]


def test_the_next_fetch_is_under_way_before_rows_are_handed_on(batch, cluster):
    big = b"x" * (5 << 20)
    client = cluster(b"".join(batch(n, [big]) for n in range(4)))
    wanted = [OffsetRange("t", 1, 0, 4)]
    rows = fetch_ranges(client, wanted, columns=("offset", "value"), limits=SMALL)
    assert offsets([next(rows)]) == [0]
    assert client.asked == [{"t-1": 0}, {"t-1": 1}]
    rows.close()
    assert client.opened == {}, "the answer that is due would be taken for another one"


def test_a_range_asks_for_no_more_than_it_still_holds(batch, cluster):
    data = b"".join(batch(n * 100, [b"x" * 1000] * 100) for n in range(40))
    client = cluster(data)
    assert offsets(
        read(client, 0, 2000, limits=FetchLimits(partition_max_bytes=1_500_000))
    ) == list(range(2000))
    assert client.sizes[0] == 1_500_000
    assert client.sizes[1] < 800_000
    assert len(client.sizes) == 2


def test_several_partitions_of_a_leader_share_a_fetch(batch, cluster, log):
    logs = {
        TopicPartition("t", n): log(batch(0, [b"%d" % n]) + batch(1, [b"%d" % n]), leader=n // 2)
        for n in range(4)
    }
    client = cluster(logs)
    wanted = [OffsetRange("t", n, 0, 2) for n in range(4)]
    rows = list(fetch_ranges(client, wanted, columns=("partition", "offset"), limits=SMALL))
    found = [(row["partition"], row["offset"]) for each in rows for row in each.to_pylist()]
    assert sorted(found) == [(n, offset) for n in range(4) for offset in range(2)]
    assert client.asked[:2] == [{"t-0": 0, "t-1": 0}, {"t-2": 0, "t-3": 0}]
    assert client.asked[2:] == [{"t-1": 1, "t-0": 1}, {"t-3": 1, "t-2": 1}]


def test_a_leader_that_moves_is_followed(batch, cluster, log):
    client = cluster(log(b"".join(batch(n, [b"x" * (5 << 20)]) for n in range(6))))
    rows = fetch_ranges(
        client, [OffsetRange("t", 1, 0, 6)], columns=("offset", "value"), limits=SMALL
    )
    client.failures.append(ConnectionFailed("h", 1, "the peer closed the connection"))
    (moving,) = client.logs.values()
    moving.errors = [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    found = offsets([next(rows)])
    moving.leader = 2
    assert found + offsets(rows) == list(range(6))


def test_a_cluster_that_stays_away_ends_the_task(batch, cluster, log):
    client = cluster(batch(0, [b"a"]))
    client.failures = [ConnectionFailed("h", 1, "reset")] * 1000
    with pytest.raises(ConnectionFailed, match="reset"):
        read(client, 0, 1)
    assert 5 < client.clock.now < 15


def test_markers_of_transactions_are_no_rows_but_move_on(batch, cluster):
    marker = batch(2, [b"\0\0\0\0\0\0"], attributes=CONTROL)
    client = cluster(batch(0, [b"a", b"b"]) + marker + batch(3, [b"c"]))
    assert offsets(read(client, 0, 4, limits=SMALL)) == [0, 1, 3]


def test_aborted_transactions_are_left_out_of_a_committed_read(batch, cluster, log):
    data = batch(0, [b"a"], attributes=0x10, producer=7) + batch(
        1, [b"b"], attributes=0x10, producer=8
    )
    data += batch(2, [b""], key=b"\0\0\0\0", attributes=CONTROL, producer=7)  # abort
    data += batch(3, [b"c"], attributes=0x10, producer=7)
    client = cluster(log(data))
    (one,) = client.logs.values()
    one.aborted = [(7, 0)]
    assert values(read(client, 0, 4)) == [b"b", b"c"]
    one.aborted = []
    assert values(read(client, 0, 4)) == [b"a", b"b", b"c"]


def test_a_range_of_markers_only_ends(batch, cluster):
    client = cluster(batch(5, [b"\0\0\0\0\0\0"], attributes=CONTROL))
    assert read(client, 5, 6) == []


def test_holes_of_compaction_are_skipped(batch, cluster):
    client = cluster(batch(2, [b"a"]) + batch(9, [b"b"]))
    assert offsets(read(client, 0, 10)) == [2, 9]
    assert offsets(read(client, 3, 8)) == []


def test_one_fetch_of_many_bytes_is_several_arrow_batches(batch, cluster):
    big = [b"x" * (1 << 20)] * 5
    client = cluster(batch(0, big) + batch(5, big))
    assert [len(rows) for rows in read(client, 0, 10)] == [4, 4, 2]


def test_rows_that_are_kept_stay_as_they_were(batch, cluster):
    expected = [b"%07d" % n * 300_000 for n in range(9)]
    client = cluster(b"".join(batch(n, [value]) for n, value in enumerate(expected)))
    assert values(read(client, 0, 9, limits=SMALL)) == expected


def test_names_of_headers_that_are_no_utf8_are_read_as_java_reads_them(batch):
    data = batch(0, [b"v"], headers=[(b"\xff\xc3\xa9", b"1")]) + batch(1, [b"w"])
    rows, _ = decode(data, OffsetRange("t", 3, 0, 100))
    assert rows.column("headers").to_pylist() == [[{"key": "\ufffd\xe9", "value": b"1"}], None]


def test_what_comes_is_sound_by_arrows_own_check(batch):
    data = batch(0, [b"a", None, b""], headers=[(b"h", None)]) + batch(3, [b"w"], key=None)
    rows, _ = decode(data, OffsetRange("t", 3, 0, 100))
    rows.validate(full=True)
    assert rows.column("key").null_count == 1
    assert rows.column("value").null_count == 1


def test_a_flipped_bit_is_an_error_that_names_the_partition(batch, cluster):
    data = bytearray(batch(0, [b"value"]))
    data[-2] ^= 1
    with pytest.raises(KafkaError, match=r"CORRUPT_MESSAGE.*t-1 offsets \[0, 1\)") as raised:
        read(cluster(data), 0, 1)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def aged_out(batch, cluster):
    client = cluster(b"".join(batch(n, [b"%d" % n]) for n in range(9)))
    next(iter(client.logs.values())).start = 6
    return client


def test_data_that_went_away_is_no_silent_loss(batch, cluster):
    client = aged_out(batch, cluster)
    with pytest.raises(DataAgedOut, match=r"t-1.*offsets \[5, 6\) are gone.*holds \[6, 9\)"):
        read(client, 5, 9)


def test_data_that_went_away_is_left_out_where_the_query_says_so(batch, cluster):
    client = aged_out(batch, cluster)
    assert offsets(read(client, 2, 8, fail_on_data_loss=False)) == [6, 7]
    assert offsets(read(client, 2, 5, fail_on_data_loss=False)) == []


def test_a_log_that_lost_its_end_is_no_silent_loss(batch, cluster):
    client = cluster(batch(0, [b"a"]))
    (log,) = client.logs.values()
    log.errors = [ErrorCode.OFFSET_OUT_OF_RANGE]
    with pytest.raises(LogRewound, match=r"t-1.*offset 5 is beyond the log"):
        read(client, 5, 9)


def test_a_log_that_lost_its_end_gives_nothing_from_before_the_range(batch, cluster, monkeypatch):
    """Reading went back to the log's end, and gave rows of another task a second time."""
    client = cluster(b"".join(batch(n, [b"a"]) for n in range(4)))
    (log,) = client.logs.values()
    log.errors = [ErrorCode.OFFSET_OUT_OF_RANGE]
    ask = client.list_offsets

    def asked_and_written_on(timestamps, **how):
        found = ask(timestamps, **how)
        if set(timestamps.values()) == {-1} and log.end == 4:
            log.data += b"".join(batch(n, [b"b"]) for n in range(4, 9))
        return found

    monkeypatch.setattr(client, "list_offsets", asked_and_written_on)
    assert offsets(read(client, 6, 9, fail_on_data_loss=False)) == []
    assert log.end == 9


def test_a_topic_made_anew_is_not_read_in_the_others_place(batch, cluster):
    client = cluster(batch(0, [b"a"]))
    wanted = [OffsetRange("t", 1, 0, 1, bytes(15) + b"\7")]
    with pytest.raises(TopicRecreated, match="t-1"):
        list(fetch_ranges(client, wanted, columns=("offset",)))
    rows = fetch_ranges(client, wanted, columns=("offset",), fail_on_data_loss=False)
    assert list(rows) == []


def test_a_topic_made_anew_under_the_task_is_noticed(batch, cluster):
    client = cluster(b"".join(batch(n, [b"x" * (5 << 20)]) for n in range(3)))
    rows = fetch_ranges(client, [OffsetRange("t", 1, 0, 3)], columns=("value",), limits=SMALL)
    next(rows)
    client.topic_id = bytes(15) + b"\2"
    client.failures.append(ConnectionFailed("h", 1, "reset"))
    with pytest.raises((TopicRecreated, KafkaError), match="made anew"):
        list(rows)


def test_any_other_answer_is_told(batch, cluster):
    client = cluster(batch(0, [b"a"]))
    next(iter(client.logs.values())).errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaError, match=r"TOPIC_AUTHORIZATION_FAILED.*t-1 offsets \[0, 9\)"):
        read(client, 0, 9)


def test_a_log_that_gives_nothing_more_ends_the_task(batch, cluster):
    client = cluster(batch(0, [b"a"]))
    with pytest.raises(KafkaError, match=r"nothing came at offset 1; the log holds \[0, 1\)"):
        read(client, 0, 9)
    assert client.clock.now == pytest.approx(client.settings.retry_timeout_ms / 1000, abs=1)
    assert len(client.asked) < 200


def test_a_log_that_gives_nothing_more_is_a_warning_where_the_query_says_so(batch, cluster, caplog):
    client = cluster(batch(0, [b"a"]))
    assert offsets(read(client, 0, 9, fail_on_data_loss=False)) == [0]
    assert "nothing came at offset 1" in caplog.text


def test_what_a_new_leader_holds_back_for_a_silent_follower_is_no_loss(batch, cluster, monkeypatch):
    """Kafka waits 30 s for the follower: just then the rows were given up, with a warning."""
    client = cluster(batch(0, [b"a"] * 9))
    client.settings = replace(client.settings, retry_timeout_ms=60_000)
    (log,) = client.logs.values()
    there = log.read
    monkeypatch.setattr(log, "read", lambda *asked: there(*asked) if client.clock.now > 45 else b"")
    assert offsets(read(client, 0, 9, fail_on_data_loss=False)) == list(range(9))


def test_an_open_transaction_is_no_loss(batch, cluster, monkeypatch):
    client = cluster(batch(0, [b"a"]))
    monkeypatch.setattr("ottla.spark.reading.read._is_held_back", lambda *_: True)
    with pytest.raises(KafkaError, match="a transaction is open"):
        read(client, 0, 9, fail_on_data_loss=False)


def test_a_quota_that_is_used_up_is_waited_for(batch, cluster):
    """Kafka's answer has no partition at all then, which ended the task at once."""
    client = cluster(b"".join(batch(n, [b"x" * (5 << 20)]) for n in range(3)))
    client.throttled = {1: [11_000, 40_000, 9_000]}
    assert offsets(read(client, 0, 3, limits=SMALL)) == [0, 1, 2]
    assert client.clock.now == 60.0


def test_one_leaders_quota_does_not_hold_up_what_another_gives(batch, cluster, log):
    logs = {TopicPartition("t", n): log(batch(0, [b"a"]) + batch(1, [b"b"]), n) for n in range(2)}
    client = cluster(logs)
    client.throttled = {0: [5_000] * 3}
    wanted = [OffsetRange("t", n, 0, 2) for n in range(2)]
    rows = list(fetch_ranges(client, wanted, columns=("partition", "offset"), limits=SMALL))
    found = sorted(tuple(row.values()) for each in rows for row in each.to_pylist())
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_quota_that_never_lets_anything_through_is_an_error_and_no_loss(batch, cluster):
    client = cluster(batch(0, [b"a"] * 9))
    client.throttled = {1: [30_000] * 10_000}
    with pytest.raises(KafkaError, match=r"THROTTLING_QUOTA_EXCEEDED.*t-1: .*consumer_byte_rate"):
        read(client, 0, 9, fail_on_data_loss=False)
    assert 600 < client.clock.now < 700


def test_an_answer_without_what_was_asked_for_is_told(batch, cluster):
    client = cluster(batch(0, [b"a"] * 9))
    client.throttled = {1: [0]}
    with pytest.raises(KafkaError, match="asked for t-1, told of"):
        read(client, 0, 9)


def test_an_error_that_nothing_confirms_is_asked_again_for_a_while(batch, cluster):
    """It was a loop without pause or end."""
    client = cluster(batch(0, [b"a"] * 9))
    (log,) = client.logs.values()
    log.errors = [ErrorCode.OFFSET_OUT_OF_RANGE] * 3
    assert offsets(read(client, 5, 9)) == [5, 6, 7, 8]
    log.errors = [ErrorCode.OFFSET_OUT_OF_RANGE] * 5_000
    began = client.clock.now
    with pytest.raises(KafkaError, match=r"OFFSET_OUT_OF_RANGE.*t-1 at offset 5"):
        read(client, 5, 9)
    assert 5 < client.clock.now - began < 15
    assert len(log.errors) > 4_950


def gone_under(cluster, batch, log, *, anew):
    """Topic t lost partition 1 after planning; made anew with another id, or deleted whole."""
    client = cluster({TopicPartition("t", 0): log(batch(0, [b"a"]))} if anew else {})
    client.topic_id = bytes(15) + b"\2"
    return client


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("topic_id", [bytes(15) + b"\7", bytes(16)])
def test_a_partition_that_is_gone_before_it_is_read(cluster, batch, log, anew, topic_id):
    wanted = [OffsetRange("t", 1, 0, 5, topic_id)]
    client = gone_under(cluster, batch, log, anew=anew)
    assert not list(fetch_ranges(client, wanted, columns=("offset",), fail_on_data_loss=False))
    assert client.clock.now < 4
    with pytest.raises(PartitionGone, match="t-1"):
        list(fetch_ranges(client, wanted, columns=("offset",)))


def test_a_lost_connection_while_topics_are_looked_up_is_tried_again(batch, cluster):
    client = cluster(batch(0, [b"a"]))
    client.answers_lost = [ConnectionFailed("h", 1, "reset")] * 3
    assert offsets(read(client, 0, 1)) == [0]
