import pytest

from ottla.errors import ErrorCode, InvariantBroken, KafkaError
from ottla.log.append import AppendOrigin
from ottla.log.log import LogState
from ottla.log.replicated import append_replicated, check_replicated
from ottla.records.batch import TimestampType, iterate_headers, read_header
from tests.by_time import offset_for_timestamp, offset_of_max_timestamp

NOW = 1_700_000_000_000


def append(log, records, epoch=0, origin=AppendOrigin.CLIENT):
    return log.append(records, leader_epoch=epoch, origin=origin)


def names(place, log):
    return [name for name in place[0].list_directory(log.directory) if name.endswith(".log")]


def test_appends_get_consecutive_offsets_and_read_back(log, batch, read_all):
    assert append(log, batch(3)).base_offset == 0
    result = append(log, batch(2, timestamp=NOW + 100), epoch=4)
    assert (result.base_offset, result.last_offset) == (3, 4)
    assert result.log_append_time_ms == -1
    assert [(offset, timestamp) for offset, _, timestamp in read_all(log)] == [
        (0, NOW), (1, NOW + 1), (2, NOW + 2), (3, NOW + 100), (4, NOW + 101),
    ]  # fmt: skip
    log.check()


def test_offset_and_epoch_are_on_disk_and_the_checksum_holds(log, batch, read_all):
    append(log, batch(3), epoch=7)
    append(log, batch(1), epoch=7)
    region = log.read(0, max_bytes=10**6, upper_offset=4, min_one_message=True).region
    headers = [header for _, header in iterate_headers(region.read())]
    assert [(one.base_offset, one.partition_leader_epoch) for one in headers] == [(0, 7), (3, 7)]
    read_all(log)  # verifies the sums


