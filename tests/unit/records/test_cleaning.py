"""The cleaner's loops, compiled and interpreted: the hash, the map, the filter, batch by batch."""

import importlib.util
from array import array
from pathlib import Path

import pytest

import ottla.records
from ottla.records import batch_walk
from ottla.records import cleaning as imported_cleaning
from ottla.records import cleaning_scope as fields
from ottla.records.batch import (
    BASE_TIMESTAMP_POSITION,
    HEADER_SIZE_BYTES,
    TimestampType,
    batch_crc,
    patch_offsets,
    read_header,
)
from ottla.records.builder import build_batch
from ottla.records.decode import decode_batches
from ottla.records.record import Record
from ottla.records.siphash import siphash

NOW = 1_700_000_000_000
NONE = array("q")


def interpreted(name):
    path = Path(ottla.records.__path__[0]) / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"interpreted_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["compiled", "interpreted"])
def kernel(request):
    if request.param == "compiled":
        if not imported_cleaning.COMPILED:
            pytest.skip("the extension is not built: python setup.py build_ext --inplace")
        return imported_cleaning
    return interpreted("cleaning")


@pytest.fixture
def table(kernel):
    return array("Q", bytes(24 * 64))


def make(records, offset, **options):
    """``records``: (key, value) or (key, value, timestamp)."""
    built = [
        Record(timestamp=rest[0] if rest else NOW, key=key, value=value, headers=(("h", b"x"),))
        for key, value, *rest in records
    ]
    batch = build_batch(built, **options)
    patch_offsets(batch, offset, 3)
    return batch


def told(data):
    """Return (offset, key, value, timestamp) of every record, and check every sum."""
    return [
        (record.offset, record.key, record.value, record.timestamp)
        for decoded in decode_batches(data, 1 << 20)
        for record in decoded.records
    ]


def scope_of(kernel, *, seeds=(1, 2), capacity=60, first=0, latest=-1, now=NOW, horizon=NOW + 100):
    scope = array("q", bytes(8 * fields.SCOPE_SIZE))
    scope[fields.SEED_LOW], scope[fields.SEED_HIGH] = seeds
    scope[fields.CAPACITY], scope[fields.FIRST_OFFSET] = capacity, first
    scope[fields.LATEST_OFFSET], scope[fields.NEXT_OFFSET] = latest, -1
    scope[fields.NOW_MS], scope[fields.HORIZON_MS] = now, horizon
    return scope


def run_map(kernel, chunk, table, **options):
    """Return (why it ended, position, slots used, next offset)."""
    scope = scope_of(kernel, **options)
    ended = kernel.map_batches(chunk, table, scope)
    return ended, *(scope[at] for at in (fields.POSITION, fields.USED, fields.NEXT_OFFSET))


def end_of_filter(kernel, chunk, out, table, latest, *, retained=NONE, **options):
    """Return (why it ended, position, output position)."""
    scope = scope_of(kernel, latest=latest, **options)
    ended = kernel.filter_batches(chunk, out, table, scope, retained)
    return ended, scope[fields.POSITION], scope[fields.OUT_POSITION]


def run_filter(kernel, chunk, table, latest, **options):
    out = bytearray(2 * len(chunk) + 1000)
    ended, position, end = end_of_filter(kernel, chunk, out, table, latest, **options)
    assert ended == fields.DONE
    return position, bytes(out[:end])


def offset_in(kernel, key, table, **options):
    return kernel.last_offset_of(key, table, scope_of(kernel, **options))


def hash_of(kernel, key, seeds):
    """Return the two halves of the hash, the low one first, from the slot of a key in the map."""
    table = array("Q", bytes(24 * 2))
    run_map(kernel, make([(key, b"")], 7), table, capacity=2, seeds=seeds)
    (at,) = (at for at in (0, 3) if table[at + 2] == 8)
    return table[at], table[at + 1]


