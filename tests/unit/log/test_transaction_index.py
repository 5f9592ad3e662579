"""The transaction index against a list, and its bytes."""

import errno

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SeededRng
from ottla.log.segment.transaction_index import ENTRY, AbortedTransaction, TransactionIndex

PATH = "/t/00000000000000000100.txnindex"
ONE = AbortedTransaction(4711, 90, 110, 95)
TWO = AbortedTransaction(4712, 95, 120, 121)


@pytest.fixture
def disk():
    disk = FaultyDisk(MemoryDisk(durability=True))
    disk.make_directory("/t")
    disk.sync_directory("/")
    return disk


def content(disk):
    file = disk.open_read_only(PATH)
    return file.read_at(0, file.size())


def loaded(disk):
    index = TransactionIndex(disk, PATH)
    assert index.load(100)
    return index


def test_the_fields_stand_where_kafka_puts_them(disk):
    index = TransactionIndex(disk, PATH)
    index.append(ONE)
    index.write()
    assert content(disk) == bytes.fromhex(
        "0000 0000000000001267 000000000000005a 000000000000006e 000000000000005f"
    )


def test_there_is_no_file_before_the_first_entry(disk):
    index = TransactionIndex(disk, PATH)
    index.write()
    index.sync()
    index.keep_below(0)
    found = []
    assert not index.collect(0, 2**62, found)
    assert not found
    assert not disk.exists(PATH)


@pytest.mark.parametrize(("count", "most"), [(300, 1), (600, 12)])
def test_a_search_in_a_short_index_reads_it_at_once(disk, monkeypatch, count, most):
    index = TransactionIndex(disk, PATH)
    for at in range(count):
        index.append(AbortedTransaction(1, 10 * at, 10 * at + 5, 10 * at + 6))
    index.write()
    calls = []
    monkeypatch.setattr(disk, "enter", lambda call, path: calls.append(call))
    found = []
    assert index.collect(10 * count - 30, 10 * count - 20, found)
    assert [one.first_offset for one in found] == [10 * count - 30]
    assert 0 < calls.count(DiskCall.READ) <= most


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_reader_whose_range_ends_before_its_transactions_costs_no_call_of_the_disk(
    disk, monkeypatch, is_loaded
):
    index = TransactionIndex(disk, PATH)
    for one in (ONE, TWO):
        index.append(one)
    index.sync()
    index = loaded(disk) if is_loaded else index
    monkeypatch.setattr(disk, "enter", lambda *call: pytest.fail(f"the disk was called: {call}"))
    found = []
    assert index.collect(80, 90, found), "the last stable offset was 95 at the first end, and above"
    index.let_go()
    for one in (80, 90), (85, 86):
        assert index.collect(*one, found)
    assert not index.collect(130, 140, found)
    assert found == []


def test_what_was_written_is_loaded_and_continued(disk):
    index = TransactionIndex(disk, PATH)
    index.append(ONE)
    index.write()
    again = loaded(disk)
    assert (again.count, again.last_offset) == (1, 110)
    again.append(TWO)
    again.write()
    assert list(loaded(disk).entries()) == [ONE, TWO]


def test_a_disk_that_refuses_costs_no_entry(disk):
    index = TransactionIndex(disk, PATH)
    index.append(ONE)
    index.write()
    disk.fail(DiskCall.WRITE, errno=errno.ENOSPC)
    index.append(TWO)
    index.write_quietly()
    assert list(index.entries()) == [ONE, TWO]
    found = []
    assert index.collect(115, 200, found) is False
    assert found == [TWO]
    index.sync()
    assert list(loaded(disk).entries()) == [ONE, TWO]


@pytest.mark.parametrize("place", ["memory", "real"])
def test_an_index_in_use_is_read_and_written_while_its_names_change(disk, tmp_path, place):
    where, path = (disk, PATH) if place == "memory" else (RealDisk(), str(tmp_path / "x.txnindex"))
    index = TransactionIndex(where, path + ".cleaned")
    index.append(ONE)
    index.sync()
    index.path = path
    assert list(index.entries()) == [ONE], "it has not got its name yet"
    where.rename(path + ".cleaned", path)
    index.append(TWO)
    index.sync()
    index.let_go()
    assert list(index.entries()) == [ONE, TWO]
    found = []
    index.collect(115, 200, found)
    assert found == [TWO]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_synced_survives_a_power_cut_with_its_name(seed):
    disk = MemoryDisk(durability=True)
    disk.make_directory("/t")
    disk.sync_directory("/")
    index = TransactionIndex(disk, PATH)
    index.append(ONE)
    index.sync()
    assert list(loaded(disk.crash(SeededRng(seed))).entries()) == [ONE]


GOOD = ENTRY.pack(0, *ONE)


@pytest.mark.parametrize("prefix", [b"", GOOD])
@pytest.mark.parametrize(
    "bad",
    [
        b"\0",
        ENTRY.pack(0, *TWO)[:-1],
        ENTRY.pack(1, *TWO),
        ENTRY.pack(0, 7, 80, 99, 80),
        ENTRY.pack(0, 7, 120, 120, 95),
        ENTRY.pack(0, -1, 95, 120, 121),
        ENTRY.pack(0, 7, -1, 120, 121),
        ENTRY.pack(0, 7, 95, 120, 122),
        bytes(ENTRY.size),
        bytes(ENTRY.size) + ENTRY.pack(0, *TWO),
    ],
    ids=str,
)
def test_what_cannot_be_an_entry_ends_what_is_believed(disk, prefix, bad):
    disk.open(PATH, create=True).write_at(0, prefix + bad)
    index = TransactionIndex(disk, PATH)
    assert not index.load(100)
    assert list(index.entries()) == ([ONE] if prefix else [])
    assert index.last_offset == (110 if prefix else -1)
    assert content(disk) == prefix + bad, "nothing is lost before it is clear what was there"
    index.cut()
    index.append(TWO)
    index.sync()
    assert list(loaded(disk).entries()) == ([ONE] if prefix else []) + [TWO]


def test_zeros_are_no_entry_of_the_first_segment_either(disk):
    disk.open(PATH, create=True).write_at(0, bytes(ENTRY.size))
    assert not TransactionIndex(disk, PATH).load(0)


transactions = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 40), st.integers(1, 9), st.integers(0, 60)),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(
    transactions,
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 400)), max_size=8),
    st.integers(0, 600),
    st.booleans(),
)
def test_it_answers_what_a_list_does(drawn, ranges, cut, is_written):
    disk = MemoryDisk()
    disk.make_directory("/t")
    index, model, last, stable = TransactionIndex(disk, PATH), [], 100, 0
    for producer_id, length, step, lag in drawn:
        last += step
        stable = max(stable, last + 1 - lag)
        model.append(AbortedTransaction(producer_id, max(last - length, 0), last, stable))
        index.append(model[-1])
        if is_written or producer_id == 0:
            index.write()
    for kept in (None, cut):
        if kept is not None:
            index.keep_below(kept)
            model = [one for one in model if one.last_offset < kept]
        assert list(index.entries()) == model
        assert index.count == len(model)
        assert index.last_offset == (model[-1].last_offset if model else -1)
        for start, length in ranges:
            found = []
            is_complete = index.collect(start, start + length, found)
            reached = [one for one in model if one.last_offset >= start]
            ends = [one.last_stable_offset >= start + length for one in reached]
            assert is_complete == any(ends)
            if is_complete:
                reached = reached[: ends.index(True) + 1]
            assert found == [one for one in reached if one.first_offset < start + length]