def test_log_append_time_is_the_clocks(place, open_partition, batch, clock, read_all):
    log = open_partition(*place, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    clock.advance(5)
    assert append(log, batch(2, timestamp=NOW - 10**9)).log_append_time_ms == NOW + 5000
    assert [timestamp for _, _, timestamp in read_all(log)] == [NOW + 5000] * 2
    assert offset_of_max_timestamp(log)[:2] == (NOW + 5000, 0)
    log.check()


def test_reading_starts_with_the_batch_that_holds_the_offset(log, batch):
    append(log, batch(5))
    append(log, batch(5))
    result = log.read(7, max_bytes=10**6, upper_offset=10, min_one_message=True)
    assert read_header(result.region.read()).base_offset == 5
    assert result.position == result.region.position > 0


def test_readers_see_nothing_at_or_above_the_upper_offset(log, batch):
    for _ in range(4):
        append(log, batch(5))
    result = log.read(0, max_bytes=10**6, upper_offset=10, min_one_message=True)
    headers = [header for _, header in iterate_headers(result.region.read())]
    assert [header.base_offset for header in headers] == [0, 5]
    assert log.read(10, max_bytes=10**6, upper_offset=10, min_one_message=True).region is None
    assert log.read(20, max_bytes=10**6, upper_offset=10, min_one_message=True).region is None


def test_a_batch_that_spans_the_upper_offset_is_not_given(log, batch):
    append(log, batch(5))
    append(log, batch(5))
    result = log.read(0, max_bytes=10**6, upper_offset=7, min_one_message=True)
    assert [h.base_offset for _, h in iterate_headers(result.region.read())] == [0]


def test_bytes_are_cut_at_the_limit_even_inside_a_batch(log, batch):
    size = len(batch(5))
    append(log, batch(5))
    append(log, batch(5))
    cut = log.read(0, max_bytes=size + 10, upper_offset=10, min_one_message=True)
    assert cut.region.length_bytes == size + 10
    assert not cut.first_batch_incomplete
    small = log.read(0, max_bytes=10, upper_offset=10, min_one_message=False)
    assert small.region.length_bytes == 10
    assert small.first_batch_incomplete
    whole = log.read(0, max_bytes=10, upper_offset=10, min_one_message=True)
    assert whole.region.length_bytes == size
    nothing = log.read(0, max_bytes=0, upper_offset=10, min_one_message=False)
    assert nothing.region is None


@pytest.mark.parametrize("offset", [-1, 6, 10**12])
def test_offsets_outside_of_the_log_are_refused(log, batch, offset):
    append(log, batch(5))
    with pytest.raises(KafkaError) as caught:
        log.read(offset, max_bytes=100, upper_offset=5, min_one_message=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_below_the_log_start_offset_is_out_of_range(log, batch):
    append(log, batch(5))
    log.log_start_offset = 3
    with pytest.raises(KafkaError):
        log.read(2, max_bytes=100, upper_offset=5, min_one_message=True)


# -- segments ---------------------------------------------------------------------------------


def test_a_full_segment_is_rolled_and_named_by_its_first_offset(
    place, open_partition, batch, read_all
):
    size = len(batch(2))
    log = open_partition(*place, segment_bytes=3 * size)
    for _ in range(7):
        append(log, batch(2))
    assert names(place, log) == [f"{n:020d}.log" for n in (0, 6, 12)]
    assert [offset for offset, _, _ in read_all(log)] == list(range(14))
    assert log.flushed_offset == 0  # the new leader epoch is not durable yet
    log.flush()
    append(log, batch(2))
    append(log, batch(2))
    assert log.flushed_offset == 14
    log.check()


def test_reading_goes_over_a_segments_end_by_the_next_read(place, open_partition, batch):
    log = open_partition(*place, segment_bytes=len(batch(2)) * 2)
    for _ in range(4):
        append(log, batch(2))
    first = log.read(0, max_bytes=10**6, upper_offset=8, min_one_message=True)
    assert first.region.length_bytes == 2 * len(batch(2))
    assert (first.segment_base_offset, first.position) == (0, 0)
    second = log.read(5, max_bytes=10**6, upper_offset=8, min_one_message=True)
    assert (second.segment_base_offset, second.position) == (4, 0)


def test_a_batch_larger_than_a_segment_is_refused(place, open_partition, batch):
    log = open_partition(*place, segment_bytes=100)
    with pytest.raises(KafkaError) as caught:
        append(log, batch(2, size=200))
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_an_old_segment_is_rolled_by_the_time_in_its_records(place, open_partition, batch):
    log = open_partition(*place, segment_ms=1000)
    append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 1000))
    assert log.segment_count == 1
    append(log, batch(timestamp=NOW + 1001))
    assert log.segment_count == 2


def test_a_segment_without_timestamps_is_rolled_by_its_age(place, open_partition, batch, clock):
    log = open_partition(*place, segment_ms=1000)
    append(log, batch(timestamp=-1, step=0))
    clock.advance(1.0)
    append(log, batch(timestamp=-1, step=0))
    assert log.segment_count == 1
    clock.advance(0.001)
    append(log, batch(timestamp=-1, step=0))
    assert log.segment_count == 2


def test_a_full_index_rolls_its_segment(place, open_partition, batch):
    log = open_partition(*place, segment_index_bytes=48, index_interval_bytes=1)
    for step in range(12):
        append(log, batch(timestamp=NOW + step))
    assert log.segment_count > 1
    log.check()


def test_an_offset_too_far_from_the_base_rolls(place, open_partition, batch):
    log = open_partition(*place)
    far = batch(1, base_offset=2**31 + 5)
    append(log, batch(1))
    append_replicated(log, check_replicated(far))
    assert names(place, log) == ["0" * 20 + ".log", f"{2**31 + 5:020d}.log"]
    assert log.log_end_offset == 2**31 + 6
    found = log.read(1, max_bytes=10**6, upper_offset=log.log_end_offset, min_one_message=True)
    assert read_header(found.region.read()).base_offset == 2**31 + 5


