import pytest

from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import CorruptFile, ErrorCode, KafkaError
from ottla.log.append import AppendOrigin
from ottla.log.log import LogState
from tests.by_time import offset_for_timestamp

NOW = 1_700_000_000_000


def append(log, records, epoch=0, origin=AppendOrigin.CLIENT):
    return log.append(records, leader_epoch=epoch, origin=origin)


def path_of(log, base=0, suffix="log"):
    return f"{log.directory}/{base:020d}.{suffix}"


CONFIG = {"segment_bytes": 1000, "index_interval_bytes": 200}


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_serves_the_same_and_goes_on(stopped, open_partition, batch, read_all, clean):
    disk, directory, _, records = stopped(**CONFIG)
    log = open_partition(disk, directory, clean=clean, recovery_point=40 if clean else 0, **CONFIG)
    log.check()
    assert read_all(log) == records
    assert log.flushed_offset == log.log_end_offset == 40
    assert log.leader_epochs.entries == [(0, 0), (1, 20)]
    assert append(log, batch(2), epoch=2).base_offset == 40
    log.check()


def test_a_clean_start_reads_no_segment_but_the_last(stopped, open_partition):
    inner, directory, _, _ = stopped(60, **CONFIG)
    disk = FaultyDisk(inner)
    log = open_partition(disk, directory, clean=True, recovery_point=120, **CONFIG)
    assert log.segment_count > 7
    assert disk.counts[DiskCall.READ] <= 8
    assert disk.counts[DiskCall.WRITE] == 0


@pytest.mark.parametrize("keep", [1, 11, 60, 61, 100])
def test_a_torn_tail_is_cut_off(stopped, open_partition, read_all, batch, keep):
    disk, directory, path, records = stopped()
    file = disk.open(f"{path}/{0:020d}.log")
    size = file.size()
    file.write_at(size, bytes(batch(2, base_offset=40))[:keep])
    log = open_partition(disk, directory, recovery_point=40)
    assert read_all(log) == records
    assert disk.size_of(f"{path}/{0:020d}.log") == size
    log.check()


@pytest.mark.parametrize(
    "left", [b"\0", b"\1", bytes(70), b"\1" * 70], ids=["a zero", "a one", "zeros", "ones"]
)
def test_what_a_refused_write_left_is_not_in_a_segment_that_was_rolled_after(
    stopped, open_partition, read_all, left
):
    # It was cut off, the next batch began a segment, and a power cut came before the next flush.
    disk, directory, path, records = stopped(**CONFIG)
    logs = sorted(name for name in disk.list_directory(path) if name.endswith(".log"))
    full, last = disk.open(f"{path}/{logs[-2]}"), disk.open(f"{path}/{logs[-1]}")
    size = full.size()
    full.write_at(size, left)
    base = int(logs[-1].removesuffix(".log"))
    last.truncate(last.size() - 1)
    log = open_partition(disk, directory, recovery_point=base, **CONFIG)
    assert disk.size_of(f"{path}/{logs[-2]}") == size
    found = read_all(log)
    assert found == records[: len(found)]
    assert log.log_end_offset >= base
    log.check()


@pytest.mark.parametrize("zeros", [1, 61, 4096, 3_000_000])
def test_a_zero_filled_tail_is_cut_off(stopped, open_partition, read_all, zeros):
    disk, directory, path, records = stopped()
    file = disk.open(f"{path}/{0:020d}.log")
    size = file.size()
    file.truncate(size + zeros)
    log = open_partition(disk, directory, recovery_point=40)
    assert read_all(log) == records
    assert disk.size_of(f"{path}/{0:020d}.log") == size


def test_a_damaged_batch_above_the_recovery_point_ends_the_log(stopped, open_partition, read_all):
    disk, directory, path, records = stopped(**CONFIG)
    logs = [name for name in disk.list_directory(path) if name.endswith(".log")]
    file = disk.open(f"{path}/{logs[2]}")
    file.write_at(80, b"\x7f")
    base = int(logs[2][:20])
    log = open_partition(disk, directory, recovery_point=base, **CONFIG)
    assert read_all(log) == records[:base]
    assert [name for name in disk.list_directory(path) if name.endswith(".log")] == logs[:3]
    log.check()


