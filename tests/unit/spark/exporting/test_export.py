"""What a continued export must agree in with what is there."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa
from pyarrow import parquet

from ottla.env.real_disk import RealDisk
from ottla.spark.exporting.export import (
    _as_before,
    _require_names,
    _require_same,
    _require_topic,
    _value_type,
    from_parquet,
    to_parquet,
)
from ottla.spark.exporting.export_log import (
    RAW,
    Commit,
    ExportedFile,
    ExportError,
    ExportLog,
    Layout,
)
from ottla.spark.offsets import OffsetRange
from ottla.spark.option_table import Use
from ottla.spark.options import parse_options
from ottla.spark.values.ddl import parse_schema

TYPED = "struct<a:int>"
RAW_ROWS = pa.table({"key": pa.array([b"k"]), "value": pa.array([b"v"])})
TYPED_ROWS = pa.table({"value": pa.array([{"a": 1}])})


def layout(value):
    return Layout("t", "ab", ("key", "value"), (), value)


@pytest.fixture
def log_of_an_older_version(tmp_path):
    """Its commits tell no type of the values; the files do."""

    def make(rows):
        parquet.write_table(rows, tmp_path / "part.parquet")
        files = (ExportedFile("s", "part.parquet", 0, 0, 1, 1),)
        commits = [Commit(1, layout(None), (), ()), Commit(2, layout(None), (), files)]
        return SimpleNamespace(directory=str(tmp_path), commits=commits)

    return make


@pytest.mark.parametrize(
    "text", ["a struct<x int, X int>", "a array<map<string, struct<b int, x int, X int>>>"]
)
def test_names_that_differ_in_their_case_only_are_no_files(text):
    """Spark reads no such directory: COLUMN_ALREADY_EXISTS."""
    with pytest.raises(ExportError, match="differ in their case only"):
        _require_names(parse_schema(text))
    _require_names(parse_schema("a struct<x int>, x int, b array<int>, c map<string, int>"))


@pytest.mark.parametrize("name", ["records_per_file", "records_per_commit"])
@pytest.mark.parametrize("count", [0, -1])
def test_files_and_commits_have_a_record_at_least(tmp_path, name, count):
    """With a file of -1 records nothing was written, and nothing said."""
    with pytest.raises(ExportError, match=f"{name} is {count}: give 1 or more"):
        to_parquet("t", str(tmp_path), bootstrap="h:1", **{name: count})


@pytest.mark.parametrize(("rows", "value"), [(RAW_ROWS, RAW), (TYPED_ROWS, TYPED)])
def test_an_older_versions_export_is_gone_on_with(log_of_an_older_version, rows, value):
    _require_same(log_of_an_older_version(rows), layout(value))


@pytest.mark.parametrize(("rows", "value"), [(RAW_ROWS, TYPED), (TYPED_ROWS, RAW)])
def test_raw_and_typed_values_are_not_mixed_with_an_older_versions(
    log_of_an_older_version, rows, value
):
    with pytest.raises(ExportError, match="a directory keeps one form"):
        _require_same(log_of_an_older_version(rows), layout(value))


def test_an_older_versions_export_of_nothing_takes_any_type():
    nothing = SimpleNamespace(directory="/none", commits=[Commit(1, layout(None), (), ())])
    _require_same(nothing, layout(TYPED))


def test_offsets_of_one_topic_never_count_for_another_of_its_name():
    """It was deleted and made anew between the look at its id and that at its offsets."""
    (old, new) = (bytes(15) + b"\1", bytes(15) + b"\2")
    there = Layout("t", old.hex(), ("value",), ())
    _require_topic([OffsetRange("t", 0, 0, 5, old)], there)
    _require_topic([OffsetRange("t", 0, 0, 5)], there)
    with pytest.raises(ExportError, match="made anew"):
        _require_topic([OffsetRange("t", 0, 0, 5, old), OffsetRange("t", 1, 0, 5, new)], there)


def test_rows_whose_order_is_not_known_are_not_written_back(tmp_path):
    """Sorting them ended the job with a missing column."""
    log = ExportLog.open(RealDisk(), str(tmp_path))
    try:
        number, _ = log.begin()
        log.add(Commit(number, Layout("t", "", ("value", "timestamp"), ("date",)), (), ()))
    finally:
        log.close()
    with pytest.raises(ExportError, match="by date and without the column offset"):
        from_parquet(str(tmp_path), "t", bootstrap="127.0.0.1:1")


def test_an_export_keeps_its_columns_when_the_subject_gets_a_newer_schema():
    """A call each hour would fail for ever from the hour on in which a field was added."""
    from ottla.schemas import Schema, SchemaRegistry
    from ottla.testing import SchemaRegistry as RegistryForTests

    with RegistryForTests() as server:
        client = SchemaRegistry(server.url)
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": "avro"}
        given["schema.registry.url"] = server.url
        for count in (1, 2):
            fields = [{"name": f"f{each}", "type": "int", "default": 0} for each in range(count)]
            text = json.dumps({"type": "record", "name": "R", "fields": fields})
            client.register("t-value", Schema(text))
        source = parse_options(given, Use.BATCH)

        def told(there):
            commits = [SimpleNamespace(layout=layout(there))] if there else []
            return _value_type(_as_before(source, SimpleNamespace(commits=commits)))

        both = "struct<f0:int,f1:int>"
        assert told("struct<f0:int>") == "struct<f0:int>"
        assert [told(there) for there in (None, both, RAW, "struct<f9:int>")] == [both] * 4
