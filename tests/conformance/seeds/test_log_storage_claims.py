"""What the seed documents say of the log, claim by claim: layout, files, write and read path."""

import pytest

from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.recovery import open_log
from ottla.log.files.layout import parse_segment_file, partition_directory, segment_file
from ottla.records.batch import iterate_headers, read_header
from ottla.records.builder import build_batch
from ottla.records.record import Record

NOW = 1_700_000_000_000


def batch(count=1, size=50, at=NOW):
    return memoryview(
        build_batch([Record(key=b"k", value=b"v" * size, timestamp=at + n) for n in range(count)])
    )


@pytest.fixture
def disk():
    disk = FaultyDisk(MemoryDisk())
    disk.make_directory("/t-0")
    return disk


@pytest.fixture
def open_topic(disk):
    def open_it(**config):
        return open_log(
            disk,
            ManualClock(NOW),
            "/t-0",
            TopicPartition("t", 0),
            LogConfig(**config),
            recovery_point=0,
            log_start_offset=0,
            is_clean=False,
        )

    return open_it


# -- seed 000: the broker's storage layout and log -----------------------------------------------


def test_a_folder_is_a_partition_of_a_topic():
    # The seed's own naming uses an underscore; it wants to be exactly Kafka's, and that is a dash.
    assert partition_directory(TopicPartition("myTopic", 1)) == "myTopic-1"


def test_a_files_name_is_its_base_offset_in_twenty_digits():
    assert segment_file(5, ".log") == "00000000000000000005.log"
    assert segment_file(5, ".index") == "00000000000000000005.index"
    assert parse_segment_file("00000000000000000005.log") == (5, ".log")


def test_log_and_index_of_a_segment_share_their_name(disk, open_topic):
    log = open_topic(segment_bytes=300)
    for _ in range(5):
        log.append(batch(), leader_epoch=0)
    log.close()
    names = set(disk.list_directory("/t-0"))
    logs = {name.removesuffix(".log") for name in names if name.endswith(".log")}
    indexes = {name.removesuffix(".index") for name in names if name.endswith(".index")}
    assert len(logs) > 1
    assert logs == indexes


def test_the_first_message_has_offset_zero_in_a_new_log(open_topic):
    assert open_topic().append(batch(), leader_epoch=0).base_offset == 0


def test_the_file_with_the_highest_offset_is_the_one_written_to(disk, open_topic):
    log = open_topic(segment_bytes=300)
    for _ in range(6):
        log.append(batch(), leader_epoch=0)
    names = [name for name in disk.list_directory("/t-0") if name.endswith(".log")]
    before = {name: disk.size_of(f"/t-0/{name}") for name in names}
    log.append(batch(size=1), leader_epoch=0)
    grown = {name for name in names if disk.size_of(f"/t-0/{name}") != before[name]}
    assert grown <= {names[-1]}


def test_an_index_entry_is_a_relative_offset_and_a_position_of_four_bytes_each(disk, open_topic):
    log = open_topic(index_interval_bytes=1)
    for _ in range(3):
        log.append(batch(2), leader_epoch=0)
    log.close()
    size = len(batch(2))
    expected = b"".join(
        (last).to_bytes(4, "big") + (at * size).to_bytes(4, "big") for last, at in ((3, 1), (5, 2))
    )
    assert disk.open("/t-0/00000000000000000000.index").read_at(0, 100) == expected


def test_the_last_offset_is_found_behind_the_last_index_entry(open_topic):
    log = open_topic(index_interval_bytes=400)
    for _ in range(9):
        log.append(batch(3), leader_epoch=0)
    log.close()
    log = open_topic(index_interval_bytes=400)
    assert log.log_end_offset == 27


def test_what_is_on_disk_is_what_is_on_the_wire(disk, open_topic):
    log = open_topic()
    sent = bytes(batch(3))
    log.append(memoryview(bytearray(sent)), leader_epoch=0)
    stored = disk.open("/t-0/00000000000000000000.log").read_at(0, 10_000)
    # Only base offset (0 as sent) and leader epoch are the broker's.
    assert stored[:12] + stored[16:] == sent[:12] + sent[16:]


def test_reading_hands_out_a_piece_of_a_file_not_bytes(disk, open_topic):
    log = open_topic()
    log.append(batch(3), leader_epoch=0)
    before = disk.counts[DiskCall.READ]
    region = log.read(0, max_bytes=10_000, upper_offset=3, min_one_message=True).region
    assert disk.counts[DiskCall.READ] == before
    assert read_header(region.read()).record_count == 3