def test_the_hash_is_the_published_one(kernel):
    seeds = [int.from_bytes(bytes(range(at, at + 8)), "little") for at in (0, 8)]
    expected = {
        b"": "a3817f04ba25a8e66df67214c7550293",
        b"\0": "da87c1d86b99af44347659119b22fc45",
    }
    for key, digest in expected.items():
        halves = hash_of(kernel, key, seeds)
        assert b"".join(half.to_bytes(8, "little") for half in halves).hex() == digest


def test_both_forms_hash_alike(kernel):
    for n in range(40):
        key = bytes(range(n))
        expected = siphash(key, 0, n, 2**64 - 1, 2**63)
        assert hash_of(kernel, key, (-1, -(2**63))) == expected


def entries_of(module, data, size_bytes, **fields_set):
    """Return the index entries of ``data`` as tuples, and the state after."""
    state = array("q", bytes(8 * module.WALK_STATE_SIZE))
    for name, value in fields_set.items():
        state[getattr(module, name)] = value
    entries = array("q", bytes(8 * module.ENTRY_WORDS * 10))
    count = module.index_batches(data, size_bytes, state, entries)
    return [tuple(entries[4 * at : 4 * at + 4]) for at in range(count)], state


@pytest.mark.parametrize("form", ["compiled", "interpreted"])
def test_an_index_gets_an_entry_every_so_many_bytes(form):
    walk = batch_walk
    if form == "interpreted":
        walk = interpreted("batch_walk")
    elif not batch_walk.COMPILED:
        pytest.skip("the extension is not built: python setup.py build_ext --inplace")
    batches = [
        make([(b"k", b"v", NOW + late)], 10 * at) for at, late in enumerate((5, 9, 9, 1, 20))
    ]
    size = len(batches[0])
    assert {len(batch) for batch in batches} == {size}
    entries, state = entries_of(
        walk,
        b"".join(batches) + b"what is not written",
        5 * size,
        POSITION=1000,
        INDEX_INTERVAL=2 * size - 1,
        BYTES_SINCE_ENTRY=0,
        LATEST_TIMESTAMP=-1,
    )
    assert entries == [
        (1000 + 2 * size, 20, NOW + 9, 10),
        (1000 + 4 * size, 40, NOW + 20, 40),
    ]
    assert state[walk.POSITION] == 1000 + 5 * size
    assert (state[walk.LATEST_TIMESTAMP], state[walk.LATEST_OFFSET]) == (NOW + 20, 40)
    assert state[walk.BYTES_SINCE_ENTRY] == size


def test_the_map_has_the_last_offset_of_each_key(kernel, table):
    chunk = make([(b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"a", None)], 10)
    chunk += make([(b"", b"1"), (b"c" * 100, b"2")], 20)
    whole = len(chunk)
    chunk += make([(b"z", b"1")], 30)[:-1]
    assert run_map(kernel, chunk, table, capacity=60, first=0, seeds=(1, 2)) == (
        fields.DONE,
        whole,
        4,
        22,
    )
    found = [
        offset_in(kernel, key, table, seeds=(1, 2)) for key in (b"a", b"b", b"", b"c" * 100, b"z")
    ]
    assert found == [13, 11, 20, 21, -1]


def test_records_below_the_first_dirty_offset_are_passed_over(kernel, table):
    chunk = make([(b"a", b"1"), (b"b", b"2")], 10) + make([(b"c", b"3")], 12)
    assert run_map(kernel, chunk, table, capacity=60, first=11, seeds=(1, 2))[2:] == (2, 13)
    assert offset_in(kernel, b"a", table, seeds=(1, 2)) == -1
    assert run_map(kernel, chunk, table, capacity=60, first=13, seeds=(1, 2))[2:] == (0, -1)


def test_a_full_map_takes_known_keys_only(kernel, table):
    first = make([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], 0)
    chunk = first + make([(b"b", b"1"), (b"c", b"1")], 3)
    ended = run_map(kernel, chunk, table, capacity=2, first=0, seeds=(1, 2))
    assert ended == (fields.FULL, len(first), 2, 3)


