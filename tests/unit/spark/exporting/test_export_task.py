"""Rows to Parquet files as one task writes them, without a session or a broker."""

import re

import pytest

pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa
from pyarrow import parquet as pq

from ottla.spark.exporting import export_task
from ottla.spark.exporting.export_task import ExportTask, divide, write_range
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import parse_options
from ottla.spark.reading.columns import arrow_schema

HOUR = 3_600_000_000
OPTIONS = parse_options({"kafka.bootstrap.servers": "x:1", "subscribe": "t"})
RANGE = OffsetRange("t", 3, 100, 200)


def batch(keys, hours, first=100):
    count = len(keys)
    return pa.record_batch(
        [
            keys,
            [b"v%d" % number for number in range(count)],
            ["t"] * count,
            [3] * count,
            list(range(first, first + count)),
            [hour * HOUR for hour in hours],
            [0] * count,
        ],
        schema=arrow_schema(OPTIONS.columns),
    )


@pytest.fixture
def write(tmp_path, monkeypatch):
    def run(batches, partition_by=()):
        monkeypatch.setattr("ottla.spark.reading.read.read_range", lambda *_: iter(batches))
        task = ExportTask(OPTIONS, partition_by, str(tmp_path), "snappy")
        files = write_range(task, RANGE, "7")
        return {file.path: pq.read_table(tmp_path / file.staged).to_pylist() for file in files}

    return run


def test_all_rows_come_back_as_they_were(write, tmp_path):
    batches = [batch([b"a", None, b""], [1, 2, 3]), batch([b"\xff"], [4], 103)]
    found = write(batches)
    assert list(found) == ["part-3-00000000000000000100.parquet"]
    expected = [row for each in batches for row in each.to_pylist()]
    assert found["part-3-00000000000000000100.parquet"] == expected


def test_the_schema_is_what_spark_expects(write, tmp_path):
    write([batch([b"a"], [1])])
    schema = pq.read_schema(next(tmp_path.iterdir()))
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("key").type == pa.binary()


def test_days_and_hours_become_directories(write):
    found = write([batch([b"a", b"b", b"c"], [0, 23, 24 * 365])], ("date", "hour"))
    assert {
        path.rpartition("/")[0]: [row["key"] for row in rows] for path, rows in found.items()
    } == {
        "date=1970-01-01/hour=00": [b"a"],
        "date=1970-01-01/hour=23": [b"b"],
        "date=1971-01-01/hour=00": [b"c"],
    }


def test_keys_become_directories_that_any_file_system_bears():
    keys = [b"UA", None, b"a/b", b"..", b"\xff=", "é".encode(), b""]
    names = {name for name, _ in divide(batch(keys, range(len(keys))), ("key",))}
    none = "key_text=__HIVE_DEFAULT_PARTITION__/"
    assert names == {
        "key_text=UA/", none, "key_text=a%2Fb/", "key_text=%2E%2E/", "key_text=%FF%3D/",
        "key_text=%C3%A9/",
    }  # fmt: skip


@pytest.mark.parametrize("byte", [b"k", b".", b"\xff", b"\xc3\xa9"])
@pytest.mark.parametrize("count", [70, 80, 81, 240, 241, 300, 5000])
def test_a_key_of_any_length_is_a_name_that_file_systems_bear(byte, count):
    keys = [byte * count, byte * count + b"1", byte * (count - 1)]
    names = [name for name, _ in divide(batch(keys, range(3)), ("key",))]
    assert len(set(names)) == 3
    for name in names:
        assert len(name.encode()) <= 255
        assert not re.search("%(?![0-9A-F]{2})", name)  # no half of an escape


def test_a_time_that_no_calendar_has_is_a_directory_all_the_same():
    """Microseconds where milliseconds belong: the year is 55,000."""
    hours = [0, 80_000_000, 470_000_000]
    names = [name for name, _ in divide(batch([b"a", b"b", b"c"], hours), ("date",))]
    none = "date=__HIVE_DEFAULT_PARTITION__/"
    assert names == ["date=1970-01-01/", none, none]


def test_a_time_that_is_null_loses_no_row():
    """Nanoseconds where milliseconds belong."""
    rows = batch([b"a", b"b", b"c"], [1, 1, 1])
    at = rows.schema.get_field_index("timestamp")
    column = pa.array([None, HOUR, None], rows.schema.field(at).type)
    rows = rows.set_column(at, rows.schema.field(at), column)
    found = dict(divide(rows, ("date", "hour")))
    null = "__HIVE_DEFAULT_PARTITION__"
    assert {name: part.column("key").to_pylist() for name, part in found.items()} == {
        f"date={null}/hour={null}/": [b"a", b"c"],
        "date=1970-01-01/hour=01/": [b"b"],
    }


def test_a_time_before_1970_is_in_its_day():
    names = [name for name, _ in divide(batch([b"a"], [-1]), ("date", "hour"))]
    assert names == ["date=1969-12-31/hour=23/"]


def test_rows_keep_their_order_within_a_directory():
    found = dict(divide(batch([b"a", b"b", b"a", b"b"], [1] * 4), ("key",)))
    assert found["key_text=a/"].column("offset").to_pylist() == [100, 102]


def test_many_directories_are_held_in_bounded_memory(write, monkeypatch):
    """Each of 64 files held up to 64 MiB, 4 GiB a task."""
    held, files = [], []

    class Noted(export_task._File):
        def write(self, rows):
            files.append(self)
            more = super().write(rows)
            held.append(sum(each.gathered_bytes for each in set(files)))
            return more

    monkeypatch.setattr(export_task, "_File", Noted)
    monkeypatch.setattr(export_task, "GATHERED_BYTES_MAX", 100_000)
    keys = [b"%d" % (number % 20) for number in range(1_000)]
    batches = [batch(keys[at : at + 50], [1] * 50, 100 + at) for at in range(0, 1_000, 50)]
    found = write(batches, ("key",))
    assert max(held) < 100_000 + 10_000
    assert len(found) == 20
    assert sorted(row["offset"] for rows in found.values() for row in rows) == list(
        range(100, 1_100)
    )


def test_a_range_without_records_makes_no_file(write):
    assert write([]) == {}


def test_many_directories_do_not_keep_many_files_open(write, monkeypatch):
    monkeypatch.setattr(export_task, "OPEN_FILES_MAX", 2)
    keys = [b"%d" % (number % 5) for number in range(20)]
    found = write([batch(keys[:10], [1] * 10), batch(keys[10:], [1] * 10, 110)], ("key",))
    assert len(found) > 5
    offsets = sorted(row["offset"] for rows in found.values() for row in rows)
    assert offsets == list(range(100, 120))


def test_a_failure_leaves_no_file_that_counts(write, tmp_path):
    def broken():
        yield batch([b"a"], [1])
        raise ValueError("the broker is gone")

    with pytest.raises(ValueError, match="the broker is gone"):
        write(broken())


def test_large_inputs_become_several_row_groups(write, tmp_path, monkeypatch):
    monkeypatch.setattr(export_task, "ROW_GROUP_BYTES", 1)
    write([batch([b"a"], [1]), batch([b"b"], [1], 101)])
    assert pq.ParquetFile(next(tmp_path.iterdir())).num_row_groups == 2
