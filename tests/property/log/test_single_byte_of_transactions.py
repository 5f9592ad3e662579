"""One wrong byte in a partition with transactions: a good start or a named error, never wrong data.

The transaction index, too: Kafka's format of it has no checksum, so one stands beside it. Where
it is missing, in a directory that Kafka wrote, the log is asked.
"""

import itertools

import pytest

from ottla.client.wire.reading import read_records
from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.log.aborted import aborted_transactions
from ottla.log.append import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.directories.recovery import open_log
from ottla.log.segment.transaction_index import ENTRY
from ottla.records.batch_walk import next_offset
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.decode import decode_batches
from ottla.records.record import Record

pytestmark = pytest.mark.slow

NOW = 1_700_000_000_000
HISTORY = ("1", "2", "2a", "1", "3", "1c", "roll", "3", "2", "3a", "2", "1", "1a", "2c", "3")
"""A batch of that producer, or its abort or commit."""


def open_on(disk, *, recovery_point=0, clean=False):
    where = TopicPartition("t", 0)
    return open_log(
        disk,
        ManualClock(NOW),
        "/t-0",
        where,
        LogConfig(),
        recovery_point=recovery_point,
        log_start_offset=0,
        is_clean=clean,
    )


def write(log, step, sequences):
    producer_id = int(step[0])
    if step[1:]:
        word = ControlType.ABORT if step[1] == "a" else ControlType.COMMIT
        batch = build_end_transaction_marker(
            EndTransactionMarker(word, 0), producer_id=producer_id, producer_epoch=0,
            timestamp_ms=NOW,
        )  # fmt: skip
        log.append(memoryview(batch), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        return
    sequence = sequences.get(producer_id, 0)
    sequences[producer_id] = sequence + 1
    batch = build_batch(
        [Record(timestamp=NOW, value=b"%d:%d" % (producer_id, sequence))],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append(memoryview(batch), leader_epoch=0)


class NotContinuous(OttlaError):
    """What a client sees of a wrong base offset, which no checksum covers."""


def check_continuous(log):
    """Read all there is, committed or not, as a client that looks at offsets and checksums."""
    offset, end = 0, log.log_end_offset
    while offset < end:
        result = log.read(offset, max_bytes=1 << 20, upper_offset=end, min_one_message=True)
        for batch in decode_batches(result.region.read(), 1 << 20):
            header = batch.header
            if not header.base_offset <= offset < header.next_offset:
                raise NotContinuous
            offset = header.next_offset


def seen(log):
    """What committed readers get, and what is open."""
    transactions = log.producers.transactions
    transactions.commit_to(log.log_end_offset)
    upper = min(log.log_end_offset, transactions.first_unstable_offset)
    check_continuous(log)
    values, offset = [], 0
    while offset < upper:
        result = log.read(offset, max_bytes=1 << 20, upper_offset=upper, min_one_message=True)
        data = memoryview(result.region.read())
        told = aborted_transactions(log, offset, result, upper)
        aborted = [(one.producer_id, one.first_offset) for one in told]
        values += [one.value for one in read_records(data, offset, aborted)]
        offset = next_offset(data, offset)
    opened = {
        producer_id: state.current_transaction_first_offset
        for producer_id, state in log.producers.states
    }
    return values, opened, log.log_end_offset


def files_of(disk):
    files = {}
    for name in disk.list_directory("/t-0"):
        file = disk.open_read_only(f"/t-0/{name}")
        files[name] = file.read_at(0, file.size())
    return files


def disk_with(files):
    disk = MemoryDisk()
    disk.make_directory("/t-0")
    for name, content in files.items():
        disk.open(f"/t-0/{name}", create=True).write_at(0, content)
    return disk


@pytest.fixture(scope="module")
def stopped():
    """(files, what is seen, the log's end)."""
    disk = MemoryDisk()
    disk.make_directory("/t-0")
    log, sequences = open_on(disk), {}
    for step in HISTORY:
        if step == "roll":
            log.roll()
        else:
            write(log, step, sequences)
    expected = seen(log)
    assert expected[0] == [b"1:0", b"1:1", b"2:1", b"2:2"]
    assert expected[1] == {1: -1, 2: -1, 3: 13}
    log.close()
    files = files_of(disk)
    for suffix in (".txnindex", ".txnsum"):
        assert sum(name.endswith(suffix) for name in files) == 2
    return files, expected


def judge(files, name, expected, *, clean):
    try:
        log = open_on(disk_with(files), recovery_point=expected[2], clean=clean)
        found = seen(log)
    except OttlaError:
        assert name.endswith(".log"), "only a segment can be unreadable"
        return "named"
    assert found == expected
    return "served"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_wrong_byte_anywhere(stopped, clean, bit):
    files, expected = stopped
    outcomes = set()
    places = [
        (name, at)
        for name, content in files.items()
        for at in range(len(content))
        if name.startswith("0")  # The rest has nothing to do with transactions.
    ]
    for name, at in itertools.islice(places, bit, None, 3):
        content = bytearray(files[name])
        content[at] ^= 1 << bit
        try:
            outcomes.add(judge(files | {name: bytes(content)}, name, expected, clean=clean))
        except BaseException as error:
            error.add_note(f"bit {bit} of byte {at} in {name}")
            raise
    assert outcomes == {"served", "named"}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_an_index_that_cannot_be_right_is_found_anew(stopped, clean, seed):
    files, expected = stopped
    rng = SeededRng(seed)
    names = [name for name in files if name.endswith(".txnindex")]
    name = names[rng.random_below(len(names))]
    content = bytearray(files[name])
    at = rng.random_below(len(content) // ENTRY.size) * ENTRY.size
    match seed % 4:
        case 0:
            del content[at + 1 + rng.random_below(ENTRY.size - 1) :]
        case 1:
            content[at : at + ENTRY.size] = bytes(ENTRY.size)
        case 2:
            content[at] = 1
        case 3:
            content[at + 2] = 0x80
    log = open_on(
        disk_with(files | {name: bytes(content)}), recovery_point=expected[2], clean=clean
    )
    assert seen(log) == expected


@pytest.mark.parametrize("clean", [True, False])
def test_what_the_log_can_prove_is_not_believed_from_an_index_that_nothing_vouches_for(
    stopped, clean
):
    """As Kafka wrote it. A wrong producer, a wrong end, a beginning that is none."""
    files, expected = stopped
    kafkas = {name: data for name, data in files.items() if not name.endswith(".txnsum")}
    assert seen(open_on(disk_with(kafkas), recovery_point=expected[2], clean=clean)) == expected
    for name in [name for name in files if name.endswith(".txnindex")]:
        for at in range(len(files[name])):
            field = at % ENTRY.size
            if not 2 <= field < 26:
                continue  # The version, see above; the stable offset is not in the log.
            for bit in (0, 2):
                content = bytearray(files[name])
                content[at] ^= 1 << bit
                disk = disk_with(kafkas | {name: bytes(content)})
                log = open_on(disk, recovery_point=expected[2], clean=clean)
                assert seen(log) == expected, (name, at, bit)
                log.close()
                again = open_on(disk, recovery_point=expected[2], clean=True)
                assert seen(again) == expected
                vouched = [name for name in files_of(disk) if name.endswith(".txnsum")]
                assert len(vouched) == 2, "from now on"