def test_many_keys_meet_in_the_table_and_none_is_mistaken(kernel):
    table = array("Q", bytes(24 * 310))
    chunk = make([(b"%d" % n, b"") for n in range(300)], 1000)
    assert run_map(kernel, chunk, table, capacity=300, first=0, seeds=(7, 8))[2] == 300
    for n in range(300):
        assert offset_in(kernel, b"%d" % n, table, seeds=(7, 8)) == 1000 + n
    assert offset_in(kernel, b"300", table, seeds=(7, 8)) == -1


@pytest.mark.parametrize("options", [{"codec": 3}, {"transactional": True}, {"control": True}])
def test_what_is_not_plain_is_left_to_the_caller(kernel, table, options):
    plain = make([(b"a", b"1")], 0)
    chunk = plain + make([(b"a", b"1" * 100)], 1, **options)
    assert run_map(kernel, chunk, table, capacity=9, first=0, seeds=(1, 2))[:2] == (
        fields.SPECIAL,
        len(plain),
    )
    out = bytearray(1000)
    ended = end_of_filter(kernel, chunk, out, table, -1, now=0, horizon=0)
    assert ended == (fields.SPECIAL, len(plain), len(plain))


@pytest.mark.parametrize("at", [9, 16, 23, 30, 57, 60, 64, -1])
def test_a_rotten_batch_is_noticed(kernel, table, at):
    chunk = make([(b"a", b"1" * 50)], 0)
    chunk[at] ^= 0x40
    ended = run_map(kernel, chunk, table, capacity=9, first=0, seeds=(1, 2))[0]
    assert ended == (fields.DONE if at == 9 else fields.CORRUPT)
    out = bytearray(1000)
    ended = end_of_filter(kernel, chunk, out, table, 5, now=0, horizon=0)
    assert ended == (fields.DONE if at == 9 else fields.CORRUPT, 0, 0)


def test_records_that_do_not_fit_their_batch_are_noticed(kernel, table):
    records = bytes(make([(b"a", b"1"), (b"b", b"2")], 0)[HEADER_SIZE_BYTES:])
    out = bytearray(100)
    for wrong in (records[:-1], records + b"\0", records[:3], b"\x80" * 20, b"\x02\0\0"):
        scope = scope_of(kernel)
        assert kernel.map_records(wrong, 2, 0, table, scope) == fields.CORRUPT, wrong
        assert kernel.filter_records(wrong, 2, 0, out, table, scope) == -1, wrong


def test_superseded_records_go_and_offsets_stay(kernel, table):
    chunk = make([(b"a", b"1"), (b"b", b"2", NOW + 9), (b"c", b"3", NOW - 5)], 10, producer_id=5,
                 producer_epoch=1, base_sequence=7)  # fmt: skip
    whole = make([(b"d", b"4")], 13)
    chunk += whole + make([(b"a", b"5"), (b"b", b"6")], 14)
    run_map(kernel, chunk, table, capacity=60, first=0, seeds=(1, 2))
    _, out = run_filter(kernel, chunk, table, 15)
    assert [entry[:3] for entry in told(out)] == [
        (12, b"c", b"3"), (13, b"d", b"4"), (14, b"a", b"5"), (15, b"b", b"6")
    ]  # fmt: skip
    header = read_header(out)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 12, 1)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (5, 7, 9)
    assert (header.partition_leader_epoch, header.max_timestamp) == (3, NOW - 5)
    assert bytes(whole) in out


def test_nothing_above_the_latest_mapped_offset_goes(kernel, table):
    chunk = make([(b"a", b"1"), (None, b"2"), (b"a", b"3")], 0)
    run_map(kernel, chunk, table, capacity=60, first=0, seeds=(1, 2))
    assert [entry[0] for entry in told(run_filter(kernel, chunk, table, -1)[1])] == [0, 1, 2]
    assert [entry[0] for entry in told(run_filter(kernel, chunk, table, 0)[1])] == [1, 2]
    assert [entry[0] for entry in told(run_filter(kernel, chunk, table, 1)[1])] == [2]


