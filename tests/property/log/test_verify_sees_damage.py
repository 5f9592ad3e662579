"""``log verify`` sees every wrong byte of a log file, and trips over none of any file."""

import functools

from hypothesis import given
from hypothesis import strategies as st

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.inspect.dump import DumpedBatch, dump_file, records_of
from ottla.log.inspect.examine import examine
from ottla.log.inspect.findings import Finding, Severity
from ottla.log.inspect.verify import verify_partition
from ottla.records.builder import build_batch
from ottla.records.record import Record

TP = TopicPartition("t", 0)
NOW = 1_700_000_000_000


@functools.cache
def files():
    """The files of a cleanly stopped data directory, by path."""
    disk = MemoryDisk()
    disk.make_directory("/data")
    manager = LogManager(
        disk=disk,
        clock=ManualClock(NOW),
        rng=SeededRng(7),
        log_dirs=["/data/logs"],
        cluster_id="c",
        node_id=1,
        config_for=lambda topic: LogConfig(segment_bytes=1500, index_interval_bytes=200),
    )
    manager.start()
    log = manager.create(TP, TopicId(b"0123456789abcdef"))
    for number in range(20):
        records = [Record(timestamp=NOW + number, key=b"k", value=b"%d" % number * 20)] * 2
        fields = {"producer_id": 3, "producer_epoch": 0, "base_sequence": 2 * number}
        batch = build_batch(records, codec=number % 5, **fields)
        log.append(memoryview(batch), leader_epoch=number // 10)
    manager.stop()
    found = {}
    for directory in ("/data/logs", f"/data/logs/{TP}"):
        for name in disk.list_directory(directory):
            path = f"{directory}/{name}"
            if not disk.is_directory(path):
                file = disk.open_read_only(path)
                found[path] = file.read_at(0, file.size())
    return found


def damaged(path, content):
    disk = MemoryDisk()
    for directory in ("/data", "/data/logs", f"/data/logs/{TP}"):
        disk.make_directory(directory)
    for name, data in files().items():
        disk.open(name, create=True).write_at(0, content if name == path else data)
    return disk


@given(st.data())
def test_a_wrong_byte_in_a_log_is_seen_and_elsewhere_does_no_harm(data):
    sizes = {path: len(content) for path, content in files().items() if content}
    path = data.draw(st.sampled_from(sorted(sizes)), label="file")
    position = data.draw(st.integers(0, sizes[path] - 1), label="position")
    content = bytearray(files()[path])
    is_cut = data.draw(st.booleans(), label="cut")
    if is_cut:
        del content[position:]
    else:
        content[position] ^= data.draw(st.integers(1, 255), label="change")
    disk = damaged(path, bytes(content))
    directory, findings = examine(disk, "/data/logs")
    outcomes = verify_partition(disk, f"/data/logs/{TP}", directory.claims_of(TP), deep=True)
    findings += [each for each in outcomes if isinstance(each, Finding)]
    if path.endswith(".log"):
        # A cut between two batches looks like what compaction leaves.
        enough = {Severity.ERROR, Severity.WARNING} if is_cut else {Severity.ERROR}
        assert any(each.severity in enough and str(TP) in each.path for each in findings)
    for row in dump_file(disk, path) or ():
        if isinstance(row, DumpedBatch):
            records_of(disk, path, row)