def test_a_damaged_batch_below_the_recovery_point_is_corruption_with_a_name(
    stopped, open_partition
):
    disk, directory, path, _ = stopped()
    file = disk.open(f"{path}/{0:020d}.log")
    before = file.read_at(0, 10**6)
    file.write_at(len(before) - 5, b"\x7f")
    damaged = file.read_at(0, 10**6)
    with pytest.raises(CorruptFile, match="below the recovery point 40"):
        open_partition(disk, directory, recovery_point=40)
    assert file.read_at(0, 10**6) == damaged, "nothing may be cut"


@pytest.mark.parametrize("clean", [True, False])
def test_a_wrong_leader_epoch_does_not_cost_the_records_behind_it(stopped, open_partition, clean):
    disk, directory, path, _ = stopped()
    file = disk.open(f"{path}/{0:020d}.log")
    last = file.size() // 20 * 19
    file.write_at(last + 12, b"\x04")
    with pytest.raises(CorruptFile, match="leader epoch 67108865 at offset 38"):
        open_partition(disk, directory, recovery_point=40, clean=clean)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [0, 30, 1000])
def test_a_log_shorter_than_its_recovery_point_is_corruption_never_an_empty_log(
    stopped, open_partition, clean, size
):
    disk, directory, path, _ = stopped()
    disk.open(f"{path}/{0:020d}.log").truncate(size)
    with pytest.raises(CorruptFile):
        open_partition(disk, directory, recovery_point=40, clean=clean)
    assert disk.size_of(f"{path}/{0:020d}.log") == size


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_log_file_is_corruption_too(stopped, open_partition, clean):
    disk, directory, path, _ = stopped()
    disk.remove(f"{path}/{0:020d}.log")
    with pytest.raises(CorruptFile, match="no segments"):
        open_partition(disk, directory, recovery_point=40, clean=clean)


def test_a_missing_segment_in_the_middle_is_not_jumped_over(stopped, open_partition):
    disk, directory, path, _ = stopped(**CONFIG)
    logs = [name for name in disk.list_directory(path) if name.endswith(".log")]
    disk.remove(f"{path}/{logs[2]}")
    with pytest.raises(CorruptFile):
        open_partition(disk, directory, recovery_point=40, **CONFIG)


@pytest.mark.parametrize("ordinal", [0, 7, 18])
@pytest.mark.parametrize("offset", [1, 2, 100])
def test_a_damaged_offset_is_named_by_the_batch_behind_it(stopped, open_partition, ordinal, offset):
    disk, directory, path, _ = stopped()
    file = disk.open(f"{path}/{0:020d}.log")
    size = file.size() // 20
    damaged = 2 * ordinal + offset  # The base offset, which no checksum covers.
    file.write_at(ordinal * size + 7, bytes([damaged]))
    before = file.read_at(0, 10**6)
    why = f"{damaged}, expected {2 * ordinal}; the next one has {2 * ordinal + 2}"
    with pytest.raises(CorruptFile, match=why):
        open_partition(disk, directory)
    assert file.read_at(0, 10**6) == before, "nothing may be cut"


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "garbage", "zeros"])
def test_damaged_indexes_are_rebuilt(
    stopped, open_partition, read_all, batch, suffix, clean, damage
):
    disk, directory, path, records = stopped(**CONFIG)
    for name in disk.list_directory(path):
        if not name.endswith("." + suffix):
            continue
        file = disk.open(f"{path}/{name}")
        size = file.size()
        match damage:
            case "missing":
                disk.remove(f"{path}/{name}")
            case "empty":
                file.truncate(0)
            case "torn":
                file.truncate(size - 3)
            case "garbage":
                file.write_at(0, b"\x5a" * size)
            case "zeros":
                file.truncate(0)
                file.truncate(10_000)
    point = 40 if clean else 0
    log = open_partition(disk, directory, clean=clean, recovery_point=point, **CONFIG)
    assert read_all(log) == records
    for offset, _, timestamp in records:
        if damage != "empty":  # an empty time index is what a segment without timestamps has
            assert offset_for_timestamp(log, timestamp).offset == offset
    append(log, batch(2))
    assert len(read_all(log)) == 42