def test_a_batch_without_records_goes_unless_its_end_is_retained(kernel, table):
    chunk = make([(b"a", b"1")], 0, producer_id=9, producer_epoch=2, base_sequence=4)
    chunk += make([(b"a", b"2")], 1)
    run_map(kernel, chunk, table, capacity=60, first=0, seeds=(1, 2))
    assert read_header(run_filter(kernel, chunk, table, 1)[1]).base_offset == 1
    _, out = run_filter(kernel, chunk, table, 1, retained=array("q", [-1, 0, 7]))
    header = read_header(out)
    assert (header.base_offset, header.record_count, header.size_bytes) == (0, 0, 61)
    assert (header.producer_id, header.last_sequence, header.base_timestamp) == (9, 4, -1)
    assert (header.max_timestamp, header.crc) == (NOW, batch_crc(memoryview(out)[:61]))
    again = run_filter(kernel, out, table, 1, retained=array("q", [0]))[1]
    assert again == out
    assert read_header(run_filter(kernel, out, table, 1)[1]).base_offset == 1


def test_tombstones_get_a_delete_horizon_and_go_after_it(kernel, table):
    chunk = make([(b"a", b"1", NOW), (b"b", None, NOW + 70_000), (b"c", b"3", NOW - 200)], 0)
    run_map(kernel, chunk, table, capacity=60, first=0, seeds=(1, 2))
    horizon = NOW + 10**9
    _, first = run_filter(kernel, chunk, table, 2, horizon=horizon)
    assert told(first) == told(chunk)
    header = read_header(first)
    assert header.has_delete_horizon
    assert (header.base_timestamp, header.max_timestamp) == (horizon, NOW + 70_000)
    # A second look before the horizon changes nothing, one at it drops the tombstone.
    assert run_filter(kernel, first, table, 2, now=horizon - 1, horizon=1)[1] == first
    _, second = run_filter(kernel, first, table, 2, now=horizon, horizon=1)
    assert [entry[0] for entry in told(second)] == [0, 2]
    assert read_header(second).has_delete_horizon
    assert told(second) == [told(chunk)[0], told(chunk)[2]]


def test_a_tombstone_above_the_mapped_part_gets_no_earlier_end(kernel, table):
    chunk = make([(b"b", None)], 0)
    run_map(kernel, chunk, table, capacity=60, first=0, seeds=(1, 2))
    _, first = run_filter(kernel, chunk, table, 0, horizon=NOW)
    assert told(run_filter(kernel, first, table, -1, now=NOW)[1]) == told(chunk)


def test_log_append_time_stays_the_time_of_all_records(kernel, table):
    chunk = make(
        [(b"a", b"1", 5), (b"b", None, 6)], 0, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    run_map(kernel, chunk + make([(b"a", b"2")], 2), table)
    _, out = run_filter(kernel, chunk, table, 2, horizon=NOW)
    assert told(out) == [(1, b"b", None, 6)]


def test_an_output_that_is_full_takes_no_half_batch(kernel, table):
    one = make([(b"a", b"1")], 0)
    chunk = one + make([(b"b", b"2" * 200)], 1)
    out = bytearray(len(one) + 100)
    ended = end_of_filter(kernel, chunk, out, table, -1, now=0, horizon=0)
    assert ended == (fields.FULL, len(one), len(one))


def test_a_longer_delta_fits_the_room_that_is_asked_for(kernel, table):
    records = [(b"k%d" % n, None, NOW) for n in range(50)]
    chunk = make(records, 0)
    run_map(kernel, chunk, table, capacity=60, first=0, seeds=(1, 2))
    out = bytearray(len(chunk) + 50 * fields.GROWTH_BYTES)
    ended, _, end = end_of_filter(kernel, chunk, out, table, 49, now=0, horizon=2**62)
    assert ended == fields.DONE
    assert told(out[:end]) == told(chunk)
    assert int.from_bytes(out[BASE_TIMESTAMP_POSITION:][:8], "big") == 2**62
