"""Exported files back to a topic, as one task hands them to the writer, without a broker."""

import pytest

pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa
from pyarrow import parquet as pq

from ottla.client.wire.settings import ClientSettings
from ottla.spark.exporting import import_task
from ottla.spark.exporting.export_log import ExportedFile
from ottla.spark.exporting.import_task import ImportTask, write_files
from ottla.spark.writing.write_settings import WriteOptions


class Writer:
    def __init__(self, rows):
        self.rows = rows

    def write(self, batch):
        self.rows.extend(batch.to_pylist())

    def finish(self):
        pass

    def abort(self):
        pass


@pytest.mark.parametrize("columns", [("value",), ("value", "partition"), ("offset", "value")])
@pytest.mark.parametrize(("keep", "where"), [(True, {"partition": 3}), (False, {})])
def test_rows_go_back_to_their_partition_whatever_columns_were_exported(
    columns, keep, where, tmp_path, monkeypatch
):
    """Without the column partition, keys chose it, and who has none went anywhere."""
    rows = []
    monkeypatch.setattr(import_task, "RowsWriter", lambda *_: Writer(rows))
    there = {"value": [b"a", b"b"], "partition": [3, 3], "offset": [7, 8]}
    table = pa.table({name: there[name] for name in columns})
    pq.write_table(table, tmp_path / "f.parquet")
    file = ExportedFile("staged", "f.parquet", 3, 7, 2, 100)
    task = ImportTask(ClientSettings(), WriteOptions(topic="t"), str(tmp_path), keep)
    assert write_files(task, [file]) == 2
    assert rows == [{"value": b"a", **where}, {"value": b"b", **where}]
