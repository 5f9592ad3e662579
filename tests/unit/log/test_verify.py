"""Damaged directories, on a real disk: what verify and doctor say of them, and what they leave."""

import hashlib

import pytest

from ottla.env.real_disk import RealDisk
from ottla.ids import TopicId, TopicPartition
from ottla.log.inspect.dump import DumpedBatch, Unreadable, dump_file, records_of
from ottla.log.inspect.examine import examine
from ottla.log.inspect.findings import Finding, Severity
from ottla.log.inspect.verify import VerifiedSegment, verify_partition
from ottla.records.builder import build_batch
from ottla.records.record import Record

TP = TopicPartition("flights", 0)
NOW = 1_700_000_000_000


@pytest.fixture
def data(tmp_path, make_manager):
    """A cleanly stopped data directory of one partition with three segments, 60 batches."""
    manager = make_manager(RealDisk(), str(tmp_path), segment_bytes=4_000, index_interval_bytes=500)
    manager.start()
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    for number in range(60):
        records = [Record(timestamp=NOW + number, key=b"k", value=b"%d" % number * 50)] * 3
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number * 3}
        log.append(
            memoryview(build_batch(records, codec=number % 5, **fields)),
            leader_epoch=number // 30,
        )
    assert log.segment_count >= 3
    manager.stop()
    return tmp_path / "logs"


def partition(data):
    return data / str(TP)


def logs(data):
    return sorted(partition(data).glob("*.log"))


def kill(data, recovery_point=None):
    """Make it look like after a kill; the checkpoint says ``recovery_point``."""
    (data / ".kafka_cleanshutdown").unlink()
    if recovery_point is not None:
        text = f"0\n1\nflights 0 {recovery_point}\n"
        (data / "recovery-point-offset-checkpoint").write_text(text)


def verify(data, **options):
    """Return the findings, and check that nothing was changed by looking."""
    before = fingerprint(data)
    directory, _ = examine(RealDisk(), str(data))
    claims = directory.claims_of(TP)
    outcomes = list(verify_partition(RealDisk(), str(partition(data)), claims, **options))
    assert fingerprint(data) == before
    segments = [each for each in outcomes if isinstance(each, VerifiedSegment)]
    assert len(segments) == len(logs(data))
    return [each for each in outcomes if isinstance(each, Finding)]


def fingerprint(data):
    return {
        path: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest())
        for path in sorted(data.rglob("*"))
        if path.is_file()
    }


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def errors(findings):
    return [each for each in findings if each.severity is Severity.ERROR]


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_directory_gives_no_findings(data, deep):
    assert verify(data, deep=deep) == []
    directory, findings = examine(RealDisk(), str(data))
    assert directory.identity.cluster_id == "ottla-test"
    assert (directory.is_clean, directory.locked_by) == (True, None)
    (hosted,) = directory.partitions
    assert hosted.end_offset == 180
    assert [each.what for each in findings] == ["there is no metadata.sqlite"]


def test_a_flipped_bit_in_a_batch_is_an_error_and_the_rest_is_read(data):
    first = logs(data)[0]
    rows = list(dump_file(RealDisk(), str(first)))
    flip(first, rows[2].position + 70)
    flip(first, rows[5].position + 70)
    found = verify(data)
    assert [each.position for each in errors(found)] == [rows[2].position, rows[5].position]
    assert len(found) == 2
    dumped = list(dump_file(RealDisk(), str(first)))
    assert [row.is_valid for row in dumped] == [at not in (2, 5) for at in range(len(rows))]
    assert "CRC32C" in dumped[2].why_invalid


def test_bit_rot_above_the_recovery_point_is_what_the_next_start_cuts(data):
    last = logs(data)[-1]
    rows = list(dump_file(RealDisk(), str(last)))
    kill(data, recovery_point=rows[1].base_offset)
    flip(last, rows[1].position + 70)
    (finding,) = verify(data)
    assert finding.severity is Severity.WARNING
    assert finding.position == rows[1].position


def test_a_torn_tail_is_no_error_after_a_kill_and_one_after_a_clean_stop(data):
    last = logs(data)[-1]
    size = last.stat().st_size
    last.write_bytes(last.read_bytes()[:-10])
    found = verify(data)
    assert len(errors(found)) == 2
    assert any("recovery point is 180" in each.what for each in found)
    kill(data, recovery_point=10)
    (finding, *rest) = [each for each in verify(data) if each.path.endswith(".log")]
    assert rest == []
    assert finding.severity is Severity.WARNING
    assert "cuts it off" in finding.fix
    assert finding.position < size - 10


def test_zeros_behind_the_log_are_a_torn_tail(data):
    kill(data, recovery_point=10)
    last = logs(data)[-1]
    last.write_bytes(last.read_bytes() + bytes(100))
    (finding,) = verify(data)
    assert (finding.severity, finding.path) == (Severity.WARNING, str(last))


def test_a_recovery_point_beyond_the_end(data):
    logs(data)[-1].unlink()
    found = verify(data)
    assert any("recovery point is 180" in each.what for each in errors(found))
    _, findings = examine(RealDisk(), str(data))
    assert any("recovery point is 180" in each.what for each in errors(findings))


def test_a_missing_segment_in_the_middle(data):
    logs(data)[1].unlink()
    (finding,) = [each for each in verify(data) if each.path.endswith(".log")]
    assert "are in no segment" in finding.what


def test_no_segment_at_all(data):
    for path in logs(data):
        path.unlink()
    assert any("no segments" in each.what for each in errors(verify(data)))


