"""The data source as Spark's own machinery sees it, without a session."""

import json
import pickle
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StringType, StructType

from ottla.spark.connection import OptionError
from ottla.spark.option_table import COLUMNS
from ottla.spark.planning.source import OttlaDataSource, OttlaReader, schema_of
from ottla.spark.reading.columns import arrow_schema

OPTIONS = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def test_spark_finds_it_by_itself():
    import pyspark_ottla

    assert issubclass(pyspark_ottla.DefaultSource, DataSource)
    assert pyspark_ottla.DefaultSource.name() == "ottla"


def test_an_incomplete_installation_breaks_no_other_query(monkeypatch):
    import pyspark_ottla

    monkeypatch.setitem(sys.modules, "ottla.spark.planning.source", None)  # importing it now fails
    monkeypatch.delitem(sys.modules, "pyspark_ottla")
    with pytest.warns(UserWarning, match="format 'ottla' is not available"):
        import pyspark_ottla as again
    assert again is not pyspark_ottla
    assert not hasattr(again, "DefaultSource")


@pytest.mark.parametrize("columns", [COLUMNS, (*COLUMNS, "headers"), ("headers", "value")])
def test_the_arrow_columns_are_those_that_spark_demands(columns):
    from pyspark.sql.pandas.types import to_arrow_schema

    assert to_arrow_schema(schema_of(columns), timezone="UTC").equals(arrow_schema(columns))


def test_the_reader_travels_to_executors():
    reader = OttlaDataSource(OPTIONS).reader(schema_of())
    assert isinstance(pickle.loads(pickle.dumps(reader)), OttlaReader)


def test_nothing_to_read_is_no_rows():
    reader = OttlaDataSource(OPTIONS).reader(schema_of())
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize("version", ["4.1.1", "4.0.0.dev3"])
def test_an_older_spark_is_told_that_streams_need_a_newer_one(monkeypatch, version):
    monkeypatch.setattr("pyspark.__version__", version)
    source = OttlaDataSource({**OPTIONS, "topic": "t"})
    for ask in (lambda: source.streamReader(schema_of()), lambda: source.streamWriter(None, False)):
        with pytest.raises(OptionError, match=rf"need pyspark 4.2 or newer, this is {version}"):
            ask()


def test_a_schema_of_ones_own_is_refused():
    with pytest.raises(OptionError, match="has its own columns"):
        OttlaDataSource(OPTIONS).reader(StructType().add("name", StringType()))


@pytest.fixture
def registry():
    from ottla.schemas import SchemaRegistry
    from ottla.testing import SchemaRegistry as RegistryForTests

    with RegistryForTests() as server:
        yield SchemaRegistry(server.url), server.url


def test_a_frame_outlives_a_new_schema_of_its_subject(registry):
    """Spark plans a frame anew for each query, and asks for the columns it was made with."""
    from ottla.schemas import Schema

    client, url = registry
    given = {**OPTIONS, "value.format": "avro", "schema.registry.url": url, "columns": "value"}
    schemas = []
    for count in (1, 2, 3):
        fields = [{"name": f"f{each}", "type": "int", "default": 0} for each in range(count)]
        text = json.dumps({"type": "record", "name": "R", "fields": fields})
        client.register("t-value", Schema(text))
        schemas.append(OttlaDataSource(given).schema())
    for count, schema in enumerate(schemas, 1):
        options = OttlaDataSource(given).reader(schema)._options
        assert schema_of(options.columns, options.value) == schema
        assert len(schema["value"].dataType) == count
    other = StructType().add("value", StructType().add("f1", StringType()))
    with pytest.raises(OptionError, match="has its own columns"):
        OttlaDataSource(given).reader(other)
    with pytest.raises(OptionError, match="has its own columns"):
        OttlaDataSource({**given, "avroSchema": text}).reader(schemas[0])


def test_a_wrong_option_is_told_before_the_cluster_is_asked():
    with pytest.raises(OptionError, match="unknown option 'topics'"):
        OttlaDataSource(OPTIONS | {"topics": "t"}).schema()


def test_the_planners_side_imports_the_standard_library_only():
    """Spark starts a process for every step; what it imports is paid for each time."""
    program = """
import sys
import pyspark.sql.datasource, pyspark.sql.streaming.datasource
before = set(sys.modules)
from ottla.spark.planning import plan, source, stream
rooms = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(rooms - sys.stdlib_module_names - {"ottla"}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)