# -- seed 002: the file system for storage -------------------------------------------------------


def test_a_message_costs_one_append_to_one_file(disk, open_topic):
    log = open_topic()
    log.append(batch(), leader_epoch=0)
    before = disk.counts.copy()
    log.append(batch(), leader_epoch=0)
    assert (disk.counts - before) == {DiskCall.WRITE: 1}


def test_once_a_file_has_grown_to_a_size_a_new_one_is_started(disk, open_topic):
    log = open_topic(segment_bytes=300)
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    logs = [name for name in disk.list_directory("/t-0") if name.endswith(".log")]
    assert len(logs) > 3
    assert all(disk.size_of(f"/t-0/{name}") <= 300 for name in logs)


def test_which_file_matters_is_known_without_looking_inside_any(disk, open_topic):
    log = open_topic(segment_bytes=300)
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    before = disk.counts[DiskCall.READ]
    assert log.segments.holding(0) is log.segments[0]
    assert log.segments.holding(19) is log.segments.active
    assert disk.counts[DiskCall.READ] == before


def test_topics_are_independent_of_each_other():
    disk = MemoryDisk()
    for name in ("a-0", "b-0"):
        disk.make_directory(f"/{name}")
        log = open_log(
            disk, ManualClock(NOW), f"/{name}", TopicPartition(name[0], 0), LogConfig(),
            recovery_point=0, log_start_offset=0, is_clean=False,
        )  # fmt: skip
        assert log.append(batch(), leader_epoch=0).base_offset == 0


# -- seed 003: the walk through Kafka's write and read path ---------------------------------------


def test_base_offsets_bound_their_segments(open_topic):
    log = open_topic(segment_bytes=400)
    for _ in range(12):
        log.append(batch(2), leader_epoch=0)
    for segment, end in log.segments.with_ends(log.log_end_offset):
        region = segment.file.read_at(0, segment.size_bytes)
        headers = [header for _, header in iterate_headers(region)]
        assert segment.base_offset <= headers[0].base_offset
        assert headers[-1].last_offset < end


def test_an_index_is_sparse(open_topic):
    log = open_topic(index_interval_bytes=1000)
    for _ in range(100):
        log.append(batch(), leader_epoch=0)
    assert 5 <= log.segments.active.indexes.offsets.count <= 20


def test_offset_and_epoch_are_assigned_before_the_write(open_topic):
    log = open_topic()
    log.append(batch(4), leader_epoch=6)
    log.append(batch(1), leader_epoch=6)
    region = log.read(4, max_bytes=10_000, upper_offset=5, min_one_message=True).region
    header = read_header(region.read())
    assert (header.base_offset, header.partition_leader_epoch) == (4, 6)


def test_the_leader_epoch_cache_learns_from_appends(open_topic):
    log = open_topic()
    for epoch in (1, 1, 4):
        log.append(batch(2), leader_epoch=epoch)
    assert log.leader_epochs.entries == [(1, 0), (4, 4)]


def test_more_than_a_segment_holds_is_refused(open_topic):
    with pytest.raises(KafkaError) as caught:
        open_topic(segment_bytes=100).append(batch(size=500), leader_epoch=0)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_reading_at_the_end_gives_nothing_and_behind_it_is_out_of_range(open_topic):
    log = open_topic()
    log.append(batch(2), leader_epoch=0)
    assert log.read(2, max_bytes=100, upper_offset=2, min_one_message=True).region is None
    with pytest.raises(KafkaError) as caught:
        log.read(3, max_bytes=100, upper_offset=2, min_one_message=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_min_one_message_lifts_the_limit_for_the_first_batch_only(open_topic):
    log = open_topic()
    for _ in range(3):
        log.append(batch(size=500), leader_epoch=0)
    size = len(batch(size=500))
    read = {"max_bytes": 10, "upper_offset": 3}
    assert log.read(0, min_one_message=True, **read).region.length_bytes == size
    cut = log.read(0, min_one_message=False, **read)
    assert (cut.region.length_bytes, cut.first_batch_incomplete) == (10, True)


def test_a_reader_of_committed_records_stops_at_the_high_watermark(open_topic):
    log = open_topic()
    for _ in range(5):
        log.append(batch(2), leader_epoch=0)
    region = log.read(0, max_bytes=10_000, upper_offset=6, min_one_message=True).region
    assert [h.base_offset for _, h in iterate_headers(region.read())] == [0, 2, 4]