def test_index_entries_lead_where_the_batches_are(place, open_partition, batch, read_all):
    log = open_partition(*place, index_interval_bytes=200)
    for step in range(600):
        append(log, batch(1 + step % 3, timestamp=NOW + step * 10))
    log.check()
    for offset in range(0, log.log_end_offset, 7):
        result = log.read(
            offset, max_bytes=1, upper_offset=log.log_end_offset, min_one_message=True
        )
        header = read_header(result.region.read())
        assert header.base_offset <= offset <= header.last_offset
    assert len(read_all(log, max_bytes=500)) == log.log_end_offset


# -- other origins ----------------------------------------------------------------------------


def test_a_coordinator_appends_several_batches_at_once(log, batch, read_all):
    append(log, batch(2))
    records = memoryview(bytearray(bytes(batch(2)) + bytes(batch(3))))
    result = append(log, records, epoch=1, origin=AppendOrigin.COORDINATOR)
    assert (result.base_offset, result.last_offset) == (2, 6)
    assert [offset for offset, _, _ in read_all(log)] == list(range(7))
    log.check()


def test_replicated_batches_keep_their_offsets_and_epochs(log, batch, read_all):
    records = memoryview(
        bytearray(
            bytes(batch(2, base_offset=10, leader_epoch=3))
            + bytes(batch(1, base_offset=15, leader_epoch=5))
        )
    )
    append_replicated(log, check_replicated(memoryview(records)))
    assert [offset for offset, _, _ in read_all(log)] == [10, 11, 15]
    assert log.leader_epochs.entries == [(3, 10), (5, 15)]
    assert log.end_offset_for_epoch(3) == (3, 15)


def test_replicated_offsets_that_go_back_are_refused(log, batch):
    append(log, batch(5))
    with pytest.raises(KafkaError) as caught:
        append_replicated(log, check_replicated(batch(1, base_offset=4)))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 5


# -- time -------------------------------------------------------------------------------------