@pytest.mark.parametrize("point", [0, 17, 38, 40])
def test_recoveries_do_not_thin_the_indexes_out(stopped, open_partition, point):
    disk, directory, path, _ = stopped(**CONFIG)
    names = [name for name in disk.list_directory(path) if name.endswith("index")]

    def contents():
        files = [disk.open_read_only(f"{path}/{name}") for name in names]
        return {file.path: file.read_at(0, file.size()) for file in files}

    stopped_with = contents()
    for _ in range(2):
        open_partition(disk, directory, clean=True, recovery_point=point, **CONFIG).close()
        assert contents() == stopped_with
    open_partition(disk, directory, recovery_point=point, **CONFIG)
    recovered_with = contents()  # Without the last time entry: the segment takes appends again.
    assert sum(map(len, stopped_with.values())) - sum(map(len, recovered_with.values())) in {0, 12}
    for _ in range(3):
        open_partition(disk, directory, recovery_point=point, **CONFIG)
        assert contents() == recovered_with


@pytest.mark.parametrize(("suffix", "torn_at"), [("index", 8), ("timeindex", 12), ("timeindex", 8)])
def test_an_index_with_a_hole_is_rebuilt(stopped, open_partition, suffix, torn_at):
    # As where one page of it was written before the power went, and the one before was not.
    disk, directory, path, records = stopped(segment_bytes=10_000, index_interval_bytes=200)
    file = disk.open(f"{path}/{0:020d}.{suffix}")
    whole = file.read_at(0, file.size())
    file.write_at(torn_at, bytes(12))
    log = open_partition(disk, directory, recovery_point=38, index_interval_bytes=200)
    log.check()
    found = disk.open(f"{path}/{0:020d}.{suffix}")
    entry_bytes = 8 if suffix == "index" else 12  # Of the time index a stop wrote one more.
    assert found.size() in {len(whole), len(whole) - entry_bytes}
    assert whole.startswith(found.read_at(0, found.size()))
    for offset, _, timestamp in records:
        assert offset_for_timestamp(log, timestamp).offset == offset


class SyncedDisk(FaultyDisk):
    """Notes which files are synced."""

    def __init__(self, inner):
        super().__init__(inner)
        self.synced = set()

    def enter(self, call, path):
        super().enter(call, path)
        if call is DiskCall.SYNC:
            self.synced.add(path)


def test_the_indexes_of_a_cut_log_are_durable(stopped, open_partition):
    # Else a power cut may bring entries of what was cut back among those of what follows.
    inner, directory, path, _ = stopped(index_interval_bytes=200)
    disk = SyncedDisk(inner)
    file = disk.open(f"{path}/{0:020d}.log")
    file.truncate(file.size() - 1)
    open_partition(disk, directory, recovery_point=17, index_interval_bytes=200)
    assert {f"{path}/{0:020d}.{suffix}" for suffix in ("index", "timeindex")} <= disk.synced


def test_a_time_index_that_lost_its_end_is_rebuilt(stopped, open_partition, read_all):
    disk, directory, path, records = stopped(**CONFIG)
    disk.open(f"{path}/{0:020d}.timeindex").truncate(12)
    log = open_partition(disk, directory, clean=True, recovery_point=40, **CONFIG)
    for offset, _, timestamp in records:
        assert offset_for_timestamp(log, timestamp).offset == offset


def test_a_wrong_base_offset_is_named_when_an_index_is_rebuilt(stopped, open_partition):
    disk, directory, path, _ = stopped(**CONFIG)
    disk.open(f"{path}/{0:020d}.log").write_at(0, b"\x01")
    disk.remove(f"{path}/{0:020d}.index")
    log = open_partition(disk, directory, clean=True, recovery_point=40, **CONFIG)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        log.read(3, max_bytes=10_000, upper_offset=40, min_one_message=True)