@pytest.mark.parametrize(("suffix", "position"), [("index", 3), ("index", 6), ("timeindex", 7)])
def test_a_damaged_index_is_a_warning_that_says_it_is_rebuilt(data, suffix, position):
    path = min(partition(data).glob(f"*.{suffix}"))
    flip(path, position)
    (finding,) = verify(data)
    assert (finding.severity, finding.path) == (Severity.WARNING, str(path))
    assert "rebuilt" in finding.fix


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_that_is_cut_short_inside_an_entry(data, suffix):
    path = min(partition(data).glob(f"*.{suffix}"))
    path.write_bytes(path.read_bytes()[:-3])
    found = verify(data)
    assert [each.path for each in found] == [str(path)]
    assert isinstance(list(dump_file(RealDisk(), str(path)))[-1], Unreadable)


def test_missing_indexes_and_snapshots_are_no_findings(data):
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for path in partition(data).glob(pattern):
            path.unlink()
    assert verify(data) == []


def test_a_damaged_snapshot_and_one_beyond_the_end(data):
    newest = max(partition(data).glob("*.snapshot"))
    content = newest.read_bytes()
    newest.with_name(f"{500:020d}.snapshot").write_bytes(content)
    flip(newest, 12)
    assert [each.what for each in verify(data)] == [
        "not a snapshot, or its sum is wrong",
        "taken at offset 500; the log ends at 180",
    ]


def test_a_wrong_epoch_checkpoint(data):
    path = partition(data) / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n1 77\n")
    (finding,) = verify(data)
    assert finding.what == "epoch 1 begins at 77; the log says 90"
    path.write_text("rubbish")
    assert [each.what for each in verify(data)] == ["not exactly a leader epoch checkpoint"]


def test_segments_that_overlap(data):
    first, second, *_ = logs(data)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    assert any("two segments hold the same" in each.why for each in errors(verify(data)))


def test_deep_finds_records_that_no_sum_protects(data, make_manager):
    """A producer's bug, or an attacker's file: the sum is right, the records are not."""
    from ottla.records.batch import batch_crc

    last = logs(data)[-1]
    rows = list(dump_file(RealDisk(), str(last)))
    uncompressed = next(row for row in rows if row.codec == "none")
    content = bytearray(last.read_bytes())
    content[uncompressed.position + 61] ^= 0x7F
    end = uncompressed.position + uncompressed.size_bytes
    crc = batch_crc(memoryview(content)[uncompressed.position : end])
    content[uncompressed.position + 17 : uncompressed.position + 21] = crc.to_bytes(4, "big")
    last.write_bytes(content)
    assert verify(data) == []
    (finding,) = verify(data, deep=True)
    assert finding.position == uncompressed.position


def test_records_are_dumped_as_they_stand(data):
    first = str(logs(data)[0])
    for row in dump_file(RealDisk(), first):
        assert isinstance(row, DumpedBatch)
        records = records_of(RealDisk(), first, row)
        assert [record.offset for record in records] == [
            *range(row.base_offset, row.last_offset + 1)
        ]


def test_every_known_file_is_dumped(data):
    known = {".log", ".index", ".timeindex", ".snapshot"}
    for path in data.rglob("*"):
        if path.is_dir():
            continue
        rows = dump_file(RealDisk(), str(path))
        if path.suffix in known or path.name.endswith("checkpoint") or "meta" in path.name:
            assert rows is not None, path
            assert not any(isinstance(row, Unreadable) for row in rows), path
        else:
            assert rows is None, path


def test_a_running_broker_is_seen(data, make_manager):
    manager = make_manager(RealDisk(), str(data.parent))
    manager.start()
    directory, _ = examine(RealDisk(), str(data))
    assert directory.locked_by is not None
    assert verify(data) == []
    manager.stop()
    assert examine(RealDisk(), str(data))[0].locked_by is None


def test_what_doctor_finds_odd(data):
    (data / "meta.properties").write_text("version=7\n")
    (data / "recovery-point-offset-checkpoint").write_text("0\n2\nflights 0 180\ngone 3 17\n")
    (data / "log-start-offset-checkpoint").write_text("torn")
    (partition(data) / "00000000000000000000.log.swap").write_bytes(b"")
    (partition(data) / "partition.metadata").unlink()
    kill(data)
    _, findings = examine(RealDisk(), str(data))
    texts = " | ".join(f"{each.path} {each.what}" for each in findings)
    for expected in (
        "meta.properties it cannot be read",
        "1 partitions without a directory: gone-3",
        "log-start-offset-checkpoint it cannot be read",
        "compaction was decided",
        "no topic id",
        "was killed",
    ):
        assert expected in texts, texts
    assert all(each.what and each.fix for each in findings)


def abort_index(data, *entries):
    from ottla.log.segment.transaction_index import ENTRY

    path = partition(data) / f"{0:020d}.txnindex"
    path.write_bytes(b"".join(ENTRY.pack(0, *entry) for entry in entries))
    return path


def test_a_transaction_index_is_dumped_and_verified(data):
    path = abort_index(data, (7, 1, 5, 6), (8, 2, 9, 10))
    rows = list(dump_file(RealDisk(), str(path)))
    assert [tuple(row) for row in rows] == [(0, 7, 1, 5, 6), (0, 8, 2, 9, 10)]
    assert verify(data) == []


@pytest.mark.parametrize(
    "entries", [[(7, 1, 5000, 6)], [(7, 1, 9, 10), (7, 1, 9, 10)], [(7, 9, 5, 6)]]
)
def test_a_wrong_transaction_index_is_a_warning(data, entries):
    path = abort_index(data, *entries)
    (finding,) = verify(data)
    assert (finding.severity, finding.path) == (Severity.WARNING, str(path))


def test_a_transaction_index_cut_inside_an_entry(data):
    path = abort_index(data, (7, 1, 5, 6))
    path.write_bytes(path.read_bytes() + bytes([1, 2, 3]))
    (finding,) = verify(data)
    assert "not a multiple of 34" in finding.what