def test_the_first_record_at_or_after_a_time(place, open_partition, batch):
    log = open_partition(*place, index_interval_bytes=100, segment_bytes=2000)
    for step in range(40):
        append(log, batch(3, timestamp=NOW + step * 100, step=10), epoch=step // 20)
    assert log.segment_count > 2
    assert offset_for_timestamp(log, 0) == (NOW, 0, 0)
    assert offset_for_timestamp(log, NOW + 511) == (NOW + 520, 17, 0)
    assert offset_for_timestamp(log, NOW + 521) == (NOW + 600, 18, 0)
    assert offset_for_timestamp(log, NOW + 3920) == (NOW + 3920, 119, 1)
    assert offset_for_timestamp(log, NOW + 3921) is None
    assert offset_of_max_timestamp(log) == (NOW + 3920, 119, 1)
    assert offset_for_timestamp(log, NOW + 3000, upper_offset=90) is None
    assert offset_for_timestamp(log, NOW + 3000, upper_offset=91).offset == 90


def test_times_out_of_order_find_the_first_that_is_late_enough(place, open_partition, batch):
    log = open_partition(*place, index_interval_bytes=1)
    for timestamp in (500, 900, 100, 900, 950):
        append(log, batch(1, timestamp=NOW + timestamp))
    assert offset_for_timestamp(log, NOW + 600).offset == 1
    assert offset_for_timestamp(log, NOW + 900).offset == 1
    assert offset_for_timestamp(log, NOW + 901).offset == 4
    log.log_start_offset = 2
    assert offset_for_timestamp(log, NOW + 600).offset == 3


def test_an_empty_log_has_no_time(log):
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_times_are_found_inside_compressed_batches(log, batch, codec):
    append(log, batch(10, step=10, codec=codec))
    assert offset_for_timestamp(log, NOW + 41)[:2] == (NOW + 50, 5)


# -- flush ------------------------------------------------------------------------------------


def test_a_flush_covers_what_was_appended_before_it(log, batch):
    assert log.begin_flush() is None
    append(log, batch(3))
    job = log.begin_flush()
    append(log, batch(2))
    assert log.begin_flush() is None, "one flush in flight"
    job.run()
    assert log.flushed_offset == 0
    log.finish_flush(job, None)
    assert log.flushed_offset == 3
    log.flush()
    assert log.flushed_offset == 5
    assert log.begin_flush() is None


def test_a_flush_in_flight_forbids_another(log, batch):
    append(log, batch())
    log.begin_flush()
    with pytest.raises(InvariantBroken):
        log.flush()


def test_a_late_flush_proves_nothing_about_a_truncated_log(log, batch):
    append(log, batch(3))
    append(log, batch(3))
    job = log.begin_flush()
    log.truncate_to(3)
    append(log, batch(3))
    job.run()
    log.finish_flush(job, None)
    assert log.flushed_offset == 0
    log.flush()
    assert log.flushed_offset == 6


def test_a_flush_that_a_roll_overtakes_still_counts(place, open_partition, batch):
    log = open_partition(*place, segment_bytes=len(batch()) * 2)
    append(log, batch())
    append(log, batch())
    job = log.begin_flush()
    append(log, batch())
    assert log.segment_count == 2
    job.run()
    log.finish_flush(job, None)
    assert log.flushed_offset == 2
    log.flush()
    assert log.flushed_offset == 3


def test_the_leader_epoch_is_durable_before_the_flush_counts(place, open_partition, batch):
    disk, directory = place
    log = open_partition(disk, directory)
    append(log, batch(), epoch=3)
    job = log.begin_flush()
    append(log, batch(), epoch=4)
    job.run()
    path = f"{log.directory}/leader-epoch-checkpoint"
    assert disk.open(path).read_at(0, 100) == b"0\n1\n3 0\n"
    log.finish_flush(job, None)
    log.flush()
    assert disk.open(path).read_at(0, 100) == b"0\n2\n3 0\n4 1\n"


# -- truncation -------------------------------------------------------------------------------


def test_truncation_drops_batches_segments_and_epochs(place, open_partition, batch, read_all):
    log = open_partition(*place, segment_bytes=len(batch(2)) * 3, index_interval_bytes=1)
    for epoch in range(8):
        append(log, batch(2, timestamp=NOW + epoch), epoch=epoch)
    log.flush()
    log.truncate_to(9)  # inside of a batch: it goes as a whole
    assert log.log_end_offset == 8
    assert log.flushed_offset == 8
    assert log.latest_epoch == 3
    assert names(place, log) == [f"{n:020d}.log" for n in (0, 6)]
    log.check()
    append(log, batch(1), epoch=11)
    assert [offset for offset, _, _ in read_all(log)] == list(range(9))
    assert log.end_offset_for_epoch(3) == (3, 8)
    log.check()


def test_truncation_at_the_end_or_above_changes_nothing(log, batch):
    append(log, batch(3))
    log.flush()
    log.truncate_to(3)
    log.truncate_to(100)
    assert (log.log_end_offset, log.flushed_offset) == (3, 3)


def test_truncation_to_the_start_leaves_an_empty_log_that_goes_on(log, batch, read_all):
    append(log, batch(3))
    log.truncate_to(0)
    assert log.log_end_offset == 0
    append(log, batch(2))
    assert len(read_all(log)) == 2
    log.check()


# -- end --------------------------------------------------------------------------------------


def test_a_region_outlives_the_log_that_gave_it(place, open_partition, batch):
    log = open_partition(*place)
    append(log, batch(2))
    region = log.read(0, max_bytes=10**6, upper_offset=2, min_one_message=True).region
    log.close()
    assert len(region.read()) == region.length_bytes
    with pytest.raises(KafkaError):
        append(log, batch())


def test_an_abandoned_log_voids_the_flush_in_flight(log, batch, place):
    append(log, batch(), epoch=3)
    job = log.begin_flush()
    log.abandon()
    job.run()
    assert not place[0].exists(f"{log.directory}/leader-epoch-checkpoint")
    log.finish_flush(job, None)
    assert log.state is LogState.CLOSED