def test_leftovers_of_a_crash_are_removed_and_unknown_files_left_alone(stopped, open_partition):
    disk, directory, path, _ = stopped()
    names = ["00000000000000000007.log.deleted", "x.cleaned", "leader-epoch-checkpoint.tmp"]
    names.append("00000000000000000007.txnindex")  # of no segment
    for name in [*names, "00000000000000000040.snapshot.old", "notes.txt"]:
        disk.open(f"{path}/{name}", create=True).write_at(0, b"x")
    open_partition(disk, directory, recovery_point=40)
    left = disk.list_directory(path)
    assert not set(names) & set(left)
    assert {"00000000000000000040.snapshot.old", "notes.txt"} <= set(left)


def test_a_decided_swap_is_finished(stopped, open_partition, batch, read_all):
    disk, directory, path, _ = stopped(count=6, segment_bytes=len(batch(2)) * 2)
    swap = disk.open(f"{path}/{0:020d}.log.swap", create=True)
    swap.write_at(0, batch(1, base_offset=1, leader_epoch=0))
    swap.write_at(len(batch(1)), batch(1, base_offset=7, leader_epoch=0))
    config = {"segment_bytes": len(batch(2)) * 2, "is_compacted": True}
    log = open_partition(disk, directory, recovery_point=12, **config)
    assert [offset for offset, _, _ in read_all(log)] == [1, 7, 8, 9, 10, 11]
    assert not [name for name in disk.list_directory(path) if "swap" in name or "del" in name]
    log.check()


def test_an_empty_segment_from_a_failed_roll_is_dropped(stopped, open_partition, read_all):
    disk, directory, path, records = stopped()
    disk.open(f"{path}/{30:020d}.log", create=True)
    log = open_partition(disk, directory, recovery_point=40)
    assert read_all(log) == records


def test_a_partition_starts_at_its_log_start_offset(stopped, open_partition, read_all):
    disk, directory, _, records = stopped()
    log = open_partition(disk, directory, recovery_point=40, start=13)
    assert log.log_start_offset == 13
    assert read_all(log) == records[13:]


# -- power cuts -------------------------------------------------------------------------------


def slow(case):
    """Together the cases take twenty seconds."""
    return pytest.param(case, marks=pytest.mark.slow)


