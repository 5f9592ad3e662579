"""What a run makes anew is kept until the new is there, whatever ends the run."""

import os

import pytest

from ottla.spark.pipelines.graph import Graph, Kind, Node
from ottla.spark.pipelines.keeping import KeptTables, Known, made_anew, place_of, unfinished


class FakeCatalog:
    def __init__(self, *known):
        self.known = {(each.database, each.name): each for each in known}
        self.put = []

    def find(self, database, name):
        return self.known.get((database, name))

    def put_back(self, known):
        self.put.append(known)


@pytest.fixture
def project(tmp_path):
    table = tmp_path / "warehouse" / "t"
    (table / "_spark_metadata").mkdir(parents=True)
    (table / "part-0.parquet").write_text("old")
    (table / "_spark_metadata" / "0").write_text("old list")
    (tmp_path / "storage" / "_checkpoints" / "c" / "d" / "t" / "t" / "0").mkdir(parents=True)
    return tmp_path


def kept_in(project, *more):
    known = Known("d", "t", "{}", str(project / "warehouse" / "t"))
    return KeptTables(project, (project / "storage").as_uri(), FakeCatalog(known, *more))


def refresh_halfway(project):
    """As Spark does: the table is emptied, a new checkpoint begun, and something written."""
    table = project / "warehouse" / "t"
    (table / "part-0.parquet").unlink()
    (table / "_spark_metadata" / "0").write_text("new list")
    (table / "part-1.parquet").write_text("half")
    (project / "storage" / "_checkpoints" / "c" / "d" / "t" / "t" / "1").mkdir()


def is_as_before(project):
    files = {
        str(each.relative_to(project)): each.read_text()
        for each in (project / "warehouse").rglob("*")
        if each.is_file()
    }
    versions = {each.name for each in (project / "storage").glob("_checkpoints/c/d/t/t/*")}
    before = {"warehouse/t/part-0.parquet": "old", "warehouse/t/_spark_metadata/0": "old list"}
    return files == before and versions == {"0"}


def test_a_refresh_that_fails_leaves_the_old_table(project):
    kept = kept_in(project)
    kept.keep([("d", "t"), ("d", "not there yet")])
    refresh_halfway(project)
    assert kept.put_back(["t"]) == ["t"]
    assert is_as_before(project)
    assert [each.name for each in kept._catalog.put] == ["t"]
    assert not (project / ".ottla" / "kept").exists()


def test_a_refresh_that_was_killed_is_undone_by_the_next_run(project):
    kept_in(project).keep([("d", "t")])
    refresh_halfway(project)
    assert kept_in(project).recover() == ["t"]
    assert is_as_before(project)
    assert kept_in(project).recover() == []


def test_putting_back_may_be_killed_too(project, monkeypatch):
    kept = kept_in(project)
    kept.keep([("d", "t")])
    refresh_halfway(project)
    monkeypatch.setattr(kept._catalog, "put_back", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        kept.put_back(["t"])
    assert kept_in(project).recover() == ["t"]
    assert is_as_before(project)


def test_one_that_was_killed_while_it_kept_undoes_nothing(project, monkeypatch):
    kept = kept_in(project)
    monkeypatch.setattr(kept, "_versions", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        kept.keep([("d", "t")])
    (project / "warehouse" / "t" / "part-1.parquet").write_text("more")
    assert kept_in(project).recover() == []
    assert (project / "warehouse" / "t" / "part-1.parquet").exists()


def test_what_came_to_its_end_is_new(project):
    kept = kept_in(project)
    kept.keep([("d", "t")])
    refresh_halfway(project)
    kept.forget()
    assert kept_in(project).recover() == []
    assert (project / "warehouse" / "t" / "part-1.parquet").read_text() == "half"


def test_large_files_are_not_copied(project, monkeypatch):
    kept = kept_in(project)
    kept.keep([("d", "t")])
    assert os.stat(project / "warehouse" / "t" / "part-0.parquet").st_nlink == 2
    assert os.stat(project / "warehouse" / "t" / "_spark_metadata" / "0").st_nlink == 1
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
    kept.keep([("d", "t")])
    refresh_halfway(project)
    kept.put_back(["t"])
    assert is_as_before(project)


@pytest.fixture
def graph():
    made = Graph("p")
    made.add(Node("s", Kind.STREAMING_TABLE))
    made.add(Node("db.other", Kind.STREAMING_TABLE))
    made.add(Node("v", Kind.MATERIALIZED_VIEW))
    made.add(Node("out", Kind.SINK))
    for flow, target in (("s", "s"), ("more", "s"), ("db.other", "db.other"), ("out", "out")):
        made.connect(flow, target, [])
    made.finish()
    return made


def test_what_is_made_anew(graph):
    assert made_anew(graph, (), everything=False) == ["v"]
    assert made_anew(graph, ("other",), everything=False) == ["db.other", "v"]
    assert made_anew(graph, (), everything=True) == ["s", "db.other", "v"]


def test_a_table_is_new_when_all_of_its_flows_have_ended(graph):
    assert unfinished(graph, ["s", "v"], {"s", "v"}) == ["s"]
    assert unfinished(graph, ["s", "db.other", "v"], {"s", "more", "other"}) == ["v"]


def test_where_a_table_is():
    assert place_of("t", None) == ("default", "t")
    assert place_of("t", "d") == ("d", "t")
    assert place_of("spark_catalog.x.t", "d") == ("x", "t")
