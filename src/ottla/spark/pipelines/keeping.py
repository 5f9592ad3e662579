"""Tables that a run makes anew, kept until the new ones are there.

Spark empties a table before it begins to make it anew; a run that fails then would leave nothing.
So before the run the files of such tables get second names here, and what does not come to its end
is put back: files, columns in the catalog, and the checkpoints (each full refresh begins one more,
which goes). After a kill the next run does that first. Files that Spark writes once have a second
name only, no second content. The driver's side, beside ``running``; knows no topics.

    PROJECT/.ottla/kept/kept.json          what is kept, and so what is to be put back
    PROJECT/.ottla/kept/1/...              the files of the first table

Tables whose files are elsewhere than in a file system of this machine are not kept.
Decision: docs/adr, a table that is made anew stays until the new one is there.
"""

import glob
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ottla.spark.pipelines.graph import Graph, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = (".ottla", "kept")
CHECKPOINTS = "_checkpoints"


class Known(NamedTuple):
    """A table as the catalog knows it."""

    database: str
    name: str
    schema: str
    """The schema of its data, as Spark's JSON."""
    location: str
    """A path on this machine."""


class Catalog:
    """What is needed of Spark's session catalog: the JVM's own, which Connect does not show."""

    def __init__(self, classic: "SparkSession") -> None:
        self._classic = classic
        state = classic._jsparkSession.sessionState()  # noqa: SLF001
        self._catalog: Any = state.catalog().externalCatalog()

    def find(self, database: str, name: str) -> Known | None:
        """Return a table with its files on this machine; None: there is none."""
        if not self._catalog.databaseExists(database):
            return None
        if not self._catalog.tableExists(database, name):
            return None
        table = self._catalog.getTable(database, name)
        location = urlsplit(str(table.location().toString()))
        if location.scheme not in {"", "file"} or table.tableType().name() == "VIEW":
            return None
        return Known(database, name, table.dataSchema().json(), unquote(location.path))

    def put_back(self, known: Known) -> None:
        """Give a table the columns that it had."""
        types: Any = self._classic._jvm.org.apache.spark.sql.types.DataType  # type: ignore[union-attr] # noqa: SLF001
        there = self._catalog.getTable(known.database, known.name)
        if there.dataSchema().json() != known.schema:
            schema = types.fromJson(known.schema)
            self._catalog.alterTableDataSchema(known.database, known.name, schema)
        if not there.partitionColumnNames().isEmpty():
            self._classic.sql(f"MSCK REPAIR TABLE `{known.database}`.`{known.name}`")


class KeptTables:
    """What one project's tables were before a run. Blocks."""

    def __init__(self, directory: Path, storage: str, catalog: Catalog) -> None:
        """``storage`` is the spec's, a URI."""
        self._place = directory.joinpath(*PLACE)
        self._list = self._place / "kept.json"
        place = urlsplit(storage)
        is_here = place.scheme in {"", "file"}
        self._checkpoints = Path(unquote(place.path)) / CHECKPOINTS if is_here else None
        self._catalog = catalog

    def recover(self) -> list[str]:
        """Put back what a run that was killed has left; return the tables' names."""
        names = [each["name"] for each in self._kept()]
        self.put_back(names)
        return names

    def keep(self, tables: Iterable[tuple[str, str]]) -> None:
        """Keep these tables, (database, name), as far as they are there, until ``forget``."""
        self.forget()
        kept = []
        for number, (database, name) in enumerate(tables):
            known = self._catalog.find(database, name)
            if known is None or not Path(known.location).is_dir():
                continue
            _link_all(Path(known.location), self._place / str(number))
            versions = [str(each) for each in self._versions(name)]
            kept.append({**known._asdict(), "files": str(number), "checkpoints": versions})
        if kept:
            fresh = self._place / "kept.json.new"
            fresh.write_text(json.dumps(kept), encoding="utf-8")
            fresh.replace(self._list)

    def put_back(self, names: Iterable[str]) -> list[str]:
        """Make these tables what they were, as far as they are kept; return their names."""
        wanted, done = set(names), []
        for each in self._kept():
            if each["name"] not in wanted:
                continue
            known = Known(*(each[field] for field in Known._fields))
            shutil.rmtree(known.location, ignore_errors=True)
            _link_all(self._place / each["files"], Path(known.location))
            for version in self._versions(known.name):
                if str(version) not in each["checkpoints"]:
                    shutil.rmtree(version, ignore_errors=True)
            self._catalog.put_back(known)
            done.append(known.name)
        self.forget()
        return done

    def forget(self) -> None:
        """Let go of what is kept: the run has come to its end."""
        self._list.unlink(missing_ok=True)
        shutil.rmtree(self._place, ignore_errors=True)

    def _kept(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = json.loads(self._list.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return found

    def _versions(self, name: str) -> Iterator[Path]:
        """Yield the checkpoints of a table's flows, each with all that it has begun so far."""
        if self._checkpoints is not None and self._checkpoints.is_dir():
            yield from self._checkpoints.glob(f"*/*/{glob.escape(name)}/*/*")


def _link_all(source: Path, target: Path) -> None:
    """Give the data files below ``source`` second names below ``target``; copy the small others.

    Spark writes a data file once; of the others it may write some again under their names.
    """
    target.mkdir(parents=True, exist_ok=True)
    for each in source.rglob("*"):
        into = target / each.relative_to(source)
        if each.is_dir():
            into.mkdir(parents=True, exist_ok=True)
            continue
        into.parent.mkdir(parents=True, exist_ok=True)
        into.unlink(missing_ok=True)
        if each.name.startswith("part-"):
            try:
                os.link(each, into)
            except OSError:  # another file system, or one without links
                shutil.copy2(each, into)
        else:
            shutil.copy2(each, into)


def made_anew(graph: Graph, full: Iterable[str], *, everything: bool) -> list[str]:
    """Return the tables that a run empties first: the views it makes anew each time, too."""
    asked = {graph.find(name) for name in full}
    return [
        name
        for name, node in graph.nodes.items()
        if node.kind is Kind.MATERIALIZED_VIEW
        or (node.kind is Kind.STREAMING_TABLE and (everything or name in asked))
    ]


def unfinished(graph: Graph, tables: Iterable[str], completed: Collection[str]) -> list[str]:
    """Return those of ``tables`` of which a flow is not among those that have ``completed``.

    Flows are told by the last part of their names.
    """
    return [
        name
        for name in tables
        if not {
            _bare(each)
            for each in [flow.name for flow in graph.flows if flow.target == name] or [name]
        }.issubset(completed)
    ]


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def place_of(name: str, database: str | None) -> tuple[str, str]:
    """Return the database and the bare name of a table that a graph names."""
    *above, bare = name.split(".")
    return above[-1] if above else database or "default", bare