def run_until_cut(disk, open_partition, batch, acknowledged, **config):
    """Append, flush and roll; note each offset acknowledged, as a producer would see it.

    From that moment on a checkpoint may name it as the recovery point.
    """
    log = open_partition(disk, "/data", segment_bytes=700, index_interval_bytes=100, **config)
    for step in range(40):
        append(log, batch(1 + step % 3, timestamp=NOW + step), epoch=step // 15)
        if step % 3 == 0:
            log.flush()
            acknowledged.append(log.flushed_offset)
    log.close()
    acknowledged.append(log.flushed_offset)


@pytest.fixture
def history(open_partition, batch, read_all):
    disk = MemoryDisk()
    disk.make_directory("/data")
    run_until_cut(disk, open_partition, batch, [0])
    return read_all(open_partition(disk, "/data", segment_bytes=700))


@pytest.mark.slow
@pytest.mark.parametrize("is_compacted", [False, slow(True)])
@pytest.mark.parametrize("again", [slow(False), True])
@pytest.mark.parametrize("checkpoint", ["never written", "just written", "written some time ago"])
def test_power_cuts_lose_nothing_acknowledged_and_invent_nothing(
    open_partition, batch, read_all, history, again, checkpoint, is_compacted
):
    """Nor is what a recovery point vouches for taken for bit rot, or what lies above it."""
    config = {"segment_bytes": 700, "index_interval_bytes": 100, "is_compacted": is_compacted}
    at = 0
    while True:
        at += 1
        inner = MemoryDisk(durability=True)
        inner.make_directory("/data")
        inner.sync_directory("/")
        disk = FaultyDisk(inner)
        disk.kill_at(at)
        acknowledged = [0]
        try:
            run_until_cut(disk, open_partition, batch, acknowledged, is_compacted=is_compacted)
        except DiskKilled:
            pass
        else:
            break
        for seed in range(3):
            point = {
                "never written": 0,
                "just written": acknowledged[-1],
                "written some time ago": acknowledged[at * (seed + 1) % len(acknowledged)],
            }[checkpoint]
            survivor = inner.crash(SeededRng(seed * 1000 + at))
            if again:  # the power goes once more, during recovery
                dying = FaultyDisk(survivor)
                dying.kill_at(1 + (at + seed) % 4)
                try:
                    open_partition(dying, "/data", recovery_point=point, **config)
                except DiskKilled:
                    survivor = survivor.crash(SeededRng(seed + at))
            log = open_partition(survivor, "/data", recovery_point=point, **config)
            log.check()
            records = read_all(log)
            assert len(records) >= acknowledged[-1], (at, seed)
            assert records == history[: len(records)], (at, seed)
            epochs = list(log.leader_epochs.entries)
            once_more = open_partition(survivor, "/data", recovery_point=point, **config)
            assert read_all(once_more) == records, "a second recovery changes nothing"
            assert once_more.leader_epochs.entries == epochs
    assert at > 100


def test_a_compacted_log_gets_no_gap_where_the_end_of_a_full_segment_was_lost(
    open_partition, batch, read_all
):
    """Nobody could tell it from what compaction took: what was behind would come before it."""
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    disk.sync_directory("/")
    log = open_partition(disk, "/data", is_compacted=True)
    append(log, batch(1))
    log.flush()
    append(log, batch(1))
    log.roll()
    append(log, batch(1))
    for seed in range(1500):
        survivor = open_partition(disk.crash(SeededRng(seed)), "/data", is_compacted=True)
        offsets = [offset for offset, _, _ in read_all(survivor)]
        assert offsets in ([0], [0, 1], [0, 1, 2]), seed


# -- a disk that refuses one call -----------------------------------------------------------------


@pytest.mark.parametrize("number", [5, 28])  # EIO, ENOSPC
@pytest.mark.parametrize(
    "call",
    [
        DiskCall.OPEN,
        DiskCall.WRITE,
        DiskCall.SYNC,
        DiskCall.TRUNCATE,
        DiskCall.SYNC_DIRECTORY,
        DiskCall.RENAME,
        DiskCall.REMOVE,
    ],
)
def test_one_refused_call_costs_no_acknowledged_record(
    open_partition, batch, read_all, call, number
):
    config = {"segment_bytes": 500, "index_interval_bytes": 100}
    nth = 0
    while True:
        nth += 1
        inner = MemoryDisk(durability=True)
        inner.make_directory("/data")
        inner.sync_directory("/")
        disk = FaultyDisk(inner)
        log = open_partition(disk, "/data", **config)
        made_before = disk.counts[call]
        disk.fail(call, nth=nth, errno=number)
        sent, acknowledged, refusals = [], [], set()
        for step in range(30):
            try:
                result = append(log, batch(2, timestamp=NOW + step), epoch=step // 10)
            except KafkaError as error:
                refusals.add(error.code)
                continue
            sent += [(result.base_offset + n, NOW + step + n) for n in range(2)]
            if step % 3 == 0:
                try:
                    log.flush()
                except KafkaError:
                    if log.state is LogState.FAILED:
                        continue
                    assert number == 28, "a full disk refuses before any sync: try again"
                    log.flush()
                acknowledged = list(sent)
        assert refusals <= {ErrorCode.KAFKA_STORAGE_ERROR}
        assert log.state in {LogState.OPEN, LogState.FAILED}
        has_struck = disk.counts[call] - made_before >= nth
        disk.heal()  # The check opens files, too.
        if log.state is LogState.OPEN:
            log.check()
        survivor = inner.crash(SeededRng(nth))
        recovered = open_partition(survivor, "/data", **config)
        recovered.check()
        found = [(offset, timestamp) for offset, _, timestamp in read_all(recovered)]
        assert found[: len(acknowledged)] == acknowledged, nth
        assert found == sent[: len(found)], nth
        if not has_struck:
            break
    assert nth > 1 or call in {DiskCall.TRUNCATE, DiskCall.REMOVE}
